"""The world's oracle by hand: what every rule says of a few calls, and laws that all cells keep.

Scripts leave nothing to chance. Random cells and runs have fixed seeds; what is compared by
equality would never fail under others, a test of means says how often it would.
"""

from __future__ import annotations

import ast
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import oracle
import pytest
from oracle_budgets import Consecutive, Envoy, Grpc, Ratio, Sre
from oracle_cells import random_world
from oracle_draws import mersenne_world, philox_world
from oracle_script import HALF, Script, play, rounds_with_calls
from oracle_units import in_rounds, per_round, share, whole_rounds
from oracle_waits import TICKS, Backoff, Formula, polly_position, wait
from oracle_world import (
    Fault,
    Replication,
    Traffic,
    World,
    chain,
    row,
    services,
    simulate,
)

TOP = 2**32 - 1


def outage(**parameters: Any) -> World:
    """A world that serves nothing."""
    return World(**{"rounds": 200, "capacity": 0, "jitter": "none", **parameters})


# The chain --------------------------------------------------------------------------------------


def test_each_layer_waits_for_its_own_count_of_attempts_and_starts_afresh() -> None:
    # inner waits 1, 2; outer waits 10; then the inner layer again 1, 2, although it is call 4
    script = Script([1])
    counts = play(outage(tries=(2, 3), backoff_base=(10, 1), backoff_cap=100), script)
    assert rounds_with_calls(counts) == [0, 1, 3, 13, 14, 16]
    assert [call.attempt for call in script.drawn] == [0, 1, 2, 3, 4]
    assert counts.calls_of_layer == [2, 6]
    assert counts.dropped == 1


def test_a_flattened_chain_waits_longer_and_longer() -> None:
    script = Script([1])
    world = outage(tries=(2, 3), chain="flattened", backoff_base=1, backoff_cap=8)
    counts = play(world, script)
    assert rounds_with_calls(counts) == [0, 1, 3, 7, 15, 23]
    assert counts.calls_of_layer == [6]


def test_the_retrying_layer_is_the_outermost_digit_that_changes() -> None:
    layers = chain(World(tries=(2, 3, 4)))
    for n in range(2 * 3 * 4 - 1):
        digits = [layer.digit(n) for layer in layers]
        after = [layer.digit(n + 1) for layer in layers]
        changed = [i for i, (a, b) in enumerate(zip(digits, after, strict=True)) if a != b]
        retrying = [i for i, layer in enumerate(layers) if digits[i] + 1 < layer.tries]
        assert changed[0] == retrying[-1]  # the innermost that has attempts left
        assert layers[changed[0]].next(n) == n + 1


def test_a_layer_that_never_retries_changes_nothing() -> None:
    def got(tries: tuple[int, ...]) -> dict[str, int | None]:
        world = World(rounds=400, fault_start=50, fault_rounds=50, tries=tries)
        row = simulate(world, philox_world(5, 0))
        return {name: row[name] for name in oracle.COUNTERS}

    assert got((3, 1)) == got((1, 3)) == got((3,))
    assert got((2, 3)) != got((3, 2))


def test_an_outage_without_end_takes_every_attempt_of_every_layer() -> None:
    world = outage(rounds=2000, tries=(2, 3, 4), jitter="full")
    got = simulate(world, replace(philox_world(1, 0), arrivals=lambda t, _: 1 if t < 10 else 0))
    assert got["calls"] == 10 * 24
    assert (got["calls_1"], got["calls_2"], got["calls_3"]) == (20, 60, 240)
    assert (got["dropped"], got["in_flight"]) == (10, 0)


def drawing(word: int) -> Callable[[Formula], int]:
    return lambda formula: formula(word)


# Waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "n", "expected"),  # rounds for u = 0, 1/2, nearly 1
    [
        (Backoff(base=4), 0, (1, 3, 4)),  # 1 + floor(0, 2, 3.99)
        (Backoff(base=4), 2, (1, 9, 16)),
        (Backoff(base=4), 9, (1, 17, 32)),  # the cap
        (Backoff(base=2.5, factor=3, jitter="none"), 1, (8, 8, 8)),  # 7.5
        (Backoff(base=0, jitter="none"), 0, (1, 1, 1)),
        (Backoff(base=4, jitter="equal"), 0, (2, 3, 4)),
        (Backoff(base=10, jitter="plus_minus"), 0, (8, 10, 12)),
        (Backoff(base=40, jitter="plus_minus"), 0, (26, 32, 39)),  # 25.6 to 38.4: past the cap
        (Backoff(base=4, jitter="decorrelated"), 0, (4, 8, 12)),  # from 4 to 3 * 4
        (Backoff(base=4, cap=7, jitter="decorrelated"), 0, (4, 7, 7)),
        (Backoff(base=28, jitter="polly"), 0, (1, 26, 32)),  # 0, 25.1, 38.6 cut to 32
        (Backoff(first_wait=Fraction(0)), 0, (1, 1, 1)),
        (Backoff(first_wait=Fraction(5, 2)), 0, (3, 3, 3)),
        (Backoff(base=4, first_wait=Fraction(0)), 1, (1, 5, 8)),
    ],
)
def test_waits_by_the_table(backoff: Backoff, n: int, expected: tuple[int, ...]) -> None:
    got = tuple(wait(backoff, n, backoff.first_memory, drawing(word))[0] for word in (0, HALF, TOP))
    assert got == expected


def test_full_jitter_is_the_lessons_to_the_last_word() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        backoff = Backoff(base=rng.choice([0.0, 0.001, 1.5, 2.0, 3.7, 33.3, rng.random() * 50]))
        n, word = rng.randrange(8), rng.choice([0, 1, TOP, rng.getrandbits(32)])
        ceiling = round(min(backoff.cap, backoff.base * 2**n) * 2**32)
        got, _ = wait(backoff, n, 0, drawing(word))
        assert got == 1 + word * ceiling // 2**64


def test_a_decorrelated_wait_starts_from_the_one_before_of_the_same_call() -> None:
    # inner layer: from 4 to 12, u = 1/2: 8; then from 4 to 24: 14; the outer: 8; the inner: 8 again
    script = Script([1])
    world = outage(tries=(2, 3), jitter="decorrelated", backoff_base=4, backoff_cap=100)
    assert rounds_with_calls(play(world, script)) == [0, 8, 22, 30, 38, 52]


def test_polly_waits_telescope() -> None:
    # the sum of the waits of n retries is F of the last draw, whatever the others are
    rng = random.Random(2)
    backoff = Backoff(base=50.0, cap=1e9, jitter="polly")
    for _ in range(50):
        memory, words = backoff.first_memory, [rng.getrandbits(32) for _ in range(6)]
        for n, word in enumerate(words):
            _, memory = wait(backoff, n, memory, drawing(word))
        t = 5 + words[-1] / TICKS
        expected = 50 * 2**t * math.tanh(math.sqrt(4 * t)) / 1.4
        assert memory / TICKS == pytest.approx(expected, rel=1e-6)
    assert polly_position(50.0, 0, 0) == 0


def test_polly_waits_have_the_medians_and_means_of_its_formula() -> None:
    # medians and means of 1.5 million draws of the formula in doubles, in units of the base; the
    # standard errors here are at most 0.9 % of them, so 4 % fails once in 100,000 seeds
    rng = random.Random(3)
    backoff = Backoff(base=1000.0, cap=1e9, jitter="polly")
    waits: list[list[int]] = [[] for _ in range(4)]
    for _ in range(4000):
        memory = backoff.first_memory
        for n in range(4):
            rounds, memory = wait(backoff, n, memory, drawing(rng.getrandbits(32)))
            waits[n].append(rounds)
    got = [statistics.median(w) / 1000 for w in waits], [statistics.fmean(w) / 1000 for w in waits]
    assert got[0] == pytest.approx([0.90, 1.14, 2.02, 4.01], rel=0.04)
    assert got[1] == pytest.approx([0.87, 1.16, 2.08, 4.13], rel=0.04)


def test_the_first_wait_of_every_call_of_a_layer_is_the_given_one() -> None:
    world = outage(tries=(2, 3), backoff_base=4, backoff_cap=100, first_wait=0)
    assert rounds_with_calls(play(world, Script([1]))) == [0, 1, 9, 10, 11, 19]


# Deadlines --------------------------------------------------------------------------------------


def test_a_retry_that_would_come_after_the_deadline_ends_the_request() -> None:
    # retries in rounds 1, 3, 7; the next would be due in 15
    for deadline, rounds in [(14, [0, 1, 3, 7]), (15, [0, 1, 3, 7, 15]), (0, [0])]:
        world = outage(tries=(5,), backoff_base=1, backoff_cap=8, deadline=deadline)
        counts = play(world, Script([1]))
        assert rounds_with_calls(counts) == rounds
        assert (counts.expired, counts.dropped) == (deadline < 15, 1)


def test_the_request_ends_at_its_deadline_even_if_an_outer_layer_would_retry_sooner() -> None:
    world = outage(tries=(2, 2), backoff_base=(1, 10), deadline=5)
    counts = play(world, Script([1]))
    assert rounds_with_calls(counts) == [0]
    assert (counts.expired, counts.dropped) == (1, 1)


def test_a_layer_that_gives_up_lets_its_caller_decide_and_its_numbers_are_jumped_over() -> None:
    # the inner layer would retry after 4 rounds and has 2: it gives up; the outer one retries with
    # number 3 of 0..5, its wait drawn by number 2
    script = Script([1])
    world = outage(tries=(2, 3), backoff_base=(10, 4), deadline=(None, 2))
    counts = play(world, script)
    assert rounds_with_calls(counts) == [0, 10]
    assert [call.attempt for call in script.drawn] == [0, 2, 3]
    assert (counts.expired, counts.dropped) == (2, 1)
    assert counts.calls_of_layer == [2, 2]


def test_the_outermost_layer_whose_time_would_be_over_gives_up() -> None:
    # after round 1 the innermost layer would retry in round 3: the middle one has 2 rounds, counted
    # from round 0, so it gives up, and the outer one retries: 0, 1, then 11, 12
    world = outage(tries=(2, 9, 9), backoff_base=(10, 5, 1), deadline=(None, 2, 50))
    counts = play(world, Script([1]))
    assert rounds_with_calls(counts) == [0, 1, 11, 12]
    assert (counts.expired, counts.denied) == (2, 0)


@pytest.mark.parametrize("deadline", [10**6, (10**6, 10**6, 10**6)])
def test_a_deadline_that_never_binds_changes_nothing(deadline: Any) -> None:
    world = World(rounds=400, fault_start=50, fault_rounds=50, tries=(3, 3, 3))
    got = simulate(replace(world, deadline=deadline), philox_world(9, 3))
    assert got == simulate(world, philox_world(9, 3))


# Capacity and units -----------------------------------------------------------------------------


def test_a_fractional_capacity_serves_by_whole_parts_from_the_start_of_its_phase() -> None:
    world = World(
        rounds=15, capacity=0.4, fault_start=6, fault_rounds=5, fault_capacity=1.5
    )  # fmt: skip
    got = [service.capacity for service in services(world)]
    expected = [0, 0, 1, 0, 1, 0, *[1, 2, 1, 2, 1], *[0, 0, 1, 0]]
    assert got == expected
    # 0.7 is seven tenths: in doubles 10 * 0.7 is 7 by luck, 30 * 0.7 is 20.999999999999996
    served = [service.capacity for service in services(World(rounds=30, capacity=0.7))]
    assert sum(served) == 21


def test_a_ramp_serves_the_integral_of_its_line() -> None:
    ramp = Fault(start=2, length=4, capacity=4, capacity_end=0)
    got = [service.capacity for service in services(World(rounds=8, capacity=9, faults=(ramp,)))]
    expected = [9, 9, *[3, 3, 1, 1], 9, 9]  # 3.5, 6, 7.5, 8
    assert got == expected


def test_faults_follow_each_other_and_end_with_the_run() -> None:
    faults = (
        Fault(start=1, length=2, capacity=0, failure_rate=1.0),
        Fault(start=3, length=1, capacity=0.5),
        Fault(start=5, length=10**9, capacity="250/s"),
    )
    world = World(rounds=7, capacity=6, failure_rate=0.25, faults=faults)
    got = [(service.capacity, float(service.failure_rate)) for service in services(world)]
    expected = [(6, 0.25), (0, 1.0), (0, 1.0), (0, 0.25), (6, 0.25), (2, 0.25), (3, 0.25)]
    assert got == expected
    assert world.window == (1, 5 + 10**9)


def test_units_are_exact() -> None:
    assert in_rounds("250 ms", 100.0) == 25
    assert in_rounds("2.5min", 10.0) == 1500
    assert in_rounds(0.3, 100.0) == Fraction(3, 10)
    assert whole_rounds("1 h", 0.5) == 1800
    assert per_round("400/s", 100.0) == 4
    assert per_round("0.5/min", 100.0) == Fraction(1, 12000)
    assert share("30 %") == share(0.3) == Fraction(3, 10)
    with pytest.raises(ValueError, match="no whole number of rounds"):
        whole_rounds("25 ms", 62.5)


def test_text_and_numbers_say_the_same() -> None:
    texts = World(
        rounds=300, capacity="600/s", fault_start="1 s", fault_rounds="500 ms", tries=(3, 3),
        backoff_base=("20 ms", 4), backoff_cap="320 ms", deadline="45 s", first_wait="10 ms",
    )  # fmt: skip
    numbers = World(
        rounds=300, capacity=6, fault_start=100, fault_rounds=50, tries=(3, 3),
        backoff_base=(2, 4), backoff_cap=32, deadline=4500, first_wait=1,
    )  # fmt: skip
    assert simulate(texts, philox_world(1, 1)) == simulate(numbers, philox_world(1, 1))


# Sums that need no simulation -------------------------------------------------------------------


def offsets(tries: tuple[int, ...]) -> list[list[float]]:
    """Probability that call n of a request runs so many rounds after the first one, by n.

    All calls fail; waits are uniform on 1 .. 2, 4, ... of the retrying layer.
    """
    layers = chain(World(tries=tries))
    at = [[1.0]]
    for n in range(math.prod(tries) - 1):
        retrying = next(layer for layer in reversed(layers) if layer.digit(n) + 1 < layer.tries)
        most = int(min(32, 2 * 2 ** retrying.digit(n)))
        after = [0.0] * (len(at[-1]) + most)
        for rounds, p in enumerate(at[-1]):
            for waited in range(1, most + 1):
                after[rounds + waited] += p / most
        at.append(after)
    return at


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ((3, 3), (8.08, 81.7, 24)),
        ((3, 3, 3), (19.56, 46.7, 78)),
        ((27,), (6.34, 0.0, 734)),
    ],
)
def test_the_oracle_gives_the_renewal_sums_of_an_outage(
    tries: tuple[int, ...], expected: tuple[float, float, int]
) -> None:
    # nothing is served for 100 rounds, so requests do not interact and means are sums: of call n of
    # a request that arrives in round s of the outage, the chance that it runs before the end
    at = offsets(tries)
    rate, length = 0.9722, 100
    inside = [[sum(p[: length - s]) for p in at] for s in range(length)]
    calls = rate * sum(map(sum, inside)) / length
    dropped = rate * sum(by_call[-1] for by_call in inside)
    assert (calls, dropped) == pytest.approx(expected[:2], abs=0.05)
    assert len(at[-1]) - 1 == expected[2]

    # a fresh seed leaves 5 standard errors of 50 runs once in a hundred thousand
    world = World(rounds=length, fault_start=0, fault_rounds=length, tries=tries)
    runs = 50
    rows = [simulate(world, mersenne_world(seed)) for seed in range(runs)]
    for name, mean in (("calls", calls * length), ("window_dropped", dropped)):
        got = [row[name] or 0 for row in rows]
        error = statistics.stdev(got) / math.sqrt(runs)
        assert abs(statistics.fmean(got) - mean) <= 5 * error + 1e-9, name


# Laws -------------------------------------------------------------------------------------------


def test_lesson_cells_are_the_lessons_rows() -> None:
    rng = random.Random(4)
    for _ in range(60):
        world = random_world(rng, "chains")
        lesson = World(
            **{
                name: getattr(world, name)
                for name in (
                    *("rounds", "rounds_per_second", "arrivals_per_second", "fault_start"),
                    *("fault_rounds", "failure_rate", "tries", "budget", "threshold"),
                )
            },
            chain="flattened",
            capacity=rng.randrange(8),
            fault_capacity=rng.randrange(2),
            backoff_base=rng.choice([0.0, 0.25, 2.0, 3.7]),
            backoff_cap=rng.choice([0.5, 20.0, 33.3]),
        )
        parameters = {name: v for name, v in lesson.parameters().items() if name != "chain"}
        cell = oracle.Parameters(**parameters)
        got = simulate(lesson, philox_world(6, 2))
        expected = oracle.simulate(cell, oracle.philox_draws(cell, 6, 2))
        assert oracle.differences(got, expected) == {}


def identities(world: World) -> dict[str, int | None]:
    """Run a cell and check what holds in every one."""
    counts = Replication(world, philox_world(8, 4)).run()
    got = row(world, counts)
    number = {name: value or 0 for name, value in got.items()}
    layers = [number[f"calls_{i}"] for i in range(1, len(chain(world)) + 1)]
    assert number["in_flight"] >= 0
    assert number["calls"] == number["primary"] + number["retries"] == layers[-1]
    assert number["primary"] <= number["requests"]
    assert number["window_dropped"] <= min(number["dropped"], number["window_requests"])
    assert number["late"] <= number["successful"]
    assert number["peak"] <= number["calls"]
    assert sum(counts.successes_in) == number["successful"]
    if number["rejected"] == 0:
        assert number["primary"] == number["requests"]
        assert all(outer <= inner for outer, inner in pairwise(layers))
        assert number["calls"] <= number["requests"] * math.prod(world.tries)
    return got


def test_random_chains_keep_the_identities() -> None:
    rng = random.Random(5)
    for _ in range(60):
        world = random_world(rng, "chains")
        got = identities(world)
        assert (got["rejected"], got["queue_peak"]) == (0, 0)


def test_one_layer_is_the_same_nested_and_flattened() -> None:
    rng = random.Random(6)
    for _ in range(40):
        world = random_world(rng, "chains")
        if len(world.tries) == 1:
            rows = [
                simulate(replace(world, chain=kind), philox_world(3, 3))
                for kind in ("nested", "flattened")
            ]
            assert rows[0] == rows[1]


PINNED: list[tuple[World, dict[str, int | None]]] = [
    (
        World(
            rounds=800, fault_start=100, fault_rounds=100, tries=(2, 3, 3), capacity=2.5,
            failure_rate=0.02, backoff_base=(4, 2, 1.5), backoff_factor=1.5, jitter="decorrelated",
            deadline=(None, 20, 9), budget=(None, Ratio(ratio=0.5, window=200), Grpc()),
            budget_scope="layer",
        ),
        {
            "requests": 773, "window_requests": 80, "calls": 1067, "primary": 773, "retries": 294,
            "successful": 696, "dropped": 76, "in_flight": 1, "peak": 9, "window_calls": 286,
            "second_peak": 6, "wait_total": 423, "wait_max": 25, "late": 1, "drain": 6,
            "window_dropped": 75, "denied": 462, "expired": 6, "recovered": 1, "calls_1": 856,
            "calls_2": 1056, "calls_3": 1067,
        },
    ),
    (
        World(
            rounds=800, fault_start=100, fault_rounds=100, tries=(3, 3), capacity=2, clients=3,
            jitter="polly", budget=Sre(ratio=0.4, window=100, k=1.2),
            breaker=Consecutive(timeout=15),
        ),
        {
            "requests": 773, "window_requests": 80, "calls": 234, "primary": 180, "retries": 54,
            "successful": 194, "dropped": 579, "peak": 5, "window_calls": 29, "second_peak": 2,
            "wait_total": 166, "wait_max": 13, "window_dropped": 80, "denied": 1131,
            "rejected": 840, "recovery": None, "calls_1": 803, "calls_2": 234,
        },
    ),
    (
        World(
            rounds=800, tries=(2, 2), capacity=1.5, failure_rate=0.05, jitter="plus_minus",
            faults=(
                Fault(start=100, length=50, capacity=0, capacity_end=2),
                Fault(start=200, length=40, capacity=1, failure_rate=0.5),
            ),
            first_wait=0, queue=60, timeout=20, budget=Envoy(), arrivals_per_second=60,
            traffic=Traffic(workers=8, think=5, bursts=((300, 40),)),
        ),
        {
            "requests": 1081, "window_requests": 158, "calls": 1158, "primary": 1081,
            "retries": 77, "successful": 1012, "dropped": 66, "in_flight": 3, "peak": 41,
            "window_calls": 174, "second_peak": 41, "wait_total": 6094, "wait_max": 76, "late": 15,
            "drain": 12, "window_dropped": 16, "denied": 127, "timed_out": 71, "wasted": 71,
            "queue_peak": 47, "recovery": None, "calls_1": 1089, "calls_2": 1158,
        },
    ),
]  # fmt: skip
"""Rows of replication 3; counters that are 0 are left out."""


@pytest.mark.parametrize(("world", "expected"), PINNED)
def test_rows_of_the_world_are_pinned(world: World, expected: dict[str, int | None]) -> None:
    row_of = simulate(world, philox_world(20260802, 3))
    got = {name: value for name, value in row_of.items() if value != 0}
    assert got == expected


def test_the_oracle_imports_nothing_from_the_package() -> None:
    files = sorted(Path(__file__).parent.glob("oracle*.py"))
    assert len(files) == 8
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            assert not {m.split(".")[0] for m in modules} & {"mc", "numba", "numpy", "polars"}
