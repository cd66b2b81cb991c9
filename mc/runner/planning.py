"""What a run will cost, found out without writing anything: a little of it is done and timed."""

from __future__ import annotations

import itertools
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment
from mc.runner.again import continued, is_finished
from mc.runner.expecting import Expected, expect
from mc.runner.folder import results_folder
from mc.runner.making import kernel_input
from mc.runner.stock import Ranges, as_tasks, take_stock
from mc.runner.tasks import Task, cut, n_threads, plan_blocks, rows_of, simulate_block
from mc.store import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

CALIBRATION_SECONDS: Final = 0.2
"""How long rows are made to see how long they take."""

_PIECE_SECONDS: Final = 0.01
_SECONDS_PER_ROUND: Final = 1e-9
"""A first guess, for a round and for a request: it only fixes how large the pieces are that are
timed, about `_PIECE_SECONDS`."""

_PIECE_REPLICATIONS: Final = 4
"""The first replication of a call takes longer: the kernel has to find room, and the caches fill.
With one replication time would be a quarter too long, with four a twentieth."""

_SAMPLE_ROWS: Final = 8000
"""Rows that are coded to see how many bytes they take, and ..."""

_SAMPLE_PLACES: Final = 4
"""... places in the run they are from."""

_ROWS_OF_A_CELL: Final = 125
"""Of each cell as many as stand together in a shard, or this. Numbers are coded in blocks of 128:
if there were as many, cells that are alike would take far less than in a run."""

_FOOTER_BYTES: Final = 26
"""What a shard says of each of its cells: number and identity, as JSON."""

_TABLE_ROWS: Final = 16_384
"""Rows of which tables are made to see how long it takes."""

_GOLDEN: Final = (5**0.5 - 1) / 2
"""Its multiples modulo 1 spread evenly over the unit interval, however many there are."""


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes
    ----------
    title : str
        Of the experiment.
    folder : Path
        Where its results go.
    n_cells, replications : int
        Their product is the number of rows.
    n_rows, n_done : int
        Rows in all, and those of them that are there.
    n_shards : int
        Files that will hold the rows, those that are there included.
    n_bytes : int
        Their size in the end with that of the tables, estimated.
    n_bytes_there : int
        Size of the shards that are there.
    core_seconds : float
        Time on one core for the rows that are missing, estimated.
    table_seconds : float
        Time for the tables, which are made by one core at the end, estimated.
    jobs : int
        Threads.
    n_cores : int
        Of the threads those that can run at once.
    finished : bool
        Whether nothing is left to do.
    at_most : bool
        Whether cells may stop before all their replications, because they are precise.
    """

    title: str
    folder: Path
    n_cells: int
    replications: int
    n_rows: int
    n_done: int
    n_shards: int
    n_bytes: int
    n_bytes_there: int
    core_seconds: float
    table_seconds: float
    jobs: int
    n_cores: int
    finished: bool
    at_most: bool

    @property
    def most(self) -> str:
        """What to say before numbers that may turn out smaller."""
        return "at most " if self.at_most else ""

    @property
    def n_missing(self) -> int:
        """Rows that the run will make."""
        return self.n_rows - self.n_done

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.core_seconds / self.n_cores + self.table_seconds


def plan(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
) -> Plan:
    """Find out what `run` would do with the same arguments, and how long it would take.

    About half a second of the run is done for it, here and there in the grid; nothing is written.

    Parameters
    ----------
    file, out, replications, seed, jobs, overrides, force
        See `run`.

    Returns
    -------
    Plan

    Raises
    ------
    ExperimentError, FolderError, TypeError, ValueError
        As `run` would, except that a folder in use is no hindrance.
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    jobs = n_threads(jobs)
    folder = results_folder(experiment, out)
    experiment, shards, ranges, finished = _what_is_missing(experiment, folder, force)
    missing = as_tasks(experiment, ranges)
    tasks = cut(missing)
    n_cores = min(jobs, n_threads(None))
    there = sum(shard.n_bytes for shard in shards)
    kernel_seconds, saving = (0.0, 0.0), _Saving()
    if missing:
        kernel_seconds = _time_kernel(experiment, missing, n_cores)
    if not finished:
        saving = _time_saving(experiment, missing, tasks)
    n_cells, n_rows = len(experiment.points), sum(task.n_rows for task in tasks)
    n_done = sum(shard.n_rows for shard in shards)
    if experiment.keep == "rows":
        of_shards = _of_rows(tasks, kernel_seconds, saving)
        table_seconds = saving.table_seconds * n_cells * experiment.replications
    elif finished:
        of_shards, table_seconds = Expected(0, 0.0, 0.0), 0.0
    else:
        of_shards, table_seconds = expect(experiment, ranges, shards, kernel_seconds)
    return Plan(
        title=experiment.title,
        folder=folder,
        n_cells=n_cells,
        replications=experiment.replications,
        n_rows=n_done + n_rows,
        n_done=n_done,
        n_shards=len(shards) + of_shards.n_shards,
        n_bytes=round(there + of_shards.n_bytes + saving.cell_bytes * n_cells),
        n_bytes_there=there,
        core_seconds=of_shards.seconds,
        table_seconds=table_seconds,
        jobs=jobs,
        n_cores=n_cores,
        finished=finished,
        at_most=experiment.precision is not None and not finished,
    )


def _what_is_missing(
    experiment: Experiment, folder: Path, force: bool
) -> tuple[Experiment, list[Shard], Ranges, bool]:
    """The experiment as the folder numbers its cells; shards, ranges, and whether all is done."""
    manifest = store.look(folder, any_version=force)
    wanted = {(0, experiment.replications): [point.cell for point in experiment.points]}
    if force or manifest is None:
        return experiment, [], wanted, False
    if is_finished(experiment, manifest, folder):
        finished = continued(experiment, manifest, folder)
        return finished, take_stock(finished, folder).shards, {}, True
    experiment = continued(experiment, manifest, folder)
    stock = take_stock(experiment, folder)
    return experiment, stock.shards, stock.missing(wanted), False


@dataclass(frozen=True)
class _Saving:
    """Mean cost of one of each.

    Attributes
    ----------
    save_seconds, table_seconds : float
        To code a row; for each row, to make the tables of the results.
    shard_bytes, row_bytes, cell_bytes : float
        On disk: of a shard without its rows; of a row; of a cell in all tables.
    """

    save_seconds: float = 0.0
    table_seconds: float = 0.0
    shard_bytes: float = 0.0
    row_bytes: float = 0.0
    cell_bytes: float = 0.0


def _of_rows(
    tasks: Sequence[Task], kernel_seconds: tuple[float, float], saving: _Saving
) -> Expected:
    """What it costs to make and to keep rows; `kernel_seconds` as `_time_kernel` gives it."""
    n_rows, n_blocks = sum(t.n_rows for t in tasks), sum(len(t.blocks) for t in tasks)
    row_seconds, block_seconds = kernel_seconds
    return Expected(
        n_shards=len(tasks),
        n_bytes=saving.shard_bytes * len(tasks) + saving.row_bytes * n_rows,
        seconds=(row_seconds + saving.save_seconds) * n_rows + block_seconds * n_blocks,
    )


def _time_kernel(
    experiment: Experiment, missing: Sequence[Task], n_cores: int
) -> tuple[float, float]:
    """Do a little of what is missing on all cores, and time it.

    Returns
    -------
    row_seconds, block_seconds : float
        On one core: to make a row; to make the tables that the kernel reads of a block.

    Notes
    -----
    The rows are chosen at even distances in the run, and so each part of the grid has the share
    that it has of the rows; the mean time of a chosen row then estimates that of all (Hansen and
    Hurwitz 1943). All cores are kept busy, because they share what they have; time is that of
    each thread, so that what else the machine has to do does not count.
    """
    given = _kernel_input(experiment)
    ends = list(itertools.accumulate(task.n_rows for task in missing))
    places = itertools.count()
    deadline = time.perf_counter() + CALIBRATION_SECONDS

    def time_pieces(worker: int) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        while not found or time.perf_counter() < deadline:
            share = (next(places) + 0.5) * _GOLDEN % 1.0
            task = missing[bisect_right(ends, int(share * ends[-1]))]
            found.append(_time_piece(task, given, experiment.seed, share))
        return found

    with ThreadPoolExecutor(n_cores) as pool:
        timed = [pair for pairs in pool.map(time_pieces, range(n_cores)) for pair in pairs]
    row_seconds, block_seconds = (sum(column) / len(timed) for column in zip(*timed, strict=True))
    return row_seconds, block_seconds


def _time_piece(
    task: Task, given: Callable[[int, int], NDArray[np.int64]], seed: int, share: float
) -> tuple[float, float]:
    """Time a few rows of a block; give the seconds for one, and for the tables of the block."""
    (block,) = task.blocks
    cell = block.cells[0]
    guess = _SECONDS_PER_ROUND * cell.rounds * (1 + cell.rate_per_round)
    n = int(_PIECE_SECONDS / guess)
    n_cells = min(max(1, n // _PIECE_REPLICATIONS), len(block.ids))
    some = [i * len(block.ids) // n_cells for i in range(n_cells)]
    ids, cells = tuple(block.ids[i] for i in some), tuple(block.cells[i] for i in some)
    piece = replace(block, ids=ids, cells=cells)
    n_rows = min(max(1, n // n_cells), task.stop - task.start)
    start = task.start + int(share * (task.stop - task.start - n_rows + 1))
    moments = [time.thread_time()]
    _ = piece.tables
    moments.append(time.thread_time())
    simulate_block(piece, given(start, start + n_rows), seed)
    moments.append(time.thread_time())
    return (moments[2] - moments[1]) / (n_rows * n_cells), moments[1] - moments[0]


def _time_saving(experiment: Experiment, missing: Sequence[Task], tasks: Sequence[Task]) -> _Saving:
    """Make a shard and tables of a few cells in memory."""
    from mc import statistics

    # where only the tables are missing, of all rows
    start, stop = tasks[0].range if tasks else (0, experiment.replications)
    stop = min(stop, start + _ROWS_OF_A_CELL)
    n_neighbours = max(1, _SAMPLE_ROWS // _SAMPLE_PLACES // (stop - start))
    chosen = [i for task in missing for i in task.ids] or [p.cell for p in experiment.points]
    # Neighbours, because they are often alike and then take less together; not at equal distances,
    # because the axes of a grid repeat at some of them.
    places = (
        int((i + 0.5) * _GOLDEN % 1.0 * len(chosen)) + k
        for i in range(_SAMPLE_PLACES)
        for k in range(n_neighbours)
    )
    picked = sorted({chosen[place % len(chosen)] for place in places})
    n_cells = len(picked)
    few = _only(experiment, picked)
    alone = {point.cell: point.parameters for point in few.points}
    blocks = plan_blocks(alone, experiment.generator)
    indices = _kernel_input(experiment)(start, stop)
    counters = np.concatenate(
        [simulate_block(block, indices, experiment.seed) for block in blocks], axis=1
    )
    rows = rows_of(Task(tuple(blocks), start, stop), counters, indices)
    few_bytes, many_bytes = (
        len(store.shard_bytes(some, {"start": start, "stop": stop})) for some in (rows[:1], rows)
    )
    row_bytes = (many_bytes - few_bytes) / max(1, rows.height - 1)
    cells_per_shard = sum(len(task.ids) for task in tasks) / max(1, len(tasks))

    # as many cells and rows of each as are summarised at once, or fewer
    n = min(experiment.replications, _TABLE_ROWS)
    k = max(2, min(len(experiment.points), _TABLE_ROWS // n))
    table = experiments.cell_table(few)
    # the cells and their rows in turn, under other names, until there are enough
    size = stop - start
    turn = np.arange(k)[:, np.newaxis] % n_cells * size + np.arange(n) % size
    many = rows[turn.ravel()].with_columns(
        cell=pl.Series(np.repeat(np.arange(k, dtype=np.int32), n)),
        replication=pl.Series(np.tile(np.arange(n), k)),
    )
    cells = table[[i % n_cells for i in range(k)]].with_columns(
        cell=pl.int_range(k, dtype=pl.Int32), baseline=pl.lit(0, pl.Int32)
    )
    moments = [time.thread_time()]
    store.shard_bytes(many, {"start": 0, "stop": n})
    moments.append(time.thread_time())
    tables = [statistics.summarise(many, cells)]
    if len(set(experiment.baselines)) < len(experiment.points):
        tables.append(statistics.compare(many, cells))
    moments.append(time.thread_time())
    # of cells that differ, as all do in a run; by how much more of them take more
    some, all_ = (
        sum(len(store.table_bytes(made.filter(pl.col("cell") < n))) for made in (*tables, cells))
        for n in (1, min(k, n_cells))
    )
    cell_bytes = (all_ - some) / max(1, min(k, n_cells) - 1)
    cell_bytes += len(json.dumps(experiment.source)) / len(experiment.points)
    return _Saving(
        save_seconds=(moments[1] - moments[0]) / many.height,
        table_seconds=(moments[2] - moments[1]) / many.height,
        shard_bytes=few_bytes + _FOOTER_BYTES * cells_per_shard,
        row_bytes=row_bytes,
        cell_bytes=cell_bytes,
    )


def _kernel_input(experiment: Experiment) -> Callable[[int, int], NDArray[np.int64]]:
    n = experiment.replications
    return kernel_input(experiment.generator, experiment.seed, experiment.seeds, n)


def _only(experiment: Experiment, numbers: Sequence[int]) -> Experiment:
    """The experiment with some of its cells, each its own baseline."""
    wanted = set(numbers)
    points = tuple(point for point in experiment.points if point.cell in wanted)
    return replace(experiment, points=points, baselines=tuple(point.cell for point in points))
