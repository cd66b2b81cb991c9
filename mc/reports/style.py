"""How all figures look, and how they are written: the same figure, the same bytes."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#1f2328"
MUTED: Final = "#5f6873"
GRID: Final = "#d9dee4"
SHADE: Final = "#eceff3"
PAPER: Final = "#ffffff"
ON_DARK: Final = "#fefefe"
ON_LIGHT: Final = "#020202"
"""Text on a coloured ground, the same in light and dark mode; of any ground one of them differs
by a ratio of 4.5."""

SERIES: Final = ("#0072b2", "#c4500a", "#00795a", "#a8477f", "#7d6200", "#4b4f9e")
"""After Okabe and Ito (2008), darkened so that a line is seen on white; told apart by all common
kinds of colour vision, and never alone: each comes with a marker and a line style."""

MARKERS: Final = ("o", "s", "^", "D", "v", "P")
LINES: Final[tuple[Any, ...]] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
)

VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SHADE: "--shade",
    PAPER: "--paper",
} | {color: f"--series-{i}" for i, color in enumerate(SERIES)}
"""Colours that the page sets anew in dark mode."""

WIDTH: Final = 7.6
"""Inches of a usual figure: text of 9 points is then 12 pixels high on the page."""

_RC: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.parse_math": False,  # a name with dollar signs is a name
    "svg.fonttype": "none",  # text stays text: small, searchable, and follows the page's mode
    "svg.hashsalt": "retrystorm",
}


_MOST_LINES: Final = 4
_LONGEST_WORD: Final = 40
"""Of a label; longer words are cut."""


def style() -> AbstractContextManager[None]:
    """Settings of all figures for the time of a `with`, whatever the user has set."""
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, "backend": "agg", **_RC}
    return mpl.rc_context(settings)


def new_figure(width: float, height: float) -> Figure:
    """Make a figure that draws itself, without a window; inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def any_sign() -> Iterator[None]:
    """Say nothing of a sign that the font lacks: the SVG has it all the same, the PNG a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def written(figure: Figure) -> tuple[str, bytes]:
    """Write a figure as SVG and as PNG (150 dots per inch), without date or version.

    `savefig` would draw each of them once more beforehand.
    """
    svg, png = io.StringIO(), io.BytesIO()
    with any_sign():
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.dpi = 72
        to_svg: Any = FigureCanvasSVG(figure)
        to_svg.print_svg(svg, metadata={"Date": None, "Creator": None})
        figure.dpi = 150
        to_png: Any = FigureCanvasAgg(figure)
        to_png.print_png(png, metadata={"Software": None})
    # a hundredth of a point is seen by nobody
    text = re.sub(r' d="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), svg.getvalue())
    return text, png.getvalue()


def wrapped(text: str, width: int) -> str:
    """Break a label into lines, no more than fit beside a figure; the tables have all of it."""
    is_long = max(map(len, text.split()), default=0) > _LONGEST_WORD
    lines = textwrap.wrap(
        text, width, break_long_words=is_long, max_lines=_MOST_LINES, placeholder=" …"
    )
    label = "\n".join(lines) or text
    # matplotlib leaves what begins with an underscore out of a legend: a space without width
    return f"\u200b{label}" if label.startswith("_") else label


def short(value: float) -> str:
    """Write a number with up to three digits after those of a thousand."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def plain_numbers(axis: Any) -> None:
    """Write the ticks of an axis without exponents."""
    axis.set_major_formatter(_Plain())


class _Plain(Formatter):
    """Digits as many as tell the ticks of a linear axis apart; three on another."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Write a tick."""
        axis: Any = self.axis
        ticks = sorted(set(axis.get_majorticklocs()))
        steps = [b - a for a, b in itertools.pairwise(ticks)]
        if not steps or max(steps) > 3 * min(steps):
            return short(x)
        for decimals in range(9):
            if all(abs(round(tick, decimals) - tick) < min(steps) / 100 for tick in ticks):
                break
        text = f"{x:,.{decimals}f}"
        return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def not_below_zero(axis: Any) -> None:
    """Let an axis begin at 0 where it would begin below it: of what is counted nothing is less."""
    low, high = axis.get_view_interval()
    if low < 0 < high:
        axis.set_view_interval(0, high, ignore=True)


def hide_unused(axes: list[Axes], n_used: int) -> None:
    """Take away panels of a grid that hold nothing."""
    for panel in axes[n_used:]:
        panel.remove()
