"""Control variates: a smaller error of a mean by the known expectation of the traffic.

The expected numbers of requests, in the run and in the fault window, are known exactly. A metric
that grows with the traffic is regressed on both, and its mean is corrected for the traffic that
the replications happened to meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from mc.model.digits import MIN_REPLICATIONS
from mc.statistics.intervals import Floats, t_quantile_of

MIN_REDUCTION: Final = 1.1
"""Below this the plain mean is as good, and simpler."""

MIN_RESIDUAL: Final = 200
"""Residual sum of squares that a metric needs, in whole numbers before the divisor."""


class Adjusted(NamedTuple):
    """A regression-adjusted mean; every field NaN where it is not to be used.

    Attributes
    ----------
    mean, mcse, low, high : float
        The mean, its standard error and interval, in the unit of the metric.
    reduction : float
        Variance of the plain mean over that of the adjusted one.
    """

    mean: float = math.nan
    mcse: float = math.nan
    low: float = math.nan
    high: float = math.nan
    reduction: float = math.nan


def adjusted_mean(
    n: int,
    y: int,
    z1: int,
    z2: int,
    yy: int,
    yz1: int,
    yz2: int,
    z1z1: int,
    z1z2: int,
    z2z2: int,
    mu1: Fraction,
    mu2: Fraction,
    divisor: float = 1.0,
) -> Adjusted:
    """Estimate the mean of y / divisor, given the expectations of z1 and z2.

    Parameters
    ----------
    n : int
        Replications.
    y, z1, z2, yy, yz1, yz2, z1z1, z1z2, z2z2 : int
        Sums over the replications of the metric, of both controls, and of their products.
    mu1, mu2 : Fraction
        Expectations of the controls: rounds times rate, and rounds of the window times rate.
    divisor : float
        A positive constant.

    Returns
    -------
    Adjusted
        NaN where n < `MIN_REPLICATIONS`, where the metric or the traffic never varies, where the
        reduction is below `MIN_REDUCTION`, or where too little is left to judge by.

    Notes
    -----
    The residual of a counter that follows the traffic nearly one to one is a rare count: so many
    requests were dropped. With a sum of squares below `MIN_RESIDUAL` it has happened too seldom
    for an interval, as with a metric that is zero too often. A metric whose own mean has no
    interval (`intervals.mean_has_interval`) has no adjusted one either; the caller sees to that.

    Least squares with an intercept at the known expectations, n - q - 1 degrees of freedom for q
    controls: Lavenberg and Welch (1981); Nelson (1990), section 2. q is 1 where the second
    control never varies (no window) or is a linear function of the first (a window of the whole
    run): the determinant of the whole numbers is then exactly 0.

    This is for means only: the spread between replications is not that of the residuals.
    """
    s11, s12, s22 = n * z1z1 - z1 * z1, n * z1z2 - z1 * z2, n * z2z2 - z2 * z2
    syy, s1y, s2y = n * yy - y * y, n * yz1 - y * z1, n * yz2 - y * z2
    # distances from the expectations in whole numbers, `unit` times as large
    unit = math.lcm(mu1.denominator, mu2.denominator)
    d1, d2 = int(unit * (z1 - n * mu1)), int(unit * (z2 - n * mu2))
    q, det = 2, s11 * s22 - s12 * s12
    if det == 0:
        q, s12, s22, s2y, d2 = 1, 0, 1, 0, 0
        det = s11
    if n < MIN_REPLICATIONS or det == 0 or syy == 0:
        return Adjusted()
    # slopes, n times the residual sum of squares, and leverage; each over det
    slope1, slope2 = s22 * s1y - s12 * s2y, s11 * s2y - s12 * s1y
    residual = syy * det - slope1 * s1y - slope2 * s2y
    leverage = s22 * d1 * d1 - 2 * s12 * d1 * d2 + s11 * d2 * d2
    whole = det * unit * unit
    # n^2 (n - q - 1) times the variance of the adjusted mean, and times that of the plain one
    left, plain = residual * (whole + leverage), syy * det * whole
    if residual < MIN_RESIDUAL * n * det:
        return Adjusted()
    if plain * (n - q - 1) < Fraction(MIN_REDUCTION) * left * (n - 1):
        return Adjusted()
    p, r = divisor.as_integer_ratio()
    mean = float((y * det * unit - slope1 * d1 - slope2 * d2) * r / (n * det * unit * p))
    variance = float(left * r * r / (n * n * (n - q - 1) * det * whole * p * p))
    mcse = math.sqrt(variance)
    half_width = t_quantile_of(n - q - 1) * mcse
    reduction = float(plain * (n - q - 1) / (left * (n - 1)))
    return Adjusted(mean, mcse, mean - half_width, mean + half_width, reduction)


SUMS: Final = ("n", "y", "z1", "z2", "yy", "yz1", "yz2", "z1z1", "z1z2", "z2z2")
"""Names of the sums, in the order of the parameters of `adjusted_mean`."""


def adjusted_means(
    sums: Mapping[str, Sequence[int]],
    mu1: Iterable[Fraction],
    mu2: Iterable[Fraction],
    divisors: Iterable[float],
) -> dict[str, Floats]:
    """Adjust the means of one metric in K cells; see `adjusted_mean`.

    Parameters
    ----------
    sums : mapping of str to sequence, each of length K
        One entry for each of `SUMS`, Python's integers.
    mu1, mu2 : iterable of Fraction, each of length K
        Expectations of the controls.
    divisors : iterable of float, of length K
        Positive constants.

    Returns
    -------
    dict of str to ndarray of float64, shape (K,)
        The fields of `Adjusted`.
    """
    means = map(adjusted_mean, *(sums[name] for name in SUMS), mu1, mu2, divisors)
    table = np.array(list(means), float).reshape(-1, len(Adjusted._fields))
    return dict(zip(Adjusted._fields, table.T, strict=True))
