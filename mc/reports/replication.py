"""One replication in detail, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.experiment import cells_of
from mc.model import Cell, Column
from mc.reports.curves import choose_stretch, equally_long, fault
from mc.reports.panels import Drawing, arrange, legend, new_panels, wrapped
from mc.reports.scenario import Scenario
from mc.reports.storm import (
    calls_label,
    draw_capacity,
    shade_fault,
    time_label,
    top_of_axis,
)
from mc.reports.style import DASHES, INK, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STEPS: Final = 400
"""Steps of a curve: single rounds shall be seen where there is room."""


_WIDTH: Final = 3.3
"""Inches of a panel on the page."""


RUN_COLUMNS: Final = {
    "cell": Column("int32", "", "number of the cell"),
    "round": Column("int64", "rounds", "number of the round, from 0"),
    "calls": Column("int32", "calls", "calls of the round, in the first replication"),
    "successful": Column("int32", "calls", "calls that succeeded"),
    "waiting": Column("int32", "requests", "requests that wait for a retry at its end"),
    "queued": Column("int32", "calls", "calls in the queue at its end"),
    "capacity": Column("int32", "calls", "calls that the dependency serves"),
}
"""Columns of the table that `one_run` makes."""


def one_run(scenario: Scenario, number: int) -> pl.DataFrame:
    """Record the first replication of a cell, for `draw_run`.

    Returns
    -------
    polars.DataFrame
        A line for each round, with `RUN_COLUMNS`.
    """
    from mc.runner import Draws, rounds_of  # this takes a second, and the table may be there

    (cell,) = _cells(scenario, number).values()
    draws = Draws.of(scenario.view.source)
    rounds = rounds_of(cell, draws.indices(0, 1), draws.seed, draws.generator)
    return pl.DataFrame(
        {
            "cell": np.full(cell.rounds, number, np.int32),
            "round": np.arange(cell.rounds),
            "calls": rounds.calls[0],
            "successful": rounds.successful[0],
            "waiting": rounds.waiting[0],
            "queued": rounds.queued[0],
            "capacity": rounds.capacity,
        }
    )


def _cells(scenario: Scenario, number: int) -> dict[int, Cell]:
    return cells_of(scenario.view.results.cells.filter(pl.col("cell") == number))


def draw_run(scenario: Scenario, table: pl.DataFrame) -> Drawing:
    """Draw what `one_run` gave."""
    number = table["cell"][0]
    label = scenario.view.lines[number]["label"]
    cells = _cells(scenario, number)
    return draw_replication(table, cells, {number: label}, cells[number].rounds_per_second, _WIDTH)


def draw_replication(
    rounds: pl.DataFrame,
    cells: Mapping[int, Cell],
    labels: Mapping[int, str],
    per_second: float | None,
    width: float = 6.4,
) -> Drawing:
    """Draw one replication of some cells, round by round, from what `mc.trace` gives.

    Cells and their labels are given by number. Each has two panels: calls that succeed and calls
    that fail, stacked; below how many requests wait. `per_second`: rounds of a reader's second, or
    None where a reader is given rounds; `width` of the axes in inches.
    """
    lines = {number: rounds.filter(pl.col("cell") == number) for number in cells}
    alike = dict(zip(cells, equally_long(cells.values()), strict=True))
    drains = list(map(_drain, lines.values(), alike.values()))
    ends = max((drain for drain in drains if math.isfinite(drain)), default=0)
    shown = choose_stretch(list(alike.values()), max(drains), ends, _MOST_STEPS)
    highest = max(float(shown.mean(line["calls"].to_numpy()).max()) for line in lines.values())
    per, factor = calls_label(shown.step, per_second), per_second or 1.0
    panels: list[Axes] = []
    for number, cell in alike.items():
        edges = shown.seconds(cell)
        good, calls, waiting, queued = (
            np.append(steps, steps[-1])
            for name in ("successful", "calls", "waiting", "queued")
            for steps in [shown.mean(lines[number][name].to_numpy())]
        )
        served = factor * shown.mean(lines[number]["capacity"].to_numpy())
        (upper,) = new_panels([wrapped(labels[number], int(14 * width))], width, 1.5, y_label=per)
        upper.set_ylim(0, top_of_axis(factor * highest, served, factor))
        _draw_calls(upper, edges, factor * good, factor * calls)
        draw_capacity(upper, edges, served, "/s" if per_second else "")
        label = time_label(cell)
        unit = "waiting" if cell.queue else "requests\nwaiting"
        (lower,) = new_panels([""], width, 0.65, x_label=label, y_label=unit)
        lower.set_ylim(0, 1.08 * max(1.0, waiting.max(), queued.max()))
        look: Any = {"where": "post", "linewidth": 1.2}
        lower.step(edges, waiting, color=INK, label="requests waiting for a retry", **look)
        if cell.queue:
            look |= {"linestyle": DASHES[2], "label": "calls in the queue"}
            lower.step(edges, queued, color=SERIES[0], **look)
        for panel in (upper, lower):
            panel.set_xlim(edges[0], edges[-1])
            shade_fault(panel, cell)
        panels += [upper, lower]
    return arrange(panels, 1, legend(panels[:2]))


def _draw_calls(
    panel: Axes,
    edges: NDArray[np.float64],
    good: NDArray[np.float64],
    calls: NDArray[np.float64],
) -> None:
    """Calls that succeed, and above them those that fail."""
    panel.fill_between(
        edges, 0, good, step="post", color=SERIES[0], alpha=0.75, linewidth=0, label="succeed"
    )
    panel.fill_between(
        edges,
        good,
        calls,
        step="post",
        facecolor="none",
        edgecolor=SERIES[1],
        hatch="//////",
        linewidth=0.0,
        label="fail",
    )
    panel.step(edges, calls, where="post", color=SERIES[1], linewidth=1.1, label="calls")


def _drain(line: pl.DataFrame, cell: Cell) -> float:
    """Rounds after the fault until nobody waits; infinite if that is not in the run."""
    window = fault(cell)
    if window is None:
        return 0.0
    waiting = line["waiting"].to_numpy()[window[1] :]
    calm = np.flatnonzero(waiting == 0)
    return float(calm[0]) if calm.size else math.inf
