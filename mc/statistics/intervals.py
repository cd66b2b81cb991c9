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

from mc.model.digits import MIN_REPLICATIONS, share_text, unseen

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


MIN_NONZERO: Final = 300
"""Values other than zero that a metric needs if it is zero in a quarter of the replications or
more."""

SKEWNESS_FACTOR: Final = 25.0
"""An interval of the mean needs n >= this * skewness^2."""


def mean_has_interval(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> NDArray[np.bool_]:
    """Whether Student's interval of a mean is reported, with a note or without.

    Parameters and sources: `mean_notes`. There is none for a single replication, for too few
    values other than zero, for too skewed a sample, and where all values are equal: these say how
    seldom another value comes, and nothing of its size.
    """
    n = np.asarray(n)
    has_interval: NDArray[np.bool_] = (n > 1) & (n >= needed_for_interval(n, n_nonzero, skewness))
    return has_interval


def needed_for_interval(n: ArrayLike, n_nonzero: ArrayLike, skewness: ArrayLike) -> Floats:
    """Replications from which there is one, if the next are like the first n; parameters likewise.

    Infinite where all values are equal: how seldom another comes is not known.
    """
    n, n_nonzero, skewness = (np.asarray(values) for values in (n, n_nonzero, skewness))
    for_skewness = np.ceil(SKEWNESS_FACTOR * np.square(skewness))
    for_nonzero = np.ceil(MIN_NONZERO * n / np.maximum(n_nonzero, 1))
    needed = np.where(
        _few_nonzero(n, n_nonzero), np.maximum(for_skewness, for_nonzero), for_skewness
    )
    return np.where(np.isnan(skewness), math.inf, needed)


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
        A short text, or None where the interval covers what it promises. With few replications
        there may be an interval beside the note, see `mean_has_interval`.

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
    told: list[NDArray[Any]]
    for holds, text, *told in (
        (n == 0, lambda n: "no replication", n),
        (n == 1, lambda n: "one replication", n),
        (n_nonzero == 0, lambda n: f"0 in all {n:,}; {_unseen_text(n)}", n),
        (
            _few_nonzero(n, n_nonzero),
            lambda n, some: f"other than 0 in {some} of {n}: too few for an interval",
            n,
            n_nonzero,
        ),
        (np.isnan(skewness), lambda n: f"the same in all {n:,}; {_unseen_text(n)}", n),
        (
            n < needed,
            lambda skewness, needed: f"skewness {skewness:.2g}: needs n >= {needed:.0f}",
            skewness,
            needed,
        ),
        (n < MIN_REPLICATIONS, lambda n: f"fewer than {MIN_REPLICATIONS} replications", n),
    ):
        chosen = np.flatnonzero(holds & trusted)
        trusted &= ~holds
        lines = list(zip(*(numbers[chosen].tolist() for numbers in told), strict=True))
        texts = {line: text(*line) for line in set(lines)}  # of many cells few differ
        notes[chosen] = [texts[line] for line in lines]
    return notes


@lru_cache(maxsize=1024)  # most cells have the same n
def _unseen_text(n: int) -> str:
    return f"another value comes in at most {share_text(unseen(n))} of runs (95 %)"


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

    The sums are those of pairs, so what x and y have in common cancels. Where the mean of x - y or
    that of x has no interval, this one is not to be trusted either: with x rare, most samples see
    too little of it.
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


# --- at every look -------------------------------------------------------------------------

LOOK: Final = 1000
"""Replications at which the confidence sequence of a mean is narrowest, compared with t."""


def share_at_any_time(
    n_holds: ArrayLike, n: ArrayLike, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Interval of a share that holds at every number of replications at once.

    Parameters
    ----------
    n_holds, n : array_like of int
        0 <= n_holds <= n.
    level : float
        Between 0 and 1: the chance that the intervals after 1, 2, 3, ... replications all hold the
        share. So one may look as often as one likes, and add replications until one is content.

    Returns
    -------
    low, high : ndarray of float64
        NaN for n = 0.

    Notes
    -----
    The shares p for which ``B(k + 1, n - k + 1) / (p^k (1 - p)^(n - k)) < 1 / (1 - level)``: the
    likelihood ratio against a uniform mixture is a martingale, and by Ville's inequality seldom
    large (Robbins 1970, "Statistical methods related to the law of the iterated logarithm").
    """
    from scipy import special

    k, n = (x.astype(float) for x in np.broadcast_arrays(np.asarray(n_holds), np.asarray(n)))
    bound = math.log(1 / (1 - level)) - special.betaln(k + 1, n - k + 1)
    some = np.maximum(n, 1.0)

    def is_inside(p: Floats) -> NDArray[np.bool_]:
        # 0 log 0 = 0: what holds in all replications may do so always
        inside: NDArray[np.bool_] = -special.xlogy(k, p) - special.xlogy(n - k, 1 - p) < bound
        return inside

    ends = []
    for outer in (0.0, 1.0):
        inside, outside = k / some, np.full(k.shape, outer)
        reaches = is_inside(outside)
        for _ in range(60):  # halves: to the last bit
            middle = (inside + outside) / 2
            holds = is_inside(middle)
            inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
        ends.append(np.where(n > 0, np.where(reaches, outer, outside), math.nan))
    return ends[0], ends[1]


def half_width_at_any_time(n: ArrayLike, mcse: ArrayLike, level: float = LEVEL) -> Floats:
    """Half the length of an interval of a mean that holds at every number of replications at once.

    Parameters as for `t_half_width`.

    Notes
    -----
    Asymptotic confidence sequence: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024),
    theorem 2.2, with their choice of rho for `LOOK` replications.
    """
    n, mcse = np.asarray(n, np.float64), np.asarray(mcse, np.float64)
    alpha = 1 - level
    rho = (-2 * math.log(alpha) + math.log1p(-2 * math.log(alpha))) / LOOK  # squared
    times = n * rho + 1
    some = np.maximum(n, 1.0)
    errors = np.sqrt(2 * times / (some * rho) * np.log(np.sqrt(times) / alpha))
    half_width: Floats = np.where(n > 1, errors * mcse, math.nan)
    return half_width


# --- several at once ------------------------------------------------------------------------


def bonferroni_level(level: float, m: int) -> float:
    """Level of each of m intervals that shall all cover together with probability `level`."""
    return 1 - (1 - level) / max(m, 1)
