"""Random cells of the world, small and at every edge, to hold a kernel against the oracle."""

from __future__ import annotations

import math
import random
from typing import Any, Final, Literal, TypeVar

from oracle_budgets import (
    Aws,
    BreakerKind,
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
from oracle_world import Fault, Traffic, World, bursts, chain, open_traffic

Section = Literal["chains", "budgets", "queues", "traffic"]
"""What a cell may have: `chains` layers, waits, deadlines, fractional capacities and the lesson's
budget; `budgets` also every kind of budget, clients and breakers; `queues` also queues, several
faults with ramps and failures of their own, and every kind of traffic; `traffic` that, and only
sometimes budgets, so that every loop has some."""

MAX_CALLS: Final = 20_000
"""Of one cell, at most and on average: the oracle is slow."""

T = TypeVar("T")


def random_world(rng: random.Random, section: Section) -> World:
    """Return a random cell, the same for the same state of `rng`.

    All values are numbers in rounds, none a text with a unit. Every cell is one that its libraries'
    rules allow, and most of them bite: the storms are large, the budgets small.
    """
    while True:
        parameters = _chains(rng)
        if section in ("budgets", "queues") or (section == "traffic" and rng.random() < 0.2):
            parameters |= _budgets(rng, parameters)
        if section == "traffic":
            parameters |= _traffic(rng, parameters)
        if section == "queues":
            parameters |= _queues(rng, parameters)
        world = World(**parameters)
        if most_calls(world) <= MAX_CALLS and within_polly(world):
            return world


def most_calls(world: World) -> float:
    """Bound the calls of a cell on average: an attempt takes a round or more."""
    requests = sum(opened.known + opened.mean for opened in open_traffic(world))
    requests += sum(bursts(world).values())
    if world.traffic is not None:
        pause = 1 + world.rounds_of(world.traffic.think)
        requests += world.traffic.workers * math.ceil(world.rounds / pause)
    return requests * min(math.prod(world.tries), world.rounds)


def within_polly(world: World) -> bool:
    """Say whether the cell keeps the limit of the jitter `polly`, or has another one."""
    return world.jitter != "polly" or all(
        layer.backoff.base * 2.0**layer.tries <= 2**30 for layer in chain(world)
    )


def _one_of(rng: random.Random, *values: T) -> T:
    return values[rng.randrange(len(values))]


def _chains(rng: random.Random) -> dict[str, Any]:
    def one_of(*values: Any) -> Any:
        return _one_of(rng, *values)

    rounds = one_of(1, 2, 5, 13, 40, 100, 100, 250, 250)
    rps = one_of(1.0, 3.0, 62.5, 100.0)
    start = one_of(0, 1, rounds // 3, rounds - 1, rounds, rounds + 5)
    to_the_end = max(rounds - start, 0)
    tries = one_of(
        *((1,), (2,), (3,), (9,), (27,), (3, 1), (1, 3), (3, 3), (2, 5), (3, 1, 2), (1, 1, 4)),
        *((3, 3, 3), (2, 3, 4), (2, 2, 2, 2), (3, 3, 3, 3)),
    )
    nested = len(tries) > 1 and rng.random() < 0.75
    n_layers = len(tries) if nested else 1

    def each(*values: Any) -> Any:
        """One value for all layers, or one for each."""
        return one_of(one_of(*values), tuple(one_of(*values) for _ in range(n_layers)))

    return {
        "rounds": rounds,
        "rounds_per_second": rps,
        "arrivals_per_second": rps * one_of(0.0, 0.05, 0.9722, 0.9722, 2.0, 3.7, 8.0),
        "capacity": one_of(0, 1, 1, 2, 6, 25, 10**6, 0.5, 0.9, 1.25, 2.7, rng.randrange(400) / 100),
        "fault_start": start,
        "fault_rounds": one_of(
            *(0, 0, 1, rounds // 4, rounds // 4, to_the_end, max(to_the_end - 1, 0), 3 * rounds)
        ),
        "fault_capacity": one_of(0, 0, 1, 3, 0.25, 1.5),
        "failure_rate": one_of(0.0, 0.0, 0.025, 0.3, 0.5, 0.9, 1.0, rng.random()),
        "tries": tries,
        "chain": "nested" if nested or (len(tries) == 1 and rng.random() < 0.5) else "flattened",
        "backoff_base": each(0.0, 0.001, 0.25, 1.0, 1.5, 2.0, 3.7, 5.0, 40.0),
        "backoff_factor": each(1.0, 1.1, 1.5, 2.0, 2.0, 3.0),
        "backoff_cap": each(0.0, 0.5, 1.0, 1.7, 4.0, 20.0, 32.0, 33.3, 100.0, 5.0 * rounds),
        "jitter": one_of(
            *("full", "full", "full", "equal", "none", "plus_minus", "decorrelated", "polly")
        ),
        "jitter_share": one_of(0.0, 0.2, 0.2, 0.33, 0.5, 1.0),
        "first_wait": one_of(None, None, None, 0, 1, 2.5, 7),
        "deadline": one_of(
            *(None, None, None, 0, 1, 5, 20, 60),
            tuple(one_of(None, 0, 2, 10, 30) for _ in range(n_layers)),
        ),
        "budget": one_of(
            *(None, None, None, None, 0.0, 0.05, 0.1, 0.29, 0.3, 0.35, 0.58, 0.7, 1.0, 1.1, 2.5)
        ),
        "threshold": one_of(0, 1, 5, 20, 100),
    }


def _budgets(rng: random.Random, chains: dict[str, Any]) -> dict[str, Any]:
    rps = chains["rounds_per_second"]
    n_layers = len(chains["tries"]) if chains["chain"] == "nested" else 1
    scope = _one_of(rng, "chain", "chain", "layer")
    budget: Any = _budget(rng, rps)
    if scope == "layer":
        listed = tuple(_one_of(rng, None, _budget(rng, rps)) for _ in range(n_layers))
        budget = _one_of(rng, budget, listed)
    return {
        "budget": _one_of(rng, chains["budget"], budget, budget, budget, budget),
        "budget_scope": scope,
        "breaker": _one_of(rng, None, None, _breaker(rng)),
        "clients": _one_of(rng, 1, 1, 1, 2, 3, 10),
    }


def _budget(rng: random.Random, rps: float) -> BudgetKind:
    def one_of(*values: T) -> T:
        return _one_of(rng, *values)

    ttl = rng.randrange(math.ceil(rps), min(math.floor(60 * rps), 300) + 1)  # 1 to 60 seconds
    window = one_of(1, 5, 30, 100, 1000)
    ratio = one_of(0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5)
    per_second = one_of(0, 0, 1, 2, 10)
    kinds: tuple[BudgetKind, ...] = (
        Ratio(ratio=ratio, charged=one_of("run", "decision"), window=one_of(None, window)),
        Finagle(ttl=ttl, min_retries_per_sec=per_second, percent_can_retry=ratio),
        Linkerd(ttl=ttl, min_retries_per_second=per_second, retry_ratio=ratio),
        Grpc(max_tokens=one_of(1, 2, 5, 10, 25), token_ratio=one_of(0.05, 0.1, 0.333, 0.5, 1.0)),
        Aws(quota=one_of(5, 20, 60, 500), cost=one_of(1, 5, 10, 14)),
        Envoy(budget_percent=one_of(0.0, 12.5, 20.0, 50.0), min_retry_concurrency=one_of(0, 1, 3)),
        Envoy(max_retries=one_of(0, 1, 3, 10)),
        Sre(ratio=ratio, window=window),
        Sre(ratio=one_of(ratio, 10.0), window=window, k=one_of(1.0, 1.1, 1.5, 2.0)),
    )
    return one_of(*kinds)


def _breaker(rng: random.Random) -> BreakerKind:
    def one_of(*values: T) -> T:
        return _one_of(rng, *values)

    kinds: tuple[BreakerKind, ...] = (
        Resilience4j(
            failure_rate_threshold=one_of(10.0, 33.3, 50.0, 100.0),
            sliding_window_size=one_of(1, 4, 10, 30),
            minimum_number_of_calls=one_of(1, 3, 10, 100),
            wait_duration_in_open_state=one_of(1, 5, 20, 60),
            permitted_number_of_calls_in_half_open_state=one_of(1, 2, 5),
        ),
        Consecutive(
            consecutive_failures=one_of(0, 1, 5),
            timeout=one_of(1, 5, 20, 60),
            max_requests=one_of(1, 2, 4),
        ),
    )
    return one_of(*kinds)


def _queues(rng: random.Random, chains: dict[str, Any]) -> dict[str, Any]:
    def one_of(*values: Any) -> Any:
        return _one_of(rng, *values)

    changed: dict[str, Any] = {
        "queue": one_of(0, 1, 3, 10, 100, 10**6),
        "timeout": one_of(None, 1, 2, 5, 15, 50),
        "cancel": one_of(True, False),
    }
    if rng.random() < 0.5:
        changed |= {"fault_rounds": 0, "faults": _faults(rng, chains["rounds"])}
    else:
        changed["fault_failure_rate"] = one_of(None, 0.0, 0.5, 1.0)
    if rng.random() < 0.6:
        changed |= _traffic(rng, chains)
    return changed


def _faults(rng: random.Random, rounds: int) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    end = 0
    for _ in range(rng.randrange(1, 4)):
        start = end + _one_of(rng, 0, 1, rounds // 5, rounds // 3)
        length = _one_of(rng, 1, 2, 7, max(rounds // 6, 1))
        capacity = _one_of(rng, 0, 0, 1, 0.75, 4)
        faults.append(
            Fault(
                start=start,
                length=length,
                capacity=capacity,
                failure_rate=_one_of(rng, None, None, 0.0, 0.4, 1.0),
                capacity_end=_one_of(rng, None, None, 0, 2, 5.5),
            )
        )
        end = start + length
    return tuple(faults)


def _traffic(rng: random.Random, chains: dict[str, Any]) -> dict[str, Any]:
    def one_of(*values: Any) -> Any:
        return _one_of(rng, *values)

    rounds = chains["rounds"]
    times = sorted(rng.randrange(rounds + 20) for _ in range(rng.randrange(1, 5)))
    points = tuple((t, one_of(0, 0.3, 1.0, 2.45, 9)) for t in times)
    counts = tuple(rng.randrange(30) for _ in range(rng.randrange(1, 12)))
    per = one_of(1, 3, 10, 25)
    herd = tuple((rng.randrange(rounds + 5), rng.randrange(60)) for _ in range(rng.randrange(3)))
    workers, think = one_of(1, 5, 40), one_of(0, 1, 10)
    traffic = one_of(
        Traffic(rates=points),
        Traffic(rates=points, bursts=herd),
        Traffic(counts=counts, per=per, noise=one_of(None, "poisson")),
        Traffic(counts=tuple(n / 4 for n in counts), per=per, noise="poisson", bursts=herd),
        Traffic(bursts=herd),
        Traffic(workers=workers, think=think),
        Traffic(workers=workers, think=think, bursts=herd),
    )
    if traffic.rates or traffic.counts:
        return {"traffic": traffic, "arrivals_per_second": None}
    return {
        "traffic": traffic,
        "arrivals_per_second": one_of(None, chains["arrivals_per_second"]),
    }
