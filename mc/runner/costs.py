"""What rows, histograms and tables cost: measured constants, and a small sample of rows.

The constants are of one core of an Intel Xeon with AVX-512 (2.8 GHz; Python 3.11, numba 0.68,
polars 2.1). `pace` says how much longer this machine takes. Whoever makes a part faster measures
its constants again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc import kernel, model
from mc.model import Cell, Generator
from mc.runner.simulation import (
    Block,
    Draws,
    Task,
    rows_of,
    simulate_alone,
    simulate_block,
)
from mc.runner.tracing import most_recorded
from mc.statistics import stacks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mc.runner.storage import Storage

# --- constants -----------------------------------------------------------------------------------

# the kernel: draws of a round, once for all cells of a block; with failures of served calls, more
DRAW_ROUND_NS: Final = 3.0
DRAW_FAILURE_ROUND_NS: Final = 6.0
# ... and for every cell a round of its fault, a retry, and a retry after a failure of a served call
FAULT_ROUND_NS: Final = 14.0
RETRY_NS: Final = 7.0
FAILURE_NS: Final = 20.0
# ... of which n cells that wait alike cost together as much as so many, and a share of n, alone
SHARED_CELLS: Final = 2.0
SHARED_CELL: Final = 1 / 16
# in the general loop: a round or a call, a retry, and a call that may wait
GENERAL_NS: Final = 9.0
GENERAL_RETRY_NS: Final = 45.0
QUEUE_NS: Final = 30.0
# with the lesson's generator, of which cells share nothing: a round or a call
LESSON_NS: Final = 30.0
# the tables that the kernel reads, for a cell
BLOCK_CELL_NS: Final = 30_000.0

# rows: writing a shard, and encoding a row
SHARD_NS: Final = 6_000_000.0
SAVE_ROW_NS: Final = 250.0
# histograms: counting a row, and each chunk of rows of a cell
COUNT_ROW_NS: Final = 4_000.0
COUNT_CELL_NS: Final = 500_000.0

# tables: those of the smallest run; counting a row that was kept, or reading and adding a line of a
# histogram; and each cell
TABLES_NS: Final = 400_000_000.0
TABLE_ROW_NS: Final = 2_200.0
TABLE_LINE_NS: Final = 1_500.0
TABLE_CELL_NS: Final = 300_000.0

# the page, drawn by one core: its figures, and of how many cells every round is recorded
PAGE_NS: Final = 2_900_000_000.0
PAGE_CELLS: Final = 16

# a file of rows: without the rows, and what its footer says of a cell
SHARD_BYTES: Final = 9_500
SHARD_CELL_BYTES: Final = 26
# a row, in place of each byte of its entropy
ROW_BYTES: Final = 1.12
# a line of a histogram of those that `Sample.lines` expects, and all sums of a cell, in its footer
HISTOGRAM_LINE_BYTES: Final = 3.3
HISTOGRAM_CELL_BYTES: Final = 4_600
# manifest and tables of any run, and what they hold of a cell
FOLDER_BYTES: Final = 110_000
FOLDER_CELL_BYTES: Final = 3_500

REFERENCE: Final = Cell(fault_rounds=100, tries=(3, 3, 3), chain="flattened")
REFERENCE_NS: Final = 24_000.0
"""A replication of this cell alone: by it `pace` compares machines."""

# --- the sample ----------------------------------------------------------------------------------

SAMPLE_CELLS: Final = 64
SAMPLE_ROWS: Final = 512
SAMPLE_SECONDS: Final = 0.3
"""So many rows, of so many cells, are simulated, or fewer in this time, but one of each cell."""

SAMPLE_MOST_SECONDS: Final = 3.0
"""After so long no other cell is simulated. One storm may cost as much as all other cells, so the
cells that are left out are not like the others."""

_MOST_SIZE: Final = 2e7
"""Of a very large cell, no more replications than have so many rounds and requests."""

_GOLDEN: Final = (5**0.5 - 1) / 2
"""Its multiples modulo 1 are spread evenly, however many there are. Equal distances would meet the
same value of an axis again and again."""


@dataclass(frozen=True)
class Sample:
    """What a few replications of some cells have shown, as means over these cells.

    Attributes
    ----------
    row_ns : float
        What the kernel needs for a row.
    spread : ndarray of float64, shape (K, metrics)
        Standard deviation of each metric of the experiment, in the whole numbers that are stored;
        the counters come first.
    n_counters : int
        How many of them are counters.
    """

    row_ns: float
    spread: NDArray[np.float64]
    n_counters: int

    @property
    def row_bytes(self) -> float:
        """Bytes of a row.

        Notes
        -----
        A counter takes about as many bits as a normal distribution of its spread, rounded, has
        entropy: log2(sd sqrt(2 pi e)). Delta coding and zstd come close to that, see `ROW_BYTES`.
        """
        counters = self.spread[:, : self.n_counters]
        bits = np.log2(1 + counters * math.sqrt(2 * math.pi * math.e))
        return ROW_BYTES * float(bits.sum(axis=1).mean() / 8)

    def lines(self, n: int) -> float:
        """Lines of the histograms of a cell: different values in n replications, in all metrics.

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
"""For what has no missing cell."""


@dataclass(frozen=True)
class Estimate:
    """What the missing shards will cost, and the tables after them.

    Attributes
    ----------
    n_shards, n_bytes : int, float
        Shards, and their size.
    core_ns, table_ns : float
        Time on one core for the shards, and for the tables of these and those that exist.
    """

    n_shards: int = 0
    n_bytes: float = 0.0
    core_ns: float = 0.0
    table_ns: float = 0.0


def take_sample(storage: Storage, numbers: Sequence[int], n: int, pace: float) -> Sample:
    """Simulate the first of n replications of some of these cells; there must be a cell.

    The general loop is timed, as each of its cells costs what it costs alone; what `pace` makes of
    other machines is taken out again. Each cell has the same share of the time, so that the first
    ones do not take it all.
    """
    draws = storage.draws
    shares = {number: n for block in storage.blocks(numbers) for number, n in _shares(block)}
    places = [int((k + 0.5) * _GOLDEN % 1.0 * len(numbers)) for k in range(SAMPLE_CELLS)]
    chosen = list(dict.fromkeys(numbers[place] for place in places))
    most = min(n, SAMPLE_ROWS // len(chosen))
    blocks = {number: storage.blocks([number])[0] for number in chosen}
    for shape in dict.fromkeys(block.shape for block in blocks.values()):
        kernel.prepare(draws.generator, shape)  # compiled before anything is timed
    rows, row_ns = [], []
    # which a machine that is busy makes no shorter
    deadline = time.process_time() + SAMPLE_MOST_SECONDS
    for number, block in blocks.items():
        cell = storage.parameters[number]
        counters, took = _timed(block, draws, 1)
        m = max(1, min(most, int(_MOST_SIZE / (cell.rounds + _requests(cell)))))
        m = max(1, min(m, int(SAMPLE_SECONDS / len(chosen) / max(took, 1e-9))))
        if m > 1:
            counters, took = _timed(block, draws, m)
        row_ns.append(_row_ns(cell, counters, draws.generator, *shares[number]))
        if draws.generator == "philox" and kernel.loop_of(model.chain_kind(cell)) is not None:
            row_ns[-1] = 1e9 * took / m / pace
        rows.append(rows_of(Task((number,), 0, m), [counters], storage.counters, draws))
        if time.process_time() > deadline:
            break
    spread = _spread(storage, pl.concat(rows))
    return Sample(float(np.mean(row_ns)), spread, len(storage.counters))


def _timed(block: Block, draws: Draws, m: int) -> tuple[NDArray[np.int64], float]:
    """The first m replications of a block, and the seconds of one core that they took."""
    block.tables  # noqa: B018  # they are made once for all rows
    started = time.process_time()
    counters = simulate_alone(block, draws.indices(0, m), draws.seed)
    return counters, time.process_time() - started


def page_ns(cells: Sequence[Cell], n: int, row_ns: float) -> float:
    """What the page takes: its figures, and the replications that it records round by round."""
    drawn = cells[:PAGE_CELLS]
    n_rounds = sum(cell.rounds for cell in drawn)
    n_recorded = min(n, most_recorded(n_rounds))
    return PAGE_NS + n_recorded * max(row_ns * len(drawn), GENERAL_NS * n_rounds)


def _requests(cell: Cell) -> float:
    """About how many requests a replication has: a worker's next comes with the last's answer."""
    loop = cell.traffic if cell.is_closed else None
    of_workers = (loop.workers or 0) * cell.rounds / (1 + (loop.think or 0)) if loop else 0.0
    return cell.requests_in(0, cell.rounds) + of_workers


def _shares(block: Block) -> Iterator[tuple[int, tuple[int, int]]]:
    """For each cell of a block: how many share its draws, and how many its wheel."""
    keys = [model.wheel_key(cell) for cell in block.cells]
    n_alike = Counter(keys)
    for number, key in zip(block.ids, keys, strict=True):
        yield number, (len(keys), n_alike[key])


def _row_ns(
    cell: Cell, counters: NDArray[np.int64], generator: Generator, n_shared: int, n_alike: int
) -> float:
    """What the kernel needs for a row of a cell in a block of `n_shared` cells.

    Of these, `n_alike` wait like it.
    """
    means = counters[:, 0].mean(axis=0)
    calls, retries = float(means[kernel.CALLS]), float(means[kernel.RETRIES])
    if generator == "lesson":
        return LESSON_NS * (cell.rounds + calls)
    if kernel.loop_of(model.chain_kind(cell)) is not None:
        queued = QUEUE_NS * calls if cell.queue else 0.0
        return GENERAL_NS * (cell.rounds + calls) + GENERAL_RETRY_NS * retries + queued
    can_fail = cell.can_fail
    drawn = (DRAW_ROUND_NS + DRAW_FAILURE_ROUND_NS * can_fail) * cell.rounds
    start, end = cell.window
    own = FAULT_ROUND_NS * (end - start) + (RETRY_NS + FAILURE_NS * can_fail) * retries
    return drawn / n_shared + own * min(1.0, SHARED_CELLS / n_alike + SHARED_CELL)


def _spread(storage: Storage, rows: pl.DataFrame) -> NDArray[np.float64]:
    """Standard deviation of each metric in each cell, in whole numbers."""
    spreads = []
    for stack in stacks(rows, storage.lines(rows["cell"].unique())):
        numbers = [stack.numbers(metric) for metric in stack.metrics]
        masked = [np.ma.masked_array(some.numbers, ~some.known) for some in numbers]
        spreads.append(np.stack([m.std(axis=1, ddof=1).filled(0.0) for m in masked], axis=1))
    return np.concatenate(spreads)


def pace() -> float:
    """How many times as long the kernel takes here as on the machine of the constants."""
    block = Block((0,), (REFERENCE,), "philox")
    n = 100
    took = []
    for _ in range(4):  # the first time the kernel is loaded
        started = time.thread_time()
        simulate_block(block, np.arange(n), 1)
        took.append(time.thread_time() - started)
    return min(took) * 1e9 / (n * REFERENCE_NS)
