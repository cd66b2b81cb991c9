"""``keep = "histograms"``: rows are counted, and not kept.

Cells that are compared, with a baseline or in a claim, are simulated together.
"""

from __future__ import annotations

import io
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import kernel, store
from mc.model import COUNTERS, METRICS, Column
from mc.runner import costs
from mc.runner.costs import Estimate, Sample
from mc.runner.simulation import (
    MIN_TASKS,
    SAVE_SECONDS,
    Block,
    Task,
    by_counter,
    simulate_range,
)
from mc.runner.storage import (
    CELLS_AT_ONCE,
    Checked,
    Content,
    Ranges,
    Storage,
    n_rows,
    task_of,
)
from mc.statistics import ClaimCounts, Histogram, Stack, tallies
from mc.statistics.tallies import Tally, claim_of
from mc.store import Shard, first_line
from mc.store.threads import StopFlag, do_all

CELLS_PER_TASK: Final = (64, 256)
"""Cells that are counted together, unless a claim needs more of them. The sums of a cell are kept
once in each task that it is in: so rather few cells than few replications, but enough to share
their draws; where there are thousands of cells as many as may be in memory."""

ROWS_AT_ONCE: Final = 2**19
"""Rows that a thread simulates before it counts them: 70 MB. What it takes to count a cell, besides
its rows, is then a small part."""

ROWS_PER_PIECE: Final = 2**16
"""Rows that a thread simulates before it puts their counters in order."""

MAX_TASKS: Final = 128
"""Tasks of a large run: each makes a file with a line for every value that occurs."""

LINES_AT_ONCE: Final = 5_000_000
"""Lines of histograms in memory when the tables are made."""

MOST_FAULTS: Final = 3
"""No more faults of one shard are named."""

DIFFERENCES_SCHEMA: Final = pl.Schema({"file": pl.String(), **tallies.DIFFERENCES_SCHEMA})


@dataclass(frozen=True)
class Histograms(Storage):
    """Histograms, see `Storage` for what each method does."""

    keep: ClassVar[str] = "histograms"
    columns: ClassVar[Mapping[str, Column]] = tallies.HISTOGRAMS_COLUMNS

    def tasks(self, ranges: Ranges, most_rows: int = 0, n_parts: int = 1) -> list[Task]:
        """Cut ranges into tasks of about the same size, with cells that are compared together."""
        total = n_rows(ranges)
        size = max(total / (MIN_TASKS * n_parts), max(total, most_rows) / MAX_TASKS)
        tasks = []
        for (start, stop), numbers in ranges.items():
            for cells in self._groups(numbers):
                n_tasks = max(1, min(stop - start, round(len(cells) * (stop - start) / size)))
                step = math.ceil((stop - start) / n_tasks)
                tasks += [Task(cells, at, min(at + step, stop)) for at in range(start, stop, step)]
        return sorted(tasks, key=lambda task: task.start)

    def _groups(self, numbers: Iterable[int]) -> list[tuple[int, ...]]:
        """Gather cells into groups of `CELLS_PER_TASK`, or more if comparisons need them."""
        wanted = set(numbers)
        fewest, most = CELLS_PER_TASK
        size = min(most, max(fewest, len(wanted) // MIN_TASKS))
        groups: list[list[int]] = [[]]
        for component in self._components:
            chosen = [number for number in component if number in wanted]
            if groups[-1] and len(groups[-1]) + len(chosen) > size:
                groups.append([])
            groups[-1] += chosen
        return [tuple(sorted(group)) for group in groups if group]

    @cached_property
    def _components(self) -> list[list[int]]:
        """Groups of cells that baselines and claims compare with each other.

        Those whose cells can share a wheel follow one another.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        bound = list(self.cells.select("cell", "baseline").iter_rows())
        bound += [pair for claim in self.claims.values() for pair in pairwise(claim.cells)]
        one, other = np.array(bound).T
        n = int(max(one.max(), other.max())) + 1
        graph = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(n, n))
        labels = connected_components(graph, directed=False)[1]
        components: dict[int, list[int]] = {}
        for number in (number for block in self.blocks(self.parameters) for number in block.ids):
            components.setdefault(int(labels[number]), []).append(number)
        return list(components.values())

    def needed(self, ids: Iterable[int]) -> set[int]:
        """The cells, their baselines, and all that are named in a claim with one of them."""
        own = self.lines(ids)
        named = (
            number
            for claim in self.claims.values()
            if claim.cells[0] in own["cell"]
            for number in claim.cells
        )
        return {*own["cell"], *own["baseline"], *named}

    def simulate(
        self,
        task: Task,
        stop: StopFlag,
        progress: Callable[[int], None] = lambda n_rows: None,
    ) -> tuple[list[Content], list[Task]]:
        """Count a task."""
        counted, rest = self.count(task, stop, SAVE_SECONDS, progress)
        return [
            Content(part, tallies.histograms(tally), tallies.sums(tally)) for part, tally in counted
        ], rest

    def count(
        self,
        task: Task,
        stop: StopFlag,
        seconds: float,
        progress: Callable[[int], None] = lambda n_rows: None,
    ) -> tuple[list[tuple[Task, Tally]], list[Task]]:
        """Count a task until it is done, stopped, or the seconds are over.

        Returns
        -------
        counted : list of (Task, Tally)
            What was counted of it, at most one part.
        rest : list of Task
            What is left of it.
        """
        deadline = time.perf_counter() + seconds
        claims = {k: c for k, c in self.claims.items() if c.cells[0] in task.ids}
        needed = sorted(self.needed(task.ids))
        lines, blocks = self.lines(needed), self.blocks(needed)
        size = max(1, ROWS_AT_ONCE // lines.height)
        parts: list[Tally] = []
        at, n = task.start, 1
        while at < task.stop and n and (at == task.start or time.perf_counter() < deadline):
            chunk = replace(task, start=at, stop=min(at + size, task.stop))
            counters = self._simulated(chunk, blocks, stop, deadline, progress)
            n = counters.shape[-1]
            if n:
                stack = _stack(lines, np.arange(at, at + n), self.counters, counters)
                parts.append(tallies.count(stack, task.ids, claims))
            # Two of about the same size are added, so that each value is sorted only a few times.
            while len(parts) > 1 and parts[-1].n[0] * 2 > parts[-2].n[0]:
                parts[-2:] = [tallies.added(parts[-2:])]
            at += n
        counted = [(replace(task, stop=at), tallies.added(parts))] if parts else []
        return counted, [replace(task, start=at)] if at < task.stop else []

    def _simulated(
        self,
        task: Task,
        blocks: Sequence[Block],
        stop: StopFlag,
        deadline: float,
        progress: Callable[[int], None],
    ) -> NDArray[np.int64]:
        """Simulate a task, or what can be done of it until it is stopped or the deadline.

        Returns
        -------
        ndarray of int64, shape (counters, C, R)
            Of the cells of all blocks, by number, those in `self.counters`.
        """
        simulated = [number for block in blocks for number in block.ids]
        order, places = np.argsort(simulated), [COUNTERS.index(name) for name in self.counters]
        size = max(1, ROWS_PER_PIECE // len(simulated))
        counters = np.empty((len(places), len(simulated), task.stop - task.start), np.int64)
        at = task.start
        while at < task.stop and (at == task.start or time.perf_counter() < deadline):
            end = min(at + size, task.stop)
            indices = self.draws.indices(at, end)
            made = [simulate_range(block, indices, self.draws.seed, stop) for block in blocks]
            if any(len(some) < end - at for some in made):
                break  # stopped
            piece = by_counter(made, order)
            counters[..., at - task.start : end - task.start] = piece[places]
            progress((end - at) * len(task.ids))
            at = end
        return counters[..., : at - task.start]

    def estimate(self, missing: Ranges, shards: Sequence[Shard], sample: Sample) -> Estimate:
        """Estimate what the missing histograms cost."""
        n_needed = cache(lambda ids: len(self.needed(ids)))
        lines_of_a_cell = cache(sample.lines)
        n_shards, n_lines, n_bytes, core_ns = 0, 0.0, 0.0, 0.0
        for task in self.tasks(missing):
            n_rows = n_needed(task.ids) * (task.stop - task.start)
            n_chunks = n_needed(task.ids) * math.ceil(n_rows / ROWS_AT_ONCE)
            of_task = n_rows * (sample.row_ns + costs.COUNT_ROW_NS) + n_chunks * costs.COUNT_CELL_NS
            n_parts = math.ceil(of_task * 1e-9 / SAVE_SECONDS)
            n_cells = n_parts * len(task.ids)
            lines = n_cells * lines_of_a_cell(math.ceil((task.stop - task.start) / n_parts))
            n_shards += n_parts
            n_lines += lines
            n_bytes += costs.HISTOGRAM_LINE_BYTES * lines + costs.HISTOGRAM_CELL_BYTES * n_cells
            core_ns += of_task + n_parts * costs.SHARD_NS
        n_lines += sum(shard.n_lines for shard in shards)
        table_ns = n_lines * costs.TABLE_LINE_NS + self.cells.height * costs.TABLE_CELL_NS
        return Estimate(n_shards, n_bytes, core_ns, table_ns)

    # --- reading them back -------------------------------------------------------------------

    def lacking(self, shards: Iterable[Shard]) -> list[str]:
        """Name another baseline, or a claim that was not counted: it cannot be without rows."""
        baselines = dict(self.cells.select("cell", "baseline").iter_rows())
        policies = dict(self.cells.select("cell", "policy").iter_rows())
        for shard in shards:
            if shard.counting != tallies.COUNTING:
                return ["they were counted by another version, which counted less"]
            faults = [
                f'policy "{policies[number]}" was compared with policy "{policies[old]}", is now '
                f'with policy "{policies[baselines[number]]}"'
                for number, old in zip(shard.cells, shard.baselines, strict=True)
                if baselines[number] != old
            ][:1]
            faults += [
                f'claim "{claim.text}" was not counted when they were made'
                for key, claim in self.claims.items()
                if key not in shard.claims and claim.cells[0] in shard.cells
            ]
            if faults:
                return faults
        return []

    def chunks(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Divide the cells by `LINES_AT_ONCE` and `CELLS_AT_ONCE`."""
        n_lines = dict.fromkeys(self.cells["cell"].to_list(), 0.0)
        for shard in shards:
            for number in shard.cells:
                n_lines[number] += shard.n_lines / len(shard.cells)
        chunk: list[int] = []
        size = 0.0
        for number in itertools.chain.from_iterable(self.by_baseline.values()):
            n = n_lines[number]
            if chunk and (size + n > LINES_AT_ONCE or len(chunk) == CELLS_AT_ONCE):
                yield chunk
                chunk, size = [], 0.0
            chunk.append(number)
            size += n
        yield chunk

    def tallies(self, shards: Sequence[Shard], numbers: Sequence[int]) -> list[Tally]:
        """Add the tallies of some cells over all shards; cells with the same shards in one."""
        chosen = set(numbers)
        holding: dict[int, list[Shard]] = {}
        for shard in shards:
            for number in chosen.intersection(shard.cells):
                holding.setdefault(number, []).append(shard)
        alike: dict[tuple[Shard, ...], list[int]] = {}
        for number in sorted(holding):
            alike.setdefault(tuple(holding[number]), []).append(number)
        parts: dict[tuple[Shard, ...], list[Tally]] = {key: [] for key in alike}
        for shard in shards:
            keys = [key for key in alike if shard in key]
            if not keys:
                continue
            sums = store.read_sums(shard.path)
            table = store.scan([shard.path]).filter(pl.col("cell").is_in(list(chosen))).collect()
            for key in keys:
                parts[key].append(self._restored(shard, table, sums, alike[key]))
        return [tallies.added(some) for some in parts.values()]

    def _restored(
        self, shard: Shard, table: pl.DataFrame, sums: Mapping[str, Any], numbers: Sequence[int]
    ) -> Tally:
        places = [shard.cells.index(number) for number in numbers]
        lines = self.lines(numbers)
        baselines = lines.select(cell="baseline").join(
            self.cells, on="cell", how="left", maintain_order="left"
        )
        kept = tallies.some_sums(sums, places)
        return tallies.restored(table, kept, lines, baselines, self.metrics)

    def count_claims(self, shards: Sequence[Shard]) -> dict[str, ClaimCounts]:
        """Add what was counted of each claim."""
        counted: dict[str, ClaimCounts] = {}
        for shard in shards if self.claims else ():
            for key, counts in tallies.claims_of(store.read_sums(shard.path)).items():
                if key in self.claims:
                    counted[key] = counted[key] + counts if key in counted else counts
        return counted

    def histograms(
        self, shards: Sequence[Shard], numbers: Sequence[int], n: int, metrics: Sequence[str]
    ) -> Iterator[tuple[pl.DataFrame, dict[str, Histogram]]]:
        """Count some metrics of early replications.

        No shard reaches beyond n: a stage ends where shards end, and an experiment whose stages
        end elsewhere is refused.
        """
        lines = self.lines(numbers)
        wanted = [s for s in shards if s.start < n and not set(numbers).isdisjoint(s.cells)]
        table = (
            store.scan(shard.path for shard in wanted)
            .filter(
                pl.col("cell").is_in(list(numbers)),
                pl.col("metric").is_in(list(metrics)),
            )
            .group_by("cell", "metric", "value", "quotient")
            .agg(pl.col("count").sum())
            .collect()
        )
        yield lines, tallies.histograms_of(table, lines, metrics)

    # --- checking them -----------------------------------------------------------------------

    def check(
        self,
        shards: Sequence[Shard],
        jobs: int,
        seconds: float,
        sample: random.Random | None,
        progress: Callable[[int], None],
    ) -> Checked:
        """Check shards for contradictions, then count them again and compare.

        Part of a shard cannot be compared, so a sample consists of whole shards: the smaller ones
        first, in random order where they are of about the same size. One that is not counted in
        time is left out.
        """
        faults: list[str] = []
        countable = [shard for shard in shards if self._is_countable(shard, faults)]
        if sample is not None:
            sample.shuffle(countable)
            countable.sort(key=lambda shard: shard.n_rows.bit_length())
        deadline = math.inf if sample is None else time.perf_counter() + seconds
        n_checked, differences = 0, [DIFFERENCES_SCHEMA.to_frame()]

        def make(shard: Shard, stop: StopFlag) -> tuple[tuple[Shard, Tally] | None, list[Shard]]:
            left = deadline - time.perf_counter()
            if left <= 0:
                return None, []
            claims = {key: claim_of(key) for key in shard.claims}
            stored = store.read_sums(shard.path)["traffic"]
            counters = tuple(name for name in self.counters if name in stored)
            counting = replace(self, claims=claims, counters=counters)
            counted, rest = counting.count(task_of(shard), stop, left)
            return (shard, counted[0][1]) if counted and not rest else None, []

        def compare(made: tuple[Shard, Tally] | None) -> None:
            nonlocal n_checked
            if made is None:
                return
            shard, tally = made
            differing = tallies.differences(*_read(shard), tally)
            differences.append(differing.select(pl.lit(str(shard.path)).alias("file"), pl.all()))
            n_checked += shard.n_rows
            progress(n_checked)

        do_all(countable, jobs, make, compare)
        in_order = pl.concat(differences).sort("file", maintain_order=True)
        return Checked(n_checked, faults, in_order)

    def _is_countable(self, shard: Shard, faults: list[str]) -> bool:
        """Check a shard by itself; return whether it makes sense to count it again."""
        lines = self.lines(shard.cells)
        try:
            needed = {*shard.cells, *shard.baselines}
            needed |= {number for key in shard.claims for number in claim_of(key).cells}
            if not self.parameters.keys() >= needed:
                return False  # the table of cells is at fault
            table, sums = _read(shard)
            n = shard.stop - shard.start
            wrong = list(tallies.contradictions(table, sums, lines, shard.baselines, n))
        except (OSError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
            faults.append(f"{shard.path}: not what histograms look like ({first_line(error)})")
            return False
        faults += [f"{shard.path}: {fault}" for fault in wrong[:MOST_FAULTS]]
        if len(wrong) > MOST_FAULTS:
            faults.append(f"{shard.path}: and {len(wrong) - MOST_FAULTS:,} such faults more")
        if lines["baseline"].to_list() != list(shard.baselines):
            faults.append(
                f"{shard.path}: was counted with other baselines than the table of cells has"
            )
            return False
        return True


def _stack(
    lines: pl.DataFrame,
    replications: NDArray[np.int64],
    names: Sequence[str],
    counters: NDArray[np.int64],
) -> Stack:
    """A stack of all cells of some lines, of their counters."""
    shape = counters.shape[1:]
    always = np.ones(shape, np.bool_)
    columns = {
        name: (values, values != kernel.UNDEFINED if METRICS[name].nullable else always)
        for name, values in zip(names, counters, strict=True)
    }
    return Stack(lines, np.arange(shape[0]), np.broadcast_to(replications, shape), columns)


def _read(shard: Shard) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The histograms of a shard, and its sums."""
    return pl.read_parquet(io.BytesIO(store.content_of(shard.path))), store.read_sums(shard.path)
