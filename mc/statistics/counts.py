"""Histograms and sums of rows, of which every table is made.

Both are of whole numbers, hence exact. Those of two ranges of replications can be added, in any
order, to give those of both. Since tables are made of these alone, it makes no difference to them
whether rows are kept or histograms.

Source: sufficient statistics that may be added are the habit of distributed estimation, as in
Chan, Golub and LeVeque (1983); with integers no rounding has to be repaired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.statistics.rows import Numbers, in_steps

MIN_TO_COUNT: Final = 500
"""Fewer numbers of a cell are sorted, for all cells at once: that is faster than to count them in
an array, cell by cell."""


@dataclass(frozen=True)
class Histogram:
    """How often each value of one metric occurs, in K cells.

    Attributes
    ----------
    values : ndarray of int64, shape (V,)
        Cell after cell the different values, ascending; to be divided by the divisor. Of a ratio
        of counters the quotients are different, and some of these may be equal.
    counts : ndarray of int64, shape (V,)
        In how many replications each occurs, >= 1.
    offsets : ndarray of int64, shape (K + 1,)
        Where each cell begins in `values`, and where the last ends.
    divisors : ndarray of float64, shape (K,)
        Positive.
    quotients : ndarray of float64, shape (V,), or None
        Of a ratio of counters its different values.
    """

    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    divisors: NDArray[np.float64]
    quotients: NDArray[np.float64] | None = None

    @cached_property
    def n(self) -> NDArray[np.int64]:
        """In how many replications the metric is defined, shape (K,)."""
        return self.sums(self.counts)

    @cached_property
    def _upto(self) -> NDArray[np.int64]:
        """How many replications come up to each value, over all cells."""
        return np.cumsum(self.counts)

    def sums(self, terms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum the terms, one for each value, of every cell; modulo 2**64."""
        starts = self.offsets[:-1]
        some = starts < self.offsets[1:]
        added = np.zeros(len(starts), np.int64)
        if some.any():
            added[some] = np.add.reduceat(terms, starts[some])
        return added

    def at(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The value of rank 1, 2, ... n in ascending order, in every cell; 0 where n is 0.

        Parameters
        ----------
        ranks : ndarray of int64, shape (K,) or (m, K)
            Ranks beyond 1 .. n are taken as the nearest of these.

        Returns
        -------
        ndarray of int64, shape (K,) or (m, K)
            Not yet divided by the divisor.
        """
        if self.values.size == 0:
            return np.zeros_like(ranks)
        return np.where(self.n > 0, self.values[self.places(ranks)], 0)

    def value_at(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same, as the number that it stands for; of a ratio the quotient itself."""
        if self.quotients is None or self.quotients.size == 0:
            return self.at(ranks) / self.divisors
        return np.where(self.n > 0, self.quotients[self.places(ranks)], 0.0)

    def places(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where among all values those of such ranks stand; anywhere where n is 0."""
        wanted = np.cumsum(self.n) - self.n + np.clip(ranks, 1, np.maximum(self.n, 1))
        # cell after cell, nearly in order: then each search begins where the last one ended
        found = np.searchsorted(self._upto, wanted.T.ravel()).reshape(wanted.T.shape).T
        return np.minimum(found, self.values.size - 1)

    def tails(
        self, ranks: NDArray[np.int64], end: Literal["low", "high"]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The values of every cell from that of a rank to the lowest or the highest.

        Parameters
        ----------
        ranks : ndarray of int64, shape (K,)
            As for `at`.
        end : {"low", "high"}
            Which end.

        Returns
        -------
        doubles, counts, cells, upto : ndarray, each of shape (V',)
            The numbers that these values stand for, ascending in each cell; how often each occurs;
            the cell of each; in how many of its replications the number is as large at most.
        """
        inner = self.places(ranks)
        starts, stops = self.offsets[:-1], inner + 1
        if end == "high":
            starts, stops = inner, self.offsets[1:]
        lengths = np.where(self.n > 0, stops - starts, 0)
        cells = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(len(cells)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        if self.quotients is not None:
            doubles = self.quotients[places]
        else:
            doubles = self.values[places] / self.divisors[cells]
        upto = self._upto[places] - (np.cumsum(self.n) - self.n)[cells]
        return doubles, self.counts[places], cells, upto

    @cached_property
    def moments(self) -> Moments:
        """Mean and spread."""
        return _moments(self)

    @cached_property
    def n_zero(self) -> NDArray[np.int64]:
        """In how many replications the value is 0, shape (K,)."""
        is_zero = (self.values if self.quotients is None else self.quotients) == 0
        return self.sums(np.where(is_zero, self.counts, 0))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The cell of each value, shape (V,)."""
        return np.repeat(np.arange(len(self.divisors)), np.diff(self.offsets))

    @property
    def doubles(self) -> NDArray[np.float64]:
        """The numbers that the values stand for, shape (V,)."""
        if self.quotients is not None:
            return self.quotients
        return self.values / self.divisors[self.cells]

    def cell(self, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The numbers that the values of one cell stand for, and their counts."""
        own = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        return self.doubles[own], self.counts[own]


def histogram(taken: Numbers) -> Histogram:
    """Count the values of a metric.

    Parameters
    ----------
    taken : Numbers
        K cells with R rows each.

    Returns
    -------
    Histogram
        Of the rows in which the metric is defined.
    """
    n_rows = taken.numbers.shape[1]
    if n_rows < MIN_TO_COUNT:
        return _by_sorting(taken)
    quotients = taken.quotients
    of_cells: NDArray[Any] = taken.numbers if quotients is None else quotients
    values, counts = [], []
    for k, n in enumerate(np.count_nonzero(taken.known, axis=1).tolist()):
        numbers = of_cells[k] if n == n_rows else of_cells[k][taken.known[k]]
        if quotients is not None:
            found = np.unique(numbers, return_counts=True)
        else:
            found = _counted(numbers) if n else (numbers, numbers)
        values.append(found[0])
        counts.append(found[1])
    offsets = np.cumsum([0, *map(len, values)])
    return _histogram(np.concatenate(values), np.concatenate(counts), offsets, taken.divisors)


def _histogram(
    values: NDArray[Any],
    counts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    divisors: NDArray[np.float64],
) -> Histogram:
    """Of whole numbers, or of the quotients of a ratio of counters."""
    if values.dtype.kind == "f":
        return Histogram(in_steps(values), counts, offsets, divisors, values)
    return Histogram(values, counts, offsets, divisors)


def _counted(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different ones of some numbers, ascending, and how often each occurs."""
    lowest, highest = int(numbers.min()), int(numbers.max())
    if highest - lowest < len(numbers):  # a place for each that there may be
        counts = np.bincount(numbers - lowest)
        places = np.flatnonzero(counts)
        return places + lowest, counts[places]
    ordered = np.sort(numbers.astype(_kind(lowest, highest)))
    ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(numbers))
    return ordered[ends - 1].astype(np.int64), np.diff(ends, prepend=0)


def _ends(numbers: NDArray[np.int64]) -> tuple[int, int]:
    """The lowest and the highest; 0 where there is none."""
    return int(numbers.min(initial=0)), int(numbers.max(initial=0))


def _kind(lowest: int, highest: int) -> type[np.int32] | type[np.int64]:
    """In half as many bits sorting takes half the time."""
    narrow = np.iinfo(np.int32)
    return np.int32 if narrow.min <= lowest and highest < narrow.max else np.int64


def _by_sorting(taken: Numbers) -> Histogram:
    """The same, faster for few numbers of many cells."""
    n_cells, n_rows = taken.numbers.shape
    everywhere = bool(taken.known.all())
    n = np.full(n_cells, n_rows) if everywhere else np.count_nonzero(taken.known, axis=1)
    quotients = taken.quotients
    ordered: NDArray[Any]
    if quotients is None:
        ordered = taken.numbers.astype(_kind(*_ends(taken.numbers)))
        last: float = np.iinfo(ordered.dtype).max
    else:
        ordered, last = quotients, math.inf
    if not everywhere:
        ordered[~taken.known] = last
    ordered.sort(axis=1)
    fresh = np.ones(ordered.shape, np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
    if not everywhere:
        fresh &= np.arange(n_rows) < n[:, np.newaxis]
    places = np.flatnonzero(fresh)
    starts = n_rows * np.arange(n_cells)
    offsets = np.searchsorted(places, np.append(starts, fresh.size))
    ends = np.append(places[1:], 0)
    ends[offsets[1:][n > 0] - 1] = (starts + n)[n > 0]  # of the last value of each cell
    values = ordered.ravel()[places]
    if quotients is None:
        values = values.astype(np.int64)
    return _histogram(values, ends - places, offsets, taken.divisors)


def from_pairs(
    cells: NDArray[np.int64],
    values: NDArray[Any],
    counts: NDArray[np.int64],
    divisors: NDArray[np.float64],
) -> Histogram:
    """Make a histogram of many: counts of the same value in the same cell are added.

    Parameters
    ----------
    cells : ndarray of int64, shape (N,)
        Place of the cell, 0 .. K - 1; in any order.
    values : ndarray of int64 or float64, shape (N,)
        Of a ratio of counters the quotients, as floats.
    counts : ndarray of int64, shape (N,)
        How often the value occurs.
    divisors : ndarray of float64, shape (K,)
        Positive.

    Returns
    -------
    Histogram
    """
    order = _order(cells, values)
    if order is not None:
        cells, values, counts = cells[order], values[order], counts[order]
    fresh = np.ones(len(cells), np.bool_)
    fresh[1:] = (cells[1:] != cells[:-1]) | (values[1:] != values[:-1])
    starts = np.flatnonzero(fresh)
    offsets = np.searchsorted(cells[starts], np.arange(len(divisors) + 1))
    added = np.add.reduceat(counts, starts) if starts.size else counts
    return _histogram(values[starts], added, offsets, divisors)


def _order(cells: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.intp] | None:
    """How to sort by cell and value; None where they are sorted."""
    if _is_sorted(cells, values):
        return None
    width = 2**62 // (int(cells.max()) + 1)
    lowest, highest = values.min(), values.max()
    # One key is sorted several times as fast as two, and parts that are sorted are merged.
    if values.dtype.kind != "f" and int(highest) - int(lowest) < width:
        return np.argsort(cells * width + (values - lowest), kind="stable")
    if values.dtype.kind == "f" and 0 <= lowest < highest:
        keys = cells * width + (values * (width // 2 / highest)).astype(np.int64)
        order = np.argsort(keys, kind="stable")
        if _is_sorted(cells[order], values[order]):  # none were too near to each other
            return order
    return np.lexsort((values, cells))


def _is_sorted(cells: NDArray[np.int64], values: NDArray[Any]) -> bool:
    """Whether they are sorted by cell and value."""
    after, same = cells[1:] > cells[:-1], cells[1:] == cells[:-1]
    return bool((after | (same & (values[1:] >= values[:-1]))).all())


# --- sums -----------------------------------------------------------------------------------

Sums = NDArray[Any]
"""Exact sums over replications, Python's integers, shape (K, columns): for m columns of numbers
n, then the sum of each, then the sums of the products of two: 11, 12, .., 1m, 22, .., mm."""


def n_sums(m: int) -> int:
    """Columns of the `Sums` of m columns of numbers."""
    return 1 + m + m * (m + 1) // 2


def joint_sums(columns: Sequence[NDArray[np.int64]], known: NDArray[np.bool_]) -> Sums:
    """Sum columns of numbers and their products.

    Parameters
    ----------
    columns : sequence of ndarray of int64, shape (K, R)
        Anything where `known` is False.
    known : ndarray of bool, shape (K, R)
        Which rows count.

    Returns
    -------
    Sums, shape (K, n_sums(m))
        Of m columns.
    """
    n_cells, n_rows = known.shape
    n = np.count_nonzero(known, axis=1).astype(object)
    if n_rows == 0:
        return np.zeros((n_cells, n_sums(len(columns))), object)
    everywhere = bool(known.all())
    near = [_near(column, None if everywhere else known) for column in columns]
    firsts = [_sum(x) + n * x.shift for x in near]
    products = [
        _product(near[i], near[j], firsts[i], firsts[j], n)
        for i, j in combinations_with_replacement(range(len(near)), 2)
    ]
    return np.stack([n, *firsts, *products], axis=1)


def sums_beside(
    taken: Numbers, counted: Histogram, others: Sequence[NDArray[np.int64]], of_others: Sums
) -> Sums:
    """Sum numbers and other columns and their products, as `joint_sums` does.

    Where all numbers are known, what is known already is not summed again.

    Parameters
    ----------
    taken : Numbers
        Of K cells with R rows each.
    counted : Histogram
        Their histogram.
    others : sequence of ndarray of int64, shape (K, R)
        Further columns.
    of_others : Sums
        Those of the other columns, over all rows.

    Returns
    -------
    Sums, shape (K, n_sums(m))
        Of the numbers and the others, m columns.
    """
    m = 1 + len(others)
    known = of_others.T
    n, first, second = _power_sums(counted)
    # by the inequality of Cauchy and Schwarz no sum of products is larger
    largest = int(second.max(initial=0)) * max(column.max(initial=0) for column in known[m:])
    if largest >= 2**126 or not taken.known.all():
        return joint_sums((taken.numbers, *others), taken.known)
    products = [np.einsum("kr,kr->k", taken.numbers, other) for other in others]
    own = np.stack([n, first, second, *products]).astype(object)
    return np.stack([*own[:2], *known[1:m], *own[2:], *known[m:]], axis=1)


class _Near(NamedTuple):
    """Numbers, less a shift, which may be 0; shapes (K, R) and (K,)."""

    numbers: NDArray[np.int64]
    shift: NDArray[Any]
    largest: int


def _near(column: NDArray[np.int64], known: NDArray[np.bool_] | None) -> _Near:
    """A column so near to 0 that sums of products fit into 64 bits, nearly always; 0 if unknown."""
    numbers = column if known is None else np.where(known, column, 0)
    shift = np.zeros(len(column), np.int64)
    largest = _largest(numbers)
    if largest * largest * column.shape[1] >= 2**63:
        shift = numbers[:, 0]
        numbers = numbers - shift[:, np.newaxis]
        if known is not None:
            numbers[~known] = 0
        largest = _largest(numbers)
    return _Near(numbers, shift.astype(object), largest)


def _sum(x: _Near) -> NDArray[Any]:
    """Sum the numbers of each cell, less the shift."""
    fits = x.largest * x.numbers.shape[1] < 2**63
    numbers: NDArray[Any] = x.numbers if fits else x.numbers.astype(object)
    return np.asarray(numbers.sum(axis=1), object)


def _product(
    x: _Near, y: _Near, sum_of_x: NDArray[Any], sum_of_y: NDArray[Any], n: NDArray[Any]
) -> NDArray[Any]:
    """Sum the products of two columns, by what is left of them and by the sums of each."""
    if x.largest * y.largest * x.numbers.shape[1] < 2**63:
        product = np.einsum("kr,kr->k", x.numbers, y.numbers).astype(object)
    else:  # 64 bits would wrap around without a word
        product = (x.numbers.astype(object) * y.numbers.astype(object)).sum(axis=1)
    if not (x.shift.any() or y.shift.any()):
        return np.asarray(product, object)
    added = product + x.shift * sum_of_y + y.shift * sum_of_x - n * x.shift * y.shift
    return np.asarray(added, object)


def _largest(numbers: NDArray[np.int64]) -> int:
    """The largest of the absolute values; no array of these is made."""
    lowest, highest = _ends(numbers)
    return max(highest, -lowest)


def cubes(numbers: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Sum the cubes of each row exactly.

    Parameters
    ----------
    numbers : ndarray of int64, shape (K, R)
        Anything where `known` is False.
    known : ndarray of bool, shape (K, R)
        Which numbers count.

    Returns
    -------
    ndarray of object, shape (K,)
        Python's integers.
    """
    some = numbers if known.all() else np.where(known, numbers, 0)
    largest = _largest(some)
    if largest**3 * some.shape[1] < 2**63:
        return np.asarray(np.einsum("kr,kr,kr->k", some, some, some), object)
    if largest < 2**31 and largest * some.shape[1] < 2**32:
        # the square in two halves: each product with 32 bits less
        square = some * some
        high, low = square >> 31, square & (2**31 - 1)
        upper, lower = (np.einsum("kr,kr->k", some, half).astype(object) for half in (high, low))
        return np.asarray(upper * 2**31 + lower, object)
    return np.asarray((some.astype(object) ** 3).sum(axis=1), object)


# --- moments --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moments:
    """Mean and spread of K cells; NaN where there are too few values.

    Attributes
    ----------
    n : ndarray of int64, shape (K,)
    mean, variance : ndarray of float64, shape (K,)
        Each rounded once.
    skewness : ndarray of float64, shape (K,)
        m3 / m2**1.5 of the central moments; NaN where there is no spread.
    """

    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    skewness: NDArray[np.float64]


def moments(counted: Histogram) -> Moments:
    """Moments of a metric in K cells; computed once for each histogram."""
    return counted.moments


def _moments(counted: Histogram) -> Moments:
    """Moments of a metric in K cells.

    Notes
    -----
    Mean and variance are quotients of exact integers. The higher moments are sums of doubles, in
    ascending order of the values, so they do not depend on the order of rows either.
    """
    n = counted.n
    shift = counted.at((n + 1) // 2)
    cells = counted.cells
    near = counted.values - shift[cells]
    s1, s2 = _sums_of(counted, near)
    mean, variance = _mean_and_variance(n, shift, s1, s2, counted.divisors)
    some = np.maximum(n, 1)
    centred = near - (s1.astype(np.float64) / some)[cells]
    square = centred * centred  # a power is ten times as slow
    m2, m3 = (
        np.bincount(cells, counted.counts * power, minlength=len(n)) / some
        for power in (square, square * centred)
    )
    spread = (variance > 0) & (m2 > 0)
    return Moments(
        n=n,
        mean=mean,
        variance=variance,
        skewness=np.where(spread, m3 / np.where(spread, m2, 1.0) ** 1.5, math.nan),
    )


def _mean_and_variance(
    n: NDArray[np.int64],
    origin: NDArray[np.int64],
    s1: NDArray[Any],
    s2: NDArray[Any],
    divisors: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both by the sums of numbers less their origin, and of their squares; NaN for too few."""
    mean, variance = np.full((2, len(n)), math.nan)
    whole = np.where(divisors == np.rint(divisors), divisors, 0.0)
    most_n, most_s1 = int(n.max(initial=0)), _largest(s1)
    most_p = max(1, int(whole.max(initial=0.0)))
    most = max(
        most_n * _largest(origin) + most_s1,
        most_n * _largest(s2) + most_s1**2,
        (most_n * most_p) ** 2,
    )
    left = np.arange(len(n))
    if most < 2**62:
        p = whole.astype(np.int64)
        of_mean = n * origin + s1, n * p
        of_variance = n * s2 - s1 * s1, n * (n - 1) * p * p
        exact = p > 0
        for x in (*of_mean, *of_variance):
            exact &= x.astype(np.float64).astype(np.int64) == x
        for column, (above, below), least in ((mean, of_mean, 1), (variance, of_variance, 2)):
            np.divide(above, below, out=column, where=exact & (n >= least))
        left = np.flatnonzero(~exact)
    lines = zip(
        left.tolist(), *(x[left].tolist() for x in (n, s1, s2, origin, divisors)), strict=True
    )
    for k, m, a, b, start, divisor in lines:
        # a quotient of Python's integers is the double nearest to it
        p, q = divisor.as_integer_ratio()
        if m > 0:
            mean[k] = (m * start + a) * q / (m * p)
        if m > 1:
            variance[k] = (m * b - a * a) * q * q / (m * (m - 1) * p * p)
    return mean, variance


def _sums_of(counted: Histogram, near: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sums over all replications of numbers that are near 0, and of their squares.

    Integers of 64 bits where they fit, else Python's.
    """
    largest = _largest(near)
    if largest * largest * int(counted.n.max(initial=0)) < 2**63:
        terms = counted.counts * near
        return counted.sums(terms), counted.sums(terms * near)
    s1, s2 = np.zeros(len(counted.n), object), np.zeros(len(counted.n), object)
    far = near.astype(object)
    np.add.at(s1, counted.cells, counted.counts * far)
    np.add.at(s2, counted.cells, counted.counts * far * far)
    return s1, s2


def _power_sums(counted: Histogram) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """How many numbers there are, their sum, and that of their squares.

    Integers of 64 bits where they fit, else Python's.
    """
    most_n, largest = int(counted.n.max(initial=0)), _largest(counted.values)
    if largest * largest * most_n < 2**63:
        return counted.n, *_sums_of(counted, counted.values)
    shift = counted.at(np.ones(len(counted.n), np.int64))
    s1, s2 = _sums_of(counted, counted.values - shift[counted.cells])
    n, a = counted.n.astype(object), shift.astype(object)
    return n, s1 + n * a, s2 + 2 * a * s1 + n * a * a


def pair_moments(
    sums: Sums, left: NDArray[np.float64], right: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of ``x / left - y / right``, and the sum of the variances of both.

    Parameters
    ----------
    sums : Sums, shape (K, 6)
        Of the columns x, y.
    left, right : ndarray of float64, shape (K,)
        Divisors.

    Returns
    -------
    mean, variance, apart : ndarray of float64, shape (K,)
        NaN where there are too few replications; each rounded once.
    """
    results = np.full((3, len(left)), math.nan)
    lines = zip(sums.tolist(), left.tolist(), right.tolist(), strict=True)
    for k, (line, d, e) in enumerate(lines):
        if d == e == 1.0:
            a = b = c = 1
        else:  # x / d - y / e = (a x - b y) / c in whole numbers
            (p, q), (r, s) = d.as_integer_ratio(), e.as_integer_ratio()
            a, b, c = q * r, s * p, p * r
        n, x, y, xx, xy, yy = line
        results[:, k] = pair_moments_of(n, x, y, xx, xy, yy, a, b, c)
    return results[0], results[1], results[2]


def pair_moments_of(
    n: int, x: int, y: int, xx: int, xy: int, yy: int, a: int, b: int, c: int
) -> tuple[float, float, float]:
    """The same of ``(a x - b y) / c`` for one pair and its sums."""
    if n == 0:
        return math.nan, math.nan, math.nan
    mean = (a * x - b * y) / (n * c)  # a quotient of Python's integers is the double nearest to it
    if n == 1:
        return mean, math.nan, math.nan
    one, other = a * a * (n * xx - x * x), b * b * (n * yy - y * y)
    below = n * (n - 1) * c * c
    variance = (one + other - 2 * a * b * (n * xy - x * y)) / below
    return mean, variance, (one + other) / below


def skewness_of(
    n: NDArray[Any], d: NDArray[Any], dd: NDArray[Any], ddd: NDArray[Any]
) -> NDArray[np.float64]:
    """Skewness of K samples; NaN where there is no spread.

    Parameters
    ----------
    n, d, dd, ddd : ndarray of object, shape (K,)
        How many numbers, and the sums of them, of their squares and of their cubes.

    Returns
    -------
    ndarray of float64, shape (K,)
        m3 / m2**1.5 of the central moments.
    """
    # n**2 m2 and n**3 m3 of the central moments, in whole numbers of any size
    second = n * dd - d * d
    third = n * n * ddd - 3 * n * d * dd + 2 * d * d * d
    spread = np.array(second > 0, np.bool_)
    square = (third * third / np.where(spread, second, 1) ** 3).astype(np.float64)
    signs = np.where(third < 0, -1.0, 1.0)
    return np.where(spread, signs * np.sqrt(square), math.nan)
