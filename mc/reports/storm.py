"""The storm curve: calls per round over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import Cell
from mc.reports.style import (
    INK,
    LINES,
    MUTED,
    SERIES,
    SHADE,
    WIDTH,
    hide_unused,
    new_figure,
    short,
    wrapped,
)
from mc.reports.view import View
from mc.runner import rounds_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS: Final = 160
"""Points of a curve, at most: what a panel can show."""

_ROUNDS_AT_ONCE: Final = 4_000_000
"""Rounds that are in memory together: 64 MB."""

_SHARES: Final = {"low_95": 0.025, "low_50": 0.25, "median": 0.5, "high_50": 0.75, "high_95": 0.975}


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
        """Where the steps begin, and where the last ends, counted from the beginning of the fault.

        From the beginning of the run where there is no fault.
        """
        origin = cell.fault_start if fault(cell) else 0
        edges = self.start + self.step * np.arange(self.n_steps + 1)
        found: NDArray[np.float64] = (edges - origin) / cell.rounds_per_second
        return found

    def mean(self, per_round: NDArray[Any]) -> NDArray[np.float64]:
        """Mean over the rounds of each step, of the last axis."""
        cut = per_round[..., self.start : self.stop]
        found: NDArray[np.float64] = cut.reshape(*cut.shape[:-1], -1, self.step).mean(axis=-1)
        return found


def fault(cell: Cell) -> tuple[int, int] | None:
    """First round of the fault window and the one after its last; None without one in the run."""
    start, stop = cell.fault_start, min(cell.fault_start + cell.fault_rounds, cell.rounds)
    return (start, stop) if start < stop else None


def together(cells: Iterable[Cell]) -> list[Cell]:
    """Cells of one figure, each with as many rounds as the shortest of them.

    Only these rounds are shown; a fault that begins after them is none in the figure.
    """
    listed = list(cells)
    n_rounds = min(cell.rounds for cell in listed)
    return [replace(cell, rounds=n_rounds) for cell in listed]


def stretch(cells: Sequence[Cell], drain: float, most: int = _POINTS) -> Stretch:
    """Choose what to show: the fault window with what leads to it and the recovery.

    Parameters
    ----------
    cells : sequence of Cell
        Of one figure, see `together`.
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


def curves(view: View, scenario: str) -> pl.DataFrame:
    """Record every round of a subset of replications, and give what calls per round they have.

    Parameters
    ----------
    view : View
    scenario : str
        Its cells that are drawn, see `View.chosen`.

    Returns
    -------
    polars.DataFrame
        A line for each cell and step: `cell`, `round` (the first of the step), `rounds` (of the
        step), `replications` (how many there are of it), `capacity`, and of the calls per round,
        a mean over the step, the median and the ends of the middle 50 and 95 % of replications.
    """
    chosen = view.chosen(scenario)
    cells = [view.parameters(number) for number in chosen]
    shown = stretch(together(cells), _drain(view, chosen))
    frames = []
    for number, cell in zip(chosen, cells, strict=True):
        indices = view.indices(number)
        at_once = max(1, _ROUNDS_AT_ONCE // cell.rounds)
        calls = []
        for at in range(0, indices.size, at_once):
            rounds = rounds_of(
                cell, indices[at : at + at_once], view.source["seed"], view.source["generator"]
            )
            calls.append(shown.mean(rounds.calls))
        found = np.quantile(
            np.concatenate(calls), list(_SHARES.values()), axis=0, method="inverted_cdf"
        )
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
                | dict(zip(_SHARES, found, strict=True))
            )
        )
    return pl.concat(frames)


def _drain(view: View, cells: Sequence[int]) -> float:
    """Rounds of the recovery, of nearly all replications of all cells."""
    found = view.results.summary.filter(
        pl.col("cell").is_in(list(cells)), pl.col("metric") == "drain"
    )["p95"].max()
    return float(found) if isinstance(found, int | float) else 0.0


def draw_curves(view: View, scenario: str, table: pl.DataFrame) -> Figure:
    """Draw a panel for each cell, all with the same axes.

    Parameters
    ----------
    view, scenario
        As for `curves`.
    table : polars.DataFrame
        What `curves` gave.

    Returns
    -------
    Figure
    """
    chosen = view.chosen(scenario)
    n_columns = 1 if len(chosen) == 1 else 2
    n_rows = -(-len(chosen) // n_columns)
    figure = new_figure(WIDTH + 1.2, 1.0 + 1.95 * n_rows)
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.ravel())
    hide_unused(panels, len(chosen))
    lines = {number: table.filter(pl.col("cell") == number) for number in chosen}
    first = lines[chosen[0]]
    cells = together(view.parameters(number) for number in chosen)
    for i, (number, cell, panel) in enumerate(zip(chosen, cells, panels, strict=False)):
        line = lines[number]
        n_steps = line.height
        edges = Stretch(line["round"][0], n_steps, line["rounds"][0]).seconds(cell)
        shade(panel, cell)
        color = SERIES[i % len(SERIES)]
        several = line["replications"][0] > 1
        if several:
            for low, high, alpha, label in (
                ("low_95", "high_95", 0.22, "95 % of replications"),
                ("low_50", "high_50", 0.45, "50 % of replications"),
            ):
                panel.fill_between(
                    edges,
                    _closed(line[low]),
                    _closed(line[high]),
                    step="post",
                    color=color,
                    alpha=alpha,
                    linewidth=0,
                    label=label,
                )
        if i > 0:
            panel.step(
                edges,
                _closed(first["median"]),
                where="post",
                color=MUTED,
                linewidth=0.9,
                linestyle=LINES[2],
                label=f"{'median' if several else 'calls'} of the first panel",
            )
        panel.step(
            edges,
            _closed(line["median"]),
            where="post",
            color=color,
            linewidth=1.6,
            label="median" if several else "calls",
        )
        draw_capacity(panel, edges, cell, float(table["high_95"].to_numpy().max()))
        panel.set_title(wrapped(view.marked(number), 40 if n_columns == 2 else 84))
        # each panel can be read alone: on a narrow page they stand below one another
        panel.tick_params(labelbottom=True, labelleft=True)
        _per_second(panel, cell)
    for panel in panels[: len(chosen)][-n_columns:]:
        panel.set_xlabel(time_label(cells[0]))
    step = first["rounds"][0]
    per = "calls/round" if step == 1 else f"calls/round,\nmean of {step} rounds"
    for panel in panels[: len(chosen)]:
        panel.set_ylabel(per)
    curves_legend(figure, panels[min(1, len(chosen) - 1)])
    return figure


def _per_second(panel: Axes, cell: Cell) -> None:
    """The same calls in a second, on an axis at the right."""
    right = panel.secondary_yaxis(
        "right",
        functions=(
            lambda y: np.asarray(y) * cell.rounds_per_second,
            lambda y: np.asarray(y) / cell.rounds_per_second,
        ),
    )
    right.set_ylabel("calls/s")
    right.yaxis.set_major_formatter(lambda value, _: short(value))


def _closed(values: pl.Series) -> NDArray[Any]:
    """A value for the end of the last step, too."""
    found = values.to_numpy()
    return np.append(found, found[-1])


def shade(panel: Axes, cell: Cell) -> None:
    """Mark the fault window."""
    window = fault(cell)
    if window is None:
        return
    start, stop = ((t - window[0]) / cell.rounds_per_second for t in window)
    panel.axvspan(start, stop, color=SHADE, zorder=0, linewidth=0, label="fault")


def draw_capacity(panel: Axes, edges: NDArray[np.float64], cell: Cell, highest: float) -> None:
    """Draw what is served, and end the axis where the calls do.

    A capacity that is far above is given in words.
    """
    window = fault(cell)
    served = np.array([cell.capacity])
    at = edges[[0]]
    if window is not None:
        served = np.array([cell.capacity, cell.fault_capacity, cell.capacity])
        at = np.append(at, (np.array(window) - window[0]) / cell.rounds_per_second)
    top = max([highest, 1.0, *served[served <= 3 * highest]])
    panel.set_ylim(0, 1.08 * top)
    if served.min() <= 1.08 * top:
        panel.step(
            np.append(at, edges[-1]),
            np.append(served, served[-1]),
            where="post",
            color=INK,
            linewidth=1.0,
            linestyle=LINES[1],
            label="capacity",
        )
    if served.max() > 1.08 * top:
        panel.annotate(
            f"capacity {short(served.max())}, above the panel",
            (0.99, 0.97),
            xycoords="axes fraction",
            ha="right",
            va="top",
            fontsize=7.5,
            color=MUTED,
        )


def time_label(cell: Cell) -> str:
    """What the axis of time counts from."""
    return "seconds since the fault began" if fault(cell) else "seconds"


def curves_legend(figure: Figure, panel: Axes) -> None:
    """One legend for all panels, in the colour of the one that it is taken from."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
