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
from scipy import special, stats

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

    Notes
    -----
    Student's t interval with n - 1 degrees of freedom, for a mean over independent
    replications: Law, *Simulation Modeling and Analysis*, section 4.5. `mcse` is the Monte Carlo
    standard error sd / sqrt(n): Morris, White and Crowther (2019), table 6.
    """
    n = len(numbers)
    if n == 0:
        return Estimate(0)
    mean, variance = _moments(numbers, divisor)
    if variance is None:
        return Estimate(n, mean)
    sd = math.sqrt(variance)
    mcse = sd / math.sqrt(n)
    half_width = _t_quantile(n) * mcse
    return Estimate(n, mean, sd, mcse, mean - half_width, mean + half_width)


def _moments(numbers: NDArray[Any], divisor: float) -> tuple[float, float | None]:
    """Mean and sample variance, the variance None for a single number."""
    n = len(numbers)
    if numbers.dtype.kind == "i":
        s1, s2 = _power_sums(numbers)
        scale = Fraction(divisor)
        mean = float(Fraction(s1, n) / scale)
        if n == 1:
            return mean, None
        return mean, float(Fraction(n * s2 - s1 * s1, n * (n - 1)) / scale**2)
    # equal values: the rounding of their sum must not look like a spread
    first = float(numbers[0])
    if np.all(numbers == first):
        return first / divisor, 0.0 if n > 1 else None
    mean = math.fsum(numbers.tolist()) / n
    deviations = numbers - mean
    # the second term repairs the rounding of the mean (Chan, Golub and LeVeque 1983)
    squares = math.fsum((deviations**2).tolist()) - math.fsum(deviations.tolist()) ** 2 / n
    return mean / divisor, squares / (n - 1) / divisor**2


def _power_sums(numbers: NDArray[Any]) -> tuple[int, int]:
    """Exact sum and sum of squares of integers."""
    largest = max(-int(numbers.min()), int(numbers.max()))
    if largest * largest * len(numbers) < 2**63:
        return int(numbers.sum()), int(np.dot(numbers, numbers))
    plain = numbers.tolist()  # 64 bits would wrap around without a word
    return sum(plain), sum(number * number for number in plain)


@lru_cache(maxsize=1024)
def _t_quantile(n: int) -> float:
    return float(special.stdtrit(n - 1, (1 + LEVEL) / 2))


def wilson(n_holds: int, n: int) -> tuple[float | None, float | None]:
    """Wilson's interval for a share of n replications; None, None for n = 0."""
    if n == 0:
        return None, None
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
        of `METRICS`. See `summarise_cell`.
    """
    by_cell = _split(rows)
    frames = [SUMMARY_SCHEMA.to_frame()]
    for cell in cells.iter_slices(1):
        index = cell["cell"].item()
        figures = [figure for figure in published if figure.cell == index]
        frames.append(summarise_cell(by_cell.get(index, rows.clear()), cell, figures))
    return pl.concat(frames)


def summarise_cell(
    rows: pl.DataFrame, cell: pl.DataFrame, published: Sequence[Published] = ()
) -> pl.DataFrame:
    """Summarise every metric of one cell.

    Parameters
    ----------
    rows : polars.DataFrame
        Rows of this cell only, in any order.
    cell : polars.DataFrame, height 1
        Its line in the table of cells.
    published : sequence of Published
        Figures for this cell.

    Returns
    -------
    polars.DataFrame
        One line for each metric, in the schema of `SUMMARY_SCHEMA`. `n` counts the replications
        in which the metric is defined, and everything is estimated from these: with `drain`,
        those that drained. With n = 1 there is no spread and no interval.

    Notes
    -----
    The mean of a ratio is the mean over replications of the ratio, not the ratio of two means.
    Quantiles invert the empirical distribution function (definition 1 of Hyndman and Fan 1996):
    each is a value that occurred, so a count stays a whole number.

    `published_percentile` is the mid-percentile ``100 (#{x < v} + #{x <= v}) / 2n`` of the
    figure v. If v was printed with d decimals, each x is first rounded to d decimals.
    """
    index = cell["cell"].item()
    figures = {figure.metric: figure for figure in published}
    records = []
    for metric in METRICS.values():
        taken = sample(rows, cell, metric)
        ordered = np.sort(taken.numbers[taken.known])
        record = {"cell": index, "metric": metric.name}
        record |= vars(estimate(ordered, taken.divisor)) | _order_statistics(ordered, taken.divisor)
        if metric.name in figures:
            figure = figures[metric.name]
            record["published"] = figure.value
            record["published_percentile"] = mid_percentile(
                ordered / taken.divisor, figure.value, figure.decimals
            )
        records.append(record)
    return pl.DataFrame(records, SUMMARY_SCHEMA)


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


def _order_statistics(ordered: NDArray[Any], divisor: float) -> dict[str, float]:
    """Smallest, largest and the quantiles of sorted numbers; nothing of an empty sample."""
    n = len(ordered)
    if n == 0:
        return {}
    ranks = {"min": 1, "max": n} | {name: math.ceil(n * p) for name, p in _QUANTILES.items()}
    return {name: float(ordered[rank - 1] / divisor) for name, rank in ranks.items()}


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
        In the schema of `COMPARISONS_SCHEMA`. See `compare_cells`.
    """
    by_cell = _split(rows)
    lines = {cell["cell"].item(): cell for cell in cells.iter_slices(1)}
    frames = [COMPARISONS_SCHEMA.to_frame()]
    for index, baseline in cells.select("cell", "baseline").iter_rows():
        if index != baseline:
            left, right = (by_cell.get(i, rows.clear()) for i in (index, baseline))
            frames.append(compare_cells(left, lines[index], right, lines[baseline]))
    return pl.concat(frames)


def compare_cells(
    rows: pl.DataFrame, cell: pl.DataFrame, baseline_rows: pl.DataFrame, baseline: pl.DataFrame
) -> pl.DataFrame:
    """Compare one cell with another in every metric.

    Parameters
    ----------
    rows, baseline_rows : polars.DataFrame
        Rows of the one and of the other cell, in any order; the replications that both have
        are compared.
    cell, baseline : polars.DataFrame, height 1
        Their lines in the table of cells.

    Returns
    -------
    polars.DataFrame
        One line for each metric, in the schema of `COMPARISONS_SCHEMA`. `n` counts the
        replications in which the metric is defined in both cells; a difference is
        ``cell - baseline``. `variance_reduction` is how many times as many replications
        independent samples would need for the same interval; NULL where the difference never
        varies.

    Notes
    -----
    Paired t interval: Law, *Simulation Modeling and Analysis*, section 10.2.1; it needs neither
    independent samples nor equal variances.
    """
    left_rows, right_rows = _align([rows, baseline_rows])
    indices = {"cell": cell["cell"].item(), "baseline": baseline["cell"].item()}
    records = []
    for metric in METRICS.values():
        left, right = sample(left_rows, cell, metric), sample(right_rows, baseline, metric)
        paired = difference(left, right)
        numbers = paired.numbers[paired.known]
        found = dict(vars(estimate(numbers, paired.divisor)))
        record = indices | {"metric": metric.name, "mean_difference": found.pop("mean")} | found
        if len(numbers) > 0:
            record["share_less"] = np.count_nonzero(numbers < 0) / len(numbers)
            record["share_equal"] = np.count_nonzero(numbers == 0) / len(numbers)
            record["share_greater"] = np.count_nonzero(numbers > 0) / len(numbers)
        if found["sd"]:  # neither None nor 0
            spread, *apart = (
                _moments(x.numbers[paired.known], x.divisor)[1] or 0.0
                for x in (paired, left, right)
            )
            record["variance_reduction"] = sum(apart) / spread
        records.append(record)
    return pl.DataFrame(records, COMPARISONS_SCHEMA)


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
    lines = {cell["cell"].item(): cell for cell in cells.iter_slices(1)}
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
