"""[precision]: which cells have enough replications.

Replications grow in stages; after each stage every group of cells is looked at. What is looked at
are all rows of its cells up to the end of the stage and no others, so the answer depends on the
experiment alone: not on threads, machines or interruptions.

Few looks, each at twice the replications of the one before, leave the intervals their coverage; a
look at every replication would not: it ends where the spread is small by luck.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from scipy import special

from mc import statistics
from mc.experiment import Precision

MOSTLY_ZERO: Final = 0.2
"""Where more than this share of the values is 0, a small spread may only say that what is rare has
not been seen yet..."""

ENOUGH_OTHERS: Final = 100
"""...so at least this many must be other than 0."""

NONE_WITHOUT_RETRIES: Final = frozenset(
    {"retries", "wait_total", "wait_max", "wait_mean", "late", "drain"}
)
"""Always 0 where a request has a single attempt: there is nothing rare to wait for."""


def columns(precision: Precision) -> list[str]:
    """Columns of the rows that `precise_cells` needs."""
    metrics = [statistics.METRICS[name] for name in precision.metrics]
    names = [name for m in metrics for name in (m.counter, m.per) if isinstance(name, str)]
    return ["cell", "replication", *dict.fromkeys(names)]


def precise_cells(rows: pl.DataFrame, cells: pl.DataFrame, precision: Precision) -> set[int]:
    """Find the cells in which every metric is known as precisely as asked.

    Parameters
    ----------
    rows : polars.DataFrame
        `columns` of replications 0 .. n - 1 of the cells, in any order.
    cells : polars.DataFrame
        The table of cells.
    precision : Precision
        What is asked for.

    Returns
    -------
    set of int
        Their numbers.
    """
    by_cell = {index: frame for (index,), frame in rows.group_by("cell")}
    return {
        cell["cell"].item()
        for cell in cells.iter_slices(1)
        if is_precise(by_cell.get(cell["cell"].item(), rows.clear()), cell, precision)
    }


def is_precise(rows: pl.DataFrame, cell: pl.DataFrame, precision: Precision) -> bool:
    """Whether every metric of one cell is known as precisely as asked.

    Parameters
    ----------
    rows : polars.DataFrame
        Rows of this cell only, in any order.
    cell : polars.DataFrame, height 1
        Its line in the table of cells.
    precision : Precision
        A metric that is undefined in all rows is not asked for in this cell.

    Returns
    -------
    bool
    """
    return all(_is_known(name, rows, cell, precision) for name in precision.metrics)


def _is_known(name: str, rows: pl.DataFrame, cell: pl.DataFrame, precision: Precision) -> bool:
    taken = statistics.sample(rows, cell, statistics.METRICS[name])
    numbers = taken.numbers[taken.known]
    n = len(numbers)
    if n == 0 or (name in NONE_WITHOUT_RETRIES and cell["max_attempts"].item() == 1):
        return True
    n_others = int(np.count_nonzero(numbers))
    if n - n_others > MOSTLY_ZERO * n and n_others < ENOUGH_OTHERS:
        return False
    found = statistics.estimate(numbers, taken.divisor)
    if found.mean is None or found.mcse is None:
        return False
    half_width = float(special.stdtrit(n - 1, (1 + precision.confidence) / 2)) * found.mcse
    return half_width <= precision.tolerance(found.mean)
