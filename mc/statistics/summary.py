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

from mc.model import Column, Metric, Worst, schema_of
from mc.model.columns import OF_METRIC
from mc.model.digits import MIN_REPLICATIONS
from mc.statistics import control, intervals
from mc.statistics.counts import Histogram, Sums, histogram, joint_sums, moments, sums_beside
from mc.statistics.estimates import (
    OF_SHARE,
    as_frame,
    interval_columns,
    mean_columns,
)
from mc.statistics.published import count_below, tail
from mc.statistics.rows import (
    N_WINDOW_ROUNDS,
    RATE_PER_ROUND,
    Numbers,
    Stack,
    has_traffic,
    is_censored,
    mean_requests,
    mean_window_requests,
    stacks,
)

if TYPE_CHECKING:
    from mc.experiment import Published

QUANTILES: Final = {
    "p01": Fraction(1, 100),
    "p05": Fraction(1, 20),
    "p25": Fraction(1, 4),
    "median": Fraction(1, 2),
    "p75": Fraction(3, 4),
    "p95": Fraction(19, 20),
    "p99": Fraction(99, 100),
}

OUTER: Final = ("p01", "p99")
"""Quantiles that are given only with an interval: of fewer replications they are the extremes."""

WORST_SHARE: Final = Fraction(1, 20)
"""Of so many of the replications the worst are averaged."""

RELATIVE_WANTED: Final = 0.01
"""`n_needed` aims at a half-width of this share of the mean."""

TRAFFIC: Final = ("requests", "window_requests")
"""Counters whose expectations are known: control variates for the other metrics."""


def _quantile_columns(name: str, share: str) -> dict[str, Column]:
    late = "that is later than the run" + (", or n too small" if name in OUTER else "")
    meaning = (
        f"smallest value that at least {share} of replications do not exceed; NULL where {late}"
    )
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
            "replications in which the metric is defined; mean and sd are of these",
        ),
        "share_defined": Column(
            "float",
            "share",
            "share of replications in which the metric is defined; what did not come within the "
            "run (drain) counts as later in quantiles and shares",
        ),
    }
    | interval_columns("share_defined", "share", "share", OF_SHARE)
    | {
        "mean": Column("float", OF_METRIC, "mean over the replications in which it is defined"),
        "sd": Column("float", OF_METRIC, "standard deviation between replications"),
        "mcse": Column("float", OF_METRIC, "Monte Carlo standard error of the mean: sd / sqrt(n)"),
    }
    | interval_columns(
        "ci", OF_METRIC, "mean", f"Student t, NULL where `note` says why; of recovered {OF_SHARE}"
    )
    | {"min": Column("float", OF_METRIC, "smallest value")}
    | {
        name: column
        for quantile, share in QUANTILES.items()
        for name, column in _quantile_columns(quantile, f"{float(share):.0%}").items()
    }
    | {
        "max": Column("float", OF_METRIC, "largest value"),
        "share_zero": Column("float", "share", "share of replications in which the metric is 0"),
    }
    | interval_columns("share_zero", "share", "share", OF_SHARE)
    | {
        "worst_mean": Column(
            "float",
            OF_METRIC,
            f"expected shortfall: mean of the worst {float(WORST_SHARE):.0%} of the replications, "
            "which of successful are the smallest values, of all else the largest; NULL where "
            "some of these are later than the run",
        ),
    }
    | interval_columns(
        "worst_mean", OF_METRIC, "expected shortfall", "influence function; NULL if too few differ"
    )
    | {
        "share_above_capacity": Column(
            "float", "share", "share of replications in which a peak exceeds the usual capacity"
        ),
    }
    | interval_columns("share_above_capacity", "share", "share", OF_SHARE)
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
            "replications below the published figure, those equal to it as printed counted half; "
            "all other shares go from 0 to 1",
        ),
        "published_tail": Column(
            "float",
            "share",
            "two-sided tail: twice the share of replications that lie at least as far to its side, "
            "the published one counted among them",
        ),
        "published_joint": Column(
            "float",
            "share",
            "share of runs by the lesson's own generator in which some of the published figures "
            "lies as far out as this one, the published run counted among them: its p value among "
            "all of them together",
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
        metric is defined, and mean and spread are estimated from these: with `drain`, those that
        drained. In quantiles and shares what did not come within the run counts as later than all
        that did. With n = 1 there is no spread and no interval.

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
        # what did not come within the run is not NULL: it is later
        n_all = np.where(is_censored(metric, cells), n, counts.histogram.n)
        columns[metric.name] = (
            _estimates(metric, counts, expected, n)
            | _share("share_defined", counts.histogram.n, np.where(n_all > 0, n, 0))
            | _distribution(metric, counts.histogram, n_all)
            | _shares_above(metric, counts.histogram, n_all, cells["capacity"].to_numpy())
            | _published(cells["cell"].to_list(), counts.histogram, n_all, figures)
        )
    return as_frame(SUMMARY_SCHEMA, {"cell": cells["cell"].to_numpy()}, columns)


def _expected_traffic(cells: pl.DataFrame) -> list[tuple[Fraction, Fraction] | None]:
    """Expectations of the counters of `TRAFFIC` in each cell; None of a closed loop."""
    if has_traffic(cells):
        lines = cells.select(run=mean_requests(cells), window=mean_window_requests(cells)).rows()
        return [None if None in line else (Fraction(line[0]), Fraction(line[1])) for line in lines]
    lines = cells.select("rounds", window=N_WINDOW_ROUNDS, rate=RATE_PER_ROUND).rows()
    known = {
        (rounds, window, rate): (Fraction(rate) * rounds, Fraction(rate) * window)
        for rounds, window, rate in dict.fromkeys(lines)
    }
    return [known[line] for line in lines]


def _estimates(
    metric: Metric,
    counts: MetricCounts,
    expected: Sequence[tuple[Fraction, Fraction] | None] | None,
    n_rows: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Mean and spread of one metric, K values each, NaN for NULL."""
    counted = counts.histogram
    sample = moments(counted)
    n = sample.n
    judged = n, n - counted.n_zero, sample.skewness
    has_interval = intervals.mean_has_interval(*judged)
    columns = mean_columns(n, sample.mean, sample.variance, has_interval)
    columns["note"] = intervals.mean_notes(*judged)
    if metric.is_indicator:
        has_interval = np.zeros_like(has_interval)  # of Student's kind, nor an adjusted one
        columns["ci_low"], columns["ci_high"] = intervals.share_interval(n - counted.n_zero, n)
        columns["note"][n > 0] = None
    half_width = intervals.t_half_width(n, columns["mcse"])
    wanted = RELATIVE_WANTED * np.abs(columns["mean"])
    columns["n_needed"] = intervals.replications_needed(n_rows, half_width, wanted)
    # where a metric is undefined in some rows, traffic in the others has another expectation
    controlled = np.flatnonzero(has_interval & (n == n_rows))
    columns |= _adjusted(metric, counts, expected, controlled)
    return columns | _ratio_of_means(counts, has_interval)


def _distribution(
    metric: Metric, counted: Histogram, n_all: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Order statistics, the share of zeros, and the mean of the worst.

    `n_all` counts the replications in which the metric is defined, and those in which it is later
    than the run: these have the highest ranks.
    """
    n = counted.n
    rank_of = {"min": np.minimum(n, 1), "max": n}
    sizes, size_of = np.unique(n_all, return_inverse=True)
    for name, p in QUANTILES.items():
        of_sizes = [intervals.quantile_ranks(size, p) or (0, 0) for size in sizes.tolist()]
        low, high = np.array(of_sizes, np.int64).reshape(-1, 2)[size_of].T
        rank = -(-n_all * p.numerator // p.denominator)  # rounded up
        rank_of[name] = np.where(low > 0, rank, 0) if name in OUTER else rank
        rank_of[f"{name}_low"], rank_of[f"{name}_high"] = low, high
    ranks = np.stack(list(rank_of.values()))
    inside = (ranks >= 1) & (ranks <= n)
    values = np.where(inside, counted.value_at(ranks), math.nan)
    columns = dict(zip(rank_of, values, strict=True))
    columns |= _share("share_zero", counted.n_zero, n_all)
    worst = shortfall(counted, WORST_SHARE, metric.worst)
    for name, column in zip(("", "_low", "_high"), worst, strict=True):
        columns[f"worst_mean{name}"] = np.where(n == n_all, column, math.nan)
    return columns


def shortfall(
    counted: Histogram, share: Fraction, worst: Worst = "high"
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Estimate the mean of the worst values, a share of all, with its interval.

    Parameters
    ----------
    counted : Histogram
        In K cells.
    share : Fraction
        Between 0 and 1.
    worst : {"high", "low"}
        Which values these are.

    Returns
    -------
    mean, low, high : ndarray of float64, shape (K,)
        NaN where there is no replication; the ends also where too few lie beyond the quantile, or
        these are too skewed, see `intervals.mean_has_interval`.

    Notes
    -----
    Expected shortfall in the sense of Acerbi and Tasche (2002): where the share ends
    among equal values, part of them counts. Its error is that of the mean excess over the
    quantile, divided by the share: Brazauskas, Jones, Puri and Zitikis (2008).
    """
    n = counted.n
    some = np.maximum(n, 1)
    wanted = n * float(share)
    quantile = n - (n * share.numerator // share.denominator)  # rank
    if worst == "low":
        quantile = n - quantile + 1
    tails, counts, cells, upto = counted.tails(quantile, worst)
    if worst == "high":
        sign, beyond = 1.0, upto - (n - wanted)[cells]
    else:
        sign, beyond = -1.0, wanted[cells] - (upto - counts)
    weights = np.clip(beyond, 0.0, counts)
    values, at_quantile = sign * tails, sign * counted.value_at(quantile)

    def mean_of(terms: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(cells, terms, minlength=len(n)) / some

    mean = mean_of(weights * values) / float(share)
    excess = np.maximum(values - at_quantile[cells], 0.0)
    m1, m2, m3 = (mean_of(counts * power) for power in (excess, excess**2, excess**2 * excess))
    variance = np.maximum(m2 - m1**2, 0.0)
    varies = variance > 0
    skewness = np.full(len(n), math.nan)
    np.divide(m3 - 3 * m1 * m2 + 2 * m1**3, variance**1.5, out=skewness, where=varies)
    n_beyond = np.bincount(cells, np.where(excess > 0, counts, 0), minlength=len(n))
    half_width = intervals.t_half_width(n, np.sqrt(variance / some)) / float(share)
    given = varies & intervals.mean_has_interval(n, n_beyond, skewness)
    mean, half_width = np.where(n > 0, mean, math.nan), np.where(given, half_width, math.nan)
    return sign * mean, sign * mean - half_width, sign * mean + half_width


def _share(
    name: str, n_holds: NDArray[np.int64], n: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """The columns of a share; NaN where n is 0."""
    low, high = intervals.share_interval(n_holds, n)
    share = np.where(n > 0, n_holds / np.maximum(n, 1), math.nan)
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _shares_above(
    metric: Metric, counted: Histogram, n: NDArray[np.int64], capacities: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """How often a peak exceeds what the usual capacity serves in any round."""
    name = "share_above_capacity"
    if not metric.above_capacity:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.full(n.shape, math.nan))
    bounds = np.ceil(capacities)[counted.cells]
    n_above = counted.sums(np.where(counted.values > bounds, counted.counts, 0))
    return _share(name, np.minimum(n_above, n), n)


def _adjusted(
    metric: Metric,
    counts: MetricCounts,
    expected: Sequence[tuple[Fraction, Fraction] | None] | None,
    candidates: NDArray[np.int64],
) -> dict[str, NDArray[np.float64]]:
    """Adjusted means of those cells whose plain mean has an interval."""
    names = ("mean", "mcse", "low", "high", "reduction")
    columns = {f"adjusted_{name}": np.full(len(counts.traffic), math.nan) for name in names}
    if expected is None or metric.name in TRAFFIC:
        return columns
    enough = counts.traffic[candidates, 0] >= MIN_REPLICATIONS
    chosen = candidates[enough.astype(np.bool_)]  # each takes 30 us
    known = {int(k): mean for k in chosen if (mean := expected[k]) is not None}
    chosen = np.array(list(known), np.int64)
    if chosen.size:
        sums = dict(zip(control.SUMS, counts.traffic[chosen].T.tolist(), strict=True))
        requests, in_window = zip(*known.values(), strict=True)
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
    numbers: Sequence[int],
    counted: Histogram,
    n_all: NDArray[np.int64],
    figures: dict[int, Published],
) -> dict[str, NDArray[np.float64]]:
    """Columns of the published figures of one metric; what takes all figures is NaN here."""
    names = ("published", "published_percentile", "published_tail", "published_joint")
    columns = {name: np.full(len(numbers), math.nan) for name in names}
    for k, number in enumerate(numbers):
        if number not in figures:
            continue
        figure = figures[number]
        values, counts = counted.cell(k)
        below, up_to = count_below(values, counts, figure.value, figure.decimals)
        n = int(n_all[k])
        columns["published"][k] = figure.value
        if n:
            columns["published_percentile"][k] = 100 * (below + up_to) / (2 * n)
            columns["published_tail"][k] = tail(below, up_to, n)
    return columns
