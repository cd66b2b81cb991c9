"""Which figures a results folder gets; their captions are in captions.html."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, starmap
from typing import Any, Final

import polars as pl

from mc.reports.curves import CURVE_COLUMNS, STORM_DATA, curves
from mc.reports.distributions import BAR_COLUMNS, count_values, draw_distributions, histograms
from mc.reports.maps import draw_maps, name_of, plan_maps
from mc.reports.panels import Drawing
from mc.reports.rendering import Piece, draw, png_file, svg_file
from mc.reports.replication import RUN_COLUMNS, draw_run, one_run
from mc.reports.scenario import MOST_CURVES, MOST_SCENARIOS, Scenario
from mc.reports.storm import draw_curves, length_text, peaks
from mc.reports.style import style
from mc.reports.sweeps import draw_design, draw_lines
from mc.reports.tradeoff import draw_tradeoff
from mc.reports.view import View
from mc.store.threads import StopFlag

SPREAD_DATA: Final = "figures/distribution.parquet"
RUN_DATA: Final = "figures/replication.parquet"

SIMULATED: Final = {STORM_DATA: CURVE_COLUMNS, RUN_DATA: RUN_COLUMNS}
"""Tables that are simulated for the figures alone, and their columns."""

DATA: Final = {**SIMULATED, SPREAD_DATA: BAR_COLUMNS}
"""All tables of the figures."""

_MOST_SPREADS: Final = 2
"""Scenarios of which single runs are drawn."""

FILE_NAME: Final = re.compile(
    r"(storm|sweep|design|frontier|claims|distribution|replication)(-\d+(-[a-z-]+)?)?"
    r"\.(svg|png|parquet)"
)
"""Names of the files in the folder of figures that are ours to remove."""


@dataclass(frozen=True)
class Picture:
    """A figure of the report.

    Attributes
    ----------
    kind : str
        Decides on its section, title, caption and alternative text.
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


def pictures(
    view: View, kept: Mapping[str, pl.DataFrame], stop: StopFlag
) -> tuple[list[Picture], dict[str, pl.DataFrame]]:
    """Make all figures in the order of the page, and the tables that some of them are made from.

    Parameters
    ----------
    view : View
    kept : mapping of str to polars.DataFrame
        Those of `SIMULATED` that are there already, of the same results.
    stop : StopFlag
        Looked at between figures.

    Returns
    -------
    pictures : list of Picture
    tables : dict of str to polars.DataFrame
        By the name of the file, relative to the results folder.
    """
    scenarios = view.drawn
    tables = {}
    for name, wanted in _wanted(scenarios).items():
        if name in kept and set(kept[name]["cell"]) == set(wanted):
            tables[name] = kept[name]
        else:
            tables[name] = _simulated(scenarios, name, wanted)
    spreads = []
    if view.results.cells["replications"].max() != 1:
        some = scenarios[:_MOST_SPREADS]
        counts = count_values(view.results, [cell for s in some for cell in s.chosen])
        spreads = [histograms(scenario, counts) for scenario in some]
        tables[SPREAD_DATA] = pl.concat(spreads)
    made: list[Picture] = []
    with style():
        for picture in chain(
            (_storm(scenario, tables[STORM_DATA]) for scenario in scenarios),
            chain.from_iterable(map(_sweep, scenarios)),
            _tradeoff(view, view.stormy[:MOST_SCENARIOS]),
            starmap(_spread, zip(scenarios, spreads, strict=False)),
        ):
            made.append(picture)
            stop.check()
        made.append(_run(scenarios[0], tables[RUN_DATA]))
    return made, tables


def _wanted(scenarios: Sequence[Scenario]) -> dict[str, list[int]]:
    """Which cells are simulated for the figures."""
    every = [cell for scenario in scenarios for cell in scenario.cells]
    chosen = [cell for scenario in scenarios for cell in scenario.chosen]
    return {
        STORM_DATA: every if len(every) <= MOST_CURVES else chosen,
        RUN_DATA: [max(scenarios[0].cells, key=lambda cell: scenarios[0].point(cell)[0])],
    }


def _simulated(scenarios: Sequence[Scenario], name: str, cells: Sequence[int]) -> pl.DataFrame:
    if name == RUN_DATA:
        return one_run(scenarios[0], *cells)
    return pl.concat(
        [curves(s.view.results, [c for c in s.cells if c in cells]) for s in scenarios]
    )


def _storm(scenario: Scenario, table: pl.DataFrame) -> Picture:
    of_chosen = table.filter(pl.col("cell").is_in(scenario.chosen))
    step, per_second = of_chosen["rounds"][0], scenario.view.per_second
    facts = {
        "n": of_chosen["replications"].min(),
        "step": "" if step == 1 else length_text(step, per_second),
        "has_queue": any(scenario.view.lines[cell].get("queue") for cell in scenario.chosen),
        "peaks": [(scenario.marked(cell), rate) for cell, rate in peaks(scenario, of_chosen)],
    }
    drawing = draw_curves(scenario, of_chosen)
    return Picture("storm", f"storm-{scenario.number}", STORM_DATA, drawing, scenario, facts)


def _sweep(scenario: Scenario) -> Iterator[Picture]:
    view, data, number = scenario.view, "summary.parquet", scenario.number
    metrics = ["recovered", *scenario.metrics] if view.axes else []
    for metric in filter(scenario.known, metrics):
        maps = plan_maps(scenario, metric)
        name = f"sweep-{number}-{metric.replace('_', '-')}"
        constant = {name_of(view, maps, key): cells for key, cells in maps.constant.items()}
        facts = {"metric": metric, "maps": maps, "constant": constant}
        if maps.drawn:
            drawing = draw_maps(scenario, maps, metric)
            yield Picture("map", name, data, drawing, scenario, facts)
        elif len(maps.axes) == 1:
            drawing = draw_lines(scenario, metric, maps)
            yield Picture("sweep", name, data, drawing, scenario, facts)
    if view.design:
        yield Picture("design", f"design-{number}", data, draw_design(scenario), scenario)


def _tradeoff(view: View, scenarios: list[Scenario]) -> Iterator[Picture]:
    several = [scenario for scenario in scenarios if len(scenario.cells) > 1]
    if several:
        drawing = draw_tradeoff(view, several)
        facts = {"scenarios": several}
        yield Picture("tradeoff", "frontier", "summary.parquet", drawing, facts=facts)


def _spread(scenario: Scenario, table: pl.DataFrame) -> Picture:
    drawing = draw_distributions(scenario, table)
    name = f"distribution-{scenario.number}"
    return Picture("distribution", name, SPREAD_DATA, drawing, scenario)


def _run(scenario: Scenario, table: pl.DataFrame) -> Picture:
    cell = table["cell"][0]
    drawing = draw_run(scenario, table)
    return Picture("replication", "replication", RUN_DATA, drawing, scenario, {"cell": cell})
