"""What rows, histograms and tables cost: constants that were measured, and a small sample of rows.

The constants are of one core of a machine of 2025 (Intel Xeon at 2.1 GHz with AVX-512, Python 3.12,
numba 0.62, polars 1.36); those of the kernel are scaled to the machine by the time that the sample
takes. Whoever makes a part faster measures its constants again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc import kernel
from mc.runner.simulation import Task, rows_of, simulate_block
from mc.statistics import stacks
from mc.statistics.rows import metrics_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mc.runner.storage import Storage

# --- constants -----------------------------------------------------------------------------------

DRAW_ROUND_NS: Final = 2.0
DRAW_REQUEST_NS: Final = 5.0
"""The kernel draws a round, and a request, once for all cells of a block, ..."""

ROUND_NS: Final = 0.6
RETRY_NS: Final = 14.0
"""... and simulates each round and each retry for every cell."""

BLOCK_CELL_SECONDS: Final = 30e-6
"""For each cell of a block: to make the tables that the kernel reads."""

SAVE_ROW_NS: Final = 250.0
"""To encode a row for its shard."""

COUNT_ROW_NS: Final = 4_000.0
COUNT_CELL_SECONDS: Final = 0.5e-3
"""With histograms: to count a row; and for each chunk of a cell's rows."""

TABLE_ROW_NS: Final = 1_000.0
TABLE_LINE_NS: Final = 150.0
TABLE_CELL_SECONDS: Final = 2e-3
"""For the tables: to count a row that was kept, or read and add a line of a histogram; and for each
cell."""

SHARD_BYTES: Final = 6_000
SHARD_CELL_BYTES: Final = 26
"""A file of rows without its rows; what its footer says of each cell."""

HISTOGRAM_LINE_BYTES: Final = 2.5
HISTOGRAM_CELL_BYTES: Final = 1_700
"""A line of a histogram; all sums of a cell."""

TABLES_BYTES: Final = 40_000
TABLES_CELL_BYTES: Final = 1_000
"""Manifest and tables of any run; and of each cell."""

# --- the sample ----------------------------------------------------------------------------------

SAMPLE_CELLS: Final = 64
SAMPLE_REPLICATIONS: Final = 8
SAMPLE_SECONDS: Final = 0.3
"""So many replications of so many cells are simulated, or fewer in this time."""

_GOLDEN: Final = (5**0.5 - 1) / 2
"""Its multiples modulo 1 spread evenly over the unit interval, however many there are. Axes of a
grid repeat at equal distances."""

_MOST_SIZE: Final = 2e7
"""Rounds and requests of the replications of one cell: of very large cells fewer are simulated."""


@dataclass(frozen=True)
class Sample:
    """What a few replications of some cells have shown, as means over these cells.

    Attributes
    ----------
    row_seconds : float
        Time of the kernel for a row, on one core of this machine.
    spread : ndarray of float64, shape (K, metrics)
        Standard deviation of each metric of the experiment, in the whole numbers that are stored;
        the counters come first.
    n_counters : int
        How many of them are counters.
    """

    row_seconds: float
    spread: NDArray[np.float64]
    n_counters: int

    @property
    def row_bytes(self) -> float:
        """Bytes of a row.

        Notes
        -----
        As many bits for a counter as a rounded normal distribution of its spread has entropy:
        log2(sd sqrt(2 pi e)). Delta coding and zstd come to about that.
        """
        counters = self.spread[:, : self.n_counters]
        bits = np.log2(1 + counters * math.sqrt(2 * math.pi * math.e))
        return float(bits.sum(axis=1).mean() / 8)

    def lines(self, n: int) -> float:
        """Lines of the histograms of a cell with n replications: different values of its metrics.

        Notes
        -----
        A whole number v is among n draws of a normal distribution with probability
        1 - exp(-n p), p = phi((v - mean) / sd) / sd.
        """
        z = np.linspace(-6.0, 6.0, 121)
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        sd = np.maximum(self.spread, 1e-9)[..., np.newaxis]
        distinct = self.spread * -np.expm1(-n * density / sd).sum(axis=-1) * (z[1] - z[0])
        return float(np.maximum(1.0, distinct).sum(axis=1).mean())


NO_SAMPLE: Final = Sample(0.0, np.zeros((1, 0)), 0)
"""Where nothing is missing."""


@dataclass(frozen=True)
class Estimate:
    """What the shards that are missing will cost, and the tables after them.

    Attributes
    ----------
    n_shards, n_bytes : int, float
        Files, and their size.
    core_seconds, table_seconds : float
        On one core: to make the shards; to make the tables of all that exists then.
    """

    n_shards: int = 0
    n_bytes: float = 0.0
    core_seconds: float = 0.0
    table_seconds: float = 0.0


def take_sample(storage: Storage, numbers: Sequence[int], n: int) -> Sample:
    """Simulate the first replications of some cells.

    Parameters
    ----------
    storage : Storage
        Knows the cells.
    numbers : sequence of int
        Those that are still to be simulated, at least one.
    n : int
        Their replications.

    Returns
    -------
    Sample
    """
    shared = {number: len(block.ids) for block in storage.blocks(numbers) for number in block.ids}
    places = [int((k + 0.5) * _GOLDEN % 1.0 * len(numbers)) for k in range(SAMPLE_CELLS)]
    chosen = list(dict.fromkeys(numbers[place] for place in places))
    most = min(n, SAMPLE_CELLS * SAMPLE_REPLICATIONS // len(chosen))
    rows, seconds = [], []
    measured = expected = 0.0
    _simulate(storage, chosen[0], 1)  # loads the kernel
    deadline = time.perf_counter() + SAMPLE_SECONDS
    for number in chosen:
        cell = storage.parameters[number]
        n_requests = cell.rounds * cell.rate_per_round
        m = max(1, min(most, int(_MOST_SIZE / (cell.rounds + n_requests))))
        counters, took = _simulate(storage, number, m)
        n_retries = counters[..., kernel.RETRIES].mean()
        drawn = 1e-9 * (DRAW_ROUND_NS * cell.rounds + DRAW_REQUEST_NS * n_requests)
        own = 1e-9 * (ROUND_NS * cell.rounds + RETRY_NS * n_retries)
        measured += took
        expected += m * (drawn + own)
        seconds.append(own + drawn / shared[number])
        rows.append(rows_of(Task((number,), 0, m), counters, storage.counters, storage.draws))
        if time.perf_counter() > deadline:
            break
    speed = measured / expected
    spread = _spread(storage, pl.concat(rows))
    return Sample(float(np.mean(seconds)) * speed, spread, len(storage.counters))


def _simulate(storage: Storage, number: int, n: int) -> tuple[NDArray[np.int64], float]:
    """Counters of the first replications of a cell alone, and the time of the kernel."""
    draws = storage.draws
    (block,) = storage.blocks([number])
    _ = block.tables
    started = time.thread_time()
    counters = simulate_block(block, draws.indices(0, n), draws.seed)
    return counters, time.thread_time() - started


def _spread(storage: Storage, rows: pl.DataFrame) -> NDArray[np.float64]:
    """Standard deviation of each metric in each cell, in whole numbers."""
    found = []
    for stack in stacks(rows, storage.lines(rows["cell"].unique())):
        taken = [stack.numbers(metric) for metric in metrics_in(stack.rows)]
        masked = [np.ma.masked_array(t.numbers, ~t.known) for t in taken]
        found.append(np.stack([m.std(axis=1, ddof=1).filled(0.0) for m in masked], axis=1))
    return np.concatenate(found)
