"""The loops of the kernel against each other, what they compare with, and when they compile.

Random cells come from fixed seeds; every comparison is an equality of integers, so a fresh seed
would never fail by luck.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import Call, jitter_word, service_word

from mc import kernel
from mc.kernel import CellTables, layout
from mc.model import Cell, tables
from mc.runner import Block, plan_blocks, simulate_block

Counters = NDArray[np.int64]

SEED: Final = 20260802 + 5 * 2**32


def room_for_counters(made: CellTables, n: int) -> Counters:
    n_counters = kernel.N_COUNTERS + made.tries.shape[1] - 1
    return np.full((n, len(made.scalars), n_counters), -7, np.int64)


def fast(made: CellTables, indices: NDArray[np.int64], seed: int = SEED) -> Counters:
    counters = room_for_counters(made, indices.size)
    status, row = kernel.simulate_philox(made, indices, seed, counters)
    assert (status, row) == (kernel.DONE, indices.size * len(made.scalars))
    return counters


def general(made: CellTables, indices: NDArray[np.int64], seed: int = SEED) -> Counters:
    """The rows of the general loop, to which a record leads."""
    counters = room_for_counters(made, indices.size)
    record = np.empty((*counters.shape[:2], kernel.N_RECORDED, made.n_rounds), np.int32)
    status, row = kernel.simulate_philox(made, indices, seed, counters, record)
    assert (status, row) == (kernel.DONE, indices.size * len(made.scalars))
    return counters


LOOPS: Final = {"fast": fast, "general": general}


def random_cells(rng: np.random.Generator, n: int) -> list[Cell]:
    """Cells that share their traffic and little else."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    rounds = one_of(1, 2, 7, 50, 200, 333, 1000)
    arrivals_per_second = one_of(0.0, 5.0, 50.0, 97.22, 97.22, 200.0, 400.0, 900.0)
    return [
        Cell(
            rounds=rounds,
            arrivals_per_second=arrivals_per_second,
            capacity=one_of(0, 1, 1.7, 2, 3, 6, 6, 6, 12, 1000),
            fault_start=one_of(0, rounds // 8, rounds // 2, max(rounds - 3, 0), rounds + 5),
            fault_rounds=one_of(0, 0, 1, rounds // 20, rounds // 4, rounds),
            fault_capacity=one_of(0, 0, 1, 1, 2, 5),
            failure_rate=one_of(0.0, 0.0, 0.0, 0.025, 0.2, 0.7, 1.0),
            tries=one_of((1,), (2,), (3,), (3, 3), (3, 3, 3), (4, 5), (2, 40)),
            chain=one_of("nested", "flattened"),
            jitter=one_of("full", "full", "equal", "none", "plus_minus"),
            first_wait=one_of(None, None, 0, 3),
            backoff_factor=one_of(1.0, 2.0, 2.0, 3.0),
            backoff_base=one_of(0.0, 0.5, 1.0, 2.0, 2.7, 8.0),
            backoff_cap=one_of(0.0, 1.0, 7.5, 8.0, 32.0, 100.0, 300.0),
            deadline=one_of(None, None, None, 0, 5, 30, rounds // 2),
            budget=one_of(None, None, 0.0, 0.05, 0.1, 0.3, 1.0, 2.5, 17.0),
            threshold=one_of(0, 20, 20, 100),
        )
        for _ in range(n)
    ]


def varied(rng: np.random.Generator, made: CellTables) -> CellTables:
    """Tables that no cell has: rates and capacities of each round, waits in any order."""
    failures = rng.choice(np.array([0, 2**30, 2**32], np.uint64), made.failures.shape)
    profiles = made.profiles.copy()
    profiles[:, layout.P_CAN_FAIL] = failures.any(axis=1)
    widths = rng.permuted(made.widths, axis=1)
    offsets = rng.integers(-1, 2**34, made.offsets.shape).view(np.uint64)
    return made._replace(
        capacities=rng.integers(0, 6, made.capacities.shape, np.int32),
        failures=failures,
        profiles=profiles,
        widths=widths,
        offsets=offsets,
        wheel_size=4 * made.wheel_size,
    )


@pytest.mark.parametrize("own_tables", [True, False])
def test_the_general_loop_makes_the_rows_of_the_fast_one(own_tables: bool) -> None:
    rng = np.random.default_rng([20260802, own_tables])
    for _ in range(125):  # 2,000 cells
        made = tables(random_cells(rng, 16), "philox")
        if own_tables:
            made = varied(rng, made)
        seed, *indices = (int(x) for x in rng.integers(0, 2**32, size=3))
        some = np.array(indices)
        got = general(made, some, seed << 31)
        expected = fast(made, some, seed << 31)
        np.testing.assert_array_equal(got, expected)


# What draws are compared with ---------------------------------------------------------------------


def one_request_a_round(**parameters: Any) -> CellTables:
    """A cell in which every round has one request: a draw reaches the first threshold alone."""
    made = tables([Cell(arrivals_per_second=100, **parameters)], "philox")
    everywhere_one = np.array([0, 2**64 - 1], np.uint64)
    return made._replace(thresholds=everywhere_one, guide=np.zeros(4096, np.uint16))


def with_failure(made: CellTables, failure: int) -> CellTables:
    profiles = made.profiles.copy()
    profiles[:, layout.P_CAN_FAIL] = 1
    return made._replace(profiles=profiles, failures=np.full_like(made.failures, failure))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("capacity", [6, 1])
def test_a_served_call_fails_below_the_threshold_and_not_at_it(loop: str, capacity: int) -> None:
    made = one_request_a_round(rounds=1, capacity=capacity)
    for replication in range(20):
        word = service_word(SEED, replication, Call(0, 0, 0))
        index = np.array([replication])
        for failure, expected in [(word, 0), (word + 1, 1)]:
            counters = LOOPS[loop](with_failure(made, failure), index)
            got = counters[0, 0, layout.DROPPED]
            assert got == expected


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rate", [3, 200])
def test_a_retry_fails_below_the_threshold_and_not_at_it(loop: str, rate: int) -> None:
    # the calls of round 0 find no capacity and come back in round 1, where all are served
    cell = Cell(
        rounds=2, arrivals_per_second=100 * rate, capacity=10**6, fault_start=0, fault_rounds=1,
        tries=(2,), backoff_cap=0,
    )  # fmt: skip
    made = tables([cell], "philox")
    for replication in range(5):
        index = np.array([replication])
        requests, in_window = (int(n) for n in fast(made, index)[0, 0, :2])
        old = sorted(service_word(SEED, replication, Call(0, j, 1)) for j in range(in_window))
        new = [service_word(SEED, replication, Call(1, j, 0)) for j in range(requests - in_window)]
        for failure in (old[len(old) // 2], old[len(old) // 2] + 1):
            row = LOOPS[loop](with_failure(made, failure), index)[0, 0]
            got = row[layout.DROPPED], row[layout.IN_FLIGHT]
            expected = sum(w < failure for w in old), sum(w < failure for w in new)
            assert got == expected


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("offset", "width"),
    [(0, 8 << 32), (5 << 32, 0), (3 << 31, 3 << 31), (2**40, 1), (1, 2**40 - 1), (2**43, 2**43)],
)
def test_a_wait_is_its_offset_and_a_share_of_its_width(loop: str, offset: int, width: int) -> None:
    # the first request is the first to be scheduled, and there is capacity only when it comes back
    made = one_request_a_round(rounds=5000, tries=(2,), capacity=0)
    made = made._replace(
        offsets=np.array([[offset]], np.uint64),
        widths=np.array([[width]], np.uint64),
        wheel_size=8192,
    )
    for replication in range(5):
        word = jitter_word(SEED, replication, Call(0, 0, 0))
        expected = 1 + (offset * 2**32 + word * width) // 2**64
        capacities = np.zeros_like(made.capacities)
        capacities[0, expected] = 1
        row = LOOPS[loop](made._replace(capacities=capacities), np.array([replication]))[0, 0]
        assert row[layout.SUCCESSFUL] == 1
        got = row[layout.WAIT_TOTAL]
        assert got == expected


# Statuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", ["philox", "lesson"])
@pytest.mark.parametrize("recorded", [False, True])
def test_more_requests_than_there_is_room_for_end_the_simulation(
    generator: Any, recorded: bool
) -> None:
    cells = [Cell(rounds=50), Cell(rounds=50, tries=(3,))]
    block = Block((0, 1), tuple(cells), generator)
    indices = np.arange(1, 9)
    rows = simulate_block(block, indices, SEED)
    n_requests = rows[:, 0, 0]
    room = int(n_requests[0])
    assert room < n_requests.max()
    first = int(np.argmax(n_requests > room))
    block.__dict__["tables"] = block.tables._replace(n_requests=room)
    record = np.empty((8, 2, kernel.N_RECORDED, 50), np.int32) if recorded else None
    place = rf"status {kernel.REQUESTS} from the kernel at row {2 * first}: "
    with pytest.raises(RuntimeError, match=place):
        simulate_block(block, indices, SEED, record)
    enough = block.tables._replace(n_requests=int(n_requests.max()))
    block.__dict__["tables"] = enough
    np.testing.assert_array_equal(simulate_block(block, indices, SEED, record), rows)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_full_slot_grows_and_changes_nothing(loop: str) -> None:
    # 300 calls a round that all come back in the next do not fit the 16 entries of the beginning
    cells = [
        Cell(rounds=30, arrivals_per_second=100 * 300, capacity=10, tries=(n,), backoff_cap=0)
        for n in (1, 4, 2)
    ]
    made = tables(cells, "philox")
    rows = LOOPS[loop](made, np.arange(3))
    for c, cell in enumerate(cells):
        alone = LOOPS[loop](tables([cell], "philox"), np.arange(3))
        np.testing.assert_array_equal(rows[:, c], alone[:, 0])
    peaks = rows[:, :, layout.PEAK]
    assert (peaks[:, 1] > 1000).all()


# Compiling ----------------------------------------------------------------------------------------


def run_alone(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_importing_the_kernel_imports_no_compiler() -> None:
    program = "import sys, mc.kernel, mc.runner; print('numba' in sys.modules)"
    assert run_alone(program) == "False\n"


@pytest.mark.parametrize("generator", ["philox", "lesson"])
def test_what_is_prepared_is_what_a_simulation_calls(generator: Any) -> None:
    from mc.kernel.fast import simulate_fast
    from mc.kernel.rounds import simulate_rounds

    kernel.prepare(generator)
    expected = [simulate_fast.signatures[:], simulate_rounds.signatures[:]]
    cells = [Cell(rounds=9, tries=(3,), failure_rate=rate, budget=0.1) for rate in (0.0, 0.5)]
    for block in plan_blocks(dict(enumerate(cells)), generator):
        simulate_block(block, np.array([1]), SEED)
    got = [simulate_fast.signatures[:], simulate_rounds.signatures[:]]
    assert got == expected


def test_the_cache_is_named_by_every_source(tmp_path: Path) -> None:
    package = tmp_path / "mc"
    room = package / "kernel"
    shutil.copytree(
        Path(kernel.__file__).parent, room, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "__init__.py").touch()
    program = (
        f"import sys; sys.path[0] = {str(tmp_path)!r}\n"
        "import mc.kernel; print(mc.kernel.CACHE_FOLDER)"
    )
    names = [run_alone(program)]
    assert Path(names[0].strip()).name == Path(kernel.CACHE_FOLDER).name
    for source in sorted(room.glob("*.py")):
        source.write_text(source.read_text("utf-8") + "\n# edited\n", "utf-8")
        names.append(run_alone(program))
    assert len(set(names)) == len(names) > 5
