"""The summary: mean, spread and quantiles of each metric in each cell, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import Column, Metric, schema_of
from mc.model.columns import OF_METRIC
from mc.model.digits import to_fixed
from mc.statistics import control, intervals
from mc.statistics.counts import Histogram, Sums, histogram, joint_sums, moments, sums_beside
from mc.statistics.estimates import (
    OF_SHARE,
    as_frame,
    interval_columns,
    mean_columns,
)
from mc.statistics.rows import (
    N_WINDOW_ROUNDS,
    RATE_PER_ROUND,
    Numbers,
    Stack,
    stacks,
)

if TYPE_CHECKING:
    from mc.experiment import Published

QUANTILES: Final = {
    "p05": Fraction(1, 20),
    "p25": Fraction(1, 4),
    "median": Fraction(1, 2),
    "p75": Fraction(3, 4),
    "p95": Fraction(19, 20),
}

RELATIVE_WANTED: Final = 0.01
"""`n_needed` aims at a half-width of this share of the mean."""

TRAFFIC: Final = ("requests", "window_requests")
"""Counters whose expectations are known: control variates for the other metrics."""


def _quantile_columns(name: str, share: str) -> dict[str, Column]:
    meaning = f"smallest value that {share} of the replications reach at most"
    return {name: Column("float", OF_METRIC, meaning)} | interval_columns(
        name, OF_METRIC, f"{share} quantile", "order statistics, exact"
    )


SUMMARY_COLUMNS: Final[dict[str, Column]] = (
    {
        "cell": Column("int32", "", "number of the cell"),
        "metric": Column("text", "", "what is summarised"),
        "n": Column(
            "int64",
            "replications",
            "replications in which the metric is defined; all else is of these",
        ),
        "mean": Column("float", OF_METRIC, "mean over replications"),
        "sd": Column("float", OF_METRIC, "standard deviation between replications"),
        "mcse": Column("float", OF_METRIC, "Monte Carlo standard error of the mean: sd / sqrt(n)"),
    }
    | interval_columns("ci", OF_METRIC, "mean", "Student t; NULL where `note` says why")
    | interval_columns("sd", OF_METRIC, "standard deviation", "delta method, logarithmic")
    | {"min": Column("float", OF_METRIC, "smallest value")}
    | {
        name: column
        for quantile, share in QUANTILES.items()
        for name, column in _quantile_columns(quantile, f"{float(share):.0%}").items()
    }
    | {
        "max": Column("float", OF_METRIC, "largest value"),
        "share_zero": Column("float", "", "share of replications in which the metric is 0"),
    }
    | interval_columns("share_zero", "", "share", OF_SHARE)
    | {
        "adjusted_mean": Column(
            "float",
            OF_METRIC,
            "mean with traffic as control variate (its expectation is known); NULL where that "
            "does not help, and where the metric is undefined in some replications",
        ),
        "adjusted_mcse": Column("float", OF_METRIC, "standard error of the adjusted mean"),
    }
    | interval_columns("adjusted", OF_METRIC, "adjusted mean", "regression")
    | {
        "adjusted_reduction": Column(
            "float", "", "variance of the mean over that of the adjusted mean"
        ),
        "ratio_of_means": Column(
            "float",
            OF_METRIC,
            "of a ratio of counters: mean numerator over mean denominator, another number than "
            "the mean of the ratios",
        ),
    }
    | interval_columns("ratio_of_means", OF_METRIC, "ratio of means", "delta method")
    | {
        "n_needed": Column(
            "int64",
            "replications",
            f"about as many give the mean a half-width of {RELATIVE_WANTED:.0%} of itself",
        ),
        "note": Column("text", "", "why the interval of the mean is missing, or not to be trusted"),
        "published": Column("float", OF_METRIC, "published figure"),
        "published_percentile": Column(
            "float",
            "%",
            "replications below the published figure, those equal to it as printed counted half",
        ),
        "published_tail": Column(
            "float",
            "",
            "twice the share of replications that lie at least as far to its side: two-sided tail",
        ),
    }
)
"""The columns of the summary, in their order."""

SUMMARY_SCHEMA: Final = schema_of(SUMMARY_COLUMNS)


@dataclass(frozen=True)
class MetricCounts:
    """Counts of one metric in K cells, enough for its summary; those of two ranges may be added.

    Attributes
    ----------
    histogram : Histogram
        Of its values.
    traffic : Sums, shape (K, 10)
        Of its numbers and the counters of `TRAFFIC`.
    ratio : Sums, shape (K, 6), or None
        Of numerator and denominator, where both are counters.
    """

    histogram: Histogram
    traffic: Sums
    ratio: Sums | None


def count_metrics(stack: Stack) -> Iterator[tuple[Metric, Numbers, MetricCounts]]:
    """Count and sum each metric over the rows of a stack.

    Yields
    ------
    metric, numbers, counts
        Each metric in turn, its numbers in the rows, and what is counted of these.
    """
    traffic = [stack.columns[name][0] for name in TRAFFIC]
    of_traffic = joint_sums(traffic, np.ones(stack.replications.shape, np.bool_))
    for metric in stack.metrics:
        values = stack.numbers(metric)
        ratio = None
        if metric.per:
            both = stack.columns[metric.counter][0], stack.columns[metric.per][0]
            ratio = joint_sums(both, values.known)
        counted = histogram(values)
        sums = sums_beside(values, counted, traffic, of_traffic)
        yield metric, values, MetricCounts(counted, sums, ratio)


def summarise(
    rows: pl.DataFrame,
    cells: pl.DataFrame,
    published: Sequence[Published] = (),
    *,
    controlled: bool = True,
) -> pl.DataFrame:
    """Summarise every metric of every cell.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order (sorted by cell is fastest).
    cells : polars.DataFrame
        The table of cells; a cell without rows is summarised with n = 0.
    published : sequence of Published
        Published figures, to be found in the distributions, at most one for a cell and metric.
    controlled : bool
        Whether the expected traffic follows from the parameters, so that traffic may be a control
        variate. With the lesson's generator it does not surely do.

    Returns
    -------
    polars.DataFrame
        In the schema of `SUMMARY_SCHEMA`, cells in the order of `cells`, metrics in the order
        of `METRICS`: those whose counters the rows have. `n` counts the replications in which the
        metric is defined, and everything is estimated from these: with `drain`, those that
        drained. With n = 1 there is no spread and no interval.

    Notes
    -----
    The mean of a ratio is the mean over replications of the ratio, not the ratio of two means.
    Quantiles invert the empirical distribution function (definition 1 of Hyndman and Fan 1996):
    each is a value that occurred, so a count stays a whole number. Intervals: see `intervals` and
    `control`.

    `published_percentile` is the mid-percentile ``100 (#{x < v} + #{x <= v}) / 2n`` of the
    figure v. If v was printed with d decimals, each x is first rounded to d decimals.
    """
    frames, positions = [SUMMARY_SCHEMA.to_frame()], [np.empty(0, np.int64)]
    for stack in stacks(rows, cells):
        n = np.full(stack.cells.height, stack.n_rows)
        counted = ((metric, counts) for metric, _, counts in count_metrics(stack))
        frames.append(summary(stack.cells, n, counted, published, controlled=controlled))
        positions.append(np.repeat(stack.positions, len(stack.metrics)))
    return pl.concat(frames)[np.argsort(np.concatenate(positions), kind="stable")]


def summary(
    cells: pl.DataFrame,
    n: NDArray[np.int64],
    counted: Iterable[tuple[Metric, MetricCounts]],
    published: Sequence[Published] = (),
    *,
    controlled: bool = True,
) -> pl.DataFrame:
    """Summarise K cells from their counts.

    Parameters
    ----------
    cells : polars.DataFrame, height K
        Their lines in the table of cells.
    n : ndarray of int64, shape (K,)
        Their replications.
    counted : iterable of (Metric, MetricCounts)
        The counts of each metric.
    published, controlled
        See `summarise`.

    Returns
    -------
    polars.DataFrame
        One line for each (cell, metric), as `summarise` gives it.
    """
    expected = _expected_traffic(cells) if controlled else None
    columns = {}
    for metric, counts in counted:
        figures = {f.cell: f for f in published if f.metric == metric.name}
        columns[metric.name] = _estimates(metric, counts, expected, n) | _published(
            cells["cell"].to_list(), counts.histogram, figures
        )
    return as_frame(SUMMARY_SCHEMA, {"cell": cells["cell"].to_numpy()}, columns)


def _expected_traffic(cells: pl.DataFrame) -> list[tuple[Fraction, Fraction]]:
    """Expectations of the counters of `TRAFFIC` in each cell: Poisson arrivals in every round."""
    lines = cells.select("rounds", window=N_WINDOW_ROUNDS, rate=RATE_PER_ROUND).rows()
    known = {
        (rounds, window, rate): (Fraction(rate) * rounds, Fraction(rate) * window)
        for rounds, window, rate in dict.fromkeys(lines)
    }
    return [known[line] for line in lines]


def _estimates(
    metric: Metric,
    counts: MetricCounts,
    expected: Sequence[tuple[Fraction, Fraction]] | None,
    n_rows: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Columns of the summary of one metric, K values each, NaN for NULL."""
    counted = counts.histogram
    sample = moments(counted)
    n, n_zero = sample.n, counted.sums(np.where(counted.values == 0, counted.counts, 0))
    judged = n, n - n_zero, sample.skewness
    has_interval = intervals.mean_has_interval(*judged)
    columns = mean_columns(n, sample.mean, sample.variance, has_interval)
    columns["note"] = intervals.mean_notes(*judged)
    columns |= _order_statistics(counted, n)
    columns["share_zero"] = np.where(n > 0, n_zero / np.maximum(n, 1), math.nan)
    ends = intervals.share_interval(n_zero, n)
    columns["share_zero_low"], columns["share_zero_high"] = ends
    ends = intervals.sd_interval(n, columns["sd"], sample.fourth)
    columns["sd_low"], columns["sd_high"] = ends
    half_width = intervals.t_half_width(n, columns["mcse"])
    wanted = RELATIVE_WANTED * np.abs(columns["mean"])
    columns["n_needed"] = intervals.replications_needed(n, half_width, wanted)
    # where a metric is undefined in some rows, traffic in the others has another expectation
    controlled = np.flatnonzero(has_interval & (n == n_rows))
    columns |= _adjusted(metric, counts, expected, controlled)
    return columns | _ratio_of_means(counts, has_interval)


def _order_statistics(counted: Histogram, n: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Smallest and largest value, and the quantiles with their exact intervals."""

    def values(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        inside = (ranks >= 1) & (ranks <= n)
        return np.where(inside, counted.at(ranks) / counted.divisors, math.nan)

    columns = {"min": values(np.minimum(n, 1)), "max": values(n)}
    for name, p in QUANTILES.items():
        columns[name] = values(-(-n * p.numerator // p.denominator))  # the quotient, rounded up
        ranks = {m: intervals.quantile_ranks(m, p) or (0, 0) for m in set(n.tolist())}
        for end, suffix in enumerate(("low", "high")):
            columns[f"{name}_{suffix}"] = values(np.array([ranks[m][end] for m in n.tolist()]))
    return columns


def _n_zero(counted: Histogram) -> NDArray[np.int64]:
    return counted.sums(np.where(counted.values == 0, counted.counts, 0))


def _shares_of_zero(counted: Histogram, n: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    n_zero = _n_zero(counted)
    low, high = intervals.share_interval(n_zero, n)
    share = np.where(n > 0, n_zero / np.maximum(n, 1), math.nan)
    return {"share_zero": share, "share_zero_low": low, "share_zero_high": high}


def _adjusted(
    metric: Metric,
    counts: MetricCounts,
    expected: Sequence[tuple[Fraction, Fraction]] | None,
    candidates: NDArray[np.int64],
) -> dict[str, NDArray[np.float64]]:
    """Adjusted means of those cells whose plain mean has an interval."""
    names = ("mean", "mcse", "low", "high", "reduction")
    columns = {f"adjusted_{name}": np.full(len(counts.traffic), math.nan) for name in names}
    if expected is None or metric.name in TRAFFIC:
        return columns
    enough = counts.traffic[candidates, 0] >= intervals.MIN_REPLICATIONS
    chosen = candidates[enough.astype(np.bool_)]  # each takes 30 us
    if chosen.size:
        sums = dict(zip(control.SUMS, counts.traffic[chosen].T.tolist(), strict=True))
        requests, in_window = zip(*(expected[k] for k in chosen.tolist()), strict=True)
        divisors = counts.histogram.divisors[chosen].tolist()
        adjusted = control.adjusted_means(sums, requests, in_window, divisors)
        for name in names:
            columns[f"adjusted_{name}"][chosen] = adjusted[name]
    return columns


def _ratio_of_means(
    counts: MetricCounts, has_interval: NDArray[np.bool_]
) -> dict[str, NDArray[np.float64]]:
    names = ("ratio_of_means", "ratio_of_means_low", "ratio_of_means_high")
    if counts.ratio is None:
        return {name: np.full(len(counts.traffic), math.nan) for name in names}
    estimates = intervals.ratios(counts.ratio, [1] * len(has_interval), has_interval)
    return dict(zip(names, estimates, strict=True))


# --- published figures ----------------------------------------------------------------------


def _published(
    numbers: Sequence[int], counted: Histogram, figures: dict[int, Published]
) -> dict[str, NDArray[np.float64]]:
    """Columns of the published figures of one metric."""
    names = ("published", "published_percentile", "published_tail")
    columns = {name: np.full(len(numbers), math.nan) for name in names}
    for k, number in enumerate(numbers):
        if number not in figures:
            continue
        figure = figures[number]
        values, counts = counted.cell(k)
        below, up_to = count_below(
            values / counted.divisors[k], counts, figure.value, figure.decimals
        )
        n = int(counts.sum())
        columns["published"][k] = figure.value
        if n:
            columns["published_percentile"][k] = 100 * (below + up_to) / (2 * n)
            columns["published_tail"][k] = min(1.0, 2 * min(up_to, n - below) / n)
    return columns


def count_below(
    values: NDArray[np.float64], counts: NDArray[np.int64], figure: float, decimals: int | None
) -> tuple[int, int]:
    """Count the replications below a printed figure, and those below it or equal to it.

    Parameters
    ----------
    values : ndarray of float64, shape (V,)
        Different values, ascending.
    counts : ndarray of int64, shape (V,)
        How often each occurs.
    figure : float
        The figure v, >= 0.
    decimals : int or None
        Digits after its point; with None v is compared as it is.

    Returns
    -------
    below, up_to : int
        The two counts.

    Notes
    -----
    A value is rounded to the nearest figure of that many decimals, judged by its exact binary
    value, halves upwards: as `Number.prototype.toFixed` prints (ECMA-262). So x is below the
    figure iff x < v - h, and at most the figure iff x < v + h, where h is half a unit of the last
    decimal; these bounds are taken as rationals, and no value is rounded at all.
    """
    if decimals is None:
        low, high = figure, math.nextafter(figure, math.inf)
    else:
        printed = Fraction(to_fixed(figure, decimals))
        half = Fraction(1, 2 * 10**decimals)
        low, high = _at_least(printed - half), _at_least(printed + half)
    upto = np.concatenate([[0], np.cumsum(counts)])
    below, up_to = upto[np.searchsorted(values, [low, high])]
    return int(below), int(up_to)


def _at_least(bound: Fraction) -> float:
    """The smallest double that is not below the bound."""
    nearest = float(bound)
    return nearest if Fraction(nearest) >= bound else math.nextafter(nearest, math.inf)
