"""Sweeps: lines over one axis, points of a design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mc.reports.style import (
    LINES,
    MARKERS,
    SERIES,
    WIDTH,
    new_figure,
    not_below_zero,
    plain_numbers,
    wrapped,
)
from mc.reports.view import Axis, View, metric_title, parameter_title, value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES: Final = len(SERIES)

_LOG_SPAN: Final = 20
"""Largest over smallest value of an axis that is drawn in logarithms."""

RASTERIZED: Final = 1500
"""Points above which they are one picture: a browser would be slow."""


def sweep_metrics(view: View, scenario: str) -> list[str]:
    """What is drawn of a sweep: what the dependency is asked for, and what it costs."""
    return [view.strain(scenario), "dropped"]


# --- one axis ------------------------------------------------------------------------------------


def draw_lines(view: View, scenario: str) -> Figure:
    """Draw the metrics over the only axis of the grid, a line for each policy."""
    (axis,) = view.axes
    metrics = sweep_metrics(view, scenario)
    figure = new_figure(WIDTH, 3.6)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    lines = {line["cell"]: line for line in map(view.lines.get, view.in_scenario(scenario)) if line}
    at = _positions(axis)
    for metric, panel in zip(metrics, panels, strict=True):
        for i, policy in enumerate(view.policies[:_MOST_LINES]):
            cells = {line[axis.name]: c for c, line in lines.items() if line["policy"] == policy}
            some = [
                (at[k], cells[value])
                for k, value in enumerate(axis.values)
                if value in cells and view.mean(cells[value], metric) is not None
            ]
            if some:
                _line(view, panel, metric, some, i, policy)
        _name_positions(panel, axis)
        panel.set_xlabel(axis.title)
        panel.set_title(metric_title(metric))
        not_below_zero(panel.yaxis)
        plain_numbers(panel.yaxis)
    legend(figure, panels[0])
    return figure


def _line(
    view: View, panel: Axes, metric: str, some: list[tuple[float, int]], i: int, policy: str
) -> None:
    x = [place for place, _ in some]
    estimates = [view.estimates[cell, metric] for _, cell in some]
    color = SERIES[i]
    panel.fill_between(
        x,
        [e["p05"] for e in estimates],
        [e["p95"] for e in estimates],
        color=color,
        alpha=0.15,
        linewidth=0,
        label="90 % of replications" if i == 0 else None,
    )
    panel.errorbar(
        x,
        [e["mean"] for e in estimates],
        yerr=[view.half_width(cell, metric) or 0.0 for _, cell in some],
        color=color,
        marker=MARKERS[i],
        markersize=4.5,
        linestyle=LINES[i],
        linewidth=1.4,
        capsize=2.5,
        label="mean, 95 % interval" if policy == "default" else wrapped(policy, 40),
    )


def _positions(axis: Axis) -> NDArray[np.float64]:
    """Where the values stand: by their size if all are numbers, else one after another."""
    if any(value is None or isinstance(value, str) for value in axis.values):
        return np.arange(len(axis.values), dtype=float)
    return np.array(axis.values, float)


def _name_positions(panel: Axes, axis: Axis) -> None:
    at = _positions(axis)
    if at.min() > 0 and at.max() / at.min() >= _LOG_SPAN:
        panel.set_xscale("log")
        panel.minorticks_off()
    step = max(1, -(-len(at) // 8))
    panel.set_xticks(at[::step], [value_text(value) for value in axis.values[::step]])


# --- a design ------------------------------------------------------------------------------------


def draw_design(view: View, scenario: str) -> Figure:
    """Draw each metric against each parameter of a design, all other parameters varying too."""
    metrics = sweep_metrics(view, scenario)
    names = view.design[:4]
    figure = new_figure(WIDTH, 0.7 + 2.3 * len(names))
    grid = figure.subplots(len(names), len(metrics), squeeze=False, sharey="col")
    cells = view.in_scenario(scenario)
    for name, row in zip(names, grid, strict=True):
        for metric, panel in zip(metrics, row, strict=True):
            for i, policy in enumerate(view.policies[:_MOST_LINES]):
                some = [
                    c
                    for c in cells
                    if view.lines[c]["policy"] == policy
                    and view.mean(c, metric) is not None
                    and view.lines[c][name] is not None
                ]
                _points(view, panel, [view.lines[c][name] for c in some], metric, some, i, policy)
            panel.set_xlabel(parameter_title(name))
            panel.set_ylabel(metric_title(metric))
            not_below_zero(panel.yaxis)
            not_below_zero(panel.yaxis)
        plain_numbers(panel.yaxis)
    legend(figure, grid[0][0])
    return figure


def _points(
    view: View, panel: Axes, x: Sequence[float], metric: str, cells: list[int], i: int, policy: str
) -> None:
    """Means over x, with their intervals."""
    container = panel.errorbar(
        x,
        [view.mean(cell, metric) or 0.0 for cell in cells],
        yerr=[view.half_width(cell, metric) or 0.0 for cell in cells],
        color=SERIES[i],
        marker=MARKERS[i],
        markersize=3.5,
        linestyle="none",
        elinewidth=0.8,
        label="mean, 95 % interval" if policy == "default" else wrapped(policy, 40),
    )
    for artist in container.get_children():
        artist.set_rasterized(len(cells) > RASTERIZED)


def legend(figure: Figure, panel: Axes) -> None:
    """One legend for all panels."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
