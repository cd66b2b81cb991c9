"""From cells to rows: blocks of cells for the kernel, tasks for the threads.

Rows do not depend on how they are grouped. Cells that share their traffic stand in one block, so
that a replication's draws are made once for all of them.
"""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import kernel, model
from mc.experiment import SEEDS
from mc.kernel import CellTables
from mc.model import COUNTERS, METRICS, Cell, Column, Generator
from mc.store.threads import StopFlag, do_all

pl.Series(np.zeros(1))  # polars imports numpy when it first meets an array: not safe on threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS_PER_BLOCK: Final = 256
"""More cells would hardly make the draws of a replication, which they share, cheaper for each."""

TABLE_BYTES: Final = 2**26
"""Most memory for the tables of one block."""

ROWS_PER_TASK: Final = 2**17
"""What a thread simulates at a time, and a shard holds: 16 MB of counters."""

MIN_TASKS: Final = 32
"""A small run is cut into so many tasks, so that all threads have work until its end."""

MAX_TASKS: Final = 800
"""A large run has about so many tasks, and so shards, see `cut`: instead of more, larger ones."""

SAVE_SECONDS: Final = 120.0
"""A task that takes longer is saved in parts: a kill loses no more than this."""

BLOCK_SECONDS: Final = 0.25
"""CPU time of a call of the kernel, about: a run can be stopped between two of them."""


@dataclass(frozen=True)
class Draws:
    """Which random numbers: a row depends on these, its cell and its replication alone.

    Attributes
    ----------
    generator : {"philox", "lesson"}
        The generator.
    seed : int
        The experiment's seed.
    seeds : tuple of int or None
        With the lesson's generator: the seed of each replication, where the file lists them.
    """

    generator: Generator
    seed: int
    seeds: tuple[int, ...] | None = None

    @classmethod
    def of(cls, source: Mapping[str, Any]) -> Draws:
        """Those of an experiment, by its `source`, which is in the manifest, too."""
        seeds = source["seeds"]
        return cls(source["generator"], int(source["seed"]), None if seeds is None else (*seeds,))

    def indices(self, start: int, stop: int) -> NDArray[np.int64]:
        """What the kernel reads for each replication of a range: its index, or its lesson seed."""
        if self.generator == "philox":
            return np.arange(start, stop, dtype=np.int64)
        seeds = self.seeds or _lesson_seeds(self.seed, 2 ** (stop - 1).bit_length())
        return np.array(seeds[start:stop], np.int64)


@lru_cache(maxsize=2)
def _lesson_seeds(seed: int, n: int) -> list[int]:
    """The seed itself, then n - 1 others hashed from it, without repeats; of more, the first n.

    Notes
    -----
    `numpy.random.SeedSequence`: neighbouring seeds of the lesson's generator are correlated,
    hashed ones are not.
    """
    seeds = {seed: None}
    size = n
    while len(seeds) < n:
        size *= 2
        words = np.random.SeedSequence(seed).generate_state(size, np.uint32)
        for word in words:
            seeds.setdefault(int(word) % (2**31 - 2) + 1)
            if len(seeds) == n:
                break
    return list(seeds)


@dataclass(frozen=True)
class Block:
    """Cells that share their traffic: one call of the kernel simulates them together.

    Attributes
    ----------
    ids : tuple of int
        The `cell` of each in the rows.
    cells : tuple of Cell
        Their parameters.
    generator : {"philox", "lesson"}
        Which draws.
    least_counters : int
        Counters that a row has at least: those of all cells whose rows it is put together with.
    """

    ids: tuple[int, ...]
    cells: tuple[Cell, ...]
    generator: Generator
    least_counters: int = kernel.N_COUNTERS

    @property
    def n_counters(self) -> int:
        """Counters of a row."""
        return max(self.least_counters, n_counters(self.cells))

    @property
    def shape(self) -> tuple[kernel.Alike, ...]:
        """How many of its cells can share a wheel, which decides how they are simulated."""
        groups: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(model.wheel_key(cell), []).append(cell)
        return tuple(
            kernel.Alike(len(alike), model.chain_kind(alike[0]), alike[0].can_fail)
            for alike in groups.values()
        )

    @cached_property
    def tables(self) -> CellTables:
        """What the kernel reads of them, made when first needed."""
        return model.tables(self.cells, self.generator)


def n_counters(cells: Iterable[Cell], names: Iterable[str] = ()) -> int:
    """How many counters the kernel gives of some cells, or of others with certain counters."""
    of_cells = (
        len(COUNTERS) if model.outlives(cell) else kernel.N_COUNTERS + len(cell.layers) - 1
        for cell in cells
    )
    named = (1 + COUNTERS.index(name) for name in names)
    return max([kernel.N_COUNTERS, *of_cells, *named])


def plan_blocks(
    cells: Mapping[int, Cell], generator: Generator, names: Iterable[str] = ()
) -> list[Block]:
    """Group cells by the traffic they share, in the order of their first appearance.

    In a block, those that can share a wheel stand together. If these are some of the cells of an
    experiment, `names` are the counters of all.
    """
    width = n_counters(cells.values(), names)
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], list[int]]] = {}
    for index, cell in cells.items():
        sharing = groups.setdefault(model.traffic_key(cell, generator), {})
        sharing.setdefault(model.wheel_key(cell), []).append(index)
    blocks = []
    for sharing in groups.values():
        room = TABLE_BYTES // model.table_bytes(cells[next(iter(sharing.values()))[0]])
        blocks += [
            Block(ids, tuple(cells[i] for i in ids), generator, width)
            for ids in _packed(sharing.values(), max(1, min(CELLS_PER_BLOCK, room)))
        ]
    return blocks


def _packed(groups: Iterable[Sequence[int]], size: int) -> Iterator[tuple[int, ...]]:
    """Join groups, in their order, to lists of at most `size`; only larger ones are cut."""
    packed: tuple[int, ...] = ()
    for group in groups:
        for at in range(0, len(group), size):
            part = tuple(group[at : at + size])
            if len(packed) + len(part) > size:
                yield packed
                packed = ()
            packed += part
    yield packed


def simulate_block(
    block: Block,
    indices: NDArray[np.int64],
    seed: int,
    record: NDArray[np.int32] | None = None,
    counters: NDArray[np.int64] | None = None,
    stop: StopFlag | None = None,
) -> NDArray[np.int64]:
    """Simulate every cell of a block for some replications, in one thread.

    Parameters
    ----------
    block : Block
        C cells.
    indices : ndarray of int64, shape (R,)
        Replication indices (`philox`) or seeds (`lesson`).
    seed : int
        The experiment's seed, 0 <= seed < 2**64; `lesson` does not use it.
    record : ndarray of int32, shape (R, C, kernel.N_RECORDED, T), optional
        Output: what happens in each round.
    counters : ndarray of int64, shape (R, C, block.n_counters), optional
        Output, made if it is not given.
    stop : StopFlag, optional
        Looked at in every round, where a replication may take long.

    Returns
    -------
    ndarray of int64, shape (R, C, block.n_counters)
        The counters; `kernel.UNDEFINED` where a counter has no value. Of no replication if it was
        stopped.

    Raises
    ------
    RuntimeError
        A replication had more requests than its tables have room for: that is less likely than
        a fault of the machine.
    """
    tables = block.tables
    if counters is None:
        counters = np.empty((indices.size, len(block.cells), block.n_counters), np.int64)
    flag = kernel.GOES_ON if stop is None else stop.array
    if block.generator == "philox":
        undecided = kernel.undecided_arrivals(tables, indices, seed)
        if undecided:
            decided = [
                (r, t, model.exact_arrivals(float(tables.rates[t]), u)) for r, t, u in undecided
            ]
            tables = tables._replace(decided=np.array(decided, np.int64))
        status, r = kernel.simulate_philox(tables, indices, seed, counters, record, flag)
    else:
        status, r = kernel.simulate_lesson(tables, indices, counters, record, flag)
    if status == kernel.STOPPED:
        return counters[:0]
    if status != kernel.DONE:
        raise RuntimeError(f"status {status} from the kernel for {indices[r]}: {block.cells[0]}")
    return counters


@dataclass(frozen=True)
class Task:
    """The unit of work and of saving: some cells for a range of replications.

    Attributes
    ----------
    ids : tuple of int
        The `cell` of each of the C cells.
    start, stop : int
        First replication, and the one after the last.
    """

    ids: tuple[int, ...]
    start: int
    stop: int

    @property
    def range(self) -> tuple[int, int]:
        """First replication, and the one after the last."""
        return self.start, self.stop

    @property
    def n_rows(self) -> int:
        """Rows that the task makes."""
        return len(self.ids) * (self.stop - self.start)


def cut(parts: Sequence[Task], most_rows: int = 0, n_parts: int = 1) -> list[Task]:
    """Cut or join tasks of one block each into tasks of about the same size.

    Large ones are cut by replication, small neighbours are joined. They are done by their first
    replication, whatever their block: a run that is killed halfway has about the same replications
    of every cell.

    Parameters
    ----------
    parts : sequence of Task
        One block each.
    most_rows : int
        Rows that the run may have in all, if these are only some of them.
    n_parts : int
        Processes that share the tasks.

    Returns
    -------
    list of Task
    """
    total = sum(part.n_rows for part in parts)
    fine = min(ROWS_PER_TASK, total / (MIN_TASKS * n_parts))
    size = max(fine, max(total, most_rows) / MAX_TASKS)
    tasks: list[Task] = []
    for part in parts:
        n = part.stop - part.start
        if part.n_rows >= size:
            # rounding makes at most a third more tasks than there is work for
            step = math.ceil(n / min(n, round(part.n_rows / size)))
            tasks += [
                Task(part.ids, at, min(at + step, part.stop))
                for at in range(part.start, part.stop, step)
            ]
        elif tasks and tasks[-1].n_rows < size and tasks[-1].range == part.range:
            tasks[-1] = replace(part, ids=tasks[-1].ids + part.ids)
        else:
            tasks.append(part)
    return sorted(tasks, key=lambda task: task.start)


def simulate_task(
    task: Task,
    blocks: Sequence[Block],
    indices: NDArray[np.int64],
    seed: int,
    stop: StopFlag,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> tuple[list[tuple[Task, list[NDArray[np.int64]]]], list[Task]]:
    """Simulate a task block after block, until it is done, stopped, or `SAVE_SECONDS` have passed.

    Parameters
    ----------
    task : Task
        C cells and R replications.
    blocks : sequence of Block
        Its cells, in this order.
    indices, seed
        For all R replications, see `simulate_block`.
    stop, progress
        Looked at, and called with the number of new rows, after each call of the kernel.

    Returns
    -------
    done : list of (Task, list of ndarray of int64, shape (R, C', counters))
        The task, or those parts of it that are done, and the counters of each of its blocks.
    rest : list of Task
        What is left of it.
    """
    deadline = time.perf_counter() + SAVE_SECONDS
    parts: list[NDArray[np.int64]] = []
    for block in blocks:
        alone = replace(block)  # a copy, whose tables are soon forgotten
        parts.append(simulate_range(alone, indices, seed, stop, deadline, progress))
        if len(parts[-1]) < indices.size or time.perf_counter() > deadline:
            break
    whole = [part for part in parts if len(part) == indices.size]
    k = len(whole)
    pieces = [(replace(task, ids=_ids_of(blocks[:k])), whole)]
    rest: list[Task] = []
    if k < len(blocks):
        begun, middle = blocks[k].ids, task.start + sum(map(len, parts[k:]))
        pieces.append((Task(begun, task.start, middle), parts[k:]))
        rest = [Task(begun, middle, task.stop), replace(task, ids=_ids_of(blocks[k + 1 :]))]
    return (
        [(piece, arrays) for piece, arrays in pieces if piece.n_rows],
        [piece for piece in rest if piece.n_rows],
    )


def _ids_of(blocks: Iterable[Block]) -> tuple[int, ...]:
    return tuple(i for block in blocks for i in block.ids)


def simulate_range(
    block: Block,
    indices: NDArray[np.int64],
    seed: int,
    stop: StopFlag,
    deadline: float = math.inf,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> NDArray[np.int64]:
    """Simulate a block in calls of about `BLOCK_SECONDS`, so that a run can be stopped.

    Returns the counters of the R replications of `indices`, or of the first of them if it was
    stopped, or after the deadline; shape (R or fewer, C, block.n_counters).
    """
    counters = np.empty((indices.size, len(block.ids), block.n_counters), np.int64)
    at, size = 0, 1
    _ = block.tables  # made before the first call is measured
    while at < indices.size and not stop.is_set():
        started = time.thread_time()  # on a busy machine there would be more calls by the clock
        chosen = slice(at, at + size)
        part = simulate_block(block, indices[chosen], seed, counters=counters[chosen], stop=stop)
        took = time.thread_time() - started
        progress(part.shape[0] * part.shape[1])
        at += part.shape[0]
        if time.perf_counter() > deadline:
            break
        fitting = BLOCK_SECONDS * part.shape[0] / max(took, 1e-9)
        size = max(1, min(int(fitting), 256 * size))
    return counters[:at]


def simulate_alone(
    block: Block,
    indices: NDArray[np.int64],
    seed: int,
    record: NDArray[np.int32] | None = None,
) -> NDArray[np.int64]:
    """Do the same as `simulate_block` on a thread beside this one, which a signal can stop."""
    made: list[NDArray[np.int64]] = []
    do_all(
        [block],
        1,
        lambda block, stop: (simulate_block(block, indices, seed, record, stop=stop), []),
        made.append,
    )
    return made[0]


MAX_THREADS: Final = 1024


def n_threads(jobs: int | None) -> int:
    """How many threads to use: as many as asked for, or the cores that this process may use."""
    if jobs is not None:
        if not 1 <= _whole("jobs", jobs) <= MAX_THREADS:
            raise ValueError(f"jobs must be >= 1 and <= {MAX_THREADS}, got {jobs}")
        return int(jobs)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _whole(name: str, value: object) -> int:
    """The value as an int; True, 1.0 and "1" are none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    return operator.index(value)


def simulate(
    cells: Sequence[Cell],
    replications: int | Sequence[int] | None = None,
    seed: int = 20260802,
    generator: Generator = "philox",
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
) -> pl.DataFrame:
    """Simulate every cell for every replication.

    Parameters
    ----------
    cells : sequence of Cell
        C cells; they see the same traffic and the same luck in the same replication.
    replications : int or sequence of int, optional
        How many (indices 0, 1, ...), or the indices themselves, each in 0 .. 2**32 - 1.
        Default 1000, or the number of `seeds`.
    seed : int
        The experiment's seed, 0 .. 2**64 - 1 (`lesson`: 1 .. 2**31 - 2).
    generator : {"philox", "lesson"}
        `philox` for every new question; `lesson` for the published numbers alone.
    seeds : sequence of int, optional
        With `lesson`: the seeds themselves, in place of `replications` and `seed`.
    jobs : int, optional
        Threads; default all cores. Rows do not depend on it.

    Returns
    -------
    polars.DataFrame
        One row for each (cell, replication), sorted: `cell` (index into `cells`),
        `replication`, `seed` (with `lesson`), then the counters that can be other than 0 in one
        of the cells. NULL where a counter is undefined: `second_peak` and `drain` of a cell
        without a time after the fault, the calls of a layer that is the innermost of a cell, or
        that it does not have.

    Raises
    ------
    ValueError
        Seeds or replications out of range or repeated, `jobs` below 1, or a cell that `lesson`
        has no draws for: it knows the lesson's model alone.
    TypeError
        `cells` is no sequence of cells, or another argument no whole number.

    Examples
    --------
    >>> import mc
    >>> cell = mc.Cell(fault_rounds=100, tries=(3, 3, 3), chain="flattened", budget=0.3)
    >>> mc.simulate([cell], generator="lesson", seeds=[20260802])["calls"].item()
    4065
    """
    check_cells(cells, generator)
    names, indices = chosen_indices(replications, seed, generator, seeds)
    n = indices.size
    columns = model.counters_of(cells)
    rows = np.empty((n_counters(cells), len(cells), n), np.int64)

    def make(task: Task, stop: StopFlag) -> tuple[None, list[Task]]:
        blocks = plan_blocks({i: cells[i] for i in task.ids}, generator, columns)
        some = indices[task.start : task.stop]
        done, rest = simulate_task(task, blocks, some, int(seed), stop)
        for part, counters in done:
            turned = by_counter(counters, np.argsort(part.ids))
            # a block has no counters that are in no column and of none of its cells
            rows[: len(turned), sorted(part.ids), part.start : part.stop] = turned
        return None, rest

    blocks = plan_blocks(dict(enumerate(cells)), generator)
    prepare(cells, generator)
    do_all(cut([Task(block.ids, 0, n) for block in blocks]), n_threads(jobs), make)
    return frame(
        np.repeat(np.arange(len(cells)), n),
        np.tile(names, len(cells)),
        rows.reshape(len(rows), -1),
        columns,
        seeds=np.tile(indices, len(cells)) if generator == "lesson" else None,
    )


def prepare(cells: Iterable[Cell], generator: Generator) -> None:
    """Compile what simulating cells takes, or load it; to be called before threads start."""
    for shape in {block.shape for block in plan_blocks(dict(enumerate(cells)), generator)}:
        kernel.prepare(generator, shape)


def check_cells(cells: Sequence[Cell], generator: Generator) -> None:
    """Refuse what is no list of cells, and cells that the generator cannot draw for."""
    if not isinstance(cells, Sequence) or not all(isinstance(cell, Cell) for cell in cells):
        raise TypeError(f"cells must be a list of Cell, got {cells!r}")
    if generator not in ("philox", "lesson"):
        raise ValueError(f'generator must be "philox" or "lesson", got {generator!r}')
    for index, cell in enumerate(cells) if generator == "lesson" else ():
        for conflict in model.lesson_conflicts(cell.parameters):
            raise ValueError(f"cell {index}: {conflict}")


def chosen_indices(
    replications: int | Sequence[int] | None,
    seed: int,
    generator: Generator,
    seeds: Sequence[int] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Check replications and seeds; return the numbers, and what the kernel reads for each."""
    if seeds is not None and (generator == "philox" or replications is not None):
        raise ValueError('seeds go with generator = "lesson", and without replications')
    lowest, highest = SEEDS[generator]
    for value in [seed] if seeds is None else seeds:
        if not lowest <= _whole("seed", value) <= highest:
            raise ValueError(f"seed must be in {lowest} .. {highest}, got {value}")
    if seeds is not None:
        chosen = np.array(seeds, np.int64)
        names = np.arange(chosen.size)
    else:
        names = np.array(_replications(replications), np.int64)
        chosen = names
        if generator == "lesson":
            chosen = Draws(generator, seed).indices(0, int(names.max()) + 1)[names]
    if np.unique(chosen).size != chosen.size:
        raise ValueError("replications and seeds must not repeat")
    return names, chosen


def _replications(replications: int | Sequence[int] | None) -> Sequence[int]:
    """The indices that are asked for."""
    if replications is None:
        return range(1000)
    if isinstance(replications, Iterable):
        listed: Sequence[int] = [_whole("replications", value) for value in replications]
    else:
        listed = range(_whole("replications", replications))
    if len(listed) == 0 or min(listed) < 0 or max(listed) >= 2**32:
        raise ValueError(
            f"replications must be >= 1, or indices in 0 .. {2**32 - 1}, got {replications!r}"
        )
    return listed


ROW_COLUMNS: Final[dict[str, Column]] = {
    "cell": Column("int32", "", "number of the cell"),
    "replication": Column(
        "int64", "", "number of the replication: the same traffic and luck in every cell"
    ),
    "seed": Column("int64", "", "seed of the replication, with the lesson's generator only"),
} | {name: Column("int64", METRICS[name].unit, METRICS[name].meaning) for name in COUNTERS}
"""The columns that rows can have, in their order."""


def frame(
    cells: NDArray[np.int64],
    replications: NDArray[np.int64],
    counters: NDArray[np.int64],
    names: Sequence[str],
    seeds: NDArray[np.int64] | None = None,
) -> pl.DataFrame:
    """N rows as a polars frame with `ROW_COLUMNS`.

    Their keys are `cells` and `replications`, of shape (N,). `counters` are in the kernel's order,
    of shape (counters, N); `kernel.UNDEFINED` becomes NULL. Those in `names` are columns: they
    exist in one of the cells, or more. `seeds` are there with the lesson's generator.
    """
    columns = {"cell": pl.Series(cells.astype(np.int32)), "replication": pl.Series(replications)}
    if seeds is not None:
        columns["seed"] = pl.Series(seeds)
    for name in names:
        # 64 bits on disk cost nothing, and polars sums 32 in 32: totals would be silently wrong
        series = pl.Series(np.ascontiguousarray(counters[COUNTERS.index(name)]))
        if METRICS[name].nullable:
            series = series.set(series == kernel.UNDEFINED, None)
        columns[name] = series
    return pl.DataFrame(columns)


def rows_of(
    task: Task, counters: Sequence[NDArray[np.int64]], names: Sequence[str], draws: Draws
) -> pl.DataFrame:
    """Rows of a task, sorted by (cell, replication); counters as of `by_counter`."""
    order = np.argsort(task.ids)
    turned = by_counter(counters, order)
    is_lesson = draws.generator == "lesson"
    return frame(
        np.repeat(np.array(task.ids)[order], task.stop - task.start),
        np.tile(np.arange(task.start, task.stop), order.size),
        turned.reshape(len(turned), -1),
        names,
        seeds=np.tile(draws.indices(*task.range), order.size) if is_lesson else None,
    )


_CELLS_AT_ONCE: Final = 8


def by_counter(blocks: Sequence[NDArray[np.int64]], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Put counters of blocks, shape (R, C, counters), into the shape (counters, all C, R).

    The cells are put in an order. Some are moved at a time: what is read and written then stays in
    the cache, which takes a third of the time.
    """
    n_rows, _, n_counters = blocks[0].shape
    turned = np.empty((n_counters, order.size, n_rows), np.int64)
    places = np.argsort(order)  # of each cell
    for block in blocks:
        for at in range(0, block.shape[1], _CELLS_AT_ONCE):
            some = block[:, at : at + _CELLS_AT_ONCE]
            turned[:, places[: some.shape[1]]] = some.transpose(2, 1, 0)
            places = places[some.shape[1] :]
    return turned
