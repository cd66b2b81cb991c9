"""From cells and replications to rows: the kernel on all cores.

Rows do not depend on how they are grouped. Cells that share their traffic stand in one block, so
that a replication's draws are made once for all of them.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import kernel, model, store
from mc.experiment import Experiment
from mc.kernel import CellTables
from mc.model import COUNTERS, Cell, Generator
from mc.store import Results

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS_PER_BLOCK: Final = 256
"""Beyond this a replication's draws are shared by enough cells."""

TABLE_BYTES: Final = 2**26
"""Most memory for the tables of one block."""

ROWS_PER_TASK: Final = 2**17
"""What a thread takes on at a time, and a shard holds: 16 MB of counters."""

MIN_TASKS: Final = 32
"""Into how many tasks a small run is cut, so that all threads have work until its end."""

MAX_SHARDS: Final = 800
"""Shards of a large run grow rather than that there are more."""

SAVE_SECONDS: Final = 120.0
"""A task that takes longer is saved in parts: no more than this is lost by a kill."""

BLOCK_SECONDS: Final = 0.25
"""How long a call of the kernel is meant to take: a run can be stopped between two of them."""


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
    """

    ids: tuple[int, ...]
    cells: tuple[Cell, ...]
    generator: Generator

    @cached_property
    def tables(self) -> CellTables:
        """What the kernel reads of them, made on first need."""
        return model.tables(self.cells, self.generator)


def plan_blocks(cells: Mapping[int, Cell], generator: Generator) -> list[Block]:
    """Group cells by the traffic they share, in the order of their first appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, cell in cells.items():
        groups.setdefault(model.traffic_key(cell, generator), []).append(index)
    blocks = []
    for group in groups.values():
        room = TABLE_BYTES // model.table_bytes(cells[group[0]])
        size = max(1, min(CELLS_PER_BLOCK, room))
        for at in range(0, len(group), size):
            ids = tuple(group[at : at + size])
            blocks.append(Block(ids, tuple(cells[i] for i in ids), generator))
    return blocks


def simulate_block(block: Block, indices: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Simulate every cell of a block for some replications, in one thread.

    Parameters
    ----------
    block : Block
        C cells.
    indices : ndarray of int64, shape (R,)
        Replication indices (`philox`) or seeds (`lesson`).
    seed : int
        The experiment's seed, 0 <= seed < 2**64; `lesson` does not use it.

    Returns
    -------
    ndarray of int64, shape (R, C, N_COUNTERS)
        `kernel.UNDEFINED` where a counter has no value.

    Raises
    ------
    RuntimeError
        A replication had more requests than its tables have room for: that is less likely than
        a fault of the machine.
    """
    tables = block.tables
    counters = np.empty((indices.size, len(block.cells), kernel.N_COUNTERS), np.int64)
    room_bits = 4
    row = 0
    while True:
        if block.generator == "philox":
            status, row = kernel.simulate_philox(tables, indices, seed, room_bits, counters, row)
        else:
            status, row = kernel.simulate_lesson(tables, indices, room_bits, counters, row)
        if status == kernel.DONE:
            return counters
        if status != kernel.GROW:
            raise RuntimeError(f"status {status} from the kernel at row {row}: {block.cells[0]}")
        room_bits += 1


def lesson_seeds(seed: int, n: int) -> list[int]:
    """The seed itself, then n - 1 others hashed from it, without repeats.

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
class Task:
    """The unit of work and of saving: one block for a range of replications.

    Attributes
    ----------
    block : Block
        C cells.
    start, stop : int
        First replication, and the one after the last.
    """

    block: Block
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Rows that the task makes."""
        return len(self.block.ids) * (self.stop - self.start)


def cut(blocks: Sequence[tuple[Block, int, int]]) -> list[Task]:
    """Cut blocks, each with its range of replications, into tasks.

    The tasks go round over the blocks: what is done when a run is killed halfway is about the
    same range of replications of every cell.
    """
    total = sum(len(block.ids) * (stop - start) for block, start, stop in blocks)
    rows_per_task = max(ROWS_PER_TASK, total // MAX_SHARDS)
    tasks = []
    for block, start, stop in blocks:
        fair = math.ceil((stop - start) * len(blocks) / MIN_TASKS)
        size = max(1, min(rows_per_task // len(block.ids), fair))
        tasks += [Task(block, at, min(at + size, stop)) for at in range(start, stop, size)]
    return sorted(tasks, key=lambda task: task.start)


def simulate_task(
    task: Task,
    indices: NDArray[np.int64],
    seed: int,
    stop: threading.Event,
    progress: Callable[[int], None],
) -> NDArray[np.int64]:
    """Simulate a task in calls of about `BLOCK_SECONDS`, so that a run can be stopped.

    Parameters
    ----------
    task : Task
        C cells and a range of R replications.
    indices : ndarray of int64
        For every replication from 0 on what the kernel is given: its index, or its seed.
    seed : int
        The experiment's seed.
    stop : Event
        Looked at between two calls: when it is set, what is done so far is returned.
    progress : callable
        Told the number of new rows after each call.

    Returns
    -------
    ndarray of int64, shape (at most R, C, N_COUNTERS)
        Fewer than R replications if stopped, or after `SAVE_SECONDS`.
    """
    parts: list[NDArray[np.int64]] = []
    at, size, started = task.start, 1, time.perf_counter()
    while at < task.stop and not stop.is_set():
        clock = time.perf_counter()
        if clock - started > SAVE_SECONDS:
            break
        part = simulate_block(task.block, indices[at : min(at + size, task.stop)], seed)
        seconds = time.perf_counter() - clock
        parts.append(part)
        progress(part.shape[0] * part.shape[1])
        at += part.shape[0]
        size = max(1, min(int(BLOCK_SECONDS * part.shape[0] / max(seconds, 1e-9)), 64 * size))
    return np.concatenate(parts) if parts else np.empty((0, len(task.block.ids), 0), np.int64)


def work(
    tasks: Sequence[Task],
    indices: NDArray[np.int64],
    seed: int,
    jobs: int,
    save: Callable[[Task, NDArray[np.int64]], None],
    progress: Callable[[int], None] = lambda n_rows: None,
) -> None:
    """Do all tasks on `jobs` threads and hand each result to `save`, in this thread.

    A few tasks are under way at once, so memory does not grow with their number. On an interrupt
    the threads end their call of the kernel and what they have is saved before it goes on; on an
    error in `save` they end, too.

    Parameters
    ----------
    tasks : sequence of Task
        In the order in which they are begun.
    indices, seed, progress
        See `simulate_task`; `progress` is called from the threads.
    jobs : int
        Threads.
    save : callable
        Given a task as far as it was done, and its counters, shape (R, C, N_COUNTERS).
    """
    stop = threading.Event()
    waiting = deque(tasks)
    under_way: dict[Future[NDArray[np.int64]], Task] = {}

    def collect(timeout: float | None) -> None:
        for future in wait(under_way, timeout, FIRST_COMPLETED).done:
            task = under_way.pop(future)
            counters = future.result()
            done = Task(task.block, task.start, task.start + counters.shape[0])
            if done.stop < task.stop:
                waiting.appendleft(Task(task.block, done.stop, task.stop))
            if done.n_rows:
                save(done, counters)

    with ThreadPoolExecutor(jobs, thread_name_prefix="kernel") as pool:
        try:
            while waiting or under_way:
                while waiting and len(under_way) < 2 * jobs:
                    task = waiting.popleft()
                    future = pool.submit(simulate_task, task, indices, seed, stop, progress)
                    under_way[future] = task
                # the timeout keeps this thread open to Ctrl-C on every platform
                collect(timeout=0.5)
        except KeyboardInterrupt:
            stop.set()
            while under_way:
                collect(timeout=None)
            raise
        finally:
            stop.set()


def default_jobs() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        `replication`, `seed` (with `lesson`), then the counters. NULL where a counter is
        undefined: `second_peak` and `drain` of a cell without a time after the fault.

    Raises
    ------
    ValueError
        Seeds or replications out of range or repeated, `jobs` below 1, or a cell with both a
        fault window and a failure rate under `lesson`.

    Examples
    --------
    >>> import mc
    >>> cell = mc.Cell(fault_rounds=100, tries=(3, 3, 3), budget=0.3)
    >>> mc.simulate([cell], generator="lesson", seeds=[20260802])["calls"].item()
    4065
    """
    names, indices = _indices(replications, seed, generator, seeds)
    jobs = default_jobs() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    if generator == "lesson":
        for index, cell in enumerate(cells):
            if cell.fault_rounds > 0 and cell.failure_rate > 0:
                raise ValueError(f"cell {index}: {LESSON_REFUSES}")
    blocks = plan_blocks(dict(enumerate(cells)), generator)
    rows = np.empty((kernel.N_COUNTERS, len(cells), indices.size), np.int64)

    def save(task: Task, counters: NDArray[np.int64]) -> None:
        rows[:, list(task.block.ids), task.start : task.stop] = counters.transpose(2, 1, 0)

    work(cut([(block, 0, indices.size) for block in blocks]), indices, seed, jobs, save)
    return frame(
        np.repeat(np.arange(len(cells)), indices.size),
        np.tile(names, len(cells)),
        rows.reshape(kernel.N_COUNTERS, -1),
        seeds=np.tile(indices, len(cells)) if generator == "lesson" else None,
    )


LESSON_REFUSES: Final = (
    'with generator = "lesson" a cell must not have both fault_rounds > 0 and failure_rate > 0 '
    "(the lesson draws no failures of served calls beside a fault window)"
)


def _indices(
    replications: int | Sequence[int] | None,
    seed: int,
    generator: Generator,
    seeds: Sequence[int] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Names of the replications, and what the kernel is given for each; all checked."""
    if generator not in ("philox", "lesson"):
        raise ValueError(f'generator must be "philox" or "lesson", got {generator!r}')
    if seeds is not None and (generator == "philox" or replications is not None):
        raise ValueError('seeds go with generator = "lesson", and without replications')
    lowest, highest = (0, 2**64 - 1) if generator == "philox" else (1, 2**31 - 2)
    for value in [seed] if seeds is None else seeds:
        if not lowest <= value <= highest:
            raise ValueError(f"seed must be in {lowest} .. {highest}, got {value}")
    if seeds is not None:
        chosen = np.array(seeds, np.int64)
        names = np.arange(chosen.size)
    else:
        listed = range(1000) if replications is None else replications
        listed = range(listed) if isinstance(listed, int) else listed
        if len(listed) == 0 or min(listed) < 0 or max(listed) >= 2**32:
            raise ValueError(
                f"replications must be >= 1, or indices in 0 .. {2**32 - 1}, got {replications!r}"
            )
        names = np.array(listed, np.int64)
        if generator == "lesson":
            chosen = np.array(lesson_seeds(seed, int(names.max()) + 1), np.int64)[names]
        else:
            chosen = names
    if np.unique(chosen).size != chosen.size:
        raise ValueError("replications and seeds must not repeat")
    return names, chosen


def frame(
    cells: NDArray[np.int64],
    replications: NDArray[np.int64],
    counters: NDArray[np.int64],
    seeds: NDArray[np.int64] | None = None,
) -> pl.DataFrame:
    """Rows as a polars frame in the schema of the results folder.

    Parameters
    ----------
    cells, replications : ndarray of int64, shape (N,)
        The two keys of each row.
    counters : ndarray of int64, shape (N_COUNTERS, N)
        `kernel.UNDEFINED` becomes NULL.
    seeds : ndarray of int64, shape (N,), optional
        A third column for the lesson's generator.
    """
    columns = {"cell": pl.Series(cells.astype(np.int32)), "replication": pl.Series(replications)}
    if seeds is not None:
        columns["seed"] = pl.Series(seeds)
    for name, values in zip(COUNTERS, counters, strict=True):
        narrow = values if name == "wait_total" else values.astype(np.int32)
        series = pl.Series(np.ascontiguousarray(narrow))
        if name in ("second_peak", "drain"):
            series = series.set(series == kernel.UNDEFINED, None)
        columns[name] = series
    return pl.DataFrame(columns)


# --- a whole experiment --------------------------------------------------------------------------

ROWS_AT_ONCE: Final = 2_000_000
"""Rows that are in memory together when the tables of the results are made."""


def run(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run an experiment file, or finish a run of it that was stopped.

    Parameters
    ----------
    file : path
        The experiment, see `mc.experiment`.
    out : path, optional
        The results folder; default ``results/<name of the file>``.
    replications, seed : int, optional
        In place of the file's.
    jobs : int, optional
        Threads; default all cores. Results do not depend on it.
    overrides : mapping of str to str, optional
        Parameters in place of the file's, as TOML values: ``{"rounds": "8000"}``.
    force : bool
        Start afresh in a folder that holds another experiment, or the same.
    progress : callable
        Told (rows that are there, rows in all) from time to time, from any thread.
    say : callable
        Told what the user should know, a line each.

    Returns
    -------
    Results
        As `mc.load` gives it.

    Raises
    ------
    ExperimentError
        All faults of the file.
    FolderError
        The folder holds something else, or cannot be written to. Nothing was changed.
    KeyboardInterrupt
        After what was under way has been saved.
    """
    experiment = experiments.read(
        file, replications=replications, seed=seed, overrides=overrides or {}
    )
    jobs = default_jobs() if jobs is None else jobs
    if jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    folder = Path(out) if out is not None else Path("results") / experiment.name
    manifest = None if force else store.read_manifest(folder)
    if manifest is not None:
        experiment = _continue(experiment, manifest, store.read_cells(folder), folder)
        if manifest["complete"] and manifest["experiment"] == experiment.source:
            say(f"{folder} is finished: nothing to do (--force starts afresh)")
            return store.load(folder)
    store.prepare(folder, afresh=force)

    started = time.time()
    manifest = store.new_manifest(experiment)
    store.write_table(folder, "cells.parquet", experiments.cell_table(experiment))
    store.write_json(folder, store.MANIFEST, manifest)
    tasks = _missing(experiment, folder, say)
    n_missing = sum(task.n_rows for task in tasks)
    n_rows = len(experiment.points) * experiment.replications
    if n_missing < n_rows:
        say(f"{folder}: {n_rows - n_missing} of {n_rows} rows are there, continuing")
    _simulate_into(folder, experiment, tasks, jobs, n_rows - n_missing, progress)
    _write_tables(folder, experiment)
    finished = {"complete": True, "seconds": round(time.time() - started, 3), "jobs": jobs}
    store.write_json(folder, store.MANIFEST, manifest | finished)
    return store.load(folder)


def _continue(
    experiment: Experiment, manifest: Mapping[str, Any], cells: pl.DataFrame, folder: Path
) -> Experiment:
    """Give the cells the numbers they have in the folder; refuse another experiment.

    Cells may be added (they are numbered after the others) and replications; nothing that rows
    depend on may be changed or removed.
    """
    old = manifest["experiment"]
    faults = [
        f"{name} was {old[name]}, is {experiment.source[name]}"
        for name in ("generator", "seed", "seeds")
        if old[name] != experiment.source[name]
    ]
    if old["replications"] > experiment.replications:
        faults.append(f"replications was {old['replications']}, is {experiment.replications}")
    numbers = {
        (scenario, policy, identity): number
        for number, scenario, policy, identity in cells.select(
            "cell", "scenario", "policy", "identity"
        ).iter_rows()
    }
    keys = [(p.scenario, p.policy, p.parameters.identity) for p in experiment.points]
    gone = numbers.keys() - set(keys)
    if gone:
        faults.append(_what_changed(old, experiment.source) or f"{len(gone)} cells are gone")
    if faults:
        raise store.FolderError(
            f"{folder}: holds the results of another experiment: {'; '.join(faults)}. "
            "Give another folder with --out, or start afresh with --force"
        )
    free = itertools.count(len(numbers))
    return experiments.renumber(
        experiment, [numbers[key] if key in numbers else next(free) for key in keys]
    )


def _what_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the parameters, points and values that are in one experiment and not in the other."""

    def flat(source: Mapping[str, Any]) -> set[str]:
        entries = {f"{name} = {value}" for name, value in source["fixed"].items()}
        for axis in ("scenario", "policy"):
            for point in source[axis]:
                chosen = {name: value for name, value in point.items() if name != "name"}
                entries.add(f'{axis} "{point["name"]}" {chosen}')
        for axis in source["grid"]:
            entries |= {f"{axis['name']} = {value} in the grid" for value in axis["values"]}
        return entries

    removed, added = flat(old) - flat(new), flat(new) - flat(old)
    parts = [f"without {entry}" for entry in sorted(removed)]
    parts += [f"with {entry}" for entry in sorted(added)]
    return "; ".join(parts)


def _missing(experiment: Experiment, folder: Path, say: Callable[[str], None]) -> list[Task]:
    """Tasks for the rows that no shard of the folder holds; unusable shards are put aside."""
    draws = store.draws_name(experiment.generator, experiment.seed, experiment.seeds)
    cells = {point.cell: point.parameters for point in experiment.points}
    identities = {number: cell.identity for number, cell in cells.items()}
    done: dict[int, list[tuple[int, int]]] = {number: [] for number in cells}
    for path in store.shard_paths(folder):
        try:
            shard = store.read_footer(path)
            store.check_content(shard)
            known = tuple(identities.get(number) for number in shard.cells)
            if shard.draws != draws or known != shard.identities:
                raise store.FolderError(f"{path}: belongs to another experiment")
            if any(
                start < shard.stop and shard.start < stop
                for number in shard.cells
                for start, stop in done[number]
            ):
                raise store.FolderError(f"{path}: holds rows that another shard holds, too")
        except store.FolderError as error:
            say(f"{error}; put aside, its rows are made anew")
            store.put_aside(folder, path)
            continue
        for number in shard.cells:
            done[number].append((shard.start, shard.stop))
    gaps: dict[tuple[int, int], dict[int, Cell]] = {}
    for number, ranges in done.items():
        at = 0
        for start, stop in [*sorted(ranges), (experiment.replications, experiment.replications)]:
            if at < start:
                gaps.setdefault((at, start), {})[number] = cells[number]
            at = max(at, stop)
    return cut(
        [
            (block, start, stop)
            for (start, stop), members in gaps.items()
            for block in plan_blocks(members, experiment.generator)
        ]
    )


def _simulate_into(
    folder: Path,
    experiment: Experiment,
    tasks: Sequence[Task],
    jobs: int,
    n_done: int,
    progress: Callable[[int, int], None],
) -> None:
    """Do the tasks and write each as a shard."""
    total = n_done + sum(task.n_rows for task in tasks)
    lock = threading.Lock()

    def add(n_rows: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n_rows
        progress(n_done, total)

    if experiment.generator == "philox":
        indices = np.arange(experiment.replications)
    else:
        seeds = experiment.seeds or lesson_seeds(experiment.seed, experiment.replications)
        indices = np.array(seeds, np.int64)
    draws = store.draws_name(experiment.generator, experiment.seed, experiment.seeds)

    def save(task: Task, counters: NDArray[np.int64]) -> None:
        n_cells, n = len(task.block.ids), task.stop - task.start
        chosen = np.arange(task.start, task.stop)
        rows = frame(
            np.repeat(task.block.ids, n),
            np.tile(chosen, n_cells),
            counters.transpose(2, 1, 0).reshape(kernel.N_COUNTERS, -1),
            seeds=np.tile(indices[chosen], n_cells) if experiment.generator == "lesson" else None,
        )
        identities = [cell.identity for cell in task.block.cells]
        store.write_shard(folder, rows, task.block.ids, identities, task.start, task.stop, draws)

    progress(n_done, total)
    work(tasks, indices, experiment.seed, jobs, save, add)


def _write_tables(folder: Path, experiment: Experiment) -> None:
    """Make summary, comparisons and claims of the rows, some cells at a time."""
    from mc import statistics  # scipy takes half a second

    cells = experiments.cell_table(experiment)
    rows = store.scan(store.shard_paths(folder))

    def rows_of(numbers: Sequence[int]) -> pl.DataFrame:
        return rows.filter(pl.col("cell").is_in(list(numbers))).collect()

    summaries, comparisons = [], []
    for chunk in _together(experiment, max(1, ROWS_AT_ONCE // experiment.replications)):
        some, taken = cells.filter(pl.col("cell").is_in(chunk)), rows_of(chunk)
        published = [figure for figure in experiment.published if figure.cell in set(chunk)]
        summaries.append(statistics.summarise(taken, some, published))
        comparisons.append(statistics.compare(taken, some))
    named = sorted({number for claim in experiment.claims for number in claim.cells})
    claims = statistics.judge(rows_of(named), cells, experiment.claims)
    store.write_table(
        folder, "summary.parquet", pl.concat(summaries).sort("cell", maintain_order=True)
    )
    store.write_table(
        folder, "comparisons.parquet", pl.concat(comparisons).sort("cell", maintain_order=True)
    )
    store.write_table(folder, "claims.parquet", claims)


def _together(experiment: Experiment, size: int) -> Iterator[list[int]]:
    """Chunks of about `size` cells in which every cell stands with its baseline."""
    groups: dict[int, list[int]] = {}
    for point, baseline in zip(experiment.points, experiment.baselines, strict=True):
        groups.setdefault(baseline, []).append(point.cell)
    chunk: list[int] = []
    for group in groups.values():
        if chunk and len(chunk) + len(group) > size:
            yield chunk
            chunk = []
        chunk = chunk + group
    yield chunk
