"""Claims as a forest plot: in which share of replications each holds, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mc.reports.notation import short
from mc.reports.panels import Drawing, legend, wrapped, write_axes
from mc.reports.style import INK, MUTED, SERIES, SHADE
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CLAIMS: Final = 40
"""Claims in one figure."""

_VERDICTS: Final = {
    HOLDS: (SERIES[2], "o"),
    FAILS: (SERIES[1], "X"),
    DEPENDS: (SERIES[0], "D"),
    OPEN: (MUTED, "o"),
    None: (MUTED, "."),
}

_LONGEST_LINE: Final = 40
"""Characters of the texts at both sides."""

_LINE: Final = 0.165
_LEFT, _SHARES, _BETWEEN, _DIFFERENCES, _RIGHT = 2.75, 2.2, 0.2, 2.4, 2.75
"""Inches, from the left: texts, panel, space, panel, texts."""

_LINEAR: Final = 5.0
"""Standard errors up to which the axis of differences is linear."""


def draw_claims(claims: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw a line for each claim, see `View.claims`; at most `MOST_CLAIMS`.

    Left the shares with their intervals; right the mean difference of the weakest link in standard
    errors, and in words in its own unit.
    """
    texts = [wrapped(claim["text"], _LONGEST_LINE) for claim in claims]
    means = [wrapped(claim["difference"], _LONGEST_LINE) for claim in claims]
    heights = [
        max(2, *(text.count("\n") + 1 for text in pair)) for pair in zip(texts, means, strict=True)
    ]
    ends = list(accumulate(heights))
    y = [end - height / 2 for end, height in zip(ends, heights, strict=True)]
    shares, differences = _two_panels(ends[-1] + 0.6)
    for verdict in dict.fromkeys(claim["verdict"] for claim in claims):
        which = [i for i, claim in enumerate(claims) if claim["verdict"] == verdict]
        some = [claims[i] for i in which], [y[i] for i in which]
        _draw_shares(shares, *some, *_VERDICTS[verdict])
        _draw_differences(differences, *some, *_VERDICTS[verdict])
    _label_shares(shares)
    _label_differences(differences, [_in_errors(claim) or 0.0 for claim in claims])
    _write(shares, -0.02, y, texts, ha="right", fontsize=8.5)
    _write(differences, 1.02, y, means, fontsize=8)
    for panel in (shares, differences):
        panel.set_yticks([])
        panel.set_ylim(ends[-1] + 0.3, -0.3)
        panel.spines["left"].set_visible(False)
        stripes = [
            [(0, end - height), (1, end - height), (1, end), (0, end)]
            for end, height in list(zip(ends, heights, strict=True))[::2]
        ]
        look: Any = {"transform": panel.get_yaxis_transform(), "alpha": 0.6, "zorder": 0}
        panel.add_collection(PolyCollection(stripes, facecolors=SHADE, **look), autolim=False)
        write_axes(panel)
    figure: Any = shares.figure
    head = legend([shares], 4)
    return Drawing([figure], [head] if head else [])


def _two_panels(n_lines: float) -> tuple[Axes, Axes]:
    """Two axes beside one another, as high as so many lines of text."""
    width = _LEFT + _SHARES + _BETWEEN + _DIFFERENCES + _RIGHT
    bottom, inner, top = 0.45, _LINE * n_lines, 0.35
    height = bottom + inner + top
    figure = Figure((width, height))
    shares, differences = (
        figure.add_axes((left / width, bottom / height, share / width, inner / height))
        for left, share in ((_LEFT, _SHARES), (_LEFT + _SHARES + _BETWEEN, _DIFFERENCES))
    )
    return shares, differences


def _draw_shares(
    panel: Axes, claims: Sequence[Mapping[str, Any]], y: Sequence[float], color: str, marker: str
) -> None:
    """Shares of replications with their intervals, for claims of one verdict."""
    known = [(claim, at) for claim, at in zip(claims, y, strict=True) if claim["share"] is not None]
    sure = [(claim, at) for claim, at in known if claim["share_low"] is not None]
    for kind, width in (("share_together", 1.0), ("share", 2.6)):
        low, high = ([100 * c[f"{kind}_{end}"] for c, _ in sure] for end in ("low", "high"))
        panel.hlines([at for _, at in sure], low, high, color=color, linewidth=width)
    panel.plot(
        [100 * claim["share"] for claim, _ in known],
        [at for _, at in known],
        marker=marker,
        color=color,
        markersize=6,
        linestyle="none",
        label=claims[0]["verdict"] or "no verdict",
        clip_on=False,
        zorder=3,
    )


def _label_shares(panel: Axes) -> None:
    for percent in (5, 95):  # below the first a claim fails, above the second it holds
        panel.axvline(percent, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    panel.set_xlim(-2, 102)
    panel.set_xticks([0, 25, 50, 75, 100])
    panel.set_xlabel("holds, % of replications")


def _draw_differences(
    panel: Axes, claims: Sequence[Mapping[str, Any]], y: Sequence[float], color: str, marker: str
) -> None:
    """Mean differences in units of their standard errors, for claims of one verdict."""
    for claim, at in zip(claims, y, strict=True):
        if claim["ci_low"] is not None and claim["mcse"]:
            ends = claim["ci_low"] / claim["mcse"], claim["ci_high"] / claim["mcse"]
            panel.hlines(at, *ends, color=color, linewidth=2.6)
    points = [(_in_errors(claim), at) for claim, at in zip(claims, y, strict=True)]
    known = [(x, at) for x, at in points if x is not None]
    panel.plot(
        [x for x, _ in known],
        [at for _, at in known],
        marker=marker,
        color=color,
        markersize=6,
        linestyle="none",
    )


def _write(panel: Axes, x: float, y: Sequence[float], texts: Sequence[str], **look: Any) -> None:
    """Texts beside a panel: half the price of ticks with labels."""
    for at, text in zip(y, texts, strict=True):
        panel.text(x, at, text, transform=panel.get_yaxis_transform(), va="center", **look)


def _label_differences(panel: Axes, errors: Sequence[float]) -> None:
    reach = max(2 * _LINEAR, 4 * max(map(abs, errors)))
    panel.axvspan(-1.96, 1.96, color=SHADE, linewidth=0, zorder=0)
    panel.axvline(0, color=INK, linewidth=0.8)
    panel.set_xscale("symlog", linthresh=_LINEAR, linscale=1.0)
    panel.set_xlim(-reach, reach)
    tens = [10**k for k in range(1, 7) if 10**k <= reach]
    kept = tens[:: max(1, math.ceil(len(tens) / 2))]
    panel.set_xticks([*(-x for x in reversed(kept)), 0, *kept])
    panel.minorticks_off()
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))
    panel.set_xlabel("left − right, in standard errors")
    head = "mean of left − right,\nor of left alone"
    panel.text(1.02, 1, head, transform=panel.transAxes, va="bottom", fontsize=8, weight="bold")


def _in_errors(claim: Mapping[str, Any]) -> float | None:
    """The mean difference over its standard error; 0 where nothing ever differs."""
    if claim["mean_difference"] is None or claim["mcse"] is None:
        return None
    if claim["mcse"] == 0:
        return 0.0 if claim["mean_difference"] == 0 else None
    return float(claim["mean_difference"] / claim["mcse"])
