"""What the tests of statistics share: rows, cells and claims made by hand or at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mc.experiment import Claim, Relation
from mc.model import COUNTERS, METRICS, PARAMETERS, Cell
from mc.statistics import intervals, with_ratios

OUTAGE: Final = Cell(fault_rounds=100)


def claim(
    relation: Relation,
    cells: tuple[int, ...],
    metrics: tuple[str, ...] = ("calls",),
    value: float | tuple[float, float] | None = None,
    *,
    times: float = 1.0,
    margin: float | None = None,
) -> Claim:
    """State a claim, as the experiment file gives it."""
    labels = tuple(f"cell {index}" for index in cells)
    return Claim("a sentence", "default", metrics, relation, cells, labels, value, times, margin)


def cell_frame(*cells: Cell, baseline: int = 0) -> pl.DataFrame:
    """Build the table of cells, as far as statistics read it."""
    lines = [
        {"cell": index, "scenario": "default", "policy": f"p{index}", "baseline": baseline}
        | {
            name: PARAMETERS[name].kind.to_column(value) if name == "faults" else value
            for name, value in cell.parameters.items()
            if name != "tries"
        }
        for index, cell in enumerate(cells)
    ]
    int32 = {name: pl.Int32 for name, value in lines[0].items() if isinstance(value, int)}
    return pl.DataFrame(lines, schema_overrides=int32)


def row_frame(columns: dict[str, Any], cell: int = 0, first: int = 0) -> pl.DataFrame:
    """Build the rows of one cell; counters that are not given are 0."""
    n = len(next(iter(columns.values())))
    data = {"cell": [cell] * n, "replication": range(first, first + n)}
    data |= {name: columns.get(name, [0] * n) for name in COUNTERS}
    wide = {"cell": pl.Int32} | {
        name: pl.Int64 if name == "wait_total" else pl.Int32 for name in COUNTERS
    }
    return pl.DataFrame(data, schema_overrides=wide)


def random_rows(n_cells: int, n: int, seed: int) -> pl.DataFrame:
    """Draw rows with a common part in every cell, as common random numbers give them."""
    generator = np.random.default_rng(seed)
    requests = generator.poisson(3889, n)
    frames = []
    for cell in range(n_cells):
        columns = {name: generator.poisson(20 + 7 * cell, n) for name in COUNTERS}
        columns["requests"] = requests
        columns |= {name: requests % 2 for name in COUNTERS if METRICS[name].is_indicator}
        columns["calls"] = requests + generator.poisson(100 * (cell + 1), n)
        columns["wait_total"] = generator.integers(2**40, 2**41, n)
        frames.append(row_frame(columns, cell))
    return pl.concat(frames)


def line(summary: pl.DataFrame, metric: str, cell: int = 0) -> dict[str, Any]:
    """Look up one line of a summary or of comparisons."""
    found = summary.filter(pl.col("cell") == cell, pl.col("metric") == metric)
    return found.row(0, named=True)


def exact_of(rows: pl.DataFrame, cells: pl.DataFrame, metric: str) -> NDArray[np.float64]:
    """Compute a metric of each row, NaN for NULL."""
    return with_ratios(rows, cells)[metric].cast(pl.Float64).fill_null(np.nan).to_numpy()


def values_of(rows: pl.DataFrame, cells: pl.DataFrame, metric: str) -> NDArray[np.float64]:
    """The same; a ratio of two counters is rounded to six decimals, as in sums."""
    values = exact_of(rows, cells, metric)
    return np.round(values, 6) if METRICS[metric].per else values


def interval_of_share(n_holds: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Scipy's interval of a share: Wilson's, and the exact one where fewer than 20 hold or fail."""
    method = "exact" if min(n_holds, n - n_holds) < 20 else "wilson"
    found = stats.binomtest(n_holds, n).proportion_ci(level, method)
    return float(found.low), float(found.high)


ROUGH: Final = {"few"}
"""An interval is given, with a note."""

NOTED: Final[dict[str, Sequence[int | None]]] = {
    "none": [None] * 5,
    "one": [None, 7],
    "few": list(range(9)),
    "equal": [5] * 3000,
    "rare": [0] * 2999 + [1],
    "never": [0] * 3000,
    "skewed": [1] * 2999 + [10_000],
    "plain": [*range(3000), None],
}


def note_of(values: ArrayLike) -> str | None:
    """Why the interval of the mean of these values is missing or rough; None where it is good."""
    note: str | None = intervals.mean_notes(*_judged(values))[0]
    return note


def given_of(values: ArrayLike) -> bool:
    """Whether the mean of these values has an interval."""
    return bool(intervals.mean_has_interval(*_judged(values)))


def _judged(values: ArrayLike) -> tuple[int, int, float]:
    """By what the interval of a mean is judged: n, how many are not 0, skewness."""
    x = np.asarray(values, np.float64)
    varies = len(x) > 1 and np.ptp(x) > 0
    skewness = float(stats.skew(x - x.min())) if varies else np.nan
    return len(x), int(np.count_nonzero(x)), skewness
