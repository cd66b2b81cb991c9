"""Layers, waits, deadlines and budgets of layers: the kernel against the oracle, sums and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from oracle_draws import philox_world
from oracle_world import Draws, Replication, World, chain, services
from polars.testing import assert_frame_equal
from worlds import cell_of, differences, random_worlds

import mc
from mc import kernel
from mc.kernel import BY_TABLE, CHAIN_BUDGET, DECORRELATED, LAYER_BUDGETS, POLLY
from mc.model import Cell, chain_kind, schedule, tables

OUTAGE: Final = Cell(fault_rounds=100, fault_capacity=0)
DEGRADATION: Final = Cell(fault_rounds=1000, fault_capacity=1)


def rows_of(*cells: Cell, replications: int = 50, seed: int = 7) -> list[pl.DataFrame]:
    """Simulate cells; the rows of each, without its number."""
    rows = mc.simulate(cells, replications=replications, seed=seed, jobs=2)
    return [rows.filter(pl.col("cell") == i).drop("cell") for i in range(len(cells))]


# The oracle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_chains_are_the_oracles_rows(seed: int) -> None:
    worlds = random_worlds(seed, 100)
    assert differences(worlds, [0, 2**32 - 1 - seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_random_chains_are_the_oracles_rows(seed: int) -> None:
    worlds = random_worlds(seed, 200)
    assert differences(worlds, [0, seed], seed=seed << 40) == []


def layered_budgets(worlds: list[World]) -> list[World]:
    """Give each layer of some worlds a budget of its own."""
    budgets = (None, 0.0, 0.1, 1 / 3, 0.7, 2.5, 0.123456789)
    changed = []
    for k, world in enumerate(worlds):
        n = len(chain(world))
        listed = tuple(budgets[(k + 3 * i) % len(budgets)] for i in range(n))
        budget = listed if k % 3 else budgets[k % len(budgets)]
        changed.append(replace(world, budget=budget, budget_scope="layer"))
    return changed


def test_budgets_of_layers_are_the_oracles_rows() -> None:
    worlds = layered_budgets(random_worlds(50, 150))
    assert differences(worlds, [1, 5], seed=11) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 210))
def test_many_budgets_of_layers_are_the_oracles_rows(seed: int) -> None:
    worlds = layered_budgets(random_worlds(seed, 200))
    assert differences(worlds, [1, 5], seed=seed) == []


def test_a_fractional_capacity_serves_what_the_oracle_serves() -> None:
    for world in random_worlds(51, 200):
        got = tables([cell_of(world)], "philox").capacities[0].tolist()
        expected = [service.capacity for service in services(world)]
        assert got == expected


# Which loop ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, None),
        ({"tries": (27,), "budget": 0.3, "jitter": "equal", "backoff_factor": 1.5}, None),
        ({"tries": (3, 3), "chain": "flattened", "first_wait": 0, "capacity": 2.5}, None),
        ({"tries": (9,), "budget": 0.3, "budget_scope": "layer"}, None),
        ({"tries": (3, 3)}, (BY_TABLE, False, CHAIN_BUDGET)),
        ({"tries": (3,), "deadline": 5}, (BY_TABLE, True, CHAIN_BUDGET)),
        ({"tries": (3,), "jitter": "decorrelated"}, (DECORRELATED, False, CHAIN_BUDGET)),
        ({"tries": (3,), "jitter": "polly"}, (POLLY, False, CHAIN_BUDGET)),
        (
            {"tries": (3, 2), "budget": (None, 0.1), "budget_scope": "layer", "deadline": (5, 2)},
            (BY_TABLE, True, LAYER_BUDGETS),
        ),
        ({"tries": (3, 2), "budget_scope": "layer"}, (BY_TABLE, False, CHAIN_BUDGET)),
    ],
)
def test_which_loop_a_cell_goes_through(
    parameters: dict[str, Any], expected: tuple[Any, ...] | None
) -> None:
    assert kernel.loop_of(chain_kind(Cell(**parameters))) == expected


def test_cells_of_all_loops_stand_in_one_block_and_do_not_disturb_each_other() -> None:
    cells = [cell_of(replace(world, rounds=100)) for world in random_worlds(52, 60)]
    cells = [replace(cell, rounds_per_second=100, arrivals_per_second=200) for cell in cells]
    loops = {kernel.loop_of(chain_kind(cell)) for cell in cells}
    assert len(loops) > 5
    together = rows_of(*cells, replications=4)
    for cell, got in zip(cells, together, strict=True):
        (alone,) = rows_of(cell, replications=4)
        assert_frame_equal(got.select(alone.columns), alone)
        others = got.drop(alone.columns)
        assert all(column.null_count() == len(column) for column in others)


# World: means of another program ------------------------------------------------------------------


class Case(NamedTuple):
    """What a separate program found in 600 seeds: mean and standard error of each number."""

    cell: Cell
    window_rate: tuple[float, float]
    calls: tuple[float, float]
    dropped: tuple[float, float]
    late: tuple[float, float]
    layers: tuple[float, ...] = ()


def _cases() -> dict[str, Case]:
    faults = {"outage": OUTAGE, "degradation": DEGRADATION}
    three = {name: replace(cell, tries=(3, 3, 3)) for name, cell in faults.items()}
    one = {name: replace(cell, tries=(27,)) for name, cell in faults.items()}
    busy = Cell(
        arrivals_per_second=2000, capacity=60, fault_capacity=60, fault_rounds=800, tries=(4,),
        jitter="none", backoff_base=1, backoff_cap=1, failure_rate=0.3,
    )  # fmt: skip
    return {
        "nested, outage": Case(
            three["outage"], (19.599, 0.084), (5888.7, 9.5), (49.04, 0.27), (32.94, 0.23),
            (4036, 4496),
        ),
        "nested, degradation": Case(
            three["degradation"], (5.425, 0.061), (8352, 61), (8.51, 0.38), (88.3, 2.4),
            (4042, 4968),
        ),
        "nested, budget, outage": Case(
            replace(three["outage"], budget=0.3),
            (2.7405, 0.0056), (4063.4, 2.6), (96.37, 0.38), (0, 0), (3894, 3935),
        ),
        "nested, budget, degradation": Case(
            replace(three["degradation"], budget=0.3),
            (1.4084, 0.0017), (4322.8, 2.9), (248.3, 1.1), (0.097, 0.014), (3886, 3912),
        ),
        "equal, outage": Case(
            replace(one["outage"], jitter="equal"),
            (5.226, 0.023), (4429.2, 3.8), (0, 0), (86.98, 0.41),
        ),
        "equal, degradation": Case(
            replace(one["degradation"], jitter="equal"),
            (3.578, 0.026), (6513, 27), (0, 0), (288.6, 6.5),
        ),
        "none, outage": Case(
            replace(one["outage"], jitter="none"),
            (4.762, 0.021), (4375.3, 3.5), (0, 0), (84.33, 0.40),
        ),
        "deadline, outage": Case(
            replace(one["outage"], deadline=20),
            (4.452, 0.018), (4248.1, 3.0), (83.65, 0.36), (0, 0),
        ),
        "deadline, degradation": Case(
            replace(one["degradation"], deadline=20),
            (2.862, 0.010), (5779, 10), (46.34, 0.62), (0, 0),
        ),
    }  # fmt: skip


CASES: Final = _cases()


def assert_same_means(case: Case, rows: pl.DataFrame) -> None:
    """Means within 4 standard errors of the difference."""
    expected = {name: getattr(case, name) for name in ("window_rate", "calls", "dropped", "late")}
    got = {
        "window_rate": rows["window_calls"] / case.cell.fault_rounds,
        **{name: rows[name] for name in ("calls", "dropped", "late")},
    }
    for i, mean in enumerate(case.layers, 1):
        got[f"calls_{i}"] = rows[f"calls_{i}"]
        # the error of a layer's calls is not given, but it is about as large as in these rows
        expected[f"calls_{i}"] = mean, rows[f"calls_{i}"].std() / math.sqrt(600)
    for name, (mean, error) in expected.items():
        values = got[name].to_numpy()
        allowed = 4 * math.hypot(error, values.std(ddof=1) / math.sqrt(len(values)))
        assert abs(values.mean() - mean) <= allowed + 0.5 * 10.0 ** -_decimals(mean), name


def _decimals(mean: float) -> int:
    """Digits after the point as printed: what is printed is rounded."""
    return len(str(mean).partition(".")[2]) if mean % 1 else 0


@pytest.mark.parametrize("name", CASES)
def test_chains_have_the_means_of_another_program(name: str) -> None:
    # 4 or 6 means for each of 9 cells, within 4 standard errors: a fresh seed fails once in 300
    (rows,) = rows_of(CASES[name].cell, replications=1000, seed=20260803)
    assert_same_means(CASES[name], rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_chains_have_the_means_of_another_program_in_many_replications(name: str) -> None:
    (rows,) = rows_of(CASES[name].cell, replications=10_000, seed=20260803)
    assert_same_means(CASES[name], rows)
