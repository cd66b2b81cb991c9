"""Claims as a forest plot: in which share of replications each holds, and by how much."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from matplotlib.ticker import FuncFormatter

from mc.reports.style import INK, MUTED, SERIES, SHADE, WIDTH, new_figure, short, wrapped
from mc.reports.view import View
from mc.reports.words import link
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLAIMS: Final = 40
"""Claims in one figure."""

_VERDICTS: Final = {
    HOLDS: (SERIES[2], "o"),
    FAILS: (SERIES[1], "X"),
    DEPENDS: (SERIES[0], "D"),
    OPEN: (MUTED, "o"),
    None: (MUTED, "."),
}

_CHARACTERS: Final = 40
_LINEAR: Final = 5.0
"""Standard errors up to which the axis of differences is linear."""


def draw_claims(view: View, claims: pl.DataFrame) -> Figure:
    """Draw a line for each claim of one scenario.

    Parameters
    ----------
    view : View
    claims : polars.DataFrame
        Some lines of the claims' table; the first `MOST_CLAIMS` are drawn.

    Returns
    -------
    matplotlib.figure.Figure
        Left the shares with their intervals; right the mean difference of the weakest link in
        standard errors, and in words in its own unit.
    """
    lines = claims.head(MOST_CLAIMS).to_dicts()
    texts = [wrapped(line["text"], _CHARACTERS) for line in lines]
    means = [wrapped(link(view, line)[1], _CHARACTERS) for line in lines]
    heights = [
        max(2, *(x.count("\n") + 1 for x in pair)) for pair in zip(texts, means, strict=True)
    ]
    figure = new_figure(WIDTH + 2.8, 1.15 + 0.165 * sum(heights))
    shares, differences = figure.subplots(1, 2, sharey=True, width_ratios=[1, 1.1])
    places, at = [], 0.0
    for height in heights:
        places.append(at + height / 2)
        at += height
    _shares(shares, lines, places)
    _differences(differences, lines, places, means)
    shares.set_yticks(places, texts)
    shares.set_ylim(at + 0.3, -0.3)
    for panel in (shares, differences):
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.grid(False, axis="y")
        for place, height in list(zip(places, heights, strict=True))[::2]:
            panel.axhspan(
                place - height / 2,
                place + height / 2,
                color=SHADE,
                alpha=0.6,
                linewidth=0,
                zorder=0,
            )
    handles, names = shares.get_legend_handles_labels()
    found = dict(zip(names, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside upper center", ncols=4)
    return figure


def _shares(panel: Axes, lines: list[dict[str, Any]], places: list[float]) -> None:
    """Share of replications with its interval, a sign for each verdict."""
    for line, place in zip(lines, places, strict=True):
        if line["share"] is None:
            continue
        color, marker = _VERDICTS[line["verdict"]]
        if line["share_low"] is not None:
            for kind, width in (("share_together", 1.0), ("share", 2.6)):
                ends = [100 * line[f"{kind}_low"], 100 * line[f"{kind}_high"]]
                panel.plot(
                    ends, [place, place], color=color, linewidth=width, solid_capstyle="butt"
                )
        panel.plot(
            100 * line["share"],
            place,
            marker=marker,
            color=color,
            markersize=6,
            linestyle="none",
            label=line["verdict"] or "no verdict",
            clip_on=False,
            zorder=3,
        )
    for percent in (5, 95):  # where a claim begins to fail, and to hold
        panel.axvline(percent, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    panel.set_xlim(-2, 102)
    panel.set_xticks([0, 25, 50, 75, 100])
    panel.set_xlabel("holds, % of replications")


def _differences(
    panel: Axes, lines: list[dict[str, Any]], places: list[float], means: list[str]
) -> None:
    """Mean difference in units of its standard error; its own unit stands beside it."""
    errors = [_in_errors(line) for line in lines]
    most = max([abs(x) for x in errors if x is not None], default=0.0)
    reach = max(2 * _LINEAR, 4 * most)
    panel.axvspan(-1.96, 1.96, color=SHADE, linewidth=0, zorder=0)
    panel.axvline(0, color=INK, linewidth=0.8)
    for line, place, x, text in zip(lines, places, errors, means, strict=True):
        color, marker = _VERDICTS[line["verdict"]]
        if x is not None:
            if line["ci_low"] is not None and line["mcse"]:
                ends = [line["ci_low"] / line["mcse"], line["ci_high"] / line["mcse"]]
                panel.plot(ends, [place, place], color=color, linewidth=2.6)
            panel.plot(x, place, marker=marker, color=color, markersize=6, linestyle="none")
        panel.annotate(
            text, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8
        )
    panel.set_xscale("symlog", linthresh=_LINEAR, linscale=1.0)
    panel.set_xlim(-reach, reach)
    tens = [10**k for k in range(1, 7) if 10**k <= reach]
    kept = tens[:: max(1, math.ceil(len(tens) / 2))]
    panel.set_xticks([*(-x for x in reversed(kept)), 0, *kept])
    panel.minorticks_off()
    panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))
    panel.set_xlabel("left − right, in standard errors")
    panel.annotate(
        "mean of left − right,\nor of left alone",
        (1.02, 1),
        xycoords="axes fraction",
        va="bottom",
        fontsize=8,
        fontweight="bold",
    )


def _in_errors(line: dict[str, Any]) -> float | None:
    """The mean difference over its standard error; 0 where nothing ever differs."""
    if line["mean_difference"] is None or line["mcse"] is None:
        return None
    if line["mcse"] == 0:
        return 0.0 if line["mean_difference"] == 0 else None
    return float(line["mean_difference"] / line["mcse"])
