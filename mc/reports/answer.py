"""What the sentences of the page say, found in the numbers and nowhere else."""

from __future__ import annotations

from typing import Any

import polars as pl

from mc.experiment import MAX
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
