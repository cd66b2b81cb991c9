"""Heat maps: a metric over two axes of a sweep."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, Normalize, to_rgb

from mc.model import METRICS
from mc.reports.style import (
    ON_DARK,
    ON_LIGHT,
    WIDTH,
    hide_unused,
    new_figure,
    plain_numbers,
    short,
    wrapped,
)
from mc.reports.view import Axis, View, metric_title, spread, value_text
from mc.reports.words import count, with_error
from mc.statistics import format_estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_MAPS: Final = 12
_MOST_WRITTEN: Final = 10
"""Columns of a heat map whose numbers are written: more are read from the colours."""

_FIELDS: Final = 150
"""Fields of a map above which they are one picture: a browser would be slow."""

_FAR_OUT: Final = 3.0
"""Ranges between the quartiles beyond them: what lies further has no part in the colours. Tukey
1977, section 2D."""

BEYOND: Final = {"over": "#b34700", "under": "#5a2a82"}
"""Colours of what lies further out; none of them is on the scale."""


def heat_axes(view: View) -> tuple[Axis, Axis, Axis | None]:
    """Columns and rows of the maps, and what varies from map to map beside the policy."""
    x, y, *others = view.axes
    return x, y, others[0] if others else None


def _fields(view: View, scenario: str) -> dict[tuple[Any, ...], int]:
    """Cells by their policy and their values on the drawn axes, at one value of all others."""
    drawn = [axis for axis in heat_axes(view) if axis is not None]
    fixed = {axis.name: axis.values[0] for axis in view.axes if axis not in drawn}
    return {
        (line["policy"], *(line[axis.name] for axis in drawn)): cell
        for cell in view.in_scenario(scenario)
        for line in [view.lines[cell]]
        if all(line[name] == value for name, value in fixed.items())
    }


def _constant(view: View, scenario: str, metric: str) -> dict[str, list[int]]:
    """Policies for which the axes change nothing, with their cells: a map would be one colour."""
    by_policy: dict[str, list[int]] = {}
    for (policy, *_), cell in _fields(view, scenario).items():
        by_policy.setdefault(policy, []).append(cell)
    found = {
        policy: cells
        for policy, cells in by_policy.items()
        if len({(view.mean(c, metric), view.estimates[c, metric]["sd"]) for c in cells}) == 1
    }
    return found if len(found) < len(by_policy) else {}


def _maps(view: View, scenario: str, metric: str) -> list[tuple[str, Any]]:
    """Policy and value of the third axis of each map; of many values a choice, evenly spread."""
    third = heat_axes(view)[2]
    values = third.values if third else [None]
    constant, known = _constant(view, scenario, metric), {key[0] for key in _fields(view, scenario)}
    policies = [p for p in view.policies if p in known and p not in constant][:_MOST_MAPS]
    return [
        (policy, value)
        for policy in policies
        for value in spread(values, _MOST_MAPS // len(policies))
    ]


def scale(view: View, scenario: str, metric: str) -> tuple[Normalize, list[float]]:
    """What the colours stand for, and the means that lie far out and have none of them."""
    constant = {c for cells in _constant(view, scenario, metric).values() for c in cells}
    cells = [c for c in _fields(view, scenario).values() if c not in constant]
    means = np.array([m for m in (view.mean(c, metric) for c in cells) if m is not None] or [0.0])
    low, high = np.percentile(means, [25, 75], method="inverted_cdf")
    reach = _FAR_OUT * (high - low)
    inside = means[(means >= low - reach) & (means <= high + reach)]
    # colours that are taken up by a few are of no use to the others
    if not 0 < _FAR_OUT * np.ptp(inside) <= np.ptp(means):
        inside = means
    first, last = float(inside.min()), float(inside.max())
    outside = sorted(means[(means < first) | (means > last)].tolist())
    return Normalize(first, last if last > first else first + 1), outside


def heat_note(view: View, scenario: str, metric: str) -> str:
    """Say what is not drawn or cannot be read."""
    x, y, third = heat_axes(view)
    fixed = [axis for axis in view.axes if axis not in (x, y, third)]
    notes = [f"{axis.name} is {value_text(axis.values[0])}" for axis in fixed]
    note = f"Of the further axes only one value is drawn: {', '.join(notes)}. " if notes else ""
    constant = _constant(view, scenario, metric)
    for policy, cells in constant.items():
        same = with_error(
            view.mean(cells[0], metric), view.half_width(cells[0], metric), METRICS[metric].unit
        )
        note += f"“{policy}” has {same} in {'all of its ' * (len(cells) > 1)}"
        note += f"{count(len(cells), 'cell')} and no map. "
    n = (len(view.policies) - len(constant)) * (len(third.values) if third else 1)
    drawn = len(_maps(view, scenario, metric))
    if n > drawn:
        note += f"{drawn} of {n} maps are drawn. "
    norm, outside = scale(view, scenario, metric)
    if outside:
        note += (
            f"Colours go from {short(norm.vmin or 0.0)} to {short(norm.vmax or 0.0)}; "
            f"{count(len(outside), 'cell')} far outside ({short(outside[0])}"
            f"{f' to {short(outside[-1])}' if len(outside) > 1 else ''}) "
            f"{'has a colour' if len(outside) == 1 else 'have colours'} of their own. "
        )
    if len(x.values) > _MOST_WRITTEN:
        widths = [view.half_width(cell, metric) or 0.0 for cell in view.in_scenario(scenario)]
        note += f"No half-width of a 95 % interval is larger than {short(max(widths))}."
    else:
        note += "±: half-width of the 95 % interval."
    return note.strip()


def draw_heat(view: View, scenario: str, metric: str) -> Figure:
    """Draw maps of one metric over two axes, one for each policy and value of a third axis.

    Each field holds the mean and below it the half-width of its interval, if there is room.
    """
    x, y, third = heat_axes(view)
    found = _fields(view, scenario)
    maps = _maps(view, scenario, metric)
    n_values = len({value for _, value in maps})
    is_written = len(x.values) <= _MOST_WRITTEN
    most = 4 if len(x.values) <= 3 else 3 if len(x.values) <= 5 or not is_written else 2
    n_columns = min(len(maps), n_values if 1 < n_values <= most else most)
    n_rows = -(-len(maps) // n_columns)
    width, height = (0.5, 0.42) if is_written else (3.2 / len(x.values), 2.0 / len(y.values))
    figure = new_figure(
        max(WIDTH if n_columns > 1 else 4.0, n_columns * (width * len(x.values) + 0.9) + 0.3),
        1.5 + n_rows * (max(1.2, height * min(len(y.values), 14)) + 0.75),
    )
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    flat = list(grid.ravel())
    hide_unused(flat, len(maps))
    norm, outside = scale(view, scenario, metric)
    colors = mpl.colormaps["cividis"].with_extremes(**BEYOND)
    for (policy, value), panel in zip(maps, flat, strict=False):
        cells = [
            [found.get((policy, a, b, *([value] if third else []))) for a in x.values]
            for b in y.values
        ]
        _map(view, panel, metric, cells, norm, colors)
        parts = [policy] if len(view.policies) > 1 else []
        parts += [f"{third.name} {value_text(value)}"] if third else []
        panel.set_title(wrapped(", ".join(parts), 13 + (5 * len(x.values) if is_written else 25)))
        _ticks(panel, x, y, is_written)
        # each map can be read alone: on a narrow page they stand below one another
        panel.tick_params(labelbottom=True, labelleft=True)
        panel.set_ylabel(y.title)
        panel.set_xlabel(x.title)
    ends = [bool(outside) and outside[0] < (norm.vmin or 0.0), False]
    ends[1] = bool(outside) and outside[-1] > (norm.vmax or 0.0)
    bar = figure.colorbar(
        mpl.cm.ScalarMappable(norm, colors),
        ax=flat[: len(maps)],
        location="top",
        shrink=min(1.0, 4.0 / figure.get_figwidth()),
        aspect=25,
        pad=0.02,
        extend={(True, True): "both", (True, False): "min", (False, True): "max"}.get(
            (ends[0], ends[1]), "neither"
        ),
    )
    bar.set_label(f"mean of {metric_title(metric)}")
    bar.outline.set_visible(False)
    plain_numbers(bar.ax.xaxis)
    return figure


def _map(
    view: View,
    panel: Axes,
    metric: str,
    cells: list[list[int | None]],
    norm: Normalize,
    color_map: Colormap,
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
            text = panel.text(
                j,
                i,
                f"{_short(mean)}\n±{error}" if error else _short(mean),
                ha="center",
                va="center",
                fontsize=7,
                linespacing=1.1,
                color=text_color(color_map(norm(means[i, j]))),
            )
            text.set_in_layout(False)  # inside the panel anyway; to measure it takes long


@cache
def text_color(ground: tuple[float, float, float, float]) -> str:
    """The colour of text that stands out more."""
    on = _luminance(ground[:3]) + 0.05
    light, dark = (_luminance(to_rgb(color)) + 0.05 for color in (ON_DARK, ON_LIGHT))
    return ON_DARK if light / on > on / dark else ON_LIGHT


def _luminance(color: tuple[float, float, float]) -> float:
    """How bright a colour is, from 0 to 1: relative luminance, WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


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
