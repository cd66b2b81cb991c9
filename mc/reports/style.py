"""How all figures look: colours, fonts, and settings that no user's own can change."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import matplotlib as mpl

INK: Final = "#1f2328"
MUTED: Final = "#5f6873"
GRID: Final = "#d9dee4"
SHADE: Final = "#eceff3"
PAPER: Final = "#ffffff"
ON_DARK: Final = "#fefefe"
ON_LIGHT: Final = "#020202"
"""Text on a coloured ground, the same in light and dark mode: on any colour one of the two has a
contrast of at least 4.5."""

SERIES: Final = ("#0072b2", "#c4500a", "#3c9868", "#9f8ba3", "#68130c", "#5013a4", "#28234a")
"""The first two after Okabe and Ito (2008), darkened to be seen on white. Any two are at least 20
apart in CIE Lab, with deuteranopia, too (a test computes it), and colour never stands alone: each
comes with a marker and a dash."""

MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final[tuple[Any, ...]] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1.2)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    (0, (1, 1, 4, 1)),
)

VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SHADE: "--shade",
    PAPER: "--paper",
} | {color: f"--series-{i}" for i, color in enumerate(SERIES)}
"""Colours that the page changes in dark mode, and their names in its style sheet."""

_FONT: Final = "DejaVu Sans"
FONTS: Final = f"'{_FONT}', Verdana, sans-serif"
"""Fonts of an SVG file, the first that there is. matplotlib brings the first along, so the layout
is the same everywhere."""

FONT_OF_TEXT: Final = f" font-family: '{_FONT}';"
"""What matplotlib writes into each text; it is enough to say it once."""

_RC: Final[dict[str, Any]] = {
    "font.family": _FONT,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # or matplotlib measures everything to find a place
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "figure.frameon": False,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "text.parse_math": False,  # a name with dollar signs is a name
    "svg.fonttype": "none",  # text stays text: small, searchable, in the colours of the page
    "svg.hashsalt": "retrystorm",
}


def style() -> AbstractContextManager[None]:
    """Apply these settings inside a `with`, whatever the user has set."""
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, "backend": "agg", **_RC}
    return mpl.rc_context(settings)


@contextmanager
def any_glyph() -> Iterator[None]:
    """Ignore glyphs that the font lacks: a reader of the SVG sees them, the PNG has a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
