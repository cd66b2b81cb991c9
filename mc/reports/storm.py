"""The storm curve: calls per round over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import experiment as experiments
from mc.model import Cell, units
from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, legend, new_panels, wrapped
from mc.reports.scenario import Scenario
from mc.reports.style import DASHES, INK, MUTED, SERIES, SHADE
from mc.runner import Draws, rounds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STEPS: Final = 160
"""Steps of a curve: what a panel can show."""

_MOST_RECORDED: Final = 300
"""Replications of which every round is recorded."""

_ROUNDS_RECORDED: Final = 12_000_000
_FEWEST_RECORDED: Final = 20
"""Of long replications fewer are recorded: no more than so many rounds, no fewer replications."""

_ROUNDS_AT_ONCE: Final = 4_000_000
"""Rounds that are in memory together: 64 MB."""

_SHARES: Final = {"low_95": 0.025, "low_50": 0.25, "median": 0.5, "high_50": 0.75, "high_95": 0.975}


# --- which rounds are shown -----------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """The rounds of a run that are shown, in steps of several rounds.

    Attributes
    ----------
    start, n_steps, step : int
        First round, how many steps, and rounds of each.
    """

    start: int
    n_steps: int
    step: int

    @property
    def stop(self) -> int:
        """The round after the last."""
        return self.start + self.n_steps * self.step

    def seconds(self, cell: Cell) -> NDArray[np.float64]:
        """Where the steps begin and the last one ends, counted from the start of the fault.

        From the start of the run where there is no fault.
        """
        origin = cell.window[0] if fault(cell) else 0
        edges = self.start + self.step * np.arange(self.n_steps + 1)
        return np.asarray((edges - origin) / cell.rounds_per_second)

    def mean(self, per_round: NDArray[Any]) -> NDArray[np.float64]:
        """Mean over the rounds of each step, along the last axis."""
        shown = per_round[..., self.start : self.stop]
        # added slice by slice: a mean over a short last axis takes four times as long
        total = np.zeros((*shown.shape[:-1], self.n_steps), np.int64)
        for i in range(self.step):
            total += shown[..., i :: self.step]
        return np.asarray(total / self.step)


def fault(cell: Cell) -> tuple[int, int] | None:
    """First round of the fault window and the one after its last; None without one in the run."""
    start, stop = cell.window[0], min(cell.window[1], cell.rounds)
    return (start, stop) if start < stop else None


def equally_long(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of one figure, each with as many rounds as the shortest of them.

    Only these rounds are shown; a fault that begins after them does not exist in the figure.
    """
    listed = list(cells)
    n_rounds = min(cell.rounds for cell in listed)
    return [replace(cell, rounds=n_rounds) for cell in listed]


def choose_stretch(cells: Sequence[Cell], drain: float, most: int = _MOST_STEPS) -> Stretch:
    """Choose what to show: the fault window, what leads up to it, and the recovery.

    At most `most` steps of equal length, one of which begins with the first fault window of the
    cells, which are `equally_long`; after the window they need `drain` rounds to recover. Without
    a window the whole run.
    """
    n_rounds = cells[0].rounds
    windows = [window for window in map(fault, cells) if window is not None]
    start, stop, first = 0, n_rounds, 0
    if windows:
        first, last = min(w[0] for w in windows), max(w[1] for w in windows)
        length = last - first
        start = max(0, first - max(length // 4, 10))
        stop = min(n_rounds, last + int(min(max(1.3 * drain, length / 2, 20), 3 * length + 200)))
    step = max(1, -(-(stop - start) // most))
    start += (first - start) % step  # a step begins with the fault
    return Stretch(start, max(1, (stop - start) // step), step)


# --- the curves -----------------------------------------------------------------------------------


def curves(scenario: Scenario) -> pl.DataFrame:
    """Record every round of some replications, and summarise their calls per round.

    Returns
    -------
    polars.DataFrame
        A line for each cell that is drawn and each step: `cell`, `round` (the first of the step),
        `rounds` (of the step), `replications` (how many were recorded), `capacity`, and of the
        calls per round, averaged over the step, the median and the ends of the middle 50 and 95 %
        of replications.
    """
    cells = _chosen_cells(scenario)
    shown = choose_stretch(equally_long(cells.values()), _drain(scenario))
    draws = Draws.of(scenario.view.source)
    frames = []
    for number, cell in cells.items():
        most = max(_FEWEST_RECORDED, _ROUNDS_RECORDED // cell.rounds)
        n = min(scenario.view.lines[number]["replications"], _MOST_RECORDED, most)
        at_once = max(1, _ROUNDS_AT_ONCE // cell.rounds)
        until_shown = replace(cell, rounds=shown.stop)  # a round knows nothing of later ones
        recorded = [
            rounds_of(until_shown, some, draws.seed, draws.generator)
            for some in np.split(draws.indices(0, n), range(at_once, n, at_once))
        ]
        calls = np.concatenate([shown.mean(rounds.calls) for rounds in recorded])
        shares = list(_SHARES.values())
        quantiles = np.quantile(calls, shares, axis=0, method="inverted_cdf")
        columns = {
            "cell": np.full(shown.n_steps, number, np.int32),
            "round": shown.start + shown.step * np.arange(shown.n_steps),
            "rounds": np.full(shown.n_steps, shown.step),
            "replications": np.full(shown.n_steps, n),
            "capacity": shown.mean(recorded[0].capacity),
        }
        frames.append(pl.DataFrame(columns | dict(zip(_SHARES, quantiles, strict=True))))
    return pl.concat(frames)


def _chosen_cells(scenario: Scenario) -> dict[int, Cell]:
    lines = scenario.view.results.cells.filter(pl.col("cell").is_in(scenario.chosen))
    cells = experiments.cells_of(lines)
    return {number: cells[number] for number in scenario.chosen}


def _drain(scenario: Scenario) -> float:
    """Rounds that the recovery takes in nearly all replications of all cells that are drawn."""
    rounds = scenario.view.results.summary.filter(
        pl.col("cell").is_in(scenario.chosen), pl.col("metric") == "drain"
    )["p95"].max()
    return float(rounds) if isinstance(rounds, int | float) else 0.0


# --- drawing --------------------------------------------------------------------------------------


def draw_curves(scenario: Scenario, table: pl.DataFrame) -> Drawing:
    """Draw a panel for each cell, all with the same axes, from what `curves` gave."""
    cells = equally_long(_chosen_cells(scenario).values())
    per_second, factor = scenario.view.per_second, scenario.view.factor("peak")
    step, highest = table["rounds"][0], float(table["high_95"].to_numpy().max())
    told = table.with_columns(pl.col(*_SHARES) * factor)
    lines = [told.filter(pl.col("cell") == number) for number in scenario.chosen]
    panels = new_panels(
        [wrapped(scenario.marked(number), 40) for number in scenario.chosen],
        width=2.8,
        height=1.35,
        right=0.7 if per_second is None else 0.12,
        x_label=time_label(cells[0]),
        y_label=calls_label(step, per_second),
    )
    top = factor * max(top_of_axis(cell, highest) for cell in cells)
    for i, (panel, cell, line) in enumerate(zip(panels, cells, lines, strict=True)):
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        panel.set_xlim(edges[0], edges[-1])
        panel.set_ylim(0, top)
        shade_fault(panel, cell)
        _draw_curve(panel, edges, line, SERIES[i % len(SERIES)], lines[0] if i > 0 else None)
        draw_capacity(panel, edges, cell, factor)
        if per_second is None:
            _write_per_second(panel, cell)
    return arrange(panels, min(2, len(panels)), legend(panels[:2]))


def _draw_curve(
    panel: Axes, edges: NDArray[np.float64], line: pl.DataFrame, color: str, first: Any
) -> None:
    """Median and bands of one cell, and the median of the first one to compare with."""
    is_single = line["replications"][0] == 1
    for share, alpha in () if is_single else ((95, 0.22), (50, 0.45)):
        x, low, high = _changes(edges, line[f"low_{share}"], line[f"high_{share}"])
        label = f"{share} % of replications"
        look: Any = {"color": color, "alpha": alpha, "linewidth": 0, "label": label}
        panel.fill_between(x, low, high, step="post", **look)
    name = "calls" if is_single else "median"
    if first is not None:
        label = f"{name} of the first panel"
        look = {"color": MUTED, "linewidth": 0.9, "linestyle": DASHES[2], "label": label}
        panel.step(*_changes(edges, first["median"]), where="post", **look)
    look = {"color": color, "linewidth": 1.6, "label": name}
    panel.step(*_changes(edges, line["median"]), where="post", **look)


def _changes(edges: NDArray[np.float64], *columns: pl.Series) -> list[NDArray[np.float64]]:
    """Where a step differs from the one before it, and the end of the last; x, then the values."""
    values = np.array(columns, np.float64)
    starts = np.flatnonzero((values[:, 1:] != values[:, :-1]).any(axis=0)) + 1
    return [edges[[0, *starts, -1]], *values[:, [0, *starts, -1]]]


def _write_per_second(panel: Axes, cell: Cell) -> None:
    """The scale in calls per second, on the right."""
    beside: Any = panel.get_yaxis_transform()
    ticks = [y for y in panel.get_yticks() if y <= panel.get_ylim()[1]]
    texts = [f"{y * cell.rounds_per_second:,.10g}" for y in ticks]
    for y, text in zip(ticks, texts, strict=True):
        panel.text(1.02, y, text, transform=beside, va="center", fontsize=8.5)
    right = 1.05 + 0.027 * max(map(len, texts))
    panel.text(right, 0.5, "calls/s", transform=panel.transAxes, rotation=90, va="center")


def shade_fault(panel: Axes, cell: Cell) -> None:
    """Mark the fault window."""
    window = fault(cell)
    if window is not None:
        start, stop = ((t - window[0]) / cell.rounds_per_second for t in window)
        panel.axvspan(start, stop, color=SHADE, zorder=0, linewidth=0, label="fault")


def _capacities(cell: Cell) -> list[tuple[int, float]]:
    """The corners of the line of capacity: round, and calls served in one."""
    corners: list[tuple[int, float]] = [(0, cell.capacity)]
    for one in cell.all_faults:
        last = one.capacity if one.capacity_end is None else one.capacity_end
        inside = [(one.start, one.capacity), (one.end, last)]
        corners += [(one.start, cell.capacity), *inside, (one.end, cell.capacity)]
    return [
        *(corner for corner in corners if corner[0] < cell.rounds),
        (cell.rounds, corners[-1][1]),
    ]


def top_of_axis(cell: Cell, highest: float) -> float:
    """Where the axis of calls ends: above the calls, and the capacity unless that is far above."""
    return 1.08 * max([highest, 1.0, *(c for _, c in _capacities(cell) if c <= 3 * highest)])


def draw_capacity(panel: Axes, edges: NDArray[np.float64], cell: Cell, factor: float) -> None:
    """Draw how many calls are served; a capacity above the axis is put into words.

    The axis has calls per round, times `factor`.
    """
    top = panel.get_ylim()[1]
    rounds, per_round = np.array(_capacities(cell), np.float64).T
    served = factor * per_round
    window = fault(cell)
    times = (rounds - (window[0] if window else 0)) / cell.rounds_per_second
    if served.min() <= top:
        panel.plot(
            times.clip(edges[0], edges[-1]),
            served,
            color=INK,
            linewidth=1.0,
            linestyle=DASHES[1],
            label="capacity",
        )
    if served.max() > top:
        text = f"capacity {short(served.max())}, above the panel"
        look: Any = {"transform": panel.transAxes, "ha": "right", "va": "top", "color": MUTED}
        panel.text(0.99, 0.97, text, fontsize=7.5, **look)


def length_text(n_rounds: int, per_second: float | None) -> str:
    """Write how long some rounds are; per_second as in `View`."""
    return f"{n_rounds} rounds" if per_second is None else units.format_time(n_rounds / per_second)


def calls_label(step: int, per_second: float | None) -> str:
    """What the axis of calls has, if each step is the mean of so many rounds."""
    unit, _ = units.for_reader("calls/round", per_second)
    return unit if step == 1 else f"{unit},\nmean of {length_text(step, per_second)}"


def time_label(cell: Cell) -> str:
    """From what the axis of time counts."""
    return "seconds since the fault began" if fault(cell) else "seconds"
