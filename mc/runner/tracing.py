"""`trace`: replications round by round, which `simulate` adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import kernel
from mc.experiment import Experiment, ExperimentError, Point
from mc.experiment.messages import hint, quote, tries_text
from mc.model import Cell, Generator, has_entries
from mc.model.digits import axis_text, is_axis_value, is_entry_value, value_text
from mc.runner.simulation import Draws, check_cells, chosen_indices, plan_blocks, simulate_alone

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRACE_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "cell": ("", "number of the cell"),
    "replication": ("", "number of the replication"),
    "seed": ("", "seed of the replication, with the lesson's generator only"),
    "round": ("rounds", "number of the round, from 0"),
    "calls": (
        "calls",
        "calls of the round: primary + retries, and, without a queue, successful + failed",
    ),
    "primary": ("calls", "first attempts, one for each request that arrives and is not rejected"),
    "retries": ("calls", "all other attempts"),
    "successful": ("calls", "calls that succeeded"),
    "failed": (
        "calls",
        "calls that failed: for want of capacity, though served, or given up in the queue",
    ),
    "dropped": ("requests", "requests given up"),
    "capacity": ("calls", "calls that the dependency serves"),
    "waiting": (
        "requests",
        "requests that wait for a retry at the end of the round, or whose retry is in the queue",
    ),
    "queued": ("calls", "calls in the queue at the end of the round"),
}
"""Unit and meaning of the columns of `trace`."""


@dataclass(frozen=True)
class Rounds:
    """What happens in each round of R replications of one cell.

    Attributes
    ----------
    primary, retries, successful, failed, dropped : ndarray of int32, shape (R, T)
        Calls that are first attempts, that are not, that succeed, that fail, and requests that are
        given up. Where there is a queue a call may succeed or fail in a later round.
    waiting : ndarray of int32, shape (R, T)
        Requests that wait for a retry at the end of the round, or whose retry waits in the queue.
    queued : ndarray of int32, shape (R, T)
        Calls in the queue at the end of the round.
    capacity : ndarray of int32, shape (T,)
        Calls that the dependency serves.
    """

    primary: NDArray[np.int32]
    retries: NDArray[np.int32]
    successful: NDArray[np.int32]
    failed: NDArray[np.int32]
    dropped: NDArray[np.int32]
    waiting: NDArray[np.int32]
    queued: NDArray[np.int32]
    capacity: NDArray[np.int32]

    @property
    def calls(self) -> NDArray[np.int32]:
        """Calls of each round."""
        return self.primary + self.retries


_MOST_RECORDED: Final = 300
"""Replications of which a figure of the page shows every round."""

_ROUNDS_RECORDED: Final = 20_000_000
_FEWEST_RECORDED: Final = 5
"""Of long replications fewer are recorded: no more than so many rounds in all cells together, no
fewer replications."""


def most_recorded(n_rounds: int) -> int:
    """Of how many replications every round is recorded, if one has so many in all cells."""
    return min(_MOST_RECORDED, max(_FEWEST_RECORDED, _ROUNDS_RECORDED // n_rounds))


def rounds_of(
    cell: Cell, indices: NDArray[np.int64], seed: int, generator: Generator = "philox"
) -> Rounds:
    """Simulate some replications of a cell and keep every round: 28 bytes each.

    Parameters
    ----------
    cell : Cell
        The cell, T rounds.
    indices : ndarray of int64, shape (R,)
        Replication indices (`philox`) or seeds (`lesson`).
    seed : int
        The experiment's seed; `lesson` does not use it.
    generator : {"philox", "lesson"}
        Which draws.

    Returns
    -------
    Rounds
    """
    (block,) = plan_blocks({0: cell}, generator)
    record = np.empty((indices.size, 1, kernel.N_RECORDED, cell.rounds), np.int32)
    simulate_alone(block, indices, seed, record)
    return Rounds(
        primary=record[:, 0, kernel.ROUND_PRIMARY],
        retries=record[:, 0, kernel.ROUND_RETRIES],
        successful=record[:, 0, kernel.ROUND_SUCCESSFUL],
        failed=record[:, 0, kernel.ROUND_FAILED],
        dropped=record[:, 0, kernel.ROUND_DROPPED],
        waiting=record[:, 0, kernel.ROUND_PENDING],
        queued=record[:, 0, kernel.ROUND_WAITING],
        capacity=block.tables.capacities[0],
    )


def trace(
    cells: Cell | Sequence[Cell],
    replications: int | Sequence[int] | None = None,
    seed: int = 20260802,
    generator: Generator = "philox",
    seeds: Sequence[int] | None = None,
) -> pl.DataFrame:
    """Simulate cells and return what happens round by round.

    Parameters
    ----------
    cells : Cell or sequence of Cell
        What to simulate.
    replications : int or sequence of int, optional
        How many (indices 0, 1, ...), or the indices themselves. Default 1, or the number of
        `seeds`. Each has `rounds` lines of 92 bytes (100 with `lesson`).
    seed, generator, seeds
        As for `simulate`: the rows of a replication sum up to its counters there.

    Returns
    -------
    polars.DataFrame
        One line for each (cell, replication, round), sorted: `cell` (index into `cells`),
        `replication`, `seed` (with `lesson`), `round`, then `calls`, `primary`, `retries`,
        `successful`, `failed`, `dropped`, `capacity`, `waiting`, `queued`, see
        `TRACE_COLUMNS`.

    Raises
    ------
    ValueError, TypeError
        As for `simulate`.

    Examples
    --------
    >>> import mc
    >>> cell = mc.Cell(fault_rounds=100, tries=(3, 3, 3))
    >>> rounds = mc.trace(cell, replications=[7])
    >>> rounds.height
    4000
    >>> rounds["calls"].max() == mc.simulate([cell], [7])["peak"].item()
    True
    """
    chosen = [cells] if isinstance(cells, Cell) else cells
    check_cells(chosen, generator)
    if replications is None and seeds is None:
        replications = 1
    names, indices = chosen_indices(replications, seed, generator, seeds)
    return _frame(dict(enumerate(chosen)), names, indices, int(seed), generator)


def trace_points(
    experiment: Experiment, points: Sequence[Point], replications: Sequence[int]
) -> pl.DataFrame:
    """Simulate some cells of an experiment round by round, with the draws of a run of it.

    Returns what `trace` returns, where `cell` is the number of the cell in the experiment.
    """
    names = np.array(replications, np.int64)
    indices = Draws.of(experiment.source).indices(0, int(names.max()) + 1)[names]
    cells = {point.cell: point.parameters for point in points}
    return _frame(cells, names, indices, experiment.seed, experiment.generator)


def choose(
    experiment: Experiment,
    scenario: str | None = None,
    policy: str | None = None,
    at: Mapping[str, str] | None = None,
) -> list[Point]:
    """Choose the cells of an experiment that have a scenario, a policy and values on other axes.

    Parameters
    ----------
    experiment : Experiment
        As `mc.experiment.read` returns it.
    scenario, policy : str, optional
        Names.
    at : mapping of str to str, optional
        Values by parameter, written as tables show them: ``{"budget": "none"}``.

    Returns
    -------
    list of Point
        At least one, in the order of the experiment.

    Raises
    ------
    ExperimentError
        There is no such cell; the message names what there is.
    """
    points = list(experiment.points)
    for name, wanted in {"scenario": scenario, "policy": policy, **(at or {})}.items():
        if wanted is None:
            continue
        source = experiment.source
        axis, _, entry = name.partition(".")
        options = {point.cell: _written(source, point, axis) for point in points}
        points = [
            point
            for point in points
            if (not entry and _same(options[point.cell], wanted))
            or (axis in point.at and _is_meant(source, axis, point.at[axis], entry, wanted))
        ]
        if not points:
            known = [text for text in dict.fromkeys(options.values()) if text is not None]
            option = f"--{name}" if name in ("scenario", "policy") else f"--at: {name}"
            what = f"{quote(wanted)} does not exist" if known else "is no axis"
            raise ExperimentError([f"{experiment.path}: {option} {what}{hint(wanted, known)}"])
    return points


def _is_meant(source: Mapping[str, Any], name: str, value: object, entry: str, wanted: str) -> bool:
    """Whether a text means a value on an axis, or an entry of it."""
    if entry and has_entries(name):
        return is_entry_value(source, name, value, entry, wanted)
    return not entry and is_axis_value(source, name, value, wanted)


def _same(written: str | None, wanted: str) -> bool:
    """Whether two texts mean the same value: 8 is 8.0, [3, 3] is 3x3."""
    try:
        number = float(wanted)
        # a value made by a range has up to 17 digits, of which six are written
        return written is not None and float(written) in (number, float(value_text(number)))
    except ValueError:
        return written is not None and tries_text(written) == tries_text(wanted)


def _written(source: Mapping[str, Any], point: Point, name: str) -> str | None:
    """The value of a cell on an axis, as a text; None where there is no such axis."""
    if name in ("scenario", "policy"):
        return str(getattr(point, name))
    return axis_text(source, name, point.at[name]) if name in point.at else None


def _frame(
    cells: Mapping[int, Cell],
    names: NDArray[np.int64],
    indices: NDArray[np.int64],
    seed: int,
    generator: Generator,
) -> pl.DataFrame:
    """Simulate cells one after another, and join their rounds."""
    frames = []
    for number, cell in cells.items():
        rounds = rounds_of(cell, indices, seed, generator)
        n, n_rounds = rounds.calls.shape
        columns: dict[str, Any] = {
            "cell": np.full(n * n_rounds, number, np.int32),
            "replication": np.repeat(names, n_rounds),
        }
        if generator == "lesson":
            columns["seed"] = np.repeat(indices, n_rounds)
        columns["round"] = np.tile(np.arange(n_rounds), n)
        for name in ("calls", "primary", "retries", "successful", "failed", "dropped"):
            columns[name] = getattr(rounds, name).ravel().astype(np.int64)
        columns["capacity"] = np.tile(rounds.capacity.astype(np.int64), n)
        columns["waiting"] = rounds.waiting.ravel().astype(np.int64)
        columns["queued"] = rounds.queued.ravel().astype(np.int64)
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)
