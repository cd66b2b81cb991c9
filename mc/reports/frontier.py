"""The frontier: what fewer drops cost in calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mc.reports.style import (
    INK,
    LINES,
    MARKERS,
    SERIES,
    WIDTH,
    hide_unused,
    new_figure,
    not_below_zero,
    plain_numbers,
    wrapped,
)
from mc.reports.sweeps import RASTERIZED, legend
from mc.reports.view import NAMES, View, metric_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CROWD: Final = 300
"""Cells of a policy above which no intervals are drawn."""


def draw_frontier(view: View, scenarios: Sequence[str]) -> Figure:
    """Draw drops against calls, a panel for each scenario; nearer to the corner is better."""
    n_columns = min(2, len(scenarios))
    n_rows = -(-len(scenarios) // n_columns)
    figure = new_figure(WIDTH + 0.6, 0.7 + 3.1 * n_rows)
    grid = figure.subplots(n_rows, n_columns, squeeze=False)
    panels = list(grid.ravel())
    hide_unused(panels, len(scenarios))
    for scenario, panel in zip(scenarios, panels, strict=False):
        strain = view.strain(scenario)
        cells = [c for c in view.in_scenario(scenario) if view.mean(c, strain) is not None]
        for i, policy in enumerate(view.policies):
            some = [c for c in cells if view.lines[c]["policy"] == policy]
            _cloud(view, panel, strain, some, i % len(SERIES), policy)
        best = view.frontier(scenario)
        panel.step(
            [view.mean(c, strain) for c in best],
            [view.mean(c, "dropped") for c in best],
            where="post",
            color=INK,
            linewidth=1.1,
            linestyle=LINES[2],
            label="frontier of the means",
            zorder=1 if len(cells) <= _CROWD else 5,
        )
        panel.set_title(wrapped(scenario, 50) if len(view.scenarios) > 1 else "")
        panel.set_xlabel(metric_title(strain))
        panel.set_ylabel(metric_title("dropped"))
        _letters(view, panel, scenario, strain)
        panel.margins(0.12)
        if not any(view.mean(c, "dropped") for c in cells):
            panel.set_ylim(-0.5, 5)
        for axis in (panel.xaxis, panel.yaxis):
            not_below_zero(axis)
            plain_numbers(axis)
        _times_usual(view, panel, scenario, strain)
    legend(figure, panels[0])
    return figure


def _letters(view: View, panel: Axes, scenario: str, strain: str) -> None:
    """Name the cells on the frontier as the table does."""
    for cell, letter in view.marks(scenario).items():
        panel.annotate(
            letter,
            (view.mean(cell, strain) or 0.0, view.mean(cell, "dropped") or 0.0),
            (-5, 0),  # left of it there is nothing as low
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8.5,
            fontweight="bold",
            color=INK,
            zorder=6,
        )


def _times_usual(view: View, panel: Axes, scenario: str, strain: str) -> None:
    """A second axis above, where all cells have the same usual rate."""
    lines = [view.lines[cell] for cell in view.in_scenario(scenario)]
    usual = {line["arrivals_per_second"] / line["rounds_per_second"] for line in lines}
    if strain != "window_rate" or len(usual) > 1 or 0 in usual:
        return
    (per_round,) = usual
    above = panel.secondary_xaxis(
        "top", functions=(lambda x: x / per_round, lambda x: x * per_round)
    )
    above.set_xlabel(NAMES["times_usual"])
    plain_numbers(above.xaxis)


def _cloud(view: View, panel: Axes, strain: str, cells: list[int], i: int, policy: str) -> None:
    """The cells of a policy; in a crowd their intervals would hide one another."""
    x, y = ([view.mean(c, metric) or 0.0 for c in cells] for metric in (strain, "dropped"))
    few, crowd = len(cells) < 10, len(cells) > _CROWD
    errors = [
        None if crowd else [view.half_width(c, metric) or 0.0 for c in cells]
        for metric in (strain, "dropped")
    ]
    container = panel.errorbar(
        x,
        y,
        xerr=errors[0],
        yerr=errors[1],
        color=SERIES[i],
        marker=MARKERS[i],
        markersize=6 if few else 2 if crowd else 3.5,
        markeredgecolor=INK,
        markeredgewidth=0 if crowd else 0.4,
        linestyle="none",
        elinewidth=1.0,
        capsize=2.5 if few else 0,
        clip_on=False,  # a point on the axis is whole
        label="a cell" if policy == "default" else wrapped(policy, 34),
    )
    for artist in container.get_children():
        artist.set_rasterized(len(cells) > RASTERIZED)
