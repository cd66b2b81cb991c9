"""What the sentences at the top of the page say, found in the numbers and nowhere else.

The sentences themselves are in answer.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.experiment import MAX
from mc.model import METRICS
from mc.reports.notation import in_a_sentence, short, with_error
from mc.reports.view import View
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN, half_width
from mc.statistics.best import NO, UNDECIDED, YES

_MOST_CLAIMS: Final = {FAILS: 6, DEPENDS: 6, HOLDS: 3}
"""Claims of each verdict that are cited: what fails is news."""


@dataclass(frozen=True)
class Extreme:
    """The smallest or the largest mean of a metric in a scenario.

    Attributes
    ----------
    estimate : str
        With its error and its unit.
    labels : list of str
        The cells with exactly this mean.
    is_constant : bool
        Whether it is the same in every replication.
    n_overlapping : int
        Further cells whose interval overlaps.
    """

    estimate: str
    labels: list[str]
    is_constant: bool
    n_overlapping: int


@dataclass(frozen=True)
class Extremes:
    """Both ends, and how many times as large the largest mean is, if that can be said."""

    lowest: Extreme
    highest: Extreme
    ratio: str


def n_missed(view: View) -> int:
    """How many cells are not as precise as the experiment asks."""
    return sum(line["stopped_by"] == MAX for line in view.lines.values())


def verdicts(view: View) -> dict[str, int]:
    """How many claims have each verdict."""
    every = [claim["verdict"] for claim in view.claims]
    return {verdict: every.count(verdict) for verdict in (HOLDS, FAILS, DEPENDS, OPEN)}


def cited(view: View) -> dict[str, tuple[list[dict[str, Any]], int]]:
    """For each verdict some of its claims, and how many there are."""
    groups = {v: [c for c in view.claims if c["verdict"] == v] for v in _MOST_CLAIMS}
    return {v: (group[: _MOST_CLAIMS[v]], len(group)) for v, group in groups.items() if group}


def estimate(view: View, cell: int, metric: str) -> str:
    """A mean with its error and unit, as a sentence has it."""
    unit = METRICS[metric].unit
    return in_a_sentence(view.mean(cell, metric), view.half_width(cell, metric), unit)


def extremes(view: View, scenario: str, metric: str) -> Extremes | None:
    """The smallest and the largest mean; None where the metric is undefined."""
    cells = view.known(view.in_scenario(scenario), metric)
    if not cells:
        return None
    small, large = (view.mean(cell, metric) for cell in (cells[0], cells[-1]))
    ratio = short(large / small) if small and large and metric != "dropped" else ""
    lowest, highest = (_extreme(view, cell, cells, metric) for cell in (cells[0], cells[-1]))
    return Extremes(lowest, highest, ratio)


def _extreme(view: View, cell: int, cells: Sequence[int], metric: str) -> Extreme:
    this = view.estimates[cell, metric]
    others = [view.estimates[other, metric] for other in cells]
    labels = [
        view.lines[other["cell"]]["label"] for other in others if other["mean"] == this["mean"]
    ]
    n_overlapping = sum(
        other["mean"] != this["mean"]
        and None not in (this["ci_low"], other["ci_low"])
        and other["ci_low"] <= this["ci_high"]
        and other["ci_high"] >= this["ci_low"]
        for other in others
    )
    return Extreme(estimate(view, cell, metric), labels, this["sd"] in (0, None), n_overlapping)


def largest_difference(view: View, scenario: str) -> dict[str, Any] | None:
    """The comparison with a baseline in which the strain differs most; None without one."""
    compared = view.results.comparisons.filter(
        pl.col("cell").is_in(view.in_scenario(scenario)),
        pl.col("metric") == view.strain(scenario),
        pl.col("mean_difference").is_not_null(),
    )
    if compared.is_empty():
        return None
    by_size = compared.sort(pl.col("mean_difference").abs(), "cell", descending=[True, False])
    line = by_size.row(0, named=True)
    unit = METRICS[view.strain(scenario)].unit
    return line | {
        "label": view.lines[line["cell"]]["label"],
        "baseline": view.lines[line["baseline"]]["label"],
        "difference": with_error(line["mean_difference"], half_width(line), unit),
    }


def frontier_counts(view: View, scenario: str) -> dict[str, int]:
    """How many cells are on the frontier: yes, no and undecided."""
    frontier = view.frontier(scenario)
    answers = list(frontier.on.values()) if frontier else []
    return {answer: answers.count(answer) for answer in (YES, NO, UNDECIDED)}


def furthest_published(view: View) -> dict[str, Any]:
    """How many published figures have a percentile, and the one furthest from the median."""
    figures = view.results.summary.filter(pl.col("published_percentile").is_not_null())
    percentile = pl.col("published_percentile")
    furthest = figures.sort((percentile - 50).abs(), "cell", descending=[True, False])
    return {
        "n": figures.height,
        "is_single": figures["n"].max() == 1,
        "n_same": figures.filter(percentile == 50.0).height,
        "n_inside": figures.filter(percentile.is_between(5, 95)).height,
        "furthest": furthest.row(0, named=True) if figures.height else None,
    }
