"""Budgets, breakers and clients: the kernel against the oracle, what libraries document, and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from oracle_budgets import Consecutive, Resilience4j, Slices, TokenWindow
from oracle_draws import mersenne_world
from oracle_world import World, simulate
from polars.testing import assert_frame_equal
from worlds import cell_of, differences, random_worlds

import mc
from mc.kernel import layout
from mc.model import Cell, chain_kind


def rows_of(*cells: Cell, replications: int = 50, seed: int = 7) -> list[pl.DataFrame]:
    """Simulate cells; the rows of each, without its number."""
    rows = mc.simulate(cells, replications=replications, seed=seed, jobs=2)
    return [rows.filter(pl.col("cell") == i).drop("cell") for i in range(len(cells))]


# The oracle ---------------------------------------------------------------------------------------

WINDOW: Final = Resilience4j(
    sliding_window_size=7, minimum_number_of_calls=3, wait_duration_in_open_state=6,
    permitted_number_of_calls_in_half_open_state=2,
)  # fmt: skip
IN_A_ROW: Final = Consecutive(consecutive_failures=3, timeout=4, max_requests=2)

LOOPS: Final[dict[int, dict[str, Any]]] = {
    layout.CHAIN_BUDGET: {"breaker": WINDOW},
    layout.MIXED: {"breaker": IN_A_ROW, "jitter": "decorrelated", "deadline": 20},
}
"""What random cells with some kinds of budget have beside it, others nothing. Every combination is
a loop of its own, which takes seconds to compile; the slow tests have all."""


def in_few_loops(worlds: list[World]) -> Iterator[World]:
    """Change random worlds until their loops are those of `LOOPS`."""
    for world in worlds:
        kind = chain_kind(cell_of(world))
        if kind.budgets == layout.CHAIN_BUDGET and kind.breaker == layout.NO_BREAKER:
            continue  # tested elsewhere
        wanted: dict[str, Any] = {"jitter": "full", "deadline": None, "breaker": None}
        wanted |= LOOPS.get(kind.budgets, {})
        if world.jitter not in ("decorrelated", "polly") and wanted["jitter"] == "full":
            wanted["jitter"] = world.jitter
        if wanted["deadline"] is not None and world.deadline is not None:
            wanted["deadline"] = world.deadline
        if isinstance(world.breaker, type(wanted["breaker"])):
            wanted["breaker"] = world.breaker
        changed = replace(world, **wanted)
        # without a breaker a plain ratio is a table
        if chain_kind(cell_of(changed)).budgets == kind.budgets:
            yield changed


@pytest.mark.parametrize("seed", range(2))
def test_random_budgets_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(random_worlds(seed, 150, "budgets")))
    assert len(worlds) > 80
    assert differences(worlds, [0, 2**32 - 1 - seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_random_budgets_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(random_worlds(seed, 300, "budgets")))
    assert differences(worlds, [0, seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)  # each combination is a loop, which takes seconds to compile
@pytest.mark.parametrize("seed", range(200, 204))
def test_random_budgets_in_all_loops_are_the_oracles_rows(seed: int) -> None:
    worlds = random_worlds(seed, 100, "budgets")
    assert differences(worlds, [0, seed], seed=seed << 40) == []


# What libraries document, in cells whose outcome is known -----------------------------------------

OUTAGE: Final = Cell(
    rounds=90, arrivals_per_second=1000, capacity=0, fault_start=0, fault_rounds=90, tries=(2,),
    backoff_base=100, backoff_cap=100, jitter="none",
)  # fmt: skip
"""Some 900 requests, of which none succeeds; their retries come after the end."""


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        # tokens 9, 8, 7, 6 are above half of 10; with a ratio of 0.1 nothing comes back
        ({"kind": "grpc"}, 4),
        ({"kind": "grpc", "max_tokens": 100}, 49),
        ({"kind": "grpc", "max_tokens": 1}, 0),
        # 500 // 14, // 10, // 5
        ({"kind": "aws"}, 35),
        ({"kind": "aws", "cost": 10}, 50),
        ({"kind": "aws", "cost": 5}, 100),
        # without a percentage, and with Linkerd without a success, the reserve alone is left
        ({"kind": "finagle", "percent_can_retry": 0}, 100),
        ({"kind": "finagle", "percent_can_retry": 0, "min_retries_per_sec": 3, "ttl": "2 s"}, 6),
        ({"kind": "finagle", "percent_can_retry": 0, "min_retries_per_sec": "2/s"}, 20),
        ({"kind": "finagle", "percent_can_retry": 0, "min_retries_per_sec": 0}, 0),
        ({"kind": "linkerd"}, 100),
        ({"kind": "linkerd", "min_retries_per_second": 0}, 0),
        ({"kind": "envoy", "max_retries": 0}, 0),
        ({"kind": "envoy", "budget_percent": 0, "min_retry_concurrency": 0}, 0),
        ({"kind": "sre", "ratio": 0}, 0),
    ],
)
def test_an_outage_lets_so_many_retries_through(budget: dict[str, Any], expected: int) -> None:
    for clients in (1, 3):
        (rows,) = rows_of(replace(OUTAGE, budget=budget, clients=clients))  # type: ignore[arg-type]
        got = (rows["requests"] - rows["denied"]).unique().to_list()
        assert got == [clients * expected]


@pytest.mark.parametrize("retries", [1, 3, 10])
def test_envoys_retries_hold_their_places_from_the_decision_to_the_outcome(retries: int) -> None:
    # with waits of 5 rounds k places let k retries run in every 5 rounds: those of round 5 free
    # their places before the first calls of that round are decided
    budget: Any = {"kind": "envoy", "max_retries": retries}
    (rows,) = rows_of(replace(OUTAGE, budget=budget, backoff_base=5))
    assert rows["retries"].to_list() == [retries * (90 // 5 - 1)] * 50
    assert rows["in_flight"].to_list() == [retries] * 50


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0.1, 0.1), (0.3, 0.3), (0.25, 0.25), ("20 %", 0.2)]
)
def test_a_ratio_charged_at_the_decision_is_never_exceeded(ratio: Any, expected: float) -> None:
    budget: Any = {"kind": "ratio", "ratio": ratio, "charged": "decision"}
    (rows,) = rows_of(replace(OUTAGE, budget=budget))
    allowed = rows["requests"] - rows["denied"]
    least = (rows["requests"] * expected).floor() - 1  # the last request may come after the last
    assert (allowed <= rows["requests"] * expected).all()
    assert (allowed >= least).all()


def test_finagle_allows_a_reserve_and_a_share_of_the_requests() -> None:
    # 1000 in, 5000 out: one retry for every five requests, and the reserve of 100
    (rows,) = rows_of(replace(OUTAGE, budget={"kind": "finagle"}))  # type: ignore[arg-type]
    allowed = rows["requests"] - rows["denied"]
    assert allowed.to_list() == (rows["requests"] // 5 + 100).to_list()


@pytest.mark.parametrize(
    ("budget", "failure_rate", "expected"),
    [
        # below 21.5 % (14) failures cost no credit, so all three attempts are used: 1 + p + p**2
        ({"kind": "aws"}, 0.2, 1.24),
        ({"kind": "aws"}, 0.5, 1.072),
        ({"kind": "aws", "cost": 5}, 0.5, 1.201),
        # break-even at 0.1 / 1.1 = 9.1 %: below it retries are unlimited, above it they stop
        ({"kind": "grpc", "max_tokens": 1000}, 0.08, 1.0864),
        ({"kind": "grpc"}, 0.3, 1.0),
        ({"kind": "ratio", "ratio": 0.1, "charged": "decision"}, 0.5, 1.1),
        ({"kind": "sre", "window": "100 s"}, 0.5, 1.1),
        # r = 0.2 * successes and successes = (1 + r) / 2, so r = 1/9
        ({"kind": "linkerd", "min_retries_per_second": 0}, 0.5, 1 + 1 / 9),
        # the share and the reserve of 10 a second beside 500 requests a second
        ({"kind": "finagle"}, 0.5, 1.22),
    ],
)
def test_steady_failures_meet_the_ratio_that_follows_from_the_rules(
    budget: Any, failure_rate: float, expected: float
) -> None:
    # 3 attempts against a server that fails whatever the load; 400,000 requests, so the standard
    # error is below 0.001 and the tolerance of 1 % is for the start, when credit is full
    cell = Cell(
        rounds=16_000, arrivals_per_second=500, capacity=1000, failure_rate=failure_rate,
        tries=(3,), budget=budget,
    )  # fmt: skip
    (rows,) = rows_of(cell, replications=5)
    got = int(rows["calls"].sum()) / int(rows["requests"].sum())
    assert got == pytest.approx(expected, rel=0.01)


def test_a_breaker_that_waits_a_minute_rejects_5833_requests_for_an_outage_of_a_second() -> None:
    # resilience4j's defaults: with a window full of successes it opens after 50 failures, so for
    # 60 s nothing passes; the outage itself would cost 97
    cell = Cell(
        rounds=8000, fault_rounds=100, tries=(1,), breaker={"kind": "resilience4j"},  # type: ignore[arg-type]
    )  # fmt: skip
    (rows,) = rows_of(cell, replications=100)
    # 5,833 is the mean of a Poisson count; of 100 its mean has a standard error of 7.6
    assert rows["rejected"].mean() == pytest.approx(5833, abs=5 * 7.6)
    assert rows["dropped"].mean() == pytest.approx(5833 + 50, abs=5 * 7.6)


# Laws ---------------------------------------------------------------------------------------------

STORM: Final = Cell(fault_rounds=100, tries=(3, 3, 3), failure_rate=0.02)

AMPLE: Final[list[dict[str, Any]]] = [
    {"kind": "ratio", "ratio": 1e6, "charged": "decision"},
    {"kind": "ratio", "ratio": 1e6, "window": 10**6},
    {"kind": "finagle", "min_retries_per_sec": 10**6},
    {"kind": "linkerd", "min_retries_per_second": 10**6},
    {"kind": "aws", "quota": 2**31 - 1, "cost": 1},
    {"kind": "envoy", "max_retries": 2**31 - 1},
    {"kind": "sre", "ratio": 1e6, "window": "20 s"},
]


@pytest.mark.parametrize("budget", AMPLE, ids=lambda budget: budget["kind"])
def test_a_budget_that_never_binds_is_none(budget: Any) -> None:
    cells = [replace(STORM, budget=budget, budget_scope=scope) for scope in ("chain", "layer")]
    expected, *found = rows_of(STORM, *cells, replications=5)
    for rows in found:
        assert rows["denied"].sum() == 0
        assert_frame_equal(rows.drop("denied"), expected.drop("denied"))


def test_a_breaker_that_never_opens_is_none() -> None:
    window: Any = {"kind": "resilience4j", "sliding_window_size": 10**6}
    window |= {"minimum_number_of_calls": 10**6}
    row: Any = {"kind": "consecutive", "consecutive_failures": 2**31 - 1}
    for breaker, budget in ((window, None), (row, 0.3)):
        cell = replace(STORM, budget=budget)
        got, expected = rows_of(replace(cell, breaker=breaker), cell, replications=5)
        assert got["rejected"].sum() == 0
        assert got["recovery"].to_list() == [0] * 5
        of_breaker = ("rejected", "recovered", "recovery")  # which there is not without one
        assert_frame_equal(got.drop(of_breaker), expected.drop(of_breaker))


def test_a_breaker_whose_probes_meet_in_a_round_stays_open() -> None:
    """Ten come in a round that serves four, so it opens again; without retries two in a round."""
    cell = Cell(
        rounds=3000, fault_start=500, fault_rounds=500, tries=(2, 3, 2), backoff_base=5.0,
        arrivals_per_second=200, capacity=4,
        breaker={"kind": "resilience4j", "wait_duration_in_open_state": "1 s"},  # type: ignore[arg-type]
    )  # fmt: skip
    stuck, back = rows_of(cell, replace(cell, tries=(1,)), replications=5)
    assert stuck["recovered"].to_list() == [0] * 5
    assert back["recovered"].to_list() == [1] * 5


@pytest.mark.parametrize("chain", ["nested", "flattened"])
def test_a_ratio_without_a_window_is_the_lessons_budget_in_both_loops(chain: Any) -> None:
    # a window longer than the run sends it through the general loop with a form of its own
    for ratio in (0.1, 0.3, 1 / 3, 0.7, 2.5):
        lesson = replace(STORM, budget=ratio, chain=chain)
        assert replace(lesson, budget={"kind": "ratio", "ratio": ratio}) == lesson  # type: ignore[arg-type]
        ever: Any = {"kind": "ratio", "ratio": ratio, "window": 10**6}
        expected, got = rows_of(lesson, replace(lesson, budget=ever), replications=5)
        assert_frame_equal(got, expected)


def test_clients_share_nothing_but_the_traffic() -> None:
    one, many = rows_of(STORM, replace(STORM, clients=7), replications=5)
    assert_frame_equal(one, many)


def test_tokens_of_fifty_clients_are_not_those_of_one() -> None:
    # 10 in each of 50 clients: each may fail at its own pace, 200 retries in all instead of 249
    cell = replace(OUTAGE, arrivals_per_second=50_000)
    each: Any = {"kind": "grpc"}
    together: Any = {"kind": "grpc", "max_tokens": 500}
    rows = rows_of(
        replace(cell, budget=each, clients=50), replace(cell, budget=together), replications=5
    )
    allowed = [(one["requests"] - one["denied"]).unique().to_list() for one in rows]
    assert allowed == [[200], [249]]


@pytest.mark.parametrize(("calm", "times_usual"), [(5, 1.8), (20, 3.5), (60, 7.9)])
def test_a_budget_that_never_forgets_is_decided_by_the_calm(calm: int, times_usual: float) -> None:
    """27 tries, 30 %, an outage of 3 s; the mean of 100 runs is known to 0.03."""
    cell = mc.Cell(
        rounds=100 * (calm + 3), fault_start=100 * calm, fault_rounds=300, tries=(3, 3, 3),
        chain="flattened", budget=0.3,
    )  # fmt: skip
    rows = mc.simulate([cell], replications=100, seed=2)
    got = rows["window_calls"].mean() / (300 * 0.9722)  # type: ignore[operator]
    assert got == pytest.approx(times_usual, abs=0.1)


def test_a_budget_with_a_window_forgets_healthy_minutes() -> None:
    # five healthy minutes bank 0.2 of 29,000 requests for ever, more than an outage can use; in
    # the last 10 s there are 0.2 of 972
    cell = Cell(rounds=31_000, fault_start=30_000, fault_rounds=100, tries=(3, 3, 3))
    cell = replace(cell, chain="flattened")
    ever: Any = {"kind": "ratio", "ratio": 0.2}
    window: Any = {"kind": "ratio", "ratio": 0.2, "window": "10 s"}
    free, banked, forgetting = rows_of(
        cell, replace(cell, budget=ever), replace(cell, budget=window), replications=20
    )
    assert_frame_equal(banked.drop("denied"), free.drop("denied"))
    assert forgetting["window_calls"].mean() < 0.6 * free["window_calls"].mean()  # type: ignore[operator]
    assert min(forgetting["denied"]) > 0


def test_rejected_calls_are_no_calls() -> None:
    breaker: Any = {"kind": "consecutive", "timeout": "50 ms"}
    cell = replace(STORM, breaker=breaker, budget=0.3)
    (rows,) = rows_of(cell)
    assert min(rows["rejected"]) > 0
    assert (rows["primary"] < rows["requests"]).any()
    assert rows["calls"].equals(rows["primary"] + rows["retries"], check_names=False)
    ends = rows["successful"] + rows["dropped"] + rows["in_flight"]
    assert rows["requests"].equals(ends, check_names=False)
    trace = mc.trace(cell, replications=[0, 1], seed=7)
    for name in ("calls", "primary", "retries", "dropped", "successful"):
        got = trace.group_by("replication", maintain_order=True).agg(pl.col(name).sum())
        assert got[name].to_list() == rows[name][:2].to_list()
    assert (
        trace.filter(pl.col("round") == 3999)["waiting"].to_list()
        == rows["in_flight"][:2].to_list()
    )


# Means of another program -------------------------------------------------------------------------

FAULTS: Final = {
    "outage": Cell(fault_rounds=100, tries=(3, 3, 3), chain="flattened"),
    "degradation": Cell(fault_rounds=1000, fault_capacity=1, tries=(3, 3, 3), chain="flattened"),
}

MEASURED: Final[list[tuple[dict[str, Any], dict[str, tuple[float, float, float]]]]] = [
    ({"tries": 1}, {"outage": (0.97, 3888.7, 97.5), "degradation": (0.97, 3888.7, 351.9)}),
    ({"tries": 3}, {"outage": (2.86, 4082.0, 93.3), "degradation": (2.09, 5012.2, 113.0)}),
    ({}, {"outage": (6.34, 4553.3, 0), "degradation": (3.82, 6752.9, 0)}),
    ({"budget": 0.3}, {"outage": (2.99, 4090.4, 97.2), "degradation": (1.41, 4327.1, 246.7)}),
    ({"budget": 0.1}, {"outage": (1.67, 3958.8, 97.2), "degradation": (1.12, 4035.6, 312.9)}),
    (
        {"budget": {"kind": "finagle"}},
        {"outage": (3.13, 4105.2, 96.9), "degradation": (1.27, 4186.4, 286.6)},
    ),
    (
        {"budget": {"kind": "linkerd", "min_retries_per_second": 0}},
        # under the degradation that program's ten slices in place of eleven matter, see below
        {"outage": (1.94, 3985.7, 97.2)},
    ),
    (
        {"budget": {"kind": "grpc"}},
        {"outage": (1.01, 3893.0, 97.2), "degradation": (0.98, 3894.1, 350.1)},
    ),
    (
        {"budget": {"kind": "aws"}},
        {"outage": (1.32, 3924.0, 97.2), "degradation": (1.41, 4329.3, 207.6)},
    ),
    (
        {"budget": {"kind": "envoy"}},
        {"outage": (1.23, 3917.8, 94.2), "degradation": (1.82, 4740.2, 127.7)},
    ),
]
"""Calls a round inside the window, calls, dropped: means over 1,500 seeds of a separate program."""


def assert_measured(number: int, replications: int) -> None:
    """Means within 4 standard errors of the difference, and half of the last digit printed."""
    changes, measured = MEASURED[number]
    cells = [replace(FAULTS[fault], **changes) for fault in measured]
    frames = rows_of(*cells, replications=replications, seed=20260803)
    for (fault, means), cell, rows in zip(measured.items(), cells, frames, strict=True):
        columns = (rows["window_calls"] / cell.fault_rounds, rows["calls"], rows["dropped"])
        for column, mean, last in zip(columns, means, (0.01, 0.1, 0.1), strict=True):
            values = column.to_numpy()
            error = values.std(ddof=1) * (1 / 1500 + 1 / len(values)) ** 0.5
            assert abs(values.mean() - mean) <= 4 * error + last / 2, (fault, column.name, mean)


NAMES: Final = [str(changes) for changes, _ in MEASURED]


@pytest.mark.parametrize("number", range(len(MEASURED)), ids=NAMES)
def test_budgets_have_the_means_of_another_program(number: int) -> None:
    # six means for each of ten policies, so a fresh seed fails once in 300
    assert_measured(number, 300)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(MEASURED)), ids=NAMES)
def test_budgets_have_the_means_of_another_program_in_many_replications(number: int) -> None:
    assert_measured(number, 10_000)


class SlicesOfLinkerd:
    """Linkerd's budget without a reserve, with so many slices in its balance."""

    def __init__(self, n: int) -> None:
        self.n = n

    def start(self, rounds_per_second: float) -> TokenWindow:
        return TokenWindow(Slices(1000, self.n - 1), "success", 1, 5, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "expected"), [(10, (1.14, 4055.8, 309.7)), (11, None)])
def test_ten_slices_of_linkerd_have_the_means_of_another_program(
    n: int, expected: tuple[float, float, float] | None
) -> None:
    # tower sums all its slots, the one that is written next included: eleven slices of a tenth of
    # the ttl, which are the kernel's; the separate program has ten. Within 4 standard errors
    world = World(
        fault_rounds=1000, fault_capacity=1, tries=(27,), budget=SlicesOfLinkerd(n)
    )  # fmt: skip
    rows = [simulate(world, mersenne_world(seed)) for seed in range(300)]
    if expected is None:
        budget: Any = {"kind": "linkerd", "min_retries_per_second": 0}
        cell = replace(FAULTS["degradation"], budget=budget)
        (found,) = rows_of(cell, replications=10_000)
        columns = (found["window_calls"] / 1000, found["calls"], found["dropped"])
        expected = tuple(column.mean() for column in columns)  # type: ignore[assignment]
    assert expected is not None
    values = np.array([(row["window_calls"], row["calls"], row["dropped"]) for row in rows], float)
    values[:, 0] /= 1000
    errors = values.std(axis=0, ddof=1) * (1 / 300 + 1 / 1500) ** 0.5
    assert (abs(values.mean(axis=0) - expected) <= 4 * errors + (0.005, 0.05, 0.05)).all()
