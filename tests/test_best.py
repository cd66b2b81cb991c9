"""The best cell and the frontier: by hand, on grids with known answers, at the edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import mc
from mc.statistics.best import (
    NO,
    UNDECIDED,
    YES,
    Best,
    Constraint,
    Goal,
    Paired,
    Relation,
    find_best,
    find_frontier,
)

N_EXPERIMENTS = 500
AT_LEAST = 0.95


def paired(means: Sequence[float], n: int, generator: np.random.Generator) -> Paired:
    """Draw cells that see the same luck, and some of their own, rounded to counts."""
    k = len(means)
    common, own = generator.normal(0, 50, n), generator.normal(0, 20, (k, n))
    return Paired(np.rint(np.array(means)[:, np.newaxis] + common + own).astype(np.int64))


# --- the best -------------------------------------------------------------------------------


def test_the_intervals_are_hsus_with_paired_errors() -> None:
    values = paired([10, 11, 16], 60, np.random.default_rng(14)).numbers
    got = find_best(Paired(values))

    def width(i: int, j: int) -> float:
        return float(stats.sem(values[i] - values[j]) * stats.t.isf(0.05 / 2, 59))

    m = values.mean(axis=1)
    d = m[:, np.newaxis] - m
    low = [min(0, max(d[i, j] - width(i, j) for j in range(3) if j != i)) for i in range(3)]
    high = [max(0.0, *(d[i, j] + width(i, j) for j in range(3) if j != i)) for i in range(3)]
    assert got.mean == pytest.approx(m)
    assert got.difference == pytest.approx([m[0] - m[1], m[1] - m[0], m[2] - m[0]])
    assert got.low == pytest.approx(low)
    assert got.high == pytest.approx(high)
    assert got.candidate.tolist() == [True, True, False]
    assert got.best is None


def test_the_greatest_is_the_least_of_the_negative() -> None:
    values = paired([10, 20, 12], 500, np.random.default_rng(1)).numbers
    least, greatest = find_best(Paired(-values), "min"), find_best(Paired(values), "max")
    assert greatest.best == least.best == 1
    for got, expected in (
        (greatest.difference, -least.difference),
        (greatest.low, -least.high),
        (greatest.high, -least.low),
    ):
        np.testing.assert_array_equal(got, expected)


def test_divisors_of_one_cell_make_its_metric_a_rate() -> None:
    numbers = np.array([[10, 12, 14, 11], [100, 130, 150, 101]]).repeat(50, axis=1)
    got = find_best(Paired(numbers, np.array([1.0, 100.0])))
    expected = find_best(Paired(numbers / np.array([[1], [100]])))
    assert got.mean == pytest.approx(expected.mean)
    assert got.low == pytest.approx(expected.low)
    assert got.best == 1


def test_a_common_divisor_scales_the_intervals() -> None:
    numbers = paired([10, 11, 30], 40, np.random.default_rng(2)).numbers
    whole, scaled = find_best(Paired(numbers)), find_best(Paired(numbers, 4.0))
    assert scaled.low == pytest.approx(whole.low / 4)
    assert scaled.high == pytest.approx(whole.high / 4)
    assert scaled.candidate.tolist() == whole.candidate.tolist()


@pytest.mark.parametrize("size", [1, 10**6])
def test_whole_numbers_have_the_errors_of_doubles(size: int) -> None:
    """Small ones by a product of matrices, huge ones and doubles pair by pair."""
    numbers = size * paired([10, 11, 12, 40], 60, np.random.default_rng(13)).numbers
    numbers[2] = numbers[1] + 7 * size
    whole, doubles = find_best(Paired(numbers, 3.0)), find_best(Paired(numbers.astype(float), 3.0))
    for got, expected in ((whole.low, doubles.low), (whole.high, doubles.high)):
        assert got == pytest.approx(expected, rel=1e-12)
    assert not whole.candidate[3]


def test_cells_equal_in_every_replication_cannot_be_told_apart() -> None:
    """That 200 replications show no difference does not make it 0."""
    values = paired([3, 3, 400], 200, np.random.default_rng(15)).numbers
    values[1] = values[0]
    for span in (math.inf, 1000.0):
        got = find_best(Paired(values, span=span))
        assert got.candidate.tolist() == [True, True, False]
        assert got.best is None
        assert got.difference[:2].tolist() == [0.0, 0.0]
        assert (got.low[:2] < 0).all()
        assert (got.high[:2] > 0).all()


def test_what_was_never_seen_is_not_taken_for_impossible() -> None:
    """B is worse by far, but for 200 drops in one of 1,000 replications: 35 % of runs named it.

    No request counts twice, so differences are bounded by the requests, some 4,200 in two cells
    each; with that a fresh seed names a best as seldom as never.
    """
    generator = np.random.default_rng(18)
    named = 0
    for _ in range(200):
        a = generator.random(1000) < 0.10
        b = (generator.random(1000) < 0.03) + 200 * (generator.random(1000) < 0.001)
        named += find_best(Paired(np.stack([a.astype(np.int64), b]), span=4200.0)).best is not None
        assert find_best(Paired(np.stack([a.astype(np.int64), b]))).best is None, "nothing known"
    assert named == 0


def test_a_difference_that_never_varied_may_still_vary() -> None:
    values = np.array([[5] * 1000, [9] * 1000])
    assert find_best(Paired(values)).best is None
    got = find_best(Paired(values, span=100.0))
    assert got.high[1] == pytest.approx(4 + bernstein(values[1] - values[0], 200.0, 2 * 0.05))
    assert find_best(Paired(values, span=20.0)).best == 0


def test_of_fifty_equal_cells_some_is_surely_not_better_than_all_others() -> None:
    """Which is true; that it is not the best would be wrong, and was said in 64 % of runs."""
    values = Paired(np.random.default_rng(19).poisson(50, (50, 400)))
    got = find_best(values)
    assert not got.candidate.all()
    # of each mean less the best of the others, which is 0 for all
    assert ((got.low <= 0) & (got.high >= 0)).all()
    assert (got.low[~got.candidate] == 0).all()


def bernstein(differences: NDArray[Any], span: float, alpha: float) -> float:
    """Theorem 4 of Maurer and Pontil (2009), on both sides: alpha / 2 each."""
    n, log = len(differences), math.log(2 / (alpha / 2))
    slack = 7 * span * log / (3 * (n - 1))
    return math.sqrt(2 * differences.var(ddof=1) * log / n) + slack


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_rare_differences_have_the_interval_of_their_span(kind: type) -> None:
    """299 of 1,200 differ, all to one side: Student's interval would exclude 0."""
    values = np.full((2, 1200), 50)
    values[1, 100:399] += 2
    got = find_best(Paired(values.astype(kind), span=90.0))
    width = bernstein(values[1] - values[0], 2 * 90, 2 * 0.05)
    mean = 2 * 299 / 1200
    assert got.high[1] == pytest.approx(mean + width)
    assert got.low[1] == pytest.approx(min(0, mean - width))
    assert got.candidate.all()
    values[1, 399] += 2  # 300: from here on it is Student's
    assert find_best(Paired(values.astype(kind), span=90.0)).best == 0


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_skewed_differences_have_the_interval_of_their_span(kind: type) -> None:
    values = np.zeros((2, 600), np.int64)
    values[1] = 2
    values[1, :5] = 80  # skewness 11: needs 3,000
    got = find_best(Paired(values.astype(kind), span=80.0))
    difference = values[1]
    width = bernstein(difference, 2 * 80, 2 * 0.05)
    assert got.high[1] == pytest.approx(difference.mean() + width)
    assert got.candidate.all()


def test_a_mean_of_rare_values_is_not_surely_within_its_bound() -> None:
    numbers = np.zeros((2, 1000), np.int64)
    numbers[1] = 100
    numbers[1, :500] = 120
    drops = Paired(numbers, span=400.0)
    found = [
        find_best(drops, "min", [Constraint(drops, "<=", bound)]).feasible.tolist()
        for bound in (0.1, 10.0)
    ]
    assert found == [[UNDECIDED, NO], [YES, NO]]


def test_so_many_replications_as_it_says_tell_the_best_from_the_next() -> None:
    few = np.random.default_rng(5).normal([[10.0], [10.0], [30.0]], 2.0, (3, 100))
    few[1] += few[0].mean() - few[1].mean() + 0.1
    got = find_best(Paired(few))
    assert got.candidate.tolist() == [True, True, False]
    assert got.best is None
    assert got.to_decide[0] == got.to_decide[1] > 100
    assert got.to_decide[2] == 0
    n = math.ceil(got.to_decide[0] / 100)
    assert find_best(Paired(np.tile(few, n))).best == 0, "with means and spreads as they are"
    assert find_best(Paired(np.tile(few, int(0.9 * n)))).best is None


def test_so_many_replications_as_it_says_decide_whether_a_cell_is_feasible() -> None:
    few = np.random.default_rng(5).normal([[10.0], [20.0]], 2.0, (2, 100))
    bound = [Constraint(Paired(few), "<=", float(few[0].mean()) + 0.1)]
    got = find_best(Paired(few), "min", bound)
    assert got.feasible.tolist() == [UNDECIDED, NO]
    n = math.ceil(got.to_decide[0] / 100)
    for times, expected in ((n, YES), (int(0.9 * n), UNDECIDED)):
        many = Paired(np.tile(few, times))
        again = [Constraint(many, "<=", bound[0].bound)]
        assert find_best(many, "min", again).feasible[0] == expected


@pytest.mark.parametrize("span", [math.inf, 1e5])
def test_what_every_replication_exceeds_by_far_the_mean_exceeds_however_skewed(span: float) -> None:
    numbers = np.full((3, 60), 16)
    numbers[:, ::2] += 1
    numbers[1, 7] = 430  # skewness 7.5
    numbers[2, 7] = 0
    numbers[2, 8] = 430
    peak = Paired(numbers, span=span)

    def feasible(relation: Relation, bound: float) -> list[str]:
        return list(find_best(peak, "min", [Constraint(peak, relation, bound)]).feasible)

    assert feasible("<=", 2) == [NO, NO, UNDECIDED]
    assert feasible(">", 2)[:2] == [YES, YES]
    assert feasible("<=", 15)[1] == UNDECIDED


def test_one_replication_tells_nothing() -> None:
    got = find_best(
        Paired(np.array([[1], [9]])), "min", [Constraint(Paired(np.array([[1], [9]])), "<=", 5)]
    )
    assert got.candidate.tolist() == [True, True]
    assert got.feasible.tolist() == [UNDECIDED, UNDECIDED]
    assert got.best is None
    assert np.isinf(got.low).all()


def test_a_cell_alone_is_the_best_of_one() -> None:
    got = find_best(Paired(np.array([[1, 2, 3]])))
    assert got.best == 0
    assert math.isnan(got.difference[0])
    assert (got.low[0], got.high[0]) == (-math.inf, math.inf)


def test_what_is_surely_not_allowed_is_no_candidate_and_beats_none() -> None:
    n = 200
    objective = paired([5, 100, 200], n, np.random.default_rng(3))
    load = paired([900, 400, 300], n, np.random.default_rng(4))
    got = find_best(objective, "min", [Constraint(load, "<=", 600)])
    assert got.feasible.tolist() == [NO, YES, YES]
    assert got.candidate.tolist() == [False, True, False]
    assert got.best == 1


def test_what_may_not_be_allowed_is_a_candidate_but_beats_none() -> None:
    n = 200
    objective = paired([5, 100, 200], n, np.random.default_rng(3))
    load = paired([600, 400, 300], n, np.random.default_rng(4))
    got = find_best(objective, "min", [Constraint(load, "<=", 600)])
    assert got.feasible.tolist() == [UNDECIDED, YES, YES]
    assert got.candidate.tolist() == [True, True, False]
    assert got.best is None


@pytest.mark.parametrize("n_constraints", [1, 2, 3])
def test_constraints_have_half_of_the_error_and_share_it(n_constraints: int) -> None:
    """With k cells and m constraints each interval of a mean misses with 0.025 / (k m)."""
    values = paired([100, 90, 80], 60, np.random.default_rng(17)).numbers
    n_intervals = 3 * n_constraints
    quantile = stats.t.isf(0.025 / n_intervals / 2, 59)
    mean, width = values.mean(axis=1), quantile * stats.sem(values, axis=1)
    loose = [Constraint(Paired(values), "<=", 1e9)] * (n_constraints - 1)
    relations: dict[Relation, int] = {"<=": 1, ">=": -1}
    for (relation, sign), cell in product(relations.items(), range(3)):
        for slack, expected in ((1e-9, YES), (-1e-9, UNDECIDED)):
            bound = mean[cell] + sign * (width[cell] + slack)
            tight = Constraint(Paired(values), relation, bound)
            got = find_best(Paired(values), "min", [*loose, tight]).feasible[cell]
            assert got == expected
    loose = [Constraint(Paired(values), "<=", 1e9)] * n_constraints
    got = find_best(Paired(values), "min", loose)
    differences = values[2] - values[:2]
    width = stats.t.isf(0.025 / 2, 59) * stats.sem(differences, axis=1)
    ends = [np.max(differences.mean(axis=1) + sign * width) for sign in (-1, 1)]
    assert (got.low[2], got.high[2]) == pytest.approx((ends[0], max(0, ends[1])), rel=1e-9)


def test_who_does_not_compete_changes_nothing_for_the_others() -> None:
    generator = np.random.default_rng(8)
    one, other = (paired(m, 300, generator) for m in ([0, 50, 90, 70], [0, 90, 50, 120]))
    competes = np.array([False, True, True, True])
    got = find_best(one, competes=competes)
    assert (got.best, got.candidate.tolist()) == (1, [False, True, False, False])
    on = find_frontier(one, other, competes=competes)
    assert on.on.tolist() == [UNDECIDED, YES, YES, NO]
    assert on.dominated_by.tolist() == [-1, -1, -1, 1]
    alone = np.array([False, True, False, False])
    assert find_best(one, competes=alone).best is None
    assert set(find_frontier(one, other, competes=alone).on) == {UNDECIDED}


def test_nothing_is_best_where_nothing_is_allowed() -> None:
    objective = paired([5, 100], 100, np.random.default_rng(3))
    got = find_best(objective, "min", [Constraint(objective, ">", 1000)])
    assert got.feasible.tolist() == [NO, NO]
    assert not got.candidate.any()
    assert got.best is None
    assert np.isnan(got.difference).all()


@pytest.mark.parametrize(("relation", "expected"), [("<", NO), ("<=", YES), (">=", YES), (">", NO)])
def test_a_mean_that_cannot_vary_meets_its_bound_exactly(relation: Relation, expected: str) -> None:
    values = Paired(np.full((1, 50), 6), span=0.0)
    got = find_best(values, "min", [Constraint(values, relation, 6.0)])
    assert got.feasible.tolist() == [expected]


@pytest.mark.parametrize(("goal", "sign"), [("min", 1), ("max", -1)])
def test_the_answer_is_right_in_95_percent_of_500_experiments(goal: Goal, sign: int) -> None:
    """Cells close to the best, equal to it, better but not allowed, and allowed just so.

    Bonferroni's inequality leaves room: a fresh seed fails less than once in a million times.
    """
    generator = np.random.default_rng(5)
    means, loads, bound = [100, 102, 106, 120, 90, 100, 95], [50, 60, 70, 80, 150, 90, 104], 100
    right, told = 0, 0
    for _ in range(N_EXPERIMENTS):
        objective = paired([sign * mean for mean in means], 300, generator)
        got = find_best(objective, goal, [Constraint(paired(loads, 300, generator), "<=", bound)])
        allowed = np.array(loads) <= bound
        right += bool(
            got.candidate[[0, 5]].all()
            and got.best is None
            and not np.any((got.feasible == YES) & ~allowed)
            and not np.any((got.feasible == NO) & allowed)
            and covers(got, [sign * mean for mean in means], allowed, goal)
        )
        told += bool(not got.candidate[[3, 4]].any())
    assert right >= AT_LEAST * N_EXPERIMENTS
    assert told >= AT_LEAST * N_EXPERIMENTS


def covers(got: Best, means: list[int], allowed: NDArray[np.bool_], goal: Goal) -> bool:
    """Whether the intervals of all allowed cells hold their difference to the best other."""
    best_of = min if goal == "min" else max
    for i in np.flatnonzero(allowed):
        others = [means[j] for j in np.flatnonzero(allowed) if j != i]
        if not got.low[i] <= means[i] - best_of(others) <= got.high[i]:
            return False
    return True


def test_a_known_best_is_found_in_95_percent_of_500_experiments() -> None:
    """Power: 4 units are 5 standard errors. A fresh seed fails less than once in 1,000 times."""
    generator = np.random.default_rng(6)
    means = [104, 100, 105, 108, 110, 120, 115, 130]
    got = sum(find_best(paired(means, 1200, generator)).best == 1 for _ in range(N_EXPERIMENTS))
    assert got >= AT_LEAST * N_EXPERIMENTS


def test_the_set_misses_the_best_as_seldom_as_promised() -> None:
    """With k - 1 equals, the hardest case; Bonferroni costs little. Once in 1,000 fresh seeds."""
    generator = np.random.default_rng(7)
    misses = sum(
        not find_best(paired([100] * 6, 60, generator), level=0.8).candidate[0]
        for _ in range(N_EXPERIMENTS)
    )
    assert 20 <= misses <= 0.2 * N_EXPERIMENTS + 28


# --- the frontier ---------------------------------------------------------------------------


def far_apart(means: Sequence[float], seed: int) -> NDArray[Any]:
    """Give cells 10 or more units apart: all of them can be told apart."""
    return paired(means, 1600, np.random.default_rng(seed)).numbers


def test_a_cell_better_in_both_metrics_dominates() -> None:
    drops, load = far_apart([20, 10, 30], 16), far_apart([80, 60, 20], 17)
    got = find_frontier(Paired(drops), Paired(load))
    assert got.on.tolist() == [NO, YES, YES]
    assert got.dominated_by.tolist() == [1, -1, -1]


def test_a_cell_that_was_as_good_in_every_replication_need_not_be() -> None:
    """Budgets drop the same requests but for one in a thousand replications."""
    drops, load = far_apart([10, 10, 30], 16), far_apart([80, 60, 20], 17)
    drops[1] = drops[0]
    got = find_frontier(Paired(drops), Paired(load))
    assert got.on.tolist() == [UNDECIDED, YES, YES]


def test_of_cells_that_are_equal_so_far_one_may_dominate() -> None:
    drops, load = far_apart([10, 10, 30, 30], 16), far_apart([60, 60, 80, 80], 17)
    for values in (drops, load):
        values[1], values[3] = values[0], values[2]
    got = find_frontier(Paired(drops), Paired(load))
    assert got.on.tolist() == [UNDECIDED, UNDECIDED, NO, NO]
    assert set(got.dominated_by.tolist()[2:]) <= {0, 1}


def test_either_goal_turns_the_frontier_around() -> None:
    generator = np.random.default_rng(8)
    one, other = paired([1, 40, 80], 400, generator), paired([80, 90, 1], 400, generator)
    for goals in product(get_args(Goal), repeat=2):
        got = find_frontier(one, other, goals)
        signs = [1 if goal == "min" else -1 for goal in goals]
        expected = find_frontier(Paired(signs[0] * one.numbers), Paired(signs[1] * other.numbers))
        np.testing.assert_array_equal(got.on, expected.on)
        assert UNDECIDED not in got.on


def test_cells_that_cannot_be_told_apart_are_undecided() -> None:
    generator = np.random.default_rng(9)
    got = find_frontier(paired([100, 100], 50, generator), paired([100, 100], 50, generator))
    assert got.on.tolist() == [UNDECIDED, UNDECIDED]
    assert find_frontier(
        Paired(np.array([[1], [2]])), Paired(np.array([[1], [2]]))
    ).on.tolist() == [
        UNDECIDED,
        UNDECIDED,
    ]


def test_a_cell_alone_is_the_frontier() -> None:
    got = find_frontier(Paired(np.array([[1, 2]])), Paired(np.array([[1, 2]])))
    assert got.on.tolist() == [YES]


def test_the_frontier_is_right_in_95_percent_of_500_experiments() -> None:
    """Close cells may stay undecided, but nothing false is said; and far ones are told apart.

    Bonferroni's inequality leaves room: a fresh seed fails less than once in a million times.
    """
    generator = np.random.default_rng(10)
    one, other = [10, 20, 30, 40, 25, 41, 20], [60, 40, 25, 10, 45, 11, 40]
    points = list(zip(one, other, strict=True))
    truth = [
        NO if any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points) else YES for p in points
    ]
    assert truth == [YES, YES, YES, YES, NO, NO, YES]
    right = told = 0
    for _ in range(N_EXPERIMENTS):
        got = find_frontier(paired(one, 1600, generator), paired(other, 1600, generator))
        right += all(on in (UNDECIDED, true) for on, true in zip(got.on, truth, strict=True))
        told += got.on[[0, 2, 4]].tolist() == [YES, YES, NO]
    assert right >= AT_LEAST * N_EXPERIMENTS
    assert told >= AT_LEAST * N_EXPERIMENTS


def test_the_whole_frontier_is_found_in_95_percent_of_500_experiments() -> None:
    """Steps of 8 units are 9 standard errors: a fresh seed fails less than once in a million."""
    generator = np.random.default_rng(11)
    one, other = [10, 20, 30, 40, 28, 50], [60, 40, 25, 10, 48, 20]
    got = sum(
        find_frontier(paired(one, 1000, generator), paired(other, 1000, generator)).on.tolist()
        == [YES, YES, YES, YES, NO, NO]
        for _ in range(N_EXPERIMENTS)
    )
    assert got >= AT_LEAST * N_EXPERIMENTS


def test_pairs_are_compared_as_often_as_the_guarantee_says() -> None:
    """Six cells, two metrics: 30 intervals. One error in 30 more shows in what is decided."""
    generator = np.random.default_rng(12)
    n = 50
    one, other = (
        paired([0, 9, 18, 27, 36, 45], n, generator),
        paired([45, 36, 27, 18, 9, 0], n, generator),
    )
    got = find_frontier(one, other)
    width = stats.t.isf(0.05 / 30 / 2, n - 1)

    def better(i: int, j: int) -> bool:
        differences = [values.numbers[j] - values.numbers[i] for values in (one, other)]
        return any(d.mean() > width * stats.sem(d) for d in differences)

    sure = [all(better(i, j) for j in range(6) if j != i) for i in range(6)]
    expected = [YES if on else UNDECIDED for on in sure]
    assert got.on.tolist() == expected
    assert set(expected) == {UNDECIDED, YES}


# --- on the model ---------------------------------------------------------------------------

N_POOL: Final = 100_000
POLICIES: Final[list[dict[str, Any]]] = [
    {"tries": (1,)},
    {"tries": (3,)},
    {"tries": (3, 3)},
    {"tries": (3, 3, 3), "budget": 0.1},
    {"tries": (3, 3, 3), "budget": 0.2},
    {"tries": (3, 3, 3), "budget": 0.3},
]
FAULTS: Final[dict[str, dict[str, Any]]] = {
    "outage": {"fault_rounds": 100, "fault_capacity": 0},
    "degradation": {"fault_rounds": 300, "fault_capacity": 1},
}


@pytest.fixture(scope="module", params=FAULTS)
def pool(request: pytest.FixtureRequest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Drops and window calls of every policy; their own means are the truth."""
    cells = [mc.Cell(rounds=1500, **policy, **FAULTS[request.param]) for policy in POLICIES]
    frame = mc.simulate(cells, N_POOL, seed=99)
    drops, calls = (frame[metric].to_numpy() for metric in ("dropped", "window_calls"))
    return drops.reshape(len(cells), -1), calls.reshape(len(cells), -1)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [(0, 1, 2, 3, 4, 5), (3, 4, 5)])
@pytest.mark.parametrize("n", [30, 200, 1000])
def test_the_answers_about_policies_are_right_in_95_percent_of_500_experiments(
    pool: tuple[NDArray[np.int64], NDArray[np.int64]], n: int, chosen: tuple[int, ...]
) -> None:
    """In the outage the budgets drop the same, but for 2 of 1,000 replications.

    With Student's intervals alone the frontier of the budgets is wrong in 62 to 99 % of the
    experiments, and the differences to the best are covered in 2 to 43 %.
    """
    drops, calls = (values[list(chosen)] for values in pool)
    means, loads = drops.mean(axis=1), calls.mean(axis=1)
    k, generator = len(chosen), np.random.default_rng(18)
    others = [means[np.arange(k) != i].min() for i in range(k)]
    beaten = [np.any((means < means[i]) & (loads < loads[i])) for i in range(k)]
    truth = [NO if one else YES for one in beaten]
    right = {"best": 0, "set": 0, "intervals": 0, "frontier": 0}
    for _ in range(N_EXPERIMENTS):
        drawn = generator.integers(0, N_POOL, n)
        one, other = Paired(drops[:, drawn]), Paired(calls[:, drawn])
        found, on = find_best(one), find_frontier(one, other).on
        right["best"] += found.best in (None, means.argmin())
        right["set"] += bool(found.candidate[means.argmin()])
        right["intervals"] += bool(
            np.all((found.low <= means - others) & (means - others <= found.high))
        )
        right["frontier"] += all(a in (UNDECIDED, b) for a, b in zip(on, truth, strict=True))
    # intervals of a single pair: 94 to 96 %, as Student's; 2 % below by luck in 1 of 1,000
    assert min(right["best"], right["set"], right["frontier"]) >= AT_LEAST * N_EXPERIMENTS
    assert right["intervals"] >= (AT_LEAST - 0.03) * N_EXPERIMENTS


@pytest.mark.slow
def test_the_best_policy_is_found_in_95_percent_of_500_experiments(
    pool: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> None:
    """Among those that make no larger storm than three tries do."""
    drops, calls = pool
    bound = 1.05 * calls[1].mean()
    generator, got = np.random.default_rng(19), 0
    for _ in range(N_EXPERIMENTS):
        drawn = generator.integers(0, N_POOL, 1000)
        constraint = Constraint(Paired(calls[:, drawn]), "<=", bound)
        got += find_best(Paired(drops[:, drawn]), "min", [constraint]).best == 1
    assert got >= AT_LEAST * N_EXPERIMENTS
