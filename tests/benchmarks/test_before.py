"""How much faster the kernel is than that of another version; not part of the test run.

``BEFORE=folder pytest -s tests/benchmarks/test_before.py`` runs it; the folder is a checkout of the
version before, say of ``git worktree add folder commit``. Each version simulates in a process of
its own, one after the other and again, by turns: what shares the machine slows down both alike. A
figure is the least CPU time of many short calls; what is claimed of it is the ratio.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.skipif("BEFORE" not in os.environ, reason="BEFORE names no checkout")

OUTAGE: Final = {"fault_rounds": 100}
DEGRADATION: Final = {"fault_rounds": 1000, "fault_capacity": 1}
HEALTHY: Final = {"failure_rate": 0.025}
SCENARIOS: Final[dict[str, dict[str, Any]]] = {
    "outage": OUTAGE, "degradation": DEGRADATION, "healthy": HEALTHY,
}  # fmt: skip

ALL_27: Final = {"tries": [3, 3, 3], "chain": "flattened"}
POLICIES: Final[list[dict[str, Any]]] = [
    {}, {"tries": [3]}, {"tries": [9]}, ALL_27, {**ALL_27, "budget": 0.3},
]  # fmt: skip
BACKOFFS: Final = list(itertools.product((4, 8, 12, 16, 24, 32, 48, 64, 96, 128), (1, 2, 3, 4)))

SETS: Final[dict[str, list[dict[str, Any]]]] = {
    "lesson's 15 cells": [s | p for s in SCENARIOS.values() for p in POLICIES],
    "4 backoffs x 2 faults x 3 tries x 10 budgets": [
        {"backoff_cap": cap, "tries": [n], "budget": b / 20} | fault
        for cap, fault, n, b in itertools.product(
            (8, 16, 32, 64), (OUTAGE, DEGRADATION), (3, 9, 27), range(1, 11)
        )
    ],
    **{
        f"40 bases and caps, {name}": [
            {"backoff_cap": cap, "backoff_base": base} | ALL_27 | fault for cap, base in BACKOFFS
        ]
        for name, fault in SCENARIOS.items()
    },
    **{
        f"one cell, {name}, {n} attempts": [{"tries": [n]} | fault]
        for name, fault in SCENARIOS.items()
        for n in (1, 3, 27)
    },
}

TURNS: Final = 12

WORKER: Final = """
import json, sys, time
sys.path[0] = sys.argv[1]
import numpy as np
import mc
from mc import runner
assert mc.__file__.startswith(sys.argv[1])
known = {}
for line in sys.stdin:
    name, cells, n = json.loads(line)
    if name not in known:
        cells = [mc.Cell(**{**cell, "tries": tuple(cell.get("tries", [1]))}) for cell in cells]
        known = {name: runner.plan_blocks(dict(enumerate(cells)), "philox")}
        for block in known[name]:
            runner.simulate_block(block, np.arange(2), 1)
    least = 0.0
    for block in known[name]:
        times = []
        for _ in range(8):
            started = time.process_time()
            runner.simulate_block(block, np.arange(n), 1)
            times.append(time.process_time() - started)
        least += min(times)
    print(least, flush=True)
"""


class Worker:
    """A process that simulates with one version."""

    def __init__(self, folder: str) -> None:
        command = [sys.executable, "-c", WORKER, folder]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, *task: Any) -> float:
        """Least CPU time of n replications of some cells: (name, cells, n)."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@pytest.fixture(scope="module")
def versions() -> Iterator[tuple[Worker, Worker]]:
    here = str(Path(__file__).parents[2])
    workers = Worker(str(Path(os.environ["BEFORE"]).resolve())), Worker(here)
    yield workers
    for worker in workers:
        worker.process.communicate()


@pytest.mark.parametrize("name", SETS)
def test_how_much_faster(versions: tuple[Worker, Worker], name: str) -> None:
    cells = SETS[name]
    n = max(50, 1500 // len(cells))
    took = [[version.seconds(name, cells, n) for version in versions] for _ in range(TURNS)]
    before, now = (min(times) / n / len(cells) * 1e6 for times in zip(*took, strict=True))
    print(f"\n{name:<48} {before:>8.2f} -> {now:>7.2f} us a row, {before / now:.2f} times")
