"""A question in the words of an operator, and the experiment file that answers it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from mc.model import units
from mc.model.cell import MAX_CLIENTS, MAX_LAYERS, MAX_QUEUE

PRESENT: Final = "as it is"
"""Name of the policy that the operator has."""

_ROUNDS: Final = (1.0, 0.1, 1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4)
"""Lengths of a round that are tried, in seconds."""

_LONGEST_ROUND: Final = 1e-2
_ROUNDS_A_REQUEST: Final = 4
"""A round is no longer, and there are as many for each request that arrives, where that is possible
in `_MOST_ROUNDS`: what comes in a round meets its capacity together, and retries come first, so a
longer one has fewer successes. Without a queue only what comes together waits at all, so there a
shorter one has fewer."""

_ROUNDS_IN_DEADLINE: Final = 20
"""A deadline has at least as many rounds, so that it is not a matter of rounding."""

_MOST_ROUNDS: Final = 1_000_000

_CALM_S: Final = 10.0
"""Seconds before the fault: what budgets remember of it."""

_MOST_REPLICATIONS: Final = 1000
_LEAST_REPLICATIONS: Final = 30
"""A service of so many requests differs little between runs."""

_AFTER_S: Final = 60.0
"""Seconds after the fault, at least: a storm may outlive it."""

_LATE_S: Final = 1.0
"""Without a deadline a success that took longer is late, unless callers wait longer for a call."""

_SHORT_QUEUE_S: Final = 0.02
"""Without time-outs a queue has room for what is served in so many seconds. Without any queue the
length of a round would decide how many calls come together before they fail."""

_MOST_SHORT: Final = 50
"""Calls for which it has room beyond that, at most, so that the calm loses few."""

CALM_LOSS: Final = 0.001
"""The share that a calm service may lose without a word."""

_QUEUE_TIMEOUTS: Final = 3
"""With time-outs it has room for what is served in so many: more than anybody waits for."""

_SECONDS_OF_WORK: Final = 10.0
"""So long should the experiment take on one core: of a common service there are 200 replications,
enough for every interval, with an error below the digits that an answer has."""

_SECONDS_A_REQUEST: Final = 2e-7
"""About what a request costs with its retries and rounds, in the general loop."""


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
    end : float or None
        To which the capacity goes in a straight line; None where it stays.
    """

    seconds: float
    capacity: float
    failure_rate: float
    end: float | None = None

    @property
    def slowest(self) -> float:
        """The least that is served in a second."""
        return self.capacity if self.end is None else min(self.capacity, self.end)


@dataclass(frozen=True)
class Question:
    """What an operator knows of a service.

    Attributes
    ----------
    rate : float
        Requests in a second.
    capacity : float
        Calls that the dependency can serve in a second.
    faults : tuple of Fault
        One after the other.
    layers : tuple of int
        Attempts of each layer, the outermost first.
    deadline : float or None
        Seconds after which a request is given up.
    backoff : tuple of (float, float)
        Ceiling of the first wait and of every wait, in seconds; each is drawn up to its ceiling.
    timeout : float or None
        Seconds that a caller waits for its call, which stands in a queue meanwhile; None where it
        waits until its deadline.
    room : int or None
        Calls that may wait; None for the usual number, see `queue`.
    clients : int
        Each with budgets and breakers of its own.
    """

    rate: float
    capacity: float
    faults: tuple[Fault, ...]
    layers: tuple[int, ...]
    deadline: float | None
    backoff: tuple[float, float]
    timeout: float | None = None
    room: int | None = None
    clients: int = 1

    @property
    def fault_s(self) -> float:
        """Seconds from the begin of the first fault to the end of the last."""
        return sum(fault.seconds for fault in self.faults)

    @property
    def attempts(self) -> int:
        """Most attempts of one request."""
        return math.prod(self.layers)

    @property
    def queue(self) -> int:
        """Calls that may wait at the dependency; others fail at once."""
        if self.room is not None:
            return self.room
        if self.timeout is not None:
            return math.ceil(_QUEUE_TIMEOUTS * self.capacity * self.timeout)
        return max(self._calm_queue, math.ceil(_SHORT_QUEUE_S * self.capacity))

    @property
    def _calm_queue(self) -> int:
        """Calls that must be able to wait for the calm to lose few."""
        if self.rate >= self.capacity:
            return _MOST_SHORT
        losses = enumerate(islice(_calm_losses(self.rate / self.capacity), _MOST_SHORT), 1)
        return next((room for room, lost in losses if lost <= CALM_LOSS / 2), _MOST_SHORT)

    @property
    def short_queue(self) -> int | None:
        """Calls that are served in half the time-out, even by the slowest fault that serves any.

        None without a time-out, or where no more may wait as it is.
        """
        if self.timeout is None:
            return None
        slowest = min((f.slowest for f in self.faults if f.slowest), default=self.capacity)
        room = max(self._calm_queue, math.floor(self.timeout * slowest / 2))
        return room if room < self.queue else None

    @property
    def late_s(self) -> float:
        """Seconds after which a success is late: the deadline; else a second, or the time-out."""
        return self.deadline or max(_LATE_S, self.timeout or 0.0)


def _calm_losses(load: float) -> Iterator[float]:
    """Yield the share of calls that find no room where 1, 2, 3, ... may wait.

    Parameters
    ----------
    load : float
        Calls that arrive from one service to the next, at random; below 1.

    Notes
    -----
    The calls that wait after each service are a Markov chain. As many
    steps lead up past a number as down, and down it is one by one; so the weights of its states are
    the same for every length of the queue, but for their sum.
    """
    none = p = math.exp(-load)
    more = [1.0, 1.0 - p]  # the chance of so many arrivals in a slot, or more
    weights = [1.0]
    while True:
        served = 1.0 - weights[0] * none / sum(weights)
        yield 1.0 - served / load
        p *= load / (len(more) - 1)
        more.append(more[-1] - p)
        up = sum(weight * tail for weight, tail in zip(weights, reversed(more), strict=False))
        weights.append(up / none)


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


def read_queue(text: str, capacity: float) -> int:
    """Read how many calls may wait: ``20 ms`` (at the usual capacity), ``8`` (calls) or ``none``.

    Parameters
    ----------
    text : str
    capacity : float
        The usual one, in a second.

    Returns
    -------
    int

    Raises
    ------
    AskError
        It is none of these.
    """
    text = text.strip()
    time = units.parse(text, "time")
    calls = re.fullmatch(r"([0-9]{1,8})(?: calls?)?", text)
    room = 0 if text == "none" else -1
    if calls is not None:
        room = int(calls[1])
    elif time is not None and time.value > 0:
        room = max(1, math.ceil(time.value * capacity - 1e-6))
    if not 0 <= room <= MAX_QUEUE:
        raise AskError(
            f'must be a time at the usual capacity such as "20 ms", a number of calls up to '
            f"{MAX_QUEUE:,} or none, got {text!r}"
        )
    return room


def read_clients(text: str) -> int:
    """Read a number of clients.

    Raises
    ------
    AskError
        It is none, or there are too many.
    """
    if not re.fullmatch(r"[0-9]{1,6}", text.strip()) or not 1 <= int(text) <= MAX_CLIENTS:
        raise AskError(f"must be a whole number from 1 to {MAX_CLIENTS:,}, got {text!r}")
    return int(text)


def read_faults(text: str, capacity: float) -> tuple[Fault, ...]:
    """Read how long each fault lasts, one after the other, and what is left meanwhile.

    Parameters
    ----------
    text : str
        ``45 s`` (nothing), ``45 s at 20 %`` (of the capacity), ``45 s at 80/s``,
        ``30 s from 20 % to 100 %`` (ever more), or ``8 s failing 30 %``; several with commas
        between them.
    capacity : float
        The usual one, in a second.

    Returns
    -------
    tuple of Fault

    Raises
    ------
    AskError
        It is none of these.
    """
    faults = [_fault(part, capacity) for part in text.split(",")]
    if None in faults:
        raise AskError(
            'must be like "45 s" (an outage), "45 s at 20 %" (of the capacity), "45 s at 80/s", '
            '"30 s from 20 % to 100 %" (ever more), "8 s failing 30 %", or several such as '
            f'"45 s at 20 %, 10 s at 100 %, 30 s at 50 %", got {text!r}'
        )
    return tuple(fault for fault in faults if fault)


def _fault(text: str, capacity: float) -> Fault | None:
    found = re.fullmatch(r"\s*(.+?)(?:\s+(at|failing|from)\s+(.+?)(?:\s+to\s+(.+?))?)?\s*", text)
    length = None if found is None else units.parse(found[1], "time")
    if (
        found is None
        or length is None
        or length.value <= 0
        or (found[2] == "from") != bool(found[4])
    ):
        return None
    if found[2] == "failing":
        share = _share(found[3])
        return None if share is None else Fault(length.value, capacity, share)
    first, last = (_served(part, capacity) for part in (found[3] or "0 %", found[4] or "0 %"))
    if first is None or last is None:
        return None
    return Fault(length.value, first, 0.0, last if found[4] else None)


def _served(text: str, capacity: float) -> float | None:
    """What is left of a capacity: a share of it, or a rate that is no higher."""
    share, rate = _share(text), units.parse(text, "rate")
    if share is not None:
        return share * capacity
    return None if rate is None or rate.value > capacity else rate.value


def _share(text: str) -> float | None:
    share = units.parse(re.sub(r"(?<=[0-9])%", " %", text), "share")
    return None if share is None or share.value > 1 else share.value


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
    # as libraries have them: each layer its own, and what it saved up is forgotten
    share = {"kind": "finagle", "percent_can_retry": 0.1, "min_retries_per_sec": 0}
    budget = {"budget": share, "budget_scope": "layer"}
    outermost = [tries[0], *[1] * (n - 1)]
    found: dict[str, dict[str, object]] = {PRESENT: {"tries": tries}}
    if max(tries) > 1:
        found["no retries"] = {"tries": [1] * n}
        if n > 1 and tries[0] > 1:
            found["only the outermost layer retries"] = {"tries": outermost}
        if n > 1 and tries[-1] > 1:
            found["only the innermost layer retries"] = {"tries": [*[1] * (n - 1), tries[-1]]}
        if sum(attempts > 1 for attempts in tries) > 2:
            most = tries.index(max(tries))
            fewer = [1 if i == most else attempts for i, attempts in enumerate(tries)]
            found[f"fewer attempts, {shape(fewer)}"] = {"tries": fewer}
        each = ", each layer" if n > 1 else ""
        found[f"retry budget 10 %{each}"] = {"tries": tries, **budget}
        found[f"retry budget 20 % + 10/s{each}"] = {
            "tries": tries,
            **budget,
            "budget": {"kind": "finagle"},
        }
        found["backoff 4 times as long"] = {
            "tries": tries,
            "backoff_base": _time(4 * base),
            "backoff_cap": _time(4 * cap),
        }
    # by default it is open for a minute: as long as most runs after their fault
    breaker = {"kind": "resilience4j", "wait_duration_in_open_state": "10 s"}
    found["circuit breaker, open for 10 s"] = {"tries": tries, "breaker": breaker}
    if max(tries) < 3:
        found["3 attempts, outermost layer"] = {"tries": [3, *[1] * (n - 1)]}
        found["3 attempts, outermost layer, budget 10 %"] = {"tries": [3, *[1] * (n - 1)], **budget}
    lean: tuple[str, dict[str, object]] | None = None
    if n > 1 and tries[-1] > 1:
        lean = "innermost layer retries", {"tries": [*[1] * (n - 1), tries[-1]]}
    elif max(tries) > 1:
        lean = "budget 10 %", {"tries": tries, **budget}
    cures: dict[str, tuple[str, dict[str, object]]] = {}
    if question.short_queue is not None:
        name = f"short queue, {question.short_queue:,} calls"
        cures[name] = "short queue", {"queue": question.short_queue}
    if question.queue and (question.timeout or question.deadline):
        cures["calls given up are cancelled"] = "cancelled", {"cancel": True}
    for name, (short, sets) in cures.items():
        found[name] = {"tries": tries, **sets}
        if lean is not None and question.timeout is not None:
            found[f"{short}, {lean[0]}"] = {**lean[1], **sets}
    return found


def shape(tries: Iterable[int]) -> str:
    """Write attempts as they are read: ``2x3x2``."""
    return "x".join(map(str, tries))


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
    length = _length(question)
    every = policies(question)
    lines = [
        "# Made by `retrystorm ask`. The same question again, after any change:",
        "#",
        f"#     retrystorm run {file}",
        "",
        f"title = {_toml(_title(question))}",
        "seed = 1                        # same seed, same numbers",
        f"replications = {_replications(question, length, len(every))}",
        "",
        "# What all policies share.",
        "[fixed]",
        _line("round", _time(round_s), "time is counted in steps of this length"),
        _line("rounds", _time(length), "length of a run"),
        _line("arrivals_per_second", _rate(question.rate), "requests, at random (Poisson)"),
        _line("capacity", _rate(question.capacity), "calls served"),
        *_fault_lines(question),
        _line("queue", question.queue, "calls that may wait; others fail at once"),
    ]
    if question.timeout is not None:
        lines.append(_line("timeout", _time(question.timeout), "then the caller gives a call up"))
    base, cap = question.backoff
    lines += [
        _line("backoff_base", _time(base), "the first wait is drawn up to this"),
        _line("backoff_cap", _time(cap), "doubled with each attempt, up to this"),
    ]
    if question.deadline is not None:
        lines.append(_line("deadline", _time(question.deadline), "then a request is given up"))
    late = "a success that took longer is late" if question.deadline is None else "none is late"
    lines.append(_line("threshold", _time(question.late_s), late))
    if question.clients > 1:
        lines.append(_line("clients", question.clients, "each with budgets of its own"))
    lines += ["", "# What may be done; the first is the present policy.", ""]
    for name, sets in every.items():
        lines += ["[[policy]]", f"name = {_toml(name)}"]
        lines += [f"{key} = {_toml(value)}" for key, value in sets.items()]
        lines.append("")
    return "\n".join(lines)


def _title(question: Question) -> str:
    """What is asked, with what the answer depends on most."""
    waits = f"{question.queue:,} calls can wait" if question.queue else "no call can wait"
    timeout = ""
    if question.timeout is not None:
        timeout = f", {units.format_time(question.timeout)} long"
    rate, capacity = (units.format_rate(one) for one in (question.rate, question.capacity))
    return f"{rate} for a dependency that serves {capacity}, where {waits}{timeout}"


def _fault_lines(question: Question) -> Iterator[str]:
    """Say what happens; one fault may be changed most easily where it has lines of its own."""
    start = _CALM_S
    first, *others = question.faults
    if not others and first.end is None:
        yield _line("fault_start", _time(start), "calm before")
        yield _line("fault_rounds", _time(first.seconds), "the fault")
        yield _line("fault_capacity", _rate(first.capacity), "calls served meanwhile")
        if first.failure_rate:
            share = f"{100 * first.failure_rate:.10g} %"
            yield _line("fault_failure_rate", share, "served calls that fail meanwhile")
        return
    yield f"{'faults = [':<32}# capacity_end: it goes there; failure_rate: of served calls"
    for fault in question.faults:
        entry = {
            "start": _time(start),
            "length": _time(fault.seconds),
            "capacity": _rate(fault.capacity),
            "failure_rate": fault.failure_rate,
        }
        if fault.end is not None:
            entry["capacity_end"] = _rate(fault.end)
        yield f"    {_toml(entry)},"
        start += fault.seconds
    yield "]"


def _length(question: Question) -> float:
    """Seconds of a run."""
    # of a request whose calls all time out
    patience = min(question.deadline or math.inf, (question.timeout or 0.0) * question.attempts)
    after = max(_AFTER_S, question.fault_s, 5 * question.backoff[1], 2 * math.ceil(patience))
    return _CALM_S + question.fault_s + after


def _round(question: Question) -> float:
    """A round in which all times are whole, and deadline and time-out have enough."""
    patience = [time for time in (question.deadline, question.timeout) if time]
    lengths = [fault.seconds for fault in question.faults]
    times = [*lengths, *question.backoff, *patience]
    most = min(
        question.backoff[0],
        0.1 * min(lengths),
        *(time / _ROUNDS_IN_DEADLINE for time in patience),
    )
    fitting = [
        length
        for length in _ROUNDS
        if length <= most * (1 + 1e-9) and all(_is_whole(time / length) for time in times)
    ]
    if not fitting:
        raise AskError(
            f"{', '.join(map(units.format_time, times))} are no whole numbers of rounds of "
            f"{units.format_time(_ROUNDS[-1])}: round them"
        )
    able = [length for length in fitting if _length(question) <= _MOST_ROUNDS * length]
    if not able:
        n_rounds = round(_length(question) / fitting[0])
        raise AskError(
            f"a fault of {units.format_time(question.fault_s)} has {n_rounds:,} rounds of "
            f"{units.format_time(fitting[0])}, which the deadline and the backoff need; at most "
            f"{_MOST_ROUNDS:,} are simulated: give a shorter fault"
        )
    short = _LONGEST_ROUND
    if question.queue:
        short = min(short, 1 / (_ROUNDS_A_REQUEST * question.rate))
    return next((length for length in able if length <= short), able[-1])


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) <= 1e-6 * max(1.0, number)


def _replications(question: Question, length: float, n_policies: int) -> int:
    """As many as take `_SECONDS_OF_WORK`, to one significant digit."""
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


def _line(key: str, value: object, comment: str) -> str:
    return f"{f'{key} = {_toml(value)}':<32}# {comment}"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
