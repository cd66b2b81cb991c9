"""Budgets, breakers and clients: the kernel against the oracle, what libraries document, and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest
from oracle_budgets import Consecutive, Resilience4j
from oracle_cells import within_polly
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

LOOPS: Final[dict[int, dict[str, Any]]] = {
    layout.CHAIN_BUDGET: {"breaker": WINDOW},
    layout.RATIO: {"breaker": None},
    layout.FINAGLE: {"breaker": WINDOW},
    layout.LINKERD: {"breaker": None, "jitter": "decorrelated"},
    layout.GRPC: {"breaker": None, "deadline": 20},
    layout.AWS: {"breaker": WINDOW},
    layout.ENVOY: {"breaker": IN_A_ROW, "jitter": "polly", "deadline": 20},
    layout.SRE: {"breaker": IN_A_ROW},
    layout.MIXED: {"breaker": IN_A_ROW, "deadline": 20},
}
"""What cells with each kind of budget have beside it. Every combination is a loop of its own, which
takes seconds to compile; here every part is with some of the others."""


def in_few_loops(worlds: list[World]) -> Iterator[World]:
    """Change random worlds until their loops are those of `LOOPS`."""
    for world in worlds:
        kind = chain_kind(cell_of(world))
        if kind.budgets == layout.CHAIN_BUDGET and kind.breaker == layout.NO_BREAKER:
            continue  # tested elsewhere
        wanted = {"jitter": "full", "deadline": None} | LOOPS[kind.budgets]
        if world.jitter not in ("decorrelated", "polly") and wanted["jitter"] == "full":
            wanted["jitter"] = world.jitter
        if wanted["deadline"] is not None and world.deadline is not None:
            wanted["deadline"] = world.deadline
        if isinstance(world.breaker, type(wanted["breaker"])):
            wanted["breaker"] = world.breaker
        changed = replace(world, **wanted)
        # without a breaker a plain ratio is a table, and polly has a limit
        if within_polly(changed) and chain_kind(cell_of(changed)).budgets == kind.budgets:
            yield changed


@pytest.mark.parametrize("seed", range(2))
def test_random_budgets_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(random_worlds(seed, 150, "budgets")))
    assert len(worlds) > 100
    assert differences(worlds, [0, 2**32 - 1 - seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_random_budgets_are_the_oracles_rows(seed: int) -> None:
    worlds = list(in_few_loops(random_worlds(seed, 300, "budgets")))
    assert differences(worlds, [0, seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 204))
def test_random_budgets_in_all_loops_are_the_oracles_rows(seed: int) -> None:
    worlds = random_worlds(seed, 100, "budgets")
    assert differences(worlds, [0, seed], seed=seed << 40) == []
