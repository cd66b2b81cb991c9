"""Claims: shares, mean differences of links, verdicts in each replication and on average."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from samples import OUTAGE, cell_frame, claim, interval_of_share, note_of, row_frame
from scipy import stats

from mc.experiment import Claim, Relation
from mc.model import Cell
from mc.statistics import CLAIMS_SCHEMA, judge, verdict


def judged(sentence: Claim, *columns: dict[str, Any], cell: Cell = OUTAGE) -> dict[str, Any]:
    """Judge one claim about cells with the given counters."""
    rows = pl.concat([row_frame(counters, index) for index, counters in enumerate(columns)])
    frame = judge(rows, cell_frame(*[cell] * len(columns)), [sentence])
    assert frame.schema == CLAIMS_SCHEMA
    return frame.row(0, named=True)


@pytest.mark.parametrize(
    ("relation", "expected"), [("<", 2), ("<=", 3), ("=", 1), (">=", 2), (">", 1)]
)
def test_each_relation_counts_the_replications_in_which_it_holds(
    relation: Relation, expected: int
) -> None:
    found = judged(claim(relation, (0, 1)), {"calls": [1, 2, 3, 9]}, {"calls": [2, 5, 3, 4]})
    got = found["n_holds"]
    assert got == expected
    assert (found["n"], found["share"]) == (4, expected / 4)


def test_a_chain_holds_where_every_link_holds_and_shows_its_weakest() -> None:
    x, y, z = [1, 2, 3, 4] * 400, [11, 12, 13, 15] * 400, [12, 11, 14, 16] * 400
    found = judged(claim("<", (0, 1, 2)), {"calls": x}, {"calls": y}, {"calls": z})
    interval = stats.ttest_rel(y, z).confidence_interval(0.95)
    assert (found["n_holds"], found["left"], found["right"]) == (1200, "cell 1", "cell 2")
    got = found["mean_difference"], found["ci_low"], found["ci_high"]
    expected = (-0.5, interval.low, interval.high)
    assert got == pytest.approx(expected, rel=1e-12)  # another order of operations


@pytest.mark.parametrize(
    ("relation", "expected"), [("<", 1), ("<=", 1), ("=", 0), (">=", 0), (">", 0)]
)
def test_the_weakest_link_lies_least_in_the_claimed_direction(
    relation: Relation, expected: int
) -> None:
    """Upwards by 8, then by 4, with the same spread: the second is the weaker step up."""
    least = (1000, 1005, 1006)
    columns = [{"calls": [low + k % 7 * i for k in range(700)]} for i, low in enumerate(least)]
    found = judged(claim(relation, (0, 1, 2)), *columns)
    got = found["left"], found["right"]
    assert got == (f"cell {expected}", f"cell {expected + 1}")


def test_a_claim_in_several_metrics_needs_all_of_them() -> None:
    found = judged(
        claim("=", (0, 1), ("calls", "dropped")),
        {"calls": [1, 2, 3], "dropped": [0, 0, 1]},
        {"calls": [1, 2, 4], "dropped": [0, 1, 1]},
    )
    assert (found["n_holds"], found["metric"]) == (1, "calls & dropped")
    assert found["link_metric"] == "calls"


@pytest.mark.parametrize(
    ("relation", "value", "expected"),
    [("=", 0, 2), ("<", 1, 2), (">", 1.5, 1), ("between", (0, 1), 3), ("between", (1, 5), 2)],
)
def test_a_claim_about_a_number_is_judged_against_it(
    relation: Relation, value: float | tuple[float, float], expected: int
) -> None:
    found = judged(claim(relation, (0,), ("dropped",), value), {"dropped": [0, 0, 1, 5]})
    got = found["n_holds"]
    assert got == expected


def test_the_weakest_bound_of_a_range_is_shown() -> None:
    found = judged(claim("between", (0,), ("calls",), (0, 100)), {"calls": [98, 99, 97]})
    assert (found["left"], found["right"], found["mean_difference"]) == ("cell 0", "100", -2.0)


def test_a_rate_is_compared_with_a_printed_number_as_a_ratio() -> None:
    found = judged(claim("<=", (0,), ("window_rate",), 2.89), {"window_calls": [288, 289, 290]})
    assert found["n_holds"] == 2


def test_replications_with_an_undefined_value_are_not_counted() -> None:
    sentence = claim("<", (0, 1), ("drain", "calls"))
    found = judged(
        sentence,
        {"drain": [1, None, 1, 5], "calls": [1, 1, 1, 1]},
        {"drain": [2, 2, None, 4], "calls": [2, 2, 2, 2]},
    )
    assert (found["n"], found["n_holds"]) == (2, 1)


def test_a_claim_without_replications_has_no_verdict() -> None:
    found = judged(claim("<", (0, 1), ("drain",)), {"drain": [None]}, {"drain": [3]})
    got = [found[name] for name in ("share", "share_low", "mean_difference", "verdict")]
    assert (found["n"], got) == (0, [None] * 4)


def test_one_replication_is_judged_without_an_interval_of_the_difference() -> None:
    found = judged(claim("<", (0, 1)), {"calls": [1]}, {"calls": [3]})
    assert (found["n_holds"], found["mean_difference"], found["ci_low"]) == (1, -2.0, None)
    assert found["verdict"] == "open"


@pytest.mark.parametrize(
    ("k", "n"), [(0, 7), (7, 7), (1, 1), (19, 400), (20, 400), (4146, 10_000), (9_981, 10_000)]
)
def test_a_share_has_the_interval_of_a_share(k: int, n: int) -> None:
    found = judged(claim("=", (0,), value=0), {"calls": [0] * k + [1] * (n - k)})
    got = found["share_low"], found["share_high"]
    assert got == pytest.approx(interval_of_share(k, n), rel=1e-9)  # scipy searches a root


def test_verdicts_turn_exactly_at_their_bounds() -> None:
    below, above = math.nextafter(0.95, 0), math.nextafter(0.05, 1)
    assert (verdict(0.95, 1.0), verdict(below, 1.0)) == ("holds", "open")
    assert (verdict(0.0, 0.05), verdict(0.0, above)) == ("fails", "open")
    assert verdict(0.01, 0.99) == "depends on the seed"
    assert verdict(None, None) is None


@pytest.mark.parametrize(
    ("n_holds", "expected"),
    [
        (10_000, "holds"),
        (9_543, "holds"),
        (9_541, "depends on the seed"),
        (9_500, "depends on the seed"),
        (459, "depends on the seed"),
        (457, "fails"),
        (0, "fails"),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(n_holds: int, expected: str) -> None:
    calls = [0] * n_holds + [1] * (10_000 - n_holds)
    got = judged(claim("<", (0,), value=1), {"calls": calls})["verdict"]
    assert got == expected


def test_71_replications_cannot_make_a_claim_hold() -> None:
    """The lower end for n of n is 0.025**(1 / n)."""
    got = [judged(claim("=", (0,), value=0), {"calls": [0] * n})["verdict"] for n in (71, 72)]
    expected = ["open", "holds"]
    assert got == expected


# --- times ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "times", "expected"),
    [
        ("<", 2.0, 2),  # 1 and 19
        ("<=", 2.0, 3),
        ("=", 2.0, 1),
        (">=", 2.0, 2),
        (">", 2.0, 1),
        (">", 1.9, 2),  # 20 and 21: 1.9 x 10 is 19 exactly
        ("=", 0.1, 1),
        ("<", 1e9, 4),
        (">", 1e-300, 4),
    ],
)
def test_a_cell_is_compared_with_so_many_times_the_next(
    relation: Relation, times: float, expected: int
) -> None:
    sentence = claim(relation, (0, 1), times=times)
    found = judged(sentence, {"calls": [19, 20, 21, 1]}, {"calls": [10] * 4})
    got = found["n_holds"]
    assert got == expected
    assert found["right"] == f"{times:.10g} x cell 1"
    difference = Fraction(61, 4) - Fraction(str(times)) * 10
    assert found["mean_difference"] == float(difference)


@pytest.mark.parametrize("times", [1.0, 3.0, 0.3, 1.7])
def test_large_numbers_are_multiplied_exactly(times: float) -> None:
    """In doubles 2**60 and 2**60 + 1 are equal; 17 times as much needs more than 64 bits."""
    y = [10 * 2**56 + 10 * k for k in (-1, 0, 1)]
    x = [int(Fraction(str(times)) * 2**56 * 10)] * 3
    relations: dict[Relation, int] = {"<": 1, "=": 1, ">": 1, "<=": 2, ">=": 2}
    for relation, expected in relations.items():
        sentence = claim(relation, (0, 1), ("wait_total",), times=times)
        got = judged(sentence, {"wait_total": x}, {"wait_total": y})["n_holds"]
        assert got == expected, relation


def test_the_mean_difference_of_a_multiple_is_that_of_scipy() -> None:
    generator = np.random.default_rng(31)
    y = generator.poisson(50, 400)
    x = generator.poisson(30, 400) + y
    found = judged(claim(">", (0, 1), times=1.5), {"calls": x}, {"calls": y})
    difference = x - 1.5 * y
    interval = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    got = found["mean_difference"], found["mcse"], found["ci_low"], found["ci_high"]
    expected = difference.mean(), stats.sem(difference), interval.low, interval.high
    assert got == pytest.approx(expected, rel=1e-11)  # numpy rounds at every step
    assert found["note"] is None


def test_a_multiple_of_a_ratio_is_compared_in_millionths() -> None:
    """1 / 3 is 0.333333, so three times it is below 1."""
    columns = {"calls": [9, 10], "requests": [9, 10]}, {"calls": [3, 1], "requests": [9, 3]}
    got = judged(claim("=", (0, 1), ("multiplier",), times=3.0), *columns)["n_holds"]
    assert got == 0
    got = judged(claim("=", (0, 1), ("multiplier",), times=3.0, margin=1e-6), *columns)["n_holds"]
    assert got == 2


def test_rates_over_windows_of_different_length_are_compared_as_numbers() -> None:
    rows = [
        row_frame({"window_calls": [20 + k % 3 for k in range(600)]}),
        row_frame({"window_calls": [100 + k % 5 for k in range(600)]}, cell=1),
    ]
    cells = cell_frame(Cell(fault_rounds=10), Cell(fault_rounds=100))
    sentence = claim("<", (0, 1), ("window_rate",), times=2.0)
    found = judge(pl.concat(rows), cells, [sentence]).row(0, named=True)
    x, y = (frame["window_calls"].to_numpy() / d for frame, d in zip(rows, (10, 100), strict=True))
    assert found["n_holds"] == np.count_nonzero(x < 2 * y)
    interval = stats.ttest_1samp(x - 2 * y, 0).confidence_interval(0.95)
    got = found["ci_low"], found["ci_high"]
    assert got == pytest.approx((interval.low, interval.high), rel=1e-11)
    close = claim("=", (0, 1), ("window_rate",), times=2.0, margin=0.1)
    got = judge(pl.concat(rows), cells, [close])["n_holds"].item()
    # as printed: a difference of exactly 0.1 is not a double
    assert got == np.count_nonzero(np.abs(x - 2 * y) <= 0.1)


# --- margin ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("margin", "expected"), [(None, 1), (0.5, 1), (1.0, 3), (2.9, 3), (3.0, 4), (1e300, 5)]
)
def test_values_no_further_apart_than_the_margin_are_equal(
    margin: float | None, expected: int
) -> None:
    columns = {"calls": [10, 11, 9, 13, 2]}, {"calls": [10] * 5}
    found = judged(claim("=", (0, 1), margin=margin), *columns)
    assert (found["n_holds"], found["margin"]) == (expected, margin)
    found = judged(claim("=", (0,), value=10.0, margin=margin), columns[0])
    assert (found["n_holds"], found["margin"]) == (expected, margin)


def test_the_ends_of_a_margin_are_exact_in_decimals() -> None:
    """2.89 +- 0.01 holds 2.88 and 2.90: in doubles 2.89 - 0.01 > 2.88."""
    calls = {"window_calls": [287, 288, 289, 290, 291]}
    sentence = claim("=", (0,), ("window_rate",), value=2.89, margin=0.01)
    got = judged(sentence, calls)["n_holds"]
    assert got == 3
    other = {"window_calls": [289] * 5}
    got = judged(claim("=", (0, 1), ("window_rate",), margin=0.01), calls, other)["n_holds"]
    assert got == 3


def spread(mean: float, sd: float, n: int, seed: int = 32) -> list[int]:
    """Whole numbers, 1000 and so much on average, symmetric around their mean."""
    generator = np.random.default_rng(seed)
    half = np.rint(generator.normal(0, sd, n // 2)).astype(np.int64)
    return [1000 + round(mean) + int(d) for d in np.concatenate([half, -half])]


@pytest.mark.parametrize(
    ("mean", "sd", "margin", "expected"),
    [
        (0, 10, 2.0, "holds"),
        (1, 10, 2.0, "holds"),
        (2, 10, 2.0, "open"),
        (3, 10, 2.0, "fails"),
        (-3, 10, 2.0, "fails"),
        (0, 10, 0.5, "open"),
        (0, 10, None, "open"),  # no sample shows that a mean is exactly 0
        (3, 10, None, "fails"),
    ],
)
def test_practical_equality_on_average_is_two_one_sided_tests(
    mean: float, sd: float, margin: float | None, expected: str
) -> None:
    x, y = spread(mean, sd, 900), [1000] * 900
    found = judged(claim("=", (0, 1), margin=margin), {"calls": x}, {"calls": y})
    got = found["on_average"]
    assert got == expected
    d = np.array(x) - 1000.0
    ends = margin or 0.0
    above = stats.ttest_1samp(d, -ends, alternative="greater").pvalue
    below = stats.ttest_1samp(d, ends, alternative="less").pvalue
    assert (got == "holds") == (max(above, below) <= 0.05)
    low, high = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert (got == "fails") == (low > ends or high < -ends)


# --- on average -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "mean", "expected"),
    [
        ("<", -3, "holds"),
        ("<", 0, "open"),
        ("<", 3, "fails"),
        ("<=", -3, "holds"),
        ("<=", 0, "open"),
        ("<=", 3, "fails"),
        (">", -3, "fails"),
        (">", 0, "open"),
        (">", 3, "holds"),
        (">=", -3, "fails"),
        (">=", 0, "open"),
        (">=", 3, "holds"),
    ],
)
def test_a_claim_holds_on_average_where_the_interval_lies_on_its_side(
    relation: Relation, mean: float, expected: str
) -> None:
    x, y = spread(mean, 20, 900), [1000] * 900
    found = judged(claim(relation, (0, 1)), {"calls": x}, {"calls": y})
    got = found["on_average"]
    assert got == expected
    assert found["verdict"] == "depends on the seed", "the share is another question"
    against = judged(claim(relation, (0,), value=1000.0), {"calls": x})
    assert against["on_average"] == expected
    assert against["mean_difference"] == found["mean_difference"]


def test_a_chain_holds_on_average_where_all_links_do_and_fails_where_one_does() -> None:
    low, middle, high = ({"calls": spread(mean, 20, 900, seed=mean)} for mean in (0, 10, 20))
    noise = {"calls": spread(10, 20, 900, seed=11)}
    for columns, expected in (
        ((low, middle, high), "holds"),
        ((low, high, middle), "fails"),
        ((low, middle, noise), "open"),
        ((middle, noise, low), "fails"),
    ):
        got = judged(claim("<", (0, 1, 2)), *columns)["on_average"]
        assert got == expected


def test_a_link_that_fails_is_enough_whatever_is_known_of_the_others() -> None:
    low, high, same = ({"calls": spread(mean, 20, 900, seed=1)} for mean in (0, 10, 10))
    found = judged(claim("=", (0, 1, 2)), low, high, same)
    assert (found["n_holds"], found["on_average"]) == (0, "fails")
    found = judged(claim("=", (0, 1)), high, same)
    assert (found["n_holds"], found["on_average"]) == (900, None)


def test_few_equal_differences_decide_nothing_on_average() -> None:
    got = [
        judged(claim("<", (0, 1)), {"calls": [1] * n}, {"calls": [3] * n})["on_average"]
        for n in (2, 199, 200)
    ]
    assert got == [None, None, "holds"]


def test_between_is_judged_at_both_ends_on_average() -> None:
    for ends, expected in (((990, 1010), "holds"), ((1010, 1020), "fails"), ((1000, 1020), "open")):
        got = judged(claim("between", (0,), value=ends), {"calls": spread(0, 20, 900)})
        assert got["on_average"] == expected


@pytest.mark.parametrize(
    ("x", "y"),
    [([7], [9]), ([1] * 3000, [1] * 2999 + [2]), ([1] * 2999 + [10_000], [0] * 3000)],
    ids=["one", "rare", "skewed"],
)
def test_without_an_interval_of_the_mean_there_is_no_verdict_on_average(
    x: list[int], y: list[int]
) -> None:
    found = judged(claim("<", (0, 1)), {"calls": x}, {"calls": y})
    names = ("ci_low", "ci_high", "together_low", "together_high", "on_average")
    assert [found[name] for name in names] == [None] * 5
    assert found["note"] == note_of(np.array(x) - np.array(y))
    assert found["note"] is not None
    assert found["mean_difference"] is not None
    assert found["verdict"] is not None


# --- several claims together ----------------------------------------------------------------


def test_the_intervals_of_several_claims_hold_together() -> None:
    """Bonferroni: over the claims for the shares, over all links for the mean differences."""
    generator = np.random.default_rng(33)
    values = generator.poisson(100, (3, 500))
    rows = pl.concat([row_frame({"calls": x}, index) for index, x in enumerate(values)])
    claims = [
        claim("<", (0, 1)),
        claim("<=", (2, 0)),
        claim("<", (0, 1, 2)),
        claim("between", (0,), value=(90, 110)),
    ]
    n_links = 1 + 1 + 2 + 2
    frame = judge(rows, cell_frame(*[OUTAGE] * 3), claims)
    for found in frame.iter_rows(named=True):
        got = found["share_together_low"], found["share_together_high"]
        expected = interval_of_share(found["n_holds"], 500, 1 - 0.05 / 4)
        assert got == pytest.approx(expected, rel=1e-9)  # scipy searches a root
        got = found["together_low"], found["together_high"]
        wide = -stats.t.ppf(0.025 / n_links, 499) * found["mcse"]
        expected = found["mean_difference"] - wide, found["mean_difference"] + wide
        assert got == pytest.approx(expected, rel=1e-12)  # another order of operations
        assert found["together_low"] < found["ci_low"] < found["ci_high"] < found["together_high"]
        assert found["share_together_low"] < found["share_low"]


def test_verdicts_are_those_of_all_claims_together() -> None:
    """72 of 72 are enough for one claim, and for two 0.0125**(1 / n) decides."""
    columns = {"calls": [0] * 85}
    for n_claims, n, expected in (
        (1, 72, "holds"),
        (2, 72, "open"),
        (2, 85, "open"),
        (2, 86, "holds"),
    ):
        rows = row_frame({"calls": [0] * n})
        claims = [claim("=", (0,), value=0)] * n_claims
        got = judge(rows, cell_frame(OUTAGE), claims)["verdict"].to_list()
        assert got == [expected] * n_claims
    one, many = (
        judge(row_frame(columns), cell_frame(OUTAGE), [claim("=", (0,), value=0)] * m)
        for m in (1, 20)
    )
    assert one["share_low"].item() == many["share_low"][0], "each alone stays as it was"


def test_a_mean_that_is_told_alone_may_be_open_among_many_claims() -> None:
    x, y = spread(2, 20, 900), [1000] * 900  # three standard errors
    rows = pl.concat([row_frame({"calls": x}), row_frame({"calls": y}, 1)])
    got = [
        judge(rows, cell_frame(OUTAGE, OUTAGE), [claim(">", (0, 1))] * m)["on_average"][0]
        for m in (1, 100)
    ]
    expected = ["holds", "open"]
    assert got == expected
