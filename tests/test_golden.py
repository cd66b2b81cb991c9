"""The lesson's own program, run elsewhere for 1,338 rows: oracle and kernel give every number.

`golden/golden_grid.csv` has the 18 cells of the lesson under 41 seeds, `golden/golden_points.csv`
600 cells of every shape, each under a seed of its own.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from oracle import COUNTERS, Parameters, Row, differences, lesson_draws, simulate

import mc

GOLDEN: Final = Path(__file__).parent / "golden"
N_ROWS: Final = {"golden_grid": 738, "golden_points": 600}


class Golden(NamedTuple):
    """One row of a golden file."""

    line: int
    cell: Parameters
    seed: int
    max_attempts: int
    counters: Row


def read(name: str) -> list[Golden]:
    with (GOLDEN / f"{name}.csv").open(newline="") as file:
        return [_golden(line, row) for line, row in enumerate(csv.DictReader(file), start=2)]


def _golden(line: int, row: dict[str, str]) -> Golden:
    cell = Parameters(
        rounds=int(row["rounds"]),
        arrivals_per_second=float(row["arrivals_per_second"]),
        capacity=int(row["capacity"]),
        fault_start=int(row["fault_start"]),
        fault_rounds=int(row["fault_rounds"]),
        fault_capacity=int(row["fault_capacity"]),
        failure_rate=float(row["failure_rate"]),
        tries=tuple(int(tries) for tries in row["tries"].split("x")),
        backoff_base=float(row["backoff_base"]),
        backoff_cap=float(row["backoff_cap"]),
        budget=float(row["budget"]) if row["budget"] else None,
    )
    counters = {name: int(row[name]) for name in COUNTERS if name in row}
    return Golden(line, cell, int(row["seed"]), int(row["max_attempts"]), counters)


@pytest.mark.parametrize("name", N_ROWS)
def test_the_golden_file_is_whole(name: str) -> None:
    rows = read(name)
    assert len(rows) == N_ROWS[name]
    # the columns that came after the lesson are not in its program's output
    got = set(COUNTERS) - set(rows[0].counters)
    expected = {"window_requests", "second_peak", "wait_total", "wait_max", "late", "drain"}
    expected |= {"window_dropped"}
    assert got == expected


@pytest.mark.parametrize(
    ("name", "step"),
    [
        *((name, 11) for name in N_ROWS),  # 11 divides neither 18 cells nor 41 seeds: all occur
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in N_ROWS),
    ],
)
def test_the_oracle_gives_the_golden_rows(name: str, step: int) -> None:
    mismatches = []
    for golden in read(name)[::step]:
        got = simulate(golden.cell, lesson_draws(golden.cell, golden.seed))
        if different := differences(got, golden.counters):
            mismatches.append((golden.line, golden.cell, golden.seed, different))
    assert mismatches == []


@pytest.mark.parametrize("name", N_ROWS)
def test_the_kernel_gives_every_golden_row(name: str) -> None:
    of_seed: defaultdict[int, list[Golden]] = defaultdict(list)
    for golden in read(name):
        of_seed[golden.seed].append(golden)
    mismatches = []
    for seed, rows in of_seed.items():
        cells = [mc.Cell(**asdict(golden.cell), chain="flattened") for golden in rows]
        frame = mc.simulate(cells, generator="lesson", seeds=[seed], jobs=1)
        assert frame.height == len(rows)
        for golden, got in zip(rows, frame.iter_rows(named=True), strict=True):
            if different := differences(got, golden.counters):
                mismatches.append((golden.line, golden.cell, golden.seed, different))
    assert mismatches == []


@pytest.mark.parametrize("name", N_ROWS)
def test_the_bound_is_that_of_every_golden_row(name: str) -> None:
    rows = read(name)
    got = [mc.Cell(**asdict(golden.cell), chain="flattened").max_attempts for golden in rows]
    expected = [golden.max_attempts for golden in rows]
    assert got == expected
