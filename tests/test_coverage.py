"""Does every interval cover what it promises, on this model? As a script, print the table.

A pool of replications of each cell stands for the truth. An experiment draws n of them with
replacement, so that the pool's own mean, quantile or share is exactly what it estimates; the
share of experiments whose interval holds it is the coverage. Only intervals that are given
without a note count; how often there is none, or a note, is in the table.

    python tests/test_coverage.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

import mc
from mc.statistics import intervals
from mc.statistics.control import SUMS, adjusted_means

N_POOL: Final = 200_000
N_EXPERIMENTS: Final = 10_000
N_DRAWS: Final = 20_000_000
"""With large n there are fewer experiments: 2,000 of 10,000 replications."""

SIZES: Final = (30, 100, 200, 1000, 10_000)

HEALTHY: Final[dict[str, Any]] = {"failure_rate": 0.025}
OUTAGE: Final[dict[str, Any]] = {"fault_rounds": 100, "fault_capacity": 0}
DEGRADATION: Final[dict[str, Any]] = {"fault_rounds": 1000, "fault_capacity": 1}

CELLS: Final = {
    "healthy 3": mc.Cell(tries=(3, 1, 1), **HEALTHY),
    "outage 1": mc.Cell(tries=(1, 1, 1), **OUTAGE),
    "outage 3": mc.Cell(tries=(3, 1, 1), **OUTAGE),
    "outage 9": mc.Cell(tries=(3, 3, 1), **OUTAGE),
    "outage 27": mc.Cell(tries=(3, 3, 3), **OUTAGE),
    "outage 27, budget 0.3": mc.Cell(tries=(3, 3, 3), budget=0.3, **OUTAGE),
    "degradation 3": mc.Cell(tries=(3, 1, 1), **DEGRADATION),
    "degradation 9": mc.Cell(tries=(3, 3, 1), **DEGRADATION),
    "degradation 27": mc.Cell(tries=(3, 3, 3), **DEGRADATION),
}
"""Scenario and most attempts of a request."""

SHARE: Final = "share of zeros"

Column = NDArray[Any]
Ends = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]
"""Of E experiments: lower end, upper end, and whether the interval is given without a note."""


def pools() -> dict[str, dict[str, Column]]:
    """Simulate every cell; whole numbers, and the multiplier."""
    frame = mc.simulate(list(CELLS.values()), N_POOL, seed=5)
    found: dict[str, dict[str, Column]] = {}
    for (cell,), rows in frame.group_by("cell", maintain_order=True):
        columns = {name: rows[name].to_numpy() for name in frame.columns if name != "drain"}
        columns["multiplier"] = columns["calls"] / columns["requests"]
        found[list(CELLS)[int(cell)]] = columns
    return found


# --- methods: from E experiments, shape (E, n) for each column, to E intervals --------------


def mean(x: Column) -> Ends:
    """Student's interval, where there is no note."""
    n = x.shape[1]
    centre = x.mean(axis=1)
    deviations = x - centre[:, np.newaxis]
    squares = np.square(deviations).mean(axis=1)
    cubes = (np.square(deviations) * deviations).mean(axis=1)
    skewness = np.full(len(x), math.nan)
    np.divide(cubes, squares**1.5, out=skewness, where=squares > 0)
    notes = intervals.mean_notes(n, np.count_nonzero(x, axis=1), skewness)
    half_width = intervals.t_half_width(n, np.sqrt(squares / (n - 1)))
    return centre - half_width, centre + half_width, np.array([note is None for note in notes])


def difference(x: Column, y: Column) -> Ends:
    """Student's interval of paired differences, where there is no note."""
    return mean(x - y)


def quantile(p: Fraction, x: Column) -> Ends:
    """Order statistics."""
    ranks = intervals.quantile_ranks(x.shape[1], p)
    if ranks is None:
        nothing = np.full(len(x), math.nan)
        return nothing, nothing, np.zeros(len(x), np.bool_)
    places = [rank - 1 for rank in ranks]
    low, high = np.partition(x, places, axis=1)[:, places].T
    return low, high, np.ones(len(x), np.bool_)


def share_zero(x: Column) -> Ends:
    """Interval of the share of zeros."""
    low, high = intervals.share_interval(np.count_nonzero(x == 0, axis=1), x.shape[1])
    return low, high, np.ones(len(x), np.bool_)


def ratio(change: bool, x: Column, y: Column) -> Ends:
    """Ratio of two means, or relative change, where the difference has no note."""
    estimator = intervals.relative_change if change else intervals.ratio_of_means
    sums = [column.sum(axis=1).tolist() for column in (x, y, x * x, x * y, y * y)]
    found = np.array([estimator(x.shape[1], *each) for each in zip(*sums, strict=True)])
    given = ~np.isnan(found[:, 2])
    return found[:, 2], found[:, 3], given & difference(x, y)[2] if change else given


def control(expectations: tuple[Fraction, Fraction], y: Column, z1: Column, z2: Column) -> Ends:
    """Regression-adjusted mean."""
    columns = {"y": y, "z1": z1, "z2": z2}
    sums = {"n": [y.shape[1]] * len(y)}
    for name in SUMS[1:]:
        factors = [name] if name in columns else ["y", "y"] if name == "yy" else split(name)
        sums[name] = np.prod([columns[factor] for factor in factors], axis=0).sum(axis=1).tolist()
    mu1, mu2 = expectations
    many = len(y)
    found = adjusted_means(sums, [mu1] * many, [mu2] * many, [1.0] * many)
    return found["low"], found["high"], ~np.isnan(found["low"])


def split(name: str) -> list[str]:
    """`yz1` is y times z1."""
    return [name[:-2], name[-2:]]


# --- the study ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One method on one or two columns of the pools, and the bounds its coverage must keep."""

    method: str
    cell: str
    metric: str
    columns: list[Column]
    truth: float
    ends: Callable[..., Ends]
    least: float = 0.94
    most: float = 0.96


@dataclass(frozen=True)
class Row:
    """What came out for one n."""

    case: Case
    n: int
    n_experiments: int
    n_intervals: int
    n_covered_at_all: int
    n_given: int
    n_covered: int

    def interval(self) -> tuple[float, float]:
        """Wilson's, or the exact one, of the coverage of those given without a note."""
        low, high = intervals.share_interval(self.n_covered, self.n_given)
        return float(low), float(high)

    def is_offered(self) -> bool:
        """In at least one experiment of twenty: of fewer the coverage is not known."""
        return self.n_given * 20 >= self.n_experiments

    def is_right(self) -> bool:
        """Whether the coverage is within the bounds, or its own interval reaches into them."""
        low, high = self.interval()
        most = self.case.most
        if self.case.method == SHARE:  # with few, the exact interval covers more
            truth = self.case.truth
            few = min(truth, 1 - truth) * self.n < 2 * intervals.MIN_EITHER
            most = 1.0 if few else most
        return high >= self.case.least and low <= most


def cases(pool: dict[str, dict[str, Column]]) -> Iterator[Case]:
    """What is studied: normal-like, skewed, zero-heavy and discrete metrics."""

    def case(method: str, cell: str, metric: str, truth: float, ends: Callable[..., Ends]) -> Case:
        return Case(method, cell, metric, [pool[cell][metric]], truth, ends)

    for cell, metric in (
        ("outage 27", "window_calls"),
        ("degradation 9", "calls"),
        ("degradation 9", "multiplier"),
        ("degradation 9", "dropped"),
        ("degradation 3", "dropped"),
        ("healthy 3", "dropped"),
        ("outage 27", "peak"),
        ("degradation 27", "second_peak"),
        ("degradation 27", "wait_max"),
        ("outage 9", "late"),
    ):
        yield case("mean, Student", cell, metric, pool[cell][metric].mean(), mean)
    for cell, metric in (
        ("outage 27", "window_calls"),
        ("degradation 9", "dropped"),
        ("outage 27", "peak"),
    ):
        for p in (Fraction(1, 20), Fraction(1, 2), Fraction(19, 20)):
            x = pool[cell][metric]
            truth = np.quantile(x, float(p), method="inverted_cdf")
            name = f"quantile {float(p):g}"
            yield Case(name, cell, metric, [x], truth, partial(quantile, p), 0.945, 1.0)
    for cell, metric in (
        ("degradation 9", "dropped"),
        ("healthy 3", "dropped"),
        ("outage 27", "in_flight"),
        ("degradation 27", "dropped"),
    ):
        yield case(SHARE, cell, metric, (pool[cell][metric] == 0).mean(), share_zero)
    calls, requests = (pool["degradation 9"][name] for name in ("calls", "requests"))
    yield Case(
        "ratio of means", "degradation 9", "calls / requests",
        [calls, requests], calls.mean() / requests.mean(), partial(ratio, False),
    )  # fmt: skip
    for left, right, metric in (
        ("outage 3", "outage 1", "dropped"),
        ("outage 27", "outage 9", "calls"),
        ("degradation 27", "degradation 9", "calls"),
    ):
        x, y = pool[left][metric], pool[right][metric]
        both = f"{left} - {right.split()[1]}"
        yield Case("paired difference", both, metric, [x, y], (x - y).mean(), difference)
        truth = x.mean() / y.mean() - 1
        yield Case("relative change", both, metric, [x, y], truth, partial(ratio, True))
    for cell, metric in (
        ("outage 3", "calls"),
        ("outage 3", "dropped"),
        ("outage 27", "window_calls"),
        ("outage 27, budget 0.3", "dropped"),
        ("degradation 9", "calls"),
        ("healthy 3", "calls"),
        ("healthy 3", "successful"),
    ):
        columns = [pool[cell][name] for name in (metric, "requests", "window_requests")]
        known = [Fraction(int(z.sum()), len(z)) for z in columns[1:]]
        ends = partial(control, (known[0], known[1]))
        yield Case("control variates", cell, metric, columns, columns[0].mean(), ends)


def study(case: Case, n: int, seed: int = 6) -> Row:
    """Draw experiments of n replications until there are enough."""
    generator = np.random.default_rng([seed, n])
    n_experiments = min(N_EXPERIMENTS, N_DRAWS // n)
    counts = np.zeros(4, np.int64)
    done = 0
    while done < n_experiments:
        size = min(n_experiments - done, max(1, 1_000_000 // n))
        drawn = generator.integers(0, N_POOL, (size, n))
        low, high, given = case.ends(*(column[drawn] for column in case.columns))
        exists, covers = ~np.isnan(low), (low <= case.truth) & (case.truth <= high)
        counts += [np.count_nonzero(x) for x in (exists, covers, given, given & covers)]
        done += size
    return Row(case, n, n_experiments, *counts.tolist())


def table(rows: list[Row]) -> str:
    """Render the study in Markdown, without the sizes at which there is no interval."""
    lines = [
        "| method | cell | metric | n | without note | coverage of these | 95 % | of all |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        if row.n_intervals == 0:
            continue
        case = row.case
        cells = [case.method, case.cell, case.metric, f"{row.n:,}"]
        cells.append(f"{100 * row.n_given / row.n_experiments:.0f} %")
        if row.is_offered():
            low, high = row.interval()
            cells.append(f"{100 * row.n_covered / row.n_given:.1f} %")
            cells.append(f"{100 * low:.1f} .. {100 * high:.1f}")
        else:
            cells += ["", ""]
        cells.append(f"{100 * row.n_covered_at_all / row.n_intervals:.1f} %")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def pool() -> dict[str, dict[str, Column]]:
    return pools()


@pytest.mark.slow
def test_every_interval_without_a_note_covers_what_it_promises(
    pool: dict[str, dict[str, Column]],
) -> None:
    rows = [study(case, n) for case in cases(pool) for n in SIZES]
    offered = [row for row in rows if row.is_offered()]
    got = table([row for row in offered if not row.is_right()])
    expected = table([])
    assert got == expected
    assert {row.case.method for row in offered} == {case.method for case in cases(pool)}


@pytest.mark.slow
def test_pairs_and_controls_save_as_many_replications_as_they_should(
    pool: dict[str, dict[str, Column]],
) -> None:
    """Factors of the variance: 46 and 2,600, known to a few percent from 200,000 replications."""
    x, y = (pool[cell]["dropped"] for cell in ("outage 3", "outage 1"))
    paired = (x.var() + y.var()) / (x - y).var()
    assert 43 < paired < 49
    columns = [pool["outage 3"][name] for name in ("calls", "requests", "window_requests")]
    residual = np.linalg.lstsq(np.column_stack([np.ones(N_POOL), *columns[1:]]), columns[0])[1]
    assert columns[0].var() * N_POOL / residual[0] > 1000


if __name__ == "__main__":
    simulated = pools()
    sys.stdout.write(table([study(case, n) for case in cases(simulated) for n in SIZES]))
