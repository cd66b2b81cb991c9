"""Intervals from a few moments: pure formulas, for one sample or for many at once.

Arguments are numbers or arrays of K entries each; NaN stands for what is undefined. Every interval
is two-sided, at `LEVEL` or at the level asked for, each taken alone. From sums that are whole
numbers everything is computed exactly and rounded once, at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL: Final = 0.95
"""Confidence level of an interval unless another one is asked for."""

Floats = NDArray[np.float64]

# --- the mean -------------------------------------------------------------------------------


def t_quantile(df: ArrayLike, level: float = LEVEL) -> Floats:
    """Half the length of a two-sided Student interval in standard errors; NaN for df < 1.

    Parameters
    ----------
    df : array_like of int
        Degrees of freedom; fast where few of them differ.
    level : float
        Between 0 and 1.

    Returns
    -------
    ndarray of float64
        In the shape of `df`.
    """
    from scipy import special  # it takes as long as all other imports of a report

    df = np.asarray(df, np.float64)
    different, inverse = np.unique(df, return_inverse=True)
    # the lower tail: 1 + level would round away the small errors of many simultaneous intervals
    tail = -special.stdtrit(np.maximum(different, 1), (1 - level) / 2)
    quantiles: Floats = np.where(different >= 1, tail, math.nan)
    # older numpy flattens the inverse
    in_shape: Floats = quantiles[inverse.reshape(df.shape)]
    return in_shape


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
"""With fewer, a sample tells neither its skewness nor its spread."""

MIN_NONZERO: Final = 300
"""Values other than zero that a metric needs if it is zero in a quarter of the replications or
more."""

SKEWNESS_FACTOR: Final = 25.0
"""An interval of the mean needs n >= this * skewness^2."""


def mean_has_interval(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> NDArray[np.bool_]:
    """Whether Student's interval of a mean is reported, with a note or without.

    Parameters and sources: `mean_notes`. There is none for a single replication, for too few
    values other than zero, for too skewed a sample, and where all values are equal in fewer than
    `MIN_REPLICATIONS`: 200 equal values make it likely that fewer than 2 % of all others differ,
    2 equal values say nothing.
    """
    n, n_nonzero, skewness = (np.asarray(values) for values in (n, n_nonzero, skewness))
    equal_by_luck = np.isnan(skewness) & (n < MIN_REPLICATIONS)
    has_interval: NDArray[np.bool_] = (
        (n > 1)
        & ~_few_nonzero(n, n_nonzero)
        & ~(n < SKEWNESS_FACTOR * np.square(skewness))
        & ~equal_by_luck
    )
    return has_interval


def mean_notes(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> NDArray[np.object_]:
    """Why Student's interval of a mean cannot be trusted.

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
        and where all values are equal, there may be an interval beside the note, see
        `mean_has_interval`.

    Notes
    -----
    n >= 25 skewness^2 is the rule of Cochran, *Sampling Techniques*, section 2.15. A stricter
    factor does harm: samples that happen to miss the tail look less skewed, and they would make up
    more of the samples that pass. The bounds on n and on the values other than zero were chosen so
    that 94 to 96 % of the intervals without a note cover, for every metric of half of the lesson's
    cells.
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
        for k in np.flatnonzero(holds & trusted):
            notes[k] = note.format(
                n=n[k], n_nonzero=n_nonzero[k], skewness=skewness[k], needed=needed[k]
            )
        trusted &= ~holds
    return notes


def _few_nonzero(n: NDArray[Any], n_nonzero: NDArray[Any]) -> NDArray[np.bool_]:
    """Zero in at least a quarter of the replications, and too seldom anything else."""
    few: NDArray[np.bool_] = (4 * n_nonzero <= 3 * n) & (n_nonzero < MIN_NONZERO)
    return few


def replications_needed(n: ArrayLike, half_width: ArrayLike, wanted: ArrayLike) -> Floats:
    """Replications that are likely to shrink a half-width to the one wanted.

    Parameters
    ----------
    n : array_like of int
        Replications so far.
    half_width : array_like of float
        The half-width they give.
    wanted : array_like of float
        The half-width to reach, in the same unit.

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
"""With fewer, the kurtosis of a sample says too little about the tails."""

KURTOSIS_FACTOR: Final = 25.0
"""An interval of the standard deviation needs n >= this * kurtosis."""


def sd_interval(n: ArrayLike, sd: ArrayLike, m4: ArrayLike) -> tuple[Floats, Floats]:
    """Interval of a standard deviation that allows for the tails of the distribution.

    Parameters
    ----------
    n : array_like of int
        Replications.
    sd : array_like of float
        Sample standard deviation, with n - 1.
    m4 : array_like of float
        Mean of the fourth powers of the deviations from the mean.

    Returns
    -------
    low, high : ndarray of float64
        NaN where all values are equal, or the sample is too small, at all or for its kurtosis.

    Notes
    -----
    Delta method on the logarithm with the correction for small samples of Bonett (2006),
    equation 3, and with a kurtosis freed of most of its bias (G2 + 3 of Joanes and Gill 1998). The
    chi-squared interval is right for normal values only: for a count with skewness 3 it covers half
    of what it promises.
    """
    n, sd, m4 = (np.asarray(values, np.float64) for values in (n, sd, m4))
    enough = (n >= MIN_REPLICATIONS_SD) & (sd > 0)
    some, spread = np.where(enough, n, 1e9), np.where(enough, sd, 1.0)
    kurtosis = np.where(enough, m4, 1.0) / (spread**4 * np.square(1 - 1 / some))
    enough &= n >= KURTOSIS_FACTOR * kurtosis
    excess = (kurtosis - 3 * (some - 1) / (some + 1)) * (some**2 - 1) / ((some - 2) * (some - 3))
    quantile = t_quantile(some - 1)
    correction = some / (some - quantile)
    variance = np.maximum(excess + 3 - (some - 3) / some, 0.0) / (some - 1)
    exponent = quantile * correction * np.sqrt(variance) / 2
    centre = np.sqrt(correction) * spread
    return (
        np.where(enough, centre * np.exp(-exponent), math.nan),
        np.where(enough, centre * np.exp(exponent), math.nan),
    )


# --- shares and quantiles -------------------------------------------------------------------


MIN_EITHER: Final = 20
"""Wilson's interval needs as many replications that hold, and as many that do not."""


def share_interval(n_holds: ArrayLike, n: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Interval of a share: Wilson's, or the exact one where few, or all but few, hold.

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
    Wilson's interval (1927) covers `level` on average over shares, but only 84 % where 0.17
    replications are expected to hold. Where fewer than `MIN_EITHER` hold, or fail, the two-sided
    exact interval of Clopper and Pearson (1934) takes its place: then 95 % means at least 94 %, at
    any n and share. If none of n holds it is [0, 1 - 0.025^(1/n)], about 3.7 / n.
    """
    from scipy import special

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
def quantile_ranks(n: int, p: Fraction) -> tuple[int, int] | None:
    """Ranks of the two order statistics that enclose a quantile.

    Parameters
    ----------
    n : int
        Replications.
    p : Fraction
        Which quantile, between 0 and 1.

    Returns
    -------
    (int, int) or None
        From 1 on: the interval is [x_(low), x_(high)], ends included. None where n is too small
        for both ends.

    Notes
    -----
    The interval covers with at least `LEVEL` whatever the distribution, and with more where values
    repeat: Conover, *Practical Nonparametric Statistics*, section 3.2.
    """
    tail = (1 - LEVEL) / 2
    low = _binomial_quantile(tail, n, float(p))
    high = _binomial_quantile(1 - tail, n, float(p)) + 1
    return (low, high) if low >= 1 and high <= n else None


def _binomial_quantile(q: float, n: int, p: float) -> int:
    """Smallest k for which at most k of n hold with probability q or more."""
    from scipy import special

    below, reached = -1, n  # P(X <= below) < q <= P(X <= reached)
    while reached - below > 1:
        middle = (below + reached) // 2
        if special.bdtr(middle, n, p) >= q:
            reached = middle
        else:
            below = middle
    return reached


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
    sx: int,
    sy: int,
    sxx: int,
    sxy: int,
    syy: int,
    scale: int | Fraction = 1,
) -> Ratio:
    """Estimate E[x] / E[y] from n pairs: not the mean of the ratios x / y.

    Parameters
    ----------
    n : int
        Pairs.
    sx, sy, sxx, sxy, syy : int
        Sums over the pairs of x, y, x^2, x y, y^2.
    scale : int or Fraction
        Factor of the ratio: the divisor of y over the divisor of x.

    Returns
    -------
    Ratio
        All NaN without pairs or if y adds up to 0; no error from one pair; no interval from fewer
        pairs than `MIN_REPLICATIONS`, or where the error of the denominator is too large.

    Notes
    -----
    Delta method with residuals x - (estimate) y and n - 1 degrees of freedom: Cochran, *Sampling
    Techniques*, section 6.3. Exact until each result is rounded.
    """
    if n < 1 or sy == 0:
        return Ratio()
    estimate = float(scale * sx / sy)  # Python gives the double nearest to a quotient
    if n < 2:
        return Ratio(estimate)
    residual = sxx * sy * sy - 2 * sx * sy * sxy + sx * sx * syy
    mcse = math.sqrt(scale * scale * n * residual / ((n - 1) * sy**4))
    if (
        n < MIN_REPLICATIONS
        or n * syy - sy * sy > (n - 1) * sy * sy * Fraction(MAX_DENOMINATOR_ERROR) ** 2
    ):
        return Ratio(estimate, mcse)
    half_width = t_quantile_of(n - 1) * mcse
    return Ratio(estimate, mcse, estimate - half_width, estimate + half_width)


def relative_change(
    n: int,
    sx: int,
    sy: int,
    sxx: int,
    sxy: int,
    syy: int,
    scale: int | Fraction = 1,
) -> Ratio:
    """Estimate E[x] / E[y] - 1; parameters and conditions of `ratio_of_means`.

    The sums are those of pairs, so what x and y have in common cancels. Where the interval of the
    mean of x - y has a note, it holds for this interval, too.
    """
    ratio = ratio_of_means(n, sx, sy, sxx, sxy, syy, scale)
    if math.isnan(ratio.estimate):
        return ratio
    estimate = float((scale * sx - sy) / sy)  # exact again: 1.0001 - 1 would lose four digits
    half_width = t_quantile_of(n - 1) * ratio.mcse
    if math.isnan(ratio.low):
        half_width = math.nan
    return Ratio(estimate, ratio.mcse, estimate - half_width, estimate + half_width)


def ratios(
    sums: NDArray[np.object_],
    scales: Sequence[int | Fraction],
    has_interval: NDArray[np.bool_],
    *,
    change: bool = False,
) -> Floats:
    """`ratio_of_means`, or with `change` `relative_change`, of K samples.

    Parameters
    ----------
    sums : ndarray of object, shape (K, 6)
        Whole numbers: the first six parameters of `ratio_of_means`.
    scales : sequence of int or Fraction, of length K
        The seventh.
    has_interval : ndarray of bool, shape (K,)
        Where there may be an interval.
    change : bool
        Whether 1 is subtracted.

    Returns
    -------
    ndarray of float64, shape (3, K)
        Estimate, lower and upper end of its interval; NaN where there is none.
    """
    n, sx, sy = sums[:, 0], sums[:, 1], sums[:, 2]
    estimates = np.full((3, len(sums)), math.nan)
    simple = np.array([scale == 1 for scale in scales], np.bool_)
    simple &= ((n > 0) & (sy != 0)).astype(np.bool_)
    above = sx - sy if change else sx
    # most need no interval, and this is ten times as fast
    estimates[0, simple] = (above[simple] / sy[simple]).astype(np.float64)
    one = relative_change if change else ratio_of_means
    enough = (n >= MIN_REPLICATIONS).astype(np.bool_)
    for k in np.flatnonzero(~simple | (has_interval & enough)).tolist():
        pairs, x, y, xx, xy, yy = sums[k].tolist()
        estimate, _, low, high = one(pairs, x, y, xx, xy, yy, scales[k])
        ends = (low, high) if has_interval[k] else (math.nan, math.nan)
        estimates[:, k] = (estimate, *ends)
    return estimates


# --- several at once ------------------------------------------------------------------------


def bonferroni_level(level: float, m: int) -> float:
    """Level of each of m intervals that shall all cover together with probability `level`."""
    return 1 - (1 - level) / max(m, 1)
