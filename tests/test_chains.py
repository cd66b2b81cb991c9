"""Layers, waits, deadlines and budgets of layers: the kernel against the oracle, sums and laws.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of means say how often one would.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pytest
from folders import run, write
from numpy.typing import NDArray
from oracle_draws import philox_world
from oracle_world import Draws, Replication, World, chain, services
from polars.testing import assert_frame_equal
from reported import Page
from typer.testing import CliRunner
from worlds import cell_of, differences, random_worlds

import mc
from mc import kernel, store
from mc.cli import app
from mc.experiment import ExperimentError, cells_of, read
from mc.kernel import BY_TABLE, CHAIN_BUDGET, DECORRELATED, POLLY
from mc.kernel.layout import NO_BREAKER, RATIO
from mc.model import Cell, chain_kind, schedule, tables
from mc.model.traffic import Traffic
from mc.runner import Block, simulate_block
from mc.store import FolderError

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
        ({"tries": (3, 3), "budget": 0.1}, None),
        ({"tries": (3, 3), "deadline": 5}, None),
        ({"tries": (3,), "deadline": 5, "budget": 0.1}, None),
        ({"tries": (3, 2), "budget_scope": "layer"}, None),
        # after a refusal the outer layer asks with a wait of its own, which may be too long
        ({"tries": (3, 3), "deadline": 5, "budget": 0.1}, (BY_TABLE, True, CHAIN_BUDGET)),
        ({"tries": (3, 3), "deadline": (None, 5)}, (BY_TABLE, True, CHAIN_BUDGET)),
        ({"tries": (3,), "jitter": "decorrelated"}, (DECORRELATED, False, CHAIN_BUDGET)),
        ({"tries": (3,), "jitter": "polly"}, (POLLY, False, CHAIN_BUDGET)),
        (
            {"tries": (3, 2), "budget": (None, 0.1), "budget_scope": "layer", "deadline": (5, 2)},
            (BY_TABLE, True, RATIO),
        ),
        (
            {"tries": (3, 2), "budget": 0.1, "budget_scope": "layer"},
            (BY_TABLE, False, RATIO),
        ),
    ],
)
def test_which_loop_a_cell_goes_through(
    parameters: dict[str, Any], expected: tuple[Any, ...] | None
) -> None:
    whole = None if expected is None else (*expected, NO_BREAKER, False, False)
    assert kernel.loop_of(chain_kind(Cell(**parameters))) == whole


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
    expected: dict[str, tuple[float, float | None]] = {
        name: getattr(case, name) for name in ("window_rate", "calls", "dropped", "late")
    }
    expected |= {f"calls_{i}": (mean, None) for i, mean in enumerate(case.layers, 1)}
    rows = rows.with_columns(window_rate=pl.col("window_calls") / case.cell.fault_rounds)
    for name, (mean, error) in expected.items():
        values = rows[name].to_numpy()
        sd = values.std(ddof=1)
        # the error of a layer's calls is not given, but follows from the spread, and 600 seeds
        given = sd / math.sqrt(600) if error is None else error
        allowed = 4 * math.hypot(given, sd / math.sqrt(len(values)))
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


# Sums that need no simulation ---------------------------------------------------------------------


def rounds_of_attempts(tries: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """How likely each attempt of a request runs so many rounds after the first, if all fail.

    Of nested layers with full jitter, base 2, factor 2, cap 32: after a layer's attempt d a retry
    waits 1 .. min(32, 2 * 2**d) rounds, each as likely. Attempts by their number in mixed radix.
    """
    after = [np.array([1.0])]
    for n in range(1, math.prod(tries)):
        # the layer that makes attempt n is the one whose digit is raised: the innermost that is
        # not back at 0
        inside, digit = n, 0
        for of_layer in reversed(tries):
            inside, digit = divmod(inside, of_layer)
            if digit > 0:
                break
        longest = min(32, 2 * 2 ** (digit - 1))
        wait = np.concatenate([[0.0], np.full(longest, 1 / longest)])
        after.append(np.convolve(after[-1], wait))
    return after


@pytest.mark.parametrize(
    ("tries", "rate", "dropped", "longest"),
    [((3, 3), 8.08, 81.7, 24), ((3, 3, 3), 19.56, 46.7, 78)],
)
def test_an_outage_of_nested_layers_is_a_renewal_sum(
    tries: tuple[int, ...], rate: float, dropped: float, longest: int
) -> None:
    # Nothing is served, so requests do not interact: of those that arrive in round s of 100, an
    # attempt counts if it runs before the end. A fresh seed misses a mean by 4.5 standard errors
    # once in 150,000.
    per_round, n_rounds = 0.9722, 100
    after = rounds_of_attempts(tries)
    runs = [[p[: n_rounds - s].sum() for p in after] for s in range(n_rounds)]
    exact = {
        "calls": per_round * np.sum(runs),
        "dropped": per_round * sum(of_request[-1] for of_request in runs),
        "calls_1": per_round * np.sum([run[:: len(after) // tries[0]] for run in runs]),
    }
    assert exact["calls"] / n_rounds == pytest.approx(rate, abs=0.01)
    assert exact["dropped"] == pytest.approx(dropped, abs=0.05)
    cell = Cell(
        rounds=n_rounds, fault_start=0, fault_rounds=n_rounds, capacity=0, tries=tries
    )  # fmt: skip
    assert cell.longest_wait == len(after[-1]) - 1 == longest
    (rows,) = rows_of(cell, replications=4000)
    for name, mean in exact.items():
        values = rows[name].to_numpy()
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - mean) <= 4.5 * error, name


def test_an_outage_without_end_takes_every_attempt_of_every_layer() -> None:
    # few requests, in replications that end with all of them decided; no wait reaches its cap
    cell = Cell(
        rounds=4000, arrivals_per_second=0.05, capacity=0, tries=(2, 3, 4), backoff_cap=1000
    )  # fmt: skip
    for jitter in ("full", "none", "decorrelated", "polly"):
        (rows,) = rows_of(replace(cell, jitter=jitter), replications=200)
        decided = rows.filter(pl.col("in_flight") == 0, pl.col("requests") > 0)
        assert len(decided) > 100
        for name, factor in {"calls": 24, "calls_2": 6, "calls_1": 2, "dropped": 1}.items():
            assert decided[name].equals(factor * decided["requests"], check_names=False), name


# Laws ---------------------------------------------------------------------------------------------


def test_a_layer_that_never_retries_changes_nothing() -> None:
    for world in random_worlds(53, 60):
        cell = replace(cell_of(world), chain="nested", budget_scope="chain", deadline=20)
        for name in ("backoff_base", "backoff_factor", "backoff_cap", "budget"):
            value = getattr(cell, name)
            cell = replace(cell, **{name: value[0] if isinstance(value, tuple) else value})
        outside, inside, alone = (replace(cell, tries=t) for t in [(3, 1), (1, 3), (3,)])
        first, second, third = rows_of(outside, inside, alone, replications=4)
        # calls_1 is that of the outer layer, which makes all calls or none of the retries
        same = first.drop("calls_1"), second.drop("calls_1"), third.drop("calls_1")
        assert_frame_equal(same[0], same[1])
        assert_frame_equal(same[0], same[2])


def test_it_matters_which_layer_tries_more_often() -> None:
    two_three, three_two = (replace(OUTAGE, tries=tries) for tries in [(2, 3), (3, 2)])
    first, second = rows_of(two_three, three_two)
    assert (first["calls"] != second["calls"]).any()
    flat = [replace(cell, chain="flattened") for cell in (two_three, three_two)]
    assert_frame_equal(*rows_of(*flat))


def test_one_layer_is_the_same_nested_and_flattened() -> None:
    for world in random_worlds(54, 120):
        if len(world.tries) == 1:
            nested = cell_of(replace(world, chain="flattened"))
            rows = rows_of(nested, replace(nested, chain="nested"), replications=3)
            assert_frame_equal(*rows)


@pytest.mark.parametrize("deadline", [10**6, (10**6, 10**6, 10**6)])
@pytest.mark.parametrize("budget", [None, 0.3])
def test_a_deadline_that_never_binds_changes_nothing(deadline: Any, budget: float | None) -> None:
    cell = replace(OUTAGE, tries=(3, 3, 3), budget=budget, failure_rate=0.01)
    for jitter in ("full", "decorrelated"):
        free = replace(cell, jitter=jitter)
        got, expected = rows_of(replace(free, deadline=deadline), free)
        assert got["expired"].sum() == 0
        assert_frame_equal(got.drop("expired"), expected.drop("expired"))


def test_a_deadline_of_0_makes_retries_impossible() -> None:
    cell = replace(OUTAGE, tries=(3, 3), deadline=0)
    (rows,) = rows_of(cell)
    assert rows["retries"].sum() == 0
    assert rows["expired"].equals(rows["dropped"], check_names=False)
    assert min(rows["dropped"]) > 50


def test_no_request_succeeds_after_its_deadline() -> None:
    for deadline in (1, 7, 30):
        cell = replace(DEGRADATION, tries=(3, 3, 3), deadline=deadline)
        (rows,) = rows_of(cell)
        assert max(rows["wait_max"]) == deadline


def test_a_budget_of_each_layer_holds_in_each_layer() -> None:
    cell = replace(OUTAGE, tries=(3, 3), budget=(0.1, 0.5), budget_scope="layer", fault_rounds=800)
    (rows,) = rows_of(cell)
    of_outer, of_inner = rows["calls_1"] - rows["requests"], rows["calls"] - rows["calls_1"]
    # one more may run than the ratio allows, and as many as wait when it is reached: few
    assert (of_outer <= 0.1 * rows["requests"] + 40).all()
    assert (of_inner <= 0.5 * rows["calls_1"] + 40).all()
    assert (rows["denied"] > 100).all()


# How long a request can live ----------------------------------------------------------------------


def test_the_longest_wait_is_that_of_a_request_that_always_fails() -> None:
    for world in random_worlds(55, 200):
        fixed = replace(world, rounds=5000, jitter="none", capacity=0, fault_rounds=0, budget=None)
        cell = cell_of(fixed)
        if cell.longest_wait >= 5000 or isinstance(fixed.deadline, tuple):
            continue  # layers with deadlines of their own can give up before the last attempt
        draws = philox_world(1, 1)
        script = Draws(
            arrivals=lambda t, _: int(t == 0),
            fails=draws.fails,
            delay=draws.delay,
            client=draws.client,
            throttled=draws.throttled,
        )
        calls = Replication(fixed, script).run().calls_in
        last = max(t for t, n in enumerate(calls) if n)
        assert not isinstance(fixed.deadline, str)
        if fixed.deadline is None:
            assert last == cell.longest_wait
        else:
            assert last <= cell.longest_wait <= fixed.deadline


@pytest.mark.parametrize("deadline", [None, 90, (200, 60, 30)])
def test_the_longest_life_counts_the_time_outs(deadline: int | tuple[int, ...] | None) -> None:
    """A request that is served just before its last time-out; one round later it is dropped."""
    cell = Cell(
        rounds=2000, arrivals_per_second=0, capacity=1, queue=9, timeout=25, cancel=True,
        traffic=Traffic.of({"bursts": [{"at": 0, "count": 1}]}), fault_start=0, fault_rounds=1,
        tries=(3, 2, 2), backoff_base=5, jitter="none", deadline=deadline,
    )  # fmt: skip
    life = cell.longest_life
    assert life is not None
    assert replace(cell, timeout=None).longest_life == (None if deadline is None else life)
    served, dropped = (replace(cell, fault_rounds=n) for n in (life, life + 1))
    rows = mc.simulate([served, dropped], replications=1, seed=1)
    assert rows["dropped"].to_list()[1] == 1
    if deadline is None:
        assert life == 12 * 24 + 3 * 2 * 5 + 3 * 5 + 5 + 10
        assert rows["wait_max"].to_list()[0] == life
    else:
        assert (rows["wait_max"].to_list()[0] or 0) <= life


def test_no_wait_is_longer_than_the_longest() -> None:
    for world in random_worlds(56, 300):
        cell = cell_of(replace(world, fault_rounds=30, fault_start=0, threshold=0))
        (rows,) = rows_of(cell, replications=3)
        assert max(rows["wait_max"]) <= cell.longest_wait


@pytest.mark.parametrize(
    ("parameters", "expected"),  # offset, width, longest after each attempt of each layer; life
    [
        ({"tries": (3,)}, ([[(0, 2, 2), (0, 4, 4)]], 6)),
        ({"tries": (2, 3)}, ([[(0, 2, 2)], [(0, 2, 2), (0, 4, 4)]], 14)),
        ({"tries": (2, 3), "chain": "flattened"}, ([[(0, 2**n, 2**n) for n in range(1, 6)]], 62)),
        ({"tries": (2, 3), "deadline": 9}, ([[(0, 2, 2)], [(0, 2, 2), (0, 4, 4)]], 9)),
        ({"tries": (2, 3), "deadline": (None, 5)}, ([[(0, 2, 2)], [(0, 2, 2), (0, 4, 4)]], 12)),
        (
            {"tries": (3, 2), "backoff_base": (10, 1), "backoff_factor": (3, 1)},
            ([[(0, 10, 10), (0, 30, 30)], [(0, 1, 1)]], 43),
        ),
        ({"tries": (3,), "jitter": "equal"}, ([[(1, 1, 2), (2, 2, 4)]], 6)),
        ({"tries": (3,), "jitter": "none", "backoff_base": 2.5}, ([[(2.5, 0, 3), (5, 0, 5)]], 8)),
        (
            {"tries": (3,), "jitter": "plus_minus", "jitter_share": 0.5},
            ([[(1, 2, 3), (2, 4, 6)]], 9),
        ),
        ({"tries": (3,), "jitter": "decorrelated"}, ([[(2, 4, 6), (2, 16, 18)]], 24)),
        ({"tries": (3,), "first_wait": 0}, ([[(0, 0, 1), (0, 4, 4)]], 5)),
        ({"tries": (1, 1)}, ([[], []], 0)),
    ],
)
def test_the_schedule_of_a_chain(
    parameters: dict[str, Any], expected: tuple[list[list[tuple[float, float, int]]], int]
) -> None:
    got = schedule(Cell(**{"backoff_cap": 1000, **parameters}))
    assert ([list(layer) for layer in got.layers], got.longest) == expected


def test_the_waits_of_polly_never_add_up_to_more_than_its_curve() -> None:
    # 4 retries end at most at 10 * 2**4 * tanh(4) / 1.4 = 114.2 rounds, each rounded up once
    cell = Cell(tries=(5,), jitter="polly", backoff_base=10, backoff_cap=1000)
    assert schedule(cell).longest == 118
    assert sum(wait.longest for wait in schedule(cell).layers[0]) > 118


# Results folders ----------------------------------------------------------------------------------

FLATTENED: Final = """
title = "layers"
replications = 40
[fixed]
rounds = 300
fault_start = 50
fault_rounds = 40
[[policy]]
name = "flat"
tries = [3, 3]
chain = "flattened"
[[policy]]
name = "none"
"""

MORE: Final = """
[[policy]]
name = "nested"
tries = [2, 3]
backoff_base = [8, 2]
deadline = ["none", 4]
[[policy]]
name = "polly"
tries = [2, 2, 2]
jitter = "polly"
deadline = 30
budget = ["none", 0.1, 0.2]
budget_scope = "layer"
"""


@pytest.mark.parametrize("keep", ["rows", "histograms"])
def test_policies_with_further_counters_may_be_added_to_a_folder(tmp_path: Path, keep: str) -> None:
    """Shards that are older do not have the counters: it is as if they had been there always."""
    few = f'keep = "{keep}"\n{FLATTENED}'
    run(few, tmp_path / "grown")
    assert not {"expired", "denied", "calls_1"} & {*mc.load(tmp_path / "grown").summary["metric"]}
    run(few + MORE, tmp_path / "grown")
    run(few + MORE, tmp_path / "at once")
    grown, at_once = mc.load(tmp_path / "grown"), mc.load(tmp_path / "at once")
    for table in ("summary", "comparisons", "cells"):
        assert_frame_equal(getattr(grown, table), getattr(at_once, table))
    assert {"expired", "denied", "calls_1", "calls_2"} <= {*grown.summary["metric"]}
    if keep == "rows":
        assert_frame_equal(grown.replications, at_once.replications)
    assert mc.verify(tmp_path / "grown", all_rows=True).ok


def test_a_folder_of_flattened_layers_is_refused_if_they_are_nested_now(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FLATTENED, out)
    silent = FLATTENED.replace('chain = "flattened"\n', "")
    with pytest.raises(FolderError, match=r"policy \"flat\": chain was flattened, is not set"):
        run(silent, out)
    # so old that the file, which has not changed, could not say it
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    manifest["experiment"]["policy"][0].pop("chain")
    store.write_manifest(out, manifest)
    with pytest.raises(FolderError, match="made when all layers were flattened"):
        run(silent, out)
    run(FLATTENED, out)  # goes on


def test_a_table_of_cells_that_is_older_than_chains_has_flattened_ones(tmp_path: Path) -> None:
    run(FLATTENED, tmp_path / "out")
    table = mc.load(tmp_path / "out").cells
    new = [*("chain", "backoff_factor", "jitter", "jitter_share"), "first_wait", "deadline"]
    older = table.drop(*new, "budget_scope")
    got = {number: cell.identity for number, cell in cells_of(older).items()}
    expected = {number: cell.identity for number, cell in cells_of(table).items()}
    assert got == expected


def test_a_folder_that_is_older_than_chains_gets_its_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FLATTENED, out)
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    older = mc.load(out).cells.drop("chain", "jitter", "deadline", "budget_scope", "queue")
    manifest["tables"]["cells"] = store.write_table(out, "cells", older)
    store.write_manifest(out, manifest)
    page = Page(mc.report(out).read_text("utf-8")).read
    assert re.search(r"chain flattened .*jitter full ", page)
    filled = mc.load(out).cells.select("chain", "jitter", "deadline", "queue")
    assert set(filled.rows()) == {("flattened", "full", None, 0)}


# Rows ---------------------------------------------------------------------------------------------


def test_a_block_has_room_for_the_calls_of_its_layers_whoever_makes_it() -> None:
    """The kernel checks nothing: a row that is too short would write into the next one."""
    cells = (Cell(rounds=50, tries=(2, 2, 2)), Cell(rounds=50))
    block = Block((0, 1), cells, "philox")
    counters = simulate_block(block, np.arange(3), 1)
    assert counters.shape == (3, 2, kernel.N_COUNTERS + 2)
    assert (counters[:, 1, kernel.N_COUNTERS :] == kernel.UNDEFINED).all()
    assert (counters[:, 0, kernel.N_COUNTERS :] > 0).all()


# Calls of each layer ------------------------------------------------------------------------------

NAMED: Final = """
title = "layers"
replications = 40
layer_names = ["gateway", "endpoint", "store"]
[fixed]
rounds = 300
fault_start = 50
fault_rounds = 40
[[policy]]
name = "three"
tries = [2, 3, 2]
[[policy]]
name = "two"
tries = [2, 2]
[[policy]]
name = "none"
tries = [1, 1]
[[policy]]
name = "flat"
tries = [2, 2]
chain = "flattened"
"""


def test_terminal_and_page_say_how_many_calls_each_layer_makes(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run(NAMED, folder)
    mc.report(folder)
    rows = mc.load(folder).replications
    totals = rows.filter(cell=0).select(pl.col("requests", "calls_1", "calls_2", "calls").sum())
    requests, *calls = totals.row(0)
    expected = [f"{n / requests:.2f}" for n in calls]
    assert expected == sorted(expected)
    text = ", ".join(map(" ".join, zip(["gateway", "endpoint", "store"], expected, strict=True)))
    shown = CliRunner().invoke(app, ["show", str(folder)]).stdout
    lines = shown[shown.index("Calls per request, by layer") :].splitlines()
    assert lines[1] == f"  three: {text}"
    assert lines[2].startswith("  two: layer 1 ")
    assert lines[3] == ""  # where there is one layer, or no retry, there is nothing to say
    page = Page((folder / "report.html").read_text("utf-8")).read
    assert f"gateway endpoint store three {' '.join(expected)} two" in page


def test_layers_have_a_name_each(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        NAMED.replace('"endpoint", ', "")
        .replace('"two"\ntries = [2, 2]', '"two"\ntries = [3]')
        .replace("[1, 1]", "[1]")
        .replace("tries = [2, 2]", "tries = [4]"),
    )
    with pytest.raises(ExperimentError, match=r"a name for each layer of tries \(1 or 3\)"):
        read(path)


def test_claims_about_nested_layers_have_no_share_as_the_lesson_draws(tmp_path: Path) -> None:
    """Its generator knows flattened layers alone."""
    claim = (
        '[[claim]]\ntext = "{0}"\nmetric = "calls"\npolicies = ["{0}"]\nrelation = ">"\nvalue = 0\n'
    )
    text = NAMED.replace("[fixed]", "lesson_shares = true\n[fixed]", 1)
    run(text + claim.format("flat") + claim.format("three"), tmp_path / "results")
    got = mc.load(tmp_path / "results").claims.select("text", "lesson_share").rows()
    assert got == [("flat", 1.0), ("three", None)]
