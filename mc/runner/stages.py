"""[precision]: which cells have enough replications.

Replications grow in stages. After each stage every group of cells is judged by all rows of its
cells up to the end of the stage, and no others, so the answer depends on the experiment alone: not
on threads, machines or interruptions.

Few stages, each with twice the replications of the one before, leave the intervals their coverage.
A judgement after every replication would not: it would stop where the spread is small by luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mc.experiment import Precision
from mc.model import METRICS
from mc.runner.storage import Storage
from mc.statistics import Histogram, intervals, moments
from mc.statistics.rows import CAN_REJECT
from mc.store import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray


def precise_cells(
    storage: Storage,
    shards: Sequence[Shard],
    numbers: Sequence[int],
    n: int,
    precision: Precision,
) -> set[int]:
    """Find those of some cells whose first n replications are enough, see `are_precise`."""
    precise: set[int] = set()
    for lines, counted in storage.histograms(shards, numbers, n, precision.metrics):
        precise |= are_precise(counted, lines, precision)
    return precise


def are_precise(
    counted: Mapping[str, Histogram], cells: pl.DataFrame, precision: Precision
) -> set[int]:
    """Find the cells in which every metric is known as precisely as is asked.

    Parameters
    ----------
    counted : mapping of str to Histogram
        Of each metric in K cells.
    cells : polars.DataFrame, height K
        Their lines in the table of cells.
    precision : Precision
        What is asked for. A metric that is undefined in all replications of a cell is not asked
        for in this cell.

    Returns
    -------
    set of int
        Numbers of the cells in which the mean of each metric has an interval, see
        `intervals.mean_has_interval`, and half of it, at the confidence of `precision`, is within
        the tolerance. What cannot vary for want of retries needs no interval.
    """
    known = np.ones(cells.height, np.bool_)
    once = cells["max_attempts"].to_numpy() == 1
    # first attempts may be rejected, and may wait
    varying = cells.select(CAN_REJECT | (pl.col("queue") > 0)).to_series()
    once &= ~varying.to_numpy()
    for name in precision.metrics:
        without = METRICS[name].without_retries
        never_varies = once & (without is not None)
        known &= _is_known(counted[name], precision, without or 0) | never_varies
    return set(cells["cell"].to_numpy()[known].tolist())


def _is_known(counted: Histogram, precision: Precision, least: int) -> NDArray[np.bool_]:
    """Whether one metric is known in each cell; `least` is its number without retries."""
    of_metric = moments(counted)
    n = of_metric.n
    n_others = n - counted.sums(np.where(counted.doubles == least, counted.counts, 0))
    # where a small spread may only say that what is rare has not been seen yet
    has_interval = intervals.mean_has_interval(n, n_others, of_metric.skewness)
    mcse = np.sqrt(of_metric.variance / np.maximum(n, 1))
    half_width = intervals.t_half_width(n, mcse, precision.confidence)
    tolerance = np.array([precision.tolerance(mean) for mean in of_metric.mean.tolist()])
    with np.errstate(invalid="ignore"):
        narrow = half_width <= tolerance
    is_known: NDArray[np.bool_] = (n == 0) | (has_interval & narrow)
    return is_known
