"""What the sentences of the page say, found in the numbers and nowhere else."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from mc import experiment as experiments
from mc.experiment import MAX
from mc.experiment.remarks import calm_remark
from mc.reports.view import View
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN


def n_missed(view: View) -> int:
    """How many cells are not as precise as the experiment asks."""
    return sum(line["stopped_by"] == MAX for line in view.lines.values())


def by_verdict(view: View) -> dict[str, list[dict[str, Any]]]:
    """The claims of each verdict, those that do not hold first: they are news."""
    order = (FAILS, DEPENDS, OPEN, HOLDS, None)
    groups = {verdict: [c for c in view.claims if c["verdict"] == verdict] for verdict in order}
    return {verdict or "without a verdict": group for verdict, group in groups.items() if group}


def calm(view: View) -> str:
    """Say in sentences where chance makes calls fail in the calm; empty where that is rare."""
    table = view.results.cells
    decisive = [name for name in _OF_CALM if name in table.columns]  # it may be an older table
    some = table.unique(decisive, maintain_order=True)
    cells = experiments.cells_of(some)
    remark = calm_remark(zip(some["scenario"], cells.values(), strict=True))
    return f"{remark[0].upper()}{remark[1:]}." if remark else ""


_OF_CALM: Final = (
    *("scenario", "rounds", "rounds_per_second", "arrivals_per_second", "traffic", "capacity"),
    *("queue", "failure_rate", "fault_start", "fault_rounds", "faults", "tries", "backoff_base"),
)


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
