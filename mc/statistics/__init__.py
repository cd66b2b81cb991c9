"""From rows to estimates, intervals, comparisons and verdicts: pure functions.

A row is one replication of one cell: `cell`, `replication`, then the counters. `METRICS` says
what can be estimated from it. Every result depends on the set of rows alone, never on their
order: integers are summed exactly, ratios with `math.fsum`, and pairs are matched by replication.

Intervals are two-sided, 95 % each. NULL stands where a number is undefined, never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

from mc.model import COUNTERS, MEANINGS, RATIOS

if TYPE_CHECKING:
    from mc.experiment import Claim, Published

LEVEL: Final = 0.95
"""Confidence level of every interval, each taken alone."""

HOLDS: Final = "holds"
FAILS: Final = "fails"
DEPENDS: Final = "depends on the seed"

SHARE_HOLDS: Final = 0.95
"""A claim holds when its share of replications surely reaches this..."""

SHARE_FAILS: Final = 0.05
"""...and fails when the share surely stays at or below this."""

# --- what can be estimated ------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """One number of a replication.

    Attributes
    ----------
    name, unit, meaning : str
        As columns, tables and help print them; the unit of a pure number is empty.
    counter : str
        The counter it is, or the numerator of the ratio.
    per : str, polars.Expr or None
        Denominator of a ratio: another counter, or an expression over the cell's parameters,
        hence constant in a cell. None for a counter.
    """

    name: str
    unit: str
    meaning: str
    counter: str
    per: str | pl.Expr | None = None


# 64 bits: start and length of the window may each fill 32
_START: Final = pl.col("fault_start").cast(pl.Int64)
N_WINDOW_ROUNDS: Final = pl.max_horizontal(
    pl.min_horizontal(_START + pl.col("fault_rounds").cast(pl.Int64), pl.col("rounds")) - _START,
    pl.lit(0, pl.Int64),
)
"""Rounds of the fault window that lie inside the run."""

RATE_PER_ROUND: Final = pl.col("arrivals_per_second") / pl.col("rounds_per_second")

_RATIOS: Final[dict[str, tuple[str, str | pl.Expr]]] = {  # numerator, denominator
    "multiplier": ("calls", "requests"),
    "window_rate": ("window_calls", N_WINDOW_ROUNDS),
    "times_usual": ("window_calls", N_WINDOW_ROUNDS * RATE_PER_ROUND),
    "wait_mean": ("wait_total", "successful"),
}

METRICS: Final[dict[str, Metric]] = {
    name: Metric(name, *MEANINGS[name], counter=name) for name in COUNTERS
} | {name: Metric(name, *MEANINGS[name], *_RATIOS[name]) for name in RATIOS}
"""Every number that is summarised, compared and put to claims: the counters, then the ratios."""


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
        The rows in their order, with a float column for each ratio; NULL where undefined.
    """
    ratios = [metric for metric in METRICS.values() if metric.per is not None]
    constant = {m.name: m.per for m in ratios if not isinstance(m.per, str)}
    per_cell = cells.select("cell", **constant)
    joined = rows.join(per_cell, on="cell", how="left", maintain_order="left")
    columns = []
    for metric in ratios:
        per = metric.per if isinstance(metric.per, str) else metric.name
        values, known = _divide(joined[metric.counter], joined[per])
        columns.append(pl.Series(metric.name, values).set(pl.Series(~known), None))
    return rows.with_columns(columns)


def _divide(counter: pl.Series, per: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Divide row by row; the second array is False where the ratio is undefined."""
    numbers, counted = _values(counter)
    divisors, defined = _values(per)
    known = counted & defined & (divisors > 0)
    # polars multiplies by the reciprocal of a constant: 289 / 100 would not be 2.89
    return np.divide(numbers, divisors, out=np.zeros(len(known)), where=known), known


def _values(column: pl.Series) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Give the values, 0 where they are NULL, and where they are not.

    Without a NULL no expression of polars is needed: each takes as long as a mean of 10,000.
    """
    if column.null_count() == 0:
        return column.to_numpy(), np.ones(len(column), np.bool_)
    return column.fill_null(0).to_numpy(), column.is_not_null().to_numpy()


# --- samples and their moments --------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """The values of one metric in one cell, `numbers / divisor`.

    Attributes
    ----------
    numbers : ndarray of int64 or float64, shape (R,)
        One for each row, in the order of the rows; anything where `known` is False.
    known : ndarray of bool, shape (R,)
        False where the metric is NULL.
    divisor : float
        A constant of the cell, so that ratios to it are summed as the integers they come from.
    """

    numbers: NDArray[Any]
    known: NDArray[np.bool_]
    divisor: float = 1.0

    @property
    def values(self) -> NDArray[Any]:
        """The values themselves; integers if the metric is a counter."""
        return self.numbers if self.divisor == 1.0 else self.numbers / self.divisor


@dataclass(frozen=True)
class Estimate:
    """Mean of n values with its Monte Carlo standard error and Student interval.

    Without values all but `n` is None; with one value `sd` and all that follows.
    """

    n: int
    mean: float | None = None
    sd: float | None = None
    mcse: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


def sample(rows: pl.DataFrame, cell: pl.DataFrame, metric: Metric) -> Sample:
    """Take the values of a metric from the rows of one cell.

    Parameters
    ----------
    rows : polars.DataFrame, height R
        Rows of this cell only.
    cell : polars.DataFrame, height 1
        Its line in the table of cells.
    metric : Metric
        An entry of `METRICS`.

    Returns
    -------
    Sample
        Of R values.
    """
    if isinstance(metric.per, str):
        return Sample(*_divide(rows[metric.counter], rows[metric.per]))
    divisor = 1.0 if metric.per is None else cell.select(metric.per).item()
    if divisor is None or divisor <= 0:
        return Sample(np.zeros(rows.height), np.zeros(rows.height, np.bool_))
    numbers, known = _values(rows[metric.counter])
    return Sample(numbers.astype(np.int64), known, float(divisor))


def difference(left: Sample, right: Sample) -> Sample:
    """Pair two samples of the same replications: left - right, unknown where either is.

    Integers over the same divisor stay integers, so equality and order are exact.
    """
    known = left.known & right.known
    if left.divisor == right.divisor:
        return Sample(left.numbers - right.numbers, known, left.divisor)
    return Sample(left.values - right.values, known)


def estimate(numbers: NDArray[Any], divisor: float = 1.0) -> Estimate:
    """Estimate the mean of `numbers / divisor`.

    Parameters
    ----------
    numbers : ndarray of int64 or float64, shape (n,)
        In any order: the result is the same to the last bit.
    divisor : float
        Positive.

    Returns
    -------
    Estimate

    Notes
    -----
    Student's t interval with n - 1 degrees of freedom, for a mean over independent
    replications: Law, *Simulation Modeling and Analysis*, section 4.5. `mcse` is the Monte Carlo
    standard error sd / sqrt(n): Morris, White and Crowther (2019), table 6.
    """
    found = _estimates(
        numbers[np.newaxis], np.ones((1, len(numbers)), np.bool_), np.array([divisor])
    )
    n, *others = (column.item() for column in found.values())
    return Estimate(n, *(None if math.isnan(value) else value for value in others))


def _estimates(
    numbers: NDArray[Any], known: NDArray[np.bool_], divisors: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Estimate the mean of each row: what `Estimate` holds, NaN where that is None.

    Parameters
    ----------
    numbers : ndarray of int64 or float64, shape (K, R)
        Values of K samples, in any order; anything where `known` is False.
    known : ndarray of bool, shape (K, R)
        Which of them count.
    divisors : ndarray of float64, shape (K,)
        Positive.
    """
    n = np.count_nonzero(known, axis=1)
    mean, variance = _moments(numbers, known, n, divisors)
    sd = np.sqrt(variance)
    mcse = sd / np.sqrt(np.maximum(n, 1))
    half_width = np.array([_t_quantile(k) for k in n.tolist()]) * mcse
    ends = {"ci_low": mean - half_width, "ci_high": mean + half_width}
    return {"n": n, "mean": mean, "sd": sd, "mcse": mcse} | ends


def _moments(
    numbers: NDArray[Any],
    known: NDArray[np.bool_],
    n: NDArray[np.int64],
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and sample variance of the n known numbers of each row; NaN where n is too small."""
    moments = _integer_moments if numbers.dtype.kind == "i" else _float_moments
    return moments(numbers, known, n, divisors)


def _integer_moments(
    numbers: NDArray[np.int64],
    known: NDArray[np.bool_],
    n: NDArray[np.int64],
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """See `_moments`; each result is rounded once."""
    mean, variance = np.full(len(n), math.nan), np.full(len(n), math.nan)
    sums = zip(
        n.tolist(), *_power_sums(np.where(known, numbers, 0)), divisors.tolist(), strict=True
    )
    for k, (m, s1, s2, divisor) in enumerate(sums):
        # a quotient of Python's integers is the double nearest to it
        p, q = (1, 1) if divisor == 1.0 else divisor.as_integer_ratio()
        if m > 0:
            mean[k] = s1 * q / (m * p)
        if m > 1:
            variance[k] = (m * s2 - s1 * s1) * q * q / (m * (m - 1) * p * p)
    return mean, variance


def _power_sums(numbers: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Exact sum and sum of squares of the integers of each row."""
    largest = max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))
    exact: NDArray[Any] = numbers
    if largest * largest * numbers.shape[1] >= 2**63:
        exact = numbers.astype(object)  # 64 bits would wrap around without a word
    return exact.sum(axis=1).tolist(), np.square(exact).sum(axis=1).tolist()


def _float_moments(
    numbers: NDArray[np.float64],
    known: NDArray[np.bool_],
    n: NDArray[np.int64],
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """See `_moments`; sums are rounded once."""
    if numbers.shape[1] == 0:
        return np.full(len(n), math.nan), np.full(len(n), math.nan)
    # equal values: the rounding of their sum must not look like a spread
    first = numbers[np.arange(len(n)), known.argmax(axis=1)]
    equal = np.all((numbers == first[:, np.newaxis]) | ~known, axis=1)
    some = np.maximum(n, 1)
    mean = np.where(equal, first, _exact_sums(np.where(known, numbers, 0.0)) / some)
    deviations = np.where(known, numbers - mean[:, np.newaxis], 0.0)
    # the second term repairs the rounding of the mean (Chan, Golub and LeVeque 1983)
    squares = _exact_sums(np.square(deviations)) - np.square(_exact_sums(deviations)) / some
    variance = np.where(equal, 0.0, squares / np.maximum(n - 1, 1)) / np.square(divisors)
    return np.where(n > 0, mean / divisors, math.nan), np.where(n > 1, variance, math.nan)


def _exact_sums(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of each row, rounded once."""
    return np.array([math.fsum(row) for row in numbers.tolist()])


@lru_cache(maxsize=1024)
def _t_quantile(n: int) -> float:
    """Half the length of the interval in standard errors; NaN without a spread."""
    return math.nan if n < 2 else float(special.stdtrit(n - 1, (1 + LEVEL) / 2))


def wilson(n_holds: int, n: int) -> tuple[float | None, float | None]:
    """Wilson's interval for a share of n replications; None, None for n = 0."""
    if n == 0:
        return None, None
    from scipy import stats  # takes half a second

    interval = stats.binomtest(n_holds, n).proportion_ci(LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


# --- one number of one cell -----------------------------------------------------------------

_QUANTILES: Final = {
    "p05": Fraction(1, 20),
    "p25": Fraction(1, 4),
    "median": Fraction(1, 2),
    "p75": Fraction(3, 4),
    "p95": Fraction(19, 20),
}

SUMMARY_SCHEMA: Final = pl.Schema(
    {"cell": pl.Int32(), "metric": pl.String(), "n": pl.Int64()}
    | dict.fromkeys(("mean", "sd", "mcse", "ci_low", "ci_high"), pl.Float64())
    | dict.fromkeys(("min", *_QUANTILES, "max"), pl.Float64())
    | dict.fromkeys(("published", "published_percentile"), pl.Float64())
)


_PERCENTILE: Final = "published_percentile"

_OF_METRIC: Final = "of the metric"

_ESTIMATE_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "sd": (_OF_METRIC, "standard deviation between replications"),
    "mcse": (_OF_METRIC, "Monte Carlo standard error of the mean: sd / sqrt(n)"),
    "ci_low": (_OF_METRIC, "lower end of the 95 % interval of the mean"),
    "ci_high": (_OF_METRIC, "upper end of the 95 % interval of the mean"),
}

SUMMARY_COLUMNS: Final[dict[str, tuple[str, str]]] = (
    {
        "cell": ("", "number of the cell"),
        "metric": ("", "what is summarised"),
        "n": ("replications", "replications in which the metric is defined; all else is of these"),
        "mean": (_OF_METRIC, "mean over replications"),
    }
    | _ESTIMATE_COLUMNS
    | {"min": (_OF_METRIC, "smallest value")}
    | {
        name: (
            _OF_METRIC,
            f"smallest value that {float(share):.0%} of the replications reach at most",
        )
        for name, share in _QUANTILES.items()
    }
    | {
        "max": (_OF_METRIC, "largest value"),
        "published": (_OF_METRIC, "published figure"),
        "published_percentile": (
            "%",
            "replications below the published figure, those equal to it as printed counted half",
        ),
    }
)
"""Unit and meaning of the columns of `SUMMARY_SCHEMA`."""


def summarise(
    rows: pl.DataFrame, cells: pl.DataFrame, published: Sequence[Published] = ()
) -> pl.DataFrame:
    """Summarise every metric of every cell.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order (sorted by cell is fastest).
    cells : polars.DataFrame
        The table of cells; a cell without rows is summarised with n = 0.
    published : sequence of Published
        Figures to be placed in the distributions, at most one for a cell and metric.

    Returns
    -------
    polars.DataFrame
        In the schema of `SUMMARY_SCHEMA`, cells in the order of `cells`, metrics in the order
        of `METRICS`. `n` counts the replications in which the metric is defined, and everything
        is estimated from these: with `drain`, those that drained. With n = 1 there is no spread
        and no interval.

    Notes
    -----
    The mean of a ratio is the mean over replications of the ratio, not the ratio of two means.
    Quantiles invert the empirical distribution function (definition 1 of Hyndman and Fan 1996):
    each is a value that occurred, so a count stays a whole number.

    `published_percentile` is the mid-percentile ``100 (#{x < v} + #{x <= v}) / 2n`` of the
    figure v. If v was printed with d decimals, each x is first rounded to d decimals.
    """
    n_metrics = len(METRICS)
    frames, places = [SUMMARY_SCHEMA.to_frame()], [np.empty(0, np.int64)]
    for stack in _stacks(rows, cells):
        found = [_summary(stack, metric, published) for metric in METRICS.values()]
        frames.append(_frame(SUMMARY_SCHEMA, {"cell": stack.cells["cell"].to_numpy()}, found))
        places.append(np.repeat(stack.places, n_metrics))
    return pl.concat(frames)[np.argsort(np.concatenate(places), kind="stable")]


def _summary(
    stack: _Stack, metric: Metric, published: Sequence[Published]
) -> dict[str, NDArray[Any]]:
    """Columns of the summary of one metric, K values each, NaN for NULL."""
    taken = stack.samples(metric)
    beyond = math.inf if taken.numbers.dtype.kind == "f" else np.iinfo(np.int64).max
    ordered = np.sort(np.where(taken.known, taken.numbers, beyond), axis=1)
    found = _estimates(taken.numbers, taken.known, taken.divisors)
    found |= _order_statistics(ordered, found["n"], taken.divisors)
    found |= {name: np.full(len(found["n"]), math.nan) for name in ("published", _PERCENTILE)}
    numbers = {number: k for k, number in enumerate(stack.cells["cell"].to_list())}
    for figure in published:
        if figure.metric == metric.name and figure.cell in numbers:
            k = numbers[figure.cell]
            values = ordered[k, : found["n"][k]] / taken.divisors[k]
            place = mid_percentile(values, figure.value, figure.decimals)
            found["published"][k] = figure.value
            found[_PERCENTILE][k] = math.nan if place is None else place
    return found


def _frame(
    schema: pl.Schema, keys: Mapping[str, NDArray[Any]], metrics: Sequence[dict[str, NDArray[Any]]]
) -> pl.DataFrame:
    """A table with a line for each (cell, metric) from columns for each metric."""
    columns = {name: np.repeat(key, len(metrics)) for name, key in keys.items()}
    values = {
        name: np.stack([found[name] for found in metrics], axis=1).ravel() for name in metrics[0]
    }
    n_cells = len(next(iter(keys.values())))
    frame = pl.DataFrame(columns | values).with_columns(
        pl.selectors.float().fill_nan(None),
        metric=pl.Series(list(METRICS) * n_cells, dtype=pl.String),
    )
    return frame.select(schema.names()).cast(schema)


# --- many cells at once ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Samples:
    """The values of one metric in K cells with R rows each; compare `Sample`.

    Attributes
    ----------
    numbers : ndarray of int64 or float64, shape (K, R)
    known : ndarray of bool, shape (K, R)
    divisors : ndarray of float64, shape (K,)
    """

    numbers: NDArray[Any]
    known: NDArray[np.bool_]
    divisors: NDArray[np.float64]

    def of(self, cells: NDArray[np.int64]) -> _Samples:
        """Those of some of the cells."""
        return _Samples(self.numbers[cells], self.known[cells], self.divisors[cells])

    @property
    def values(self) -> NDArray[np.float64]:
        """The values themselves."""
        return self.numbers / self.divisors[:, np.newaxis]


@dataclass(frozen=True)
class _Stack:
    """K cells with R rows each: what is done with one can be done with all of them at once.

    Attributes
    ----------
    cells : polars.DataFrame, height K
        Their lines in the table of cells.
    places : ndarray of int64, shape (K,)
        Where in the table these stand.
    rows : polars.DataFrame, height K * R
        Their rows, sorted by replication in each cell.
    """

    cells: pl.DataFrame
    places: NDArray[np.int64]
    rows: pl.DataFrame

    @property
    def replications(self) -> NDArray[np.int64]:
        """The replication of each row, shape (K, R)."""
        return self.rows["replication"].to_numpy().reshape(self.cells.height, -1)

    def samples(self, metric: Metric) -> _Samples:
        """Take the values of a metric."""
        n = self.cells.height
        divisors = np.ones(n)
        if isinstance(metric.per, str):
            numbers, known = _divide(self.rows[metric.counter], self.rows[metric.per])
        else:
            numbers, known = _values(self.rows[metric.counter])
            numbers = numbers.astype(np.int64)
            if metric.per is not None:
                per = self.cells.select(metric.per.cast(pl.Float64).fill_null(0.0)).to_series()
                divisors = per.to_numpy()
        shape = n, self.rows.height // n
        defined = divisors > 0
        return _Samples(
            numbers.reshape(shape),
            known.reshape(shape) & defined[:, np.newaxis],
            np.where(defined, divisors, 1.0),
        )


def _stacks(rows: pl.DataFrame, cells: pl.DataFrame) -> Iterator[_Stack]:
    """Gather the cells that have the same number of rows, none included."""
    rows = rows.sort("cell", "replication")
    lengths = rows["cell"].rle().struct.unnest().select("len", cell="value")
    table = cells.with_row_index("place").sort("cell").join(lengths, on="cell", how="left")
    table = table.with_columns(pl.col("len").fill_null(0)).sort("cell")
    for (length,), lines in table.group_by("len", maintain_order=True):
        taken = rows
        if lines.height * int(length) != rows.height:
            taken = rows.filter(pl.col("cell").is_in(lines["cell"].implode()))
        places = lines["place"].to_numpy().astype(np.int64)
        yield _Stack(lines.drop("place", "len"), places, taken)


def _split(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Split the rows into cells; slices without a copy where they are sorted by cell."""
    if not rows["cell"].is_sorted():
        rows = rows.sort("cell")
    runs = rows["cell"].rle().struct.unnest()
    by_cell, start = {}, 0
    for length, index in runs.select("len", "value").iter_rows():
        by_cell[index] = rows.slice(start, length)
        start += length
    return by_cell


def _order_statistics(
    ordered: NDArray[Any], n: NDArray[np.int64], divisors: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Smallest, largest and the quantiles of the first n of sorted numbers in each row."""
    ranks = {"min": np.minimum(n, 1), "max": n}
    ranks |= {name: -(-n * p.numerator // p.denominator) for name, p in _QUANTILES.items()}
    if ordered.shape[1] == 0:
        return {name: np.full(len(n), math.nan) for name in ranks}
    rows = np.arange(len(n))
    return {
        name: np.where(n > 0, ordered[rows, np.maximum(rank, 1) - 1] / divisors, math.nan)
        for name, rank in ranks.items()
    }


def mid_percentile(
    ordered: NDArray[np.float64], value: float, decimals: int | None
) -> float | None:
    """Place a printed figure among sorted values, in percent; None if there are none.

    Parameters
    ----------
    ordered : ndarray of float64, shape (n,)
        Ascending.
    value : float
        The figure v, >= 0.
    decimals : int or None
        Digits after its point; None compares v as it is.

    Returns
    -------
    float or None

    Notes
    -----
    A value is rounded to the nearest figure of that many decimals, judged by its exact binary
    value, halves upwards: as `Number.prototype.toFixed` prints (ECMA-262). So x is below the
    figure iff x < v - h, and at most the figure iff x < v + h, where h is half a unit of the last
    decimal; these bounds are taken as rationals, and no value is rounded at all.
    """
    if len(ordered) == 0:
        return None
    if decimals is None:
        low, high = value, math.nextafter(value, math.inf)
    else:
        printed = Fraction(to_fixed(value, decimals))
        half = Fraction(1, 2 * 10**decimals)
        low, high = _at_least(printed - half), _at_least(printed + half)
    n_below, n_up_to = np.searchsorted(ordered, [low, high])
    return 100 * int(n_below + n_up_to) / (2 * len(ordered))


def _at_least(bound: Fraction) -> float:
    """Find the smallest double that is not below the bound."""
    nearest = float(bound)
    return nearest if Fraction(nearest) >= bound else math.nextafter(nearest, math.inf)


# --- one cell against another ---------------------------------------------------------------

COMPARISONS_SCHEMA: Final = pl.Schema(
    {"cell": pl.Int32(), "baseline": pl.Int32(), "metric": pl.String(), "n": pl.Int64()}
    | dict.fromkeys(("mean_difference", "sd", "mcse", "ci_low", "ci_high"), pl.Float64())
    | dict.fromkeys(("share_less", "share_equal", "share_greater"), pl.Float64())
    | {"variance_reduction": pl.Float64()}
)


COMPARISONS_COLUMNS: Final[dict[str, tuple[str, str]]] = (
    {
        "cell": ("", "number of the cell"),
        "baseline": ("", "number of the cell it is compared with"),
        "metric": ("", "what is compared"),
        "n": ("replications", "replications in which the metric is defined in both cells"),
        "mean_difference": (_OF_METRIC, "mean over replications of cell - baseline"),
    }
    | _ESTIMATE_COLUMNS
    | {
        "share_less": ("", "share of replications in which the cell is below its baseline"),
        "share_equal": ("", "share of replications in which both are equal"),
        "share_greater": ("", "share of replications in which the cell is above its baseline"),
        "variance_reduction": (
            "",
            "how many times as many replications independent samples would need",
        ),
    }
)
"""Unit and meaning of the columns of `COMPARISONS_SCHEMA`."""


def compare(rows: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Compare every cell with its baseline, replication by replication.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order.
    cells : polars.DataFrame
        The table of cells; `baseline` is the cell to compare with. A cell that is its own
        baseline is left out.

    Returns
    -------
    polars.DataFrame
        In the schema of `COMPARISONS_SCHEMA`, a line for each metric. `n` counts the replications
        that both cells have and in which the metric is defined in both; a difference is
        ``cell - baseline``. `variance_reduction` is how many times as many replications
        independent samples would need for the same interval; NULL where the difference never
        varies.

    Notes
    -----
    Paired t interval: Law, *Simulation Modeling and Analysis*, section 10.2.1; it needs neither
    independent samples nor equal variances.
    """
    frames, places = [COMPARISONS_SCHEMA.to_frame()], [np.empty(0, np.int64)]
    for stack, left, right in _pairs(rows, cells):
        found = [_comparison(stack.samples(metric), left, right) for metric in METRICS.values()]
        numbers = stack.cells["cell"].to_numpy()
        keys = {"cell": numbers[left], "baseline": numbers[right]}
        frames.append(_frame(COMPARISONS_SCHEMA, keys, found))
        places.append(np.repeat(stack.places[left], len(METRICS)))
    return pl.concat(frames)[np.argsort(np.concatenate(places), kind="stable")]


def _pairs(
    rows: pl.DataFrame, cells: pl.DataFrame
) -> Iterator[tuple[_Stack, NDArray[np.int64], NDArray[np.int64]]]:
    """Each cell and its baseline, as two places in a stack in which both have the same rows."""
    alone = []
    for stack in _stacks(rows, cells):
        numbers, baselines = (stack.cells[name].to_numpy() for name in ("cell", "baseline"))
        left = np.flatnonzero(numbers != baselines)
        right = np.minimum(np.searchsorted(numbers, baselines[left]), len(numbers) - 1)
        alike = numbers[right] == baselines[left]
        replications = stack.replications
        alike &= np.all(replications[left] == replications[right], axis=1)
        alone += stack.places[left[~alike]].tolist()
        if alike.any():
            yield stack, left[alike], right[alike]
    by_cell = _split(rows) if alone else {}
    names = cells["cell"].to_list()
    for place in alone:
        both = [place, names.index(cells["baseline"][place])]
        frames = _align([by_cell.get(names[i], rows.clear()) for i in both])
        stack = _Stack(cells[both], np.array(both), pl.concat(frames))
        yield stack, np.array([0]), np.array([1])


def _comparison(
    samples: _Samples, left: NDArray[np.int64], right: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Columns of the comparisons of one metric, a value for each pair, NaN for NULL."""
    one, other = samples.of(left), samples.of(right)
    whole = one.divisors == other.divisors  # these differences are integers, if the metric is
    columns = {name: np.full(len(left), math.nan) for name in COMPARISONS_SCHEMA.names()[4:]}
    columns["n"] = np.zeros(len(left), np.int64)
    for some in (np.flatnonzero(whole), np.flatnonzero(~whole)):
        if some.size:
            found = _difference(one.of(some), other.of(some))
            for name, values in found.items():
                columns[name][some] = values
    return columns


def _difference(one: _Samples, other: _Samples) -> dict[str, NDArray[Any]]:
    """Columns of the comparisons of one metric for pairs that have all, or none, one divisor."""
    known = one.known & other.known
    if np.array_equal(one.divisors, other.divisors):
        numbers, divisors = one.numbers - other.numbers, one.divisors
    else:
        numbers, divisors = one.values - other.values, np.ones(len(known))
    found = _estimates(numbers, known, divisors)
    some = np.maximum(found["n"], 1)
    for name, holds in (("less", numbers < 0), ("equal", numbers == 0), ("greater", numbers > 0)):
        share = np.count_nonzero(holds & known, axis=1) / some
        found[f"share_{name}"] = np.where(found["n"] > 0, share, math.nan)
    terms = (numbers, divisors), (one.numbers, one.divisors), (other.numbers, other.divisors)
    spread, *apart = (_moments(x, known, found["n"], divisor)[1] for x, divisor in terms)
    varies = spread > 0
    reduction = np.divide(sum(apart), spread, out=np.full(len(known), math.nan), where=varies)
    return found | {"mean_difference": found.pop("mean"), "variance_reduction": reduction}


def _align(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Bring cells to the replications they have in common, in ascending order."""
    ordered = [frame.sort("replication") for frame in frames]
    replications = [frame["replication"] for frame in ordered]
    if all(column.equals(replications[0]) for column in replications):
        return ordered
    common = reduce(np.intersect1d, [column.to_numpy() for column in replications])
    wanted = pl.Series(common, dtype=replications[0].dtype).implode()
    return [frame.filter(pl.col("replication").is_in(wanted)) for frame in ordered]


# --- claims ---------------------------------------------------------------------------------

CLAIMS_SCHEMA: Final = pl.Schema(
    {"claim": pl.Int32()}
    | dict.fromkeys(("text", "scenario", "metric", "relation"), pl.String())
    | dict.fromkeys(("link_metric", "left", "right"), pl.String())
    | {"n": pl.Int64(), "n_holds": pl.Int64()}
    | dict.fromkeys(("share", "share_low", "share_high"), pl.Float64())
    | dict.fromkeys(("mean_difference", "mcse", "ci_low", "ci_high"), pl.Float64())
    | {"verdict": pl.String()}
)

CLAIMS_COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "claim": ("", "number of the claim in the experiment file, from 0"),
    "text": ("", "the claim in words"),
    "scenario": ("", "where it is said to hold"),
    "metric": ("", "what is compared; several are joined by &"),
    "relation": ("", "between each and the next, or between each and a number"),
    "link_metric": ("", "of the weakest link: the comparison that lies least in favour"),
    "left": ("", "of the weakest link: what is compared"),
    "right": ("", "of the weakest link: what it is compared with"),
    "n": ("replications", "replications in which all that is compared is defined"),
    "n_holds": ("replications", "those in which the claim holds"),
    "share": ("", "n_holds / n"),
    "share_low": ("", "lower end of Wilson's 95 % interval of the share"),
    "share_high": ("", "upper end of Wilson's 95 % interval of the share"),
    "mean_difference": (_OF_METRIC, "of the weakest link: mean over replications of left - right"),
    **{name: _ESTIMATE_COLUMNS[name] for name in ("mcse", "ci_low", "ci_high")},
    "verdict": ("", f"{HOLDS}, {FAILS} or {DEPENDS}"),
}
"""Unit and meaning of the columns of `CLAIMS_SCHEMA`."""

_RELATIONS: Final[dict[str, Callable[[NDArray[Any], int], NDArray[np.bool_]]]] = {
    "<": np.less,
    "<=": np.less_equal,
    "=": np.equal,
    ">=": np.greater_equal,
    ">": np.greater,
}


@dataclass(frozen=True)
class _Link:
    """One comparison of a claim: a cell with the next, or with a number."""

    metric: str
    relation: str
    left: int
    right: int | float
    against_number: bool
    left_label: str
    right_label: str


def judge(rows: pl.DataFrame, cells: pl.DataFrame, claims: Sequence[Claim]) -> pl.DataFrame:
    """Put each claim to the test, replication by replication.

    A claim is a chain: each cell compared with the next, or each with a number, in one metric or
    several. It holds in a replication when all its links do. Replications in which a compared
    value is NULL, or which one of the cells lacks, are left out of `n`. Counters are compared
    as integers, ratios as the doubles they compute to; equality is equality in the same
    replication.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order; only the cells of the claims are
        read.
    cells : polars.DataFrame
        The table of cells.
    claims : sequence of Claim
        As the experiment file states them.

    Returns
    -------
    polars.DataFrame
        One line for each claim, in the schema of `CLAIMS_SCHEMA`. `share_low` and `share_high`
        are Wilson's interval. `verdict` is `holds` when `share_low` is at least 0.95, `fails`
        when `share_high` is at most 0.05, else `depends on the seed`; NULL without replications.

        `mean_difference` and its interval belong to the weakest link, `left - right` in
        `link_metric`: the link whose mean difference lies least in the claimed direction, in
        units of its standard error (for an equality, furthest from zero).

    Notes
    -----
    A share depends on how the replications of two cells are coupled: it is a statement about
    cells that see the same traffic and the same luck. The mean difference does not.
    """
    by_cell = _split(rows)
    all_named = {number for claim in claims for number in claim.cells}
    wanted = cells.filter(pl.col("cell").is_in(list(all_named)))
    lines = {cell["cell"].item(): cell for cell in wanted.iter_slices(1)}
    records = []
    for index, claim in enumerate(claims):
        named = sorted(set(claim.cells))
        frames = _align([by_cell.get(i, rows.clear()) for i in named])
        data = {i: (frame, lines[i]) for i, frame in zip(named, frames, strict=True)}
        records.append({"claim": index} | _judge_claim(data, claim))
    return pl.DataFrame(records, CLAIMS_SCHEMA)


def _judge_claim(
    data: Mapping[int, tuple[pl.DataFrame, pl.DataFrame]], claim: Claim
) -> dict[str, Any]:
    """One line of the claims, from each cell's aligned rows and line of the table."""
    links = list(_links(claim))
    pairs = [_link_difference(data, link) for link in links]
    known = np.logical_and.reduce([pair.known for pair in pairs])
    numbers = [pair.numbers[known] for pair in pairs]
    holds = np.logical_and.reduce(
        [_RELATIONS[link.relation](x, 0) for link, x in zip(links, numbers, strict=True)]
    )
    n, n_holds = int(np.count_nonzero(known)), int(np.count_nonzero(holds))
    found = [estimate(x, pair.divisor) for x, pair in zip(numbers, pairs, strict=True)]
    # min keeps the first of equals
    weakest = min(range(len(links)), key=lambda i: _strength(links[i].relation, found[i]))
    share_low, share_high = wilson(n_holds, n)
    return {
        "text": claim.text,
        "scenario": claim.scenario,
        "metric": " & ".join(claim.metrics),
        "relation": claim.relation,
        "link_metric": links[weakest].metric,
        "left": links[weakest].left_label,
        "right": links[weakest].right_label,
        "n": n,
        "n_holds": n_holds,
        "share": n_holds / n if n else None,
        "share_low": share_low,
        "share_high": share_high,
        "mean_difference": found[weakest].mean,
        "mcse": found[weakest].mcse,
        "ci_low": found[weakest].ci_low,
        "ci_high": found[weakest].ci_high,
        "verdict": verdict(share_low, share_high),
    }


def _links(claim: Claim) -> Iterator[_Link]:
    """List the comparisons that must all hold for the claim to hold."""
    for metric in claim.metrics:
        named = list(zip(claim.cells, claim.labels, strict=False))
        if claim.value is None:
            for (left, left_label), (right, right_label) in pairwise(named):
                yield _Link(metric, claim.relation, left, right, False, left_label, right_label)
            continue
        if isinstance(claim.value, tuple):  # between: two bounds, both included
            bounds = list(zip((">=", "<="), claim.value, strict=True))
        else:
            bounds = [(claim.relation, claim.value)]
        for left, left_label in named:
            for relation, bound in bounds:
                yield _Link(metric, relation, left, bound, True, left_label, f"{bound:.10g}")


def _link_difference(data: Mapping[int, tuple[pl.DataFrame, pl.DataFrame]], link: _Link) -> Sample:
    """Left - right of a link in each replication."""
    metric = METRICS[link.metric]
    left = sample(*data[link.left], metric)
    if not link.against_number:
        return difference(left, sample(*data[int(link.right)], metric))
    # a whole number is compared with a counter as an integer, without rounding either
    whole = float(link.right).is_integer() and abs(link.right) < 2**62
    number = int(link.right) if whole else float(link.right)
    return difference(left, Sample(np.full(len(left.numbers), number), left.known))


def _strength(relation: str, found: Estimate) -> float:
    """How far a mean difference lies in the claimed direction, in standard errors."""
    if found.mean is None or found.mean == 0:
        return 0.0
    errors = found.mean / found.mcse if found.mcse else math.copysign(math.inf, found.mean)
    if relation == "=":
        return -abs(errors)
    return -errors if relation in {"<", "<="} else errors


def verdict(share_low: float | None, share_high: float | None) -> str | None:
    """Judge a claim by the interval of its share; None without an interval."""
    if share_low is None or share_high is None:
        return None
    if share_low >= SHARE_HOLDS:
        return HOLDS
    return FAILS if share_high <= SHARE_FAILS else DEPENDS


# --- honest printing ------------------------------------------------------------------------

MISSING: Final = "-"
"""Printed for a number that is undefined."""

_WIDE: Final = Context(prec=1100)  # no double has more digits than this
_N_DIGITS_ALONE: Final = 4  # of an estimate without an error


def format_estimate(mean: float | None, half_width: float | None) -> tuple[str, str]:
    """Cut an estimate to the digits that its error supports.

    Parameters
    ----------
    mean : float or None
        The estimate; None where it is undefined.
    half_width : float or None
        Half the length of its interval; None where there is none (a single replication).

    Returns
    -------
    estimate, error : str
        The error with two significant digits, the estimate to the same place. Without an error
        (none, or 0): a whole number as it is, another with at least four significant digits,
        and an empty or zero error.

    Examples
    --------
    >>> format_estimate(4523.3172, 1.2345), format_estimate(96.0, None)
    (('4523.3', '1.2'), ('96', ''))
    """
    if mean is None:
        return MISSING, ""
    if not half_width:
        error = "" if half_width is None else "0"
        if mean.is_integer():
            return str(int(mean)), error
        before = math.floor(math.log10(abs(mean))) + 1
        return _unsigned_zero(f"{mean:.{max(0, _N_DIGITS_ALONE - before)}f}"), error
    # the exponent after rounding: 0.0996 is 0.10, not 0.100
    exponent = int(f"{half_width:.1e}".partition("e")[2])
    unit = Decimal(1).scaleb(exponent - 1)
    text, error = (
        f"{Decimal(number).quantize(unit, context=_WIDE):f}" for number in (mean, half_width)
    )
    return _unsigned_zero(text), error


def to_fixed(number: float, decimals: int) -> str:
    """Print a number with that many decimals as JavaScript's `toFixed`, halves away from zero.

    The exact binary value is rounded: 1.005 is a little less than its decimal, hence '1.00'.
    """
    unit = Decimal(1).scaleb(-decimals)
    return f"{Decimal(number).quantize(unit, ROUND_HALF_UP, _WIDE):f}"


def _unsigned_zero(text: str) -> str:
    """Drop the sign of a number whose digits are all zero."""
    return text.removeprefix("-") if float(text) == 0 else text
