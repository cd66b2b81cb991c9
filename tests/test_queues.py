"""Queues, faults and recovery: the kernel against the oracle, known distributions, and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest
from oracle_budgets import Consecutive, Envoy, Resilience4j
from oracle_world import World
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
@pytest.mark.parametrize("seed", range(200, 204))
def test_random_queues_in_all_loops_are_the_oracles_rows(seed: int) -> None:
    worlds = open_traffic(random_worlds(seed, 100, "queues"))
    assert differences(worlds, [0, seed], seed=seed << 40) == []
