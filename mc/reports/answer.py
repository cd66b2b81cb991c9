"""What the sentences at the top of the page say, found in the numbers and nowhere else.

The sentences themselves are in answer.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.experiment import MAX
from mc.model.digits import UNDECIDED
from mc.reports.notation import in_a_sentence, short, with_error
from mc.reports.scenario import Scenario
from mc.reports.view import View
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN, half_width

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
    n_tied : int or None
        Further cells that cannot be told from the true one, replication by replication; None where
        that is not known.
    """

    estimate: str
    labels: list[str]
    is_constant: bool
    n_tied: int | None


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
    unit = view.unit(metric)
    n = view.estimates[cell, metric]["n"]
    return in_a_sentence(view.mean(cell, metric), view.half_width(cell, metric), unit, n)


def undecided(view: View) -> float:
    """Largest share of requests that are undecided when the runs of a cell end; 0 if small."""
    means = view.results.summary.filter(pl.col("metric").is_in(["in_flight", "requests"]))
    shares = means.pivot("metric", index="cell", values="mean").select(
        pl.col("in_flight") / pl.col("requests")
    )
    largest = max((share for share in shares.to_series().to_list() if share is not None), default=0)
    return largest if largest > UNDECIDED else 0.0


def extremes(scenario: Scenario, metric: str) -> tuple[Extreme, Extreme] | None:
    """The smallest and the largest mean; None where the metric is undefined."""
    cells = scenario.known(metric)
    return (_extreme(scenario, metric, 0), _extreme(scenario, metric, -1)) if cells else None


def _extreme(scenario: Scenario, metric: str, which: int) -> Extreme:
    view, cells = scenario.view, scenario.known(metric)
    every = [view.estimates[cell, metric] for cell in cells]
    this = every[which]
    same = [line["cell"] for line in every if line["mean"] == this["mean"]]
    tied = scenario.may_be(metric, "min" if which == 0 else "max")
    n_tied = None if tied is None else len(tied - set(same))
    labels = [view.lines[cell]["label"] for cell in same]
    is_constant = this["sd"] in (0, None)
    return Extreme(estimate(view, cells[which], metric), labels, is_constant, n_tied)


def ratio(scenario: Scenario, metric: str) -> str:
    """How many times as large the largest mean is as the smallest; empty if one of them is 0."""
    means = [scenario.view.mean(cell, metric) or 0.0 for cell in scenario.known(metric)]
    return short(means[-1] / means[0]) if means[0] and means[-1] else ""


def largest_difference(scenario: Scenario) -> dict[str, Any] | None:
    """The comparison with a baseline in which the strain differs most; None without one."""
    compared = scenario.view.comparisons.filter(
        pl.col("cell").is_in(scenario.cells),
        pl.col("metric") == scenario.strain,
        pl.col("mean_difference").is_not_null(),
    )
    if compared.is_empty():
        return None
    by_size = compared.sort(pl.col("mean_difference").abs(), "cell", descending=[True, False])
    line = by_size.row(0, named=True)
    unit, lines = scenario.view.unit(scenario.strain), scenario.view.lines
    return line | {
        "label": lines[line["cell"]]["label"],
        "baseline": lines[line["baseline"]]["label"],
        "difference": with_error(line["mean_difference"], half_width(line), unit, line["n"]),
    }


def published_figures(view: View) -> dict[str, Any]:
    """How many published figures have a percentile, and the one furthest from the median."""
    figures = view.summary.filter(pl.col("published_percentile").is_not_null())
    percentile = pl.col("published_percentile")
    furthest = figures.sort((percentile - 50).abs(), "cell", descending=[True, False])
    return {
        "n": figures.height,
        "is_single": figures["n"].max() == 1,
        "n_same": figures.filter(percentile == 50.0).height,
        "n_inside": figures.filter(percentile.is_between(5, 95)).height,
        "joint": figures["published_joint"].min(),
        "furthest": furthest.row(0, named=True) if figures.height else None,
    }
