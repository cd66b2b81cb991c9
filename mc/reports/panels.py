"""Panels of figures: axes of a fixed size, one figure of matplotlib each.

Nothing is measured to lay a panel out: that would take longer than to draw it. `rendering` puts
the panels together.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter

from mc.reports.notation import short
from mc.reports.style import GRID

_LINE: Final = 0.165
_DIGIT: Final = 0.078
"""Inches of a line of text, and of a digit beside an axis."""

_TICK_GAP: Final = 0.06
"""Inches between an axis and its numbers."""

_MOST_LINES: Final = 4
_LONGEST_WORD: Final = 40
"""Of a label; longer words are cut."""


@dataclass(frozen=True)
class Drawing:
    """A figure that is ready to be drawn.

    Attributes
    ----------
    panels : sequence of matplotlib.figure.Figure
        All of one width.
    heads : sequence of matplotlib.figure.Figure
        What explains all panels, a legend or a scale of colours; they stand above them.
    n_columns : int
        Panels in a row of the file.
    """

    panels: Sequence[Figure]
    heads: Sequence[Figure] = ()
    n_columns: int = 1


def new_panels(
    titles: Sequence[str],
    width: float,
    height: float,
    *,
    right: float = 0.12,
    above: float = 0.0,
    x_label: str = "",
    y_label: str = "",
) -> list[Axes]:
    """Make panels of equal size, one for each title; `arrange` finishes them.

    Width and height of the axes, the space right of them and the space between them and the title
    are in inches. Titles may have several lines.
    """
    n_lines = max(title.count("\n") + bool(title) for title in titles)
    top, bottom = 0.1 + above + _LINE * n_lines, 0.45 if x_label else 0.25
    outer = width + right, height + top + bottom
    panels = []
    for title in titles:
        figure = Figure(outer)
        panel = figure.add_axes((0.0, bottom / outer[1], width / outer[0], height / outer[1]))
        panel.set_title(title, pad=5 + 72 * above)
        panel.set_xlabel(x_label)
        panel.set_ylabel(y_label)
        panels.append(panel)
    return panels


def arrange(
    panels: Sequence[Axes], n_columns: int, *heads: Figure | None, has_grid: bool = True
) -> Drawing:
    """Finish panels: write their axes, give all the same margins, and make them a figure."""
    longest = max(len(text) for panel in panels for text in (*_ticks(panel.yaxis)[1], ""))
    label_distance = _TICK_GAP + _DIGIT * longest + 0.03
    labels = [panel.get_ylabel() for panel in panels]
    left = label_distance + _LINE * max(label.count("\n") + bool(label) for label in labels) + 0.08
    n_breaks = max(text.count("\n") for panel in panels for text in (*_ticks(panel.xaxis)[1], ""))
    below = _LINE * n_breaks
    for panel in panels:
        figure: Any = panel.figure
        width, height = figure.get_size_inches()
        _, y0, inner_width, inner_height = panel.get_position().bounds
        figure.set_size_inches(left + width, below + height)
        x, y = width / (left + width), height / (below + height)
        panel.set_position((1 - x, 1 - y + y0 * y, inner_width * x, inner_height * y))
        write_axes(panel, label_distance, 0.25 + below, has_grid=has_grid)
    figures: list[Any] = [panel.figure for panel in panels]
    return Drawing(figures, [head for head in heads if head is not None], n_columns)


def write_axes(panel: Axes, label_distance: float, below: float, *, has_grid: bool) -> None:
    """Write the numbers, labels and grid lines of both axes as plain texts and lines.

    Left to matplotlib, which keeps five artists for each tick and measures them, this would take
    as long as everything else in a panel. The label of the vertical axis is `label_distance`
    inches left of it, that of the other as far as `below` says.
    """
    figure: Any = panel.figure
    width, height = panel.get_position().size * figure.get_size_inches()
    x_places, x_texts = _ticks(panel.xaxis)
    y_places, y_texts = _ticks(panel.yaxis)
    x_scale, y_scale = panel.get_xaxis_transform(), panel.get_yaxis_transform()
    x_look: Any = {"transform": x_scale, "ha": "center", "va": "top", "fontsize": 8.5}
    for x, text in zip(x_places, x_texts, strict=True):
        panel.text(x, -_TICK_GAP / height, text, **x_look)
    y_look: Any = {"transform": y_scale, "ha": "right", "va": "center_baseline", "fontsize": 8.5}
    for y, text in zip(y_places, y_texts, strict=True):
        panel.text(-_TICK_GAP / width, y, text, **y_look)
    label_look: Any = {"transform": panel.transAxes, "multialignment": "center"}
    panel.text(0.5, -below / height, panel.get_xlabel(), ha="center", va="top", **label_look)
    label_look |= {"rotation": 90, "ha": "right", "va": "center"}
    panel.text(-label_distance / width, 0.5, panel.get_ylabel(), **label_look)
    if has_grid:
        grid: Any = {"colors": GRID, "linewidths": 0.6, "zorder": 0.5}
        for lines, scale in (
            ([[(x, 0), (x, 1)] for x in x_places], x_scale),
            ([[(0, y), (1, y)] for y in y_places], y_scale),
        ):
            panel.add_collection(LineCollection(lines, transform=scale, **grid), autolim=False)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_visible(False)


def _ticks(axis: Any) -> tuple[list[float], list[str]]:
    """Positions and texts of the ticks that can be seen."""
    low, high = sorted(axis.get_view_interval())
    places = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(places)
    seen = [(x, text) for x, text in zip(places, texts, strict=True) if low <= x <= high]
    return [x for x, _ in seen], [text for _, text in seen]


def legend(panels: Sequence[Axes], n_columns: int = 2) -> Figure | None:
    """Make one legend for all panels; what several of them have looks as in the last of them."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    if not handles:
        return None
    n_rows = -(-len(handles) // n_columns)
    n_lines = n_rows * max(label.count("\n") + 1 for label in handles)
    longest = max(len(line) for label in handles for line in label.split("\n"))
    figure = Figure((min(n_columns, len(handles)) * (0.55 + 0.078 * longest), 0.1 + 0.18 * n_lines))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        borderpad=0.3,
        ncols=n_columns,
    )
    return figure


def wrapped(text: str, width: int) -> str:
    """Break a label into lines, no more than fit into a figure; the tables have all of it."""
    is_long = max(map(len, text.split()), default=0) > _LONGEST_WORD
    lines = textwrap.wrap(
        text, width, break_long_words=is_long, max_lines=_MOST_LINES, placeholder=" …"
    )
    label = "\n".join(lines) or text
    # a space without width: matplotlib leaves labels that begin with an underscore out of legends
    return f"\u200b{label}" if label.startswith("_") else label


def plain_numbers(axis: Any) -> None:
    """Write the ticks of an axis without exponents."""
    axis.set_major_formatter(_Plain())


class _Plain(Formatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        """Write a single number."""
        return short(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Write the numbers of an axis."""
        return plain_texts(values)


def plain_texts(values: Sequence[float]) -> list[str]:
    """Write equally spaced numbers with as many digits as tell them apart, others with three."""
    ticks = sorted(set(values))
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    if not steps or max(steps) > 3 * min(steps):
        return [short(x) for x in values]
    for decimals in range(9):
        if all(abs(round(tick, decimals) - tick) < min(steps) / 100 for tick in ticks):
            break
    texts = [f"{x:,.{decimals}f}" for x in values]
    return [t.removeprefix("-") if float(t.replace(",", "")) == 0 else t for t in texts]


def not_below_zero(axis: Any) -> None:
    """Let an axis begin at 0 where it would begin below it: nothing that is counted is less."""
    low, high = axis.get_view_interval()
    if low < 0 < high:
        axis.set_view_interval(0, high, ignore=True)
