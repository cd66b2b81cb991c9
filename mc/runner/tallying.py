"""``keep = "histograms"``: from cells to counts, without rows on the disk.

Cells that are compared, with a baseline or in a claim, are simulated together: their rows are
counted and forgotten.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Claim, Experiment, Generator, Precision
from mc.model import Cell
from mc.runner.stock import Ranges
from mc.runner.tasks import (
    MIN_TASKS,
    SAVE_SECONDS,
    Block,
    Task,
    plan_blocks,
    rows_of,
    simulate_block,
)
from mc.statistics import ClaimCounts, tallies
from mc.statistics.tallies import Tally
from mc.store import FolderError, Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS_PER_TASK: Final = 256
"""Cells that are counted together, unless claims bind more."""

ROWS_AT_ONCE: Final = 2**16
"""Rows that a thread has in memory before it counts them."""

MAX_TASKS: Final = 128
"""Tasks of a large run: each is saved as a file that has every value that occurs."""

LINES_AT_ONCE: Final = 10_000_000
"""Lines of histograms that are in memory together when the tables are made."""


@dataclass(frozen=True)
class TallyTask:
    """The unit of work and of saving: some cells for a range of replications.

    Attributes
    ----------
    ids : tuple of int
        The cells that are counted, ascending.
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
        """Rows that are counted."""
        return len(self.ids) * (self.stop - self.start)


AnyTask = Task | TallyTask
"""What is saved as one shard: rows, or what is kept in place of them."""


def claim_key(claim: Claim) -> str:
    """All that is counted of a claim, which is not its text; `claim_of` is the way back."""
    metrics, cells = list(claim.metrics), list(claim.cells)
    return json.dumps([metrics, claim.relation, cells, claim.value, claim.times, claim.margin])


def claim_of(key: str) -> Claim:
    """The claim of a `claim_key`, without its words."""
    metrics, relation, cells, value, times, margin = json.loads(key)
    if isinstance(value, list):
        value = tuple(value)
    labels = ("",) * len(cells)
    return Claim("", "", tuple(metrics), relation, tuple(cells), labels, value, times, margin)


@dataclass(frozen=True)
class Tallying:
    """What has to be known of an experiment to count its cells.

    Attributes
    ----------
    seed : int
        Of the experiment.
    generator : {"philox", "lesson"}
        Which draws are used.
    parameters : mapping of int to Cell
        Of each cell, numbered as in the folder.
    cells : polars.DataFrame
        The table of cells, sorted by `cell`.
    claims : mapping of str to Claim
        By `claim_key`.
    """

    seed: int
    generator: Generator
    parameters: Mapping[int, Cell]
    cells: pl.DataFrame
    claims: Mapping[str, Claim]

    @classmethod
    def of(cls, experiment: Experiment) -> Tallying:
        """Prepare an experiment."""
        return cls(
            experiment.seed,
            experiment.generator,
            {point.cell: point.parameters for point in experiment.points},
            experiments.cell_table(experiment).sort("cell"),
            {claim_key(claim): claim for claim in experiment.claims},
        )

    def refuse(self, folder: Path, shards: Iterable[Shard]) -> None:
        """Refuse histograms that lack what the tables need: without rows it cannot be added.

        Parameters
        ----------
        folder : Path
            For the message.
        shards : iterable of Shard
            What is there of the experiment.

        Raises
        ------
        FolderError
            Another baseline, or a claim that was not counted.
        """
        baselines = dict(self.cells.select("cell", "baseline").iter_rows())
        policies = dict(self.cells.select("cell", "policy").iter_rows())
        for shard in shards:
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
                raise FolderError(
                    f"{folder}: holds histograms and no rows: {'; '.join(faults)}. "
                    "Give another folder with --out, or start afresh with --force"
                )

    @property
    def identities(self) -> dict[int, str]:
        """`Cell.identity` of every cell."""
        return {number: cell.identity for number, cell in self.parameters.items()}

    def tasks(self, ranges: Ranges, most_rows: int = 0, n_parts: int = 1) -> list[TallyTask]:
        """Cut ranges into tasks of about one size; parameters as for `cut`.

        What is compared stays together, as far as it is in the same range.
        """
        total = sum((stop - start) * len(numbers) for (start, stop), numbers in ranges.items())
        size = max(total / (MIN_TASKS * n_parts), max(total, most_rows) / MAX_TASKS)
        tasks = []
        for (start, stop), numbers in ranges.items():
            for cells in self._groups(numbers):
                n_tasks = max(1, min(stop - start, round(len(cells) * (stop - start) / size)))
                step = -(-(stop - start) // n_tasks)
                tasks += [
                    TallyTask(cells, at, min(at + step, stop)) for at in range(start, stop, step)
                ]
        return sorted(tasks, key=lambda task: task.start)

    def _groups(self, numbers: Iterable[int]) -> list[tuple[int, ...]]:
        """Gather cells, at most `CELLS_PER_TASK` unless comparisons bind more."""
        wanted = set(numbers)
        groups: list[list[int]] = [[]]
        for component in self._components:
            chosen = [number for number in component if number in wanted]
            if groups[-1] and len(groups[-1]) + len(chosen) > CELLS_PER_TASK:
                groups.append([])
            groups[-1] += chosen
        return [tuple(sorted(group)) for group in groups if group]

    @cached_property
    def _components(self) -> list[list[int]]:
        """Cells that are bound to each other by baselines and claims."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        bound = list(self.cells.select("cell", "baseline").iter_rows())
        bound += [pair for claim in self.claims.values() for pair in pairwise(claim.cells)]
        one, other = np.array(bound).T
        n = int(max(one.max(), other.max())) + 1
        graph = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(n, n))
        labels = connected_components(graph, directed=False)[1]
        components: dict[int, list[int]] = {}
        for number in self.cells["cell"].to_list():
            components.setdefault(int(labels[number]), []).append(number)
        return list(components.values())

    def simulate(
        self,
        task: TallyTask,
        indices: Callable[[int, int], NDArray[np.int64]],
        stop: threading.Event,
        progress: Callable[[int], None],
        seconds: float = SAVE_SECONDS,
    ) -> tuple[list[tuple[TallyTask, Tally]], list[TallyTask]]:
        """Count a task until it is done, stopped, or the time is over.

        Parameters
        ----------
        task : TallyTask
            What to count.
        indices : callable
            Gives what the kernel is given for the replications of a range.
        stop : Event
            Looked at between two chunks.
        progress : callable
            Told the number of counted rows after each chunk.
        seconds : float
            How long.

        Returns
        -------
        done : list of (TallyTask, Tally)
            What was done of it, at most one.
        rest : list of TallyTask
            What is left of it.
        """
        deadline = time.perf_counter() + seconds
        claims = {k: c for k, c in self.claims.items() if c.cells[0] in task.ids}
        needed = self.needed(task.ids)
        lines, blocks = self.cells.filter(pl.col("cell").is_in(list(needed))), self.blocks(needed)
        size = max(1, ROWS_AT_ONCE // lines.height)
        parts: list[Tally] = []
        at = task.start
        while (
            at < task.stop
            and not stop.is_set()
            and (at == task.start or time.perf_counter() < deadline)
        ):
            end = min(at + size, task.stop)
            given = indices(at, end)
            counters = np.concatenate(
                [simulate_block(block, given, self.seed) for block in blocks], axis=1
            )
            rows = rows_of(Task(tuple(blocks), at, end), counters, given)
            parts.append(tallies.count(rows, lines, task.ids, claims))
            # Two of about one size are added: each value is then sorted a few times in all.
            while len(parts) > 1 and parts[-1].n[0] * 2 > parts[-2].n[0]:
                parts[-2:] = [tallies.added(parts[-2:])]
            progress((end - at) * len(task.ids))
            at = end
        done = [(replace(task, stop=at), tallies.added(parts))] if parts else []
        return done, [replace(task, start=at)] if at < task.stop else []

    def needed(self, ids: Iterable[int]) -> set[int]:
        """All cells that must be simulated to count some."""
        own = self.cells.filter(pl.col("cell").is_in(list(ids)))
        bound = (
            number
            for claim in self.claims.values()
            if claim.cells[0] in own["cell"]
            for number in claim.cells
        )
        return {*own["cell"], *own["baseline"], *bound}

    def blocks(self, numbers: Iterable[int]) -> list[Block]:
        """What the kernel is called with to simulate some cells."""
        return plan_blocks({n: self.parameters[n] for n in sorted(numbers)}, self.generator)

    # --- reading back ------------------------------------------------------------------------

    def chunks(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Cells whose histograms are read together, see `LINES_AT_ONCE`."""
        lines = dict.fromkeys(self.cells["cell"].to_list(), 0.0)
        for shard in shards:
            for number in shard.cells:
                lines[number] += shard.n_lines / len(shard.cells)
        chunk: list[int] = []
        for number, n_lines in lines.items():
            if chunk and sum(lines[c] for c in chunk) + n_lines > LINES_AT_ONCE:
                yield chunk
                chunk = []
            chunk.append(number)
        yield chunk

    def restored(self, shards: Sequence[Shard], wanted: Iterable[int]) -> list[Tally]:
        """The tallies of some cells, added over all shards; claims are left out.

        Cells with the same shards stand in one tally, all in ascending order.
        """
        chosen = set(wanted)
        holding: dict[int, list[Shard]] = {}
        for shard in shards:
            for number in chosen.intersection(shard.cells):
                holding.setdefault(number, []).append(shard)
        alike: dict[tuple[Any, ...], list[int]] = {}
        for number in sorted(holding):
            alike.setdefault(tuple(shard.path for shard in holding[number]), []).append(number)
        found: dict[tuple[Any, ...], list[Tally]] = {key: [] for key in alike}
        for shard in shards:
            keys = [key for key in alike if shard.path in key]
            if not keys:
                continue
            kept = store.read_sums(shard.path)
            table = store.scan([shard.path]).filter(pl.col("cell").is_in(list(chosen))).collect()
            for key in keys:
                found[key].append(self._restored(shard, table, kept, alike[key]))
        return [tallies.added(parts) for parts in found.values()]

    def _restored(
        self, shard: Shard, table: pl.DataFrame, kept: Mapping[str, Any], numbers: Sequence[int]
    ) -> Tally:
        places = [shard.cells.index(number) for number in numbers]
        lines = self.cells.filter(pl.col("cell").is_in(list(numbers)))
        baselines = lines.select(cell="baseline").join(
            self.cells, on="cell", how="left", maintain_order="left"
        )
        some = tallies.some_sums(kept, places)
        return tallies.restored(table, some, lines, baselines)

    def claims_of(self, shards: Sequence[Shard]) -> dict[str, ClaimCounts]:
        """What was counted of each claim, by its key."""
        found: dict[str, ClaimCounts] = {}
        for shard in shards if self.claims else ():
            for key, counts in tallies.claims_of(store.read_sums(shard.path)).items():
                if key in self.claims:
                    found[key] = found[key] + counts if key in found else counts
        return found

    def precise(
        self, shards: Sequence[Shard], numbers: Sequence[int], n: int, precision: Precision
    ) -> set[int]:
        """Find the cells whose first n replications are enough, by their histograms.

        No shard of theirs reaches beyond n: a stage ends where shards end, and an experiment
        whose stages end elsewhere is refused.
        """
        from mc.runner import stages

        wanted = [s for s in shards if s.start < n and not set(numbers).isdisjoint(s.cells)]
        lines = self.cells.filter(pl.col("cell").is_in(list(numbers)))
        table = (
            store.scan(shard.path for shard in wanted)
            .filter(
                pl.col("cell").is_in(list(numbers)),
                pl.col("metric").is_in(list(precision.metrics)),
                pl.col("value").is_not_null(),
            )
            .group_by("cell", "metric", "value")
            .agg(pl.col("count").sum())
            .collect()
        )
        counted = tallies.histograms_of(table, lines, precision.metrics)
        return stages.are_precise(counted, lines, precision)
