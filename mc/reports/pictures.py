"""Which figures a results folder gets, and what their captions in captions.html are made from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import polars as pl

from mc.model import METRICS
from mc.reports.distributions import count_values, draw_distributions, histograms
from mc.reports.forest import MOST_CLAIMS, draw_claims
from mc.reports.maps import draw_maps, plan_maps
from mc.reports.notation import NAMES, with_error
from mc.reports.panels import Drawing
from mc.reports.rendering import Piece, draw, png_file, svg_file
from mc.reports.storm import curves, draw_curves
from mc.reports.style import style
from mc.reports.sweeps import draw_design, draw_lines
from mc.reports.tradeoff import draw_tradeoff
from mc.reports.view import MOST_SCENARIOS, View

STORM_DATA: Final = "figures/storm.parquet"
SPREAD_DATA: Final = "figures/distribution.parquet"

SECTIONS: Final = {
    "storm": "The storm",
    "sweep": "The sweep",
    "design": "The sweep",
    "map": "The sweep",
    "tradeoff": "Drops against calls",
    "claims": "Claims",
    "distribution": "Why one seed is not enough",
}
"""Under which heading each kind of figure stands."""

FILE_NAME: Final = re.compile(
    r"(storm|sweep|design|frontier|claims|distribution)(-\d+(-[a-z-]+)?)?\.(svg|png|parquet)"
)
"""Names of the files in the folder of figures that are ours to remove."""


@dataclass(frozen=True)
class Picture:
    """A figure of the report.

    Attributes
    ----------
    kind : str
        One of `SECTIONS`; decides on caption and alternative text.
    name : str
        Of its files, without an ending.
    data : str
        The file that it is made from, relative to the results folder.
    drawing : Drawing
    facts : mapping
        What caption and alternative text say.
    """

    kind: str
    name: str
    data: str
    drawing: Drawing
    facts: Mapping[str, Any]

    @cached_property
    def pieces(self) -> list[Piece]:
        """Its panels, drawn."""
        with style():
            return draw(self.drawing, self.name)

    @property
    def svg(self) -> str:
        """Its SVG file."""
        return svg_file(self.pieces, self.drawing.n_columns)

    @property
    def png(self) -> bytes:
        """Its PNG file, drawn when it is asked for."""
        with style():
            return png_file(self.drawing)


@dataclass(frozen=True)
class Range:
    """Smallest and largest mean of a metric in a scenario: the numbers and the cells."""

    metric: str
    low: str
    low_cell: str
    high: str
    high_cell: str


def storm_tables(view: View) -> dict[str, pl.DataFrame]:
    """Make the storm curves of each scenario that is drawn, by its name."""
    return {scenario: curves(view, scenario) for scenario in view.scenarios[:MOST_SCENARIOS]}


def spread_tables(view: View) -> dict[str, pl.DataFrame]:
    """Make the histograms of each scenario that is drawn, by its name; none of one replication."""
    if view.results.cells["replications"].max() == 1:
        return {}
    counts = count_values(view)
    return {
        scenario: histograms(view, scenario, counts) for scenario in view.scenarios[:MOST_SCENARIOS]
    }


def pictures(
    view: View, storms: Mapping[str, pl.DataFrame], spreads: Mapping[str, pl.DataFrame]
) -> list[Picture]:
    """Make all figures, in the order of the page.

    Parameters
    ----------
    view : View
    storms, spreads : mapping of str to polars.DataFrame
        See `storm_tables` and `spread_tables`.

    Returns
    -------
    list of Picture
    """
    scenarios = list(storms)
    with style():
        return [
            *(
                _storm(view, scenario, i, storms[scenario])
                for i, scenario in enumerate(scenarios, 1)
            ),
            *(
                picture
                for i, scenario in enumerate(scenarios, 1)
                for picture in _sweep(view, scenario, i)
            ),
            *_tradeoff(view, scenarios),
            *_claims(view),
            *(
                _spread(view, scenario, i, spreads[scenario])
                for i, scenario in enumerate(spreads, 1)
            ),
        ]


def _storm(view: View, scenario: str, i: int, table: pl.DataFrame) -> Picture:
    highest = table.group_by("cell", maintain_order=True).agg(pl.col("median").max())
    peaks = [(view.marked(cell), median) for cell, median in highest.iter_rows()]
    facts = {"scenario": scenario, "table": table, "peaks": peaks}
    drawing = draw_curves(view, scenario, table)
    return Picture("storm", f"storm-{i}", STORM_DATA, drawing, facts)


def _tradeoff(view: View, scenarios: list[str]) -> Iterator[Picture]:
    if view.results.cells.height < 3:
        return
    several = [scenario for scenario in scenarios if len(view.in_scenario(scenario)) > 1]
    drawn = several or scenarios
    facts = {
        "ranges": {scenario: _ranges(view, scenario) for scenario in several},
        "has_letters": any(map(view.marks, drawn)),
        "has_frontier": any(map(view.frontier, drawn)),
    }
    yield Picture("tradeoff", "frontier", "summary.parquet", draw_tradeoff(view, drawn), facts)


def _spread(view: View, scenario: str, i: int, table: pl.DataFrame) -> Picture:
    spreads = []
    for cell in view.chosen(scenario):
        metric = "calls" if view.mean(cell, "window_rate") is None else "window_rate"
        line = view.estimates[cell, metric]
        spreads.append((view.lines[cell]["label"], NAMES[metric], line["p05"], line["p95"]))
    drawing = draw_distributions(view, scenario, table)
    facts = {"scenario": scenario, "spreads": spreads}
    return Picture("distribution", f"distribution-{i}", SPREAD_DATA, drawing, facts)


def _sweep(view: View, scenario: str, i: int) -> Iterator[Picture]:
    facts: dict[str, Any] = {"scenario": scenario, "ranges": _ranges(view, scenario)}
    data = "summary.parquet"
    if len(view.axes) == 1:
        yield Picture("sweep", f"sweep-{i}", data, draw_lines(view, scenario), facts)
    for metric in view.sweep_metrics(scenario) if len(view.axes) > 1 else ():
        if not view.known(view.in_scenario(scenario), metric):
            continue
        maps = plan_maps(view, scenario, metric)
        name = f"sweep-{i}-{metric.replace('_', '-')}"
        about = facts | {"metric": metric, "maps": maps, "ranges": _ranges(view, scenario, metric)}
        yield Picture("map", name, data, draw_maps(view, maps, metric), about)
    if view.design:
        yield Picture("design", f"design-{i}", data, draw_design(view, scenario), facts)


def _ranges(view: View, scenario: str, *metrics: str) -> list[Range]:
    """Of some metrics, by default strain and drops."""
    ranges = []
    for metric in metrics or view.sweep_metrics(scenario):
        cells = view.known(view.in_scenario(scenario), metric)
        if cells:
            low, high = cells[0], cells[-1]
            ranges.append(
                Range(
                    NAMES[metric],
                    _estimate(view, low, metric),
                    view.lines[low]["label"],
                    _estimate(view, high, metric),
                    view.lines[high]["label"],
                )
            )
    return ranges


def _estimate(view: View, cell: int, metric: str) -> str:
    unit = METRICS[metric].unit
    return with_error(view.mean(cell, metric), view.half_width(cell, metric), unit)


def _claims(view: View) -> Iterator[Picture]:
    by_scenario: dict[str, list[dict[str, Any]]] = {}
    for claim in view.claims:
        by_scenario.setdefault(claim["scenario"], []).append(claim)
    for i, (scenario, claims) in enumerate(list(by_scenario.items())[:MOST_SCENARIOS], 1):
        verdicts = [claim["verdict"] for claim in claims if claim["verdict"] is not None]
        counts = dict(Counter(verdicts).most_common())
        facts = {"scenario": scenario, "n": len(claims), "counts": counts, "most": MOST_CLAIMS}
        drawing = draw_claims(claims[:MOST_CLAIMS])
        yield Picture("claims", f"claims-{i}", "claims.parquet", drawing, facts)
