"""Formulas of intervals against scipy, exact hand calculation and their edges."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from mc.model.digits import MIN_REPLICATIONS, share_text, unseen
from mc.statistics.intervals import (
    MIN_EITHER,
    Ratio,
    bonferroni_level,
    half_width_at_any_time,
    mean_has_interval,
    mean_notes,
    quantile_ranks,
    ratio_of_means,
    relative_change,
    replications_needed,
    share_at_any_time,
    share_interval,
    t_half_width,
)

# two ways to the same formula in doubles: a few roundings apart
ROUNDING = 1e-12


def test_formulas_need_no_half_second_for_scipy_stats() -> None:
    code = (
        "import sys, mc.statistics.best, mc.statistics.control; print('scipy.stats' in sys.modules)"
    )
    got = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert got.stdout == "False\n"


# --- the mean -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.9, 0.95, 1 - 0.05 / 6000])
def test_half_widths_are_those_of_student(level: float) -> None:
    n, mcse = np.array([2, 3, 30, 10_000]), np.array([1.0, 0.5, 2.0, 0.1])
    got = t_half_width(n, mcse, level)
    expected = stats.t.isf((1 - level) / 2, n - 1) * mcse
    assert got == pytest.approx(expected, rel=1e-9)  # two algorithms for the quantile


def test_half_widths_keep_the_shape_and_are_undefined_without_a_spread() -> None:
    got = t_half_width(np.array([[0, 1], [2, 3]]), np.array([[math.nan, math.nan], [0.0, 1.0]]))
    expected = [[math.nan, math.nan], [0.0, stats.t.isf(0.025, 2)]]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert t_half_width(5, 1.0) == pytest.approx(stats.t.isf(0.025, 4), rel=1e-9)


def test_a_note_says_why_a_mean_has_no_interval() -> None:
    n = np.array([0, 1, 50, 199, 200, 1000, 1000, 1000, 1000, 2000, 50])
    n_nonzero = np.array([0, 1, 50, 199, 200, 7, 0, 1000, 1000, 310, 50])
    skewness = np.array([math.nan, math.nan, 0, 0, 0, 12.0, math.nan, math.nan, -7, 0.5, 2])
    arguments = n, n_nonzero, skewness
    got = list(zip(mean_notes(*arguments), mean_has_interval(*arguments), strict=True))
    expected = [
        ("no replication", False),
        ("one replication", False),
        ("fewer than 200 replications", True),
        ("fewer than 200 replications", True),
        (None, True),
        ("other than 0 in 7 of 1000: too few for an interval", False),
        ("0 in all 1,000; another value comes in at most 0.37 % of runs (95 %)", False),
        ("the same in all 1,000; another value comes in at most 0.37 % of runs (95 %)", False),
        ("skewness -7: needs n >= 1225", False),
        (None, True),
        ("skewness 2: needs n >= 100", False),
    ]
    assert got == expected


@pytest.mark.parametrize("n", [1, 7, 200, 10_000, 10**7])
def test_what_was_never_seen_is_bounded_by_the_exact_interval_of_none(n: int) -> None:
    got = unseen(n)
    expected = float(share_interval([0], [n])[1][0])
    assert got == pytest.approx(expected, rel=1e-9)


def test_a_bound_is_printed_no_smaller_than_it_is() -> None:
    got = [share_text(share) for share in (0.00036882, 0.037, 0.25, 1.0, 3.7e-7)]
    expected = ["0.037 %", "3.7 %", "25 %", "100 %", "0.000037 %"]
    assert got == expected


def test_a_metric_that_is_seldom_zero_needs_no_hundreds_of_values() -> None:
    got = mean_notes([240, 240], [181, 180], [0.0, 0.0]).tolist()
    expected = [None, "other than 0 in 180 of 240: too few for an interval"]
    assert got == expected


def test_replications_grow_with_the_square_of_the_precision() -> None:
    got = replications_needed([1000, 1000, 1000, 10, 10], [3.0, 1.0, 0.0, math.nan, 1.0], 1.0)
    expected = [9000, 1000, 2, math.nan, 10]
    np.testing.assert_array_equal(got, expected)


def test_no_number_of_replications_reaches_an_error_of_nothing() -> None:
    got = replications_needed([100, 100, 100], [1.0, 1.0, 1e300], [0.0, -1.0, 1e-300])
    expected = [math.nan] * 3
    np.testing.assert_array_equal(got, expected)


# --- shares and quantiles -------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 40, 1000, 10**7])
def test_shares_have_the_interval_of_wilson_or_where_few_hold_the_exact_one(n: int) -> None:
    counts = sorted({k for k in (0, 1, 5, 19, 20, n // 2, n - 20, n - 19, n - 1, n) if 0 <= k <= n})
    low, high = share_interval(counts, n)
    for k, *got in zip(counts, low, high, strict=True):
        method = "exact" if min(k, n - k) < MIN_EITHER else "wilson"
        expected = stats.binomtest(k, n).proportion_ci(0.95, method)
        # scipy's exact interval is the root of an equation, found to 1e-12
        assert got == pytest.approx(tuple(expected), rel=1e-8, abs=1e-11)


def test_no_event_bounds_the_share_and_no_replication_does_not() -> None:
    low, high = share_interval([0, 1000, 0], [1000, 1000, 0])
    bound = 1 - 0.025 ** (1 / 1000)
    np.testing.assert_allclose(low, [0, 1 - bound, math.nan], rtol=1e-9)
    np.testing.assert_allclose(high, [bound, 1, math.nan], rtol=1e-9)


@pytest.mark.parametrize("n", [30, 100, 1000])
def test_the_interval_of_a_share_covers_it_whatever_the_share(n: int) -> None:
    """The coverage is a sum over the binomial distribution, hence exact."""
    k = np.arange(n + 1)
    low, high = share_interval(k, n)
    shares = np.exp(np.linspace(math.log(0.01 / n), math.log(0.5), 200))
    got = [
        stats.binom.pmf(k[(low <= p) & (p <= high)], n, p).sum() for p in (*shares, *(1 - shares))
    ]
    assert min(got) >= 0.94


@pytest.mark.parametrize("p", [Fraction(1, 20), Fraction(1, 4), Fraction(1, 2), Fraction(19, 20)])
@pytest.mark.parametrize("n", [1, 5, 6, 30, 72, 73, 100, 1000, 12_345])
def test_ranks_are_those_of_scipys_test_of_quantiles(n: int, p: Fraction) -> None:
    values = np.arange(1, n + 1)
    interval = stats.quantile_test(values, p=float(p)).confidence_interval(0.95)
    got = quantile_ranks(n, p)
    expected = None if np.isnan(interval).any() else tuple(int(end) for end in interval)
    assert got == expected


def test_ranks_keep_their_promise_exactly() -> None:
    """In whole numbers: neither tail beyond the ranks has more than 2.5 %."""
    for n in (20, 57):
        ranks = quantile_ranks(n, Fraction(1, 4))
        assert ranks is not None
        weights = [math.comb(n, k) * 3 ** (n - k) for k in range(n + 1)]
        tails = sum(weights[: ranks[0]]), sum(weights[ranks[1] :])
        assert all(40 * tail <= 4**n for tail in tails)


# --- the ratio of two means -----------------------------------------------------------------


def sums(x: list[int], y: list[int]) -> tuple[int, int, int, int, int, int]:
    """What `ratio_of_means` asks for."""
    products = [sum(a * b for a, b in zip(p, q, strict=True)) for p, q in ((x, x), (x, y), (y, y))]
    return len(x), sum(x), sum(y), *products  # type: ignore[return-value]


TIMES = 50  # the smallest sample would have no interval
X, Y = TIMES * [11, 12, 9, 10, 14, 10], TIMES * [10, 11, 9, 10, 12, 8]


def test_a_ratio_of_means_has_the_error_of_its_residuals() -> None:
    got = ratio_of_means(*sums(X, Y))
    n, estimate = len(X), Fraction(66, 60)
    residuals = [x - estimate * y for x, y in zip(X, Y, strict=True)]
    variance = sum(e * e for e in residuals) / (n * (n - 1)) / Fraction(60, 6) ** 2
    mcse = math.sqrt(variance)
    half = stats.t.isf(0.025, n - 1) * mcse
    expected = (1.1, mcse, 1.1 - half, 1.1 + half)
    assert got == pytest.approx(expected, rel=ROUNDING)
    assert got.estimate == 66 / 60


def test_a_relative_change_is_the_ratio_less_one_without_its_rounding() -> None:
    ratio, change = ratio_of_means(*sums(X, Y)), relative_change(*sums(X, Y))
    assert change.estimate == 6 / 60  # 66 / 60 - 1 is another double
    assert change.mcse == ratio.mcse
    assert change.high == pytest.approx(ratio.high - 1, rel=ROUNDING)


def test_a_change_of_the_unit_scales_a_ratio() -> None:
    plain, scaled = ratio_of_means(*sums(X, Y)), ratio_of_means(*sums(X, Y), scale=Fraction(5, 2))
    assert scaled == pytest.approx([2.5 * value for value in plain], rel=ROUNDING)
    assert relative_change(*sums(X, Y), scale=2).estimate == pytest.approx(1.2, rel=ROUNDING)


def test_huge_numbers_are_taken_at_their_exact_value() -> None:
    big = 10**200
    got = ratio_of_means(*sums([big * x for x in X], [big * y for y in Y]))
    expected = ratio_of_means(*sums(X, Y))
    assert got == expected


def test_a_ratio_without_a_denominator_or_a_spread_is_undefined() -> None:
    got = [
        ratio_of_means(0, 0, 0, 0, 0, 0),
        ratio_of_means(*sums([1, 2], [0, 0])),
        ratio_of_means(*sums([3], [2])),
        relative_change(*sums([3], [2])),
    ]
    np.testing.assert_array_equal(got, [Ratio(), Ratio(), Ratio(1.5), Ratio(0.5)])


def test_pairs_in_proportion_have_a_ratio_without_error() -> None:
    got = ratio_of_means(*sums(TIMES * [20, 22, 18, 20], TIMES * [10, 11, 9, 10]))
    expected = Ratio(2.0, 0.0, 2.0, 2.0)
    assert got == expected


def test_a_ratio_of_few_pairs_has_an_error_but_no_interval() -> None:
    n = MIN_REPLICATIONS
    few, enough = ratio_of_means(*sums(X[: n - 1], Y[: n - 1])), ratio_of_means(*sums(X[:n], Y[:n]))
    assert few.mcse > 0
    got = [math.isnan(few.low), math.isnan(few.high), math.isnan(enough.low)]
    expected = [True, True, False]
    assert got == expected


def test_a_ratio_to_a_mean_that_may_be_zero_has_no_interval() -> None:
    """90 of 1,000 are known to 10.06 %, 91 to 9.99 %."""
    for n_ones, expected in ((90, True), (91, False)):
        pairs = sums([1] * 1000, [1] * n_ones + [0] * (1000 - n_ones))
        ratio = ratio_of_means(*pairs)
        assert ratio.estimate == 1000 / n_ones
        assert ratio.mcse > 0
        got = math.isnan(ratio.low), math.isnan(relative_change(*pairs).high)
        assert got == (expected, expected)


# --- at every look --------------------------------------------------------------------------


def test_the_confidence_sequence_of_a_share_is_that_of_the_uniform_mixture() -> None:
    """Ends where p^k (1 - p)^(n - k) is 1 / 20 of its mean over all p, but 0 and 1 themselves."""
    for k, n, printed in (
        (4146, 10_000, (0.3958, 0.4336)),
        (0, 10_000, (0.0, 0.00122)),
        (1000, 1000, (0.9901, 1.0)),
    ):
        low, high = (float(end) for end in share_at_any_time(k, n))
        assert (low, high) == pytest.approx(printed, abs=5e-5)
        for end in {low, high} - {0.0, 1.0}:
            likelihood = k * math.log(end) + (n - k) * math.log1p(-end)
            mean = special.betaln(k + 1, n - k + 1)
            assert likelihood - mean == pytest.approx(math.log(0.05), abs=1e-8)
    lower_ends = share_at_any_time([0, 0], [0, 1])[0]
    np.testing.assert_array_equal(lower_ends, [math.nan, 0.0])


def test_the_confidence_sequence_of_a_mean_is_half_again_as_wide_as_student() -> None:
    n = np.array([1000, 10_000])
    got = half_width_at_any_time(n, 1.0) / t_half_width(n, 1.0)
    assert got == pytest.approx([1.547, 1.654], abs=1e-3)  # by the formula, by hand
    assert np.isnan(half_width_at_any_time([0, 1], 1.0)).all()


@pytest.mark.parametrize("truth", [0.95, 0.05])
def test_growing_a_run_until_a_verdict_comes_makes_no_more_false_ones(truth: float) -> None:
    """2,000 runs of up to 64,000 replications, seven looks: 21 % of them would be wrong once.

    The sequence promises 5 %; at the thresholds themselves every verdict counts as wrong. With
    exactly 5 % a fresh seed would exceed 6 % in 2 % of cases; what it does is below 2 %.
    """
    generator = np.random.default_rng(7)
    stages = 1000 * 2 ** np.arange(7)
    steps = np.diff(stages, prepend=0)
    n_holds = np.cumsum(generator.binomial(steps, truth, (2000, 7)), axis=1)
    low, high = share_at_any_time(n_holds, np.broadcast_to(stages, n_holds.shape))
    wrong = np.mean(np.any((low > truth) | (high < truth), axis=1))
    assert wrong <= 0.05
    fixed = share_interval(n_holds, np.broadcast_to(stages, n_holds.shape))
    assert np.mean(np.any((fixed[0] > truth) | (fixed[1] < truth), axis=1)) > 0.15


def test_looking_at_a_mean_again_and_again_makes_no_more_false_claims() -> None:
    """The same for a mean of skewed values (2,000 runs, looks from 1,000 on)."""
    generator = np.random.default_rng(8)
    stages = 1000 * 2 ** np.arange(5)
    wrong = np.zeros(2000, np.bool_)
    for r in range(0, 2000, 100):
        x = generator.exponential(1.0, (100, stages[-1]))
        for n in stages:
            mcse = x[:, :n].std(axis=1, ddof=1) / math.sqrt(n)
            off = np.abs(x[:, :n].mean(axis=1) - 1.0)
            wrong[r : r + 100] |= off > half_width_at_any_time(n, mcse)
    assert wrong.mean() <= 0.05


# --- several at once ------------------------------------------------------------------------


def test_intervals_that_hold_together_share_the_error() -> None:
    got = [bonferroni_level(0.95, m) for m in (0, 1, 10)]
    expected = [0.95, 0.95, 0.995]
    assert got == pytest.approx(expected, rel=ROUNDING)
