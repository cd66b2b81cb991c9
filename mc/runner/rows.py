"""``keep = "rows"``: every replication of every cell is a row of a shard."""

from __future__ import annotations

import io
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice
from typing import ClassVar, Final, Self

import numpy as np
import polars as pl

from mc import statistics, store
from mc.model import METRICS, Column
from mc.runner import costs
from mc.runner.costs import Estimate, Sample
from mc.runner.simulation import ROW_COLUMNS, Task, cut, rows_of, simulate_task
from mc.runner.storage import CELLS_AT_ONCE, Checked, Content, Ranges, Storage, n_rows, task_of
from mc.statistics import ClaimCounts, Histogram, tallies
from mc.statistics.tallies import Tally
from mc.store import FolderError, Shard, first_line
from mc.store.threads import StopFlag, do_all

ROWS_AT_ONCE: Final = 240_000
"""Rows that a thread counts at a time for the tables: a quarter of a gigabyte with what comes of
them."""

DECIDING_ROWS: Final = 2_000_000
"""Rows in memory to decide on the next stage, of the few columns that this takes."""

CELLS_PER_DRAW: Final = 32
"""Cells of a sample for which the traffic of a replication is drawn once."""

DRAWS_AT_FIRST: Final = 16
"""Draws of a sample's first batch; each batch is at most twice as large as the one before."""

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
class Rows(Storage):
    """Rows, see `Storage` for what each method does."""

    keep: ClassVar[str] = "rows"
    columns: ClassVar[Mapping[str, Column]] = ROW_COLUMNS

    def tasks(self, ranges: Ranges, most_rows: int = 0, n_parts: int = 1) -> list[Task]:
        """Cut ranges into tasks of whole blocks, or of some replications of one block."""
        parts = [
            Task(block.ids, start, stop)
            for (start, stop), numbers in ranges.items()
            for block in self.blocks(numbers)
        ]
        return cut(parts, most_rows, n_parts)

    def simulate(
        self,
        task: Task,
        stop: StopFlag,
        progress: Callable[[int], None] = lambda n_rows: None,
    ) -> tuple[list[Content], list[Task]]:
        """Simulate a task."""
        indices, seed = self.draws.indices(*task.range), self.draws.seed
        done, rest = simulate_task(task, self.blocks(task.ids), indices, seed, stop, progress)
        return [
            Content(part, rows_of(part, made, self.counters, self.draws)) for part, made in done
        ], rest

    def estimate(self, missing: Ranges, shards: Sequence[Shard], sample: Sample) -> Estimate:
        """Estimate what the missing rows cost."""
        tasks, n = self.tasks(missing), n_rows(missing)
        n_cells = sum(len(task.ids) for task in tasks)
        n_kept = n + sum(shard.n_rows for shard in shards)
        return Estimate(
            n_shards=len(tasks),
            n_bytes=n * sample.row_bytes
            + len(tasks) * costs.SHARD_BYTES
            + n_cells * costs.SHARD_CELL_BYTES,
            core_ns=n * (sample.row_ns + costs.SAVE_ROW_NS)
            + n_cells * costs.BLOCK_CELL_NS
            + len(tasks) * costs.SHARD_NS,
            table_ns=n_kept * costs.TABLE_ROW_NS + self.cells.height * costs.TABLE_CELL_NS,
        )

    def only(self, task: Task) -> Self:
        """The parameters of the cells; rows are simulated without the table of cells."""
        return replace(super().only(task), cells=self.cells.clear())

    # --- reading them back -------------------------------------------------------------------

    def chunks(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Divide the cells by `ROWS_AT_ONCE` and `CELLS_AT_ONCE`, with every cell its baseline."""
        replications = dict.fromkeys(self.cells["cell"].to_list(), 0)
        for shard in shards:
            for number in shard.cells:
                replications[number] += shard.stop - shard.start
        chunk: list[int] = []
        size = 0
        for group in self.by_baseline.values():
            n_more = sum(replications[number] for number in group)
            is_full = size + n_more > ROWS_AT_ONCE or len(chunk) + len(group) > CELLS_AT_ONCE
            if chunk and is_full:
                yield chunk
                chunk, size = [], 0
            chunk += group
            size += n_more
        yield chunk

    def tallies(self, shards: Sequence[Shard], numbers: Sequence[int]) -> list[Tally]:
        """Count the rows of some cells."""
        rows = self._scan(shards, numbers).collect()
        return [tallies.count(stack) for stack in statistics.stacks(rows, self.lines(numbers))]

    def count_claims(self, shards: Sequence[Shard]) -> dict[str, ClaimCounts]:
        """Count claims, scenario by scenario: that takes less memory."""
        counted: dict[str, ClaimCounts] = {}
        for scenario in dict.fromkeys(claim.scenario for claim in self.claims.values()):
            chosen = {key: c for key, c in self.claims.items() if c.scenario == scenario}
            numbers = {number for claim in chosen.values() for number in claim.cells}
            rows, claims = self._scan(shards, numbers).collect(), list(chosen.values())
            counts = statistics.count_claims(rows, self.cells, claims)
            counted |= dict(zip(chosen, counts, strict=True))
        return counted

    def histograms(
        self, shards: Sequence[Shard], numbers: Sequence[int], n: int, metrics: Sequence[str]
    ) -> Iterator[tuple[pl.DataFrame, dict[str, Histogram]]]:
        """Count some metrics of early replications."""
        wanted = {name: METRICS[name] for name in metrics}
        counters = [name for m in wanted.values() for name in (m.counter, m.per) if name]
        columns = ["cell", "replication", *dict.fromkeys(counters)]
        size = max(1, DECIDING_ROWS // n)
        for at in range(0, len(numbers), size):
            chunk = numbers[at : at + size]
            early = self._scan(shards, chunk).filter(pl.col("replication") < n)
            rows = early.select(columns).collect()
            for stack in statistics.stacks(rows, self.lines(chunk)):
                yield (
                    stack.cells,
                    {name: statistics.histogram(stack.numbers(m)) for name, m in wanted.items()},
                )

    def _scan(self, shards: Sequence[Shard], numbers: Collection[int]) -> pl.LazyFrame:
        """The rows of some cells."""
        wanted = set(numbers)
        holding = [shard.path for shard in shards if not wanted.isdisjoint(shard.cells)]
        rows = store.scan(holding or [shards[0].path], self.counters)
        return rows.filter(pl.col("cell").is_in(list(wanted)))

    # --- checking them -----------------------------------------------------------------------

    def check(
        self,
        shards: Sequence[Shard],
        jobs: int,
        seconds: float,
        sample: random.Random | None,
        progress: Callable[[int], None],
    ) -> Checked:
        """Simulate rows again and compare: all, or a sample of `DRAWS_AT_FIRST` draws or more."""
        n_checked, differences = 0, [DIFFERENCES_SCHEMA.to_frame()]
        faults: dict[str, None] = {}

        @lru_cache(maxsize=4)  # neighbouring tasks are of one shard
        def stored_in(shard: Shard) -> pl.DataFrame | None:
            try:
                return self._read(shard)
            except FolderError as error:
                faults[str(error)] = None
                return None

        def make(
            some: tuple[Shard, Task], stop: StopFlag
        ) -> tuple[tuple[Shard, list[Content]], list[tuple[Shard, Task]]]:
            shard, task = some
            done, rest = self.simulate(task, stop)
            return (shard, done), [(shard, left) for left in rest]

        def compare(made: tuple[Shard, list[Content]]) -> None:
            nonlocal n_checked
            shard, contents = made
            stored = stored_in(shard)
            if stored is None:
                return
            for content in contents:
                part = _part(shard, stored, content.task)
                if not part.equals(content.table):
                    differences.append(_differences(shard, part, content.table))
                n_checked += content.task.n_rows
            progress(n_checked)

        if sample is None:
            do_all([(shard, task_of(shard)) for shard in shards], jobs, make, compare)
        else:
            started, n_done, size = time.perf_counter(), 0, DRAWS_AT_FIRST
            draws = _random_draws(shards, sample)
            while batch := sorted(islice(draws, max(size, 0)), key=lambda draw: draw[0].path):
                do_all(batch, jobs, make, compare)
                n_done += len(batch)
                passed = time.perf_counter() - started
                size = int(min(2 * size, n_done / passed * (seconds - passed)))
        in_order = pl.concat(differences).sort("cell", "replication", maintain_order=True)
        return Checked(n_checked, list(faults), in_order)

    def _read(self, shard: Shard) -> pl.DataFrame:
        """Read the rows of a shard; refuse them if they are not those that its footer names."""
        seeds = ["seed"] if self.draws.generator == "lesson" else []
        try:
            rows = pl.read_parquet(io.BytesIO(store.content_of(shard.path)))
            # a shard may be older than the cell, or the version, that has a further counter
            counters = [
                name
                for name in self.counters
                if name in rows.columns or METRICS[name].exists is None
            ]
            columns: dict[str, pl.DataType] = {"cell": pl.Int32()}
            columns |= {name: pl.Int64() for name in ("replication", *seeds, *counters)}
        except pl.exceptions.PolarsError as error:
            raise FolderError(f"{shard.path}: cannot be read ({first_line(error)})") from error
        if rows.schema != columns:
            wrong = rows.schema.items() ^ columns.items()
            named = ", ".join(sorted({name for name, _ in wrong}) or ["their order"])
            raise FolderError(f"{shard.path}: its columns are not those of rows ({named})")
        n = shard.stop - shard.start
        expected = {
            "cell": np.repeat(np.array(shard.cells, np.int32), n),
            "replication": np.tile(np.arange(shard.start, shard.stop), len(shard.cells)),
        }
        if not rows.select("cell", "replication").equals(pl.DataFrame(expected)):
            raise FolderError(f"{shard.path}: its rows are not those that its footer names")
        return rows


def _random_draws(
    shards: Sequence[Shard], generator: random.Random
) -> Iterator[tuple[Shard, Task]]:
    """Draw a replication of some cells of a shard, again and again, until each was drawn once.

    Each row has about the same chance.
    """
    groups = [-(-len(shard.cells) // CELLS_PER_DRAW) for shard in shards]
    sizes = [n * (shard.stop - shard.start) for n, shard in zip(groups, shards, strict=True)]
    ends = list(accumulate(sizes))
    for draw in _shuffled(sum(sizes), generator):
        k = bisect_right(ends, draw)
        shard = shards[k]
        group, offset = divmod(draw - ends[k] + sizes[k], shard.stop - shard.start)
        r = shard.start + offset
        yield shard, Task(shard.cells[group :: groups[k]], r, r + 1)


def _shuffled(n: int, generator: random.Random) -> Iterator[int]:
    """The numbers below n in random order; no list of them is made before half are drawn."""
    seen: set[int] = set()
    while len(seen) < n // 2:
        number = generator.randrange(n)
        if number not in seen:
            seen.add(number)
            yield number
    rest = [number for number in range(n) if number not in seen]
    generator.shuffle(rest)
    yield from rest


def _part(shard: Shard, rows: pl.DataFrame, task: Task) -> pl.DataFrame:
    """Those of the rows of a shard that a task asks for."""
    n = shard.stop - shard.start
    places = np.searchsorted(shard.cells, sorted(task.ids))
    replications = np.arange(task.start, task.stop) - shard.start
    return rows[(places[:, np.newaxis] * n + replications).ravel()]


def _differences(shard: Shard, stored: pl.DataFrame, made: pl.DataFrame) -> pl.DataFrame:
    """The counters of the same rows that differ, one counter after another."""
    frames = []
    for name in stored.columns[2:]:
        both = made.select(
            pl.lit(str(shard.path)).alias("file"),
            "cell",
            "replication",
            pl.lit(name).alias("counter"),
            stored[name].alias("stored"),
            pl.col(name).alias("recomputed"),
        )
        frames.append(both.filter(stored[name].ne_missing(made[name])))
    return pl.concat(frames)
