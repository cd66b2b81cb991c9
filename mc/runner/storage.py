"""What a run keeps of its replications: one interface, with rows or histograms behind it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import polars as pl

from mc import store
from mc.experiment import Claim
from mc.model import METRICS, Cell
from mc.runner.costs import Estimate, Sample
from mc.runner.simulation import Block, Draws, Task, plan_blocks
from mc.statistics import ClaimCounts, Histogram
from mc.statistics.tallies import Tally
from mc.store import Shard
from mc.store.threads import StopFlag

Ranges = Mapping[tuple[int, int], Sequence[int]]
"""Cells by a range of replications: the first, and the one after the last."""


def n_rows(ranges: Ranges) -> int:
    """Count the rows."""
    return sum((stop - start) * len(numbers) for (start, stop), numbers in ranges.items())


@dataclass(frozen=True)
class Content:
    """What a shard holds of a task.

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
class Storage(ABC):
    """What has to be known of an experiment to simulate, save, read and check its cells.

    Attributes
    ----------
    draws : Draws
        Which random numbers.
    parameters : mapping of int to Cell
        Of each cell, numbered as in the folder.
    cells : polars.DataFrame
        The table of cells, sorted by `cell`.
    claims : mapping of str to Claim
        By `claim_key`.
    counters : tuple of str
        Those that exist in one cell of the experiment, or more.
    keep : str
        The word for what is kept in an experiment file.
    """

    draws: Draws
    parameters: Mapping[int, Cell]
    cells: pl.DataFrame
    claims: Mapping[str, Claim]
    counters: tuple[str, ...]

    keep: ClassVar[str]

    @property
    def draws_name(self) -> str:
        """What the footers of its shards say of draws and content, see `store.draws_name`."""
        draws = self.draws
        return store.draws_name(draws.generator, draws.seed, draws.seeds, self.keep)

    @property
    def metrics(self) -> list[str]:
        """The counters and what is computed of them."""
        return [
            m.name for m in METRICS.values() if {m.counter, m.per or m.counter} <= {*self.counters}
        ]

    def blocks(self, numbers: Iterable[int]) -> list[Block]:
        """Group cells for the kernel."""
        cells = {n: self.parameters[n] for n in numbers}
        return plan_blocks(cells, self.draws.generator, self.counters)

    def lines(self, numbers: Iterable[int]) -> pl.DataFrame:
        """The lines of some cells in the table of cells."""
        return self.cells.filter(pl.col("cell").is_in(list(numbers)))

    def needed(self, ids: Iterable[int]) -> set[int]:
        """All cells that must be simulated to save some."""
        return set(ids)

    def only(self, task: Task) -> Self:
        """The part that a task needs: it is sent to a worker with each task."""
        numbers = self.needed(task.ids)
        claims = {key: claim for key, claim in self.claims.items() if claim.cells[0] in task.ids}
        parameters = {number: self.parameters[number] for number in numbers}
        return replace(self, parameters=parameters, cells=self.lines(numbers), claims=claims)

    def write(self, folder: Path, content: Content) -> None:
        """Save what was made of a task as a shard."""
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
        )

    # --- making shards -----------------------------------------------------------------------

    @abstractmethod
    def tasks(self, ranges: Ranges, most_rows: int = 0, n_parts: int = 1) -> list[Task]:
        """Cut ranges into tasks, by the experiment and the ranges alone; see `simulation.cut`."""

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
        """What it costs to make what is missing, and the tables of all.

        Parameters
        ----------
        missing : Ranges
            What is still to be simulated.
        shards : sequence of Shard
            What exists.
        sample : Sample
            Of the cells that are missing, see `costs.take_sample`.

        Returns
        -------
        Estimate
        """

    # --- reading them back -------------------------------------------------------------------

    def lacking(self, shards: Iterable[Shard]) -> list[str]:
        """Name what the tables need and shards do not hold, though no replication is missing."""
        return []

    @abstractmethod
    def chunks(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """All cells, in chunks whose tallies are in memory together."""

    @abstractmethod
    def tallies(self, shards: Sequence[Shard], numbers: Sequence[int]) -> list[Tally]:
        """Count some cells in all shards, claims aside; each cell is in one tally."""

    @abstractmethod
    def count_claims(self, shards: Sequence[Shard]) -> dict[str, ClaimCounts]:
        """Count every claim in all shards, by its key."""

    @abstractmethod
    def histograms(
        self, shards: Sequence[Shard], numbers: Sequence[int], n: int, metrics: Sequence[str]
    ) -> Iterator[tuple[pl.DataFrame, dict[str, Histogram]]]:
        """Histograms of some metrics in the first n replications of some cells.

        Yields
        ------
        lines, histograms : polars.DataFrame, dict of str to Histogram
            Lines of K cells in the table of cells, and for each metric the histogram in these.
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
        """Compare what shards hold with the same simulated again.

        Parameters
        ----------
        shards : sequence of Shard
            Whole ones; all of their cells are known.
        jobs : int
            Threads.
        seconds : float
            How long to go on with a sample.
        sample : random.Random, optional
            Draws the sample; without it everything is simulated again.
        progress : callable
            Called with the number of rows that were simulated so far.

        Returns
        -------
        Checked
        """


@dataclass(frozen=True)
class Checked:
    """What a comparison with the same simulated again has shown.

    Attributes
    ----------
    n_rows : int
        Rows that were simulated again.
    faults : list of str
        What is wrong with shards, a line each.
    differences : polars.DataFrame
        What differs, see `mc.runner.Verification`.
    """

    n_rows: int
    faults: list[str]
    differences: pl.DataFrame


def task_of(shard: Shard) -> Task:
    """All that a shard holds."""
    return Task(shard.cells, shard.start, shard.stop)
