"""What is allowed in a cell, but hardly meant: its answers would be about something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mc.model import Cell
from mc.model.budgets import Ratio

MOST_SAVED: Final = 0.1
"""Of the retries that a fault can use: if more were saved in the calm before, that decides."""


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


def _has_no_time_left(cell: Cell) -> bool:
    deadlines = [layer.deadline for layer in cell.layers if layer.deadline is not None]
    if not cell.queue or cell.timeout is None or not deadlines:
        return False
    longest = cell.timeout if cell.max_attempts > 1 else cell.timeout - 1
    return min(deadlines) <= longest


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
    "more requests arrive than the capacity serves, fault or not": lambda cell: (
        cell.requests_in(0, cell.rounds) > cell.capacity * cell.rounds
    ),
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
