"""Budgets, breakers and clients against what their projects document, call by call.

Every sequence is written down: how many retries are allowed, which is refused, when credit returns.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from oracle_budgets import (
    FAILED,
    GIVEN_UP,
    OK,
    Aws,
    Budget,
    BudgetKind,
    Consecutive,
    Envoy,
    Finagle,
    Grpc,
    Linkerd,
    Ratio,
    Resilience4j,
    Sre,
)
from oracle_cells import random_world
from oracle_draws import client_word, mersenne_world, philox_world, throttle_word
from oracle_script import plain, rounds_with_calls
from oracle_world import Call, World, simulate


def begin(budget: Budget, t: int, requests: int) -> None:
    for _ in range(requests):
        budget.begins(t, False)


def end(budget: Budget, t: int, n: int, outcome: Any, *, retry: bool = False) -> None:
    for _ in range(n):
        budget.ends(t, retry, outcome)


def allowed(budget: Budget, t: int, asked: int) -> int:
    """Ask so many times; how many retries were allowed, all before the first refusal."""
    answers = [budget.allows(t) for _ in range(asked)]
    assert answers == sorted(answers, reverse=True)
    return sum(answers)


# Ratios -----------------------------------------------------------------------------------------


def test_a_ratio_charged_when_run_does_not_see_retries_that_wait() -> None:
    budget = Ratio(ratio=0.5).start(100.0)
    begin(budget, 0, 2)
    assert allowed(budget, 0, 50) == 50  # none has run
    budget.begins(1, True)
    assert budget.allows(1)  # 1 <= 0.5 * 2
    budget.begins(1, True)
    assert not budget.allows(1)


def test_a_ratio_charged_at_the_decision_never_exceeds_its_share() -> None:
    budget = Ratio(ratio="30 %", charged="decision").start(100.0)
    begin(budget, 0, 3)
    assert not budget.allows(0)  # 1 > 0.9
    begin(budget, 0, 7)
    assert allowed(budget, 0, 50) == 3
    begin(budget, 5, 90)
    assert allowed(budget, 9, 50) == 27  # 30 of 100: exact where 0.3 in doubles is less


@pytest.mark.parametrize("charged", ["run", "decision"])
def test_a_ratio_with_a_window_forgets(charged: Any) -> None:
    budget = Ratio(ratio=0.1, charged=charged, window="100 ms").start(100.0)
    begin(budget, 0, 20)
    assert budget.allows(9)
    budget.begins(10, True)
    assert not budget.allows(10)  # the requests of round 0 are ten rounds old
    begin(budget, 11, 20)
    assert budget.allows(11)


def test_the_ratio_of_google_is_strict_and_counts_decisions() -> None:
    budget = Sre(window=100).start(100.0)
    begin(budget, 0, 20)
    assert allowed(budget, 0, 50) == 2  # 0 and 1 are below 2, 2 is not
    begin(budget, 50, 5)
    assert allowed(budget, 99, 50) == 1  # 2 < 2.5, 3 is not
    begin(budget, 100, 15)
    assert allowed(budget, 100, 50) == 1  # left of the window: 20 requests, 1 retry


# Throttling -------------------------------------------------------------------------------------


def test_the_throttle_waits_until_failures_fill_half_of_its_window() -> None:
    # one call a round, H = 100 rounds, K = 2: after t rounds of outage (100 - 2 (100 - t)) / 101
    budget = Sre(window=100, k=2).start(100.0)
    for t in range(200):
        budget.begins(t, False)
        budget.ends(t, False, OK)
    for lost in range(100):
        t = 200 + lost
        expected = max(Fraction(0), Fraction(99 - 2 * (99 - lost), 100))
        assert budget.rejection(t) == expected  # of 99 calls before this one
        budget.begins(t, False)
        budget.ends(t, False, FAILED)


def test_a_throttled_call_counts_as_asked_for_but_not_as_a_call() -> None:
    world = World(
        rounds=50, arrivals_per_second=400.0, capacity=0, tries=(1,),
        budget=Sre(ratio=0.0, window=50, k=1),
    )  # fmt: skip
    asked: list[Fraction] = []

    def throttled(call: Call, layer: int, chance: Fraction) -> bool:
        asked.append(chance)
        return True

    draws = replace(mersenne_world(1), throttled=throttled)
    got = simulate(world, draws)
    # the first call finds an empty window, later ones n / (n + 1) of n calls without success
    assert asked == [Fraction(n, n + 1) for n in range(1, len(asked) + 1)]
    assert (got["calls"], got["rejected"]) == (1, len(asked))
    assert got["dropped"] == got["requests"] == 1 + len(asked)


def test_each_layer_throttles_its_own_calls() -> None:
    # the window is empty when the first request comes; the outer layer rejects call 0 of the second
    # and both its own retries, calls 3, and the inner one never hears of them
    asked: list[tuple[Call, int]] = []

    def throttled(call: Call, layer: int, chance: Fraction) -> bool:
        asked.append((call, layer))
        return True

    throttle = Sre(ratio=9.0, window=50, k=0)
    world = World(
        rounds=20, arrivals_per_second=0.0, capacity=0, tries=(2, 3), jitter="none",
        budget=(throttle, None), budget_scope="layer",
    )  # fmt: skip
    draws = replace(
        mersenne_world(1), arrivals=lambda t, _: 2 if t == 0 else 0, throttled=throttled
    )
    got = simulate(world, draws)
    first, second = Call(0, 0, 0), Call(0, 1, 0)
    assert asked == [(second, 0), (second._replace(attempt=3), 0), (first._replace(attempt=3), 0)]
    assert (got["calls_1"], got["calls_2"], got["rejected"]) == (1, 3, 3)


# Deposits and withdrawals -----------------------------------------------------------------------


def test_finagle_has_a_bank_of_min_retries_per_sec_times_ttl() -> None:
    budget = Finagle().start(100.0)
    assert allowed(budget, 0, 200) == 100
    begin(budget, 0, 14)
    assert allowed(budget, 1, 10) == 2  # 14,000 pay for two of 5,000
    begin(budget, 2, 1)
    assert allowed(budget, 2, 10) == 1
    # withdrawals are forgotten, too: ten slices of 100 rounds later the bank is full again
    assert allowed(budget, 999, 10) == 0
    assert allowed(budget, 1000, 200) == 100


def test_finagle_forgets_deposits_after_ten_slices() -> None:
    for t, expected in [(899, 3), (900, 3), (999, 3), (1000, 0)]:
        budget = Finagle(min_retries_per_sec=0).start(100.0)
        begin(budget, 99, 15)  # the last round of the first slice
        assert allowed(budget, t, 10) == expected, t


def test_finagle_without_a_percentage_lives_on_its_bank() -> None:
    budget = Finagle(percent_can_retry=0.0, min_retries_per_sec=3, ttl="2 s").start(100.0)
    begin(budget, 0, 1000)
    assert allowed(budget, 0, 50) == 6
    budget = Finagle(percent_can_retry=0.0, min_retries_per_sec=0).start(100.0)
    assert allowed(budget, 0, 1) == 0


def test_linkerd_deposits_at_a_success_and_forgets_after_eleven_slices() -> None:
    for t, expected in [(999, 3), (1000, 3), (1099, 3), (1100, 0)]:
        budget = Linkerd(min_retries_per_second=0).start(100.0)
        begin(budget, 0, 500)
        end(budget, 0, 100, FAILED)
        end(budget, 0, 100, GIVEN_UP)
        assert allowed(budget, 0, 1) == 0
        end(budget, 99, 15, OK)
        assert allowed(budget, t, 10) == expected, t


@pytest.mark.parametrize(
    ("ratio", "successes", "expected"),
    [(0.3, 9, 3), (0.6, 9, 9), (1.0, 9, 9), (2.5, 2, 5), (0.0, 9, 0)],
)
def test_linkerd_cuts_the_price_of_a_retry_to_a_whole_number(
    ratio: float, successes: int, expected: int
) -> None:
    # tower: 0.3 means one for 3 successes, 0.6 one for 1; above 1 thousandths are counted
    budget = Linkerd(retry_ratio=ratio, min_retries_per_second=0).start(100.0)
    end(budget, 0, successes, OK)
    assert allowed(budget, 0, 50) == expected


# Tokens and quotas ------------------------------------------------------------------------------


def test_grpc_allows_four_of_ten_tokens_and_then_none_until_fifty_one_successes() -> None:
    budget = Grpc().start(100.0)
    answers = []
    for _ in range(20):
        end(budget, 0, 1, FAILED)
        answers.append(budget.allows(0))
    assert answers == [True] * 4 + [False] * 16  # 9, 8, 7, 6 are above 5
    end(budget, 10, 60, OK)  # from 0 to 6 ...
    end(budget, 10, 1, FAILED)
    assert not budget.allows(10)  # ... to 5
    end(budget, 10, 1, OK)
    assert budget.allows(10)
    end(budget, 10, 1000, OK)
    end(budget, 10, 4, FAILED)
    assert budget.allows(10)  # never more than 10: 6
    end(budget, 10, 1, FAILED)
    assert not budget.allows(10)


def test_grpc_keeps_three_decimals_of_its_ratio_and_ignores_what_was_given_up() -> None:
    budget = Grpc(max_tokens=1, token_ratio=0.3339).start(100.0)
    end(budget, 0, 5, GIVEN_UP)
    assert budget.allows(0)
    end(budget, 0, 1, FAILED)
    end(budget, 0, 1, OK)
    assert not budget.allows(0)
    end(budget, 0, 1, OK)
    assert budget.allows(0)  # 0.666


@pytest.mark.parametrize(("cost", "expected"), [(14, 35), (10, 50), (5, 100)])
def test_an_aws_quota_lets_so_many_retries_through_an_outage(cost: int, expected: int) -> None:
    budget = Aws(cost=cost).start(100.0)
    assert allowed(budget, 0, 200) == expected
    end(budget, 10**6, 100, FAILED)  # neither time nor failures give anything back
    assert allowed(budget, 10**6, 5) == 0


def test_an_aws_quota_gets_back_one_or_the_last_retry() -> None:
    budget = Aws(quota=28).start(100.0)
    assert allowed(budget, 0, 9) == 2
    end(budget, 0, 1, OK, retry=True)
    assert allowed(budget, 0, 9) == 1
    end(budget, 0, 13, OK)
    assert not budget.allows(0)
    end(budget, 0, 1, OK)
    assert budget.allows(0)
    end(budget, 0, 9, OK, retry=True)
    assert allowed(budget, 0, 9) == 2  # never more than the quota


@pytest.mark.parametrize(
    ("kind", "p", "expected"),
    [
        (Aws(), 0.5, 1.072),
        (Aws(cost=5), 0.5, 1.201),
        (Aws(), 0.2, 1.24),  # below the break-even of 21.5 %: 1 + p + p^2
        (Grpc(max_tokens=1000), 0.08, 1.0864),  # below 9.1 %: unlimited
        (Grpc(), 0.3, 1.0),  # above it: none
        (Ratio(ratio=0.1, charged="decision"), 0.5, 1.1),
        (Sre(window=10_000), 0.5, 1.1),
        (Linkerd(min_retries_per_second=0), 0.5, 1 + 0.11),
    ],
)
def test_steady_failures_meet_the_ratio_that_follows_from_the_rules(
    kind: BudgetKind, p: float, expected: float
) -> None:
    # 3 attempts against a server that fails with probability p whatever the load. With Linkerd
    # successes pay for retries: r = 0.2 * successes and successes = (1 + r) / 2, so r = 1/9
    world = World(
        rounds=4000, arrivals_per_second=500.0, capacity=10**6, failure_rate=p, tries=(3,),
        budget=kind,
    )  # fmt: skip
    got = simulate(world, mersenne_world(2))
    assert got["requests"] is not None
    assert got["calls"] is not None
    # 20,000 requests: the standard error is 0.004 at most; 2 % fails once in a million seeds
    assert got["calls"] / got["requests"] == pytest.approx(expected, rel=0.02)


# Retries at once --------------------------------------------------------------------------------


def test_envoys_retry_holds_its_place_from_the_decision_to_its_outcome() -> None:
    # a and b fail in round 0, a waits 5 rounds in the only place; c fails in round 3: no place; in
    # round 5 a fails, frees its place and takes it again; d fails in round 5 after it: no place
    world = World(rounds=20, capacity=0, tries=(3,), backoff_base=5, budget=Envoy(max_retries=1))
    counts = plain(world, [2, 0, 0, 1, 0, 1])
    assert rounds_with_calls(counts) == [0, 0, 3, 5, 5, 15]
    assert (counts.denied, counts.dropped) == (3, 4)


def test_envoys_budget_is_a_part_of_the_calls_of_the_round() -> None:
    # 20 % of 23 calls is 4; handled or not, they are active until the end of the round
    world = World(rounds=1, capacity=0, tries=(2,), budget=Envoy(min_retry_concurrency=1))
    assert plain(world, [23]).denied == 23 - 4
    assert plain(world, [9]).denied == 9 - 1
    assert plain(replace(world, budget=Envoy(budget_percent=12.5)), [100]).denied == 88


def test_envoys_active_calls_of_an_outer_layer_are_those_the_inner_one_works_on() -> None:
    # round 0: 10 requests fail and wait 8 rounds in the inner layer, without a budget. Round 1: one
    # more. In round 8 the ten fail again and the outer layer is asked: 11 active, so 5 retries
    world = World(
        rounds=9, capacity=0, tries=(2, 2), backoff_base=8,
        budget=(Envoy(budget_percent=50.0, min_retry_concurrency=0), None), budget_scope="layer",
    )  # fmt: skip
    assert plain(world, [10, 1]).denied == 5
    assert plain(world, [10]).denied == 5
    assert plain(world, [10, 2]).denied == 4


def test_a_place_is_freed_by_success_and_by_giving_up() -> None:
    budget = Envoy(max_retries=2).start(100.0)
    begin(budget, 0, 2)
    assert allowed(budget, 0, 9) == 2
    end(budget, 0, 2, FAILED)
    for t, outcome in ((4, OK), (6, GIVEN_UP)):
        budget.begins(t, True)
        assert not budget.allows(t)
        end(budget, t, 1, outcome, retry=True)
        assert allowed(budget, t, 9) == 1


# Layers and clients -----------------------------------------------------------------------------


def test_a_budget_of_the_chain_is_asked_by_each_layer_and_sees_each_failure_once() -> None:
    # 3 of 6 tokens forbid: failures 1 and 2 leave 5 and 4; from the third on every layer is refused
    world = World(rounds=40, capacity=0, tries=(2, 3), backoff_base=1, budget=Grpc(max_tokens=6))
    counts = plain(world, [1])
    assert rounds_with_calls(counts) == [0, 1, 3]
    assert (counts.denied, counts.dropped) == (
        1,
        1,
    )  # the inner layer has no attempt left
    counts = plain(replace(world, tries=(2, 9)), [1])
    assert rounds_with_calls(counts) == [0, 1, 3]
    assert counts.denied == 2


def test_a_budget_of_a_layer_counts_what_the_layer_receives() -> None:
    # inner: 2 retries for each call that it receives would need a ratio of 2; with 1 (decided) it
    # gets one for each of the outer layer's two calls
    inner = Ratio(ratio=1.0, charged="decision")
    world = World(
        rounds=40, capacity=0, tries=(2, 3), backoff_base=(10, 1),
        budget=(None, inner), budget_scope="layer",
    )  # fmt: skip
    counts = plain(world, [1])
    assert rounds_with_calls(counts) == [0, 1, 11, 12]
    assert counts.calls_of_layer == [2, 4]
    assert counts.denied == 2  # the second time there is no outer attempt left either
    one_for_all = replace(world, budget=inner, budget_scope="layer")
    assert rounds_with_calls(plain(one_for_all, [1])) == [0, 1, 11, 12]
    chain = replace(world, budget=inner, budget_scope="chain")
    assert rounds_with_calls(plain(chain, [1])) == [0, 1]


def test_an_outer_budget_sees_the_outcome_of_its_own_calls_only() -> None:
    # two tokens: the outer layer's first failure forbids its retry, whatever the inner one spends
    world = World(
        rounds=40, capacity=0, tries=(3, 4), backoff_base=1,
        budget=(Grpc(max_tokens=2), None), budget_scope="layer",
    )  # fmt: skip
    counts = plain(world, [1])
    assert counts.calls_of_layer == [1, 4]
    assert counts.denied == 1


def test_an_aws_quota_of_a_layer_gives_back_by_the_layers_own_retries() -> None:
    # call 1 is the inner layer's retry and succeeds: 14 back to the inner, 1 (of 0 missing) to the
    # outer; so the inner quota of 14 allows another retry, in round 5
    quota = Aws(quota=14)
    world = World(
        rounds=40, capacity=9, tries=(2, 2), backoff_base=1, budget=quota, budget_scope="layer",
    )  # fmt: skip
    failing = [Call(0, 0, 0), Call(5, 0, 0)]
    counts = plain(world, [1, 0, 0, 0, 0, 1], failing)
    assert rounds_with_calls(counts) == [0, 1, 5, 6]
    assert (counts.denied, len(counts.waits)) == (0, 2)


def test_every_client_has_a_budget_and_a_breaker_of_its_own() -> None:
    # ten tokens for each of two clients: eight retries, where one client has four
    world = World(rounds=1, capacity=0, tries=(2,), budget=Grpc())
    assert plain(world, [20]).denied == 16
    assert plain(replace(world, clients=2), [20]).denied == 12
    # one client's failures open its breaker; the other's calls go on
    broken = World(rounds=9, capacity=9, clients=2, breaker=Consecutive(consecutive_failures=0))
    failing = [Call(0, 0, 0)]
    counts = plain(broken, [2, 2, 2], failing)
    assert (counts.rejected, counts.dropped, len(counts.waits)) == (2, 3, 3)


def test_clients_are_drawn_evenly_from_a_stream_of_their_own() -> None:
    draws = philox_world(3, 0)
    n = 3000
    got = [draws.client(Call(t, j, 0), 3) for t in range(n // 4) for j in range(4)]
    shares = [got.count(client) / n for client in range(3)]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.05)  # 5.8 standard errors


SEED = 20260802 + 5 * 2**32


@pytest.mark.parametrize(
    ("call", "layer", "client", "throttle"),
    [
        (Call(0, 0, 0), 0, 0x7FEFFF1A, 0xEB756649),
        (Call(500, 6, 2), 1, 0x91527202, 0xC310A473),
        (Call(3999, 1000, 80), 3, 0xD014149B, 0xB9C3C57F),
    ],
)
def test_the_streams_of_clients_and_throttles_are_pinned(
    call: Call, layer: int, client: int, throttle: int
) -> None:
    assert client_word(SEED, 7, call) == client
    assert throttle_word(SEED, 7, call, layer) == throttle


# Breakers ---------------------------------------------------------------------------------------


def test_a_count_window_full_of_successes_opens_after_fifty_failures() -> None:
    breaker = Resilience4j().start(100.0)
    for _ in range(250):
        assert breaker.permits(0)
        breaker.records(0, True, 0)
    for n in range(50):
        assert breaker.permits(1), n
        breaker.records(1, False, 0)
    assert not breaker.permits(1)
    assert not breaker.permits(6000)
    # the wait of 60 s is over: HALF_OPEN admits ten calls and rejects the eleventh
    assert [breaker.permits(6001) for _ in range(11)] == [True] * 10 + [False]


def test_a_count_window_needs_its_minimum_of_calls() -> None:
    breaker = Resilience4j(sliding_window_size=10, minimum_number_of_calls=4).start(100.0)
    for ok in (False, False, True):
        breaker.records(0, ok, 0)
    assert breaker.permits(0)
    breaker.records(0, True, 0)  # 2 of 4: 50 %
    assert not breaker.permits(0)


@pytest.mark.parametrize(("failures", "opens"), [(0, False), (4, False), (5, True), (10, True)])
def test_half_open_decides_when_all_its_outcomes_are_in(failures: int, opens: bool) -> None:
    breaker = Resilience4j(sliding_window_size=4, minimum_number_of_calls=50).start(1.0)
    for _ in range(4):
        breaker.records(0, False, 0)
    assert [breaker.permits(60) for _ in range(11)] == [True] * 10 + [False]
    for n in range(10):
        assert not breaker.permits(60)
        breaker.records(60, n >= failures, 0)
    assert breaker.permits(60) is not opens
    if not opens:  # CLOSED with an empty window: three failures are below the minimum of 4
        for _ in range(3):
            breaker.records(60, False, 0)
        assert breaker.permits(60)
        breaker.records(60, False, 0)
    assert not breaker.permits(60)


def test_a_late_outcome_is_counted_in_the_state_it_finds() -> None:
    breaker = Resilience4j(
        sliding_window_size=1, minimum_number_of_calls=1, wait_duration_in_open_state=10,
        permitted_number_of_calls_in_half_open_state=2,
    ).start(1.0)  # fmt: skip
    breaker.records(0, False, 0)
    breaker.records(5, True, 0)  # changes nothing in OPEN
    assert not breaker.permits(9)
    assert breaker.permits(10)
    breaker.records(11, True, 0)  # the minimum of 1 decides, whoever's outcome it is
    assert [breaker.permits(11) for _ in range(9)] == [True] * 9


def test_six_failures_in_a_row_open_gobreakers_default_and_one_success_closes_it() -> None:
    breaker = Consecutive().start(1.0)

    def call(t: int, ok: bool) -> bool:
        if not breaker.permits(t):
            return False
        breaker.records(t, ok, breaker.generation)
        return True

    sequence = [False] * 5 + [True] + [False] * 6
    assert [call(0, ok) for ok in sequence] == [True] * 12
    assert not call(59, True)
    assert call(60, False)  # half open: one failure opens it again
    assert not call(119, True)
    assert call(120, True)
    assert [call(120, ok) for ok in [False] * 6] == [True] * 6
    assert not call(120, True)


def test_consecutive_failures_ignore_outcomes_from_before_the_last_change() -> None:
    breaker = Consecutive(consecutive_failures=0, timeout=10, max_requests=2).start(1.0)
    assert breaker.permits(0)
    assert breaker.permits(0)
    old = breaker.generation
    breaker.records(0, False, old)
    breaker.records(1, False, old)  # the second call of then: it moves nothing
    assert [breaker.permits(10) for _ in range(3)] == [True, True, False]
    breaker.records(11, False, old)
    now = breaker.generation
    breaker.records(11, True, now)
    assert not breaker.permits(11)  # one success of two
    breaker.records(12, True, now)
    assert breaker.permits(12)


def test_a_rejected_call_is_no_call_and_the_chain_decides_as_after_a_failure() -> None:
    # a fails in round 0 and opens the breaker for 3 rounds; its retries of rounds 1 and 3 find it
    # open, then half open, and the last one succeeds
    world = World(
        rounds=20, capacity=9, tries=(4,), backoff_base=1, backoff_cap=2,
        breaker=Consecutive(consecutive_failures=0, timeout=3),
    )  # fmt: skip
    counts = plain(world, [1], [Call(0, 0, 0)])
    assert rounds_with_calls(counts) == [0, 3]
    assert (counts.rejected, counts.dropped, counts.waits) == (1, 0, [3])
    assert (counts.primary, counts.retries) == (1, 1)
    assert counts.calls_of_layer == [2]


# Laws -------------------------------------------------------------------------------------------

AMPLE: list[Any] = [
    Ratio(ratio=10**6),
    Ratio(ratio=10**6, charged="run", window=10**6),
    Finagle(min_retries_per_sec=10**6),
    Linkerd(min_retries_per_second=10**6),
    Aws(quota=10**9, cost=1),
    Envoy(max_retries=10**9),
]


@pytest.mark.parametrize("kind", AMPLE)
def test_a_budget_that_never_binds_is_none(kind: Any) -> None:
    rng = random.Random(7)
    for _ in range(12):
        world = replace(random_world(rng, "chains"), budget=None)
        expected = simulate(world, philox_world(2, 1))
        for scope in ("chain", "layer"):
            got = simulate(replace(world, budget=kind, budget_scope=scope), philox_world(2, 1))
            assert got == expected


def test_clients_share_nothing_but_the_traffic() -> None:
    # without budgets and breakers it does not matter whose a request is
    rng = random.Random(8)
    for _ in range(20):
        world = replace(random_world(rng, "chains"), budget=None)
        got = simulate(replace(world, clients=7), philox_world(2, 1))
        assert got == simulate(world, philox_world(2, 1))


def test_a_ratio_without_a_window_is_the_lessons_budget() -> None:
    rng = random.Random(9)
    for _ in range(20):
        world = random_world(rng, "chains")
        if world.budget is not None:
            assert isinstance(world.budget, float)
            for kind in (Ratio(ratio=world.budget), Ratio(ratio=world.budget, window=10**6)):
                got = simulate(replace(world, budget=kind), philox_world(2, 1))
                assert got == simulate(world, philox_world(2, 1))
