"""One replication in detail, round by round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc.model import Cell
from mc.reports.storm import (
    curves_legend,
    draw_capacity,
    fault,
    shade,
    stretch,
    time_label,
    together,
)
from mc.reports.style import INK, SERIES, WIDTH, new_figure, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS_ALONE: Final = 400
"""Points of a curve, at most: single rounds shall be seen where there is room."""


def draw_trace(
    rounds: pl.DataFrame, cells: Mapping[int, Cell], labels: Mapping[int, str]
) -> Figure:
    """Draw one replication of some cells, round by round.

    Parameters
    ----------
    rounds : polars.DataFrame
        As `mc.trace` gives it, one replication of each cell.
    cells, labels : mapping
        By the number of the cell: what it is, and what it is called.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each cell: calls that succeed and calls that fail, stacked; below it how many
        requests wait.
    """
    lines = {number: rounds.filter(pl.col("cell") == number) for number in cells}
    alike = dict(zip(cells, together(cells.values()), strict=True))
    drained = max(map(_drained, lines.values(), alike.values()))
    shown = stretch(list(alike.values()), drained, _POINTS_ALONE)
    highest = max(float(shown.mean(line["calls"].to_numpy()).max()) for line in lines.values())
    figure = new_figure(WIDTH, 0.8 + 2.5 * len(cells))
    grid = figure.subplots(
        2 * len(cells), 1, sharex=True, squeeze=False, height_ratios=[2.4, 1] * len(cells)
    )[:, 0]
    for i, (number, cell) in enumerate(alike.items()):
        upper, lower = grid[2 * i], grid[2 * i + 1]
        line = lines[number]
        edges = shown.seconds(cell)
        steps = {
            name: shown.mean(line[name].to_numpy()) for name in ("successful", "calls", "waiting")
        }
        for panel in (upper, lower):
            shade(panel, cell)
        good, all_calls = (
            np.append(steps[name], steps[name][-1]) for name in ("successful", "calls")
        )
        upper.fill_between(
            edges, 0, good, step="post", color=SERIES[0], alpha=0.75, linewidth=0, label="succeed"
        )
        upper.fill_between(
            edges,
            good,
            all_calls,
            step="post",
            facecolor="none",
            edgecolor=SERIES[1],
            hatch="//////",
            linewidth=0.0,
            label="fail",
        )
        upper.step(edges, all_calls, where="post", color=SERIES[1], linewidth=1.1, label="calls")
        draw_capacity(upper, edges, cell, highest)
        upper.set_title(wrapped(labels[number], 90))
        upper.set_ylabel(
            "calls/round" if shown.step == 1 else f"calls/round,\nmean of {shown.step} rounds"
        )
        lower.step(
            edges,
            np.append(steps["waiting"], steps["waiting"][-1]),
            where="post",
            color=INK,
            linewidth=1.2,
        )
        lower.set_ylim(0, 1.08 * max(1.0, steps["waiting"].max()))
        lower.set_ylabel("requests\nwaiting")
    grid[-1].set_xlabel(time_label(next(iter(alike.values()))))
    figure.align_ylabels(list(grid))
    curves_legend(figure, grid[0])
    return figure


def _drained(line: pl.DataFrame, cell: Cell) -> float:
    """Rounds after the fault until nobody waits."""
    window = fault(cell)
    if window is None:
        return 0.0
    waiting = line["waiting"].to_numpy()[window[1] :]
    calm = np.flatnonzero(waiting == 0)
    return float(calm[0] if calm.size else waiting.size)
