"""How long a replication takes; not part of the test run.

``pytest -s tests/benchmarks`` runs it. Every figure is the fastest of several rounds, and what is
claimed of it is a ratio to another figure of the same run: machines differ, and share their cores.
The table at the end is the README's; `test_before` compares with another version. Where Node and
the lesson's program are at hand, LESSON_TIMER may name a command that times the program and ends
its output with ``<number> us/seed`` for the fifteen cells together.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from oracle import Parameters, philox_draws
from oracle import simulate as simulate_oracle

import mc
from mc import runner
from mc.model import Cell, Generator

SCENARIOS: dict[str, dict[str, Any]] = {
    "healthy": {"failure_rate": 0.025},
    "outage": {"fault_rounds": 100},
    "degradation": {"fault_rounds": 1000, "fault_capacity": 1},
}
POLICIES: dict[str, dict[str, Any]] = {
    "1": {},
    "3": {"tries": (3,)},
    "9": {"tries": (9,)},
    "27": {"tries": (27,)},
    "27, budget 0.3": {"tries": (27,), "budget": 0.3},
}
LESSON = {
    f"{scenario}, {policy}": Cell(**SCENARIOS[scenario], **POLICIES[policy])
    for scenario, policy in itertools.product(SCENARIOS, POLICIES)
}
GRID = list(itertools.product((4, 8, 12, 16, 24, 32, 48, 64, 96, 128), (1, 2, 3, 4)))
"""Cap and base of forty cells that share their traffic."""

table: list[tuple[str, float, str]] = []
"""What a figure is of, the figure, its unit."""


@pytest.fixture(scope="module", autouse=True)
def _print_table() -> Iterator[None]:
    yield
    print()
    figures = {name: value for name, value, _ in table}
    for name, value, unit in table:
        print(f"{name:<52} {value:>10.2f} {unit}")
    together = figures.get("15 lesson cells together")
    for name in ("15 lesson cells, plain Python", "15 lesson cells, the lesson's program"):
        if together and name in figures:
            print(f"{name} / together: {figures[name] / together:.0f} times")


def block_of(cells: Sequence[Cell], generator: Generator = "philox") -> runner.Block:
    (block,) = runner.plan_blocks(dict(enumerate(cells)), generator)
    return block


def fastest_us(
    benchmark: Any, cells: Sequence[Cell], n: int, generator: Generator = "philox"
) -> float:
    """Microseconds for one replication of all cells, in one thread."""
    block, indices = block_of(cells, generator), np.arange(1, n + 1)
    benchmark.pedantic(runner.simulate_block, args=(block, indices, 1), rounds=5, warmup_rounds=1)
    return float(benchmark.stats.stats.min) / n * 1e6


@pytest.mark.parametrize("name", LESSON)
def test_one_lesson_cell_alone(benchmark: Any, name: str) -> None:
    table.append(
        (f"{name} attempts alone", fastest_us(benchmark, [LESSON[name]], 500), "us/replication")
    )


def test_the_lesson_cells_together(benchmark: Any) -> None:
    us = fastest_us(benchmark, list(LESSON.values()), 500)
    table.append(("15 lesson cells together", us, "us/replication"))


def test_the_lesson_generator(benchmark: Any) -> None:
    faults = [cell for cell in LESSON.values() if cell.fault_rounds > 0]
    us = fastest_us(benchmark, faults, 100, "lesson")
    table.append(("10 lesson cells with a fault, generator lesson", us, "us/replication"))


def test_the_oracle_in_plain_python(benchmark: Any) -> None:
    names = [field.name for field in fields(Parameters)]
    cells = [
        Parameters(**{name: getattr(cell, name) for name in names}) for cell in LESSON.values()
    ]

    def run() -> None:
        for cell in cells:
            simulate_oracle(cell, philox_draws(cell, 1, 0))

    benchmark.pedantic(run, rounds=2)
    us = float(benchmark.stats.stats.min) * 1e6
    table.append(("15 lesson cells, plain Python", us, "us/replication"))


@pytest.mark.skipif("LESSON_TIMER" not in os.environ, reason="LESSON_TIMER names no command")
def test_the_lesson_program(benchmark: Any) -> None:
    command = shlex.split(os.environ["LESSON_TIMER"])
    done = benchmark.pedantic(
        subprocess.run, args=(command,), kwargs={"capture_output": True, "text": True}, rounds=1
    )
    us = float(re.findall(r"([\d.]+) us/seed", done.stdout)[-1])
    table.append(("15 lesson cells, the lesson's program", us, "us/replication"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_grid_of_forty_cells(benchmark: Any, scenario: str) -> None:
    cells = [
        Cell(
            **SCENARIOS[scenario],
            tries=(27,),
            backoff_cap=cap,
            backoff_base=base,
        )
        for cap, base in GRID
    ]
    us = fastest_us(benchmark, cells, 100)
    table.append((f"grid of 40, {scenario}, 27 attempts", us / 40, "us/cell"))
    retries = int(mc.simulate(cells, replications=range(1, 101), seed=1)["retries"].sum())
    table.append((f"grid of 40, {scenario}, 27 attempts", us * 100 / retries * 1e3, "ns/retry"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_threads(benchmark: Any, jobs: int) -> None:
    cells = list(LESSON.values())
    benchmark.pedantic(
        mc.simulate, args=(cells,), kwargs={"replications": 8000, "jobs": jobs}, rounds=3
    )
    seconds = float(benchmark.stats.stats.min)
    table.append((f"8,000 replications of 15 cells, {jobs} threads", seconds, "s"))


@pytest.mark.parametrize(
    ("what", "factor"),
    [(w, f) for w in ("cells", "replications", "rounds", "load") for f in (1, 4)],
)
def test_growth(benchmark: Any, what: str, factor: int) -> None:
    """Four times the cells, replications or rounds should take four times as long."""
    n_cells = 16 * (factor if what == "cells" else 1)
    cells = [
        Cell(
            rounds=4000 * (factor if what == "rounds" else 1),
            arrivals_per_second=97.22 * (factor if what == "load" else 1),
            capacity=6 * (factor if what == "load" else 1),
            fault_rounds=1000 * (factor if what == "rounds" else 1),
            fault_capacity=1 * (factor if what == "load" else 1),
            tries=(27,),
            budget=0.3 + i / 1000,
        )
        for i in range(n_cells)
    ]
    n = 400 * (factor if what == "replications" else 1)
    us = fastest_us(benchmark, cells, n)
    table.append((f"growth, {factor} x {what}", us * n / 1e6, "s"))


QUEUES: dict[str, Any] = {
    "2.4 a round, 1 try": {"arrivals_per_second": 240},
    "1.6 a round, 2 tries": {"arrivals_per_second": 160, "tries": (2,)},
    "2.8 a round, 2 tries, cancelled": {
        "arrivals_per_second": 280, "tries": (2,), "cancel": True,
    },
    "2.8 a round, 2 tries, deadline": {"arrivals_per_second": 280, "tries": (2,), "deadline": 150},
}  # fmt: skip


@pytest.mark.parametrize("name", QUEUES)
def test_a_call_with_a_queue(benchmark: Any, name: str) -> None:
    """At most 80 ns a call in one thread, with what its rounds take."""
    cell = Cell(
        rounds=12_000, capacity=3, fault_start=1000, fault_rounds=1000, queue=100_000, timeout=100,
        backoff_base=10, backoff_factor=1, backoff_cap=10, **QUEUES[name],
    )  # fmt: skip
    us = fastest_us(benchmark, [cell], 50)
    n_calls = int(mc.simulate([cell], replications=range(1, 51), seed=1, jobs=1)["calls"].sum())
    table.append((f"queue, {name}", us * 50 / n_calls * 1000, "ns/call"))


BUDGETS: dict[str, Any] = {
    "ratio since the start, by a table": 0.3,
    "ratio, window": {"kind": "ratio", "ratio": 0.3, "window": "10 s"},
    "ratio, charged at the decision": {"kind": "ratio", "ratio": 0.3, "charged": "decision"},
    "finagle": {"kind": "finagle"},
    "linkerd": {"kind": "linkerd"},
    "grpc": {"kind": "grpc", "max_tokens": 1000},
    "aws": {"kind": "aws"},
    "envoy": {"kind": "envoy"},
    "sre": {"kind": "sre", "window": "10 s"},
    "sre, adaptive throttling": {"kind": "sre", "window": "10 s", "ratio": 0.3, "k": 2},
}


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("clients", [1, 50])
def test_a_call_with_each_budget(benchmark: Any, name: str, clients: int) -> None:
    """At most 60 ns a call in one thread; calls are those that ran and those refused before."""
    cell = Cell(**SCENARIOS["degradation"], tries=(27,), budget=BUDGETS[name], clients=clients)
    us = fastest_us(benchmark, [cell], 200)
    rows = mc.simulate([cell], replications=200, seed=1, jobs=1)
    counted = [rows[column].sum() for column in ("calls", "rejected") if column in rows]
    n_calls = sum(map(int, counted))
    table.append((f"budget {name}, {clients} clients", us * 200 / n_calls * 1000, "ns/call"))
