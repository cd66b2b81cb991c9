"""What changes if another policy takes the place of the present one: failures against load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from mc.decisions.scorecard import ALIKE_LOAD, ALIKE_SHARE
from mc.experiment import cells_of
from mc.statistics import LEVEL, intervals
from mc.store import Results, undecided

FAILURES: Final = "dropped"
"""How failures are counted: over the whole run, for a fault may cost requests after its end."""

LOAD: Final = "times_usual"
"""How load is counted: in the fault."""

LATE: Final = "late"
"""How lateness is counted: successes that waited longer than `threshold`."""

AS_GOOD: Final = 0.01
"""Failures that differ by less, as a share of the requests of the fault, are as good: load decides.
"""

WORTH_HALF: Final = 0.05
"""More failures, as a share of the requests of the fault, that half of the load, or less, is worth.
"""

Verdict = Literal["better", "trade", "worse", "alike"]


@dataclass(frozen=True)
class Change:
    """The difference that a policy makes in one metric.

    Attributes
    ----------
    metric : str
    present, other : float
        Means.
    difference : float
        Mean over replications of the other less the present one.
    half_width : float or None
        Of its interval; those of all alternatives together hold with 95 %.
    is_sure : bool
        Whether there surely is a difference, and one that matters.
    is_alike : bool
        Whether there surely is none that matters.
    """

    metric: str
    present: float
    other: float
    difference: float
    half_width: float | None
    is_sure: bool
    is_alike: bool


@dataclass(frozen=True)
class Alternative:
    """A policy in place of the present one.

    Attributes
    ----------
    policy : str
    cell : int
    failures, load, late : Change
    verdict : {"better", "trade", "worse", "alike"}
        Better: surely less of one, and surely no more of another that matters. Trade: surely less
        of one, more or perhaps more of another.
    """

    policy: str
    cell: int
    failures: Change
    load: Change
    late: Change
    verdict: Verdict


def alternatives(results: Results) -> list[Alternative]:
    """Compare every policy with the baseline, in an experiment of one scenario.

    Parameters
    ----------
    results : Results
        Of a finished run whose cells differ in their policies only.

    Returns
    -------
    list of Alternative
        The better ones first, by failures; then trades, those that are alike, and the worse.

    Notes
    -----
    Paired t intervals at the level of Bonferroni's inequality for three metrics of each
    alternative.
    """
    compared = results.comparisons
    others = [
        line for line in results.cells.iter_rows(named=True) if line["cell"] != line["baseline"]
    ]
    level = intervals.bonferroni_level(LEVEL, max(1, 3 * len(others)))
    found = []
    for line in others:
        failures, load, late = (
            _change(results, compared, line["cell"], line["baseline"], metric, level)
            for metric in (FAILURES, LOAD, LATE)
        )
        verdict = verdict_of((failures, load, late))
        found.append(Alternative(line["policy"], line["cell"], failures, load, late, verdict))
    order = ("better", "trade", "alike", "worse")
    return sorted(found, key=lambda one: (order.index(one.verdict), one.failures.other))


def _change(
    results: Results, compared: pl.DataFrame, cell: int, baseline: int, metric: str, level: float
) -> Change:
    [line] = compared.filter(cell=cell, metric=metric).iter_rows(named=True)
    present, other = (mean_of(results, one, metric) for one in (baseline, cell))
    half = None
    if line["ci_low"] is not None:
        half = float(intervals.t_half_width(line["n"], line["mcse"], level))
    difference = line["mean_difference"]
    matters = ALIKE_LOAD * min(present, other)
    if metric != LOAD:
        matters = ALIKE_SHARE * mean_of(results, baseline, "requests")
    is_sure = half is not None and abs(difference) > half and abs(difference) >= matters
    may_be_later = metric == FAILURES and cell in undecided(results)
    if may_be_later and difference < 0:
        is_sure = False
    # without an interval hardly any replication differs
    is_alike = not is_sure and not may_be_later and abs(difference) + (half or 0.0) < matters
    return Change(metric, present, other, difference, half, is_sure, is_alike)


def verdict_of(changes: Sequence[Change]) -> Verdict:
    """Judge an alternative by what it changes; see `Alternative`."""
    less = any(one.is_sure and one.difference < 0 for one in changes)
    more = any(one.is_sure and one.difference > 0 for one in changes)
    if less:
        known = all(one.is_sure or one.is_alike for one in changes)
        return "better" if known and not more else "trade"
    return "worse" if more else "alike"


def recommended(results: Results, found: Sequence[Alternative]) -> Alternative | None:
    """Choose a policy that retries: the fewest failures, or the least load that is worth more.

    That is of the policies with up to `AS_GOOD` more, or with up to `WORTH_HALF` more and at most
    half of the load. Without retries a fault may cost least, but every small failure in the calm
    reaches a caller.

    Parameters
    ----------
    results : Results
    found : sequence of Alternative
        See `alternatives`.

    Returns
    -------
    Alternative or None
        One that is surely better in failures or load; None where the present policy is chosen.
    """
    choice = _choice(results, found)
    of_fault = mean_of(results, present_of(results)["cell"], "window_requests")
    return choice[worth([entry[:2] for entry in choice], of_fault)][2]


def worth(choice: Sequence[tuple[float, float]], of_fault: float) -> int:
    """Choose by failures and load, as `recommended` says; `of_fault`: the requests of the fault."""
    fewest, its_load = min(choice)
    able = [
        i
        for i, (failures, load) in enumerate(choice)
        if failures <= fewest + AS_GOOD * of_fault
        or (failures <= fewest + WORTH_HALF * of_fault and load <= its_load / 2)
    ]
    return min(able, key=lambda i: choice[i][1])


def fewest_failures(results: Results, found: Sequence[Alternative]) -> Alternative | None:
    """The policy with the fewest failures among those of which `recommended` chooses."""
    return min(_choice(results, found), key=lambda entry: entry[:2])[2]


def _choice(
    results: Results, found: Sequence[Alternative]
) -> list[tuple[float, float, Alternative | None]]:
    """Failures and load of the present policy, and of those that retry and are better in one."""
    present = present_of(results)
    retries = {cell: of_cell.max_attempts > 1 for cell, of_cell in cells_of(results.cells).items()}
    now = (mean_of(results, present["cell"], FAILURES), mean_of(results, present["cell"], LOAD))
    late = undecided(results)  # fewer failures of these may only be later ones
    choice: list[tuple[float, float, Alternative | None]] = [(*now, None)]
    choice += [
        (one.failures.other, one.load.other, one)
        for one in found
        if retries[one.cell] and one.verdict in ("better", "trade") and one.cell not in late
    ]
    return choice


def mean_of(results: Results, cell: int, metric: str) -> float:
    """The mean of a metric that every replication of a cell has."""
    return float(results.summary.filter(cell=cell, metric=metric)["mean"].item())


def present_of(results: Results) -> dict[str, Any]:
    """The line of the present policy in the table of cells.

    Parameters
    ----------
    results : Results

    Returns
    -------
    dict
    """
    cells = results.cells
    return cells.filter(pl.col("cell") == cells["baseline"].drop_nulls()[0]).row(0, named=True)
