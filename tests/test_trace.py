"""The record of every round: what it adds up to, and that it changes nothing.

Random cells come from fixed seeds; every comparison is an equality of integers, so a fresh seed
would never fail by luck.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from oracle import Parameters, lesson_draws, philox_draws, simulate
from polars.testing import assert_frame_equal

import mc
from mc import kernel
from mc.model import Generator

SEED: Final = 20260802
COLUMNS: Final = [
    *("cell", "replication", "round", "calls", "primary", "retries"),
    *("successful", "failed", "dropped", "capacity", "waiting", "queued"),
]


def random_cell(rng: np.random.Generator, generator: Generator) -> mc.Cell:
    """A cell of any shape: with and without a window, failures, budgets, long and short waits."""
    rounds = int(rng.integers(1, 400))
    fault_rounds = int(rng.choice([0, 1, 30, 500]))
    failure_rate = float(rng.choice([0.0, 0.03, 0.6, 1.0]))
    if generator == "lesson" and fault_rounds:
        failure_rate = 0.0
    return mc.Cell(
        rounds=rounds,
        arrivals_per_second=float(rng.choice([0.0, 20.0, 97.22, 700.0])),
        capacity=int(rng.integers(0, 10)),
        fault_start=int(rng.integers(0, 300)),
        fault_rounds=fault_rounds,
        fault_capacity=int(rng.integers(0, 3)),
        failure_rate=failure_rate,
        tries=tuple(rng.integers(1, 4, size=int(rng.integers(1, 4))).tolist()),
        chain="flattened" if generator == "lesson" or rng.random() < 0.5 else "nested",
        backoff_base=float(rng.choice([0.0, 0.5, 2.0, 7.0])),
        backoff_cap=float(rng.choice([1.0, 32.0, 500.0])),
        budget=[None, 0.0, 0.1, 0.7][int(rng.integers(4))],
    )


def random_cells(generator: Generator, n: int) -> list[mc.Cell]:
    rng = np.random.default_rng(6)
    return [random_cell(rng, generator) for _ in range(n)]


@pytest.mark.parametrize("generator", ["philox", "lesson"])
def test_the_rounds_of_a_replication_sum_up_to_its_counters(generator: Generator) -> None:
    cells = random_cells(generator, 120)
    rounds = mc.trace(cells, replications=3, seed=SEED, generator=generator)
    summed = rounds.group_by("cell", "replication", maintain_order=True).agg(
        pl.col("calls", "primary", "retries", "successful", "dropped").sum(),
        peak=pl.col("calls").max(),
        in_flight=pl.col("waiting").last(),
    )
    rows = mc.simulate(cells, replications=3, seed=SEED, generator=generator)
    got = summed.select("cell", "replication", *sorted(summed.columns[2:]))
    expected = rows.select(got.columns)
    assert_frame_equal(got, expected)


@pytest.mark.parametrize("generator", ["philox", "lesson"])
def test_what_is_recorded_by_round_t_is_what_a_run_of_so_many_rounds_counts(
    generator: Generator,
) -> None:
    # a run that ends after t rounds draws the same, so its counters are the sums up to there
    cells = [replace(cell, rounds=60) for cell in random_cells(generator, 10)]
    rounds = mc.trace(cells, seed=SEED, generator=generator)
    names = ["primary", "retries", "successful", "dropped"]
    by_round = rounds.select(
        "cell", "round", "waiting", *(pl.col(name).cum_sum().over("cell") for name in names)
    )
    for t in range(60):
        ended = [replace(cell, rounds=t + 1) for cell in cells]
        rows = mc.simulate(ended, replications=1, seed=SEED, generator=generator)
        got = by_round.filter(round=t).select("cell", *names, in_flight="waiting")
        expected = rows.select("cell", *names, "in_flight")
        assert_frame_equal(got, expected)


@pytest.mark.parametrize("generator", ["philox", "lesson"])
def test_the_rounds_are_those_of_the_model_in_plain_python(generator: Generator) -> None:
    for number, cell in enumerate(random_cells(generator, 12)):
        some = replace(cell, rounds=min(cell.rounds, 40), chain="flattened")
        rounds = mc.trace([some], replications=[number], seed=SEED, generator=generator)
        indices = rounds["seed"] if generator == "lesson" else rounds["replication"]
        calls = []
        for t in range(some.rounds):
            known = {field.name: getattr(some, field.name) for field in fields(Parameters)}
            parameters = Parameters(**known | {"rounds": t + 1})
            draws = (
                lesson_draws(parameters, indices[0])
                if generator == "lesson"
                else philox_draws(parameters, SEED, indices[0])
            )
            counted = simulate(parameters, draws)
            calls.append(counted["calls"])
            assert rounds["waiting"][t] == counted["in_flight"]
        got = rounds["calls"].cum_sum().to_list()
        expected = calls
        assert got == expected


def test_recording_changes_no_counter() -> None:
    from mc.runner import plan_blocks, simulate_block

    for generator in ("philox", "lesson"):
        cells = dict(enumerate(random_cells(generator, 40)))
        indices = np.arange(1, 4, dtype=np.int64)
        for block in plan_blocks(cells, generator):
            shape = (3, len(block.cells), kernel.N_RECORDED, block.cells[0].rounds)
            got = simulate_block(block, indices, SEED, np.empty(shape, np.int32))
            expected = simulate_block(block, indices, SEED)
            np.testing.assert_array_equal(got, expected)


def test_a_replication_that_outgrows_the_wheel_is_recorded_once() -> None:
    # 3,000 calls a round do not fit the 16 entries that a slot begins with
    cell = mc.Cell(
        rounds=40, arrivals_per_second=60_000, capacity=10, tries=(3, 3), backoff_cap=2
    )  # fmt: skip
    rounds = mc.trace(cell, replications=2)
    rows = mc.simulate([cell], replications=2)
    got = rounds.group_by("replication", maintain_order=True).agg(pl.col("calls", "dropped").sum())
    expected = rows.select("replication", "calls", "dropped")
    assert_frame_equal(got, expected)


def test_a_trace_has_the_columns_that_are_described() -> None:
    from mc.runner.tracing import TRACE_COLUMNS

    rounds = mc.trace(mc.Cell(rounds=5), replications=[3, 9])
    assert rounds.columns == COLUMNS
    assert set(TRACE_COLUMNS) == {*COLUMNS, "seed"}
    assert rounds["replication"].to_list() == [3] * 5 + [9] * 5
    assert rounds.schema["cell"] == pl.Int32
    assert {rounds.schema[name] for name in COLUMNS[1:]} == {pl.Int64}


def test_the_capacity_is_that_of_the_fault_inside_its_window() -> None:
    cell = mc.Cell(rounds=6, capacity=5, fault_start=2, fault_rounds=2, fault_capacity=1)
    got = mc.trace(cell)["capacity"].to_list()
    expected = [5, 5, 1, 1, 5, 5]
    assert got == expected


def test_a_lesson_trace_names_its_seed() -> None:
    cell = mc.Cell(fault_rounds=100, tries=(3, 3, 3), chain="flattened", budget=0.3)
    rounds = mc.trace(cell, generator="lesson", seeds=[20260802])
    assert rounds["seed"].unique().to_list() == [20260802]
    got = rounds["calls"].sum()
    expected = 4065  # the published figure
    assert got == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"cells": [1]}, "cells must be a list of Cell"),
        ({"cells": mc.Cell(), "replications": [0, 0]}, "must not repeat"),
        ({"cells": mc.Cell(), "generator": "other"}, "generator must be"),
    ],
)
def test_a_trace_refuses_what_simulate_refuses(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises((ValueError, TypeError), match=expected):
        mc.trace(**arguments)
