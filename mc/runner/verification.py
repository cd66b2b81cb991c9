"""Whether a results folder is what it says: every hash, and rows made once more.

Nothing but the folder is needed: the table of cells has the parameters, the manifest the seed.
"""

from __future__ import annotations

import io
import math
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import kernel, store
from mc.model import COUNTERS, Cell
from mc.runner.recounting import Recount, recount
from mc.runner.tasks import Task, lesson_seeds, n_threads, plan_blocks, work
from mc.store import FolderError, Results, Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLE_SECONDS: Final = 3.0
"""How long rows are made once more where not all of them are asked for."""

CELLS_PER_DRAW: Final = 32
"""Rows of the sample that share a replication, and so the draws of their traffic."""

_DRAWS_AT_FIRST: Final = 16
"""Draws of the first batch; further batches are up to twice as large, as time allows."""

DIFFERENCES_SCHEMA: Final = pl.Schema(
    {
        "file": pl.String(),
        "cell": pl.Int32(),
        "replication": pl.Int64(),
        "counter": pl.String(),
        "stored": pl.Int64(),
        "recomputed": pl.Int64(),
    }
)


@dataclass(frozen=True)
class Verification:
    """What was found out about a results folder.

    Attributes
    ----------
    folder : Path
        The folder.
    complete : bool
        Whether its run came to its end.
    n_files : int
        Files whose hash is right.
    n_rows, n_checked : int
        Rows that are in whole shards, or were counted for them, and those that were made once
        more.
    seed : int or None
        With it the same sample is drawn again; None where all rows were made.
    faults : tuple of str
        What is wrong with files, a line each.
    differences : polars.DataFrame
        Counters that are not what they should be: `file`, `cell`, `replication`, `counter`,
        `stored` and `recomputed` (NULL where undefined), in the order of the rows. Of histograms
        counts and sums: `file`, `cell`, `metric`, `what`, `stored` and `recomputed`, as text.
    """

    folder: Path
    complete: bool
    n_files: int
    n_rows: int
    n_checked: int
    seed: int | None
    faults: tuple[str, ...]
    differences: pl.DataFrame

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and self.differences.height == 0


def verify(
    folder: str | Path,
    *,
    all_rows: bool = False,
    seconds: float = SAMPLE_SECONDS,
    seed: int | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Check every file of a results folder, and compare rows with rows made once more.

    Parameters
    ----------
    folder : path
        A results folder; of a run that is not finished the rows that are there are checked.
    all_rows : bool
        Make every row once more: it takes as long as the run did.
    seconds : float
        How long to go on with a random sample. At least one draw is made; a small folder is done
        as a whole. Histograms are counted once more shard by shard, as many as that is enough for.
    seed : int, optional
        Of the sample; default a fresh one each time, so that many checks see many rows.
    jobs : int, optional
        Threads; default all cores.
    progress : callable
        With `all_rows`: told (rows that are done, rows in all) from time to time.

    Returns
    -------
    Verification

    Raises
    ------
    FolderError
        There is no results folder.
    TypeError, ValueError
        `jobs` is no whole number, or below 1.
    """
    results = store.load(folder)
    jobs = n_threads(jobs)
    faults, n_files = _check_tables(results)
    cells, table = _cells(results, faults)
    shards = _check_shards(results, faults)
    whole = [shard for shard in shards if cells.keys() >= set(shard.cells)]
    total = sum(shard.n_rows for shard in whole)
    if all_rows:
        seed, seconds = None, math.inf
    elif seed is None:
        seed = random.randrange(2**32)

    def told(n_rows: int) -> None:
        if all_rows:
            progress(n_rows, total)

    checker: _Checker | Recount
    if not results.keeps_rows:
        checker = recount(
            results.manifest, whole, cells, table, jobs, seconds=seconds, seed=seed, progress=told
        )
    else:
        checker = _Checker(results.manifest, whole)
        if seed is None:
            checker.check([_task(shard, shard.cells, cells) for shard in whole], jobs, told)
        else:
            _check_sample(checker, whole, cells, seconds, seed, jobs)
    return Verification(
        folder=results.folder,
        complete=results.complete,
        n_files=n_files + len(shards),
        n_rows=sum(shard.n_rows for shard in shards),
        n_checked=checker.n_checked,
        seed=seed,
        faults=(*faults, *checker.faults),
        differences=checker.differences(),
    )


# --- files ---------------------------------------------------------------------------------------


def _check_tables(results: Results) -> tuple[list[str], int]:
    """Compare the manifest and the tables with their hashes; give the faults and what is right."""
    faults: list[str] = []
    if not store.manifest_is_whole(results.manifest):
        faults.append(f"{results.folder / store.MANIFEST}: the experiment in it was changed")
    if results.complete:
        for name in store.TABLES:
            try:
                store.read_table_file(results.folder, name, results.manifest)
            except FolderError as error:
                faults.append(str(error))
        return faults, 1 + len(store.TABLES) - len(faults)
    return faults, 1 - len(faults)


def _cells(results: Results, faults: list[str]) -> tuple[dict[int, Cell], pl.DataFrame]:
    """Make the cells from their table, and compare each with its identity in the manifest.

    Returns
    -------
    cells : dict of int to Cell
        Those that are as the manifest has them.
    table : polars.DataFrame
        The table.
    """
    path = results.folder / store.table_file("cells")
    try:
        table = pl.read_parquet(io.BytesIO(path.read_bytes()))
        cells = experiments.cells_of(table)
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError) as error:
        faults.append(f"{path}: cannot be read ({str(error).partition(chr(10))[0]}); no row of it")
        return {}, pl.DataFrame()
    names = dict(enumerate(results.manifest["cells"]))
    wrong = [n for n, cell in cells.items() if not names.get(n, "").startswith(cell.identity)]
    if wrong or len(cells) != len(names):
        which = f"cell {wrong[0]} is" if wrong else f"{len(names) - len(cells)} cells are"
        faults.append(f"{path}: {which} not as the manifest has it")
    return {number: cell for number, cell in cells.items() if number not in set(wrong)}, table


def _check_shards(results: Results, faults: list[str]) -> list[Shard]:
    """Hash every shard and read its footer; give those that are as they should be."""
    listed = set(results.manifest["shards"]) if results.complete else None
    paths = store.shard_paths(results.folder)
    shards = []
    for path, shard in zip(paths, store.read_shards(paths), strict=True):
        if listed is not None and path.name not in listed:
            faults.append(f"{path}: is not in the manifest")
        elif isinstance(shard, FolderError):
            faults.append(str(shard))
        elif store.is_of_run(shard, results.manifest):
            shards.append(shard)
        else:
            faults.append(f"{path}: belongs to another experiment")
    there = {path.name for path in paths}
    missing = sorted((listed or set()) - there)
    faults += [f"{results.folder / store.SHARDS / name}: missing" for name in missing]
    return shards


# --- rows ----------------------------------------------------------------------------------------


def _task(shard: Shard, numbers: Iterable[int], cells: dict[int, Cell]) -> Task:
    """All replications of some cells of a shard."""
    generator: Any = shard.draws.partition(" ")[0]
    blocks = plan_blocks({number: cells[number] for number in numbers}, generator)
    return Task(tuple(blocks), shard.start, shard.stop)


@dataclass(frozen=True)
class _Stored:
    """The rows of a shard.

    Attributes
    ----------
    shard : Shard
        Where they are from; C cells, R replications.
    places : dict of int to int
        Where among the cells each stands.
    counters : ndarray of int64, shape (C, R, columns)
        `kernel.UNDEFINED` for NULL.
    """

    shard: Shard
    places: dict[int, int]
    counters: NDArray[np.int64]


class _Checker:
    """A handle to some shards, which makes tasks and compares their rows with the stored ones."""

    def __init__(self, manifest: dict[str, Any], shards: Sequence[Shard]) -> None:
        source = manifest["experiment"]
        is_lesson = source["generator"] == "lesson"
        self.columns = ("seed", *COUNTERS) if is_lesson else COUNTERS
        self.seed = int(source["seed"])
        n = max((shard.stop for shard in shards), default=1)
        seeds = source["seeds"] or (lesson_seeds(self.seed, n) if is_lesson else range(n))
        self.indices = np.array(seeds, np.int64)
        self.n_checked = 0
        self.faults: dict[str, None] = {}
        self.found: list[pl.DataFrame] = []
        self.holding: dict[int, list[Shard]] = {}
        for shard in sorted(shards, key=lambda shard: shard.start):
            for number in shard.cells:
                self.holding.setdefault(number, []).append(shard)
        self.stored = lru_cache(maxsize=4)(self._read)  # neighbouring tasks are of one shard

    def check(
        self,
        tasks: Sequence[Task],
        jobs: int,
        progress: Callable[[int], None] = lambda n_rows: None,
    ) -> None:
        """Make all tasks on some threads and compare each; tell the number of rows so far."""

        def compare(task: Task, counters: NDArray[np.int64]) -> None:
            self._compare(task, counters)
            progress(self.n_checked)

        work(tasks, self.indices, self.seed, jobs, compare)

    def differences(self) -> pl.DataFrame:
        """All that was found to differ, in the order of the rows."""
        frames = [DIFFERENCES_SCHEMA.to_frame(), *self.found]
        return pl.concat(frames).sort("cell", "replication", maintain_order=True)

    def _compare(self, task: Task, counters: NDArray[np.int64]) -> None:
        """Compare counters of shape (R, C, N_COUNTERS) with those of the shard that has them."""
        held = self.holding[task.ids[0]]
        stored = self.stored(next(s for s in reversed(held) if s.start <= task.start))
        if stored is None:
            return
        start = task.start - stored.shard.start
        places = [stored.places[number] for number in task.ids]
        there = stored.counters[places, start : start + len(counters)]
        made = counters.transpose(1, 0, 2)
        if "seed" in self.columns:
            seeds = np.broadcast_to(
                self.indices[task.start : task.stop, np.newaxis], there[..., :1].shape
            )
            made = np.concatenate([seeds, made], axis=2)
        self.n_checked += task.n_rows
        if not np.array_equal(there, made):
            self.found.append(self._differing(stored.shard.path, task, there, made))

    def _differing(
        self, path: Path, task: Task, there: NDArray[np.int64], made: NDArray[np.int64]
    ) -> pl.DataFrame:
        """The counters of shape (C, R, columns) that are not equal."""
        cells, rows, columns = np.nonzero(there != made)
        data = {
            "file": [str(path)] * len(rows),
            "cell": np.array(task.ids)[cells],
            "replication": task.start + rows,
            "counter": np.array(self.columns)[columns].tolist(),
            "stored": there[cells, rows, columns],
            "recomputed": made[cells, rows, columns],
        }
        numbers = pl.col("stored", "recomputed").replace(kernel.UNDEFINED, None)
        return pl.DataFrame(data).with_columns(numbers).cast(DIFFERENCES_SCHEMA)

    def _read(self, shard: Shard) -> _Stored | None:
        """Read the rows of a shard; None, and a fault, if they are not those it says it has."""
        n = shard.stop - shard.start
        try:
            table = pl.read_parquet(io.BytesIO(shard.path.read_bytes()))
            keys = table.select("cell", "replication").to_numpy()
            rows = table.select(pl.col(self.columns).cast(pl.Int64).fill_null(kernel.UNDEFINED))
        except (OSError, pl.exceptions.PolarsError) as error:
            self.faults[f"{shard.path}: cannot be read ({str(error).partition(chr(10))[0]})"] = None
            return None
        expected = np.stack(
            [
                np.repeat(shard.cells, n),
                np.tile(np.arange(shard.start, shard.stop), len(shard.cells)),
            ],
            axis=1,
        )
        if not np.array_equal(keys, expected):
            self.faults[f"{shard.path}: its rows are not those that its footer names"] = None
            return None
        places = {number: place for place, number in enumerate(shard.cells)}
        return _Stored(shard, places, rows.to_numpy().reshape(len(shard.cells), n, -1))


def _check_sample(
    checker: _Checker,
    shards: Sequence[Shard],
    cells: dict[int, Cell],
    seconds: float,
    seed: int,
    jobs: int,
) -> None:
    """Check rows at random, none twice, until the time is over or all are done.

    A draw is one replication of some cells of one shard; each row has about the same chance.
    """
    started = time.perf_counter()
    groups = [-(-len(shard.cells) // CELLS_PER_DRAW) for shard in shards]
    sizes = [n * (shard.stop - shard.start) for n, shard in zip(groups, shards, strict=True)]
    ends = list(accumulate(sizes))
    draws = _shuffled(sum(sizes), random.Random(seed))
    batch, n_done = _DRAWS_AT_FIRST, 0
    while chosen := sorted(islice(draws, batch)):
        tasks = []
        for draw in chosen:
            place = bisect_right(ends, draw)
            shard, n = shards[place], groups[place]
            group, offset = divmod(draw - ends[place] + sizes[place], shard.stop - shard.start)
            r = shard.start + offset
            whole = _task(shard, shard.cells[group::n], cells)
            tasks.append(Task(whole.blocks, r, r + 1))
        checker.check(tasks, jobs)
        n_done += len(chosen)
        passed = time.perf_counter() - started
        batch = min(2 * batch, int(n_done / passed * (seconds - passed)))
        if batch < 1:
            return


def _shuffled(n: int, generator: random.Random) -> Iterator[int]:
    """The numbers below n in random order; those of a long way are drawn when they are needed."""
    seen: set[int] = set()
    while len(seen) < n // 2:
        number = generator.randrange(n)
        if number not in seen:
            seen.add(number)
            yield number
    rest = [number for number in range(n) if number not in seen]
    generator.shuffle(rest)
    yield from rest
