"""Drops against calls: what fewer drops cost, and which cells are on the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from matplotlib.ticker import AutoLocator

from mc.reports.notation import NAMES
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
from mc.reports.scenario import Scenario
from mc.reports.style import DASHES, INK, MARKERS, PAPER, SERIES
from mc.reports.sweeps import MOST_MARKS
from mc.reports.view import View
from mc.statistics.best import NO, YES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CROWD: Final = 300
"""Cells of a policy above which no intervals are drawn: they would hide one another."""


def draw_tradeoff(view: View, scenarios: Sequence[Scenario]) -> Drawing:
    """Draw drops against calls, a panel for each scenario; nearer to the corner is better.

    Cells that another one surely beats are hollow; those surely on the frontier are joined.
    """
    titles = [wrapped(s.name, 40) if len(view.scenarios) > 1 else "" for s in scenarios]
    above = 0.4 if any(scenario.usual_rate for scenario in scenarios) else 0.0
    labels: Any = {"x_label": view.title("calls"), "y_label": view.title("dropped")}
    panels = new_panels(titles, 2.9, 2.0, above=above, **labels)
    for scenario, panel in zip(scenarios, panels, strict=True):
        for i, policy in enumerate(view.policies):
            _draw_policy(panel, scenario, policy, i % len(SERIES))
        _draw_frontier(panel, scenario)
        panel.set_xlabel(view.title(scenario.strain))
        panel.margins(0.12)
        if not any(view.mean(cell, "dropped") for cell in scenario.cells):
            panel.set_ylim(-0.5, 5)
        for axis in (panel.xaxis, panel.yaxis):
            not_below_zero(axis)
            plain_numbers(axis)
        _write_times_usual(panel, scenario)
    return arrange(panels, min(2, len(panels)), legend(panels))


def _draw_policy(panel: Axes, scenario: Scenario, policy: str, i: int) -> None:
    """The cells of a policy, those that are surely beaten apart from the others."""
    known = set(scenario.known(scenario.strain))
    cells = [cell for cell in scenario.of_policy(policy) if cell in known]
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
    beaten = {cell for cell in cells if scenario.on_frontier(cell) == NO}
    for some, surface in (
        ([cell for cell in cells if cell not in beaten], solid),
        ([cell for cell in cells if cell in beaten], hollow),
    ):
        if not is_crowd:
            for name, metric in zip(("xerr", "yerr"), scenario.metrics, strict=True):
                look[name] = [scenario.view.half_width(c, metric) or 0.0 for c in some]
        x, y = ([scenario.point(cell)[k] for cell in some] for k in (0, 1))
        container = panel.errorbar(x, y, **look, **surface)
        for artist in container.get_children():
            artist.set_rasterized(len(cells) > MOST_MARKS)


def _draw_frontier(panel: Axes, scenario: Scenario) -> None:
    """Join the cells that are surely on the frontier; letters as in its table."""
    on = sorted(scenario.point(c) for c in scenario.cells if scenario.on_frontier(c) == YES)
    if on:
        panel.step(
            [x for x, _ in on],
            [y for _, y in on],
            where="post",
            color=INK,
            linewidth=1.1,
            linestyle=DASHES[2],
            label="surely on the frontier",
            zorder=1 if len(scenario.cells) <= _CROWD else 5,
        )
    look: Any = {"fontsize": 8.5, "fontweight": "bold", "color": INK, "zorder": 6}
    look |= {"ha": "right", "va": "bottom", "textcoords": "offset points"}
    for cell, letter in scenario.marks.items():
        # left of it there is nothing as low
        panel.annotate(letter, scenario.point(cell), (-5, 0), **look)


def _write_times_usual(panel: Axes, scenario: Scenario) -> None:
    """A second scale above, where all cells have the same usual rate."""
    rate = scenario.usual_rate
    if rate is None:
        return
    low, high = (x / rate for x in panel.get_xlim())
    ticks = [x for x in AutoLocator().tick_values(low, high) if low <= x <= high]
    look: Any = {"ha": "center", "va": "bottom", "transform": panel.get_xaxis_transform()}
    for x, text in zip(ticks, plain_texts(ticks), strict=True):
        panel.text(x * rate, 1.02, text, fontsize=8.5, **look)
    panel.text(rate * (low + high) / 2, 1.1, NAMES["times_usual"], **look)
