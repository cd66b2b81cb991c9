"""What the sentences of the page say, found in the numbers and nowhere else."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from mc import experiment as experiments
from mc.experiment import MAX
from mc.experiment.remarks import calm_remark, memory_remark, place_of, ties_remark
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


def remarks(view: View) -> list[str]:
    """Say where chance or rounding decides what is seen; empty where that is rare."""
    table = view.results.cells
    told = []
    for remark, columns in (
        (calm_remark, _OF_CALM),
        (ties_remark, _OF_TIES),
        (memory_remark, _OF_MEMORY),
    ):
        decisive = [name for name in columns if name in table.columns]  # it may be an older table
        some = table.unique(decisive, maintain_order=True)
        places = some["scenario"].to_list()
        if remark is not calm_remark:
            places = list(map(place_of, places, some["policy"]))
        told.append(remark(zip(places, experiments.cells_of(some).values(), strict=True)))
    return [f"{text[0].upper()}{text[1:]}." for text in told if text]


_OF_CALM: Final = (
    *("scenario", "rounds", "rounds_per_second", "arrivals_per_second", "traffic", "capacity"),
    *("queue", "failure_rate", "fault_start", "fault_rounds", "faults", "tries", "backoff_base"),
)
_OF_TIES: Final = (
    *("scenario", "policy", "rounds_per_second", "capacity", "fault_capacity", "fault_rounds"),
    *("faults", "queue", "timeout", "deadline", "tries", "backoff_base", "backoff_factor"),
    *("backoff_cap", "jitter", "jitter_share", "first_wait"),
)
_OF_MEMORY: Final = (
    *("scenario", "policy", "rounds", "rounds_per_second", "arrivals_per_second", "traffic"),
    *("fault_start", "fault_rounds", "faults", "budget", "budget_text", "breaker", "clients"),
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
