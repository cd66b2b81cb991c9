"""Queues, time-outs, faults, traffic and recovery of the oracle: by hand, and laws of all cells."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
from oracle_budgets import Consecutive, Envoy, Grpc, Resilience4j
from oracle_cells import random_world
from oracle_draws import mersenne_world, philox_world, poisson_table
from oracle_script import Script, plain, play, rounds_with_calls
from oracle_world import (
    Call,
    Counts,
    Fault,
    Replication,
    Traffic,
    World,
    chain,
    open_traffic,
    row,
    services,
    simulate,
)

# Queue and time-outs ------------------------------------------------------------------------------


def slow(**parameters: Any) -> World:
    """A world that serves one call a round and has room for many."""
    return World(**{"rounds": 30, "capacity": 1, "queue": 100, **parameters})


def test_calls_are_served_in_the_order_of_their_coming_in_that_round_if_there_is_room() -> None:
    counts = plain(slow(), [3, 1])
    assert counts.waits == [0, 1, 2, 2]  # the last came in round 1 and is served in round 3
    assert counts.queue_peak == 3
    assert (counts.refused, counts.timed_out, counts.dropped) == (0, 0, 0)


def test_a_queue_has_room_for_what_is_served_at_once_and_for_those_that_wait() -> None:
    counts = plain(slow(queue=2), [9])
    assert (counts.refused, counts.dropped, counts.waits) == (6, 6, [0, 1, 2])
    counts = plain(slow(queue=2), [3, 3])  # two wait already: one more is served, one joins
    assert (counts.refused, counts.waits) == (2, [0, 1, 2, 2])
    assert counts.queue_peak == 3


@pytest.mark.parametrize("cancel", [False, True])
def test_a_queue_of_nothing_is_no_queue(cancel: bool) -> None:
    rng = random.Random(11)
    for _ in range(20):
        world = random_world(rng, "budgets")
        got = simulate(replace(world, queue=0, timeout=1, cancel=cancel), philox_world(1, 1))
        assert got == simulate(world, philox_world(1, 1))


def test_a_call_has_as_many_rounds_as_its_time_out() -> None:
    # five at once: with 3 rounds three are served, in rounds 0, 1, 2; the others are served in vain
    for timeout, waits in [(None, [0, 1, 2, 3, 4]), (5, [0, 1, 2, 3, 4]), (3, [0, 1, 2]), (1, [0])]:
        counts = plain(slow(timeout=timeout), [5])
        assert counts.waits == waits
        assert counts.timed_out == counts.wasted == counts.dropped == 5 - len(waits)


def test_a_cancelled_call_makes_room() -> None:
    # two of round 0 time out at the end of round 1; that of round 2 waits behind them, or not
    for cancel, waits, wasted in [(False, [0, 1], 3), (True, [0, 1, 0], 0)]:
        counts = plain(slow(timeout=2, cancel=cancel), [4, 0, 1])
        assert (counts.waits, counts.wasted) == (waits, wasted)
        assert counts.timed_out == 2 + (not cancel)


def test_a_call_in_vain_draws_no_failure_and_takes_its_place() -> None:
    first, second = Call(0, 0, 0), Call(0, 1, 0)
    counts = plain(slow(timeout=1, queue=2), [2, 2], [first, second])
    # round 0: the first fails, the second times out; round 1: the second is served in vain, and
    # the two new ones wait behind it and time out
    assert (counts.dropped, counts.timed_out, counts.wasted) == (4, 3, 3)
    assert counts.queue_peak == 3


def test_a_retry_may_overtake_its_own_first_call_in_the_queue() -> None:
    # five of round 0; the last times out at the end of round 1 and its retry, of round 2, stands
    # behind its own call of before, which is served in round 4 in vain
    counts = plain(slow(timeout=2, tries=(2,), backoff_base=1), [5])
    assert counts.calls_in[:4] == [5, 0, 3, 0]
    assert (counts.timed_out, counts.wasted, counts.waits) == (6, 6, [0, 1])


def test_decisions_come_in_order_refused_then_served_then_timed_out() -> None:
    # one place for a retry: of three calls the first is served and fails, the second times out, the
    # third is refused. Who decides first retries, and its wait is drawn
    world = slow(queue=1, timeout=1, tries=(2,), cancel=True, budget=Envoy(max_retries=1))
    for arrivals, failing, first in [(3, [0], 2), (2, [0], 0), (2, [], 1)]:
        script = Script([arrivals], [Call(0, j, 0) for j in failing])
        counts = play(world, script)
        assert script.drawn == [Call(0, first, 0)]
        assert (counts.refused, counts.timed_out) == (arrivals - 2, 1)
        assert counts.denied == arrivals - 1 - (not failing)


def test_a_request_whose_deadline_passes_in_the_queue_is_given_up() -> None:
    # ages at the end of rounds 0, 1, 2 are 1, 2, 3: with a deadline of 2 three are served
    counts = plain(slow(deadline=2, tries=(9,), backoff_base=1), [5])
    assert (counts.waits, counts.expired, counts.timed_out) == ([0, 1, 2], 2, 0)
    assert (counts.dropped, counts.wasted, counts.retries) == (2, 2, 0)


def test_a_layer_whose_deadline_passes_in_the_queue_lets_its_caller_decide() -> None:
    # the inner layer gives up at the end of round 1, the outer one retries 4 rounds later
    world = slow(deadline=(None, 1), tries=(2, 3), backoff_base=(4, 1))
    counts = plain(world, [4])
    assert counts.calls_in[:6] == [4, 0, 0, 0, 0, 2]
    assert counts.calls_of_layer == [6, 6]
    assert (counts.waits, counts.expired, counts.wasted) == ([0, 1, 5, 6], 2, 2)


def test_a_deadline_comes_before_a_time_out_of_the_same_round() -> None:
    counts = plain(slow(deadline=1, timeout=2), [3])
    assert (counts.expired, counts.timed_out) == (1, 0)
    counts = plain(slow(deadline=2, timeout=2), [3])
    assert (counts.expired, counts.timed_out) == (0, 1)


def test_a_deadline_in_the_queue_is_a_failure_to_the_breaker_and_nothing_to_a_budget() -> None:
    breaker = Consecutive(consecutive_failures=0, timeout=100)
    counts = plain(slow(deadline=0, breaker=breaker), [2, 1])
    assert (counts.expired, counts.rejected) == (1, 1)
    # a token of one pays for the failure of round 9 only if the expired call of round 0 took none
    world = slow(deadline=5, tries=(2,), budget=Grpc(max_tokens=3), backoff_base=1)
    counts = plain(world, [7, *[0] * 8, 1], [Call(9, 0, 0)])
    assert (counts.expired, counts.denied, counts.retries) == (1, 0, 1)


def test_calls_that_wait_stay_active_to_envoy() -> None:
    # round 1: three of four wait from round 0, one more comes and fails at once: no room. Four are
    # active with it: half of them is 2. Without the queue's it would be 0
    world = slow(queue=3, tries=(2,), budget=Envoy(budget_percent=50.0, min_retry_concurrency=0))
    counts = plain(world, [4, 2])
    assert (counts.refused, counts.denied) == (1, 0)


def test_half_open_counts_calls_that_wait() -> None:
    # with a queue all calls of a round pass before an outcome: HALF_OPEN admits two of four
    breaker = Resilience4j(
        sliding_window_size=1, minimum_number_of_calls=1, wait_duration_in_open_state=3,
        permitted_number_of_calls_in_half_open_state=2,
    )  # fmt: skip
    counts = plain(slow(capacity=9, breaker=breaker), [1, 1, 1, 4], [Call(0, 0, 0)])
    assert counts.calls_in[:4] == [1, 0, 0, 2]
    assert (counts.rejected, len(counts.waits)) == (4, 2)


def test_drain_waits_for_retries_in_the_queue() -> None:
    # the fault ends after round 0; the retries of round 1 wait for their turn until round 4
    world = slow(
        fault_start=0, fault_rounds=1, fault_capacity=0, queue=9, timeout=1, tries=(2,),
        backoff_base=1, cancel=True,
    )  # fmt: skip
    patient = replace(world, timeout=None, failure_rate=0.5)
    counts = plain(patient, [3], [Call(0, j, 0) for j in range(3)])
    # round 1: the first fails, its retry is due in round 2; ...: they succeed in rounds 4, 5, 6
    assert counts.waits == [4, 5, 6]
    assert row(patient, counts)["drain"] == 0  # round 1 begins with no retry: only first calls wait
    assert [t for t, n in enumerate(counts.pending_at) if n > 0] == [2, 3, 4, 5, 6]


# Traffic ----------------------------------------------------------------------------------------


def means(world: World) -> list[float]:
    return [opened.mean for opened in open_traffic(world)]


def test_rates_are_straight_between_points_and_constant_beyond() -> None:
    traffic = Traffic(rates=((2, 1), (6, "500/s"), (6, 2), (8, 0)))
    got = means(World(rounds=10, traffic=traffic))
    # at the middle of each round: 1, and 0.5, 1.5, 2.5, 3.5 more; the step to 2; 1.5, 0.5; nothing
    assert got == [1, 1, 1.5, 2.5, 3.5, 4.5, 1.5, 0.5, 0, 0]


def test_a_constant_rate_is_the_lessons_traffic() -> None:
    world = World(rounds=500)
    flat = replace(world, traffic=Traffic(rates=((0, 0.9722),)))
    assert simulate(flat, philox_world(1, 1)) == simulate(world, philox_world(1, 1))


def test_counts_are_spread_over_the_rounds_of_their_step() -> None:
    traffic = Traffic(counts=(7, 0, 2), per=4)
    got = [opened.known for opened in open_traffic(World(rounds=14, traffic=traffic))]
    assert got == [1, 2, 2, 2, *[0] * 4, *[0, 1, 0, 1], 0, 0]
    noisy = replace(traffic, counts=(7, 0, 2.5), noise="poisson")
    assert means(World(rounds=13, traffic=noisy)) == [*[1.75] * 4, *[0] * 4, *[0.625] * 4, 0]


def test_the_counts_of_a_replication_give_its_rows_again() -> None:
    rng = random.Random(12)
    for _ in range(10):
        world = replace(random_world(rng, "budgets"), rounds=100)
        draws = philox_world(4, 7)
        mean = means(world)[0]
        counts = tuple(draws.arrivals(t, mean) for t in range(world.rounds))
        replay = replace(world, arrivals_per_second=None, traffic=Traffic(counts=counts, per=1))
        assert simulate(replay, draws) == simulate(world, draws)


@pytest.mark.parametrize("traffic", [Traffic(bursts=((50, 9),)), Traffic(workers=4, think=3)])
def test_what_stands_beside_the_open_traffic_leaves_it_its_names(traffic: Traffic) -> None:
    # so clients, failures and waits of the open requests are what they are without it
    served: set[Call] = set()

    def fails(call: Call, rate: Fraction) -> bool:
        served.add(call)
        return False

    world = World(rounds=100, capacity=10**6, arrivals_per_second=97.22, traffic=traffic)
    draws = replace(philox_world(1, 1), fails=fails)
    got = simulate(world, draws)
    alone = {Call(t, j, 0) for t in range(100) for j in range(draws.arrivals(t, 0.9722))}
    assert alone < served
    assert len(served) == got["requests"]


def test_a_burst_comes_after_the_others_of_its_round_and_names_its_requests_onwards() -> None:
    world = World(rounds=5, traffic=Traffic(bursts=((1, 2), (3, 1), (1, 1))), capacity=2)
    counts = plain(world, [0, 1, 0, 1])
    assert counts.requests_in == [0, 4, 0, 2, 0]
    assert counts.dropped == 2
    assert World(traffic=Traffic(bursts=((1, 2),))).arrivals_per_second is None
    assert means(World(rounds=1, traffic=Traffic(bursts=((1, 2),)))) == [0.9722]


def test_a_worker_starts_over_after_it_has_thought() -> None:
    traffic = Traffic(workers=2, think=3)
    counts = plain(World(rounds=12, traffic=traffic), [])
    assert counts.requests_in == [2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]
    # one of two is served; the other retries in round 2 and goes on from there: 2 + 1 + 3
    one = World(rounds=12, traffic=traffic, capacity=1, tries=(2,), backoff_base=2)
    counts = plain(one, [])
    assert rounds_with_calls(counts) == [0, 0, 2, 4, 6, 8, 10]
    # dropped requests are followed, too
    counts = plain(World(rounds=9, traffic=traffic, capacity=0), [])
    assert (counts.dropped, counts.requests_in[4], counts.requests_in[8]) == (6, 2, 2)


def test_workers_never_have_more_requests_than_there_are_workers() -> None:
    rng = random.Random(13)
    tried = 0
    while tried < 15:
        world = random_world(rng, "queues")
        workers = world.traffic.workers if world.traffic else 0
        if workers == 0 or world.arrivals_per_second is not None or world.traffic is None:
            continue
        world = replace(world, traffic=replace(world.traffic, bursts=()))
        got = simulate(world, philox_world(1, 1))
        assert workers <= (got["requests"] or 0)
        assert (got["in_flight"] or 0) <= workers
        tried += 1


def test_arrivals_stay_exact_at_thousands_a_round() -> None:
    table = poisson_table(5000.0)
    assert table[-1] == 2**64 - 1
    at = [table[n] / 2**64 for n in (4900, 5000, 5100)]
    normal = statistics.NormalDist(5000, math.sqrt(5000))
    # with a continuity correction; the skewness leaves 1 / (6 sqrt(5000)) / sqrt(2 pi) = 0.00094
    expected = [normal.cdf(n + 0.5) for n in (4900, 5000, 5100)]
    assert at == pytest.approx(expected, abs=0.0015)


# Faults and windows -----------------------------------------------------------------------------


def test_a_fault_may_fail_calls_that_are_served() -> None:
    rates: list[float] = []

    def fails(call: Call, rate: Fraction) -> bool:
        rates.append(float(rate))
        return rate > 0

    world = World(rounds=6, fault_start=2, fault_rounds=2, fault_capacity=6, fault_failure_rate=0.5)
    draws = replace(philox_world(1, 1), arrivals=lambda t, _: 1, fails=fails)
    got = simulate(world, draws)
    assert rates == [0, 0, 0.5, 0.5, 0, 0]
    assert (got["dropped"], got["window_dropped"], got["window_requests"]) == (2, 2, 2)


def test_the_window_of_several_faults_goes_from_the_first_to_the_last() -> None:
    faults = (Fault(start=1, length=1), Fault(start=5, length=2))
    world = World(rounds=10, faults=faults, capacity=1)
    counts = plain(world, [1, 1, 0, 0, 2, 1, 1, 2, 1])
    got = row(world, counts)
    # dropped: of rounds 1, 4 (one of two), 5, 6 inside, of round 7 outside
    assert (got["window_calls"], got["window_dropped"], got["dropped"]) == (5, 4, 5)
    assert got["second_peak"] == 2


# Recovery ---------------------------------------------------------------------------------------


def after(successes: list[int], requests: list[int], **parameters: Any) -> tuple[Any, Any]:
    """Recovery of a run of seconds of two rounds, the fault being its first second."""
    world = World(
        **{
            "rounds": 2 * len(successes), "rounds_per_second": 2.0, "fault_start": 0,
            "fault_rounds": 2, **parameters,
        }
    )  # fmt: skip
    counts = Counts(calls_of_layer=[0])
    for per_second, rounds in ((successes, counts.successes_in), (requests, counts.requests_in)):
        for n in per_second:
            rounds.extend([n, 0])
    counts.calls_in = counts.requests_in
    counts.pending_at = [0] * (world.rounds + 1)
    got = row(world, counts)
    return got["recovery"], got["recovered"]


def test_recovery_is_the_end_of_the_last_bad_second() -> None:
    ten = [10] * 12
    assert after([0, *[10] * 11], ten) == (0, 1)
    assert after([0, 9, 9, *[10] * 9], ten) == (0, 1)  # 90 % is enough
    assert after([0, 8, 9, 8, *[10] * 8], ten) == (6, 1)  # seconds 1 and 3 are bad
    assert after([0, *[10] * 5, 8, *[10] * 5], ten) == (12, 1)  # before the last five
    assert after([0, *[10] * 6, 8, *[10] * 4], ten) == (None, 0)  # one of them
    assert after([0, *[0] * 11], ten) == (None, 0)
    assert after([0] * 12, [0] * 12) == (0, 1)  # nothing is asked for


def test_only_whole_seconds_after_the_end_are_judged() -> None:
    # the fault ends in the middle of second 1, which is not judged; an unfinished one neither
    ten = [10] * 12
    assert after([0, 0, *[10] * 10], ten, fault_rounds=3) == (0, 1)
    assert after([0, 10, 0, *[10] * 9], ten, fault_rounds=3) == (3, 1)
    assert after([*[10] * 11, 0], ten, rounds=23) == (0, 1)
    assert after([*[10] * 11, 0], ten) == (None, 0)
    assert after([10, 10], ten, fault_rounds=3) == (None, None)  # no whole second follows
    assert after([10, 10], ten, fault_rounds=0) == (None, None)
    assert after([10] * 4, [10] * 4, fault_rounds=50) == (None, None)


def test_seconds_of_a_fractional_number_of_rounds_begin_at_the_next_round() -> None:
    # 2.5 rounds a second: seconds begin in rounds 0, 3, 5, 8, 10, ...
    world = World(rounds=40, rounds_per_second=2.5, fault_start=0, fault_rounds=3)
    counts = Counts(calls_of_layer=[0], calls_in=[1] * 40, requests_in=[1] * 40)
    counts.pending_at = [0] * 41
    for bad, expected in [(3, 5 - 3), (4, 5 - 3), (5, 8 - 3), (7, 8 - 3), (8, 10 - 3), (39, None)]:
        counts.successes_in = [int(t != bad) for t in range(40)]
        assert row(world, counts)["recovery"] == expected


def test_a_closed_loop_is_measured_by_the_seconds_before_the_fault() -> None:
    loop = {"traffic": Traffic(workers=5), "fault_start": 4}
    ten = [10] * 12
    assert after([10, 20, 0, 14, 13, *[15] * 7], ten, **loop) == (4, 1)  # 90 % of 15 is 13.5
    assert after([10, 20, 0, *[14] * 9], ten, **loop) == (0, 1)
    assert after([10, 20, 0, *[13] * 9], ten, **loop) == (None, 0)
    none_before = {"traffic": Traffic(workers=5), "fault_start": 1}
    assert after([10, 20, 0, *[14] * 9], ten, **none_before) == (None, None)


# Laws -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["budgets", "queues"])
def test_random_cells_keep_the_identities(section: Any) -> None:
    rng = random.Random(14)
    for _ in range(50):
        world = random_world(rng, section)
        run = Replication(world, philox_world(8, 4))
        counts = run.run()
        got = {name: value or 0 for name, value in row(world, counts).items()}
        n_layers = len(chain(world))
        waiting = [w for w in run.queue if w.request is not None]
        assert got["in_flight"] == run.n_scheduled + len(waiting)
        assert got["calls"] == got["primary"] + got["retries"] == got[f"calls_{n_layers}"]
        assert got["calls"] == sum(counts.calls_in)
        assert got["window_dropped"] <= got["dropped"]
        if world.queue == 0:
            assert got["refused"] == got["timed_out"] == got["wasted"] == got["queue_peak"] == 0
        if world.cancel:
            assert got["wasted"] == 0
        if world.budget is None:
            assert got["denied"] == 0
        if world.deadline is None:
            assert got["expired"] == 0
        most_served = max(service.capacity for service in services(world))
        assert got["queue_peak"] <= world.queue + most_served


def test_waiting_times_are_those_of_the_markov_chain() -> None:
    # Poisson arrivals, one call served a round: the queue at the beginning of a round is a Markov
    # chain, and a call that comes as the k-th of its round behind L others is served L + k rounds
    # later (from k = 0). Batches of 50 runs; a fresh seed leaves 5 standard errors once in 100,000
    mean, size = 0.7, 60
    table = [n / 2**64 for n in poisson_table(mean)]
    arrives = [b - a for a, b in zip([0.0, *table], table, strict=False)]
    ahead = [1.0] + [0.0] * size
    for _ in range(400):
        after_round = [0.0] * (size + 1)
        for waiting, p in enumerate(ahead):
            for n, q in enumerate(arrives):
                after_round[min(max(waiting + n - 1, 0), size)] += p * q
        ahead = after_round
    beyond = [1 - below for below in accumulate(arrives)]  # P(N > k)
    waits = [0.0] * (2 * size)
    for waiting, p in enumerate(ahead):
        for k, q in enumerate(beyond):
            waits[waiting + k] += p * q / mean
    assert sum(waits) == pytest.approx(1, abs=1e-6)

    world = World(rounds=600, arrivals_per_second=70.0, capacity=1, queue=10**6)
    runs = []
    for seed in range(50):
        counts = Replication(world, mersenne_world(seed)).run()
        later = counts.waits[100:]  # the queue starts empty
        runs.append([sum(w == k for w in later) / len(later) for k in range(4)])
    for k in range(4):
        got = [run[k] for run in runs]
        error = statistics.stdev(got) / math.sqrt(len(got))
        assert abs(statistics.fmean(got) - waits[k]) <= 5 * error, k


@pytest.mark.parametrize(("load", "recovered"), [(0.85, 1), (1.2, 0)])
def test_with_two_tries_it_comes_back_if_twice_the_load_is_below_the_capacity(
    load: float, recovered: int
) -> None:
    # Bronson et al. 2021, "Metastable failures in distributed systems"
    world = World(
        rounds=3500, arrivals_per_second=100 * load, capacity=2, fault_start=300, fault_rounds=150,
        queue=10**5, timeout=50, tries=(2,), backoff_base=10, backoff_factor=1, backoff_cap=10,
    )  # fmt: skip
    for seed in range(2):
        assert simulate(world, mersenne_world(seed))["recovered"] == recovered
