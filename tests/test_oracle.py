"""The oracle by hand, and the kernel against the oracle: every counter, cells of every shape.

All random cells come from a fixed seed; every comparison is an equality of integers, so a fresh
seed would never fail by luck.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from oracle import (
    COUNTERS,
    Call,
    Draws,
    Parameters,
    Row,
    differences,
    lesson_draws,
    philox_draws,
    simulate,
)

import mc

MAX_CALLS: Final = 20_000  # of one random cell, at most and on average: the oracle is slow
N_CELLS: Final = 16  # of a group, simulated in one call


# By hand ------------------------------------------------------------------------------------------


def scripted(
    arrivals: Sequence[int],
    waits: dict[Call, int],
    failures: Sequence[Call] = (),
    budget: float | None = None,
) -> Draws:
    return Draws(
        arrivals=lambda t: arrivals[t],
        fails=lambda call: call in failures,
        wait=lambda call: waits[call],
        within_budget=lambda retries, primary: budget is None or retries <= budget * primary,
    )


@pytest.mark.parametrize(
    ("last_wait", "expected_end"),
    [
        # d comes back in round 5 and succeeds: nothing is pending at the end, 2 rounds after
        (1, {"calls": 7, "retries": 3, "successful": 3, "in_flight": 0, "wait_total": 3}),
        # d would come back in round 7, after the run: it is in flight, and nothing ever drains
        (3, {"calls": 6, "retries": 2, "successful": 2, "in_flight": 1, "wait_total": 2}),
    ],
)
def test_the_oracle_plays_six_rounds_as_a_reader_would(
    last_wait: int, expected_end: dict[str, int]
) -> None:
    # round 0: a is served, b is not and waits 2 rounds      (capacity 1)
    # round 2: b fails its last attempt and is dropped; c fails and waits 2   (capacity 0)
    # round 4: c goes ahead of d and succeeds after 2 rounds; d fails         (capacity 1)
    cell = Parameters(
        rounds=6, capacity=1, fault_start=2, fault_rounds=2, fault_capacity=0, tries=(2,),
        threshold=1,
    )  # fmt: skip
    b, c, d = Call(0, 1, 0), Call(2, 0, 0), Call(4, 0, 0)
    got = simulate(cell, scripted([2, 0, 1, 0, 1, 0], {b: 2, c: 2, d: last_wait}))
    expected = {
        "requests": 4,
        "window_requests": 1,
        "primary": 4,
        "dropped": 1,
        "window_dropped": 0,
        "peak": 2,
        "window_calls": 2,
        "second_peak": 2,
        "wait_max": 2,
        "late": 1,
        "drain": 2 if last_wait == 1 else None,
        **expected_end,
    }
    assert got == expected


def test_the_oracle_serves_retries_first_in_the_order_of_their_scheduling() -> None:
    # a and b of round 0 and c of round 1 all come back in round 3, ahead of its new request d;
    # two of the four are served
    cell = Parameters(rounds=4, capacity=2, fault_start=0, fault_rounds=3, tries=(2,))
    a, b, c, d = Call(0, 0, 0), Call(0, 1, 0), Call(1, 0, 0), Call(3, 0, 0)
    got = simulate(cell, scripted([2, 1, 0, 1], {a: 3, b: 3, c: 2, d: 5}))
    assert (got["successful"], got["wait_total"], got["wait_max"]) == (2, 6, 3)  # a and b
    assert (got["dropped"], got["in_flight"]) == (1, 1)  # c, d
    # all three retries have run only when the run ends: one round after the window, d still waits
    assert (got["second_peak"], got["drain"]) == (4, None)


def test_a_budget_of_zero_lets_the_first_retries_through() -> None:
    # both requests of round 0 fail while no retry has run (0 <= 0); in round 1 the first retry
    # fails as the first (1 > 0) and is dropped, the second succeeds
    cell = Parameters(rounds=2, tries=(3,), budget=0.0)
    a, b = Call(0, 0, 0), Call(0, 1, 0)
    a_again = a._replace(attempt=1)
    got = simulate(cell, scripted([2, 0], {a: 1, b: 1}, failures=[a, b, a_again], budget=0.0))
    expected = {"requests": 2, "calls": 4, "retries": 2, "dropped": 1, "successful": 1}
    assert differences(got, expected) == {}


def test_a_window_of_which_the_run_sees_no_end_has_no_after() -> None:
    for fault_start, fault_rounds in [(0, 0), (2, 2), (3, 9), (4, 1), (9, 1)]:
        cell = Parameters(rounds=4, fault_start=fault_start, fault_rounds=fault_rounds)
        got = simulate(cell, scripted([1, 1, 1, 1], {}))
        assert (got["second_peak"], got["drain"]) == (None, None)


# Kernel against oracle ----------------------------------------------------------------------------


def kernel(cells: Sequence[Parameters], **how: Any) -> dict[tuple[int, int], Row]:
    """Simulate the cells in one call; the rows by (cell, replication)."""
    frame = mc.simulate([mc.Cell(**asdict(cell), chain="flattened") for cell in cells], **how)
    return {(row["cell"], row["replication"]): row for row in frame.iter_rows(named=True)}


def most_calls(cell: Parameters) -> float:
    """Bound the calls of a cell on average: an attempt takes a round or more."""
    return cell.rounds * cell.rate_per_round * min(math.prod(cell.tries), cell.rounds)


def random_cell(rng: np.random.Generator) -> Parameters:
    """Draw a small cell that may lie at any edge of the model."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    while True:
        rounds = one_of(1, 2, 5, 13, 40, 100, 100, 250, 250)
        rounds_per_second = one_of(1.0, 3.0, 62.5, 100.0)
        rate = one_of(0.0, 0.05, 0.9722, 0.9722, 2.0, 3.7, 8.0)
        start = one_of(0, 1, rounds // 3, rounds - 1, rounds, rounds + 5)
        to_the_end = max(rounds - start, 0)
        capacity = one_of(0, 1, 1, 2, 6, 25, 10**6)
        cell = Parameters(
            rounds=rounds,
            rounds_per_second=rounds_per_second,
            arrivals_per_second=rate * rounds_per_second,
            capacity=capacity,
            fault_start=start,
            fault_rounds=one_of(
                0, 0, 1, rounds // 4, rounds // 4, to_the_end, max(to_the_end - 1, 0), 3 * rounds
            ),
            fault_capacity=one_of(0, 0, 1, 3, min(capacity + 2, 10**6)),
            failure_rate=one_of(0.0, 0.025, 0.3, 0.5, 0.9, 1.0, float(rng.random())),
            tries=one_of(
                (1,), (2,), (3,), (3, 1, 1), (1, 3, 1), (3, 3), (3, 3, 3), (2, 2, 2, 2), (81,),
                (3, 3, 3, 3), (9, 1, 9),
            ),
            backoff_base=one_of(0.0, 0.001, 0.25, 1.0, 1.5, 2.0, 3.7, 5.0, 40.0),
            backoff_cap=one_of(0.0, 0.5, 1.0, 1.7, 4.0, 20.0, 32.0, 33.3, 100.0, 5.0 * rounds),
            budget=one_of(
                None, None, None, None, 0.0, 0.05, 0.1, 0.29, 0.3, 0.35, 0.58, 0.7, 1.0, 1.1, 2.5,
                3.0,
            ),
            threshold=one_of(0, 1, 5, 20, 100),
        )  # fmt: skip
        if most_calls(cell) <= MAX_CALLS:
            return cell


def random_group(rng: np.random.Generator, *, same_traffic: bool) -> list[Parameters]:
    cells = [random_cell(rng) for _ in range(N_CELLS)]
    if not same_traffic:
        return cells
    first = max(cells, key=lambda cell: cell.rounds * cell.rate_per_round)
    group: list[Parameters] = []
    while len(group) < N_CELLS:
        cell = replace(
            random_cell(rng),
            rounds=first.rounds,
            rounds_per_second=first.rounds_per_second,
            arrivals_per_second=first.arrivals_per_second,
        )
        if most_calls(cell) <= MAX_CALLS:
            group.append(cell)
    return group


@pytest.mark.parametrize("n_groups", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("same_traffic", [True, False])
def test_the_kernel_equals_the_oracle_on_random_cells_under_philox(
    same_traffic: bool, n_groups: int
) -> None:
    rng = np.random.default_rng([20260802, 1, same_traffic])
    mismatches = []
    for _ in range(n_groups):
        cells = random_group(rng, same_traffic=same_traffic)
        seed, other, replication = (int(x) for x in rng.integers(0, 2**32, size=3))
        seed += int(rng.integers(2**32)) * 2**32
        rows = kernel(cells, seed=seed, replications=sorted({other, replication}))
        for i, cell in enumerate(cells):
            expected = simulate(cell, philox_draws(cell, seed, replication))
            if different := differences(rows[i, replication], expected):
                mismatches.append((cell, seed, replication, different))
    assert mismatches == []


@pytest.mark.parametrize("n_groups", [6, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("same_traffic", [True, False])
def test_the_kernel_equals_the_oracle_on_random_cells_under_the_lesson(
    same_traffic: bool, n_groups: int
) -> None:
    rng = np.random.default_rng([20260802, 2, same_traffic])
    mismatches = []
    for _ in range(n_groups):
        cells = [
            replace(cell, failure_rate=0.0) if cell.fault_rounds else cell
            for cell in random_group(rng, same_traffic=same_traffic)
        ]
        seeds = [int(x) for x in rng.integers(1, 2**31 - 1, size=2)]
        rows = kernel(cells, generator="lesson", seeds=seeds)
        for i, cell in enumerate(cells):
            for r, seed in enumerate(seeds):
                expected = simulate(cell, lesson_draws(cell, seed))
                if different := differences(rows[i, r], expected):
                    mismatches.append((cell, seed, different))
    assert mismatches == []


@pytest.mark.parametrize(
    ("budget", "replications", "seeds"),
    [  # chosen so that the two ways to compare part ways
        (0.29, [7, 19, 39, 46], [1, 2, 9, 14]),
        (0.35, [38, 109, 119, 222], [1, 2, 5, 6]),
        (0.57, [0, 45, 46, 64], [2, 4, 5, 9]),
        (0.58, [0, 10, 46, 76], [3, 4, 5, 6]),
        (0.7, [12, 18, 38, 54], [2, 5, 6, 7]),
    ],
)
def test_a_budget_is_exact_under_philox_and_a_double_product_in_the_lesson(
    budget: float, replications: list[int], seeds: list[int]
) -> None:
    # 0.29 * 100 is 28.999999999999996 in doubles: only the exact budget allows the 29th retry
    cell = Parameters(rounds=250, capacity=0, tries=(3, 3, 3), budget=budget)

    def doubles(retries: int, primary: int) -> bool:
        return retries <= budget * primary

    def exact(retries: int, primary: int) -> bool:
        return retries <= Fraction(repr(budget)) * primary

    rows = kernel([cell], seed=7, replications=replications)
    for r in replications:
        draws = philox_draws(cell, 7, r)
        assert differences(rows[0, r], simulate(cell, draws)) == {}
        assert differences(rows[0, r], simulate(cell, replace(draws, within_budget=doubles)))

    rows = kernel([cell], generator="lesson", seeds=seeds)
    for r, seed in enumerate(seeds):
        expected = simulate(cell, lesson_draws(cell, seed))
        assert differences(rows[0, r], expected) == {}
        other = simulate(cell, replace(lesson_draws(cell, seed), within_budget=exact))
        assert differences(rows[0, r], other)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("replication", [0, 2**31 - 1, 2**31, 2**32 - 1])
def test_seed_and_replication_count_to_their_last_bit(seed: int, replication: int) -> None:
    cell = Parameters(rounds=60, fault_start=10, fault_rounds=20, failure_rate=0.1, tries=(3, 3))
    rows = kernel([cell], seed=seed, replications=[replication])
    got = rows[0, replication]
    expected = simulate(cell, philox_draws(cell, seed, replication))
    assert differences(got, expected) == {}


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-18, 1e-3, 30.0, 120.0, 699.0])
def test_arrivals_equal_the_oracle_at_every_rate(rate: float) -> None:
    cell = Parameters(rounds=40, rounds_per_second=1.0, arrivals_per_second=rate, capacity=10)
    rows = kernel([cell], seed=3, replications=[0, 5])
    for r in (0, 5):
        assert differences(rows[0, r], simulate(cell, philox_draws(cell, 3, r))) == {}
    rows = kernel([cell], generator="lesson", seeds=[3, 5])
    for r, seed in enumerate((3, 5)):
        assert differences(rows[0, r], simulate(cell, lesson_draws(cell, seed))) == {}


def test_thousands_of_attempts_number_their_draws_apart() -> None:
    # waits of one round: attempt 2,999 runs, with its own service and jitter words
    cell = Parameters(
        rounds=3000, arrivals_per_second=0.5, capacity=1, tries=(3000,), failure_rate=0.999,
        backoff_base=1.5, backoff_cap=1.5,
    )  # fmt: skip
    rows = kernel([cell], seed=11, replications=[0, 1])
    for r in (0, 1):
        expected = simulate(cell, philox_draws(cell, 11, r))
        assert expected["retries"] != 0
        assert differences(rows[0, r], expected) == {}


def test_seeds_of_the_lesson_are_hashed_without_repeats_and_begin_with_the_experiments() -> None:
    cell = Parameters(rounds=50, arrivals_per_second=100.0, failure_rate=0.3, tries=(3,))
    frame = mc.simulate(
        [mc.Cell(**asdict(cell), chain="flattened")],
        replications=200,
        seed=20260802,
        generator="lesson",
    )
    seeds = frame["seed"].to_list()
    assert frame["replication"].to_list() == list(range(200))
    assert seeds[0] == 20260802
    assert len(set(seeds)) == 200
    assert all(1 <= seed <= 2**31 - 2 for seed in seeds)
    state = np.random.SeedSequence(20260802).generate_state(199, np.uint32)
    expected = (state.astype(np.int64) % (2**31 - 2) + 1).tolist()  # these 199 repeat nothing
    assert seeds[1:] == expected
    for row in frame.iter_rows(named=True):
        assert differences(row, simulate(cell, lesson_draws(cell, row["seed"]))) == {}


def test_the_lesson_refuses_a_failure_rate_beside_a_window() -> None:
    cell = mc.Cell(fault_rounds=10, failure_rate=0.1)
    with pytest.raises(ValueError, match="failure_rate"):
        mc.simulate([cell], generator="lesson", seeds=[1])


# Overload -----------------------------------------------------------------------------------------

OVERLOAD: Final = Parameters(arrivals_per_second=600.0, capacity=1, tries=(3, 3, 3, 3))


def test_overload_is_exact() -> None:
    cell = replace(OVERLOAD, rounds=600)
    got = kernel([cell], seed=5, replications=[2])[0, 2]
    assert differences(got, simulate(cell, philox_draws(cell, 5, 2))) == {}
    got = kernel([cell], generator="lesson", seeds=[99])[0, 0]
    assert differences(got, simulate(cell, lesson_draws(cell, 99))) == {}


GROWTH: Final = """
import json, sys
from dataclasses import replace
import mc
cell = mc.Cell(arrivals_per_second=600.0, capacity=1, tries=(3, 3, 3, 3), chain="flattened")
def peak():
    # not ru_maxrss: on Linux that starts at the peak of the parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
mc.simulate([replace(cell, rounds=10)], replications=1, jobs=1)
before = peak()
row = mc.simulate([cell], replications=4, jobs=1).row(0, named=True)
json.dump([(peak() - before) * 1024, row], sys.stdout)
"""


def test_overload_of_four_thousand_rounds_keeps_its_identities_in_bounded_memory() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("Linux only")
    # a process of its own: the peak of this one belongs to the tests before
    done = subprocess.run(
        [sys.executable, "-c", GROWTH],
        cwd=Path(__file__).parents[1],  # mc is found there, installed or not
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    growth, row = json.loads(done.stdout)
    assert row["requests"] == row["successful"] + row["dropped"] + row["in_flight"]
    assert row["calls"] == row["primary"] + row["retries"]
    assert row["primary"] == row["requests"]
    assert row["successful"] <= 4000  # one a round
    assert row["calls"] > 1_000_000
    # 81 attempts at about 17 rounds each keep some 8,000 calls waiting, of 8 bytes each, and the
    # draws that are remembered take 8 MB. 1.4 million calls pass in each of four replications:
    # keeping them would take 45 MB.
    assert growth < 16 * 2**20
    assert set(COUNTERS) <= set(row)
