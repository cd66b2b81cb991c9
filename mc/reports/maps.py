"""Heat maps: a metric over two axes of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, Normalize, to_rgb
from matplotlib.patches import Rectangle

from mc.model import METRICS
from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, new_panels, wrapped
from mc.reports.scenario import Scenario, spread
from mc.reports.style import ON_DARK, ON_LIGHT, SERIES
from mc.reports.view import Axis, View
from mc.statistics.best import YES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MAPS: Final = 8
"""Maps of a metric in the scenario that matters most; in others one for each policy."""

MOST_WRITTEN: Final = 8
"""Columns of a map whose numbers are written; those of more are read from the colours."""

_LETTERS: Final = 13.0
"""Letters of a value in an inch."""

_WIDEST: Final = 0.7
"""Inches of a column: it is wider than others where a word of its values is long."""

_MOST_FIELDS: Final = 150
"""Fields above which a map becomes a bitmap: a browser would be slow."""


@dataclass(frozen=True)
class Maps:
    """What is drawn of one metric in one scenario.

    Attributes
    ----------
    axes : list of Axis
        Those that change the metric, the longest first: columns, rows, and from map to map. Of any
        further one the first value is drawn.
    idle : list of Axis
        Those that change nothing.
    fields : dict
        Cells by policy and the values of the first three of `axes`.
    constant : dict of tuple to list of int
        Maps that would be one colour: their policies and values of the third axis if there is one,
        with their cells.
    drawn : list of tuple
        The same of maps that are drawn.
    n_possible : int
        How many maps there are that are not of one colour.
    """

    axes: list[Axis]
    idle: list[Axis]
    fields: dict[tuple[Any, ...], int]
    constant: dict[tuple[Any, ...], list[int]]
    drawn: list[tuple[Any, ...]]
    n_possible: int

    @property
    def is_written(self) -> bool:
        """Whether the fields hold numbers."""
        return len(self.axes[0].values) <= MOST_WRITTEN


def plan_maps(scenario: Scenario, metric: str) -> Maps:
    """Choose which maps are drawn; of many values of the third axis a few, evenly spread.

    With fewer than two axes that change something there is no map.
    """
    view = scenario.view
    axes = [axis for axis in view.axes if _matters(scenario, metric, axis)]
    idle = [axis for axis in view.axes if axis not in axes]
    fixed = {axis.name: axis.values[0] for axis in (*axes[3:], *idle)}
    fields = {
        (line["policy"], *(line[axis.name] for axis in axes[:3])): cell
        for cell in scenario.cells
        for line in [view.lines[cell]]
        if all(line[name] == value for name, value in fixed.items())
    }
    groups: dict[tuple[Any, ...], list[int]] = {}
    for (policy, _, _, *third), cell in fields.items() if len(axes) > 1 else ():
        groups.setdefault((policy, *third), []).append(cell)
    constant = {
        key: cells
        for key, cells in groups.items()
        if len({_numbers(view, cell, metric) for cell in cells}) == 1
    }
    possible = [key for key in groups if key not in constant]
    by_policy = {policy: [k for k in possible if k[0] == policy] for policy, *_ in possible}
    is_main = scenario is view.stormy[0]
    most = max(1, _MOST_MAPS // max(1, len(by_policy))) if is_main else 1
    drawn = [key for keys in by_policy.values() for key in spread(keys, most)]
    return Maps(axes, idle, fields, constant, drawn, len(possible))


def name_of(view: View, maps: Maps, key: tuple[Any, ...]) -> str:
    """Call a map by its policy and the value of its third axis."""
    policy, *third = key
    parts = [policy] if len(view.policies) > 1 else []
    parts += [f"{a.label} {a.text(v)}" for a, v in zip(maps.axes[2:3], third, strict=True)]
    return ", ".join(parts)


def _numbers(view: View, cell: int, metric: str) -> tuple[Any, Any]:
    """By which two cells are told apart."""
    return view.mean(cell, metric), view.estimate(cell, metric)["sd"]


def _matters(scenario: Scenario, metric: str, axis: Axis) -> bool:
    """Whether the metric differs between some cells that differ in this axis alone."""
    view, seen = scenario.view, dict[tuple[Any, ...], tuple[Any, Any]]()
    others = ["policy", *(other.name for other in view.axes if other is not axis)]
    for cell in scenario.cells:
        place = tuple(view.lines[cell][name] for name in others)
        if seen.setdefault(place, _numbers(view, cell, metric)) != _numbers(view, cell, metric):
            return True
    return False


# --- drawing --------------------------------------------------------------------------------------


def draw_maps(scenario: Scenario, maps: Maps, metric: str) -> Drawing:
    """Draw maps of one metric over two axes, one for each policy and value of a third axis.

    Each has its own scale, at its right side; of shares of runs it is 0 to 100 %. Cells that are
    surely on the frontier are outlined.
    """
    view, x, y = scenario.view, *maps.axes[:2]
    n_x, n_y = len(x.values), len(y.values)
    width, height = (min(0.5, 2.9 / n_x), 0.3) if maps.is_written else (2.9 / n_x, 1.8 / n_y)
    if maps.is_written:
        words = [word for _, text in _ticks(x, is_written=True) for word in text.split()]
        width = max(width, min(_WIDEST, max(map(len, words)) / _LETTERS + 0.06))
    across = max(1.6, width * n_x)
    letters = int(11 * (across + 0.6))
    titles = [wrapped(name_of(view, maps, key), letters) for key in maps.drawn]
    panels = new_panels(
        titles,
        across,
        max(0.9, height * min(n_y, 14)),
        right=0.7,
        x_label=x.title,
        y_label=y.title,
    )
    colors = mpl.colormaps["cividis"]
    for (policy, *third), panel in zip(maps.drawn, panels, strict=True):
        cells = [[maps.fields.get((policy, a, b, *third)) for a in x.values] for b in y.values]
        _draw_map(scenario, panel, metric, cells, colors)
        _label_ticks(panel, x, y, maps.is_written, across)
    return arrange(panels, min(len(panels), 3), has_grid=False)


def _draw_map(
    scenario: Scenario, panel: Axes, metric: str, cells: list[list[int | None]], colors: Colormap
) -> None:
    """One map; a field without a cell, or without a value, stays empty."""
    view = scenario.view
    means = np.array(
        [[None if cell is None else view.mean(cell, metric) for cell in row] for row in cells],
        np.float64,
    )
    n_rows, n_columns = means.shape
    known = means[~np.isnan(means)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if METRICS[metric].is_indicator:
        low, high = 0.0, view.factor(metric)  # from never to always
    scale = Normalize(low, high if high > low else low + 1)
    look: Any = {"norm": scale, "cmap": colors, "edgecolor": "face", "linewidth": 0.3}  # no seams
    panel.pcolormesh(
        np.arange(n_columns + 1) - 0.5,
        np.arange(n_rows + 1) - 0.5,
        np.ma.masked_invalid(means),
        rasterized=means.size > _MOST_FIELDS,
        **look,
    )
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    _draw_scale(panel, scale, look)
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if cell is None or np.isnan(means[i, j]):
                continue
            if scenario.on_frontier.get(cell) == YES:
                edge: Any = {"fill": False, "edgecolor": SERIES[1], "linewidth": 2.2, "zorder": 3}
                panel.add_patch(Rectangle((j - 0.44, i - 0.44), 0.88, 0.88, **edge))
            if n_columns <= MOST_WRITTEN:
                color = text_color(colors(scale(means[i, j])))
                text = short(means[i, j])
                panel.text(j, i, text, ha="center", va="center", fontsize=7.5, color=color)


def _draw_scale(panel: Axes, scale: Normalize, look: dict[str, Any]) -> None:
    """The scale of colours, right of its map."""
    low, high = scale.vmin or 0.0, scale.vmax or 0.0
    numbers = np.linspace(low, high, 25)
    # fixed inches whatever the width of the map
    figure: Any = panel.figure
    inch = 1 / (panel.get_position().width * figure.get_size_inches()[0])
    edges = np.array([1 + 0.08 * inch, 1 + 0.18 * inch])
    beside: Any = {"transform": panel.transAxes, "clip_on": False}
    panel.pcolormesh(edges, np.linspace(0, 1, 26), numbers[:, np.newaxis], **beside, **look)
    for at in (0.0, 0.5, 1.0):
        text = short(low + at * (high - low))
        panel.text(edges[1] + 0.05 * inch, at, text, va="center", fontsize=7.5, **beside)


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


def _ticks(axis: Axis, is_written: bool) -> list[tuple[int, str]]:
    """Which of the values of an axis are written, and how."""
    step = max(1, -(-len(axis.values) // (14 if is_written else 7)))
    is_number = not axis.is_in_units
    return [
        (i, f"{v:.4g}" if is_number and isinstance(v, float) else axis.text(v))
        for i, v in enumerate(axis.values)
        if i % step == 0
    ]


def _label_ticks(panel: Axes, x: Axis, y: Axis, is_written: bool, across: float) -> None:
    """Write the values of both axes; those below a map, `across` inches wide, in several lines."""
    below, beside = _ticks(x, is_written), _ticks(y, is_written)
    letters = int(_LETTERS * across / len(below))
    panel.set_xticks([i for i, _ in below], [_broken(text, letters) for _, text in below])
    panel.set_yticks(*zip(*beside, strict=True))


def _broken(text: str, letters: int) -> str:
    """Break a text that is longer: after commas, and where that is not enough between words."""
    parts = [text] if len(text) <= letters else text.split(", ")
    return ",\n".join(wrapped(part, letters) for part in parts)
