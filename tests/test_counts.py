"""Histograms and sums: exact, whatever the size, and those of parts add up to those of the whole.

On this property all tables rest: replications are counted in parts, on any machine, in any order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement
from operator import add
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from samples import OUTAGE, cell_frame, claim, random_rows
from scipy import stats

from mc.model import METRICS, Cell, Metric
from mc.statistics import (
    ClaimCounts,
    Histogram,
    MetricCounts,
    PairCounts,
    Stack,
    count_claims,
    histogram,
    judge,
    moments,
    stacks,
    summarise,
    summary,
    verdicts,
)
from mc.statistics.comparisons import comparison, count_pairs
from mc.statistics.counts import (
    MIN_TO_COUNT,
    cubes,
    from_pairs,
    joint_sums,
    n_sums,
    pair_moments,
    skewness_of,
    sums_beside,
)
from mc.statistics.rows import Numbers
from mc.statistics.summary import count_metrics

# what fits into few bits, what needs nearly all of them, and a small spread on a large number
SIZES: Final = st.sampled_from([(0, 3), (0, 2**20), (0, 2**31), (0, 2**62), (2**40, 2**40 + 9)])


@st.composite
def tables(draw: st.DrawFn) -> list[list[int | None]]:
    """K cells with R values each, or None."""
    low, high = draw(SIZES)
    value = st.integers(low, high) | st.none() if draw(st.booleans()) else st.integers(low, high)
    n_cells, n_rows = draw(st.integers(1, 3)), draw(st.integers(0, 6))
    row = st.lists(value, min_size=n_rows, max_size=n_rows)
    return draw(st.lists(row, min_size=n_cells, max_size=n_cells))


def numbers_of(table: Sequence[Sequence[int | None]], divisor: float = 1.0) -> Numbers:
    """Put a table into arrays; where a value is None stands anything."""
    shape = len(table), len(table[0])
    anything = 77
    filled = [[anything if x is None else x for x in row] for row in table]
    known = [[x is not None for x in row] for row in table]
    return Numbers(
        np.array(filled, np.int64).reshape(shape),
        np.array(known, np.bool_).reshape(shape),
        np.zeros(shape, np.bool_),
        np.full(len(table), divisor),
    )


# --- exactness ------------------------------------------------------------------------------


@given(tables())
def test_a_histogram_counts_every_value_of_every_cell(table: list[list[int | None]]) -> None:
    found = histogram(numbers_of(table))
    for k, row in enumerate(table):
        values, counts = found.cell(k)
        got = list(zip(values.tolist(), counts.tolist(), strict=True))
        expected = sorted(Counter(x for x in row if x is not None).items())
        assert got == expected
    assert found.n.tolist() == [sum(x is not None for x in row) for row in table]


@given(tables())
def test_a_rank_is_found_as_in_the_sorted_values(table: list[list[int | None]]) -> None:
    found = histogram(numbers_of(table))
    for rank in range(1, len(table[0]) + 1):
        got = found.at(np.full(len(table), rank)).tolist()
        ordered = [sorted(x for x in row if x is not None) for row in table]
        expected = [row[min(rank, len(row)) - 1] if row else 0 for row in ordered]
        assert got == expected


@given(tables(), st.integers(0, 2**32 - 1))
def test_sums_of_products_are_those_of_pythons_integers(
    table: list[list[int | None]], seed: int
) -> None:
    taken = numbers_of(table)
    other = np.random.default_rng(seed).permuted(taken.numbers, axis=1)
    third = np.ones_like(other)
    got = joint_sums((taken.numbers, other, third), taken.known).tolist()
    for k, line in enumerate(got):
        rows = [
            row
            for row, known in zip(
                zip(*(x[k].tolist() for x in (taken.numbers, other, third)), strict=True),
                taken.known[k].tolist(),
                strict=True,
            )
            if known
        ]
        firsts = [sum(row[i] for row in rows) for i in range(3)]
        products = [
            sum(row[i] * row[j] for row in rows)
            for i, j in combinations_with_replacement(range(3), 2)
        ]
        expected = [len(rows), *firsts, *products]
        assert line == expected
        assert len(line) == n_sums(3)
        assert all(type(number) is int for number in line), "beyond 64 bits"


@pytest.mark.parametrize("most", [0, 9, 2**20, 2**31, 2**62])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_sums_by_a_histogram_and_sums_of_the_others_are_those_of_the_columns(
    most: int, share: float
) -> None:
    generator = np.random.default_rng(most)
    numbers, *others = generator.integers(-most, most, (4, 5, 60), endpoint=True)
    known = generator.random(numbers.shape) < share
    taken = Numbers(numbers, known, np.zeros_like(known), np.ones(5))
    of_others = joint_sums(others, np.ones_like(known))
    got = sums_beside(taken, histogram(taken), others, of_others).tolist()
    expected = joint_sums((numbers, *others), known).tolist()
    assert got == expected


@pytest.mark.parametrize("spread", [1, 300, 10**6, 2**40])
def test_counting_by_an_array_and_by_sorting_is_the_same(spread: int) -> None:
    generator = np.random.default_rng(spread)
    numbers = generator.integers(-spread, spread, (3, 2 * MIN_TO_COUNT), endpoint=True)
    known = generator.random(numbers.shape) < np.array([[0.0], [0.5], [1.0]])
    taken = Numbers(numbers, known, np.zeros_like(known), np.ones(3))
    found = histogram(taken)
    for k in range(3):
        got = list(zip(*(part.tolist() for part in found.cell(k)), strict=True))
        expected = sorted(Counter(numbers[k][known[k]].tolist()).items())
        assert got == expected


def test_quotients_however_near_are_told_apart_and_put_in_order() -> None:
    near = [0.0, 1.0, math.nextafter(1.0, 2.0), 1e6]
    values = np.array([*near[::-1], *near[::-1], *near])
    cells = np.repeat([1, 0, 1], len(near))
    found = from_pairs(cells, values, np.ones(len(values), np.int64), np.ones(2))
    for cell, n in enumerate((1, 2)):
        got, counts = found.cell(cell)
        assert got.tolist() == near
        assert counts.tolist() == [n] * len(near)


def test_sums_of_numbers_of_62_bits_do_not_wrap_around() -> None:
    x = np.array([[0, *[2**62 - 1] * 5]])
    got = joint_sums((x,), np.ones(x.shape, np.bool_)).tolist()
    expected = [[6, 5 * (2**62 - 1), 5 * (2**62 - 1) ** 2]]
    assert got == expected


@pytest.mark.parametrize("bits", [3, 20, 21, 30, 31, 32, 62])
def test_sums_of_cubes_are_those_of_pythons_integers(bits: int) -> None:
    """Each of the three ways, and where one ends and the next begins."""
    generator = np.random.default_rng(bits)
    largest = 2**bits - 1
    x = generator.integers(-largest, largest, (3, 7), endpoint=True)
    x[0], x[1, :2] = largest, -largest
    known = generator.random(x.shape) < 0.7
    for some in (known, np.ones_like(known)):
        got = cubes(x, some).tolist()
        lines = zip(x.tolist(), some.tolist(), strict=True)
        expected = [sum(v**3 for v, k in zip(*line, strict=True) if k) for line in lines]
        assert got == expected


@given(tables(), st.sampled_from([1.0, 1e6, 100.0, 97.22]))
def test_mean_and_variance_are_the_doubles_nearest_to_the_exact_ones(
    table: list[list[int | None]], divisor: float
) -> None:
    found = moments(histogram(numbers_of(table, divisor)))
    d = Fraction(divisor)
    for k, row in enumerate(table):
        x = [v / d for v in row if v is not None]
        n = len(x)
        if n == 0:
            assert math.isnan(found.mean[k])
        else:
            got = found.mean[k]
            expected = float(sum(x) / n)
            assert got == expected
        if n < 2:
            assert math.isnan(found.variance[k])
        else:
            got = found.variance[k]
            expected = float((sum(v * v for v in x) - sum(x) ** 2 / n) / (n - 1))
            assert got == expected


def test_the_skewness_equals_that_of_scipy() -> None:
    generator = np.random.default_rng(1)
    x = np.stack([1 + generator.poisson(3, 400), 2**40 + generator.geometric(0.1, 400)])
    found = moments(histogram(Numbers(x, x > 0, x < 0, np.array([1.0, 8.0]))))
    for k, divisor in enumerate([1.0, 8.0]):
        values = (x[k] - x[k].min()) / divisor
        got = found.skewness[k]
        expected = stats.skew(values)
        # sums of 400 doubles in another order
        assert got == pytest.approx(expected, rel=1e-11)


def test_there_is_no_skewness_without_spread() -> None:
    found = moments(histogram(numbers_of([[2**40] * 9, [None] * 9, [7, *[None] * 8]])))
    assert np.isnan(found.skewness).all()
    assert found.variance[0] == 0.0
    assert np.isnan(found.variance[1:]).all()


def test_the_moments_of_a_difference_are_rounded_once() -> None:
    """Two equal numbers of 13 digits over different divisors: doubles would keep three digits."""
    generator = np.random.default_rng(2)
    x, y = 2**41 + generator.integers(0, 9, (2, 1, 50))
    sums = joint_sums((x, y), np.ones(x.shape, np.bool_))
    for d, e in ((1.0, 1.0), (10.0, 10.0), (97.22, 97.220001)):
        differences = [
            a / Fraction(d) - b / Fraction(e)
            for a, b in zip(x[0].tolist(), y[0].tolist(), strict=True)
        ]
        mean = sum(differences) / 50
        variance = sum((v - mean) ** 2 for v in differences) / 49
        found = pair_moments(sums, np.array([d]), np.array([e]))
        got = found[0][0], found[1][0]
        expected = float(mean), float(variance)
        assert got == expected
        apart = np.var((x - 2**41) / d, ddof=1) + np.var((y - 2**41) / e, ddof=1)
        assert found[2][0] == pytest.approx(apart, rel=1e-12)  # numpy rounds at every step


def test_skewness_from_sums_equals_scipys_however_large_the_numbers() -> None:
    d = np.random.default_rng(3).geometric(0.05, 300).tolist()
    expected = float(stats.skew(d))
    for factor in (1, -1, 2**40, 10**150):
        sums = [np.array([sum((factor * v) ** p for v in d)], object) for p in (1, 2, 3)]
        got = skewness_of(np.array([300], object), *sums)[0]
        assert got == pytest.approx(math.copysign(expected, factor), rel=1e-12)


# --- parts and the whole --------------------------------------------------------------------

KINDS: Final = (OUTAGE, Cell(), Cell(fault_rounds=37), OUTAGE)
"""Equal divisors, others, and a metric that is undefined."""


def whole(n: int, seed: int) -> pl.DataFrame:
    """Rows with NULLs, zeros, and waits whose squares need more than 64 bits."""
    r = pl.col("replication")
    return random_rows(len(KINDS), n, seed).with_columns(
        drain=pl.when((r + pl.col("cell")) % 3 == 0).then(None).otherwise(pl.col("drain")),
        second_peak=pl.when(r % 4 == 0).then(0).otherwise(pl.col("second_peak")),
    )


def parts(rows: pl.DataFrame, seed: int) -> Iterator[pl.DataFrame]:
    """Deal the replications to five parts at random; the last gets none."""
    generator = np.random.default_rng(seed)
    dealt = generator.integers(0, 4, rows["replication"].n_unique())
    for part in range(5):
        yield rows.filter(pl.col("replication").is_in(np.flatnonzero(dealt == part).tolist()))


def stack_of(rows: pl.DataFrame) -> Stack:
    """The cells, all with the same number of rows."""
    [stack] = stacks(rows, cell_frame(*KINDS))
    return stack


def joined(counted: Sequence[Histogram]) -> Histogram:
    """Add the histograms of parts."""
    cells = [np.repeat(np.arange(len(c.divisors)), np.diff(c.offsets)) for c in counted]
    return from_pairs(
        np.concatenate(cells),
        np.concatenate([c.values if c.quotients is None else c.quotients for c in counted]),
        np.concatenate([c.counts for c in counted]),
        counted[0].divisors,
    )


def assert_same(got: Histogram, expected: Histogram) -> None:
    for name in ("values", "quotients", "counts", "offsets", "divisors"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)


def joined_metrics(counted: Sequence[MetricCounts]) -> MetricCounts:
    ratios = [c.ratio for c in counted if c.ratio is not None]
    return MetricCounts(
        joined([c.histogram for c in counted]),
        reduce(add, [c.traffic for c in counted]),
        reduce(add, ratios) if ratios else None,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_summary_of_the_counts_of_parts_is_that_of_all_rows(seed: int) -> None:
    rows = whole(150, seed)
    stack, dealt = stack_of(rows), [stack_of(part) for part in parts(rows, seed)]
    assert 0 in [part.n_rows for part in dealt]
    found = []
    counted = [{m.name: counts for m, _, counts in count_metrics(part)} for part in dealt]
    for metric, _, of_all in count_metrics(stack):
        of_parts = joined_metrics([part[metric.name] for part in counted])
        assert_same(of_parts.histogram, of_all.histogram)
        assert of_parts.traffic.tolist() == of_all.traffic.tolist()
        if of_all.ratio is not None and of_parts.ratio is not None:
            assert of_parts.ratio.tolist() == of_all.ratio.tolist()
        found.append((metric, of_parts))
    cells = cell_frame(*KINDS)
    got = summary(cells, np.full(len(KINDS), 150), found)
    assert_frame_equal(got, summarise(rows, cells), check_exact=True)


PAIR_COUNTS: Final = ("sums", "less", "equal", "greater", "compared", "cubes")


def columns_of(counted: PairCounts) -> dict[str, NDArray[Any]]:
    return {name: getattr(counted, name) for name in PAIR_COUNTS}


@pytest.mark.parametrize("seed", range(3))
def test_comparisons_of_the_counts_of_parts_are_those_of_all_rows(seed: int) -> None:
    rows = whole(150, seed)
    left, right = np.array([1, 2, 3]), np.array([0, 0, 0])

    def counted(stack: Stack, metric: Metric) -> PairCounts:
        numbers = stack.numbers(metric)
        return count_pairs(numbers.of(left), numbers.of(right))

    stack, dealt = stack_of(rows), [stack_of(part) for part in parts(rows, seed)]
    for metric in METRICS.values():
        found = [counted(part, metric) for part in dealt]
        of_all = counted(stack, metric)
        added = {
            name: reduce(add, [columns_of(part)[name] for part in found])
            for name in columns_of(of_all)
        }
        for name, expected in columns_of(of_all).items():
            assert added[name].tolist() == expected.tolist(), (metric.name, name)
        assert not of_all.cubes[of_all.left != of_all.right].any(), "kept for equal divisors only"
        of_parts = PairCounts(**added, left=of_all.left, right=of_all.right)
        known_well = np.ones(len(left), np.bool_)
        one, other = comparison(of_parts, known_well), comparison(of_all, known_well)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_of_the_counts_of_parts_are_those_of_all_rows(seed: int) -> None:
    rows, cells = whole(150, seed), cell_frame(*KINDS)
    claims = [
        claim("<", (0, 3, 2), ("calls", "drain", "multiplier")),
        claim("<=", (2, 0), ("window_rate", "wait_total"), times=1.1),
        claim("between", (0, 1), ("second_peak",), (0, 25)),
        claim("=", (0, 3), ("peak",), margin=4.0),
    ]
    of_parts = [count_claims(part, cells, claims) for part in parts(rows, seed)]
    added: list[ClaimCounts] = [reduce(add, counted) for counted in zip(*of_parts, strict=True)]
    of_all = count_claims(rows, cells, claims)
    for one, other in zip(added, of_all, strict=True):
        assert (one.n, one.n_holds) == (other.n, other.n_holds)
        assert one.links.tolist() == other.links.tolist()
    got = verdicts(added, cells, claims)
    expected = judge(rows, cells, claims)
    assert_frame_equal(got, expected, check_exact=True)


@given(tables(), st.integers(0, 2**32 - 1))
def test_histograms_of_any_parts_add_up(table: list[list[int | None]], seed: int) -> None:
    taken = numbers_of(table)
    dealt = np.random.default_rng(seed).integers(0, 3, taken.numbers.shape[1])
    found = []
    for p in range(3):
        own = dealt == p
        part = Numbers(
            taken.numbers[:, own], taken.known[:, own], taken.later[:, own], taken.divisors
        )
        found.append(histogram(part))
    assert_same(joined(found), histogram(taken))


@given(tables(), st.integers(0, 2**32 - 1))
def test_sums_of_any_parts_add_up(table: list[list[int | None]], seed: int) -> None:
    taken = numbers_of(table)
    dealt = np.random.default_rng(seed).integers(0, 3, taken.numbers.shape[1])
    other = taken.numbers[:, ::-1]
    found = [
        joint_sums((taken.numbers[:, dealt == p], other[:, dealt == p]), taken.known[:, dealt == p])
        for p in range(3)
    ]
    got = reduce(add, found).tolist()
    expected = joint_sums((taken.numbers, other), taken.known).tolist()
    assert got == expected
