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
    plain_numbers,
    wrapped,
)
from mc.reports.sweeps import RASTERIZED, legend
from mc.reports.view import View, metric_title

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
        best = _undominated(view, strain, cells)
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
        panel.margins(0.12)
        if not any(view.mean(c, "dropped") for c in cells):
            panel.set_ylim(-0.5, 5)
        plain_numbers(panel.xaxis)
        plain_numbers(panel.yaxis)
    legend(figure, panels[0])
    return figure


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
        label="a cell" if policy == "default" else wrapped(policy, 34),
    )
    for artist in container.get_children():
        artist.set_rasterized(len(cells) > RASTERIZED)


def _undominated(view: View, strain: str, cells: list[int]) -> list[int]:
    """Cells than which no other has both a lower strain and fewer drops, by their means."""
    ordered = sorted(cells, key=lambda c: (view.mean(c, strain), view.mean(c, "dropped")))
    best: list[int] = []
    for cell in ordered:
        dropped = view.mean(cell, "dropped")
        if not best or dropped < view.mean(best[-1], "dropped"):  # type: ignore[operator]
            best.append(cell)
    return best
