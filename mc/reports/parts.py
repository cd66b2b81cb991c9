"""A figure on the page: its panels one by one, so that as many stand in a row as there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from matplotlib.backends.backend_agg import FigureCanvasAgg

from mc.reports.style import VARIABLES, any_sign

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK: Final = "http://www.w3.org/1999/xlink"
_MARGIN: Final = 3.0
"""Points around a panel."""


@dataclass(frozen=True)
class Part:
    """A piece of a figure.

    Attributes
    ----------
    gid : str
        Of its group in the SVG file.
    box : tuple of float
        Left, top, width, height in points, as the SVG file counts them.
    wide : bool
        Whether it belongs to all panels: a legend, a scale of colours.
    """

    gid: str
    box: tuple[float, float, float, float]
    wide: bool


def name_parts(figure: Figure) -> None:
    """Name the groups that `parts` is going to list; before the figure is written."""
    for i, piece in enumerate([*figure.legends, *figure.axes]):
        piece.set_gid(f"part_{i}")


def parts(figure: Figure) -> list[Part]:
    """Measure the panels and legends of a figure whose layout is done.

    All panels get the same margins, so that panels of equal size stay so.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        See `name_parts`.

    Returns
    -------
    list of Part
        Legends first.
    """
    figure.dpi = 72
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    height = float(figure.bbox.height)
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    scales = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    inner = [axes.get_window_extent(renderer) for axes in panels]
    with any_sign():
        outer = [axes.get_tightbbox(renderer) or axes.bbox for axes in panels]
        shared = [(piece, piece.get_tightbbox(renderer)) for piece in (*figure.legends, *scales)]
    left, right = (
        max(ends) + _MARGIN
        for ends in (
            [a.x0 - b.x0 for a, b in zip(inner, outer, strict=True)],
            [b.x1 - a.x1 for a, b in zip(inner, outer, strict=True)],
        )
    )
    low, top = (
        max(ends) + _MARGIN
        for ends in (
            [a.y0 - b.y0 for a, b in zip(inner, outer, strict=True)],
            [b.y1 - a.y1 for a, b in zip(inner, outer, strict=True)],
        )
    )
    found: list[tuple[Any, tuple[float, float, float, float], bool]] = [
        (piece, (box.x0, box.y0, box.x1, box.y1), True) for piece, box in shared if box is not None
    ]
    for panel, box in zip(panels, inner, strict=True):
        ends = (box.x0 - left, box.y0 - low, box.x1 + right, box.y1 + top)
        found.append((panel, ends, False))
    return [
        Part(str(piece.get_gid()), (x0, height - y1, x1 - x0, y1 - y0), wide)
        for piece, (x0, y0, x1, y1), wide in found
    ]


def inlined(svg: str, name: str, listed: Sequence[Part] = ()) -> str:
    """Make a page's part of an SVG file.

    Its colours become the page's, and its ids its own.

    Parameters
    ----------
    svg : str
        As `style.written` gives it.
    name : str
        Begins the ids, which must be unique on the page.
    listed : sequence of Part
        An element ``<svg>`` each, in this order; the whole figure if there are none.

    Returns
    -------
    str
        Elements ``<svg>``, without metadata and comments.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\n?", "", body, flags=re.DOTALL)
    kept = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body)) | {part.gid for part in listed}
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in kept else "", body)
    body = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", body)
    for color, variable in VARIABLES.items():
        body = body.replace(color, f"var({variable})")
    return _cut(body, name, listed) if listed else body


def _cut(svg: str, name: str, listed: Sequence[Part]) -> str:
    """Give each part an element of its own, with the clip paths that no part before it has."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(svg)
    groups = {group.get("id"): group for group in root.iter(f"{{{_SVG}}}g")}
    clips = {clip.get("id"): clip for clip in root.iter(f"{{{_SVG}}}clipPath")}
    texts = []
    for part in listed:
        group = groups[f"{name}-{part.gid}"]
        body = ElementTree.tostring(group, "unicode")
        used = [key for key in dict.fromkeys(re.findall(r"url\(#([^)]+)", body)) if key in clips]
        paths = "".join(ElementTree.tostring(clips.pop(key), "unicode") for key in used)
        inside = f"<defs>{paths}</defs>{body}" if paths else body
        inside = re.sub(r' xmlns(:xlink)?="[^"]*"', "", inside).replace("xlink:href", "href")
        box = " ".join(f"{x:.1f}" for x in part.box)
        width = round(part.box[2] * 4 / 3)
        texts.append(
            f'<svg class="{"wide" if part.wide else "panel"}" viewBox="{box}" '
            f'style="--w: {width}px">{inside}</svg>'
        )
    return "\n".join(texts)
