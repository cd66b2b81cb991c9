"""The storm curve: calls per second over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.experiment import cells_of
from mc.model import Cell, units
from mc.reports.curves import SHARES, Stretch, equally_long, fault
from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, new_panels, plain_numbers, wrapped
from mc.reports.scenario import Scenario
from mc.reports.style import DASHES, INK, MUTED, SERIES, SHADE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def peaks(scenario: Scenario, table: pl.DataFrame) -> list[tuple[int, float]]:
    """Each cell of a table of `curves` and the highest median of its calls per second."""
    highest = table.group_by("cell", maintain_order=True).agg(pl.col("median").max())
    lines = scenario.view.lines
    return [(cell, rate * lines[cell]["rounds_per_second"]) for cell, rate in highest.iter_rows()]


def _cells(scenario: Scenario, chosen: Sequence[int]) -> dict[int, Cell]:
    lines = scenario.view.results.cells.filter(pl.col("cell").is_in(chosen))
    cells = cells_of(lines)
    return {number: cells[number] for number in chosen}


def draw_curves(scenario: Scenario, table: pl.DataFrame) -> Drawing:
    """Draw a panel for each cell, all with the same axes and colour, from what `curves` gave.

    Where calls wait, useful work is drawn, too, and below the length of each queue.
    """
    cells = equally_long(_cells(scenario, scenario.chosen).values())
    panels = new_panels(
        [wrapped(scenario.marked(number), 28) for number in scenario.chosen],
        width=2.1,
        height=1.15,
        x_label=time_label(cells[0]),
        y_label="calls/s",
    )
    tops, drawn = [], []
    for panel, cell, number in zip(panels, cells, scenario.chosen, strict=True):
        per_second = cell.rounds_per_second
        line = table.filter(pl.col("cell") == number).with_columns(
            pl.col(*SHARES, "capacity", "useful") * per_second
        )
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        highest, served = line["high_95"].to_numpy().max(), line["capacity"].to_numpy()
        tops.append(top_of_axis(highest, served, per_second))
        panel.set_xlim(edges[0], edges[-1])
        shade_fault(panel, cell)
        _draw_curve(panel, edges, line)
        if cell.queue:
            look: Any = {"color": SERIES[1], "linewidth": 1.4, "linestyle": DASHES[2]}
            panel.step(*_changes(edges, line["useful"]), where="post", label="useful work", **look)
        drawn.append((edges, served))
    for panel, (edges, served) in zip(panels, drawn, strict=True):
        panel.set_ylim(0, 1.1 * max(tops))
        draw_capacity(panel, edges, served, "/s" if panel is panels[0] else None)
        plain_numbers(panel.yaxis)
    with_queue = [n for n, cell in zip(scenario.chosen, cells, strict=True) if cell.queue]
    if with_queue:
        panels += _draw_queues(scenario, with_queue, table)
    return arrange(panels, min(3, len(panels)))


def _draw_queues(scenario: Scenario, chosen: Sequence[int], table: pl.DataFrame) -> list[Axes]:
    """A panel for each of the chosen cells: how many calls wait."""
    titles = [wrapped(f"{scenario.marked(number)}: queue", 28) for number in chosen]
    cells = equally_long(_cells(scenario, chosen).values())
    panels = new_panels(titles, 2.1, 0.7, x_label=time_label(cells[0]), y_label="calls")
    highest = float(table["queued"].to_numpy().max())
    for panel, cell, number in zip(panels, cells, chosen, strict=True):
        line = table.filter(pl.col("cell") == number)
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        panel.set_xlim(edges[0], edges[-1])
        panel.set_ylim(0, 1.1 * max(highest, 1.0))
        shade_fault(panel, cell)
        look: Any = {"color": SERIES[0], "linewidth": 1.6}
        panel.step(*_changes(edges, line["queued"]), where="post", **look)
        plain_numbers(panel.yaxis)
    return panels


def _draw_curve(panel: Axes, edges: NDArray[np.float64], line: pl.DataFrame) -> None:
    """Median and band of one cell, and how high the median rises."""
    if line["replications"][0] > 1:
        x, low, high = _changes(edges, line["low_95"], line["high_95"])
        look: Any = {"color": SERIES[0], "alpha": 0.25, "linewidth": 0}
        panel.fill_between(x, low, high, step="post", **look)
    median = line["median"].to_numpy()
    panel.step(*_changes(edges, median), where="post", color=SERIES[0], linewidth=1.6)
    peak = int(median.argmax())
    is_right = edges[peak] > (edges[0] + edges[-1]) / 2
    look = {"va": "bottom", "fontsize": 8, "fontweight": "bold", "color": SERIES[0]}
    look |= {"ha": "right" if is_right else "left"}
    panel.text(edges[peak], line["high_95"][peak], f"{short(median[peak])}/s", **look)


def _changes(edges: NDArray[np.float64], *columns: Any) -> list[NDArray[np.float64]]:
    """Where a step differs from the one before it, and the end of the last; x, then the values."""
    values = np.array(columns, np.float64)
    starts = np.flatnonzero((values[:, 1:] != values[:, :-1]).any(axis=0)) + 1
    return [edges[[0, *starts, -1]], *values[:, [0, *starts, -1]]]


def shade_fault(panel: Axes, cell: Cell) -> None:
    """Mark the fault window."""
    window = fault(cell)
    if window is not None:
        start, stop = ((t - window[0]) / cell.rounds_per_second for t in window)
        panel.axvspan(start, stop, color=SHADE, zorder=0, linewidth=0, label="fault")


def top_of_axis(highest: float, served: NDArray[np.float64], one: float) -> float:
    """Where the axis of calls ends: above the calls, and the capacity unless that is far above.

    `served` is the capacity of each step, `one` a single call in a round.
    """
    return 1.08 * float(max([highest, one, *served[served <= 3 * highest]]))


def draw_capacity(
    panel: Axes, edges: NDArray[np.float64], served: NDArray[np.float64], unit: str | None
) -> None:
    """Draw how many calls are served in each step, and write how many in the last of them.

    A capacity above the axis is only written. Without a unit nothing is written.
    """
    top = panel.get_ylim()[1]
    if served.min() <= top:
        look: Any = {"color": INK, "linewidth": 1.0, "linestyle": DASHES[1]}
        panel.step(*_changes(edges, served), where="post", **look)
    if unit is None:
        return
    look = {"ha": "right", "fontsize": 7.5, "color": MUTED}
    if served.max() > top:
        text = f"capacity {short(served.max())}{unit}, above the panel"
        panel.text(0.99, 0.97, text, transform=panel.transAxes, va="top", **look)
    else:
        text = f"capacity {short(served[-1])}{unit}"
        panel.text(edges[-1], served[-1], text, va="bottom", **look)


def length_text(n_rounds: int, per_second: float | None) -> str:
    """Write how long some rounds are; per_second as in `View`."""
    return f"{n_rounds} rounds" if per_second is None else units.format_time(n_rounds / per_second)


def calls_label(step: int, per_second: float | None) -> str:
    """What the axis of calls has, if each step is the mean of so many rounds."""
    unit, _ = units.for_reader("calls/round", per_second)
    return unit if step == 1 else f"{unit},\nmean of {length_text(step, per_second)}"


def time_label(cell: Cell) -> str:
    """From what the axis of time counts."""
    return "seconds since the fault began" if fault(cell) else "seconds"
