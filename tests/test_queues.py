"""Queues, faults and recovery: the kernel against the oracle, known distributions, and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pytest
from folders import run
from oracle_budgets import Consecutive, Envoy, Resilience4j
from oracle_world import World, services
from polars.testing import assert_frame_equal
from scipy import stats
from typer.testing import CliRunner
from worlds import cell_of, differences, random_worlds

import mc
from mc import kernel, reports
from mc.cli import app
from mc.kernel import layout
from mc.kernel.queues import NO_PLACE, empty_queue
from mc.model import COUNTERS, MAX_LAYERS, Cell, chain_kind, counters_of, tables
from mc.runner import plan_blocks, simulate_block


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


def open_traffic(worlds: list[World]) -> list[World]:
    """Give worlds with a queue or several faults the traffic that cells have."""
    return [
        replace(
            world,
            traffic=None,
            arrivals_per_second=world.arrivals_per_second or 0.97 * world.rounds_per_second,
        )
        for world in worlds
    ]


def in_few_loops(worlds: list[World]) -> Iterator[World]:
    """Change random worlds until they go through three loops: each takes seconds to compile.

    Without budgets, breakers and deadlines; with what counts calls that wait; and with everything,
    late outcomes at a breaker among it. The slow tests have all.
    """
    for k, world in enumerate(worlds):
        jitter = "full" if world.jitter in ("decorrelated", "polly") else world.jitter
        budget: Any = world.budget if isinstance(world.budget, float) else None
        plain = replace(world, jitter=jitter, deadline=None, breaker=None, clients=1, budget=budget)
        if k % 3 == 0:
            yield replace(plain, budget_scope="chain")
        elif k % 3 == 1:
            envoy = world.budget if isinstance(world.budget, Envoy) else Envoy(max_retries=k % 5)
            breaker = world.breaker if isinstance(world.breaker, Resilience4j) else WINDOW
            yield replace(plain, budget=envoy, breaker=breaker, clients=world.clients)
        else:
            in_a_row = world.breaker if isinstance(world.breaker, Consecutive) else IN_A_ROW
            deadline = 20 if world.deadline is None else world.deadline
            changed = replace(world, jitter="decorrelated", breaker=in_a_row, deadline=deadline)
            if chain_kind(cell_of(changed)).budgets == layout.MIXED:
                yield changed


@pytest.mark.parametrize("seed", range(2))
def test_random_queues_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(open_traffic(random_worlds(seed, 120, "queues"))))
    assert len(worlds) > 80
    assert differences(worlds, [0, 2**32 - 1 - seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_random_queues_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(open_traffic(random_worlds(seed, 300, "queues"))))
    assert differences(worlds, [0, seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)  # each combination is a loop, which takes seconds to compile
@pytest.mark.parametrize("seed", range(200, 204))
def test_random_queues_in_all_loops_are_the_oracles_rows(seed: int) -> None:
    worlds = random_worlds(seed, 100, "queues")  # with every kind of traffic
    assert differences(worlds, [0, seed], seed=seed << 40) == []


def test_faults_serve_and_fail_what_the_oracle_says() -> None:
    for world in open_traffic(random_worlds(53, 150, "queues")):
        made = tables([cell_of(world)], "philox")
        assert made.capacities[0].tolist() == [service.capacity for service in services(world)]
        rates = [round(service.failure_rate * 2**32) for service in services(world)]
        assert made.failures[0].tolist() == rates


def test_faults_go_through_the_fast_loops_as_through_the_general_one() -> None:
    plain: dict[str, Any] = {"queue": 0, "timeout": None, "cancel": False, "jitter": "equal"}
    plain |= {"budget": None, "breaker": None, "clients": 1, "rounds": 200}
    cells = [
        cell_of(replace(world, **plain)) for world in open_traffic(random_worlds(54, 150, "queues"))
    ]
    cells = [cell for cell in cells if kernel.loop_of(chain_kind(cell)) is None and cell.faults]
    assert len(cells) > 30
    for k, cell in enumerate(cells):
        # alone, or with two that share its wheel
        alike = [replace(cell, threshold=1, budget=budget) for budget in (None, 0.1, 0.3)]
        several = alike if k % 2 and cell.deadline is None else [cell]
        (block,) = plan_blocks(dict(enumerate(several)), "philox")
        record = np.empty((3, len(several), kernel.N_RECORDED, cell.rounds), np.int32)
        got = simulate_block(block, np.arange(3), 5)
        expected = simulate_block(block, np.arange(3), 5, record)  # the general loop
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("deadline", [None, 15])
def test_no_queue_is_no_queue_and_one_in_which_nobody_waits_is_none_either(
    deadline: int | None,
) -> None:
    outage = Cell(fault_rounds=100, tries=(3, 3), deadline=deadline)
    expected, got = rows_of(outage, replace(outage, queue=0, timeout=7, cancel=True))
    assert_frame_equal(got, expected)
    # all calls are served in their round, and some fail
    ample = replace(outage, capacity=60, fault_capacity=60, failure_rate=0.3)
    expected, got = rows_of(ample, replace(ample, queue=5, timeout=1, cancel=True))
    assert got["queue_peak"].max() < 60  # type: ignore[operator]
    assert got["timed_out"].sum() == got["refused"].sum() == got["wasted"].sum() == 0
    columns = ["replication", *counters_of([ample])]
    assert_frame_equal(got.select(columns), expected.select(columns))


# Figures ------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """What a separate program found: a mean and its standard error, by counter."""

    cell: Cell
    expected: dict[str, tuple[float, float]]


QUEUED: Final = Cell(
    rounds=12_000, capacity=3, fault_start=1000, fault_rounds=1000, queue=100_000, timeout=100,
    backoff_base=10, backoff_factor=1, backoff_cap=10,
)  # fmt: skip

FIGURES: Final = {
    "1.4, 1 try": Figure(
        replace(QUEUED, arrivals_per_second=140),
        {
            "calls": (16803.8, 5.3), "successful": (14436.1, 5.3), "timed_out": (2367.6, 3.6),
            "wasted": (2367.6, 3.6), "recovered": (1, 0), "recovery": (786.0, 1.5),
        },
    ),
    "1.6, 2 tries": Figure(
        replace(QUEUED, arrivals_per_second=160, tries=(2,)),
        {
            "calls": (36627, 11), "successful": (1600.5, 1.5), "timed_out": (34710, 11),
            "wasted": (30000, 0), "recovered": (0, 0),
        },
    ),
    "2.4, 1 try": Figure(
        replace(QUEUED, arrivals_per_second=240),
        {
            "calls": (28806.5, 6.8), "successful": (17980, 18), "timed_out": (10825, 21),
            "wasted": (10825, 21), "recovered": (1, 0), "recovery": (3629.3, 7.3),
        },
    ),
    "2.4, 2 tries": Figure(
        replace(QUEUED, arrivals_per_second=240, tries=(2,)),
        {
            "calls": (54944, 14), "successful": (2400.3, 1.8), "timed_out": (52069, 14),
            "wasted": (30000, 0), "recovered": (0, 0),
        },
    ),
    "30 % fail": Figure(
        Cell(
            arrivals_per_second=2000, capacity=60, fault_rounds=800, fault_capacity=60,
            fault_failure_rate=0.3, tries=(4,), jitter="none", backoff_base=1, backoff_cap=1,
        ),
        {
            "window_calls": (28.314 * 800, 0.010 * 800), "calls": (86662, 13),
            "dropped": (128.78, 0.47), "late": (0, 0),
        },
    ),
}  # fmt: skip
"""600 seeds each."""


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("1.4, 1 try", 1000),
        *((name, 100) for name in FIGURES if name != "1.4, 1 try"),
        *(pytest.param(name, 2000, marks=pytest.mark.slow) for name in FIGURES),
    ],
)
def test_means_are_those_of_a_separate_program(name: str, n: int) -> None:
    """Within 4 standard errors of both: a fresh seed would fail once in 600."""
    cell, expected = FIGURES[name]
    (rows,) = rows_of(cell, replications=n, seed=12)
    for counter, (mean, error) in expected.items():
        own = rows[counter].drop_nulls().cast(pl.Float64).to_numpy()
        assert len(own) == n, counter
        allowed = 4 * math.hypot(error, own.std(ddof=1) / math.sqrt(n))
        assert own.mean() == pytest.approx(mean, abs=max(allowed, 1e-9)), counter
    if expected.get("recovered") == (0, 0):
        assert rows["recovery"].null_count() == n


def waiting_times(mean: float, capacity: int, most: int) -> np.ndarray:
    """Give the stationary distribution of the rounds that a call waits.

    Poisson arrivals in each round, so many served in it: the calls that are left when a round ends
    follow Lindley's recursion, L' = max(L + N - capacity, 0). Of the calls of a round the k-th
    (from 0) stands behind L + k others and is served ``(L + k) // capacity`` rounds later.

    Notes
    -----
    Lindley 1952, "The theory of queues with a single server".
    """
    arrives = stats.poisson.pmf(np.arange(200), mean)
    left = np.zeros(most + 1)
    left[0] = 1.0
    for _ in range(20_000):
        total = np.convolve(left, arrives)
        after = total[capacity : capacity + most + 1].copy()
        after[0] = total[: capacity + 1].sum()
        if np.abs(after - left).max() < 1e-15:
            break
        left = after
    # a call that is chosen at random is the k-th of its round with probability P(N > k) / mean
    behind = np.convolve(left, stats.poisson.sf(np.arange(200), mean) / mean)
    return np.add.reduceat(behind, np.arange(0, behind.size, capacity))


@pytest.mark.parametrize(("mean", "capacity"), [(2.7, 3), (0.7, 1)])
def test_waits_are_those_of_lindleys_recursion(mean: float, capacity: int) -> None:
    """Within 5 standard errors; a fresh seed would fail once in 100,000."""
    probabilities = waiting_times(mean, capacity, 400)
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    cell = Cell(rounds=4000, arrivals_per_second=100 * mean, capacity=capacity, queue=10**6)
    longer = replace(cell, rounds=6000)
    for threshold in (0, 1, 3, 8):
        # of the last 2,000 rounds, when the queue has forgotten that it was empty
        first, both = rows_of(
            replace(cell, threshold=threshold), replace(longer, threshold=threshold),
            replications=500,
        )  # fmt: skip
        late, waited, n = (
            (both[name] - first[name]).to_numpy().astype(float)
            for name in ("late", "wait_total", "successful")
        )
        share = late.sum() / n.sum()
        error = np.std(late - share * n, ddof=1) / math.sqrt(500) / n.mean()
        expected = probabilities[threshold + 1 :].sum()
        assert share == pytest.approx(expected, abs=5 * error)
    wait = waited.sum() / n.sum()
    error = np.std(waited - wait * n, ddof=1) / math.sqrt(500) / n.mean()
    assert wait == pytest.approx(probabilities @ np.arange(probabilities.size), abs=5 * error)


# Laws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "tries"), [(0.85, 1), (0.42, 2), (0.28, 3)])
def test_below_the_capacity_every_run_comes_back_in_time(load: float, tries: int) -> None:
    """With r tries and no cancelling: r times the load is at most 0.9 of the capacity."""
    cell = replace(QUEUED, arrivals_per_second=300 * load, tries=(tries,), rounds=16_000)
    (rows,) = rows_of(cell, replications=60)
    assert rows["recovered"].to_list() == [1] * 60
    assert rows["recovery"].max() < 14_000  # type: ignore[operator]


@pytest.mark.parametrize(("load", "tries"), [(1.15, 1), (0.56, 2), (0.38, 3)])
def test_above_the_capacity_no_run_comes_back(load: float, tries: int) -> None:
    cell = replace(QUEUED, arrivals_per_second=300 * load, tries=(tries,), rounds=16_000)
    (rows,) = rows_of(cell, replications=60)
    assert rows["recovered"].to_list() == [0] * 60
    assert rows["recovery"].null_count() == 60


STUCK: Final = replace(QUEUED, arrivals_per_second=280, tries=(2,), rounds=30_000)
"""2.8 calls a round against a capacity of 3; a backlog of 2,800 takes 14,000 rounds at least."""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"tries": (1,)}, 1),
        ({"queue": 150}, 1),
        ({"cancel": True}, 1),
        ({"budget": {"kind": "ratio", "ratio": 0.2, "window": 1000}}, 0),
        ({"budget": {"kind": "finagle"}}, 0),
    ],
)
def test_what_brings_a_system_back_that_is_near_its_capacity(
    changes: dict[str, Any], expected: int
) -> None:
    """So near the capacity 1 or 2 % of the runs end with a second that is bad by chance."""
    (rows,) = rows_of(replace(STUCK, **changes), replications=40)
    n = int(rows["recovered"].sum())
    assert n >= 36 if expected else n == 0


# Memory -------------------------------------------------------------------------------------------


def test_memory_grows_with_the_calls_that_wait_and_not_with_the_run() -> None:
    cell = Cell(rounds=200_000, arrivals_per_second=90, capacity=1, queue=10**6, timeout=50)
    made = tables([cell], "philox")
    queue = empty_queue(made, np.zeros(1, np.int64), 4096)
    assert sum(array.nbytes for array in queue) < 4096 * 48
    # 180,000 calls pass through 4096 places, or the memory would have grown
    (rows,) = rows_of(cell, replications=2)
    assert rows["queue_peak"].max() < 4096  # type: ignore[operator]
    assert rows["calls"].min() > 170_000  # type: ignore[operator]


def test_a_queue_that_outgrows_its_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [replace(STUCK, rounds=3000), replace(STUCK, rounds=3000, cancel=True, queue=2000)]
    expected = rows_of(*cells, replications=4)
    sizes = []

    def noted(made: Any, some: Any, n_places: int) -> Any:
        sizes.append(n_places)
        return empty_queue(made, some, n_places)

    monkeypatch.setattr("mc.kernel.queues.empty_queue", noted)
    monkeypatch.setattr("mc.kernel._PLACES", 3)
    got = rows_of(*cells, replications=4)
    assert max(sizes) > 3000
    for one, other in zip(got, expected, strict=True):
        assert_frame_equal(one, other)


# Numbers ------------------------------------------------------------------------------------------


def test_counters_of_a_queue_come_last_so_that_others_have_shorter_rows() -> None:
    assert layout.MOST_LAYERS == MAX_LAYERS
    assert COUNTERS.index("refused") == layout.REFUSED
    assert COUNTERS.index("recovered") == layout.RECOVERED == len(COUNTERS) - 1
    (block,) = plan_blocks({0: Cell(), 1: Cell(fault_rounds=5)}, "philox")
    assert block.n_counters == kernel.N_COUNTERS
    assert NO_PLACE < 0


def test_a_trace_adds_up_with_a_queue_too() -> None:
    cell = replace(STUCK, rounds=3000, queue=500, failure_rate=0.1)
    rounds = mc.trace(cell, replications=[3])
    row = mc.simulate([cell], [3]).row(0, named=True)
    assert rounds["successful"].sum() == row["successful"]
    assert rounds["calls"].sum() == row["calls"]
    assert rounds["queued"].max() <= 500  # type: ignore[operator]
    joined = rounds["calls"] - rounds["queued"].diff().fill_null(rounds["queued"][0])
    # what neither joins nor is left in the queue was refused or served
    assert joined.sum() >= row["refused"] + row["successful"]


# What is printed ----------------------------------------------------------------------------------

SMALL: Final = """title = "t"
replications = 200
[fixed]
rounds = 3000
capacity = 3
fault_start = 300
fault_rounds = 400
queue = 10_000
timeout = 100
backoff_base = 10
backoff_factor = 1
backoff_cap = 10
[[policy]]
name = "calm"
arrivals_per_second = 60
[[policy]]
name = "stuck"
arrivals_per_second = 200
tries = [2]
[[policy]]
name = "no queue"
arrivals_per_second = 60
tries = [2]
queue = 0
timeout = "none"
[[claim]]
text = "it comes back"
metric = "recovered"
policies = ["calm"]
relation = "="
value = 1
[[claim]]
text = "within two seconds"
metric = "recovery"
policies = ["stuck"]
relation = "<="
value = "2 s"
"""


def test_a_folder_says_how_many_runs_come_back_and_when(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run(SMALL, folder)
    results = mc.load(folder)
    found = {
        (line["cell"], line["metric"]): line
        for line in results.summary.filter(pl.col("metric").is_in(["recovered", "recovery"]))
        .iter_rows(named=True)
    }  # fmt: skip
    # all, and none: the bound is that of 200 of 200, 0.025 ** (1 / 200)
    bound = 0.025 ** (1 / 200)
    calm, stuck = found[0, "recovered"], found[1, "recovered"]
    assert [calm[name] for name in ("mean", "ci_low", "ci_high")] == pytest.approx([1, bound, 1])
    assert [stuck[name] for name in ("mean", "ci_low", "ci_high")] == pytest.approx(
        [0, 0, 1 - bound]
    )
    # of those that did not recover it is later than the run, and where there is no queue nothing
    assert found[0, "recovery"]["share_defined"] == 1
    assert found[0, "recovery"]["mean"] > 0
    assert (found[1, "recovery"]["n"], found[1, "recovery"]["share_defined"]) == (0, 0)
    assert found[2, "recovery"]["share_defined"] is None
    assert found[2, "recovered"]["n"] == 0
    claims = results.claims.select("n_holds", "share").rows()
    assert claims == [(200, 1.0), (0, 0.0)]

    shown = " ".join(CliRunner().invoke(app, ["show", str(folder)]).stdout.split())
    assert "queue, and whether it comes back" in shown
    assert (
        shown.count("without a queue, a breaker or a throttle nothing else keeps a storm alive")
        == 1
    )
    assert "Queue and recovery" in reports.report(results, png=False).read_text("utf-8")
