"""Drawings as SVG and PNG: every panel is drawn once, for the page and for the figure's own file.

On the page as many panels stand in a row as there is room for; a file has a fixed number of
columns.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.image import imsave

from mc.reports.panels import Drawing
from mc.reports.style import FONT_OF_TEXT, FONTS, PAPER, VARIABLES, any_glyph

_DPI: Final = 150
"""Dots per inch of a PNG file, and of a bitmap inside an SVG file."""

_GAP: Final = 0.1
"""Inches around the panels of a file."""


@dataclass(frozen=True)
class Piece:
    """A head or a panel of a figure: SVG elements with ids of their own; size in points."""

    body: str
    width: float
    height: float
    is_head: bool


def draw(drawing: Drawing, name: str) -> list[Piece]:
    """Draw each panel as SVG, heads first: the same figure, the same bytes.

    There is no date and no version in it. Its ids begin with the name, which is unique on the page.
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
    body = re.sub(r"\n +", "\n", body)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))

    def shortened(tag: re.Match[str]) -> str:
        text = tag[0].replace(FONT_OF_TEXT, "").replace(" \n", "")
        text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
        text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # a hundredth of a point is seen by nobody
        name = re.search(r' id="([^"]+)"', text)
        if name:
            own = f' id="{prefix}{name[1]}"' if name[1] in used else ""
            text = text.replace(name[0], own)
        return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)

    return re.sub(r"<[^>]+>", shortened, body)  # in tags only: a label may look like one


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
        text = text.replace(f": {color}", f": var({variable})")
    return text


def svg_file(pieces: Sequence[Piece], n_columns: int) -> str:
    """Make one file of all pieces."""
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
    """Draw a figure as a bitmap."""
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
