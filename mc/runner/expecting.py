"""What it will cost to count rows and to keep histograms, from a small sample of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc import store
from mc.experiment import Experiment
from mc.runner.making import kernel_input
from mc.runner.stock import Ranges
from mc.runner.tallying import ROWS_AT_ONCE, Tallying
from mc.runner.tasks import SAVE_SECONDS, Task, rows_of, simulate_block
from mc.store import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mc.statistics import Histogram
    from mc.statistics.tallies import Tally

_SAMPLE_CELLS: Final = 8
_SAMPLE_ROWS: Final = 4000
_FEW: Final = 8
"""By this a sample is divided, to see what takes the same time for few rows and for many."""


@dataclass(frozen=True)
class Expected:
    """What the shards that are missing will cost.

    Attributes
    ----------
    n_shards : int
        How many there are.
    n_bytes : float
        Their size.
    seconds : float
        On one core, to make them.
    """

    n_shards: int
    n_bytes: float
    seconds: float


def expect(
    experiment: Experiment,
    missing: Ranges,
    shards: Sequence[Shard],
    kernel_seconds: tuple[float, float],
) -> tuple[Expected, float]:
    """Find out what histograms will cost.

    Parameters
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    missing : Ranges
        What is still to be counted.
    shards : sequence of Shard
        What is there.
    kernel_seconds : tuple of float
        On one core: to simulate a row; to make the tables that the kernel reads of a block.

    Returns
    -------
    expected : Expected
        What the shards that are missing will cost.
    table_seconds : float
        Time for the tables at the end.
    """
    tallying = Tallying.of(experiment)
    most_rows = len(experiment.points) * experiment.replications
    tasks = tallying.tasks(missing, most_rows)
    numbers = sorted({number for task in tasks for number in task.ids})
    numbers = numbers or tallying.cells["cell"].to_list()
    sample = _Sample.of(tallying, experiment, numbers)
    n_needed = {ids: len(tallying.needed(ids)) for ids in {task.ids for task in tasks}}
    lines_of_a_cell = cache(sample.lines_of_a_cell)
    row_seconds, block_seconds = kernel_seconds
    n_shards, n_lines, n_bytes, seconds = 0, 0.0, 0.0, 0.0
    for task in tasks:
        n_rows = n_needed[task.ids] * (task.stop - task.start)
        of_task = n_rows * (row_seconds + sample.row_seconds) + block_seconds
        of_task += math.ceil(n_rows / ROWS_AT_ONCE) * sample.chunk_seconds
        n_parts = math.ceil(of_task / SAVE_SECONDS)
        n = math.ceil((task.stop - task.start) / n_parts)
        of_parts = lines_of_a_cell(n) * len(task.ids) * n_parts
        seconds += of_task
        n_shards += n_parts
        n_lines += of_parts
        n_bytes += of_parts * sample.line_bytes + n_parts * len(task.ids) * sample.cell_bytes
    n_lines += sum(shard.n_lines for shard in shards)
    table_seconds = sample.table_seconds * tallying.cells.height + sample.line_seconds * n_lines
    return Expected(n_shards, n_bytes, seconds), table_seconds


@dataclass(frozen=True)
class _Sample:
    """A few rows of a few cells, counted and timed.

    Attributes
    ----------
    tally : Tally
        What was counted.
    n : int
        Replications of each of its cells.
    row_seconds, chunk_seconds : float
        To count a row, and what is added for each chunk of rows.
    table_seconds, line_seconds : float
        To make the tables of a cell; for each line of a histogram, to read and add it.
    line_bytes, cell_bytes : float
        On disk: a line of a histogram; all else of a cell in a shard.
    """

    tally: Tally
    n: int
    row_seconds: float
    chunk_seconds: float
    table_seconds: float
    line_seconds: float
    line_bytes: float
    cell_bytes: float

    @classmethod
    def of(cls, tallying: Tallying, experiment: Experiment, numbers: Sequence[int]) -> _Sample:
        """Simulate and count a few replications of some of the cells, at even distances."""
        from mc.statistics import tallies

        k = min(_SAMPLE_CELLS, len(numbers))
        ids = tuple(numbers[i * len(numbers) // k] for i in range(k))
        needed = tallying.needed(ids)
        n = min(experiment.replications, max(1, _SAMPLE_ROWS // len(needed)))
        blocks = tallying.blocks(needed)
        lines = tallying.cells.filter(pl.col("cell").is_in(list(needed)))
        given = kernel_input(experiment.generator, experiment.seed, experiment.seeds, n)(0, n)
        counters = np.concatenate(
            [simulate_block(block, given, experiment.seed) for block in blocks], axis=1
        )
        rows = rows_of(Task(tuple(blocks), 0, n), counters, given)
        few = rows.filter(pl.col("replication") < max(1, n // _FEW))
        tallies.count(few, lines, ids, {})  # imports what it needs
        few_seconds = _seconds(lambda: tallies.count(few, lines, ids, {}))
        many_seconds = _seconds(lambda: tallies.count(rows, lines, ids, {}))
        row_seconds = max(0.0, many_seconds - few_seconds) / max(1, rows.height - few.height)

        tally = tallies.count(rows, lines, ids, {})
        table, sums = tallies.histograms(tally), tallies.sums(tally)
        alone = len(store.shard_bytes(table.clear(), {}, sums))
        return cls(
            tally=tally,
            n=n,
            row_seconds=row_seconds,
            chunk_seconds=max(0.0, few_seconds - row_seconds * few.height),
            table_seconds=_seconds(lambda: _make_tables(tally)) / k,
            line_seconds=_seconds(lambda: tallies.added([tally, tally])) / (2 * table.height),
            line_bytes=(len(store.shard_bytes(table, {}, sums)) - alone) / table.height,
            cell_bytes=alone / k,
        )

    def lines_of_a_cell(self, n: int) -> float:
        """How many different values n replications of a cell have, in all its metrics.

        Notes
        -----
        As many as a normal distribution of the same spread would have, times how many more or
        fewer there are in the sample than it would have there.
        """
        found = 0.0
        for counts in self.tally.metrics.values():
            counted = counts.histogram
            there = np.diff(counted.offsets)
            scale = _distinct(counted, n) / _distinct(counted, self.n)
            found += float(np.minimum(there * scale, n).sum())
        return found / self.tally.cells.height


def _distinct(counted: Histogram, n: int) -> NDArray[np.float64]:
    """How many different whole numbers n draws have of a normal distribution, in every cell.

    Notes
    -----
    The number v is among them with probability 1 - exp(-n p_v), p_v = phi((v - mean) / sd) / sd.
    """
    from mc import statistics

    spread = np.sqrt(np.nan_to_num(statistics.moments(counted).variance)) * counted.divisors
    sd = np.maximum(spread, 1e-9)[:, np.newaxis]
    z = np.linspace(-8.0, 8.0, 801)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    seen = -np.expm1(-n * density / sd)
    distinct: NDArray[np.float64] = np.maximum(1.0, spread * seen.sum(axis=1) * (z[1] - z[0]))
    return distinct


def _make_tables(tally: Tally) -> None:
    from mc.statistics import tallies

    tallies.summary_of(tally)
    tallies.comparisons_of(tally)


def _seconds(do: Callable[[], object]) -> float:
    """Time of this thread that something takes."""
    started = time.thread_time()
    do()
    return time.thread_time() - started
