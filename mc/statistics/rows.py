"""From rows to numbers: each metric in many cells at once.

Every metric is a whole number over a divisor that is constant in a cell. So sums are exact, and
do not depend on the order in which, or the parts in which, they are taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import METRICS, CensoredIn, Metric, PerCell
from mc.model.columns import MEAN_REQUESTS, MEAN_WINDOW_REQUESTS

RATIO_STEPS: Final = 10**6
"""In sums a ratio of two counters is rounded to this part of a unit, halves to even, and so is a
whole number, too; it fits into 64 bits, as no ratio of the model exceeds 2**31. That moves a mean
by half a step at most, and by far less where the ratio varies: errors cancel out. Nothing else is
rounded: ratios are put in order, and are equal, as the fractions that they are."""


def _of_fault(entry: str) -> pl.Expr:
    """An entry of each of the `faults`, of which a column has the text; a list of numbers."""
    return (
        pl.col("faults")
        .cast(pl.String)
        .str.extract_all(rf"{entry}=\d+")
        .list.eval(pl.element().str.extract(r"(\d+)").cast(pl.Int64))
    )


# 64 bits: start and length of the window may each fill 32
_START: Final = pl.coalesce(_of_fault("start").list.first(), pl.col("fault_start").cast(pl.Int64))
_END: Final = pl.coalesce(
    _of_fault("start").list.last() + _of_fault("length").list.last(),
    pl.col("fault_start").cast(pl.Int64) + pl.col("fault_rounds"),
)
N_WINDOW_ROUNDS: Final = pl.max_horizontal(
    pl.min_horizontal(_END, pl.col("rounds")) - _START, pl.lit(0, pl.Int64)
)
"""Rounds of the fault window that lie inside the run."""

CAN_REJECT: Final = (
    pl.col("breaker").is_not_null() | pl.col("budget").cast(pl.String).str.contains("k=")
).fill_null(value=False)
"""Where a breaker or a throttle can reject calls, first attempts, too."""

RATE_PER_ROUND: Final = pl.col("arrivals_per_second") / pl.col("rounds_per_second")


def has_traffic(cells: pl.DataFrame) -> bool:
    """Whether a table of cells has one with other traffic than a constant rate."""
    # a table may be older than the parameter
    return "traffic" in cells.columns and cells["traffic"].null_count() < cells.height


def mean_requests(cells: pl.DataFrame) -> pl.Expr:
    """Requests that arrive in a run on average, over the columns of a table of cells."""
    return pl.col(MEAN_REQUESTS) if has_traffic(cells) else pl.col("rounds") * RATE_PER_ROUND


def mean_window_requests(cells: pl.DataFrame) -> pl.Expr:
    """Requests that arrive in the fault window on average, as `mean_requests`."""
    if has_traffic(cells):
        return pl.col(MEAN_WINDOW_REQUESTS)
    return N_WINDOW_ROUNDS * RATE_PER_ROUND


def per_cell(name: PerCell, cells: pl.DataFrame) -> pl.Expr:
    """A denominator of a ratio that is constant in a cell, as `mean_requests`."""
    if name == "capacity":
        return pl.col("capacity")
    return N_WINDOW_ROUNDS if name == "window_rounds" else mean_window_requests(cells)


_FIRST_SECOND: Final = (_END / pl.col("rounds_per_second")).ceil()
_CENSORED: Final[dict[CensoredIn, pl.Expr]] = {
    "cells with a window": N_WINDOW_ROUNDS > 0,
    # with a whole second after the fault: see `model.may_recover`
    "cells that may recover": (N_WINDOW_ROUNDS > 0)
    & (((_FIRST_SECOND + 1) * pl.col("rounds_per_second")).ceil() <= pl.col("rounds")),
}
"""Where NULL means "not within the run"."""


def most_requests(cells: pl.DataFrame) -> pl.Series:
    """How many requests a run has at most, in each of K cells.

    Notes
    -----
    A Poisson number exceeds its mean m by 7 sqrt(m) + 30 with probability below 1e-10, whatever m
    is (Bernstein's inequality): in millions of runs it does not happen.
    """
    mean = mean_requests(cells)
    return cells.select((mean + 7 * mean.sqrt() + 30).floor()).to_series()


def span_of(metric: Metric, cells: pl.DataFrame) -> NDArray[np.float64]:
    """Length of an interval that holds all values of a metric there can be in each of K cells.

    Returns
    -------
    ndarray of float64, shape (K,)
        0 where the metric cannot vary for want of retries; infinite where nothing is known.
    """
    requests, rounds, attempts = most_requests(cells), cells["rounds"], cells["max_attempts"]
    mosts = {
        "requests": requests,
        "calls": requests * attempts,
        "wait": requests * rounds,
        "attempts": attempts,
        "rounds": rounds,
        "one": pl.repeat(1, cells.height, eager=True),
    }
    spans: NDArray[np.float64] = np.full(cells.height, np.inf)
    if metric.most is not None:  # none is below 0
        # nothing is known of a closed loop
        most = mosts[metric.most].cast(pl.Float64).fill_null(math.inf).to_numpy()
        divisors = divisors_of(metric, cells) if metric.per_cell else np.ones(cells.height)
        np.divide(most, divisors, out=spans, where=divisors > 0)
    if metric.without_retries is not None:
        spans[((attempts == 1) & (cells["queue"] == 0)).to_numpy()] = 0.0
    return spans


def metrics_in(columns: Iterable[str]) -> list[Metric]:
    """Those of `METRICS` whose counters are among the columns of rows, in the same order."""
    names = {*columns, None}
    return [metric for metric in METRICS.values() if {metric.counter, metric.per} <= names]


def with_ratios(rows: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Append the ratios of `METRICS` to the rows.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters.
    cells : polars.DataFrame
        The table of cells: `cell` and the parameters.

    Returns
    -------
    polars.DataFrame
        The rows in their order, with a float column for each ratio, not rounded to `RATIO_STEPS`;
        NULL where undefined.
    """
    ratios = [metric for metric in metrics_in(rows.columns) if metric.is_ratio]
    divisors = {m.name: per_cell(m.per_cell, cells) for m in ratios if m.per_cell}
    joined = rows.join(
        cells.select("cell", **divisors), on="cell", how="left", maintain_order="left"
    )
    columns = []
    for metric in ratios:
        values, known = _divide(joined[metric.counter], joined[metric.per or metric.name])
        columns.append(pl.Series(metric.name, values).set(pl.Series(~known), None))
    return rows.with_columns(columns)


def _divide(counter: pl.Series, per: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Divide row by row; the mask is False where the ratio is undefined."""
    numbers, counted = _values(counter)
    divisors, defined = _values(per)
    known = counted & defined & (divisors > 0)
    # polars multiplies by the reciprocal of a constant: 289 / 100 would not be 2.89
    return np.divide(numbers, divisors, out=np.zeros(len(known)), where=known), known


def _values(column: pl.Series) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values, 0 in place of NULL, and a mask that is False where they were NULL.

    Without a NULL polars is not asked at all: one expression takes as long as a mean of 10,000.
    """
    if column.null_count() == 0:
        return column.to_numpy(), np.ones(len(column), np.bool_)
    return column.fill_null(0).to_numpy(), column.is_not_null().to_numpy()


# --- many cells at once ---------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """The values ``numbers / divisor`` of one metric in K cells with R rows each.

    Attributes
    ----------
    numbers : ndarray of int64, shape (K, R)
        Anything where `known` is False.
    known : ndarray of bool, shape (K, R)
        False where the metric is NULL.
    later : ndarray of bool, shape (K, R)
        True where it is NULL because it did not come within the run, see `is_censored`.
    divisors : ndarray of float64, shape (K,)
        Positive; 1 for a counter.
    fractions : (ndarray of int64, ndarray of int64), each of shape (K, R), or None
        Of a ratio of counters numerator and denominator, which is positive; `numbers` are these
        quotients in parts of 1 / `RATIO_STEPS`.
    """

    numbers: NDArray[np.int64]
    known: NDArray[np.bool_]
    later: NDArray[np.bool_]
    divisors: NDArray[np.float64]
    fractions: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def of(self, cells: NDArray[np.int64]) -> Numbers:
        """The numbers of some of the cells, in this order."""
        if np.array_equal(cells, np.arange(len(self.numbers))):
            return self
        fractions = None
        if self.fractions is not None:
            fractions = self.fractions[0][cells], self.fractions[1][cells]
        return Numbers(
            *(self.numbers[cells], self.known[cells], self.later[cells], self.divisors[cells]),
            fractions,
        )

    @property
    def quotients(self) -> NDArray[np.float64] | None:
        """Of a ratio of counters the doubles nearest to it, shape (K, R)."""
        return None if self.fractions is None else np.divide(*self.fractions)

    @property
    def values(self) -> NDArray[np.float64]:
        """Numbers over divisors, shape (K, R)."""
        return self.numbers / self.divisors[:, np.newaxis]


def divisors_of(metric: Metric, cells: pl.DataFrame) -> NDArray[np.float64]:
    """The divisor of a metric in each of K cells; 0 where it is undefined, shape (K,)."""
    if metric.per_cell:
        divisors = per_cell(metric.per_cell, cells).cast(pl.Float64).fill_null(0.0)
        return cells.select(divisors).to_series().to_numpy()
    return np.full(cells.height, float(RATIO_STEPS if metric.per else 1))


def in_steps(quotients: NDArray[np.float64]) -> NDArray[np.int64]:
    """Ratios of counters in parts of 1 / `RATIO_STEPS`."""
    return np.rint(quotients * RATIO_STEPS).astype(np.int64)


def is_censored(metric: Metric, cells: pl.DataFrame) -> NDArray[np.bool_]:
    """Whether NULL means "not within the run", in each of K cells.

    What did not come within the run counts as later than all that did: it is in the shares and the
    quantiles, and only the mean is without it. (It is censored on the right; with the same end in
    every replication nothing else is known of it.)
    """
    if metric.censored_in == "no cell":
        return np.zeros(cells.height, np.bool_)
    if metric.censored_in == "cells with requests":
        censored = mean_requests(cells).fill_null(1.0) > 0  # a closed loop has requests
    else:
        censored = _CENSORED[metric.censored_in]
    if metric.censored_in == "cells that may recover":
        is_closed = pl.col(MEAN_REQUESTS).is_null() if has_traffic(cells) else pl.lit(value=False)
        # a closed loop is compared with a second before the fault
        second = pl.max_horizontal(pl.col("rounds_per_second").ceil(), pl.lit(1.0))
        outlives = (pl.col("queue") > 0) | CAN_REJECT
        censored &= pl.when(is_closed).then(second <= _START).otherwise(outlives)
    return cells.select(censored.fill_null(value=False)).to_series().to_numpy()


@dataclass(frozen=True)
class Stack:
    """K cells with R rows each, so that all can be computed at once.

    Attributes
    ----------
    cells : polars.DataFrame, height K
        Their lines in the table of cells.
    positions : ndarray of int64, shape (K,)
        Position of each line in that table.
    replications : ndarray of int64, shape (K, R)
        The replication of each row, ascending in each cell.
    columns : mapping of str to (ndarray of int64, ndarray of bool), each of shape (K, R)
        Each counter, and where it is known; elsewhere stands anything.
    """

    cells: pl.DataFrame
    positions: NDArray[np.int64]
    replications: NDArray[np.int64]
    columns: Mapping[str, tuple[NDArray[np.int64], NDArray[np.bool_]]]

    @classmethod
    def of(
        cls,
        cells: pl.DataFrame,
        positions: NDArray[np.int64],
        rows: pl.DataFrame,
        order: NDArray[np.intp] | None = None,
    ) -> Stack:
        """The stack of the rows at some places, default all, sorted by cell and replication."""
        runs, length = (..., 1) if order is None else _runs(order, rows.height)
        columns = {}
        for column in rows.drop("cell"):
            values, known = (part.reshape(-1, length)[runs] for part in _values(column))
            shape = cells.height, values.size // max(cells.height, 1)
            columns[column.name] = (
                values.astype(np.int64, copy=False).reshape(shape),
                known.reshape(shape),
            )
        replications, _ = columns.pop("replication")
        return cls(cells, positions, replications, columns)

    @classmethod
    def of_first(cls, cells: pl.DataFrame, n: int, rows: pl.DataFrame) -> Stack:
        """The stack of the replications 0 .. n - 1 of each cell, by their rows in any order.

        The rows are taken from the frame, column by column: of millions no second copy is made.
        """
        numbers = cells["cell"].to_numpy()
        place = np.zeros(int(numbers.max()) + 1, np.int64)
        place[numbers] = n * np.arange(cells.height)
        places = place[rows.drop_in_place("cell").to_numpy()]
        places += rows.drop_in_place("replication").to_numpy()
        columns = {}
        for name in rows.columns:
            values, known = _values(rows.drop_in_place(name))
            placed = np.empty(len(places), np.int64)
            placed[places] = values
            if not known.all():
                unordered, known = known, np.empty_like(known)
                known[places] = unordered
            columns[name] = placed.reshape(-1, n), known.reshape(-1, n)
        replications = np.broadcast_to(np.arange(n), (cells.height, n))
        return cls(cells, np.arange(cells.height), replications, columns)

    @property
    def n_rows(self) -> int:
        """Rows of each cell."""
        return int(self.replications.shape[1])

    @property
    def metrics(self) -> list[Metric]:
        """Those that can be computed of the columns."""
        return metrics_in(self.columns)

    def some(self, places: NDArray[np.int64]) -> Stack:
        """Some of the cells, in this order."""
        if np.array_equal(places, np.arange(self.cells.height)):
            return self
        columns = {
            name: (values[places], known[places]) for name, (values, known) in self.columns.items()
        }
        return Stack(self.cells[places], self.positions[places], self.replications[places], columns)

    def numbers(self, metric: Metric) -> Numbers:
        """The numbers of a metric."""
        numbers, known = self.columns[metric.counter]
        divisors = divisors_of(metric, self.cells)
        fractions = None
        if metric.per:
            per, defined = self.columns[metric.per]
            known = known & defined & (per > 0)
            fractions = numbers, per
            if not known.all():
                fractions = np.where(known, numbers, 0), np.where(known, per, 1)
            numbers = in_steps(np.divide(*fractions))
        has_divisor = divisors > 0
        known = known & has_divisor[:, np.newaxis]
        later: NDArray[np.bool_] = np.broadcast_to(np.False_, known.shape)
        if metric.censored_in != "no cell":
            later = ~known & is_censored(metric, self.cells)[:, np.newaxis]
        return Numbers(numbers, known, later, np.where(has_divisor, divisors, 1.0), fractions)


def stacks(rows: pl.DataFrame, cells: pl.DataFrame) -> Iterator[Stack]:
    """Group the cells by their number of rows; cells without rows are a group, too.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order (sorted by cell is fastest).
    cells : polars.DataFrame
        The table of cells; rows of other cells are left out.

    Yields
    ------
    Stack
        In the order of their first cells; the cells of each sorted by number.
    """
    numbers, replications = (rows[name].to_numpy() for name in ("cell", "replication"))
    keys = numbers.astype(np.int64) * (int(replications.max(initial=0)) + 1) + replications
    in_order = bool((keys[1:] > keys[:-1]).all())
    order = None if in_order else np.argsort(keys, kind="stable")  # sorted parts are merged
    table = cells.with_row_index("position").sort("cell")
    own_numbers, positions = (table[name].to_numpy() for name in ("cell", "position"))
    lengths = np.bincount(numbers, minlength=int(own_numbers.max(initial=0)) + 1)[own_numbers]
    for length in dict.fromkeys(lengths.tolist()):
        alike = lengths == length
        places = order
        if np.count_nonzero(alike) * length != rows.height:
            places = np.arange(rows.height) if order is None else order
            places = places[np.isin(numbers[places], own_numbers[alike])]
        lines = table.filter(alike).drop("position")
        yield Stack.of(lines, positions[alike].astype(np.int64), rows, places)


def _runs(places: NDArray[np.intp], n: int) -> tuple[NDArray[np.intp], int]:
    """Places among n as those of runs of the same length, the longest: these are copied faster."""
    breaks = np.flatnonzero(places[1:] != places[:-1] + 1) + 1
    length = int(np.gcd.reduce([n, len(places), *places[:1], *breaks, *places[breaks]]))
    return places[::length] // length, length
