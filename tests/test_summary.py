"""The summary of a cell, against scipy, numpy and closed forms; published figures."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from samples import (
    NOTED,
    OUTAGE,
    ROUGH,
    cell_frame,
    exact_of,
    given_of,
    interval_of_share,
    line,
    note_of,
    random_rows,
    row_frame,
    values_of,
)
from scipy import stats

from mc.experiment import Published
from mc.model import METRICS, Worst
from mc.statistics import SUMMARY_SCHEMA, histogram, summarise, to_fixed
from mc.statistics.published import count_below, joint_tails
from mc.statistics.rows import Numbers
from mc.statistics.summary import shortfall

QUANTILES: Final = {"p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}

# --- summary --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 19, 100, 1001])
def test_a_summary_equals_scipy_and_numpy(n: int) -> None:
    rows, cells = random_rows(1, n, seed=n), cell_frame(OUTAGE)
    summary = summarise(rows, cells)
    assert summary.schema == SUMMARY_SCHEMA
    for metric in METRICS:
        x = values_of(rows, cells, metric)
        interval = stats.ttest_1samp(x, 0).confidence_interval(0.95)
        got = line(summary, metric)
        moments = {"mean": x.mean(), "sd": x.std(ddof=1), "mcse": stats.sem(x)}
        is_share = METRICS[metric].is_indicator
        assert got["note"] == (None if is_share else note_of(x))
        if is_share:
            low, high = interval_of_share(int(x.sum()), n)
            moments |= {"ci_low": low, "ci_high": high}
        elif given_of(x):
            moments |= {"ci_low": interval.low, "ci_high": interval.high}
        else:
            assert (got["ci_low"], got["ci_high"]) == (None, None), metric
        # numpy and scipy round at every step; the waits have 13 digits
        assert {k: got[k] for k in moments} == pytest.approx(moments, rel=1e-9), metric
        x = exact_of(rows, cells, metric)
        quantiles = {
            name: np.quantile(x, p, method="inverted_cdf") for name, p in QUANTILES.items()
        }
        expected = quantiles | {"n": n, "min": x.min(), "max": x.max()}
        assert {k: got[k] for k in expected} == expected, metric
    if n == 1001:
        assert summary["note"].null_count() == len(METRICS), "that is many for such values"


@pytest.mark.parametrize("n", [5, 58, 59, 100, 1001])
def test_the_intervals_of_quantiles_are_the_exact_ones_of_scipy(n: int) -> None:
    rows, cells = random_rows(1, n, seed=n), cell_frame(OUTAGE)
    summary = summarise(rows, cells)
    for metric in METRICS:
        x = exact_of(rows, cells, metric)
        got = line(summary, metric)
        for name, p in QUANTILES.items():
            found = stats.quantile_test(x, p=p).confidence_interval(0.95)
            ends = (None if math.isnan(end) else end for end in (found.low, found.high))
            expected = tuple(ends)
            if None in expected:  # both, or neither
                expected = (None, None)
            assert (got[f"{name}_low"], got[f"{name}_high"]) == expected, (metric, name)


@pytest.mark.parametrize("n", [1, 30, 1000])
@pytest.mark.parametrize("metric", ["calls", "successful"])
def test_the_worst_5_percent_are_averaged_on_their_side(n: int, metric: str) -> None:
    """Of 30 one and a half: the half is part of the second worst."""
    x = np.random.default_rng(n).poisson(20, n)
    got = line(summarise(row_frame({metric: x}), cell_frame(OUTAGE)), metric)["worst_mean"]
    ordered = np.sort(x) if metric == "successful" else np.sort(x)[::-1]
    weights = np.clip(0.05 * n - np.arange(n), 0, 1)
    assert got == pytest.approx((weights * ordered).sum() / (0.05 * n), rel=1e-12)  # two sums


@pytest.mark.parametrize("worst", ["high", "low"])
def test_the_interval_of_an_expected_shortfall_covers(worst: Worst) -> None:
    """Geometric tails, 10,000 of them: 95 % of 400; a fresh seed is below 92 % in 1 % of cases."""
    x = np.random.default_rng(35).geometric(0.02, (400, 10_000))
    sign = 1 if worst == "high" else -1
    taken = Numbers(sign * x, x > 0, x < 0, np.ones(400))
    mean, low, high = shortfall(histogram(taken), Fraction(1, 20), worst)
    p = stats.geom(0.02)
    quantile = int(p.ppf(0.95))
    # without memory: E[X | X > q] = q + 50; what is missing to 5 % is q itself
    above = float(p.sf(quantile))
    truth = sign * (above * (quantile + 50) + (0.05 - above) * quantile) / 0.05
    covered = np.count_nonzero((low <= truth) & (truth <= high))
    assert covered >= 368
    assert mean.mean() == pytest.approx(truth, rel=2e-3)  # four standard errors


def test_a_share_of_peaks_above_the_capacity_has_its_interval() -> None:
    rows = row_frame({"peak": [6] * 700 + [7] * 300, "calls": [9] * 1000})
    summary = summarise(rows, cell_frame(OUTAGE))
    got = line(summary, "peak")
    names = [f"share_above_capacity{end}" for end in ("", "_low", "_high")]
    assert [got[name] for name in names] == pytest.approx([0.3, *interval_of_share(300, 1000)])
    assert [line(summary, "calls")[name] for name in names] == [None] * 3


def test_the_outer_quantiles_are_given_from_368_replications_on() -> None:
    """The 1 % quantile of fewer may be below all of them: 0.99**367 is more than 2.5 %."""
    for n, given in ((367, False), (368, True)):
        got = line(summarise(row_frame({"calls": range(n)}), cell_frame(OUTAGE)), "calls")
        assert [got[name] is not None for name in ("p01", "p99", "p05")] == [given, given, True]
        assert got["p99"] in (None, 364.0)


@pytest.mark.parametrize("n_zero", [0, 1, 19, 20, 300, 380, 381, 400])
def test_the_share_of_zeros_has_the_interval_of_a_share(n_zero: int) -> None:
    rows = row_frame({"dropped": [0] * n_zero + [3] * (400 - n_zero)})
    got = line(summarise(rows, cell_frame(OUTAGE)), "dropped")
    assert got["share_zero"] == n_zero / 400
    found = got["share_zero_low"], got["share_zero_high"]
    assert found == pytest.approx(
        interval_of_share(n_zero, 400), rel=1e-10
    )  # scipy searches a root


def by_least_squares(
    y: NDArray[np.float64], controls: NDArray[np.float64]
) -> tuple[float, float, float, float, float]:
    """Regress y on controls; what `Adjusted` has, by the textbook."""
    n, q = controls.shape
    design = np.column_stack([np.ones(n), controls])
    coefficients, residuals, *_ = np.linalg.lstsq(design, y)
    variance = residuals[0] / (n - q - 1)
    mcse = math.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    half_width = stats.t.ppf(0.975, n - q - 1) * mcse
    mean = float(coefficients[0])
    return mean, mcse, mean - half_width, mean + half_width, (stats.sem(y) / mcse) ** 2


@pytest.mark.parametrize("n", [99, 2000])
def test_means_are_adjusted_for_the_traffic_where_that_helps(n: int) -> None:
    rows, cells = random_rows(1, n, seed=22), cell_frame(OUTAGE)
    generator = np.random.default_rng(23)
    rows = rows.with_columns(
        window_requests=pl.Series(generator.poisson(97.22, n), dtype=pl.Int32)
    ).with_columns(window_calls=pl.col("window_calls") + 3 * pl.col("window_requests"))
    summary = summarise(rows, cells)
    expectations = 4000 * 97.22 / 100, 100 * 97.22 / 100
    counters = [rows[name].to_numpy() for name in ("requests", "window_requests")]
    controls = np.column_stack([x - mu for x, mu in zip(counters, expectations, strict=True)])
    helped = set()
    for metric in METRICS:
        line_ = line(summary, metric)
        got = tuple(line_[f"adjusted_{c}"] for c in ("mean", "mcse", "low", "high", "reduction"))
        expected = by_least_squares(values_of(rows, cells, metric), controls)
        if n < 100 or expected[-1] < 1.1 or metric in ("requests", "window_requests"):
            assert got == (None,) * 5, metric
        else:
            helped.add(metric)
            assert got == pytest.approx(expected, rel=1e-8), metric  # least squares in doubles
    assert n < 100 or {"calls", "window_calls", "window_rate", "times_usual"} <= helped
    without = summarise(rows, cells, controlled=False)
    assert without["adjusted_mean"].null_count() == len(METRICS)


def test_a_mean_of_some_replications_is_not_adjusted() -> None:
    """Where it drained the traffic was low: its expectation there is not the known one."""
    requests = np.random.default_rng(26).poisson(3888.8, 3000)
    drain = [None if r > 3950 else int(r) // 10 for r in requests]
    cells = cell_frame(OUTAGE)
    for values, expected in (((requests // 10).tolist(), True), (drain, False)):
        rows = row_frame({"requests": requests, "drain": values})
        found = line(summarise(rows, cells), "drain")
        assert found["note"] is None
        got = found["adjusted_mean"] is not None
        assert got == expected


def test_the_ratio_of_means_has_the_interval_of_the_delta_method() -> None:
    n = 2000
    rows, cells = random_rows(1, n, seed=24), cell_frame(OUTAGE)
    summary = summarise(rows, cells)
    pairs = {
        "multiplier": ("calls", "requests"),
        "failed_share": ("dropped", "requests"),
        "late_share": ("late", "requests"),
        "window_failed_share": ("window_dropped", "window_requests"),
        "wait_mean": ("wait_total", "successful"),
    }
    for metric, counters in pairs.items():
        x, y = (rows[name].to_numpy().astype(np.float64) for name in counters)
        ratio = x.mean() / y.mean()
        error = stats.sem(x - ratio * y) / y.mean()
        half_width = stats.t.ppf(0.975, n - 1) * error
        names = ("ratio_of_means", "ratio_of_means_low", "ratio_of_means_high")
        got = [line(summary, metric)[name] for name in names]
        expected = [ratio, ratio - half_width, ratio + half_width]
        assert got == pytest.approx(expected, rel=1e-9)  # numpy rounds at every step
    others = summary.filter(~pl.col("metric").is_in(list(pairs)))
    assert others["ratio_of_means"].null_count() == others.height


def test_so_many_replications_shrink_the_half_width_to_a_hundredth_of_the_mean() -> None:
    rows = row_frame({"calls": np.random.default_rng(25).poisson(50, 400)})
    summary = summarise(rows, cell_frame(OUTAGE))
    got = line(summary, "calls")
    half_width, wanted = got["ci_high"] - got["mean"], 0.01 * got["mean"]
    assert half_width * math.sqrt(400 / got["n_needed"]) <= wanted
    assert half_width * math.sqrt(400 / (got["n_needed"] - 1)) > wanted
    assert line(summary, "dropped")["n_needed"] is None, "no share of a mean of 0"


@pytest.mark.parametrize("what", NOTED)
def test_a_note_says_why_a_mean_has_no_interval_or_a_rough_one(what: str) -> None:
    values = NOTED[what]
    found = line(summarise(row_frame({"drain": values}), cell_frame(OUTAGE)), "drain")
    got = found["note"]
    expected = note_of([x for x in values if x is not None])
    assert got == expected
    assert (got is None) == (what == "plain")
    ends = [found[name] for name in ("ci_low", "ci_high")]
    assert (None in ends) == (what not in ROUGH | {"plain"})
    assert [found[f"adjusted_{name}"] for name in ("low", "high")] == [None, None]


def test_sums_of_large_integers_are_exact() -> None:
    x = [2**40 + k for k in (0, 1, 5, 2**39)]
    n, s1, s2 = len(x), sum(x), sum(v * v for v in x)
    assert s2 > 2**63  # a 64-bit sum of squares would wrap around
    found = line(summarise(row_frame({"wait_total": x}), cell_frame(OUTAGE)), "wait_total")
    got = found["mean"], found["sd"]
    expected = float(Fraction(s1, n)), math.sqrt(Fraction(n * s2 - s1 * s1, n * (n - 1)))
    assert got == expected


def test_a_small_spread_on_a_large_number_is_exact() -> None:
    rows = row_frame({"wait_total": [2**40, 2**40 + 1, 2**40 + 2]})
    got = line(summarise(rows, cell_frame(OUTAGE)), "wait_total")["sd"]
    expected = 1.0
    assert got == expected


def test_a_large_constant_has_no_spread() -> None:
    rows = row_frame({"wait_total": [2**40 + 1] * 50})
    found = line(summarise(rows, cell_frame(OUTAGE)), "wait_total")
    got = {name: found[name] for name in ("mean", "min", "median", "p95_high", "max")}
    expected = dict.fromkeys(got, 2.0**40 + 1) | {"p95_high": None}
    assert got == expected
    assert (found["median_low"], found["median_high"]) == (2.0**40 + 1, 2.0**40 + 1)
    assert (found["sd"], found["mcse"]) == (0.0, 0.0)


def test_a_cell_alone_is_summarised_as_among_others() -> None:
    rows, cells = random_rows(3, 50, seed=4), cell_frame(OUTAGE, OUTAGE, OUTAGE)
    got = summarise(rows.filter(pl.col("cell") == 1), cells[1:2])
    expected = summarise(rows, cells).filter(pl.col("cell") == 1)
    assert_frame_equal(got, expected, check_exact=True)


def test_null_replications_are_left_out() -> None:
    rows = row_frame({"drain": [None, 7, 3, None, 5]})
    got = line(summarise(rows, cell_frame(OUTAGE)), "drain")
    assert (got["n"], got["mean"], got["sd"], got["min"], got["max"]) == (3, 5.0, 2.0, 3.0, 7.0)


def test_one_replication_has_estimates_but_no_intervals() -> None:
    rows = row_frame({"requests": [10], "calls": [12]})
    summary = summarise(rows, cell_frame(OUTAGE))
    for metric, expected in {"calls": 12.0, "multiplier": 1.2}.items():
        got = line(summary, metric)
        assert (got["n"], got["mean"], got["median"], got["p95"]) == (
            1,
            expected,
            expected,
            expected,
        )
        assert [got[name] for name in ("sd", "mcse", "ci_low", "ci_high")] == [None] * 4


def test_a_cell_without_rows_has_n_0_and_nulls() -> None:
    summary = summarise(row_frame({"calls": [1, 2]}), cell_frame(OUTAGE, OUTAGE))
    got = summary.filter(pl.col("cell") == 1)
    assert got.height == len(METRICS)
    assert got["n"].to_list() == [0] * len(METRICS)
    further = [name for name in got.columns[3:] if name != "note"]
    assert all(got[name].null_count() == got.height for name in further)
    assert got["note"].to_list() == ["no replication"] * len(METRICS)
    nothing = summarise(random_rows(1, 1, seed=0).clear(), cell_frame(OUTAGE))
    assert nothing["n"].sum() == 0


def test_equal_ratios_have_no_spread() -> None:
    rows = row_frame({"requests": [10] * 700, "calls": [11] * 700})  # 7 * 1.1 is not a double
    got = line(summarise(rows, cell_frame(OUTAGE)), "multiplier")
    assert (got["mean"], got["sd"], got["min"], got["max"]) == (1.1, 0.0, 1.1, 1.1)
    ends = "ratio_of_means", "ratio_of_means_low", "ratio_of_means_high"
    assert [got[name] for name in ends] == [1.1, None, None]


def test_ratio_of_means_is_mean_of_ratios_plus_covariance_term() -> None:
    """Q = M + Cov(C/R, R) / E[R] holds exactly for the empirical distribution."""
    rows, cells = random_rows(1, 1000, seed=5), cell_frame(OUTAGE)
    summary = summarise(rows, cells)
    requests, calls = rows["requests"].to_numpy(), rows["calls"].to_numpy()
    covariance = np.cov(calls / requests, requests, ddof=0)[0, 1]
    found = line(summary, "multiplier")
    got = found["ratio_of_means"]
    expected = np.mean(calls / requests) + covariance / requests.mean()
    # the covariance is numpy's, with the rounding of 1,000 additions
    assert got == pytest.approx(expected, rel=1e-13)
    # the ratios are rounded to 1e-6, so their mean is off by 1e-6 / sqrt(12 * 1000) = 9e-9 or so
    assert found["mean"] == pytest.approx(np.mean(calls / requests), rel=0, abs=5e-8)


# --- published figures ----------------------------------------------------------------------


def test_a_figure_is_placed_at_its_mid_percentile() -> None:
    rows = row_frame({"calls": [1, 2, 2, 3]})
    for value, expected in ((0, 0.0), (1, 12.5), (2, 50.0), (2.5, 75.0), (3, 87.5), (9, 100.0)):
        figures = [Published(0, "calls", value, None), Published(1, "calls", 77.0, None)]
        found = line(summarise(rows, cell_frame(OUTAGE), figures), "calls")
        assert (found["published"], found["published_percentile"]) == (value, expected)


def test_a_tail_is_twice_the_share_at_least_as_far_out() -> None:
    rows = row_frame({"calls": [1, 2, 2, 3, 4, 5, 6, 7]})
    cases = ((0, 2), (1, 4), (2, 8), (3, 9), (4, 9), (6.5, 4), (7, 4), (8, 2))
    for value, expected in cases:
        figures = [Published(0, "calls", value, None)]
        got = line(summarise(rows, cell_frame(OUTAGE), figures), "calls")["published_tail"]
        assert got == expected / 9, "of eight, and the published one itself"
    rows, figures = row_frame({"calls": [1, 2, 2, 3]}), [Published(0, "calls", 2, None)]
    got = line(summarise(rows, cell_frame(OUTAGE), figures), "calls")["published_tail"]
    assert got == 1.0, "three of four lie as far out on either side: no share beyond 1"


def test_without_replications_a_figure_has_no_place() -> None:
    rows, figures = row_frame({"second_peak": [None]}), [Published(0, "second_peak", 3.0, 0)]
    found = line(summarise(rows, cell_frame(OUTAGE), figures), "second_peak")
    names = "published", "published_percentile", "published_tail"
    assert [found[name] for name in names] == [3.0, None, None]


def mid_percentile(x: NDArray[np.float64], figure: float, decimals: int | None) -> float:
    below, up_to = count_below(*np.unique(x, return_counts=True), figure, decimals)
    return 100 * (below + up_to) / (2 * len(x))


def test_a_printed_figure_is_compared_with_rounded_values() -> None:
    x = np.array([2.874, 2.8851, 2.89, 2.8949, 2.8951])
    got = mid_percentile(x, 2.89, 2), mid_percentile(x, 2.89, None)
    expected = 50.0, 50.0
    assert got == expected
    got = mid_percentile(x, 2.9, 1), mid_percentile(x, 2.9, None)
    expected = 50.0, 100.0
    assert got == expected


def test_a_window_rate_of_289_calls_in_100_rounds_is_the_printed_2_89() -> None:
    rows = row_frame({"window_calls": [288, 289, 289, 290]})
    figures = [Published(0, "window_rate", 2.89, 2)]
    got = line(summarise(rows, cell_frame(OUTAGE), figures), "window_rate")["published_percentile"]
    assert got == 50.0


def test_percentiles_equal_those_of_values_rounded_one_by_one() -> None:
    generator = np.random.default_rng(6)
    # thousandths that end in 5 are the hard cases; 0.125 is a true tie, 1.005 is not
    x = np.sort(np.append(generator.integers(0, 3000, 500) / 1000, [0.125, 0.375, 1.005]))
    rounded = [Fraction(to_fixed(value, 2)) for value in x.tolist()]
    for hundredths in range(0, 300, 7):
        figure = Fraction(hundredths, 100)
        n_below = sum(value < figure for value in rounded)
        n_up_to = sum(value <= figure for value in rounded)
        got = mid_percentile(x, hundredths / 100, 2)
        expected = 100 * (n_below + n_up_to) / (2 * len(x))
        assert got == expected


def test_to_fixed_prints_as_javascript_does() -> None:
    # values of Number.prototype.toFixed, node 20
    cases = {(1.005, 2): "1.00", (0.125, 2): "0.13", (2.5, 0): "3", (1.45, 1): "1.4"}
    cases |= {(0.375, 2): "0.38", (1e21, 0): "1" + "0" * 21, (-2.5, 0): "-3", (6.24, 2): "6.24"}
    got = {case: to_fixed(*case) for case in cases}
    assert got == cases


def test_the_joint_p_of_a_run_is_uniform_however_its_figures_depend() -> None:
    """98 figures that are nearly one: 5 of them are not beyond 5 % on average, but all or none.

    400 runs against 1,000: a fresh seed has fewer than 10, or more than 32, in 1 % of cases.
    """
    generator = np.random.default_rng(36)
    figures = [Published(0, f"m{f}", 0.0, 1) for f in range(20)]

    def runs(n: int) -> NDArray[np.float64]:
        common = generator.normal(0, 10, n)
        return np.round(common + generator.normal(0, 2, (20, n)), 1)

    spread = np.unique(runs(20_000)[0], return_counts=True)
    others, n_small = runs(1000), 0
    for run in runs(400).T:
        placed = [Published(0, f.metric, x, 1) for f, x in zip(figures, run.tolist(), strict=True)]
        joint = joint_tails(placed, list(others), [spread] * 20)
        n_small += joint.min() <= 0.05
    assert 10 <= n_small <= 32
