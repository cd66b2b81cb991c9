"""A question in the words of an operator, and the experiment file that answers it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from mc.model import units
from mc.model.cell import MAX_LAYERS

PRESENT: Final = "as it is"
"""Name of the policy that the operator has."""

_ROUNDS: Final = (0.01, 0.001, 0.0001)
"""Lengths of a round that are tried, in seconds."""

_LONG_ROUNDS: Final = (0.1, 1.0)
"""Tried for faults of hours: what arrives in a round meets its capacity together, so shorter ones
are truer."""

_ROUNDS_IN_DEADLINE: Final = 20
"""A deadline has at least as many rounds, so that it is not a matter of rounding."""

_MOST_ROUNDS: Final = 1_000_000

_CALM_S: Final = 10.0
"""Seconds before the fault, at least: what budgets remember of it."""

_MOST_REPLICATIONS: Final = 1000
_LEAST_REPLICATIONS: Final = 100

_AFTER_QUEUE_S: Final = 60.0
"""Seconds after the fault, at least, where a queue may keep the storm alive."""

_QUEUE_TIMEOUTS: Final = 3
"""A queue has room for what is served in so many time-outs: more than anybody waits for."""

_SECONDS_OF_WORK: Final = 30.0
"""So long should the experiment take on one core."""

_SECONDS_A_REQUEST: Final = 2e-7
"""About what a request costs with its retries: three calls in the general loop."""


class AskError(ValueError):
    """An answer that cannot be read; the message says what would be right."""


class Fault(NamedTuple):
    """What happens: how long, and what is left of the dependency.

    Attributes
    ----------
    seconds : float
    capacity : float
        Calls served in a second.
    failure_rate : float
        Chance that a served call fails.
    """

    seconds: float
    capacity: float
    failure_rate: float


@dataclass(frozen=True)
class Question:
    """What an operator knows of a service.

    Attributes
    ----------
    rate : float
        Requests in a second.
    capacity : float
        Calls that the dependency can serve in a second.
    fault : Fault
    layers : tuple of int
        Attempts of each layer, the outermost first.
    deadline : float or None
        Seconds after which a request is given up.
    backoff : tuple of (float, float)
        Ceiling of the first wait and of every wait, in seconds; each is drawn up to its ceiling.
    timeout : float or None
        Seconds that a caller waits for its call, which stands in a queue meanwhile; None where a
        call that cannot be served fails at once.
    """

    rate: float
    capacity: float
    fault: Fault
    layers: tuple[int, ...]
    deadline: float | None
    backoff: tuple[float, float]
    timeout: float | None = None


# --- the answers, read ----------------------------------------------------------------------------


def read_rate(text: str) -> float:
    """Read a rate, in a second: ``250/s``.

    Raises
    ------
    AskError
        It is none, or not above 0.
    """
    return _positive(text, "rate", '"250/s"')


def read_time(text: str) -> float:
    """Read a time, in seconds: ``300 ms``.

    Raises
    ------
    AskError
        It is none, or not above 0.
    """
    return _positive(text, "time", '"300 ms" or "2 s"')


def _positive(text: str, dimension: units.Dimension, like: str) -> float:
    quantity = units.parse(text, dimension)
    if quantity is None or quantity.value <= 0:
        raise AskError(f"must be a {dimension} above 0 such as {like}, got {text!r}")
    return quantity.value


def read_deadline(text: str) -> float | None:
    """Read a time, in seconds, or ``none``; as `read_time`."""
    return None if text.strip() == "none" else read_time(text)


def read_layers(text: str) -> tuple[int, ...]:
    """Read the attempts of each layer, the outermost first: ``2x3x2``.

    Raises
    ------
    AskError
        They are no such numbers, or too many.
    """
    parts = re.split(r"\s*[x,]\s*", text.strip())
    tries = [int(part) for part in parts if re.fullmatch(r"[0-9]{1,4}", part)]
    if len(tries) != len(parts) or min(tries) < 1:
        raise AskError(
            "must be the attempts of each layer, the outermost first and each at least 1, such as "
            f"2x3x2, got {text!r}"
        )
    if len(tries) > MAX_LAYERS:
        raise AskError(f"must be at most {MAX_LAYERS} layers, got {len(tries)}")
    return tuple(tries)


def read_fault(text: str, capacity: float) -> Fault:
    """Read how long a fault lasts, and what is left meanwhile.

    Parameters
    ----------
    text : str
        ``45 s`` (nothing), ``45 s at 20 %`` (of the capacity), ``45 s at 80/s``, or
        ``8 s failing 30 %``.
    capacity : float
        The usual one, in a second.

    Returns
    -------
    Fault

    Raises
    ------
    AskError
        It is none of these.
    """
    wrong = AskError(
        'must be like "45 s" (an outage), "45 s at 20 %" (of the capacity), "45 s at 80/s", or '
        f'"8 s failing 30 %", got {text!r}'
    )
    found = re.fullmatch(r"\s*(.+?)(?:\s+(at|failing)\s+(.+?))?\s*", text)
    length = None if found is None else units.parse(found[1], "time")
    if found is None or length is None or length.value <= 0:
        raise wrong
    if found[2] is None:
        return Fault(length.value, 0.0, 0.0)
    share = units.parse(re.sub(r"(?<=[0-9])%", " %", found[3]), "share")
    if share is not None and share.value <= 1:
        if found[2] == "failing":
            return Fault(length.value, capacity, share.value)
        return Fault(length.value, share.value * capacity, 0.0)
    rate = units.parse(found[3], "rate")
    if rate is None or found[2] == "failing" or rate.value > capacity:
        raise wrong
    return Fault(length.value, rate.value, 0.0)


# --- the experiment -------------------------------------------------------------------------------


def policies(question: Question) -> dict[str, dict[str, object]]:
    """The policy that there is, and those that might be better, by name.

    Parameters
    ----------
    question : Question

    Returns
    -------
    dict of str to dict
        What each sets; the present one comes first.
    """
    tries = list(question.layers)
    n = len(tries)
    base, cap = question.backoff
    budget = {"kind": "ratio", "ratio": 0.1, "window": "10 s"}
    outermost = [tries[0], *[1] * (n - 1)]
    innermost = [*[1] * (n - 1), tries[-1]]
    found: dict[str, dict[str, object]] = {PRESENT: {"tries": tries}}
    if max(tries) > 1:
        found["no retries"] = {"tries": [1] * n}
        if n > 1 and tries[0] > 1:
            found["only the outermost layer retries"] = {"tries": outermost}
        if n > 1 and tries[-1] > 1:
            found["only the innermost layer retries"] = {"tries": innermost}
        found["retry budget 10 %"] = {"tries": tries, "budget": budget}
        found["retry budget 50 %"] = {"tries": tries, "budget": budget | {"ratio": 0.5}}
        found["backoff 4 times as long"] = {
            "tries": tries,
            "backoff_base": _time(4 * base),
            "backoff_cap": _time(4 * cap),
        }
    if max(tries) < 3:
        found["3 attempts, outermost layer"] = {"tries": [3, *[1] * (n - 1)]}
        found["the same, retry budget 10 %"] = {"tries": [3, *[1] * (n - 1)], "budget": budget}
    if question.timeout is not None:
        found["queue of half the time-out"] = {
            "tries": tries,
            "queue": math.ceil(question.capacity * question.timeout / 2),
        }
        found["calls given up are cancelled"] = {"tries": tries, "cancel": True}
    return found


def experiment_text(question: Question, file: str) -> str:
    """Write the experiment that answers a question, with comments.

    Parameters
    ----------
    question : Question
    file : str
        Name of the file, for the comment that says how to run it.

    Returns
    -------
    str
        TOML.

    Raises
    ------
    AskError
        The times cannot be told apart in a run of a million rounds.
    """
    round_s = _round(question)
    before = _up_to(max(_CALM_S, 2.0), round_s)
    fault = question.fault
    least = 10.0 if question.timeout is None else _AFTER_QUEUE_S
    after = _up_to(max(least, fault.seconds, 5 * question.backoff[1]), round_s)
    length = before + fault.seconds + after
    n_rounds = round(length / round_s)
    if n_rounds > _MOST_ROUNDS:
        raise AskError(
            f"a fault of {units.format_time(fault.seconds)} has {n_rounds:,} rounds of "
            f"{units.format_time(round_s)}, which the deadline and the backoff need; at most "
            f"{_MOST_ROUNDS:,} are simulated: give a shorter fault"
        )
    every = policies(question)
    lines = [
        "# Made by `retrystorm ask`. The same question again, after any change:",
        "#",
        f"#     retrystorm run {file}",
        "",
        'title = "What do retries do to this service?"',
        "seed = 1                        # same seed, same numbers",
        f"replications = {_replications(question, length, len(every))}",
        "",
        "# What all policies share.",
        "[fixed]",
        _line("round", _time(round_s), "time is counted in steps of this length"),
        _line("rounds", _time(length), "length of a run"),
        _line("arrivals_per_second", _rate(question.rate), "requests, at random (Poisson)"),
        _line("capacity", _rate(question.capacity), "calls served"),
        _line("fault_start", _time(before), "calm before"),
        _line("fault_rounds", _time(fault.seconds), "the fault"),
        _line("fault_capacity", _rate(fault.capacity), "calls served meanwhile"),
    ]
    if fault.failure_rate:
        share = f"{100 * fault.failure_rate:.10g} %"
        lines.append(_line("fault_failure_rate", share, "served calls that fail meanwhile"))
    if question.timeout is not None:
        room = math.ceil(_QUEUE_TIMEOUTS * question.capacity * question.timeout)
        lines.append(f"{f'queue = {room}':<32}# calls that may wait; others fail at once")
        lines.append(_line("timeout", _time(question.timeout), "then the caller gives a call up"))
    base, cap = question.backoff
    lines += [
        _line("backoff_base", _time(base), "the first wait is drawn up to this"),
        _line("backoff_cap", _time(cap), "doubled with each attempt, up to this"),
    ]
    if question.deadline is not None:
        lines.append(_line("deadline", _time(question.deadline), "then a request is given up"))
        lines.append(_line("threshold", _time(question.deadline), "nothing that succeeds is late"))
    lines += ["", "# What may be done; the first is the present policy.", ""]
    for name, sets in every.items():
        lines += ["[[policy]]", f"name = {_toml(name)}"]
        lines += [f"{key} = {_toml(value)}" for key, value in sets.items()]
        lines.append("")
    return "\n".join(lines)


def _round(question: Question) -> float:
    """The first round in which all times are whole, and deadline and time-out have enough."""
    patience = [time for time in (question.deadline, question.timeout) if time]
    times = [question.fault.seconds, *question.backoff, *patience]
    least = min(
        question.backoff[0],
        0.1 * question.fault.seconds,
        *(time / _ROUNDS_IN_DEADLINE for time in patience),
    )
    is_long = 2 * question.fault.seconds > _MOST_ROUNDS * _ROUNDS[0]
    for length in (*_LONG_ROUNDS, *_ROUNDS) if is_long else _ROUNDS:
        if length <= least * (1 + 1e-9) and all(_is_whole(time / length) for time in times):
            return length
    raise AskError(
        f"{', '.join(map(units.format_time, times))} are no whole numbers of rounds of "
        f"{units.format_time(_ROUNDS[-1])}: round them"
    )


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) <= 1e-6 * max(1.0, number)


def _up_to(seconds: float, round_s: float) -> float:
    return math.ceil(seconds / round_s - 1e-9) * round_s


def _replications(question: Question, length: float, n_policies: int) -> int:
    """As many as take half a minute, to one significant digit."""
    cost = question.rate * length * n_policies * _SECONDS_A_REQUEST
    n = max(_LEAST_REPLICATIONS, min(_MOST_REPLICATIONS, _SECONDS_OF_WORK / cost))
    return int(float(f"{n:.1g}"))


def _time(seconds: float) -> str:
    for unit in ("s", "ms", "us"):
        number = seconds / units.SECONDS[unit]
        if _is_whole(number) and number >= 1:
            return f"{round(number)} {unit}"
    return f"{seconds:.10g} s"


def _rate(per_second: float) -> str:
    return f"{per_second:.10g}/s"


def _line(key: str, value: str, comment: str) -> str:
    return f"{f'{key} = {_toml(value)}':<32}# {comment}"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
