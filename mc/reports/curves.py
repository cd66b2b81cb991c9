"""Calls over time: which rounds are shown, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.experiment import cells_of
from mc.model import Cell, Column
from mc.store import Results

_MOST_STEPS: Final = 160
"""Steps of a curve: what a panel can show."""

_ROUNDS_AT_ONCE: Final = 4_000_000
"""Rounds that are in memory together: 64 MB."""

STORM_DATA: Final = "figures/storm.parquet"
"""Where the table that `curves` makes is kept."""

SHARES: Final = {"low_95": 0.025, "median": 0.5, "high_95": 0.975}


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


def choose_stretch(
    cells: Sequence[Cell], drain: float, recovery: float = 0, most: int = _MOST_STEPS
) -> Stretch:
    """Choose what to show: the fault window, what leads up to it, and the recovery.

    At most `most` steps of equal length, one of which begins with the first fault window of the
    cells, which are `equally_long`; after the window the last retry takes `drain` rounds, of which
    the end may be left out, and a service that comes back `recovery`. Without a window the whole
    run.
    """
    n_rounds = cells[0].rounds
    windows = [window for window in map(fault, cells) if window is not None]
    start, stop, first = 0, n_rounds, 0
    if windows:
        first, last = min(w[0] for w in windows), max(w[1] for w in windows)
        length = last - first
        after = min(max(1.3 * drain, length / 2, 20), 3 * length + 200)
        stop = min(n_rounds, last + int(max(after, 1.1 * recovery)))
        start = max(0, first - max(length // 4, 10, (stop - first) // 20))
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
    "worst_second": Column("float", "calls", "calls of the worst second: mean over replications"),
    "calm_requests": Column("int64", "requests", "requests before the fault, in all recorded"),
    "calm_dropped": Column("int64", "requests", "of these given up before it"),
    **{
        name: Column(
            "float", "calls/round", f"calls: {100 * share:g} % of replications have no more"
        )
        for name, share in SHARES.items()
    },
}
"""Columns of the table that `curves` makes; each number is the mean over the rounds of the step,
but for those of the whole cell, which are the same in all its lines."""


# --- the curves -----------------------------------------------------------------------------------


def curves(results: Results, chosen: Sequence[int]) -> pl.DataFrame:
    """Record every round of some replications, and summarise their calls per round.

    Parameters
    ----------
    results : Results
    chosen : sequence of int
        Cells of one scenario.

    Returns
    -------
    polars.DataFrame
        A line for each of the cells and each step, with `CURVE_COLUMNS`.
    """
    # this takes a second, and the table may be there
    from mc.runner import Draws, most_recorded, rounds_of

    lines = results.cells.filter(pl.col("cell").is_in(chosen))
    replications = dict(lines.select("cell", "replications").iter_rows())
    every = cells_of(lines)
    cells = {number: every[number] for number in chosen}
    drain, recovery = (_longest(results, chosen, metric) for metric in ("drain", "recovery"))
    shown = choose_stretch(equally_long(cells.values()), drain, recovery)
    draws = Draws.of(results.manifest["experiment"])
    most = most_recorded(len(cells) * shown.stop)
    at_once = max(1, _ROUNDS_AT_ONCE // shown.stop)
    frames = []
    for number, cell in cells.items():
        n = min(replications[number], most)
        until_shown = replace(cell, rounds=shown.stop)  # a round knows nothing of later ones
        recorded = [
            rounds_of(until_shown, some, draws.seed, draws.generator)
            for some in np.split(draws.indices(0, n), range(at_once, n, at_once))
        ]
        calls, useful, queued = (
            np.concatenate([shown.mean(getattr(rounds, name)) for rounds in recorded])
            for name in ("calls", "successful", "queued")
        )
        shares = list(SHARES.values())
        quantiles = np.quantile(calls, shares, axis=0, method="inverted_cdf")
        calm = (fault(cell) or (0,))[0]
        worst = [_worst_second(rounds.calls, cell.rounds_per_second) for rounds in recorded]
        arrived, dropped = (
            sum(int(getattr(rounds, name)[:, :calm].sum()) for rounds in recorded)
            for name in ("primary", "dropped")
        )
        columns = {
            "cell": np.full(shown.n_steps, number, np.int32),
            "round": shown.start + shown.step * np.arange(shown.n_steps),
            "rounds": np.full(shown.n_steps, shown.step),
            "replications": np.full(shown.n_steps, n),
            "capacity": shown.mean(recorded[0].capacity),
            "useful": np.quantile(useful, 0.5, axis=0, method="inverted_cdf"),
            "queued": np.quantile(queued, 0.5, axis=0, method="inverted_cdf"),
            "worst_second": np.full(shown.n_steps, np.concatenate(worst).mean()),
            "calm_requests": np.full(shown.n_steps, arrived),
            "calm_dropped": np.full(shown.n_steps, dropped),
        }
        frames.append(pl.DataFrame(columns | dict(zip(SHARES, quantiles, strict=True))))
    return pl.concat(frames)


def _worst_second(calls: NDArray[np.int32], per_second: float) -> NDArray[np.int64]:
    """Of each replication the most calls in a second, or in a round if that is longer."""
    starts = np.arange(0, calls.shape[1], max(1, round(per_second)))
    return np.asarray(np.add.reduceat(calls, starts, axis=1, dtype=np.int64).max(axis=1))


def _longest(results: Results, chosen: Sequence[int], metric: str) -> float:
    """Rounds that it takes in nearly all replications of all cells that are drawn.

    Where it is not known of all of them, in half of them; else 0.
    """
    of_chosen = results.scan_summary().filter(
        pl.col("cell").is_in(chosen), pl.col("metric") == metric
    )
    rounds = of_chosen.select(pl.coalesce("p95", "median").max()).collect().item()
    return float(rounds) if isinstance(rounds, int | float) else 0.0
