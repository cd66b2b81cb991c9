"""Drops against calls: what fewer drops cost, and which cells are on the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from matplotlib.ticker import AutoLocator

from mc.reports.notation import NAMES, metric_title
from mc.reports.panels import (
    Drawing,
    arrange,
    legend,
    new_panels,
    not_below_zero,
    plain_numbers,
    plain_texts,
    wrapped,
)
from mc.reports.style import DASHES, INK, MARKERS, PAPER, SERIES
from mc.reports.sweeps import MOST_MARKS
from mc.reports.view import View
from mc.statistics.best import NO, YES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CROWD: Final = 300
"""Cells of a policy above which no intervals are drawn: they would hide one another."""


def draw_tradeoff(view: View, scenarios: Sequence[str]) -> Drawing:
    """Draw drops against calls, a panel for each scenario; nearer to the corner is better.

    Cells that another one surely beats are hollow; those surely on the frontier are joined.
    """
    titles = [wrapped(scenario, 40) if len(view.scenarios) > 1 else "" for scenario in scenarios]
    above = 0.4 if any(map(view.usual_rate, scenarios)) else 0.0
    labels: Any = {"x_label": metric_title("calls"), "y_label": metric_title("dropped")}
    panels = new_panels(titles, 2.9, 2.0, above=above, **labels)
    for scenario, panel in zip(scenarios, panels, strict=True):
        strain = view.strain(scenario)
        cells = view.known(view.in_scenario(scenario), strain)
        for i, policy in enumerate(view.policies):
            some = [cell for cell in cells if view.lines[cell]["policy"] == policy]
            _draw_policy(view, panel, scenario, some, policy, i % len(SERIES))
        _draw_frontier(view, panel, scenario, cells)
        _write_letters(view, panel, scenario)
        panel.set_xlabel(metric_title(strain))
        panel.margins(0.12)
        if not any(view.mean(cell, "dropped") for cell in cells):
            panel.set_ylim(-0.5, 5)
        for axis in (panel.xaxis, panel.yaxis):
            not_below_zero(axis)
            plain_numbers(axis)
        _write_times_usual(view, panel, scenario)
    return arrange(panels, min(2, len(panels)), legend(panels))


def _draw_policy(
    view: View, panel: Axes, scenario: str, cells: Sequence[int], policy: str, i: int
) -> None:
    """The cells of a policy, those that are surely beaten apart from the others."""
    frontier = view.frontier(scenario)
    beaten = {c for c in cells if frontier is not None and frontier.on[c] == NO}
    is_few, is_crowd = len(cells) < 10, len(cells) > _CROWD
    look: dict[str, Any] = {
        "color": SERIES[i],
        "marker": MARKERS[i],
        "markersize": 6 if is_few else 2 if is_crowd else 3.5,
        "linestyle": "none",
        "elinewidth": 1.0,
        "capsize": 2.5 if is_few else 0,
        "clip_on": False,  # a point on the axis is whole
    }
    label = "a cell" if policy == "default" else wrapped(policy, 34)
    solid = {"markeredgecolor": INK, "markeredgewidth": 0 if is_crowd else 0.4, "label": label}
    hollow = {"markerfacecolor": PAPER, "markeredgewidth": 0.5 if is_crowd else 1.0}
    metrics = view.strain(scenario), "dropped"
    for some, surface in (
        ([c for c in cells if c not in beaten], solid),
        ([c for c in cells if c in beaten], hollow),
    ):
        x, y = ([view.mean(c, metric) or 0.0 for c in some] for metric in metrics)
        if not is_crowd:
            for name, metric in zip(("xerr", "yerr"), metrics, strict=True):
                look[name] = [view.half_width(c, metric) or 0.0 for c in some]
        container = panel.errorbar(x, y, **look, **surface)
        for artist in container.get_children():
            artist.set_rasterized(len(cells) > MOST_MARKS)


def _draw_frontier(view: View, panel: Axes, scenario: str, cells: Sequence[int]) -> None:
    """Join the cells that are surely on the frontier, by their means."""
    frontier = view.frontier(scenario)
    on = [c for c in cells if frontier is not None and frontier.on[c] == YES]
    if on:
        panel.step(
            [view.mean(c, view.strain(scenario)) or 0.0 for c in on],
            [view.mean(c, "dropped") or 0.0 for c in on],
            where="post",
            color=INK,
            linewidth=1.1,
            linestyle=DASHES[2],
            label="surely on the frontier",
            zorder=1 if len(cells) <= _CROWD else 5,
        )


def _write_letters(view: View, panel: Axes, scenario: str) -> None:
    """Name cells as the table of the frontier does."""
    for cell, letter in view.marks(scenario).items():
        panel.annotate(
            letter,
            (view.mean(cell, view.strain(scenario)) or 0.0, view.mean(cell, "dropped") or 0.0),
            (-5, 0),  # left of it there is nothing as low
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8.5,
            fontweight="bold",
            color=INK,
            zorder=6,
        )


def _write_times_usual(view: View, panel: Axes, scenario: str) -> None:
    """A second scale above, where all cells have the same usual rate."""
    rate = view.usual_rate(scenario)
    if rate is None:
        return
    low, high = (x / rate for x in panel.get_xlim())
    ticks = [x for x in AutoLocator().tick_values(low, high) if low <= x <= high]
    look: Any = {"ha": "center", "va": "bottom"}
    for x, text in zip(ticks, plain_texts(ticks), strict=True):
        panel.text(
            x * rate, 1.02, text, transform=panel.get_xaxis_transform(), fontsize=8.5, **look
        )
    panel.text(0.5, 1.1, NAMES["times_usual"], transform=panel.transAxes, **look)
