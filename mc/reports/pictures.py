"""Which figures a results folder gets; their captions are in captions.html."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import polars as pl

from mc.reports.distributions import count_values, draw_distributions, histograms
from mc.reports.forest import MOST_CLAIMS, draw_claims
from mc.reports.maps import draw_maps, plan_maps
from mc.reports.panels import Drawing
from mc.reports.rendering import Piece, draw, png_file, svg_file
from mc.reports.scenario import MOST_SCENARIOS, Scenario
from mc.reports.storm import curves, draw_curves, length_text
from mc.reports.style import style
from mc.reports.sweeps import draw_design, draw_lines
from mc.reports.tradeoff import draw_tradeoff
from mc.reports.view import View

STORM_DATA: Final = "figures/storm.parquet"
SPREAD_DATA: Final = "figures/distribution.parquet"

SECTIONS: Final = {
    "storm": "The storm",
    "sweep": "The sweep",
    "map": "The sweep",
    "design": "The sweep",
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
        One of `SECTIONS`; decides on title, caption and alternative text.
    name : str
        Of its files, without an ending.
    data : str
        The file that it is made from, relative to the results folder.
    drawing : Drawing
    scenario : Scenario or None
        What it is about, if it is about a single one.
    facts : mapping
        What else its texts say.
    """

    kind: str
    name: str
    data: str
    drawing: Drawing
    scenario: Scenario | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

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


def pictures(view: View) -> tuple[list[Picture], dict[str, pl.DataFrame]]:
    """Make all figures in the order of the page, and the tables that some of them are made from.

    Returns
    -------
    pictures : list of Picture
    tables : dict of str to polars.DataFrame
        By the name of the file, relative to the results folder.
    """
    scenarios = view.scenarios[:MOST_SCENARIOS]
    storms = [curves(scenario) for scenario in scenarios]
    tables = {STORM_DATA: pl.concat(storms)}
    spreads = []
    if view.results.cells["replications"].max() != 1:
        drawn = [cell for scenario in scenarios for cell in scenario.chosen]
        counts = count_values(view.results, drawn)
        spreads = [histograms(scenario, counts) for scenario in scenarios]
        tables[SPREAD_DATA] = pl.concat(spreads)
    with style():
        made = [_storm(*pair) for pair in zip(scenarios, storms, strict=True)]
        made += [picture for scenario in scenarios for picture in _sweep(scenario)]
        made += _tradeoff(view, scenarios)
        made += _claims(view)
        made += [_spread(*pair) for pair in zip(scenarios, spreads, strict=False)]
    return made, tables


def _storm(scenario: Scenario, table: pl.DataFrame) -> Picture:
    highest = table.group_by("cell", maintain_order=True).agg(pl.col("median").max())
    factor, per_second = scenario.view.factor("peak"), scenario.view.per_second
    peaks = [(scenario.marked(cell), factor * median) for cell, median in highest.iter_rows()]
    step = "" if table["rounds"][0] == 1 else length_text(table["rounds"][0], per_second)
    facts = {"n": table["replications"][0], "step": step, "peaks": peaks}
    drawing = draw_curves(scenario, table)
    return Picture("storm", f"storm-{scenario.number}", STORM_DATA, drawing, scenario, facts)


def _sweep(scenario: Scenario) -> Iterator[Picture]:
    view, data, number = scenario.view, "summary.parquet", scenario.number
    if len(view.axes) == 1:
        yield Picture("sweep", f"sweep-{number}", data, draw_lines(scenario), scenario)
    if len(view.axes) > 1:
        for metric in filter(scenario.known, scenario.metrics):
            maps = plan_maps(scenario, metric)
            name = f"sweep-{number}-{metric.replace('_', '-')}"
            facts = {"metric": metric, "maps": maps}
            yield Picture("map", name, data, draw_maps(view, maps, metric), scenario, facts)
    if view.design:
        yield Picture("design", f"design-{number}", data, draw_design(scenario), scenario)


def _tradeoff(view: View, scenarios: list[Scenario]) -> Iterator[Picture]:
    if view.results.cells.height > 2:
        several = [scenario for scenario in scenarios if len(scenario.cells) > 1]
        drawing = draw_tradeoff(view, several or scenarios)
        facts = {"scenarios": several}
        yield Picture("tradeoff", "frontier", "summary.parquet", drawing, facts=facts)


def _claims(view: View) -> Iterator[Picture]:
    names = dict.fromkeys(claim["scenario"] for claim in view.claims)
    for number, name in enumerate(list(names)[:MOST_SCENARIOS], 1):
        claims = [claim for claim in view.claims if claim["scenario"] == name]
        verdicts = Counter(c["verdict"] for c in claims if c["verdict"] is not None)
        facts = {"n": len(claims), "verdicts": verdicts.most_common(), "most": MOST_CLAIMS}
        (scenario,) = (scenario for scenario in view.scenarios if scenario.name == name)
        drawing = draw_claims(claims[:MOST_CLAIMS])
        yield Picture("claims", f"claims-{number}", "claims.parquet", drawing, scenario, facts)


def _spread(scenario: Scenario, table: pl.DataFrame) -> Picture:
    drawing = draw_distributions(scenario, table)
    name = f"distribution-{scenario.number}"
    return Picture("distribution", name, SPREAD_DATA, drawing, scenario)
