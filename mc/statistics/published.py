"""Published figures: where each lies among the replications, and all of a run together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mc.model.digits import to_fixed

if TYPE_CHECKING:
    from mc.experiment import Published


def tail(below: int, up_to: int, n: int) -> float:
    """Two-sided tail of a figure that n replications were compared with.

    Notes
    -----
    The figure counts as one more replication (Davison and Hinkley 1997, section 4.2): without
    it a figure beyond all n would have the impossible tail 0.
    """
    return min(1.0, 2 * (min(up_to, n - below) + 1) / (n + 1))


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


Distribution = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Different values, ascending, and how often each occurs."""


def joint_tails(
    figures: Sequence[Published],
    runs: Sequence[NDArray[np.float64]],
    distributions: Sequence[Distribution],
) -> NDArray[np.float64]:
    """How often some of several figures of one run lies as far out as each of them.

    Parameters
    ----------
    figures : sequence of Published, of length F
    runs : sequence of ndarray of float64, each of shape (R,)
        Each figure in R other runs.
    distributions : sequence of Distribution
        In which its tail is found.

    Returns
    -------
    ndarray of float64, shape (F,)
        P values among all F together, of which the smallest is that of the run as a whole.

    Notes
    -----
    Figures of one run depend on one another: all grow with its traffic. So the smallest of the
    tails of all figures is compared with the smallest of every other run: the single-step minimum
    p of Westfall and Young (1993, section 2.3), with the run itself counted among the others.
    """
    own = np.array(
        [
            _tails(np.array([figure.value]), figure.decimals, distribution)[0]
            for figure, distribution in zip(figures, distributions, strict=True)
        ]
    )
    smallest = np.ones(len(runs[0]))
    for figure, values, distribution in zip(figures, runs, distributions, strict=True):
        np.minimum(smallest, _tails(values, figure.decimals, distribution), out=smallest)
    as_far = np.count_nonzero(smallest <= own[:, np.newaxis], axis=1)
    joint: NDArray[np.float64] = (as_far + 1) / (len(smallest) + 1)
    return joint


def _tails(
    x: NDArray[np.float64], decimals: int | None, distribution: Distribution
) -> NDArray[np.float64]:
    """The tail of each value, printed with so many decimals; see `tail`."""
    values, counts = distribution
    upto = np.concatenate([[0], np.cumsum(counts)])
    if decimals is None:
        below, up_to = (upto[np.searchsorted(values, x, side)] for side in ("left", "right"))
    else:
        printed, half = x.round(decimals), 0.5 * 10.0**-decimals
        below, up_to = (upto[np.searchsorted(values, printed + end)] for end in (-half, half))
    n = upto[-1]
    tails: NDArray[np.float64] = 2 * (np.minimum(up_to, n - below) + 1) / (n + 1)
    return np.minimum(tails, 1.0)
