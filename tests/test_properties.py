"""Laws of the model on cells that hypothesis invents: identities, locality of a row, monotonicity.

The relations hold replication by replication, because every cell of one seed sees the same draws
(common random numbers under philox). A retry without a budget happens at a time that only its
own draws decide, so with fewer failures the calls of every round are a subset, in the same order:
that proves the monotone relations below. What has no such proof is left out: nothing is said
about a budget against a larger one, a longer backoff, or what more attempts do to `dropped`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import mc

Row = dict[str, Any]

N_REPLICATIONS = 3


@st.composite
def cells(draw: st.DrawFn, /, **fixed: Any) -> mc.Cell:
    """Small cells of every shape; `fixed` parameters are taken as given."""
    rounds = draw(st.integers(1, 80))
    parameters: dict[str, Any] = {
        "rounds": rounds,
        "rounds_per_second": 1.0,
        "arrivals_per_second": draw(st.sampled_from([0.0, 0.3, 0.9722, 2.5, 6.0])),
        "capacity": draw(st.integers(0, 8)),
        "fault_start": draw(st.integers(0, rounds + 2)),
        "fault_rounds": draw(st.integers(0, rounds + 2)),
        "fault_capacity": draw(st.integers(0, 4)),
        "failure_rate": draw(st.sampled_from([0.0, 0.025, 0.4, 1.0])),
        "tries": draw(st.sampled_from([(1,), (2,), (3,), (3, 3), (2, 1, 5), (3, 3, 3, 3)])),
        "chain": draw(st.sampled_from(["nested", "flattened"])),
        "backoff_base": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7])),
        "backoff_cap": draw(st.sampled_from([0.0, 1.0, 8.0, 32.0, 200.5])),
        "budget": draw(st.sampled_from([None, 0.0, 0.1, 0.29, 1.0, 3.0])),
        "threshold": draw(st.integers(0, 40)),
    }
    return mc.Cell(**(parameters | fixed))


seeds = st.integers(0, 2**64 - 1)


def rows_of(together: list[mc.Cell], seed: int) -> list[list[Row]]:
    """Simulate cells in one call; for each replication, one row per cell."""
    rows = mc.simulate(together, replications=N_REPLICATIONS, seed=seed, jobs=1).to_dicts()
    return [rows[r::N_REPLICATIONS] for r in range(N_REPLICATIONS)]


def without_late(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("cell", "late")}


def outside_the_window(row: Row) -> Row:
    """Keep what counts the whole run, not the part that the window cuts out."""
    about_the_window = (
        *("cell", "window_requests", "window_calls", "window_dropped"),
        *("second_peak", "drain"),
    )
    return {name: value for name, value in row.items() if name not in about_the_window}


def assert_at_most(less: Row, more: Row, *names: str) -> None:
    got = {name: (less[name], more[name]) for name in names if less[name] > more[name]}
    assert got == {}


# Identities ---------------------------------------------------------------------------------------


@given(cell=cells(), seed=seeds)
def test_the_counters_of_a_row_fit_together(cell: mc.Cell, seed: int) -> None:
    for (row,) in rows_of([cell], seed):
        assert row["requests"] == row["successful"] + row["dropped"] + row["in_flight"]
        assert row["calls"] == row["primary"] + row["retries"]
        assert row["primary"] == row["requests"]
        assert row["requests"] <= row["calls"] <= cell.max_attempts * row["requests"]
        assert row["window_requests"] <= row["window_calls"] <= row["calls"]
        assert row["peak"] <= row["calls"] <= row["peak"] * cell.rounds
        assert 0 <= row["late"] <= row["successful"]
        assert row["wait_max"] <= row["wait_total"] <= row["wait_max"] * row["successful"]
        assert (row["late"] > 0) == (row["wait_max"] > cell.threshold)
        assert row["wait_max"] <= min(cell.longest_wait, cell.rounds - 1)
        assert min(row.values(), key=lambda value: value or 0) >= 0


@given(cell=cells(), seed=seeds)
def test_what_happens_after_the_window_is_null_without_an_after(cell: mc.Cell, seed: int) -> None:
    fault_end = cell.fault_start + cell.fault_rounds
    for (row,) in rows_of([cell], seed):
        if cell.fault_rounds == 0 or fault_end >= cell.rounds:
            assert row["second_peak"] is None
            assert row["drain"] is None
        else:
            assert 0 <= row["second_peak"] <= row["peak"]
            assert row["drain"] is None or 0 <= row["drain"] <= cell.rounds - fault_end
            assert row["drain"] is not None or row["in_flight"] > 0
        if cell.fault_rounds == 0 or cell.fault_start >= cell.rounds:
            assert (row["window_requests"], row["window_calls"]) == (0, 0)
        if cell.fault_start == 0 and cell.fault_rounds >= cell.rounds:
            assert row["window_requests"] == row["requests"]
            assert row["window_calls"] == row["calls"]


# A row depends on its cell and (seed, replication) alone ------------------------------------------


@settings(max_examples=40)
@given(data=st.data(), seed=seeds)
def test_a_row_is_the_same_alone_and_in_any_company(data: st.DataObject, seed: int) -> None:
    together = data.draw(st.lists(cells(), min_size=1, max_size=6))
    if data.draw(st.booleans(), label="same traffic"):
        rounds = together[0].rounds
        together = [replace(cell, rounds=rounds, arrivals_per_second=2.5) for cell in together]
    replications = data.draw(
        st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5, unique=True).map(sorted)
    )
    full = mc.simulate(together, replications=replications, seed=seed, jobs=1)
    assert full["cell"].to_list() == [i for i in range(len(together)) for _ in replications]
    assert full["replication"].to_list() == replications * len(together)

    order = data.draw(st.permutations(range(len(together))))
    chosen = order[: data.draw(st.integers(1, len(order)))]
    some = data.draw(st.lists(st.sampled_from(replications), min_size=1, unique=True))
    jobs = data.draw(st.sampled_from([1, 2, None]))
    part = mc.simulate([together[i] for i in chosen], replications=some, seed=seed, jobs=jobs)
    got = part.with_columns(pl.Series("cell", [chosen[i] for i in part["cell"]], pl.Int32))
    expected = full.filter(pl.col("cell").is_in(chosen) & pl.col("replication").is_in(some))
    assert_frame_equal(got.sort("cell", "replication"), expected.select(got.columns))
    # what is counted only in others is undefined in these
    others = expected.drop(got.columns)
    assert all(column.null_count() == expected.height for column in others)


def test_threads_change_nothing_over_many_replications() -> None:
    many = [
        mc.Cell(rounds=200, fault_start=20, fault_rounds=50, tries=tries, budget=budget)
        for tries in [(1,), (3,), (3, 3, 3)]
        for budget in [None, 0.3]
    ]
    one = mc.simulate(many, replications=3000, seed=4, jobs=1)
    two = mc.simulate(many, replications=3000, seed=4, jobs=2)
    assert_frame_equal(two, one)
    last = mc.simulate(many[::-1], replications=range(2990, 3000), seed=4, jobs=2)
    got = last.with_columns(cell=5 - pl.col("cell")).sort("cell", "replication")
    assert_frame_equal(got, one.filter(pl.col("replication") >= 2990))


@settings(max_examples=30)
@given(
    cell=cells(failure_rate=0.0, chain="flattened"),
    other=cells(failure_rate=0.0, chain="flattened", budget=0.1),
)
def test_a_row_of_the_lesson_is_the_same_alone(cell: mc.Cell, other: mc.Cell) -> None:
    full = mc.simulate([other, cell], generator="lesson", seeds=[5, 77, 2**31 - 2], jobs=2)
    alone = mc.simulate([cell], generator="lesson", seeds=[77], jobs=1)
    expected = full.filter((pl.col("cell") == 1) & (pl.col("seed") == 77))
    keys = ["cell", "replication"]
    assert_frame_equal(alone.drop(keys), expected.select(alone.columns).drop(keys))


# Relations between cells --------------------------------------------------------------------------


@given(cell=cells(), other=cells(), seed=seeds)
def test_requests_depend_on_the_traffic_alone(cell: mc.Cell, other: mc.Cell, seed: int) -> None:
    other = replace(other, rounds=cell.rounds, arrivals_per_second=cell.arrivals_per_second)
    same_window = replace(other, fault_start=cell.fault_start, fault_rounds=cell.fault_rounds)
    for one, two, three in rows_of([cell, other, same_window], seed):
        assert one["requests"] == two["requests"] == three["requests"]
        assert one["window_requests"] == three["window_requests"]


@given(cell=cells(budget=None, chain="flattened"), more=st.integers(1, 30), seed=seeds)
def test_more_attempts_never_make_fewer_calls(cell: mc.Cell, more: int, seed: int) -> None:
    generous = replace(cell, tries=(cell.max_attempts + more,))
    for few, many in rows_of([cell, generous], seed):
        assert_at_most(few, many, "calls", "peak", "window_calls")


@given(cell=cells(budget=None), usual=st.integers(0, 5), broken=st.integers(0, 5), seed=seeds)
def test_more_capacity_never_makes_more_calls_or_drops(
    cell: mc.Cell, usual: int, broken: int, seed: int
) -> None:
    roomy = replace(
        cell, capacity=cell.capacity + usual, fault_capacity=cell.fault_capacity + broken
    )
    for tight, wide in rows_of([cell, roomy], seed):
        assert_at_most(wide, tight, "calls", "peak", "window_calls", "dropped")


@given(cell=cells(budget=None), before=st.integers(0, 9), after=st.integers(0, 9), seed=seeds)
def test_a_longer_window_never_makes_fewer_calls_or_drops(
    cell: mc.Cell, before: int, after: int, seed: int
) -> None:
    cell = replace(cell, fault_capacity=min(cell.fault_capacity, cell.capacity))
    start = max(cell.fault_start - before, 0)
    end = cell.fault_start + cell.fault_rounds + after
    wider = replace(cell, fault_start=start, fault_rounds=end - start)
    for short, long in rows_of([cell, wider], seed):
        assert_at_most(short, long, "calls", "peak", "window_calls", "dropped")


@given(cell=cells(budget=None), higher=st.sampled_from([0.03, 0.5, 1.0]), seed=seeds)
def test_more_failures_never_make_fewer_calls_or_drops(
    cell: mc.Cell, higher: float, seed: int
) -> None:
    worse = replace(cell, failure_rate=max(cell.failure_rate, higher))
    for good, bad in rows_of([cell, worse], seed):
        assert_at_most(good, bad, "calls", "peak", "window_calls", "dropped")


@given(cell=cells(budget=None), more=st.floats(0.001, 4.0), seed=seeds)
def test_more_traffic_never_makes_fewer_requests_or_calls(
    cell: mc.Cell, more: float, seed: int
) -> None:
    busier = replace(cell, arrivals_per_second=cell.arrivals_per_second + more)
    for quiet, busy in rows_of([cell, busier], seed):
        assert_at_most(quiet, busy, "requests", "window_requests", "calls", "peak", "window_calls")


@given(cell=cells(), seed=seeds)
def test_a_budget_never_makes_more_calls_than_none(cell: mc.Cell, seed: int) -> None:
    for limited, free in rows_of([cell, replace(cell, budget=None)], seed):
        assert_at_most(limited, free, "calls", "peak", "window_calls")


@given(cell=cells(budget=None), seed=seeds)
def test_a_huge_budget_is_no_budget(cell: mc.Cell, seed: int) -> None:
    for free, huge in rows_of([cell, replace(cell, budget=1e6)], seed):
        assert huge["denied"] == 0
        assert huge | {"cell": 0, "denied": None} == free


@given(cell=cells(chain="flattened"), seed=seeds)
def test_tries_count_only_through_their_product_where_layers_are_flattened(
    cell: mc.Cell, seed: int
) -> None:
    turned = replace(cell, tries=(1, *cell.tries[::-1]))
    product = replace(cell, tries=(cell.max_attempts,))
    for one, two, three in rows_of([cell, turned, product], seed):
        assert two | {"cell": 0} == one
        assert three | {"cell": 0} == one


@given(cell=cells(capacity=10**9, fault_capacity=10**9, failure_rate=0.0), seed=seeds)
def test_without_failures_nothing_is_retried(cell: mc.Cell, seed: int) -> None:
    for (row,) in rows_of([cell], seed):
        assert row["calls"] == row["requests"] == row["successful"]
        assert row["dropped"] == row["wait_total"] == 0


@given(cell=cells(capacity=0, fault_capacity=0), seed=seeds)
def test_without_capacity_nothing_succeeds(cell: mc.Cell, seed: int) -> None:
    for (row,) in rows_of([cell], seed):
        assert row["successful"] == row["wait_total"] == row["wait_max"] == row["late"] == 0


@given(cell=cells(), beyond=st.integers(0, 5), seed=seeds)
def test_a_window_that_the_run_does_not_reach_changes_nothing(
    cell: mc.Cell, beyond: int, seed: int
) -> None:
    later = replace(cell, fault_start=cell.rounds + beyond)
    none = replace(cell, fault_rounds=0)
    for one, two in rows_of([later, none], seed):
        assert two | {"cell": 0} == one


@given(cell=cells(), start=st.integers(0, 90), length=st.integers(0, 90), seed=seeds)
def test_a_window_of_the_usual_capacity_only_measures(
    cell: mc.Cell, start: int, length: int, seed: int
) -> None:
    none = replace(cell, fault_rounds=0)
    probe = replace(cell, fault_start=start, fault_rounds=length, fault_capacity=cell.capacity)
    for one, two in rows_of([none, probe], seed):
        assert outside_the_window(two) == outside_the_window(one)


@settings(max_examples=40)
@given(cell=cells(), seed=seeds)
def test_windows_of_one_round_add_up_to_the_run(cell: mc.Cell, seed: int) -> None:
    none = replace(cell, fault_rounds=0)
    probes = [
        replace(cell, fault_start=t, fault_rounds=1, fault_capacity=cell.capacity)
        for t in range(cell.rounds)
    ]
    for whole, *rounds in rows_of([none, *probes], seed):
        calls = [row["window_calls"] for row in rounds]
        assert sum(calls) == whole["calls"]
        assert max(calls) == whole["peak"]
        assert sum(row["window_requests"] for row in rounds) == whole["requests"]
        assert sum(row["window_dropped"] for row in rounds) == whole["dropped"]
        got = [row["second_peak"] for row in rounds]
        expected = [max(calls[t + 1 :], default=None) for t in range(cell.rounds)]
        assert got == expected


@given(cell=cells(), more=st.integers(1, 60), seed=seeds)
def test_a_longer_run_leaves_its_first_rounds_unchanged(
    cell: mc.Cell, more: int, seed: int
) -> None:
    longer = replace(cell, rounds=cell.rounds + more)
    fault_end = cell.fault_start + cell.fault_rounds
    for short, long in rows_of([cell, longer], seed):
        assert_at_most(
            short, long, "requests", "calls", "retries", "successful", "dropped", "peak",
            "wait_total", "wait_max", "late", "window_requests", "window_calls",
        )  # fmt: skip
        if fault_end <= cell.rounds:
            assert short["window_calls"] == long["window_calls"]
            assert short["window_requests"] == long["window_requests"]
        if short["drain"] is not None:
            assert short["drain"] == long["drain"]


@given(cell=cells(), higher=st.integers(1, 30), seed=seeds)
def test_the_threshold_changes_only_what_counts_as_late(
    cell: mc.Cell, higher: int, seed: int
) -> None:
    patient = replace(cell, threshold=cell.threshold + higher)
    endless = replace(cell, threshold=cell.rounds)
    for one, two, three in rows_of([cell, patient, endless], seed):
        assert without_late(one) == without_late(two) == without_late(three)
        assert one["late"] >= two["late"] >= three["late"] == 0


@given(cell=cells(), seed=seeds)
def test_seconds_are_only_a_unit(cell: mc.Cell, seed: int) -> None:
    # powers of two, so that the rate per round is the same double
    finer = replace(cell, rounds_per_second=64.0, arrivals_per_second=cell.rate_per_round * 64)
    for one, two in rows_of([cell, finer], seed):
        assert two | {"cell": 0} == one
