"""Sweeps: lines over one axis, points of a design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from mc.model import PARAMETERS, units
from mc.model.digits import rounds_per_second
from mc.reports.maps import Maps
from mc.reports.notation import parameter_title
from mc.reports.panels import (
    Drawing,
    arrange,
    legend,
    new_panels,
    not_below_zero,
    plain_numbers,
    wrapped,
)
from mc.reports.scenario import Scenario
from mc.reports.style import DASHES, MARKERS, SERIES
from mc.reports.view import Axis, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POLICIES: Final = len(SERIES)
"""Policies with a line of their own."""

_LOG_SPAN: Final = 20
"""Largest over smallest value of an axis that is drawn in logarithms."""

MOST_MARKS: Final = 1500
"""Points above which a panel becomes a bitmap: a browser would be slow."""


# --- one axis ------------------------------------------------------------------------------------


def draw_lines(scenario: Scenario, metric: str, maps: Maps) -> Drawing:
    """Draw a metric over the only axis that changes it, a line for each policy."""
    view, (axis,) = scenario.view, maps.axes
    panels = new_panels([""], 3.6, 2.2, x_label=axis.title, y_label=view.title(metric))
    x, panel = _positions(axis), panels[0]
    for i, policy in enumerate(view.policies[:MOST_POLICIES]):
        cells = [maps.fields.get((policy, value)) for value in axis.values]
        points = [
            (at, cell)
            for at, cell in zip(x, cells, strict=True)
            if cell is not None and view.mean(cell, metric) is not None
        ]
        if points:
            _draw_line(view, panel, metric, points, i, policy)
    _label_positions(panel, axis)
    not_below_zero(panel.yaxis)
    plain_numbers(panel.yaxis)
    return arrange(panels, 1, legend(panels))


def _draw_line(
    view: View, panel: Axes, metric: str, points: list[tuple[float, int]], i: int, policy: str
) -> None:
    x = [at for at, _ in points]
    estimates = [view.estimate(cell, metric) for _, cell in points]
    panel.fill_between(
        x,
        [e["p05"] for e in estimates],
        [e["p95"] for e in estimates],
        color=SERIES[i],
        alpha=0.15,
        linewidth=0,
        label="90 % of replications" if i == 0 else None,
    )
    panel.errorbar(
        x,
        [e["mean"] for e in estimates],
        yerr=[view.half_width(cell, metric) or 0.0 for _, cell in points],
        color=SERIES[i],
        marker=MARKERS[i],
        markersize=4.5,
        linestyle=DASHES[i],
        linewidth=1.4,
        capsize=2.5,
        label=_label(policy),
    )


def _label(policy: str) -> str:
    return "mean, 95 % interval" if policy == "default" else wrapped(policy, 40)


def _positions(axis: Axis) -> NDArray[np.float64]:
    """Where the values stand: by their size if all are numbers, else one after another."""
    if axis.numbers is None:
        return np.arange(len(axis.values), dtype=float)
    return np.array(axis.numbers, float)


def _label_positions(panel: Axes, axis: Axis) -> None:
    x = _positions(axis)
    if x.min() > 0 and x.max() / x.min() >= _LOG_SPAN:
        panel.set_xscale("log")
        panel.minorticks_off()
    step = max(1, -(-len(x) // 8))
    panel.set_xticks(x[::step], list(map(axis.text, axis.values[::step])))


# --- a design ------------------------------------------------------------------------------------


def draw_design(scenario: Scenario) -> Drawing:
    """Draw each metric against each parameter of a design, while all others vary too."""
    view, metrics, panels = scenario.view, scenario.metrics, []
    for name in view.design[:4]:
        label, factor = _scale_of(view, name)
        row = new_panels(list(map(view.title, metrics)), 2.9, 1.6, x_label=label)
        for metric, panel in zip(metrics, row, strict=True):
            for i, policy in enumerate(view.policies[:MOST_POLICIES]):
                cells = [
                    cell
                    for cell in scenario.of_policy(policy)
                    if view.mean(cell, metric) is not None and view.lines[cell][name] is not None
                ]
                x = [factor * view.lines[cell][name] for cell in cells]
                _draw_points(view, panel, x, metric, cells, i, policy)
            if name in view.logarithmic:
                panel.set_xscale("log")
                panel.minorticks_off()
                plain_numbers(panel.xaxis)
            not_below_zero(panel.yaxis)
            plain_numbers(panel.yaxis)
        panels += row
    return arrange(panels, len(metrics), legend(panels))


def _scale_of(view: View, name: str) -> tuple[str, float]:
    """The title of an axis for a parameter, and by what its values are multiplied for that."""
    if name not in view.source.get("in_units", ()):
        return parameter_title(name), 1.0
    unit, factor = units.for_reader(PARAMETERS[name].unit, rounds_per_second(view.source))
    return f"{name} ({unit})", factor


def _draw_points(
    view: View, panel: Axes, x: Sequence[float], metric: str, cells: list[int], i: int, policy: str
) -> None:
    container = panel.errorbar(
        x,
        [view.mean(cell, metric) or 0.0 for cell in cells],
        yerr=[view.half_width(cell, metric) or 0.0 for cell in cells],
        color=SERIES[i],
        marker=MARKERS[i],
        markersize=3.5,
        linestyle="none",
        elinewidth=0.8,
        label=_label(policy),
    )
    for artist in container.get_children():
        artist.set_rasterized(len(cells) > MOST_MARKS)
