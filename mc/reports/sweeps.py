"""Sweeps: lines over one axis, heat maps over two, points of a design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from mc.reports.style import (
    LINES,
    MARKERS,
    ON_DARK,
    ON_LIGHT,
    SERIES,
    WIDTH,
    hide_unused,
    new_figure,
    plain_numbers,
    short,
    wrapped,
)
from mc.reports.view import Axis, View, metric_title, parameter_title, value_text
from mc.statistics import format_estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES: Final = len(SERIES)
_MOST_MAPS: Final = 12
_MOST_WRITTEN: Final = 10
"""Columns of a heat map whose numbers are written: more are read from the colours."""

_LOG_SPAN: Final = 20
"""Largest over smallest value of an axis that is drawn in logarithms."""

_FIELDS: Final = 150
"""Fields of a map above which they are one picture: a browser would be slow."""

RASTERIZED: Final = 1500
"""The same for points."""


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


# --- two axes and more ---------------------------------------------------------------------------


def heat_axes(view: View) -> tuple[Axis, Axis, Axis | None]:
    """Columns and rows of the maps, and what varies from map to map beside the policy."""
    x, y, *others = view.axes
    return x, y, others[0] if others else None


def _maps(view: View) -> list[tuple[str, Any]]:
    """Policy and value of the third axis of each map; of many values a choice, evenly spread."""
    third = heat_axes(view)[2]
    values = third.values if third else [None]
    policies = view.policies[:_MOST_MAPS]
    n = min(len(values), _MOST_MAPS // len(policies))
    places = np.linspace(0, len(values) - 1, n).round().astype(int).tolist()
    return [(policy, values[i]) for policy in policies for i in places]


def heat_note(view: View, scenario: str, metric: str) -> str:
    """Say what is not drawn or cannot be read."""
    x, y, third = heat_axes(view)
    fixed = [axis for axis in view.axes if axis not in (x, y, third)]
    notes = [f"{axis.name} is {value_text(axis.values[0])}" for axis in fixed]
    note = f"Of the further axes only one value is drawn: {', '.join(notes)}. " if notes else ""
    n, drawn = len(view.policies) * (len(third.values) if third else 1), len(_maps(view))
    if n > drawn:
        note += f"{drawn} of {n} maps are drawn. "
    if len(x.values) > _MOST_WRITTEN:
        widths = [view.half_width(cell, metric) or 0.0 for cell in view.in_scenario(scenario)]
        note += f"No half-width is larger than {short(max(widths))}."
    return note.strip()


def draw_heat(view: View, scenario: str, metric: str) -> Figure:
    """Draw maps of one metric over two axes, one for each policy and value of a third axis.

    Each field holds the mean and below it the half-width of its interval, if there is room.
    """
    x, y, third = heat_axes(view)
    fixed = {axis.name: axis.values[0] for axis in view.axes if axis not in (x, y, third)}
    found = {
        (line["policy"], *(line[axis.name] for axis in (x, y, third) if axis)): cell
        for cell in view.in_scenario(scenario)
        for line in [view.lines[cell]]
        if all(line[name] == value for name, value in fixed.items())
    }
    maps = _maps(view)
    n_values = len({value for _, value in maps})
    is_written = len(x.values) <= _MOST_WRITTEN
    most = 4 if len(x.values) <= 5 else 3 if len(x.values) <= 7 or not is_written else 2
    n_columns = min(len(maps), n_values if 1 < n_values <= most else most)
    n_rows = -(-len(maps) // n_columns)
    width, height = (0.47, 0.42) if is_written else (3.2 / len(x.values), 2.0 / len(y.values))
    figure = new_figure(
        max(WIDTH, n_columns * (width * len(x.values) + 0.5) + 1.2),
        1.1 + n_rows * (max(1.2, height * min(len(y.values), 14)) + 0.65),
    )
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    flat = list(grid.ravel())
    hide_unused(flat, len(maps))
    means = [m for m in (view.mean(cell, metric) for cell in found.values()) if m is not None]
    low, high = min(means, default=0.0), max(means, default=1.0)
    norm = Normalize(low, high if high > low else low + 1)
    color_map = mpl.colormaps["cividis"]
    for (policy, value), panel in zip(maps, flat, strict=False):
        cells = [
            [found.get((policy, a, b, *([value] if third else []))) for a in x.values]
            for b in y.values
        ]
        _map(view, panel, metric, cells, norm, color_map)
        parts = [policy] if len(view.policies) > 1 else []
        parts += [f"{third.name} {value_text(value)}"] if third else []
        panel.set_title(wrapped(", ".join(parts), 13 + (5 * len(x.values) if is_written else 25)))
        _ticks(panel, x, y, is_written)
    for row in grid:
        row[0].set_ylabel(y.title)
    for panel in flat[: len(maps)][-n_columns:]:
        panel.set_xlabel(x.title)
        panel.tick_params(labelbottom=True)
    bar = figure.colorbar(
        mpl.cm.ScalarMappable(norm, color_map), ax=flat[: len(maps)], aspect=30, pad=0.015
    )
    bar.set_label(f"mean of {metric_title(metric)}")
    bar.outline.set_visible(False)
    plain_numbers(bar.ax.yaxis)
    return figure


def _map(
    view: View,
    panel: Axes,
    metric: str,
    cells: list[list[int | None]],
    norm: Normalize,
    color_map: Any,
) -> None:
    """One map; a field without a cell, or without a value, stays empty."""
    means = np.array(
        [[np.nan if c is None else _or_nan(view.mean(c, metric)) for c in row] for row in cells]
    )
    n_rows, n_columns = means.shape
    panel.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        np.ma.masked_invalid(means),
        norm=norm,
        cmap=color_map,
        edgecolor="face",  # no seams between the fields
        linewidth=0.3,
        rasterized=means.size > _FIELDS,
    )
    panel.grid(False)
    if n_columns > _MOST_WRITTEN:
        return
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None or np.isnan(means[i, j]):
                continue
            mean, error = format_estimate(means[i, j], view.half_width(cell, metric))
            light = norm(means[i, j]) > 0.5
            text = panel.text(
                j,
                i,
                f"{_short(mean)}\n±{error}" if error else _short(mean),
                ha="center",
                va="center",
                fontsize=6.6,
                linespacing=1.1,
                color=ON_LIGHT if light else ON_DARK,
            )
            text.set_in_layout(False)  # inside the panel anyway; to measure it takes long


def _short(text: str) -> str:
    """No more digits than a field has room for; the table has all of them."""
    return text if len(text) <= 7 else short(float(text))


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _ticks(panel: Axes, x: Axis, y: Axis, is_written: bool) -> None:
    for axis, setting in ((x, panel.set_xticks), (y, panel.set_yticks)):
        step = max(1, -(-len(axis.values) // (14 if is_written else 7)))
        some = axis.values[::step]
        texts = [f"{v:.4g}" if isinstance(v, float) else value_text(v) for v in some]
        setting(range(0, len(axis.values), step), texts)


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
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
