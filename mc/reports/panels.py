"""Figures made of panels: each panel is drawn once, for the page and for the figure's own file.

A panel is a matplotlib figure with axes in a fixed place. Nothing is measured to lay it out: that
would take longer than to draw it. On the page as many panels stand in a row as there is room for;
a file has a fixed number of columns.
"""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import Formatter

from mc.reports.notation import short
from mc.reports.style import FONT_OF_TEXT, FONTS, GRID, PAPER, VARIABLES, any_glyph

_DPI: Final = 150
"""Dots per inch of a PNG file, and of a bitmap inside an SVG file."""

_LINE: Final = 0.165
_DIGIT: Final = 0.078
"""Inches of a line of text, and of a digit beside an axis."""

_TICK_GAP: Final = 0.06
"""Inches between an axis and its numbers."""

_GAP: Final = 0.1
"""Inches around the panels of a file."""

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


# --- making panels --------------------------------------------------------------------------------


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
    """Make panels of equal size, one for each title; `arrange` is to be called at the end.

    Parameters
    ----------
    titles : sequence of str
        May have several lines each.
    width, height : float
        Of the axes, inches.
    right, above : float
        Inches right of the axes, and between the axes and the title.
    x_label, y_label : str
        Of each.
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
    """Write the axes of panels, give all the same left margin, and make them a figure."""
    longest = max(len(text) for panel in panels for text in (*_ticks(panel.yaxis)[1], ""))
    beside = _TICK_GAP + _DIGIT * longest + 0.03
    labels = [panel.get_ylabel() for panel in panels]
    left = beside + _LINE * max(label.count("\n") + bool(label) for label in labels) + 0.08
    for panel in panels:
        figure: Any = panel.figure
        width, height = figure.get_size_inches()
        _, y0, inner_width, inner_height = panel.get_position().bounds
        figure.set_size_inches(left + width, height)
        share = width / (left + width)
        panel.set_position((1 - share, y0, inner_width * share, inner_height))
        write_axes(panel, beside, has_grid=has_grid)
    figures: list[Any] = [panel.figure for panel in panels]
    return Drawing(figures, [head for head in heads if head is not None], n_columns)


def write_axes(panel: Axes, beside: float = 0.0, *, has_grid: bool = True) -> None:
    """Write the numbers, labels and grid lines of both axes as plain texts and lines.

    matplotlib keeps five artists for each tick and measures them; that would take as long as all
    else in a panel.

    Parameters
    ----------
    panel : matplotlib.axes.Axes
        Complete but for this.
    beside : float
        Inches from the axes to the label on the left.
    has_grid : bool
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
    panel.text(0.5, -0.25 / height, panel.get_xlabel(), ha="center", va="top", **label_look)
    label_look |= {"rotation": 90, "ha": "right", "va": "center"}
    panel.text(-beside / width, 0.5, panel.get_ylabel(), **label_look)
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
    """Where the ticks of an axis are, as far as they can be seen, and what they are called."""
    low, high = sorted(axis.get_view_interval())
    places = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(places)
    seen = [(x, text) for x, text in zip(places, texts, strict=True) if low <= x <= high]
    return [x for x, _ in seen], [text for _, text in seen]


def legend(panels: Sequence[Axes], n_columns: int = 2) -> Figure | None:
    """One legend for all panels; what several of them have is shown as the last has it."""
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
    # matplotlib leaves what begins with an underscore out of a legend: a space without width
    return f"\u200b{label}" if label.startswith("_") else label


def plain_numbers(axis: Any) -> None:
    """Write the ticks of an axis without exponents."""
    axis.set_major_formatter(_Plain())


class _Plain(Formatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return short(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        return plain_texts(values)


def plain_texts(values: Sequence[float]) -> list[str]:
    """As many digits as tell equally spaced numbers apart; three of others."""
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


# --- drawing them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A head or a panel of a figure, drawn as SVG.

    Attributes
    ----------
    body : str
        Elements; their ids are those of no other piece.
    width, height : float
        Points.
    is_head : bool
    """

    body: str
    width: float
    height: float
    is_head: bool


def draw(drawing: Drawing, name: str) -> list[Piece]:
    """Draw all panels, each as SVG without date or version: the same figure, the same bytes.

    Parameters
    ----------
    drawing : Drawing
    name : str
        Begins the ids, which must be unique on a page.

    Returns
    -------
    list of Piece
        Heads first.
    """
    n_heads = len(drawing.heads)
    pieces = []
    for i, figure in enumerate([*drawing.heads, *drawing.panels]):
        file = io.StringIO()
        figure.dpi = _DPI
        canvas: Any = FigureCanvasSVG(figure)
        with any_glyph():
            canvas.print_svg(file, metadata={"Date": None, "Creator": None})
        width, height = (72 * inches for inches in figure.get_size_inches())
        body = _elements(file.getvalue(), f"{name}-{i}-")
        pieces.append(Piece(body, width, height, i < n_heads))
    return pieces


def _elements(svg: str, prefix: str) -> str:
    """What is drawn in a file of matplotlib, without what no reader needs."""
    body = svg[svg.index('<g id="figure_1">') : svg.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->\n?", "", body, flags=re.DOTALL)
    body = body.replace(FONT_OF_TEXT, "")
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(r"\n +", "\n", body)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", body)
    # a hundredth of a point is seen by nobody
    return re.sub(
        r' (?:d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), body
    )


def svg_for_page(pieces: Sequence[Piece]) -> str:
    """An element ``<svg>`` for each piece, in the colours of the page."""
    texts = [
        f'<svg class="{"head" if piece.is_head else "panel"}" '
        f'viewBox="0 0 {piece.width:.1f} {piece.height:.1f}" '
        f'style="--w: {piece.width * 4 / 3:.0f}px">{piece.body}</svg>'
        for piece in pieces
    ]
    text = "\n".join(texts)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    return text


def svg_file(pieces: Sequence[Piece], n_columns: int) -> str:
    """All pieces in one file."""
    sizes = [(piece.width, piece.height) for piece in pieces]
    (width, height), corners = _layout(sizes, sum(p.is_head for p in pieces), n_columns, 72 * _GAP)
    inner = "\n".join(
        f'<svg x="{x:.1f}" y="{y:.1f}" width="{piece.width:.1f}" height="{piece.height:.1f}" '
        f'overflow="visible">{piece.body}</svg>'
        for piece, (x, y) in zip(pieces, corners, strict=True)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width:.1f}pt" height="{height:.1f}pt" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'font-family="{FONTS}" stroke-linejoin="round">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{inner}\n</svg>\n'
    )


def png_file(drawing: Drawing) -> bytes:
    """The same as a bitmap."""
    images = []
    for figure in [*drawing.heads, *drawing.panels]:
        figure.dpi = _DPI
        canvas: Any = FigureCanvasAgg(figure)
        with any_glyph():
            canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba()).astype(np.float64))
    sizes = [(image.shape[1], image.shape[0]) for image in images]
    (width, height), corners = _layout(
        sizes, len(drawing.heads), drawing.n_columns, round(_DPI * _GAP)
    )
    page = np.full((height, width, 3), 255.0)
    for image, (x, y) in zip(images, corners, strict=True):
        ground = page[y : y + image.shape[0], x : x + image.shape[1]]
        opacity = image[..., 3:] / 255
        ground[...] = opacity * image[..., :3] + (1 - opacity) * ground
    file = io.BytesIO()
    metadata: Any = {"Software": None}
    imsave(file, page.round().astype(np.uint8), format="png", dpi=_DPI, metadata=metadata)
    return file.getvalue()


def _layout(
    sizes: Sequence[tuple[Any, Any]], n_heads: int, n_columns: int, gap: Any
) -> tuple[tuple[Any, Any], list[tuple[Any, Any]]]:
    """Size of a file and the upper left corner of each piece: heads, then panels row by row."""
    corners, y = [], gap
    rows = [[i] for i in range(n_heads)]
    rows += [
        list(range(first, min(first + n_columns, len(sizes))))
        for first in range(n_heads, len(sizes), n_columns)
    ]
    for row in rows:
        x = gap
        for i in row:
            corners.append((x, y))
            x += sizes[i][0] + gap
        y += max(sizes[i][1] for i in row) + gap
    width = max(x + size[0] + gap for (x, _), size in zip(corners, sizes, strict=True))
    return (width, y), corners
