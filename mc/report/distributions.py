"""How each headline number is distributed over the seeds, with the published figure marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mc.report.style import INK, SERIES, WIDTH, hide_unused, new_figure, plain_numbers, wrapped
from mc.report.view import HEADLINE, View, metric_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS: Final = 60
"""Bars of a histogram, at most: more values than that are put together."""


def draw_distributions(view: View, scenario: str) -> Figure:
    """Draw a panel for each headline number: below one another a histogram for each cell."""
    chosen = view.chosen(scenario)
    metrics = [m for m in HEADLINE if any(view.mean(cell, m) is not None for cell in chosen)]
    n_columns = 2
    n_rows = -(-len(metrics) // n_columns)
    height = 0.42 * len(chosen) + 0.75
    figure = new_figure(WIDTH + 0.6, 0.5 + n_rows * height)
    grid = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    panels = list(grid.ravel())
    hide_unused(panels, len(metrics))
    for metric, panel in zip(metrics, panels, strict=False):
        _panel(view, chosen, metric, panel)
    labels = [wrapped(view.lines[cell]["label"], 28) for cell in chosen]
    for row in grid:
        row[0].set_yticks(range(len(chosen)), labels)
        row[0].set_ylim(len(chosen) - 0.75, -0.95)
    handles, names = {}, []
    for panel in panels[: len(metrics)]:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    names = list(handles)
    figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=3)
    return figure


def _panel(view: View, chosen: list[int], metric: str, panel: Axes) -> None:
    """One metric: histograms on a common axis, each as high as its row."""
    found = {cell: view.distribution(cell, metric) for cell in chosen}
    some = [values for values, _ in found.values() if values.size]
    if not some:
        return
    edges = _edges(np.unique(np.concatenate(some)))
    for i, (cell, (values, counts)) in enumerate(found.items()):
        color = SERIES[i % len(SERIES)]
        panel.axhline(i, color=color, linewidth=0.5)
        if values.size:
            heights = np.histogram(values, edges, weights=counts)[0]
            top = i - 0.8 * np.append(heights, heights[-1]) / heights.max()
            panel.fill_between(edges, i, top, step="post", color=color, alpha=0.55, linewidth=0.3)
            panel.plot(
                view.mean(cell, metric),
                i,
                marker="|",
                color=INK,
                markersize=7,
                markeredgewidth=1.4,
                linestyle="none",
                label="mean",
                zorder=3,
            )
        published = view.estimates[cell, metric]["published"]
        if published is not None:
            panel.plot(
                published,
                i - 0.06,
                marker="D",
                markerfacecolor="none",
                markeredgecolor=INK,
                markeredgewidth=1.3,
                markersize=5.5,
                linestyle="none",
                label="published figure",
                zorder=4,
            )
    panel.set_title(metric_title(metric))
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    plain_numbers(panel.xaxis)


def _edges(values: NDArray[Any]) -> NDArray[np.float64]:
    """Edges of bars: one for each whole number where they are few, else of equal width."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        width = max(abs(low) * 1e-3, 0.5 if low == round(low) else 1e-6)
        return np.array([low - width, low + width])
    whole = np.all(values == np.round(values))
    if whole:
        step = max(1, int(np.ceil((high - low + 1) / _BARS)))
        n = int((high - low) // step) + 1
        return low - 0.5 + step * np.arange(n + 1)
    return np.linspace(low, high, _BARS + 1)
