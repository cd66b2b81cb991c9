"""Control variates against least squares, closed forms and their edges."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from mc.model.digits import MIN_REPLICATIONS
from mc.statistics.control import (
    MIN_RESIDUAL,
    SUMS,
    Adjusted,
    adjusted_mean,
    adjusted_means,
)

Sums = dict[str, Any]
MU1, MU2 = Fraction(3888.8), Fraction(97.22)


def sums_of(y: NDArray[Any], z1: NDArray[np.int64], z2: NDArray[np.int64]) -> Sums:
    """The sums that `adjusted_mean` asks for, exact for whole numbers."""
    columns = {"y": y.tolist(), "z1": z1.tolist(), "z2": z2.tolist()}
    found: Sums = {"n": len(y)} | {name: sum(column) for name, column in columns.items()}
    for name in SUMS[4:]:
        one, other = ("y", "y") if name == "yy" else (name[:-2], name[-2:])
        found[name] = sum(a * b for a, b in zip(columns[one], columns[other], strict=True))
    return found


def traffic(n: int, seed: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Requests outside and inside a window, as the model draws them."""
    generator = np.random.default_rng(seed)
    inside = generator.poisson(float(MU2), n)
    return inside + generator.poisson(float(MU1 - MU2), n), inside


def least_squares(y: NDArray[Any], controls: list[NDArray[Any]]) -> tuple[float, float, float]:
    """Intercept, its standard error and half-width by numpy's least squares."""
    design = np.column_stack([np.ones(len(y)), *controls])
    coefficients, residual, *_ = np.linalg.lstsq(design, y, rcond=None)
    df = len(y) - design.shape[1]
    variance = residual[0] / df * np.linalg.inv(design.T @ design)[0, 0]
    mcse = math.sqrt(variance)
    return coefficients[0], mcse, stats.t.isf(0.025, df) * mcse


def test_the_adjusted_mean_is_the_intercept_at_the_known_expectations() -> None:
    z1, z2 = traffic(500)
    y = z1 + 3 * z2 + np.random.default_rng(2).poisson(20, 500)
    got = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2)
    mean, mcse, half = least_squares(y, [z1 - float(MU1), z2 - float(MU2)])
    reduction = (y.std(ddof=1) / math.sqrt(500) / mcse) ** 2
    expected = (mean, mcse, mean - half, mean + half, reduction)
    assert got == pytest.approx(expected, rel=1e-9)  # least squares in doubles
    assert got.reduction > 100


def test_a_control_that_never_varies_is_left_out() -> None:
    z1, _ = traffic(300)
    y = 2 * z1 + np.random.default_rng(3).poisson(50, 300)
    none = adjusted_mean(**sums_of(y, z1, 0 * z1), mu1=MU1, mu2=Fraction(0))
    mean, mcse, half = least_squares(y, [z1 - float(MU1)])
    assert none[:4] == pytest.approx((mean, mcse, mean - half, mean + half), rel=1e-9)


def test_a_window_of_the_whole_run_is_the_same_control_once_more() -> None:
    z1, _ = traffic(300)
    y = 2 * z1 + np.random.default_rng(3).poisson(50, 300)
    got = adjusted_mean(**sums_of(y, z1, z1), mu1=MU1, mu2=MU1)
    expected = adjusted_mean(**sums_of(y, z1, 0 * z1), mu1=MU1, mu2=Fraction(0))
    assert got == expected


def test_a_divisor_scales_all_but_the_reduction() -> None:
    z1, z2 = traffic(220)
    y = 5 * z2 + np.random.default_rng(4).poisson(9, 220)
    whole = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2)
    got = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2, divisor=97.22)
    expected = [value / 97.22 for value in whole[:4]]
    assert got[:4] == pytest.approx(expected, rel=1e-12)
    assert got.reduction == whole.reduction


def test_it_is_used_only_where_it_helps() -> None:
    z1, z2 = traffic(1000)
    noise = np.random.default_rng(6).poisson(50, 1000)
    got = [
        adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2).reduction
        for y in (noise, z1, 0 * z1, z1 + (np.arange(1000) < MIN_RESIDUAL / 2))
    ]
    expected = [math.nan] * 4
    np.testing.assert_array_equal(got, expected)


def test_it_is_used_from_a_reduction_of_a_tenth_on() -> None:
    z1, z2 = traffic(1000)
    noise = np.random.default_rng(9).poisson(50, 1000)
    reductions = []
    for k in range(22, 34):
        y = z1 + k * noise
        _, mcse, _ = least_squares(y, [z1 - float(MU1), z2 - float(MU2)])
        reductions.append((y.std(ddof=1) / math.sqrt(1000) / mcse) ** 2)
        got = not math.isnan(adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2).mean)
        assert got == (reductions[-1] >= 1.1)
    assert min(reductions) < 1.09
    assert any(1.1 < reduction < 1.11 for reduction in reductions)
    assert any(1.09 < reduction < 1.1 for reduction in reductions)


def test_it_needs_replications_and_traffic_that_varies() -> None:
    z1, z2 = traffic(MIN_REPLICATIONS)
    y = z1 + np.random.default_rng(7).poisson(50, len(z1))
    enough = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2)
    few = adjusted_mean(**sums_of(y[1:], z1[1:], z2[1:]), mu1=MU1, mu2=MU2)
    still = adjusted_mean(**sums_of(y, 0 * z1 + 5, 0 * z2), mu1=MU1, mu2=MU2)
    got = [math.isnan(found.mean) for found in (enough, few, still)]
    expected = [False, True, True]
    assert got == expected


def test_a_rare_residual_waits_for_enough_events() -> None:
    """Drops that follow the traffic one to one but for k of 10,000: k (1 - k / 10,000) squares."""
    z1, z2 = traffic(10_000)
    for n_events, used in ((203, False), (206, True)):  # 198.9 and 201.8 squares, 200 are needed
        y = z1 + (np.arange(10_000) < n_events)
        found = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2)
        got = not math.isnan(found.mean)
        assert got == used


def test_many_cells_are_adjusted_as_each_alone() -> None:
    z1, z2 = traffic(250)
    ys = [k * z1 + np.random.default_rng(k).poisson(30, 250) for k in range(1, 4)]
    each = [sums_of(y, z1, z2) for y in ys]
    together = {name: [one[name] for one in each] for name in SUMS}
    got = adjusted_means(together, [MU1] * 3, [MU2] * 3, [1.0] * 3)
    for name in Adjusted._fields:
        expected = [getattr(adjusted_mean(**one, mu1=MU1, mu2=MU2), name) for one in each]
        assert got[name].tolist() == expected
    nothing = adjusted_means({name: [] for name in SUMS}, [], [], [])
    assert [len(column) for column in nothing.values()] == [0] * 5


def test_the_interval_covers_the_mean() -> None:
    """In 95 % of 1,000 experiments; a fresh seed would leave the bounds once in 3,000."""
    generator = np.random.default_rng(8)
    covered = 0
    for seed in range(1000):
        z1, z2 = traffic(MIN_REPLICATIONS, seed)
        y = z1 + 3 * z2 + generator.poisson(20, len(z1))
        found = adjusted_mean(**sums_of(y, z1, z2), mu1=MU1, mu2=MU2)
        covered += found.low <= float(MU1 + 3 * MU2) + 20 <= found.high
    assert 925 <= covered <= 973
