"""The storm curve: calls per round over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import Cell
from mc.reports.notation import short
from mc.reports.panels import Drawing, arrange, legend, new_panels, wrapped
from mc.reports.style import DASHES, INK, MUTED, SERIES, SHADE
from mc.reports.view import View
from mc.runner import rounds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STEPS: Final = 160
"""Steps of a curve: what a panel can show."""

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
        origin = cell.fault_start if fault(cell) else 0
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
    start, stop = cell.fault_start, min(cell.fault_start + cell.fault_rounds, cell.rounds)
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

    Parameters
    ----------
    cells : sequence of Cell
        Of one figure, see `equally_long`.
    drain : float
        Rounds after the window that the recovery takes.
    most : int
        Steps.

    Returns
    -------
    Stretch
        At most `most` steps of equal length, one of which begins with the first fault window.
        Without a window the whole run.
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


def curves(view: View, scenario: str) -> pl.DataFrame:
    """Record every round of some replications, and summarise their calls per round.

    Parameters
    ----------
    view : View
    scenario : str
        Its cells that are drawn, see `View.chosen`.

    Returns
    -------
    polars.DataFrame
        A line for each cell and step: `cell`, `round` (the first of the step), `rounds` (of the
        step), `replications` (how many were recorded), `capacity`, and of the calls per round,
        averaged over the step, the median and the ends of the middle 50 and 95 % of replications.
    """
    chosen, source = view.chosen(scenario), view.source
    cells = [view.parameters(number) for number in chosen]
    shown = choose_stretch(equally_long(cells), _drain(view, chosen))
    until_shown = [replace(cell, rounds=shown.stop) for cell in cells]  # a round knows no later one
    frames = []
    for number, cell in zip(chosen, until_shown, strict=True):
        indices = view.indices(number)
        at_once = max(1, _ROUNDS_AT_ONCE // cell.rounds)
        calls = []
        for first in range(0, indices.size, at_once):
            some = indices[first : first + at_once]
            rounds = rounds_of(cell, some, source["seed"], source["generator"])
            calls.append(shown.mean(rounds.calls))
        n = shown.n_steps
        frames.append(
            pl.DataFrame(
                {
                    "cell": np.full(n, number, np.int32),
                    "round": shown.start + shown.step * np.arange(n),
                    "rounds": np.full(n, shown.step),
                    "replications": np.full(n, indices.size),
                    "capacity": shown.mean(rounds.capacity),
                }
                | _quantiles(np.concatenate(calls))
            )
        )
    return pl.concat(frames)


def _quantiles(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Of each column: values that occurred."""
    shares = list(_SHARES.values())
    quantiles = np.quantile(values, shares, axis=0, method="inverted_cdf")
    return dict(zip(_SHARES, quantiles, strict=True))


def _drain(view: View, cells: Sequence[int]) -> float:
    """Rounds that the recovery takes in nearly all replications of all cells."""
    rounds = view.results.summary.filter(
        pl.col("cell").is_in(list(cells)), pl.col("metric") == "drain"
    )["p95"].max()
    return float(rounds) if isinstance(rounds, int | float) else 0.0


# --- drawing --------------------------------------------------------------------------------------


def draw_curves(view: View, scenario: str, table: pl.DataFrame) -> Drawing:
    """Draw a panel for each cell, all with the same axes.

    Parameters
    ----------
    view, scenario
        As for `curves`.
    table : polars.DataFrame
        What `curves` gave.

    Returns
    -------
    Drawing
    """
    chosen = view.chosen(scenario)
    cells = equally_long(view.parameters(number) for number in chosen)
    lines = [table.filter(pl.col("cell") == number) for number in chosen]
    step, highest = table["rounds"][0], float(table["high_95"].to_numpy().max())
    n_columns = 1 if len(chosen) == 1 else 2
    panels = new_panels(
        [wrapped(view.marked(number), 40) for number in chosen],
        width=2.8,
        height=1.35,
        right=0.7,
        x_label=time_label(cells[0]),
        y_label="calls/round" if step == 1 else f"calls/round,\nmean of {step} rounds",
    )
    top = max(top_of_axis(cell, highest) for cell in cells)
    for i, (panel, cell, line) in enumerate(zip(panels, cells, lines, strict=True)):
        edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
        panel.set_xlim(edges[0], edges[-1])
        panel.set_ylim(0, top)
        shade_fault(panel, cell)
        _draw_curve(panel, edges, line, SERIES[i % len(SERIES)], lines[0] if i > 0 else None)
        draw_capacity(panel, edges, cell)
        _write_per_second(panel, cell)
    return arrange(panels, n_columns, legend(panels[:2]))


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


def _capacities(cell: Cell) -> list[float]:
    return [cell.capacity, cell.fault_capacity, cell.capacity] if fault(cell) else [cell.capacity]


def top_of_axis(cell: Cell, highest: float) -> float:
    """Where the axis of calls ends: above the calls, and the capacity unless that is far above."""
    return 1.08 * max([highest, 1.0, *(c for c in _capacities(cell) if c <= 3 * highest)])


def draw_capacity(panel: Axes, edges: NDArray[np.float64], cell: Cell) -> None:
    """Draw how many calls are served; a capacity above the axis is put into words."""
    window, served, top = fault(cell), np.array(_capacities(cell)), panel.get_ylim()[1]
    starts = edges[:1]
    if window is not None:
        starts = np.append(starts, (np.array(window) - window[0]) / cell.rounds_per_second)
    if served.min() <= top:
        panel.step(
            np.append(starts, edges[-1]),
            np.append(served, served[-1]),
            where="post",
            color=INK,
            linewidth=1.0,
            linestyle=DASHES[1],
            label="capacity",
        )
    if served.max() > top:
        text = f"capacity {short(served.max())}, above the panel"
        look: Any = {"transform": panel.transAxes, "ha": "right", "va": "top", "color": MUTED}
        panel.text(0.99, 0.97, text, fontsize=7.5, **look)


def time_label(cell: Cell) -> str:
    """From what the axis of time counts."""
    return "seconds since the fault began" if fault(cell) else "seconds"
