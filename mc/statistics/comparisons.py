"""The comparisons: one cell against another, replication by replication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import Column, schema_of
from mc.model.columns import OF_METRIC
from mc.statistics import intervals
from mc.statistics.counts import (
    Histogram,
    Sums,
    cubes,
    histogram,
    joint_sums,
    moments,
    pair_moments,
    skewness_of,
)
from mc.statistics.estimates import as_frame, interval_columns, mean_columns
from mc.statistics.rows import Numbers, Stack, metrics_in, stacks

_SHARES: Final = ("less", "equal", "greater")

COMPARISONS_COLUMNS: Final[dict[str, Column]] = (
    {
        "cell": Column("int32", "", "number of the cell"),
        "baseline": Column("int32", "", "number of the cell it is compared with"),
        "metric": Column("text", "", "what is compared"),
        "n": Column(
            "int64", "replications", "replications in which the metric is defined in both cells"
        ),
        "share_defined": Column(
            "float",
            "share",
            "share of n among the replications that are compared: in the others the metric did not "
            "come within the run in one cell or in both; the mean is without these",
        ),
        "mean_difference": Column("float", OF_METRIC, "mean over replications of cell - baseline"),
        "sd": Column(
            "float",
            OF_METRIC,
            "standard deviation, between replications, of the difference to the baseline",
        ),
        "mcse": Column(
            "float", OF_METRIC, "Monte Carlo standard error of the mean difference: sd / sqrt(n)"
        ),
    }
    | interval_columns(
        "ci", OF_METRIC, "mean difference", "paired Student t; NULL where `note` says why"
    )
    | {"relative_change": Column("float", "", "mean of the cell over mean of the baseline, less 1")}
    | interval_columns("relative", "", "relative change", "delta method, paired")
    | {
        f"share_{name}{end}": Column("float", "share", f"{meaning}{text}")
        for name, text in (
            ("less", "replications in which the cell is below its baseline"),
            ("equal", "replications in which both are equal, and come within the run"),
            ("greater", "replications in which the cell is above its baseline"),
        )
        for end, meaning in (
            ("", "share of "),
            ("_low", "lower end of the 95 % interval of the share of "),
            ("_high", "upper end of the 95 % interval of the share of "),
        )
    }
    | {
        "variance_reduction": Column(
            "float",
            "",
            "how many times as many replications independent samples would need",
        ),
        "note": Column(
            "text", "", "why the interval of the mean difference is missing, or not to be trusted"
        ),
    }
)
"""The columns of the comparisons, in their order."""

COMPARISONS_SCHEMA: Final = schema_of(COMPARISONS_COLUMNS)


UNLIKE: Final = "another window or traffic: skewness not checked"
"""A note: the cubes of the differences, which skewness needs, are kept for equal divisors only."""


@dataclass(frozen=True)
class PairCounts:
    """Counts of one metric in P pairs of cells; those of two ranges may be added.

    Attributes
    ----------
    sums : Sums, shape (P, 6)
        Of the numbers x of the cell and y of its baseline.
    less, equal, greater : ndarray of int64, shape (P,)
        Replications in which the cell is below its baseline, equal to it, and above it. What did
        not come within the run is above all that did; of two such the order is unknown.
    compared : ndarray of int64, shape (P,)
        Replications in which each of the two is defined or later than the run.
    cubes : ndarray of object, shape (P,)
        Sum of (x - y)**3, a whole number; 0 for a pair with two different divisors.
    left, right : ndarray of float64, shape (P,)
        Divisors of x and y.
    """

    sums: Sums
    less: NDArray[np.int64]
    equal: NDArray[np.int64]
    greater: NDArray[np.int64]
    compared: NDArray[np.int64]
    cubes: NDArray[Any]
    left: NDArray[np.float64]
    right: NDArray[np.float64]


def count_pairs(one: Numbers, other: Numbers) -> PairCounts:
    """Sum one metric over P cells and P others, row by row of the same replication.

    Numbers over the same divisor are compared as integers, ratios of counters as fractions, others
    as the doubles they stand for.
    """
    known = one.known & other.known
    same = one.divisors == other.divisors
    if one.fractions is not None and other.fractions is not None:
        left, right = crosswise(one.fractions, other.fractions)
        less, equal = left < right, left == right
    elif same.all():
        less, equal = one.numbers < other.numbers, one.numbers == other.numbers
    else:
        left, right = one.values, other.values
        less = np.where(same[:, None], one.numbers < other.numbers, left < right)
        equal = np.where(same[:, None], one.numbers == other.numbers, left == right)
    n_less, n_equal = (np.count_nonzero(holds & known, axis=1) for holds in (less, equal))
    n_known = np.count_nonzero(known, axis=1)
    earlier, later, neither = (
        np.count_nonzero(holds, axis=1) if one.later.any() or other.later.any() else 0
        for holds in (one.known & other.later, one.later & other.known, one.later & other.later)
    )
    return PairCounts(
        joint_sums((one.numbers, other.numbers), known),
        n_less + earlier,
        n_equal,
        n_known - n_less - n_equal + later,
        n_known + earlier + later + neither,
        cubes(one.numbers - other.numbers, known & same[:, np.newaxis]),
        one.divisors,
        other.divisors,
    )


Fractions = tuple[NDArray[Any], NDArray[Any]]


def crosswise(one: Fractions, other: Fractions) -> tuple[NDArray[Any], NDArray[Any]]:
    """Whole numbers that are in the same order as the fractions, which have positive denominators.

    ``a / b < c / d`` where ``a d < c b``; beyond 64 bits in Python's integers.
    """
    (a, b), (c, d) = one, other
    largest = max(
        int(np.abs(x).max(initial=0)) * int(y.max(initial=0)) for x, y in ((a, d), (c, b))
    )
    exact = np.int64 if largest < 2**62 else object  # differences of these fit, too
    return a.astype(exact) * d.astype(exact), c.astype(exact) * b.astype(exact)


def compare(rows: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Compare every cell with its baseline, replication by replication.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order.
    cells : polars.DataFrame
        The table of cells; `baseline` is the cell to compare with. A cell that is its own
        baseline is left out.

    Returns
    -------
    polars.DataFrame
        In the schema of `COMPARISONS_SCHEMA`, a line for each metric. `n` counts the replications
        that both cells have and in which the metric is defined in both, and means are of these; a
        difference is ``cell - baseline``. In the shares what did not come within the run is above
        all that did; where neither came, a replication is in none of the three.
        `variance_reduction` is how many times as many replications
        independent samples would need for the same interval; NULL where the difference never
        varies.

    Notes
    -----
    Paired t interval: Law, *Simulation Modeling and Analysis*, section 10.2.1; it needs neither
    independent samples nor equal variances. The relative change is a ratio of two means, see
    `intervals.ratio_of_means`. Shares: `intervals.share_interval`.
    """
    metrics = metrics_in(rows.columns)
    frames, positions = [COMPARISONS_SCHEMA.to_frame()], [np.empty(0, np.int64)]
    for stack, left, right in pairs(rows, cells):
        columns = {}
        for metric in metrics:
            numbers = stack.numbers(metric)
            own, others = numbers.of(left), numbers.of(right)
            judged = mean_has_interval(histogram(own))
            columns[metric.name] = comparison(count_pairs(own, others), judged)
        cell = stack.cells["cell"].to_numpy()
        keys = {"cell": cell[left], "baseline": cell[right]}
        frames.append(as_frame(COMPARISONS_SCHEMA, keys, columns))
        positions.append(np.repeat(stack.positions[left], len(metrics)))
    return pl.concat(frames)[np.argsort(np.concatenate(positions), kind="stable")]


def comparison(counted: PairCounts, known_well: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Columns of the comparisons of one metric, P values each, NaN for NULL.

    `known_well` says whether the mean of the cell itself has an interval: what is rare there makes
    a rough numerator.
    """
    n = counted.sums[:, 0].astype(np.int64)
    mean, variance, independent = pair_moments(counted.sums, counted.left, counted.right)
    _, x, y, xx, xy, yy = counted.sums.T
    skewness = skewness_of(counted.sums[:, 0], x - y, xx - 2 * xy + yy, counted.cubes)
    # without the cubes only this is known: whether the differences vary
    unknown = np.where(variance > 0, 0.0, np.nan)
    skewness = np.where(counted.left == counted.right, skewness, unknown)
    judged = n, n - counted.equal, skewness
    has_interval = intervals.mean_has_interval(*judged)
    columns = mean_columns(n, mean, variance, has_interval)
    columns["mean_difference"] = columns.pop("mean")
    columns["note"] = intervals.mean_notes(*judged)
    free = np.array([note is None for note in columns["note"].tolist()], np.bool_)
    columns["note"][free & (counted.left != counted.right)] = UNLIKE
    columns |= _relative(counted, has_interval & known_well)
    some = np.maximum(counted.compared, 1)
    columns["share_defined"] = np.where(counted.compared > 0, n / some, np.nan)
    for name in _SHARES:
        n_holds = getattr(counted, name)
        columns[f"share_{name}"] = np.where(counted.compared > 0, n_holds / some, np.nan)
        low, high = intervals.share_interval(n_holds, counted.compared)
        columns[f"share_{name}_low"], columns[f"share_{name}_high"] = low, high
    columns["variance_reduction"] = np.divide(
        independent, variance, out=np.full(len(n), np.nan), where=variance > 0
    )
    return columns


def mean_has_interval(counted: Histogram) -> NDArray[np.bool_]:
    """Whether the mean of the values has an interval, in each of K cells."""
    sample = moments(counted)
    return intervals.mean_has_interval(sample.n, sample.n - counted.n_zero, sample.skewness)


def _relative(
    counted: PairCounts, has_interval: NDArray[np.bool_]
) -> dict[str, NDArray[np.float64]]:
    """Mean of x / left over mean of y / right, less 1, with its interval."""
    scales = [
        1 if d == e else Fraction(e) / Fraction(d)
        for d, e in zip(counted.left.tolist(), counted.right.tolist(), strict=True)
    ]
    changes = intervals.ratios(counted.sums, scales, has_interval, change=True)
    return dict(zip(("relative_change", "relative_low", "relative_high"), changes, strict=True))


def pairs(
    rows: pl.DataFrame, cells: pl.DataFrame
) -> Iterator[tuple[Stack, NDArray[np.int64], NDArray[np.int64]]]:
    """Pair each cell with its baseline: a stack, and the index in it of both.

    Both have the same replications there. Cells that have others than their baseline come last,
    one by one, each with the replications that both have.
    """
    alone = []
    for stack in stacks(rows, cells):
        numbers, baselines = (stack.cells[name].to_numpy() for name in ("cell", "baseline"))
        left = np.flatnonzero(numbers != baselines)
        right = np.minimum(np.searchsorted(numbers, baselines[left]), len(numbers) - 1)
        alike = numbers[right] == baselines[left]
        replications = stack.replications
        alike &= np.all(replications[left] == replications[right], axis=1)
        alone += stack.positions[left[~alike]].tolist()
        if alike.any():
            yield stack, left[alike], right[alike]
    by_cell = split(rows) if alone else {}
    numbers_of = cells["cell"].to_list()
    for position in alone:
        both = [position, numbers_of.index(cells["baseline"][position])]
        frames = align([by_cell.get(numbers_of[i], rows.clear()) for i in both])
        stack = Stack.of(cells[both], np.array(both), pl.concat(frames))
        yield stack, np.array([0]), np.array([1])


def split(rows: pl.DataFrame) -> Mapping[int, pl.DataFrame]:
    """Split the rows by cell; slices without a copy where they are sorted by it."""
    if not rows["cell"].is_sorted():
        rows = rows.sort("cell")
    runs = rows["cell"].rle().struct.unnest()
    by_cell, start = {}, 0
    for length, index in runs.select("len", "value").iter_rows():
        by_cell[index] = rows.slice(start, length)
        start += length
    return by_cell


def align(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Keep of some cells the replications that all of them have, in ascending order."""
    ordered = [frame.sort("replication") for frame in frames]
    replications = [frame["replication"] for frame in ordered]
    if all(column.equals(replications[0]) for column in replications):
        return ordered
    common = reduce(np.intersect1d, [column.to_numpy() for column in replications])
    wanted = pl.Series(common, dtype=replications[0].dtype).implode()
    return [frame.filter(pl.col("replication").is_in(wanted)) for frame in ordered]
