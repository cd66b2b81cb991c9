"""Failures against calls: what fewer failures cost, and which cells are on the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

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
from mc.reports.style import DASHES, INK, MARKERS, MUTED, PAPER, SERIES
from mc.reports.sweeps import MOST_MARKS
from mc.reports.view import View
from mc.statistics.best import NO, YES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CROWD: Final = 300
"""Cells of a policy above which no intervals are drawn: they would hide one another."""


def draw_tradeoff(view: View, scenarios: Sequence[Scenario]) -> Drawing:
    """Draw requests that fail against calls, a panel for each scenario; lower left is better.

    Cells that another one surely beats are hollow; those surely on the frontier are joined. Where
    every cell has its line in the scorecard it has its name here, else its letter.
    """
    titles = [wrapped(s.name, 40) if len(view.scenarios) > 1 else "" for s in scenarios]
    panels = new_panels(titles, 3.4, 2.3, x_label=" ", y_label="% of requests that fail")
    for scenario, panel in zip(scenarios, panels, strict=True):
        for i, policy in enumerate(view.policies):
            _draw_policy(panel, scenario, policy, i % len(SERIES) if scenario.marks else 0)
        _draw_frontier(panel, scenario)
        panel.set_xlabel(view.title(scenario.strain))
        panel.margins(0.12)
        if not any(view.mean(cell, "failed_share") for cell in scenario.cells):
            panel.set_ylim(-0.01, 0.1)
        for axis in (panel.xaxis, panel.yaxis):
            not_below_zero(axis)
            plain_numbers(axis)
        panel.autoscale(False)
        _write_names(panel, scenario)
    is_sweep = any(scenario.marks for scenario in scenarios)
    return arrange(panels, min(2, len(panels)), legend(panels) if is_sweep else None)


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
    beaten = {cell for cell in cells if scenario.on_frontier.get(cell) == NO}
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
    """Join the cells that are surely on the frontier."""
    on = sorted(scenario.point(c) for c in scenario.cells if scenario.on_frontier.get(c) == YES)
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


def _write_names(panel: Axes, scenario: Scenario) -> None:
    """Name points where there is room: right or left of them, above or below.

    A name is as wide as the usual letter times their number: near enough, and nothing is measured.
    """
    if scenario.marks:
        names = scenario.marks
    else:
        label = {cell: str(scenario.view.lines[cell]["label"]) for cell in scenario.cells}
        names = {c: wrapped(text, 30) for c, text in label.items()} if len(label) > 1 else {}
    figure: Any = panel.figure
    size = panel.get_position().size * figure.get_size_inches()
    points = {c: panel.transLimits.transform(scenario.point(c)) * size for c in scenario.cells}
    # one point in 300 is enough: names avoid a crowd by avoiding some of it
    some = list(points.values())[:: max(1, len(points) // _CROWD)]
    taken = [(x - 0.04, y - 0.04, x + 0.04, y + 0.04) for x, y in some]
    look: Any = {"fontsize": 8, "color": INK, "zorder": 6, "linespacing": 1.0}
    look |= {"ha": "center", "va": "center"}
    for cell, name in names.items():
        lines = name.split("\n")
        w, h = _LETTER * max(map(len, lines)), _ROW * len(lines)
        x, y = points[cell]
        corners = [(x - w / 2, y + 0.05), (x - w / 2, y - 0.05 - h)]
        for k in sorted(range(-12, 13), key=abs):
            corners += [(x + 0.08, y - h / 2 + k * _ROW), (x - 0.08 - w, y - h / 2 + k * _ROW)]
        boxes = [(a, b, a + w, b + h) for a, b in corners]
        inside = [
            (i, box)
            for i, box in enumerate(boxes)
            if box[0] >= 0 and box[2] <= size[0] + 0.1 and box[1] >= 0 and box[3] <= size[1] + h
        ]
        i, (left, bottom, right, top) = min(
            inside or enumerate(boxes),
            key=lambda box: 1000 * sum(_overlap(box[1], other) for other in taken) + box[0],
        )
        taken.append((left, bottom, right, top))
        at = np.array([(left + right) / 2, (bottom + top) / 2])
        panel.text(at[0] / size[0], at[1] / size[1], name, transform=panel.transAxes, **look)
        if i > _NEAR:
            near = np.array([left if left > x else right, at[1]])
            ends = zip(points[cell] / size, near / size, strict=True)
            panel.plot(*ends, transform=panel.transAxes, color=MUTED, linewidth=0.5, clip_on=False)


_LETTER: Final = 0.066
_ROW: Final = 0.135
"""Inches of the usual letter of a name, and of a line of it."""

_NEAR: Final = 7
"""Places for a name that are so near its point that no line need lead there."""

_Box = tuple[float, float, float, float]


def _overlap(one: _Box, other: _Box) -> float:
    """The area that two boxes (left, bottom, right, top) share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
