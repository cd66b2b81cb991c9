"""Comparisons of two cells, against scipy, numpy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from samples import (
    NOTED,
    OUTAGE,
    ROUGH,
    cell_frame,
    interval_of_share,
    line,
    note_of,
    random_rows,
    row_frame,
    values_of,
)
from scipy import stats

from mc.model import METRICS, Cell
from mc.statistics import COMPARISONS_SCHEMA, compare, summarise
from mc.statistics.comparisons import UNLIKE


def test_a_comparison_equals_the_paired_test_of_scipy() -> None:
    rows, cells = random_rows(3, 400, seed=7), cell_frame(OUTAGE, OUTAGE, OUTAGE, baseline=1)
    comparisons = compare(rows, cells)
    assert comparisons.schema == COMPARISONS_SCHEMA
    assert comparisons["cell"].unique().to_list() == [0, 2]
    for cell in (0, 2):
        for metric in METRICS:
            x, y = (values_of(rows.filter(pl.col("cell") == c), cells, metric) for c in (cell, 1))
            if np.all(x == y):
                continue
            interval = stats.ttest_rel(x, y).confidence_interval(0.95)
            d = x - y
            ratio = x.mean() / y.mean()
            wide = stats.t.ppf(0.975, 399) * stats.sem(x - ratio * y) / y.mean()
            n_less, n_equal = np.count_nonzero(x < y), np.count_nonzero(x == y)
            shares = {"less": n_less, "equal": n_equal, "greater": 400 - n_less - n_equal}
            got = line(comparisons, metric, cell)
            expected = {
                "baseline": 1,
                "n": 400,
                "mean_difference": d.mean(),
                "sd": d.std(ddof=1),
                "mcse": stats.sem(d),
                "ci_low": interval.low,
                "ci_high": interval.high,
                "relative_change": ratio - 1,
                "relative_low": ratio - 1 - wide,
                "relative_high": ratio - 1 + wide,
                "variance_reduction": (x.var(ddof=1) + y.var(ddof=1)) / d.var(ddof=1),
            }
            for name, k in shares.items():
                low, high = interval_of_share(int(k), 400)
                expected |= {f"share_{name}": k / 400}
                expected |= {f"share_{name}_low": low, f"share_{name}_high": high}
            assert got["note"] is None
            # as for the summary; a mean difference may be far smaller than its terms
            assert {k: got[k] for k in expected} == pytest.approx(expected, rel=1e-8), metric


def test_equal_cells_differ_by_exactly_nothing() -> None:
    rows = random_rows(1, 30, seed=8)
    both = pl.concat([rows, rows.with_columns(cell=pl.lit(1, pl.Int32))])
    comparisons = compare(both, cell_frame(OUTAGE, OUTAGE))
    for metric in METRICS:
        got = line(comparisons, metric, 1)
        assert (got["mean_difference"], got["sd"], got["share_equal"]) == (0.0, 0.0, 1.0)
        assert got["share_equal_low"] == pytest.approx(0.025 ** (1 / 30), rel=1e-12)
        assert (got["variance_reduction"], got["ci_low"], got["ci_high"]) == (None, None, None)
        assert got["note"] == note_of([0] * 30)
        assert got["relative_change"] in (0.0, None)


def test_only_replications_of_both_cells_with_values_are_paired() -> None:
    left = row_frame({"drain": [1, None, 3, 4]}, cell=1, first=2)
    right = row_frame({"drain": [9, 9, 10, 20, None]}, cell=0)
    comparisons = compare(pl.concat([left, right]), cell_frame(OUTAGE, OUTAGE))
    got = line(comparisons, "drain", 1)
    assert (got["n"], got["mean_difference"], got["sd"]) == (1, -9.0, None)
    got = line(comparisons, "calls", 1)
    assert got["n"] == 3


def test_what_did_not_come_within_the_run_is_above_all_that_did() -> None:
    x, y = [1, None, 3, None, 5, 7], [9, 9, None, None, 5, 6]
    rows = pl.concat([row_frame({"drain": x}, cell=1), row_frame({"drain": y}, cell=0)])
    got = line(compare(rows, cell_frame(OUTAGE, OUTAGE)), "drain", 1)
    shares = [got[f"share_{name}"] for name in ("less", "equal", "greater", "defined")]
    assert shares == [2 / 6, 1 / 6, 2 / 6, 3 / 6], "of the sixth both are later: order unknown"
    assert (got["n"], got["mean_difference"]) == (3, -7 / 3)
    without = line(compare(rows, cell_frame(Cell(), Cell())), "drain", 1)
    assert (without["share_less"], without["share_defined"]) == (1 / 3, 1.0), "no window: undefined"


def test_ratios_are_compared_as_the_fractions_that_they_are() -> None:
    """They differ by 2e-14, and were equal in millionths: 5 million requests, one more call."""
    x = {"requests": [5_000_000, 5_000_001], "calls": [5_000_000, 5_000_002]}
    y = {"requests": [5_000_000, 5_000_000], "calls": [5_000_001, 5_000_001]}
    rows = pl.concat([row_frame(x, cell=1), row_frame(y, cell=0)])
    got = line(compare(rows, cell_frame(OUTAGE, OUTAGE)), "multiplier", 1)
    assert (got["share_less"], got["share_equal"]) == (1.0, 0.0)
    found = summarise(rows, cell_frame(OUTAGE, OUTAGE))
    assert line(found, "multiplier", 1)["max"] == 5_000_002 / 5_000_001


def test_a_change_to_what_is_rare_has_no_interval() -> None:
    """27 attempts under the degradation: half of such intervals covered the truth."""
    rows = pl.concat(
        [
            row_frame({"dropped": [0] * 995 + [1, 2, 1, 1, 9]}, cell=1),
            row_frame({"dropped": [350 + k % 37 for k in range(1000)]}, cell=0),
        ]
    )
    got = line(compare(rows, cell_frame(OUTAGE, OUTAGE)), "dropped", 1)
    assert got["relative_change"] == pytest.approx(-1, abs=1e-3)
    assert (got["relative_low"], got["relative_high"]) == (None, None)
    assert None not in (got["ci_low"], got["ci_high"]), "the difference is known well"
    rows = rows.with_columns(dropped=pl.when(pl.col("cell") == 1).then(0).otherwise("dropped"))
    got = line(compare(rows, cell_frame(OUTAGE, OUTAGE)), "dropped", 1)
    assert (got["relative_change"], got["relative_low"]) == (-1.0, None), "not [-1, -1]"


def test_cells_with_windows_of_different_length_are_compared_by_rate() -> None:
    rows = pl.concat(
        [row_frame({"window_calls": [30, 60]}), row_frame({"window_calls": [300, 300]}, cell=1)]
    )
    comparisons = compare(rows, cell_frame(Cell(fault_rounds=10), Cell(fault_rounds=100)))
    got = line(comparisons, "window_rate", 1)
    assert (got["mean_difference"], got["share_less"], got["share_equal"]) == (-1.5, 0.5, 0.5)


def test_a_difference_of_large_integers_is_exact() -> None:
    large = 2**60
    rows = (
        row_frame({"wait_total": [large + 1, large + 2]}, 1),
        row_frame({"wait_total": [large] * 2}),
    )
    got = line(compare(pl.concat(rows), cell_frame(OUTAGE, OUTAGE)), "wait_total", 1)
    assert got["mean_difference"] == 1.5  # 0 in doubles
    assert got["sd"] == math.sqrt(0.5)
    assert (got["share_less"], got["share_equal"]) == (0.0, 0.0)


@pytest.mark.parametrize("what", NOTED)
def test_a_note_says_why_a_difference_has_no_interval_or_a_rough_one(what: str) -> None:
    values = NOTED[what]
    left = row_frame({"drain": [None if d is None else d + 3 for d in values]}, cell=1)
    right = row_frame({"drain": [3] * len(values)})
    found = line(compare(pl.concat([left, right]), cell_frame(OUTAGE, OUTAGE)), "drain", 1)
    got = found["note"]
    expected = note_of([d for d in values if d is not None])
    assert got == expected
    assert (got is None) == (what == "plain")
    ends = [found[name] for name in ("ci_low", "ci_high")]
    assert (None in ends) == (what not in ROUGH | {"plain"})


@pytest.mark.parametrize(
    ("varies", "expected"),
    [
        (False, "the same in all 2,000; another value comes in at most 0.19 % of runs (95 %)"),
        (True, UNLIKE),
    ],
)
def test_a_difference_between_unlike_windows_needs_a_spread(
    varies: bool, expected: str | None
) -> None:
    """The skewness of such a difference is not known, but whether it varies is."""
    calls = [30 + (k % 2) * varies for k in range(2000)]
    rows = row_frame({"window_calls": calls}), row_frame({"window_calls": [500] * 2000}, cell=1)
    cells = cell_frame(Cell(fault_rounds=10), Cell(fault_rounds=100))
    got = line(compare(pl.concat(rows), cells), "window_rate", 1)
    assert got["note"] == expected


def test_without_a_mean_of_the_baseline_there_is_no_relative_change() -> None:
    rows = row_frame({"dropped": [0] * 40}), row_frame({"dropped": range(40)}, cell=1)
    got = line(compare(pl.concat(rows), cell_frame(OUTAGE, OUTAGE)), "dropped", 1)
    assert got["mean_difference"] == 19.5
    names = "relative_change", "relative_low", "relative_high"
    assert [got[name] for name in names] == [None, None, None]
