"""What is allowed in a cell, but hardly meant: its answers would be about something else."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mc.experiment.messages import first_of
from mc.model import PARAMETERS, Cell
from mc.model.breakers import Resilience4j
from mc.model.budgets import Ratio
from mc.model.digits import percent
from mc.model.waits import Backoff, longest_life, spans, waits_of

MOST_SAVED: Final = 0.1
"""Of the retries that a fault can use: if more were saved in the calm before, that decides."""

MOST_OVERFLOW: Final = 0.005
"""Of the first calls of the calm: if chance makes more fail, the length of a round decides."""

MOST_PENDING: Final = 0.1
"""Retries that are pending in the calm, on average: if more are, there is hardly a time without."""

_ROUNDS_LOOKED_AT: Final = 1000
"""Of traffic that varies, so many rounds of the calm, evenly spread."""


def _rounds_after(cell: Cell) -> int:
    """Rounds between the end of the fault and that of the run; negative if it ends before."""
    return cell.rounds - cell.window[1]


def _is_cut_off(cell: Cell) -> bool:
    """Whether requests of the fault may be undecided when the run ends, for they live so long."""
    after = _rounds_after(cell)
    in_queue = cell.max_attempts * (cell.timeout or 0) if cell.queue else 0
    return bool(cell.all_faults) and 0 < after < cell.longest_wait + in_queue


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
    return min(deadlines) <= longest


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
    if budget == 0 or during <= 0 or cell.max_attempts == 1:
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
