"""What is allowed in a cell, but hardly meant: its answers would be about something else."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from mc.experiment.messages import N_NAMED, first_of
from mc.model import PARAMETERS, Cell, units
from mc.model.breakers import Resilience4j
from mc.model.budgets import Aws, Finagle, Grpc, Linkerd, Ratio, Sre
from mc.model.digits import percent
from mc.model.waits import Backoff, Wait, longest_life, spans, waits_of

MOST_SAVED: Final = 0.1
"""Of the retries that a fault can use: if more were saved in the calm before, that decides."""

MOST_OVERFLOW: Final = 0.005
"""Of the first calls of the calm: if chance makes more fail, the length of a round decides."""

MOST_PEAKS: Final = 1e-3
"""Calls beyond the capacity, in a round of the calm: if chance brings more, it makes the peak."""

MOST_PENDING: Final = 0.1
"""Retries that are pending in the calm, on average: if more are, there is hardly a time without."""

MOST_ROUNDED: Final = 0.05
"""Of the retries after a time-out: if rounding brings more of them in time, a round is too long."""

_ROUNDS_LOOKED_AT: Final = 1000
"""Of traffic that varies, so many rounds of the calm, evenly spread."""


def _rounds_after(cell: Cell) -> int:
    """Rounds between the end of the fault and that of the run; negative if it ends before."""
    return cell.rounds - cell.window[1]


def _is_cut_off(cell: Cell) -> bool:
    """Whether requests of the fault may be undecided when the run ends, for they live so long."""
    life = cell.longest_life
    if life is None:  # who can say how long calls wait
        life = cell.longest_wait
    return bool(cell.all_faults) and 0 < _rounds_after(cell) < life


def _is_backlogged(cell: Cell) -> bool:
    """Whether what the fault leaves behind takes longer than the run, even without a retry more."""
    after, end = _rounds_after(cell), cell.window[1]
    if cell.max_attempts == 1 or after <= 0 or cell.queue or cell.is_closed:
        return False
    spare = cell.capacity * after - cell.requests_in(end, cell.rounds)
    if spare <= 0:
        return False
    unserved = 0.0
    for fault in cell.all_faults:
        # those that may still live when the fault ends
        living = min(fault.length, cell.longest_wait)
        inside = cell.requests_in(fault.end - living, fault.end) - fault.capacity * living
        unserved += max(0.0, inside)
    return unserved > spare


def _is_too_much(cell: Cell) -> bool:
    return cell.requests_in(0, cell.rounds) > cell.capacity * cell.rounds


def _has_no_time_left(cell: Cell) -> bool:
    deadlines = [layer.deadline for layer in cell.layers if layer.deadline is not None]
    if not cell.queue or cell.timeout is None or not deadlines:
        return False
    longest = cell.timeout if cell.max_attempts > 1 else cell.timeout - 1
    return min(deadlines) <= longest and not any(_rounded_in(cell))


def _opens_again(cell: Cell) -> bool:
    """Whether the calls that a half-open breaker permits may fail for meeting in one round."""
    breaker = cell.breaker
    if breaker is None or cell.queue:
        return False
    if isinstance(breaker, Resilience4j):
        permitted = breaker.permitted_number_of_calls_in_half_open_state
        n = min(permitted, breaker.minimum_number_of_calls)  # so many outcomes decide
        bearable = n * breaker.failure_rate_threshold / 100
        fails = max(0.0, n - cell.capacity) >= max(bearable, 1e-9)
    else:
        n = breaker.max_requests
        fails = n > cell.capacity
    # all attempts of a request may come while it is open; a client has a breaker of its own
    in_a_round = cell.requests_in(0, cell.rounds) / cell.rounds * cell.max_attempts / cell.clients
    return fails and in_a_round >= n


def _is_never_given_up(cell: Cell) -> bool:
    has_deadline = any(layer.deadline is not None for layer in cell.layers)
    return bool(cell.queue and cell.cancel and cell.timeout is None and not has_deadline)


def _never_refuses(cell: Cell) -> bool:
    """Whether there are budgets, and each allows all retries that can be made under it."""
    with_budget = [layer for layer in cell.layers if layer.budget is not None]
    return (
        bool(with_budget)
        and cell.max_attempts > 1
        and cell.breaker is None
        and all(
            _share_of_primary(layer.budget)
            >= (layer.tries if cell.budget_scope == "layer" else cell.max_attempts) - 1
            for layer in with_budget
        )
    )


HARDLY_MEANT: Final[dict[str, Callable[[Cell], bool]]] = {
    "the fault begins after the last round": lambda cell: (
        bool(cell.all_faults) and cell.window[0] >= cell.rounds
    ),
    "the fault lasts until the last round, so no recovery is seen": lambda cell: (
        cell.window[0] < cell.rounds <= cell.window[1]
    ),
    "the recorded traffic goes on when the run ends: what comes later is cut": lambda cell: (
        cell.traffic is not None and cell.traffic.covers > cell.rounds
    ),
    "more requests arrive than the capacity serves, fault or not": _is_too_much,
    "a request may wait longer than the run goes on after the fault: many are undecided when it "
    "ends, neither successful nor dropped; raise rounds": _is_cut_off,
    "what the fault leaves behind cannot be served in the rest of the run: raise rounds": (
        lambda cell: _is_backlogged(cell) and not _is_cut_off(cell)
    ),
    "timeout and cancel are about calls that wait, and without a queue none does: set queue": (
        lambda cell: cell.queue == 0 and (cell.timeout is not None or cell.cancel)
    ),
    "timeout is not shorter than a deadline, so no time is left to retry a call that timed out": (
        _has_no_time_left
    ),
    "cancel changes nothing: without timeout and deadline no caller gives up a call that waits": (
        _is_never_given_up
    ),
    'served calls fail and are retried in the calm, too, so "retries gone after" measures the '
    "calm, not the storm": lambda cell: (
        bool(cell.all_faults)
        and cell.failure_rate > 0
        and overflow(cell) <= MOST_OVERFLOW
        and pending_in_calm(cell) > MOST_PENDING
    ),
    "the calls that a half-open breaker permits may come in one round, whose capacity serves too "
    "few of them, so it opens again and may stay open for ever: set a queue, or longer rounds": (
        _opens_again
    ),
    "a budget allows as many retries as the tries can make, so it never refuses one (it is a "
    "share: 0.1 is 10 %)": _never_refuses,
    "the queue has room for every call of the run, so none is ever refused": lambda cell: (
        cell.queue > cell.requests_in(0, cell.rounds) * cell.max_attempts > 0
    ),
}
"""Sentences, and whether they are true of a cell."""


def share_saved(cell: Cell) -> float:
    """Share of the retries that the fault can use that were saved in the calm before it.

    A budget that is a share of all primary calls since the first round, and forgets none, saves up
    in the calm. The longer that is, the more retries the fault may use.
    """
    shares = [_share_of_primary(layer.budget) for layer in cell.layers]
    start, end = cell.window
    during = min(end, cell.rounds) - start
    budget = max(shares, default=0.0)
    if budget == 0 or during <= 0 or cell.max_attempts == 1 or _never_refuses(cell):
        return 0.0
    # of a closed loop nobody knows it before
    before, inside = cell.requests_in(0, start), cell.mean_window_requests or 0.0
    saved = max(0.0, budget - cell.failure_rate) * before
    usable = min(saved + budget * inside, (cell.max_attempts - 1) * inside)
    return min(1.0, saved / usable) if usable else 0.0


def _share_of_primary(budget: object) -> float:
    """The share that a budget allows of all primary calls so far; 0 for one that forgets."""
    if isinstance(budget, Ratio):
        return budget.ratio if budget.window is None else 0.0
    return budget if isinstance(budget, float) else 0.0


def saving_remark(shares: Mapping[str, float]) -> str:
    """Say that the calm decides the answer, given the share that was saved in each scenario."""
    first, *others = (f"{100 * share:.0f} % in {scenario}" for scenario, share in shares.items())
    shares_text = ", ".join([first, *others])
    return (
        "a budget that never forgets saves up in the calm before the fault: of the retries that "
        f"it allows until the fault ends {shares_text}. So the answer depends on fault_start. The "
        'budgets of libraries forget in seconds: budget = {kind = "ratio", ratio = ..., window = '
        '"10 s"}'
    )


# --- what is remembered ---------------------------------------------------------------------------

_JUDGED_S: Final = 5
"""Seconds in which a run must be well at its end to count as recovered."""


def memory_remark(cells: Iterable[tuple[str, Cell]]) -> str:
    """Say where a run ends before what the fault left is over; empty where none does.

    The cells are given each as in `ties_remark`.
    """
    places: dict[str, dict[str, None]] = {}
    left: dict[str, float] = {}
    for place, cell in cells:
        after_s = _rounds_after(cell) / cell.rounds_per_second
        for rounds, what in _memories(cell):
            memory_s = rounds / cell.rounds_per_second
            if 0 < after_s < memory_s + _JUDGED_S:
                told = f"{what} {units.format_time(float(f'{memory_s:.3g}'))}"
                left[told] = min(after_s, left.get(told, math.inf))
                places.setdefault(told, {})[place] = None
    if not places:
        return ""
    told_of = {
        f"{told}, and {units.format_time(float(f'{left[told]:.3g}'))} are left after the fault": of
        for told, of in places.items()
    }
    return (
        "the run ends while a breaker or a budget may still act on the fault, so a service that "
        f"would come back counts as lost: {_with_places(told_of)}. Raise rounds"
    )


def _memories(cell: Cell) -> Iterator[tuple[float, str]]:
    """How many rounds a breaker or a budget acts on what it saw, and in which words.

    A budget acts on the calm only where calls fail in it, or where it rejects first calls, too.
    """
    if not cell.all_faults:
        return
    if isinstance(cell.breaker, Resilience4j):
        yield cell.breaker.wait_duration_in_open_state, "a breaker stays open for"
    elif cell.breaker is not None:
        yield cell.breaker.timeout, "a breaker stays open for"
    mean = cell.requests_in(0, cell.rounds) / cell.rounds / cell.clients
    for budget in dict.fromkeys(layer.budget for layer in cell.layers):
        rejects = isinstance(budget, Sre) and budget.k is not None
        if cell.failure_rate == 0 and not rejects:
            continue
        if isinstance(budget, Ratio | Sre) and budget.window is not None:
            yield budget.window, "a budget remembers for"
        elif isinstance(budget, Finagle | Linkerd):
            yield budget.ttl, "a budget remembers for"
        elif isinstance(budget, Grpc) and mean:  # it allows retries above half
            missing = budget.max_tokens / 2 / budget.token_ratio
            yield missing / mean, "the tokens of a budget come back in"
        elif isinstance(budget, Aws) and mean:  # a success gives back one
            yield budget.quota / mean, "the tokens of a budget come back in"


def _with_places(places: Mapping[str, Mapping[str, None]]) -> str:
    """List what is told, each with its cells; which file's only cells have no name."""
    told = [
        text + ("" if set(names) == {"default"} else f" in {first_of(list(names))}")
        for text, names in places.items()
    ]
    return "; ".join(told[:N_NAMED]) + f" and {len(told) - N_NAMED} more" * (len(told) > N_NAMED)


# --- what changes nothing -------------------------------------------------------------------------


def effect_of(cell: Cell) -> tuple[object, ...]:
    """Give what the rows of a cell depend on: equal where parameters differ and change nothing.

    Waits in place of the parameters of a backoff; and what only matters beside something else is
    left out where that is missing.
    """
    has_budget = any(layer.budget is not None for layer in cell.layers)
    waits = tuple(
        (layer.tries, spans(layer.backoff, layer.tries - 1), _remembered(layer.backoff))
        for layer in cell.layers
    )
    without = tuple(layer._replace(deadline=None) for layer in cell.layers)
    deadlines = tuple(layer.deadline for layer in cell.layers)
    if not cell.queue and min(d for d in (*deadlines, math.inf) if d is not None) >= longest_life(
        without
    ):
        deadlines = ()  # the last attempt comes before
    return (
        _USED(cell),
        waits,
        deadlines,
        cell.clients if has_budget or cell.breaker is not None else 1,
        cell.budget_scope if has_budget and len(cell.layers) > 1 else "chain",
    )


_WAITS = "the waits are the same"
MAY_BE_IDLE: Final = {
    **dict.fromkeys(("backoff_base", "backoff_factor", "backoff_cap"), _WAITS),
    **dict.fromkeys(("jitter", "jitter_share", "first_wait"), _WAITS),
    "deadline": "no request lives so long",
    "clients": "there is neither a budget nor a breaker for each to have",
    "budget_scope": "there is no budget, or a single layer",
}
"""Parameters that may change nothing, and why then."""

_USED: Final = operator.attrgetter(*(name for name in PARAMETERS if name not in MAY_BE_IDLE))


def _remembered(backoff: Backoff) -> object:
    """What a wait depends on beside the bounds of its own, where it depends on the one before."""
    has_memory = backoff.jitter in ("decorrelated", "polly")
    return (backoff.jitter, backoff.base, backoff.first_wait) if has_memory else None


# --- rounding -------------------------------------------------------------------------------------


def place_of(scenario: str, policy: str) -> str:
    """Name a cell by its policy, or by its scenario where there is one policy."""
    return scenario if policy == "default" else f"policy {policy}"


def ties_remark(cells: Iterable[tuple[str, Cell]]) -> str:
    """Say which durations are so near each other that rounding decides; empty where none are.

    The cells are given each with its policy, or with its scenario where that is the default.
    """
    places: dict[str, dict[str, None]] = {}
    lengths: dict[str, None] = {}
    for place, cell in cells:
        for tie in ties(cell):
            places.setdefault(tie, {})[place] = None
            lengths[units.format_time(1 / cell.rounds_per_second)] = None
    if not places:
        return ""
    return (
        f"rounds of {first_of(list(lengths))} decide whether calls are served and retried in time, "
        f"and may decide whether a run recovers, for these lie too near each other: "
        f"{_with_places(places)}. "
        "Shorter rounds or values that clearly differ are safe, and `retrystorm sensitivity FILE` "
        "compares"
    )


def ties(cell: Cell) -> Iterator[str]:
    """Name the durations that the model compares and of which rounding says which is longer.

    A call that came in round s is served in time if the queue before it takes at most timeout - 1
    rounds, and its retry may come already in round s + timeout: in both the part of a round counts
    as a whole one.
    """
    if not cell.queue:
        return

    def time(rounds: float) -> str:
        return units.format_time(float(f"{rounds / cell.rounds_per_second:.3g}"))

    for deadline in sorted(_rounded_in(cell)):
        yield f"timeout {time(cell.timeout or 0)} and deadline {time(deadline)}"
    limits = [("deadline", layer.deadline) for layer in cell.layers] + [("timeout", cell.timeout)]
    given = [(rounds, name) for name, rounds in limits if rounds is not None]
    limit, name = min(given, default=(math.inf, ""))
    capacities = {cell.capacity: "in the calm"} | {
        fault.capacity: "in the fault" for fault in cell.all_faults if fault.capacity_end is None
    }
    for capacity, when in capacities.items():
        if capacity and abs(cell.queue / capacity - limit) < 1:
            yield (
                f"{name} {time(limit)} and {time(cell.queue / capacity)} for a full "
                f"queue of {cell.queue:,} calls {when}"
            )


def _rounded_in(cell: Cell) -> Iterator[int]:
    """Deadlines that let many retries follow a time-out which without rounding come too late."""
    if not cell.queue or cell.timeout is None:
        return
    for i, layer in enumerate(cell.layers):
        first = next((inner for inner in reversed(cell.layers[i:]) if inner.tries > 1), None)
        if layer.deadline is not None and first is not None:
            left = layer.deadline - cell.timeout
            wait = waits_of(first)[0]
            in_time = _share_within(wait, left + 1) if left >= 0 else 0.0
            if in_time - _share_within(wait, left) > MOST_ROUNDED:
                yield layer.deadline


def _share_within(wait: Wait, rounds: float) -> float:
    """Share of the waits that are no longer, as if all their lengths were as likely."""
    if wait.width == 0:
        return float(wait.offset <= rounds)
    return min(1.0, max(0.0, (rounds - wait.offset) / wait.width))


# --- the calm -------------------------------------------------------------------------------------


def calm_remark(cells: Iterable[tuple[str, Cell]]) -> str:
    """Say where chance makes calls fail in the calm; empty where that is rare.

    The cells are given each with its scenario.
    """
    shares: dict[str, float] = {}
    is_drain_calm = False
    for scenario, cell in cells:
        share = 0.0 if _is_too_much(cell) else overflow(cell)
        if share > MOST_OVERFLOW:
            shares[scenario] = max(share, shares.get(scenario, 0.0))
            is_drain_calm |= bool(cell.all_faults) and pending_in_calm(cell) > MOST_PENDING
    if not shares:
        return ""
    worst = sorted(shares.items(), key=lambda item: -item[1])
    told = [
        f"{percent(share)} %" + (f" in {scenario}" if scenario != "default" else "")
        for scenario, share in worst
    ]
    drain = (
        '; calls are retried in the calm, too, so "retries gone after" measures the calm, not the '
        "storm"
    )
    return (
        "without a queue what arrives in a round beyond its capacity fails, in the calm, too, by "
        f"chance: of the first calls {first_of(told)}. So results depend on the length of a round, "
        "as `retrystorm sensitivity FILE` shows: set a short queue, or longer rounds"
        f"{drain if is_drain_calm else ''}"
    )


def overflow(cell: Cell) -> float:
    """Share of the first calls outside the faults that chance makes fail, for want of a queue.

    That is what arrives in a round beyond its capacity on average, less what would if as many
    arrived in each as do on average; over all rounds of the calm, each with its own mean. Calls
    that are served and fail are not among them, nor those of a closed loop.
    """
    if cell.queue or cell.is_closed:
        return 0.0
    return _overflow(cell.capacity, tuple(_calm_rounds(cell).items()))


@functools.lru_cache(maxsize=1024)
def _overflow(capacity: float, rounds: tuple[tuple[tuple[int, float], int], ...]) -> float:
    low = math.floor(capacity)
    rooms = {low: low + 1 - capacity, low + 1: capacity - low}  # of so many rounds each
    beyond, arriving = 0.0, 0.0
    for (known, mean), n in rounds:
        arriving += n * (known + mean)
        beyond += n * sum(
            part * beyond_by_chance(mean, room - known) for room, part in rooms.items() if part
        )
    return beyond / arriving if arriving else 0.0


def has_peaks_of_chance(cell: Cell) -> bool:
    """Whether chance often brings more than the capacity into a round, at less than half of it."""
    mean = cell.rate_per_round
    if cell.traffic is not None or 2 * mean > cell.capacity:
        return False
    return beyond_by_chance(mean, math.floor(cell.capacity)) > MOST_PEAKS


def _calm_rounds(cell: Cell) -> Mapping[tuple[int, float], int]:
    """What arrives for certain and what on average beside it, and in how many rounds."""
    arrivals = cell.arrivals
    if arrivals is None:
        return {(0, cell.rate_per_round): 1}
    calm = [
        t
        for t in range(0, cell.rounds, max(1, cell.rounds // _ROUNDS_LOOKED_AT))
        if not any(fault.start <= t < fault.end for fault in cell.all_faults)
    ]
    return Counter(zip(arrivals.known[calm].tolist(), arrivals.means[calm].tolist(), strict=True))


@functools.lru_cache(maxsize=4096)
def beyond_by_chance(mean: float, room: int) -> float:
    """How many of a Poisson number exceed `room` on average, beyond ``max(0, mean - room)``.

    Notes
    -----
    E (N - m)+ = E N - m + E (m - N)+, so it is the mean excess over m, or the mean shortfall, on
    the side of m that is away from the mean: there the terms fall, and all are positive.
    """
    if room < 0 or mean == 0:
        return 0.0
    term = math.exp(room * math.log(mean) - mean - math.lgamma(room + 1))
    total = 0.0
    for i in itertools.count(1) if room >= mean else range(1, room + 1):
        term *= mean / (room + i) if room >= mean else (room - i + 1) / mean
        total += i * term
        if i * term <= 1e-9 * total:
            break
    return total


def pending_in_calm(cell: Cell) -> float:
    """First retries that are pending in the calm, on average, if no budget refuses one."""
    first = next((layer for layer in reversed(cell.layers) if layer.tries > 1), None)
    if first is None:
        return 0.0
    wait = waits_of(first)[0]
    failing = overflow(cell) + cell.failure_rate
    return failing * cell.requests_in(0, cell.rounds) / cell.rounds * (wait.offset + wait.width / 2)
