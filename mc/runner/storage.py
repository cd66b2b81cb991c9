"""What a run keeps of its replications: one interface, and behind it rows or histograms."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import polars as pl

from mc import store
from mc.experiment import Claim
from mc.model import METRICS, Cell, Column
from mc.model.columns import about
from mc.runner.costs import Estimate, Sample
from mc.runner.simulation import Block, Draws, Task, plan_blocks
from mc.statistics import ClaimCounts, Histogram
from mc.statistics.tallies import Tally
from mc.store import Shard
from mc.store.threads import StopFlag

CELLS_AT_ONCE: Final = 4096
"""Cells of which a thread makes the tables at a time: of each 10 kB, and more on the way."""

Ranges = Mapping[tuple[int, int], Sequence[int]]
"""Cells by a range of replications: the first, and the one after the last."""


def n_rows(ranges: Ranges) -> int:
    """Count the rows."""
    return sum((stop - start) * len(numbers) for (start, stop), numbers in ranges.items())


@dataclass(frozen=True)
class Content:
    """What a shard holds.

    Attributes
    ----------
    task : Task
        Its cells and replications.
    table : polars.DataFrame
        Rows, or histograms.
    sums : mapping or None
        What is kept beside histograms, see `mc.statistics.tallies.sums`.
    """

    task: Task
    table: pl.DataFrame
    sums: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Checked:
    """What it has shown to simulate again what shards hold.

    Attributes
    ----------
    n_rows : int
        Rows that were simulated again.
    faults : list of str
        What is wrong with shards, a line each.
    differences : polars.DataFrame
        See `mc.runner.Verification`.
    """

    n_rows: int
    faults: list[str]
    differences: pl.DataFrame


@dataclass(frozen=True)
class Storage(ABC):
    """How the replications of an experiment are simulated, saved, read, checked and estimated.

    Attributes
    ----------
    draws : Draws
        Which random numbers.
    parameters : mapping of int to Cell
        The cells, numbered as in the folder.
    cells : polars.DataFrame
        The table of cells, sorted by `cell`.
    claims : mapping of str to Claim
        By `claim_key`.
    counters : tuple of str
        Those that exist in one cell of the experiment, or more.
    keep : str
        What an experiment file calls it: "rows" or "histograms".
    columns : mapping of str to Column
        Those of its shards.
    """

    draws: Draws
    parameters: Mapping[int, Cell]
    cells: pl.DataFrame
    claims: Mapping[str, Claim]
    counters: tuple[str, ...]

    keep: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]]

    @property
    def draws_name(self) -> str:
        """What the footers of its shards say of draws and content."""
        draws = self.draws
        return store.draws_name(draws.generator, draws.seed, draws.seeds, self.keep)

    @property
    def metrics(self) -> list[str]:
        """The counters and what is computed of them."""
        return [
            m.name for m in METRICS.values() if {m.counter, m.per or m.counter} <= {*self.counters}
        ]

    def blocks(self, numbers: Iterable[int]) -> list[Block]:
        """Group some cells for the kernel."""
        cells = {n: self.parameters[n] for n in numbers}
        return plan_blocks(cells, self.draws.generator, self.counters)

    @property
    def by_baseline(self) -> dict[int, list[int]]:
        """The cells that are compared with each baseline: the order of the tables."""
        groups: dict[int, list[int]] = {}
        for number, baseline in self.cells.select("cell", "baseline").iter_rows():
            groups.setdefault(baseline, []).append(number)
        return groups

    def lines(self, numbers: Iterable[int]) -> pl.DataFrame:
        """The lines of some cells in the table of cells."""
        return self.cells.filter(pl.col("cell").is_in(list(numbers)))

    def needed(self, ids: Iterable[int]) -> set[int]:
        """All cells that have to be simulated to save some."""
        return set(ids)

    def only(self, task: Task) -> Self:
        """The part that a task needs, which a worker is sent with it."""
        numbers = self.needed(task.ids)
        claims = {key: claim for key, claim in self.claims.items() if claim.cells[0] in task.ids}
        parameters = {number: self.parameters[number] for number in numbers}
        return replace(self, parameters=parameters, cells=self.lines(numbers), claims=claims)

    def write(self, folder: Path, content: Content) -> None:
        """Save a shard."""
        numbers = sorted(content.task.ids)
        identities = [self.parameters[number].identity for number in numbers]
        store.write_shard(
            folder,
            content.table,
            numbers,
            identities,
            *content.task.range,
            self.draws_name,
            content.sums,
            about(self.columns),
        )

    # --- making shards -----------------------------------------------------------------------

    @abstractmethod
    def tasks(self, ranges: Ranges, most_rows: int = 0, n_parts: int = 1) -> list[Task]:
        """Cut ranges into tasks; parameters as for `simulation.cut`.

        They depend on the experiment and the ranges alone.
        """

    @abstractmethod
    def simulate(
        self,
        task: Task,
        stop: StopFlag,
        progress: Callable[[int], None] = lambda n_rows: None,
    ) -> tuple[list[Content], list[Task]]:
        """Simulate a task until it is done, stopped, or `SAVE_SECONDS` have passed.

        Parameters
        ----------
        task : Task
            What to simulate.
        stop : StopFlag
            Looked at several times a second.
        progress : callable
            Called with the number of new rows, from time to time.

        Returns
        -------
        done : list of Content
            The task, or those parts of it that are done.
        rest : list of Task
            What is left of it.
        """

    @abstractmethod
    def estimate(self, missing: Ranges, shards: Sequence[Shard], sample: Sample) -> Estimate:
        """Estimate what it costs to make the missing shards, and the tables of all."""

    # --- reading them back -------------------------------------------------------------------

    def lacking(self, shards: Iterable[Shard]) -> list[str]:
        """Name what the tables need and the shards lack, though no replication is missing."""
        return []

    @abstractmethod
    def chunks(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Divide all cells into chunks whose tallies may be in memory together.

        They are in the order of `by_baseline`.
        """

    @abstractmethod
    def tallies(self, shards: Sequence[Shard], numbers: Sequence[int]) -> list[Tally]:
        """Count some cells in all shards, without claims; each cell is in one tally."""

    @abstractmethod
    def count_claims(self, shards: Sequence[Shard]) -> dict[str, ClaimCounts]:
        """Count every claim in all shards, by its key."""

    @abstractmethod
    def histograms(
        self, shards: Sequence[Shard], numbers: Sequence[int], n: int, metrics: Sequence[str]
    ) -> Iterator[tuple[pl.DataFrame, dict[str, Histogram]]]:
        """Count some metrics in the first n replications of some cells.

        Yields
        ------
        lines, histograms : polars.DataFrame, dict of str to Histogram
            The lines of K of the cells in the table of cells; the histogram of each metric in
            these.
        """

    @abstractmethod
    def check(
        self,
        shards: Sequence[Shard],
        jobs: int,
        seconds: float,
        sample: random.Random | None,
        progress: Callable[[int], None],
    ) -> Checked:
        """Simulate again what shards hold, and compare.

        Parameters
        ----------
        shards : sequence of Shard
            Whole ones, with cells that are known.
        jobs : int
            Threads.
        seconds : float
            How long to go on with a sample.
        sample : random.Random, optional
            Draws the sample; without it everything is compared.
        progress : callable
            Called with the number of rows so far.

        Returns
        -------
        Checked
        """


def task_of(shard: Shard) -> Task:
    """The task of which a shard holds the results."""
    return Task(shard.cells, shard.start, shard.stop)
