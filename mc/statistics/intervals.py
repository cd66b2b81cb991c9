"""Intervals and tests from a few moments: pure formulas, for one number or for many at once.

Arguments are numbers or arrays of K entries each; NaN stands for what is undefined. Every
interval is two-sided at `level`, each taken alone unless its name says otherwise. Where sums are
given as whole numbers all arithmetic is exact up to the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

LEVEL: Final = 0.95
"""Confidence level of an interval, unless another is asked for."""

Floats = NDArray[np.float64]
Exact = int | Fraction | float
"""A sum: whole, rational, or a double taken at its exact value."""


# --- the mean -------------------------------------------------------------------------------


def t_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Half the length of a two-sided Student interval in standard errors; NaN for df < 1.

    Parameters
    ----------
    df : array_like of int
        Degrees of freedom; few different ones is fast.
    level : float
        Between 0 and 1.

    Returns
    -------
    ndarray of float64
        In the shape of `df`.
    """
    df = np.asarray(df, np.float64)
    different, places = np.unique(df, return_inverse=True)
    # its complement: 1 + level loses the small levels of many simultaneous intervals
    tail = -special.stdtrit(np.maximum(different, 1), (1 - level) / 2)
    quantiles: Floats = np.where(different >= 1, tail, math.nan)
    # older numpy flattens the places
    found: Floats = quantiles[places.reshape(df.shape)]
    return found


@lru_cache(maxsize=4096)
def t_quantile_of(df: int, level: float = LEVEL) -> float:
    """`t_quantile` of one number, remembered."""
    return float(t_quantile(df, level))


def t_half_width(n: ArrayLike, mcse: ArrayLike, level: float = LEVEL) -> Floats:
    """Half the length of Student's interval of a mean; NaN for n < 2.

    Parameters
    ----------
    n : array_like of int
        Replications.
    mcse : array_like of float
        Standard error of the mean, sd / sqrt(n), in the unit of the mean.
    level : float
        Between 0 and 1.

    Returns
    -------
    ndarray of float64
        In the unit of the mean.

    Notes
    -----
    Student's t with n - 1 degrees of freedom: Law, *Simulation Modeling and Analysis*, section
    4.5. `mean_notes` says where it does not cover what it promises.
    """
    half_width: Floats = t_quantile(np.asarray(n) - 1, level) * np.asarray(mcse, np.float64)
    return half_width


MIN_REPLICATIONS: Final = 200
"""With fewer, neither skewness nor spread can be judged from the sample."""

MIN_NONZERO: Final = 300
"""Non-zero values that a metric needs which is zero in at least a quarter of the replications."""

SKEWNESS_FACTOR: Final = 25.0
"""An interval of the mean needs n >= this * skewness^2."""


def mean_given(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> NDArray[np.bool_]:
    """Say where Student's interval of a mean is to be given, with a note or without.

    Parameters and sources: `mean_notes`. It is not given with one replication, with too few
    values that are not zero, with too skewed ones, and where few replications gave the same: of
    200 equal values it is likely that less than 2 % of all others differ, of 2 nothing is.
    """
    n, n_nonzero, skewness = (np.asarray(values) for values in (n, n_nonzero, skewness))
    equal_by_luck = np.isnan(skewness) & (n < MIN_REPLICATIONS)
    given: NDArray[np.bool_] = (
        (n > 1)
        & ~_few_nonzero(n, n_nonzero)
        & ~(n < SKEWNESS_FACTOR * np.square(skewness))
        & ~equal_by_luck
    )
    return given


def mean_notes(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> NDArray[np.object_]:
    """Say where Student's interval of a mean is not to be trusted, and why.

    Parameters
    ----------
    n : array_like of int, shape (K,)
        Replications.
    n_nonzero : array_like of int, shape (K,)
        Those in which the metric is not 0.
    skewness : array_like of float, shape (K,)
        m3 / m2^(3/2) of the sample; NaN where all values are equal.

    Returns
    -------
    ndarray of object, shape (K,)
        A short text, or None where the interval covers what it promises. With few replications,
        and where all values are equal, the interval may still be given, beside the note:
        `mean_given`.

    Notes
    -----
    n >= 25 skewness^2 is the rule of Cochran, *Sampling Techniques*, section 2.15. A stricter
    factor does harm: samples that happened to miss the tail look less skewed, and of the samples
    that pass these are then the larger part. The bounds on n and on values that are not zero were
    chosen so that 94 to 96 % of the intervals without a note cover, for every metric of half of
    the lesson's cells.
    """
    n, n_nonzero, skewness = np.broadcast_arrays(
        np.atleast_1d(n), np.atleast_1d(n_nonzero), np.atleast_1d(np.asarray(skewness, np.float64))
    )
    needed = np.ceil(SKEWNESS_FACTOR * np.square(skewness))
    notes, trusted = np.full(n.shape, None, object), np.ones(n.shape, np.bool_)
    for holds, note in (
        (n == 0, "no replication"),
        (n == 1, "one replication"),
        (_few_nonzero(n, n_nonzero), "{n_nonzero} of {n} values not zero"),
        (np.isnan(skewness), "all values equal"),
        (n < needed, "skewness {skewness:.2g}: needs n >= {needed:.0f}"),
        (n < MIN_REPLICATIONS, f"fewer than {MIN_REPLICATIONS} replications"),
    ):
        if "{" not in note:
            notes[holds & trusted] = note
            trusted &= ~holds
            continue
        for place in zip(*np.nonzero(holds & trusted), strict=True):
            notes[place] = note.format(
                n=n[place],
                n_nonzero=n_nonzero[place],
                skewness=skewness[place],
                needed=needed[place],
            )
        trusted &= ~holds
    return notes


def _few_nonzero(n: NDArray[Any], n_nonzero: NDArray[Any]) -> NDArray[np.bool_]:
    """Zero in at least a quarter of the replications, and not often enough anything else."""
    few: NDArray[np.bool_] = (4 * n_nonzero <= 3 * n) & (n_nonzero < MIN_NONZERO)
    return few


def replications_needed(n: ArrayLike, half_width: ArrayLike, wanted: ArrayLike) -> Floats:
    """Replications after which a half-width is likely to have shrunk to the wanted one.

    Parameters
    ----------
    n : array_like of int
        Replications so far.
    half_width : array_like of float
        What they gave.
    wanted : array_like of float
        The one to reach, in the same unit.

    Returns
    -------
    ndarray of float64
        Whole numbers, at least 2; NaN where there is no half-width, nothing positive is wanted,
        or no 64-bit number is large enough.

    Notes
    -----
    Half-widths shrink with sqrt(n): Koehler, Brown and Haneuse (2009), section 3.
    """
    half_width, wanted = np.asarray(half_width, float), np.asarray(wanted, float)
    with np.errstate(over="ignore"):
        shrink = np.divide(
            half_width, wanted, out=np.full(np.broadcast(half_width, wanted).shape, math.nan),
            where=wanted > 0,
        )  # fmt: skip
        needed = np.maximum(np.ceil(np.asarray(n, float) * np.square(shrink)), 2.0)
    return np.where(needed < 2.0**63, needed, math.nan)


# --- the standard deviation -----------------------------------------------------------------

MIN_REPLICATIONS_SD: Final = 1000
"""With fewer the kurtosis of a sample says too little of its tails."""

KURTOSIS_FACTOR: Final = 25.0
"""An interval of the standard deviation needs n >= this * kurtosis."""


def sd_interval(
    n: ArrayLike, sd: ArrayLike, m4: ArrayLike, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Interval of a standard deviation that allows for the tails of the distribution.

    Parameters
    ----------
    n : array_like of int
        Replications.
    sd : array_like of float
        Sample standard deviation, with n - 1.
    m4 : array_like of float
        Mean of the fourth powers of the deviations from the mean.
    level : float
        Between 0 and 1.

    Returns
    -------
    low, high : ndarray of float64
        NaN where the sample is too small, at all or for its kurtosis, or all values are equal.

    Notes
    -----
    Delta method on the logarithm with the correction for small samples of Bonett (2006),
    equation 3, and the kurtosis freed of most of its bias (G2 + 3 of Joanes and Gill 1998). The
    interval from the chi-squared distribution is right for normal values alone: of a count with
    skewness 3 it covers half of what it promises.
    """
    n, sd, m4 = (np.asarray(values, np.float64) for values in (n, sd, m4))
    given = (n >= MIN_REPLICATIONS_SD) & (sd > 0)
    some, spread = np.where(given, n, 1e9), np.where(given, sd, 1.0)
    kurtosis = np.where(given, m4, 1.0) / (spread**4 * np.square(1 - 1 / some))
    given &= n >= KURTOSIS_FACTOR * kurtosis
    excess = (kurtosis - 3 * (some - 1) / (some + 1)) * (some**2 - 1) / ((some - 2) * (some - 3))
    quantile = t_quantile(some - 1, level)
    correction = some / (some - quantile)
    variance = np.maximum(excess + 3 - (some - 3) / some, 0.0) / (some - 1)
    exponent = quantile * correction * np.sqrt(variance) / 2
    centre = np.sqrt(correction) * spread
    return (
        np.where(given, centre * np.exp(-exponent), math.nan),
        np.where(given, centre * np.exp(exponent), math.nan),
    )


# --- shares and quantiles -------------------------------------------------------------------


MIN_EITHER: Final = 20
"""Wilson's interval needs as many replications in which it holds, and in which it does not."""


def share_interval(n_holds: ArrayLike, n: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Interval of a share: Wilson's, but the exact one where few, or all but few, hold.

    Parameters
    ----------
    n_holds, n : array_like of int
        0 <= n_holds <= n.
    level : float
        Between 0 and 1.

    Returns
    -------
    low, high : ndarray of float64
        NaN for n = 0.

    Notes
    -----
    Wilson (1927) covers `level` on the average over shares, but 84 % where 0.17 are expected to
    hold. With fewer than `MIN_EITHER` that hold, or that do not, the two-sided exact interval of
    Clopper and Pearson (1934) is given instead: then 95 % means at least 94 %, at any n and
    share. None of n: [0, 1 - 0.025^(1/n)], about 3.7 / n.
    """
    k, n = np.broadcast_arrays(np.asarray(n_holds, float), np.asarray(n, float))
    some = np.maximum(n, 1.0)
    tail = (1 - level) / 2
    square = special.ndtri(tail) ** 2
    centre = (k + square / 2) / (some + square)
    half = np.sqrt(square * (k * (some - k) / some + square / 4)) / (some + square)
    few = np.minimum(k, n - k) < MIN_EITHER
    low, high = np.where(few, 0.0, centre - half), np.where(few, 1.0, centre + half)
    some_hold, some_fail = few & (k > 0), few & (k < n)
    low[some_hold] = special.betaincinv(k[some_hold], (n - k + 1)[some_hold], tail)
    high[some_fail] = special.betainccinv((k + 1)[some_fail], (n - k)[some_fail], tail)
    return np.where(n > 0, low, math.nan), np.where(n > 0, high, math.nan)


@lru_cache(maxsize=65536)
def quantile_ranks(n: int, p: Fraction, level: float = LEVEL) -> tuple[int, int] | None:
    """Ranks of the two order statistics that enclose a quantile.

    Parameters
    ----------
    n : int
        Replications.
    p : Fraction
        Which quantile, between 0 and 1.
    level : float
        Between 0 and 1.

    Returns
    -------
    (int, int) or None
        From 1 on: the interval is [x_(low), x_(high)], ends included. None where n is too small
        for both ends.

    Notes
    -----
    At least `level` is covered whatever the distribution, and more where values repeat: Conover,
    *Practical Nonparametric Statistics*, section 3.2.
    """
    tail = (1 - level) / 2
    low = _binomial_quantile(tail, n, float(p))
    high = _binomial_quantile(1 - tail, n, float(p)) + 1
    return (low, high) if low >= 1 and high <= n else None


def _binomial_quantile(q: float, n: int, p: float) -> int:
    """Smallest k for which at most k of n hold with probability q or more."""
    below, found = -1, n  # P(X <= below) < q <= P(X <= found)
    while found - below > 1:
        middle = (below + found) // 2
        if special.bdtr(middle, n, p) >= q:
            found = middle
        else:
            below = middle
    return found


# --- the ratio of two means -----------------------------------------------------------------


class Ratio(NamedTuple):
    """An estimate with its Monte Carlo standard error and interval; NaN where undefined."""

    estimate: float = math.nan
    mcse: float = math.nan
    low: float = math.nan
    high: float = math.nan


MAX_DENOMINATOR_ERROR: Final = 0.1
"""Largest relative standard error of the denominator with which a ratio has an interval."""


def ratio_of_means(
    n: int,
    sx: Exact,
    sy: Exact,
    sxx: Exact,
    sxy: Exact,
    syy: Exact,
    scale: Exact = 1,
    level: float = LEVEL,
) -> Ratio:
    """Estimate E[x] / E[y] from n pairs: not the mean of the ratios x / y.

    Parameters
    ----------
    n : int
        Pairs.
    sx, sy, sxx, sxy, syy : int, Fraction or float
        Sums over the pairs of x, y, x^2, x y, y^2.
    scale : int, Fraction or float
        By which the ratio is multiplied: the divisor of y over the divisor of x.
    level : float
        Between 0 and 1.

    Returns
    -------
    Ratio
        All NaN without pairs or if y adds up to 0; no error from one pair. No interval from fewer
        pairs than `MIN_REPLICATIONS`, or while the denominator is known too badly.

    Notes
    -----
    Delta method with residuals x - (estimate) y and n - 1 degrees of freedom: Cochran, *Sampling
    Techniques*, section 6.3. Exact until each result is rounded.
    """
    sx, sy, sxx, sxy, syy, scale = (_exact(v) for v in (sx, sy, sxx, sxy, syy, scale))
    if n < 1 or sy == 0:
        return Ratio()
    estimate = _quotient(scale * sx, sy)
    if n < 2:
        return Ratio(estimate)
    # doubles may round the sums to a residual below 0
    residual = max(sxx * sy * sy - 2 * sx * sy * sxy + sx * sx * syy, 0)
    mcse = math.sqrt(_quotient(scale * scale * n * residual, (n - 1) * sy**4))
    if (
        n < MIN_REPLICATIONS
        or n * syy - sy * sy > (n - 1) * sy * sy * Fraction(MAX_DENOMINATOR_ERROR) ** 2
    ):
        return Ratio(estimate, mcse)
    half_width = t_quantile_of(n - 1, level) * mcse
    return Ratio(estimate, mcse, estimate - half_width, estimate + half_width)


def relative_change(
    n: int,
    sx: Exact,
    sy: Exact,
    sxx: Exact,
    sxy: Exact,
    syy: Exact,
    scale: Exact = 1,
    level: float = LEVEL,
) -> Ratio:
    """Estimate E[x] / E[y] - 1; parameters and conditions of `ratio_of_means`.

    The sums are those of pairs, so that what x and y have in common cancels. Where the interval
    of the mean of x - y has a note, this one deserves it, too.
    """
    found = ratio_of_means(n, sx, sy, sxx, sxy, syy, scale, level)
    if math.isnan(found.estimate):
        return found
    # exact again: 1.0001 - 1 would keep four digits less
    sx, sy, scale = _exact(sx), _exact(sy), _exact(scale)
    estimate = _quotient(scale * sx - sy, sy)
    half_width = t_quantile_of(n - 1, level) * found.mcse
    if math.isnan(found.low):
        half_width = math.nan
    return Ratio(estimate, found.mcse, estimate - half_width, estimate + half_width)


def ratios(
    sums: NDArray[np.object_],
    scales: Sequence[Exact],
    given: NDArray[np.bool_],
    *,
    change: bool = False,
) -> Floats:
    """`ratio_of_means`, or with `change` `relative_change`, of K samples.

    Parameters
    ----------
    sums : ndarray of object, shape (K, 6)
        Whole numbers: the first six parameters of `ratio_of_means`.
    scales : sequence of int, Fraction or float, of length K
        The seventh.
    given : ndarray of bool, shape (K,)
        Where an interval may be given.
    change : bool
        Whether 1 is subtracted.

    Returns
    -------
    ndarray of float64, shape (3, K)
        Estimate, lower and upper end of its interval; NaN where undefined or not given.
    """
    n, sx, sy = sums[:, 0], sums[:, 1], sums[:, 2]
    found = np.full((3, len(sums)), math.nan)
    simple = np.array([scale == 1 for scale in scales], np.bool_)
    simple &= ((n > 0) & (sy != 0)).astype(np.bool_)
    above = sx - sy if change else sx
    # all that most need, and ten times as fast
    found[0, simple] = (above[simple] / sy[simple]).astype(np.float64)
    one = relative_change if change else ratio_of_means
    for k in np.flatnonzero(~simple | (given & (n >= MIN_REPLICATIONS).astype(np.bool_))).tolist():
        pairs, x, y, xx, xy, yy = sums[k].tolist()
        estimate, _, low, high = one(pairs, x, y, xx, xy, yy, scales[k])
        found[:, k] = (estimate, low, high) if given[k] else (estimate, math.nan, math.nan)
    return found


def _exact(number: Exact) -> int | Fraction:
    """The value of a double without rounding; others as they are."""
    return number if isinstance(number, int | Fraction) else Fraction(number)


def _quotient(dividend: int | Fraction, divisor: int | Fraction) -> float:
    """The double nearest to a quotient: Python divides whole numbers that way."""
    return float(dividend / divisor)


# --- several at once ------------------------------------------------------------------------


def bonferroni_level(level: float, m: int) -> float:
    """Level of each of m intervals that are to hold together with probability `level`."""
    return 1 - (1 - level) / max(m, 1)
