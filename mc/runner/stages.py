"""[precision]: which cells have enough replications.

Replications grow in stages; after each stage every group of cells is looked at. What is looked at
are all rows of its cells up to the end of the stage and no others, so the answer depends on the
experiment alone: not on threads, machines or interruptions.

Few looks, each at twice the replications of the one before, leave the intervals their coverage; a
look at every replication would not: it ends where the spread is small by luck.
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
from mc.statistics.rows import RATIO_STEPS
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
    """Find the cells whose first n replications are enough.

    Parameters
    ----------
    storage : Storage
        What the shards hold.
    shards : sequence of Shard
        All replications of the cells up to the n-th.
    numbers : sequence of int
        The cells.
    n : int
        Replications after a stage.
    precision : Precision
        What is asked for.

    Returns
    -------
    set of int
        See `are_precise`.
    """
    precise: set[int] = set()
    for lines, counted in storage.histograms(shards, numbers, n, precision.metrics):
        precise |= are_precise(counted, lines, precision)
    return precise


def are_precise(
    counted: Mapping[str, Histogram], cells: pl.DataFrame, precision: Precision
) -> set[int]:
    """Find the cells in which every metric is known as precisely as asked.

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
    for name in precision.metrics:
        without = METRICS[name].without_retries
        least = (without or 0) * (RATIO_STEPS if METRICS[name].per else 1)
        known &= _is_known(counted[name], precision, least) | (once & (without is not None))
    return set(cells["cell"].to_numpy()[known].tolist())


def _is_known(counted: Histogram, precision: Precision, least: int) -> NDArray[np.bool_]:
    """Whether one metric is known in each cell; `least` is its number without retries."""
    found = moments(counted)
    n = found.n
    n_others = n - counted.sums(np.where(counted.values == least, counted.counts, 0))
    # where a small spread may only say that what is rare has not been seen yet
    given = intervals.mean_has_interval(n, n_others, found.skewness)
    mcse = np.sqrt(found.variance / np.maximum(n, 1))
    half_width = intervals.t_half_width(n, mcse, precision.confidence)
    tolerance = np.array([precision.tolerance(mean) for mean in found.mean.tolist()])
    with np.errstate(invalid="ignore"):
        narrow = half_width <= tolerance
    is_known: NDArray[np.bool_] = (n == 0) | (given & narrow)
    return is_known
