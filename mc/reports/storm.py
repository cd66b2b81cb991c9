"""The storm curve: calls per second over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import experiment as experiments
from mc.model import Cell, Column, units
from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, new_panels, plain_numbers, wrapped
from mc.reports.scenario import Scenario
from mc.reports.style import DASHES, INK, MUTED, SERIES, SHADE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STEPS: Final = 160
"""Steps of a curve: what a panel can show."""

_MOST_RECORDED: Final = 300
"""Replications of which every round is recorded."""

_ROUNDS_RECORDED: Final = 20_000_000
_FEWEST_RECORDED: Final = 20
"""Of long replications fewer are recorded: no more than so many rounds in all cells together, no
fewer replications."""

_ROUNDS_AT_ONCE: Final = 4_000_000
"""Rounds that are in memory together: 64 MB."""

_SHARES: Final = {"low_95": 0.025, "median": 0.5, "high_95": 0.975}


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


CURVE_COLUMNS: Final = {
    "cell": Column("int32", "", "number of the cell"),
    "round": Column("int64", "rounds", "first round of a step, from 0"),
    "rounds": Column("int64", "rounds", "length of the step"),
    "replications": Column("int64", "replications", "how many were recorded"),
    "capacity": Column("float", "calls/round", "what the dependency serves, mean of the step"),
    "useful": Column("float", "calls/round", "calls that succeed: median over replications"),
    "queued": Column("float", "calls", "calls that wait in the queue: median over replications"),
    **{
        name: Column(
            "float", "calls/round", f"calls: {100 * share:g} % of replications have no more"
        )
        for name, share in _SHARES.items()
    },
}
"""Columns of the table that `curves` makes; each number is the mean over the rounds of the step."""


# --- the curves -----------------------------------------------------------------------------------


def curves(scenario: Scenario, chosen: Sequence[int]) -> pl.DataFrame:
    """Record every round of some replications, and summarise their calls per round.

    Returns
    -------
    polars.DataFrame
        A line for each of the chosen cells and each step, with `CURVE_COLUMNS`.
    """
    from mc.runner import Draws, rounds_of  # this takes a second, and the table may be there

    cells = _cells(scenario, chosen)
    shown = choose_stretch(equally_long(cells.values()), _drain(scenario, chosen))
    draws = Draws.of(scenario.view.source)
    frames = []
    for number, cell in cells.items():
        most = max(_FEWEST_RECORDED, _ROUNDS_RECORDED // (len(cells) * shown.stop))
        n = min(scenario.view.lines[number]["replications"], _MOST_RECORDED, most)
        at_once = max(1, _ROUNDS_AT_ONCE // shown.stop)
        until_shown = replace(cell, rounds=shown.stop)  # a round knows nothing of later ones
        recorded = [
            rounds_of(until_shown, some, draws.seed, draws.generator)
            for some in np.split(draws.indices(0, n), range(at_once, n, at_once))
        ]
        calls, useful, queued = (
            np.concatenate([shown.mean(getattr(rounds, name)) for rounds in recorded])
            for name in ("calls", "successful", "queued")
        )
        shares = list(_SHARES.values())
        quantiles = np.quantile(calls, shares, axis=0, method="inverted_cdf")
        columns = {
            "cell": np.full(shown.n_steps, number, np.int32),
            "round": shown.start + shown.step * np.arange(shown.n_steps),
            "rounds": np.full(shown.n_steps, shown.step),
            "replications": np.full(shown.n_steps, n),
            "capacity": shown.mean(recorded[0].capacity),
            "useful": np.quantile(useful, 0.5, axis=0, method="inverted_cdf"),
            "queued": np.quantile(queued, 0.5, axis=0, method="inverted_cdf"),
        }
        frames.append(pl.DataFrame(columns | dict(zip(_SHARES, quantiles, strict=True))))
    return pl.concat(frames)


def peaks(scenario: Scenario, table: pl.DataFrame) -> list[tuple[int, float]]:
    """Each cell of a table of `curves` and the highest median of its calls per second."""
    highest = table.group_by("cell", maintain_order=True).agg(pl.col("median").max())
    lines = scenario.view.lines
    return [(cell, rate * lines[cell]["rounds_per_second"]) for cell, rate in highest.iter_rows()]


def _cells(scenario: Scenario, chosen: Sequence[int]) -> dict[int, Cell]:
    lines = scenario.view.results.cells.filter(pl.col("cell").is_in(chosen))
    cells = experiments.cells_of(lines)
    return {number: cells[number] for number in chosen}


def _drain(scenario: Scenario, chosen: Sequence[int]) -> float:
    """Rounds that the recovery takes in nearly all replications of all cells that are drawn."""
    of_chosen = scenario.view.results.scan_summary().filter(
        pl.col("cell").is_in(chosen), pl.col("metric") == "drain"
    )
    rounds = of_chosen.select(pl.col("p95").max()).collect().item()
    return float(rounds) if isinstance(rounds, int | float) else 0.0


# --- drawing --------------------------------------------------------------------------------------


def draw_curves(scenario: Scenario, table: pl.DataFrame) -> Drawing:
    """Draw a panel for each cell, all with the same axes and colour, from what `curves` gave.

    Where calls wait, useful work is drawn, too, and below the length of each queue.
    """
    cells = equally_long(_cells(scenario, scenario.chosen).values())
    panels = new_panels(
        [wrapped(scenario.marked(number), 28) for number in scenario.chosen],
        width=2.1,
        height=1.15,
        x_label=time_label(cells[0]),
        y_label="calls/s",
    )
    tops, drawn = [], []
    for panel, cell, number in zip(panels, cells, scenario.chosen, strict=True):
        per_second = cell.rounds_per_second
        line = table.filter(pl.col("cell") == number).with_columns(
            pl.col(*_SHARES, "capacity", "useful") * per_second
        )
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        highest, served = line["high_95"].to_numpy().max(), line["capacity"].to_numpy()
        tops.append(top_of_axis(highest, served, per_second))
        panel.set_xlim(edges[0], edges[-1])
        shade_fault(panel, cell)
        _draw_curve(panel, edges, line)
        if cell.queue:
            look: Any = {"color": SERIES[1], "linewidth": 1.4, "linestyle": DASHES[2]}
            panel.step(*_changes(edges, line["useful"]), where="post", label="useful work", **look)
        drawn.append((edges, served))
    for panel, (edges, served) in zip(panels, drawn, strict=True):
        panel.set_ylim(0, 1.1 * max(tops))
        draw_capacity(panel, edges, served, "/s" if panel is panels[0] else None)
        plain_numbers(panel.yaxis)
    with_queue = [n for n, cell in zip(scenario.chosen, cells, strict=True) if cell.queue]
    if with_queue:
        panels += _draw_queues(scenario, with_queue, table)
    return arrange(panels, min(3, len(panels)))


def _draw_queues(scenario: Scenario, chosen: Sequence[int], table: pl.DataFrame) -> list[Axes]:
    """A panel for each of the chosen cells: how many calls wait."""
    titles = [wrapped(f"{scenario.marked(number)}: queue", 28) for number in chosen]
    cells = equally_long(_cells(scenario, chosen).values())
    panels = new_panels(titles, 2.1, 0.7, x_label=time_label(cells[0]), y_label="calls")
    highest = float(table["queued"].to_numpy().max())
    for panel, cell, number in zip(panels, cells, chosen, strict=True):
        line = table.filter(pl.col("cell") == number)
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        panel.set_xlim(edges[0], edges[-1])
        panel.set_ylim(0, 1.1 * max(highest, 1.0))
        shade_fault(panel, cell)
        look: Any = {"color": SERIES[0], "linewidth": 1.6}
        panel.step(*_changes(edges, line["queued"]), where="post", **look)
        plain_numbers(panel.yaxis)
    return panels


def _draw_curve(panel: Axes, edges: NDArray[np.float64], line: pl.DataFrame) -> None:
    """Median and band of one cell, and how high the median rises."""
    if line["replications"][0] > 1:
        x, low, high = _changes(edges, line["low_95"], line["high_95"])
        look: Any = {"color": SERIES[0], "alpha": 0.25, "linewidth": 0}
        panel.fill_between(x, low, high, step="post", **look)
    median = line["median"].to_numpy()
    panel.step(*_changes(edges, median), where="post", color=SERIES[0], linewidth=1.6)
    peak = int(median.argmax())
    is_right = edges[peak] > (edges[0] + edges[-1]) / 2
    look = {"va": "bottom", "fontsize": 8, "fontweight": "bold", "color": SERIES[0]}
    look |= {"ha": "right" if is_right else "left"}
    panel.text(edges[peak], line["high_95"][peak], f"{short(median[peak])}/s", **look)


def _changes(edges: NDArray[np.float64], *columns: Any) -> list[NDArray[np.float64]]:
    """Where a step differs from the one before it, and the end of the last; x, then the values."""
    values = np.array(columns, np.float64)
    starts = np.flatnonzero((values[:, 1:] != values[:, :-1]).any(axis=0)) + 1
    return [edges[[0, *starts, -1]], *values[:, [0, *starts, -1]]]


def shade_fault(panel: Axes, cell: Cell) -> None:
    """Mark the fault window."""
    window = fault(cell)
    if window is not None:
        start, stop = ((t - window[0]) / cell.rounds_per_second for t in window)
        panel.axvspan(start, stop, color=SHADE, zorder=0, linewidth=0, label="fault")


def top_of_axis(highest: float, served: NDArray[np.float64], one: float) -> float:
    """Where the axis of calls ends: above the calls, and the capacity unless that is far above.

    `served` is the capacity of each step, `one` a single call in a round.
    """
    return 1.08 * float(max([highest, one, *served[served <= 3 * highest]]))


def draw_capacity(
    panel: Axes, edges: NDArray[np.float64], served: NDArray[np.float64], unit: str | None
) -> None:
    """Draw how many calls are served in each step, and write how many in the last of them.

    A capacity above the axis is only written. Without a unit nothing is written.
    """
    top = panel.get_ylim()[1]
    if served.min() <= top:
        look: Any = {"color": INK, "linewidth": 1.0, "linestyle": DASHES[1]}
        panel.step(*_changes(edges, served), where="post", **look)
    if unit is None:
        return
    look = {"ha": "right", "fontsize": 7.5, "color": MUTED}
    if served.max() > top:
        text = f"capacity {short(served.max())}{unit}, above the panel"
        panel.text(0.99, 0.97, text, transform=panel.transAxes, va="top", **look)
    else:
        text = f"capacity {short(served[-1])}{unit}"
        panel.text(edges[-1], served[-1], text, va="bottom", **look)


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
