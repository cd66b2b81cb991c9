"""Heat maps: a metric over two axes of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize, to_rgb
from matplotlib.figure import Figure

from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, new_panels, plain_numbers, wrapped
from mc.reports.scenario import Scenario, spread
from mc.reports.style import ON_DARK, ON_LIGHT
from mc.reports.view import Axis, View
from mc.statistics import format_estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MAPS: Final = 12

MOST_WRITTEN: Final = 10
"""Columns of a map whose numbers are written; those of more are read from the colours."""

_MOST_FIELDS: Final = 150
"""Fields above which a map becomes a bitmap: a browser would be slow."""

_FAR_OUT: Final = 3.0
"""Interquartile ranges from the quartiles: what lies further out has no part in the colours. Tukey
1977, section 2D."""

BEYOND: Final = {"over": "#b34700", "under": "#5a2a82"}
"""Colours of what lies further out; neither is on the scale."""


@dataclass(frozen=True)
class Maps:
    """What is drawn of one metric in one scenario.

    Attributes
    ----------
    x, y : Axis
        Columns and rows.
    third : Axis or None
        What varies from map to map, beside the policy.
    fields : dict
        Cells by policy, value of x, value of y, and value of the third axis if there is one.
    constant : dict of str to list of int
        Policies for which the axes change nothing, with their cells: a map would be one colour.
    drawn : list of (str, object)
        Policy and value of the third axis of each map.
    n_possible : int
        How many maps there are.
    scale : Normalize
        What the colours stand for.
    outside : list of float
        Means that lie far out and have colours of their own, ascending.
    """

    x: Axis
    y: Axis
    third: Axis | None
    fields: dict[tuple[Any, ...], int]
    constant: dict[str, list[int]]
    drawn: list[tuple[str, Any]]
    n_possible: int
    scale: Normalize
    outside: list[float]

    @property
    def is_written(self) -> bool:
        """Whether the fields hold numbers."""
        return len(self.x.values) <= MOST_WRITTEN


def plan_maps(scenario: Scenario, metric: str) -> Maps:
    """Choose which maps are drawn; of many values of the third axis a few, evenly spread."""
    view = scenario.view
    x, y, *others = view.axes
    third = others[0] if others else None
    drawn_axes = [axis for axis in (x, y, third) if axis is not None]
    fixed = {axis.name: axis.values[0] for axis in others[1:]}
    fields = {
        (line["policy"], *(line[axis.name] for axis in drawn_axes)): cell
        for cell in scenario.cells
        for line in [view.lines[cell]]
        if all(line[name] == value for name, value in fixed.items())
    }
    constant = _constant(view, fields, metric)
    with_cells = {key[0] for key in fields}
    policies = [p for p in view.policies if p in with_cells and p not in constant][:_MOST_MAPS]
    values = third.values if third else [None]
    drawn = [
        (policy, value)
        for policy in policies
        for value in spread(values, _MOST_MAPS // len(policies))
    ]
    n_possible = (len(view.policies) - len(constant)) * len(values)
    means = [view.mean(cell, metric) for key, cell in fields.items() if key[0] not in constant]
    scale, outside = _scale(np.array([mean for mean in means if mean is not None] or [0.0]))
    return Maps(x, y, third, fields, constant, drawn, n_possible, scale, outside)


def _constant(view: View, fields: dict[tuple[Any, ...], int], metric: str) -> dict[str, list[int]]:
    by_policy: dict[str, list[int]] = {}
    for (policy, *_), cell in fields.items():
        by_policy.setdefault(policy, []).append(cell)
    constant = {
        policy: cells
        for policy, cells in by_policy.items()
        if len({(view.mean(c, metric), view.estimates[c, metric]["sd"]) for c in cells}) == 1
    }
    return constant if len(constant) < len(by_policy) else {}


def _scale(means: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Normalize, list[float]]:
    """A scale of colours for most of the means, and the others."""
    low, high = np.percentile(means, [25, 75], method="inverted_cdf")
    reach = _FAR_OUT * (high - low)
    inside = means[(means >= low - reach) & (means <= high + reach)]
    # to leave out a few is worth it only where it gives the others most of the colours
    if not 0 < _FAR_OUT * np.ptp(inside) <= np.ptp(means):
        inside = means
    first, last = float(inside.min()), float(inside.max())
    outside = sorted(means[(means < first) | (means > last)].tolist())
    return Normalize(first, last if last > first else first + 1), outside


# --- drawing --------------------------------------------------------------------------------------


def draw_maps(view: View, maps: Maps, metric: str) -> Drawing:
    """Draw maps of one metric over two axes, one for each policy and value of a third axis.

    Each field holds the mean and below it the half-width of its interval, if there is room.
    """
    x, y, third = maps.x, maps.y, maps.third
    n_x, n_y = len(x.values), len(y.values)
    width, height = (0.5, 0.42) if maps.is_written else (3.2 / n_x, 2.0 / n_y)
    longest = 13 + 5 * n_x if maps.is_written else 38
    titles = []
    for policy, value in maps.drawn:
        parts = [policy] if len(view.policies) > 1 else []
        parts += [f"{third.name} {third.text(value)}"] if third else []
        titles.append(wrapped(", ".join(parts), longest))
    panels = new_panels(
        titles,
        max(0.9, width * n_x),
        max(0.9, height * min(n_y, 14)),
        x_label=x.title,
        y_label=y.title,
    )
    colors = mpl.colormaps["cividis"].with_extremes(**BEYOND)
    for (policy, value), panel in zip(maps.drawn, panels, strict=True):
        last = [value] if third else []
        cells = [[maps.fields.get((policy, a, b, *last)) for a in x.values] for b in y.values]
        _draw_map(view, panel, metric, cells, maps.scale, colors)
        _label_ticks(panel, x, y, maps.is_written)
    n_values = len({value for _, value in maps.drawn})
    most = 4 if n_x <= 3 else 3 if n_x <= 5 or not maps.is_written else 2
    n_columns = min(len(panels), n_values if 1 < n_values <= most else most)
    return arrange(panels, n_columns, _color_bar(maps, colors, view.title(metric)), has_grid=False)


def _draw_map(
    view: View,
    panel: Axes,
    metric: str,
    cells: list[list[int | None]],
    scale: Normalize,
    colors: Colormap,
) -> None:
    """One map; a field without a cell, or without a value, stays empty."""
    means = np.array(
        [[None if cell is None else view.mean(cell, metric) for cell in row] for row in cells],
        np.float64,
    )
    n_rows, n_columns = means.shape
    panel.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        np.ma.masked_invalid(means),
        norm=scale,
        cmap=colors,
        edgecolor="face",  # no seams between the fields
        linewidth=0.3,
        rasterized=means.size > _MOST_FIELDS,
    )
    if n_columns > MOST_WRITTEN:
        return
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None or np.isnan(means[i, j]):
                continue
            mean, error = format_estimate(means[i, j], view.half_width(cell, metric))
            panel.text(
                j,
                i,
                f"{_at_most_7(mean)}\n±{error}" if error else _at_most_7(mean),
                ha="center",
                va="center",
                fontsize=7,
                linespacing=1.1,
                color=text_color(colors(scale(means[i, j]))),
            )


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


def _at_most_7(text: str) -> str:
    """A number with no more digits than a field has room for; the table has all of them."""
    return text if len(text) <= 7 else short(float(text))


def _label_ticks(panel: Axes, x: Axis, y: Axis, is_written: bool) -> None:
    for axis, setting in ((x, panel.set_xticks), (y, panel.set_yticks)):
        step = max(1, -(-len(axis.values) // (14 if is_written else 7)))
        some = axis.values[::step]
        is_number = not axis.is_in_units
        texts = [f"{v:.4g}" if is_number and isinstance(v, float) else axis.text(v) for v in some]
        setting(range(0, len(axis.values), step), texts)


def _color_bar(maps: Maps, colors: Colormap, title: str) -> Figure:
    figure = Figure((4.4, 0.75))
    panel = figure.add_axes((0.08, 0.12, 0.84, 0.25))
    means = maps.outside
    is_below = bool(means) and means[0] < (maps.scale.vmin or 0.0)
    is_above = bool(means) and means[-1] > (maps.scale.vmax or 0.0)
    extend: Any = (("neither", "max"), ("min", "both"))[is_below][is_above]
    image = mpl.cm.ScalarMappable(maps.scale, colors)
    bar = Colorbar(panel, image, orientation="horizontal", ticklocation="top", extend=extend)
    bar.set_label(f"mean of {title}")
    bar.outline.set_visible(False)
    panel.xaxis.set_label_coords(0.5, 2.6)
    plain_numbers(panel.xaxis)
    return figure
