"""The loops of the kernel against each other, what they compare with, and when they compile.

Random cells come from fixed seeds; every comparison is an equality of integers, so a fresh seed
would never fail by luck.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import Call, jitter_word, service_word

from mc import kernel
from mc.kernel import CellTables, choice, layout
from mc.kernel.choice import Choice
from mc.model import Cell, chain_kind, tables, wheel_key
from mc.runner import Block, plan_blocks, simulate_block

Counters = NDArray[np.int64]
Indices = NDArray[np.int64]

SEED: Final = 20260802 + 5 * 2**32


def simulate(
    made: CellTables, indices: Indices, seed: int = SEED, loop: str = "chosen"
) -> Counters:
    """Rows of all cells by one loop, or by those that the kernel chooses."""
    n_counters = kernel.N_COUNTERS + made.tries.shape[1] - 1
    counters = np.full((indices.size, len(made.scalars), n_counters), -7, np.int64)
    record = None
    if loop == "general":  # to which a record leads
        record = np.empty((*counters.shape[:2], kernel.N_RECORDED, made.n_rounds), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        if loop != "chosen":
            patch.setattr(kernel, "choose", lambda made, cells: forced(made, cells, loop))
        status, r = kernel.simulate_philox(made, indices, seed, counters, record)
    assert (status, r) == (kernel.DONE, indices.size)
    return counters


def forced(made: CellTables, cells: list[int], loop: str) -> Choice:
    """Choose one loop for all cells; in groups, those that wait alike."""
    if loop in ("single", "fast"):
        return Choice([], 0, **{"single": [], "fast": [], loop: cells})
    width = int(loop)
    keys = dict(zip(cells, choice.wheel_keys(made, cells), strict=True))
    cells = sorted(cells, key=keys.__getitem__)
    alike = [[*part] for _, part in groupby(cells, keys.get)]
    groups = [part[at : at + width] for part in alike for at in range(0, len(part), width)]
    return Choice(groups, width, [], [])


LOOPS: Final = ["16", "64", "fast", "single", "general"]
ALL_CAN_FAIL: Final = [loop for loop in LOOPS if loop != "single"]


def random_cells(rng: np.random.Generator, n: int) -> list[Cell]:
    """Cells that share their traffic; some of them wait alike."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    rounds = one_of(1, 2, 7, 50, 200, 333, 1000)
    arrivals_per_second = one_of(0.0, 5.0, 50.0, 97.22, 97.22, 200.0, 400.0, 900.0)
    cells: list[Cell] = []
    while len(cells) < n:
        like = Cell(
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
            threshold=one_of(0, 20, 20, 100),
        )
        for _ in range(min(one_of(1, 2, 3, 9, 20, 40, 70), n - len(cells))):
            tries = one_of((1,), (2,), (3,), (27,)) if len(like.layers) == 1 else like.tries
            budget = one_of(None, None, 0.0, 0.05, 0.1, 0.3, 1.0, 2.5, 17.0)
            cells.append(replace(like, tries=tries, budget=budget))
    return [cells[i] for i in rng.permutation(n)]


def varied(rng: np.random.Generator, made: CellTables) -> CellTables:
    """Tables that no cell has: rates and capacities of each round, waits in any order."""
    failures = rng.choice(np.array([0, 2**30, 2**32], np.uint64), made.failures.shape)
    profiles = made.profiles.copy()
    profiles[:, layout.P_CAN_FAIL] = failures.any(axis=1)
    widths = rng.permuted(made.widths, axis=1)
    offsets = rng.integers(-1, 2**34, made.offsets.shape).view(np.uint64)
    made = made._replace(
        capacities=rng.integers(0, 6, made.capacities.shape, np.int32),
        failures=failures,
        profiles=profiles,
        widths=widths,
        offsets=offsets,
    )
    return made._replace(wheel_size=choice.wheel_size(made, [*range(len(made.scalars))]))


def compare(rng: np.random.Generator, n: int, loops: Sequence[str], *, own_tables: bool) -> None:
    """Compare the general loop with others on n random cells."""
    made = tables(random_cells(rng, n), "philox")
    if own_tables:
        made = varied(rng, made)
    seed, *indices = (int(x) for x in rng.integers(0, 2**32, size=3))
    some = np.array(indices)
    expected = simulate(made, some, seed << 31, "general")
    for loop in loops:
        got = simulate(made, some, seed << 31, loop)
        np.testing.assert_array_equal(got, expected, loop)


@pytest.mark.parametrize("own_tables", [True, False])
def test_the_loops_that_are_chosen_make_the_rows_of_the_general_one(own_tables: bool) -> None:
    rng = np.random.default_rng([20260802, own_tables])
    for _ in range(50):  # 3,000 cells
        compare(rng, 60, ["chosen"], own_tables=own_tables)


@pytest.mark.parametrize("own_tables", [True, False])
def test_every_loop_makes_the_rows_of_the_general_one(own_tables: bool) -> None:
    rng = np.random.default_rng([20260803, own_tables])
    for _ in range(20):  # 600 cells
        compare(rng, 30, ["16", "64", "fast"], own_tables=own_tables)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_cells_have_the_rows_of_the_general_loop(part: int) -> None:
    rng = np.random.default_rng([20260804, part])
    for k in range(50):  # 5,000 cells
        compare(rng, 100, ["chosen", "32"], own_tables=k % 2 == 1)


def test_a_single_cell_has_the_rows_of_the_general_loop() -> None:
    rng = np.random.default_rng(20260805)
    n = 0
    while n < 500:
        made = tables(random_cells(rng, 40), "philox")
        chosen = choice.choose(made, [*range(40)])
        sure = [
            c
            for c in chain(*chosen.groups, chosen.single)
            if not choice._can_fail(made, c) and not choice._has_both(made, c)
        ]
        if sure:
            n += len(sure)
            some = cells_of(made, np.array(sure))
            got = simulate(some, np.arange(2), SEED, "single")
            np.testing.assert_array_equal(got, simulate(some, np.arange(2), SEED, "general"))


def cells_of(made: CellTables, cells: Indices) -> CellTables:
    """Some of the cells."""
    by_cell = ("scalars", "tries", "strides", "deadlines", "budgets", "breakers")
    return made._replace(**{name: getattr(made, name)[cells] for name in by_cell})


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


@pytest.mark.parametrize("loop", ALL_CAN_FAIL)
@pytest.mark.parametrize("capacity", [6, 1])
def test_a_served_call_fails_below_the_threshold_and_not_at_it(loop: str, capacity: int) -> None:
    made = one_request_a_round(rounds=1, capacity=capacity)
    for replication in range(20):
        word = service_word(SEED, replication, Call(0, 0, 0))
        index = np.array([replication])
        for failure, expected in [(word, 0), (word + 1, 1)]:
            counters = simulate(with_failure(made, failure), index, SEED, loop)
            got = counters[0, 0, layout.DROPPED]
            assert got == expected


@pytest.mark.parametrize("loop", ALL_CAN_FAIL)
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
        requests, in_window = (int(n) for n in simulate(made, index)[0, 0, :2])
        old = sorted(service_word(SEED, replication, Call(0, j, 1)) for j in range(in_window))
        new = [service_word(SEED, replication, Call(1, j, 0)) for j in range(requests - in_window)]
        for failure in (old[len(old) // 2], old[len(old) // 2] + 1):
            row = simulate(with_failure(made, failure), index, SEED, loop)[0, 0]
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
        open_then = made._replace(capacities=capacities)
        row = simulate(open_then, np.array([replication]), SEED, loop)[0, 0]
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
    place = rf"status {kernel.REQUESTS} from the kernel for {indices[first]}: "
    with pytest.raises(RuntimeError, match=place):
        simulate_block(block, indices, SEED, record)
    enough = block.tables._replace(n_requests=int(n_requests.max()))
    block.__dict__["tables"] = enough
    np.testing.assert_array_equal(simulate_block(block, indices, SEED, record), rows)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_full_slot_grows_and_changes_nothing(loop: str) -> None:
    # 300 calls a round that all come back in the next do not fit the 32 of the beginning
    cells = [
        Cell(rounds=30, arrivals_per_second=100 * 300, capacity=10, tries=(n,), backoff_cap=0)
        for n in (1, 4, 2)
    ]
    made = tables(cells, "philox")
    rows = simulate(made, np.arange(3), SEED, loop)
    for c, cell in enumerate(cells):
        alone = simulate(tables([cell], "philox"), np.arange(3), SEED, "general")
        np.testing.assert_array_equal(rows[:, c], alone[:, 0])
    assert (rows[:, 1, layout.PEAK] > 1000).all()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_burst_finds_room_on_the_wheel(loop: str) -> None:
    # thousands at once, in the last round but one, wait for one of 4 rounds, all after the end
    cells = [
        Cell(rounds=3, arrivals_per_second=100 * 600, capacity=0, tries=(n,), backoff_base=4)
        for n in (1, 2, 9, 30)
    ]
    made = tables(cells, "philox")
    got = simulate(made, np.arange(3), SEED, loop)
    expected = simulate(made, np.arange(3), SEED, "general")
    np.testing.assert_array_equal(got, expected)


# Which loop ---------------------------------------------------------------------------------------


def cells_alike(*sizes: int, **parameters: Any) -> list[Cell]:
    """Groups of cells that wait alike, of these sizes; of all cells no two have the same budget."""
    return [
        Cell(tries=(5,), backoff_base=1 + g, budget=(k + 1) / 100, **parameters)
        for g, size in enumerate(sizes)
        for k in range(size)
    ]


def loops_of(cells: Sequence[Cell]) -> tuple[list[int], int, int, int]:
    """How many cells each group has, its lanes, and how many there are in the other loops."""
    chosen = choice.choose(tables(cells, "philox"), [*range(len(cells))])
    return [*map(len, chosen.groups)], chosen.width, len(chosen.single), len(chosen.fast)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1,), ([], 0, 1, 0)),
        ((2, 2, 2), ([], 0, 6, 0)),
        ((3,), ([3], 16, 0, 0)),
        ((16, 3), ([16, 3], 16, 0, 0)),
        ((17, 3), ([17, 3], 32, 0, 0)),
        ((33, 3), ([33, 3], 64, 0, 0)),
        ((65, 3), ([64, 1, 3], 64, 0, 0)),
        ((5, 1, 1), ([5, 1, 1], 16, 0, 0)),
        ((5, 1, 1, 1), ([5], 16, 3, 0)),
        ((5, 2, 1), ([5], 16, 3, 0)),
    ],
)
def test_cells_that_wait_alike_share_a_wheel_from_three_on(
    sizes: tuple[int, ...], expected: tuple[list[int], int, int, int]
) -> None:
    assert loops_of(cells_alike(*sizes)) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((1, 1), ([], 0, 0, 2)), ((2,), ([2], 16, 0, 0)), ((2, 1, 1, 1), ([2], 16, 0, 3))],
)
def test_cells_with_failures_share_a_wheel_from_two_on(
    sizes: tuple[int, ...], expected: tuple[list[int], int, int, int]
) -> None:
    assert loops_of(cells_alike(*sizes, failure_rate=0.1)) == expected


@pytest.mark.parametrize(
    "apart",
    [{"threshold": 7}, {"capacity": 5}, {"backoff_cap": 31}, {"deadline": 40}, {"jitter": "equal"}],
)
def test_cells_that_differ_in_more_than_attempts_and_budget_share_no_wheel(
    apart: dict[str, Any],
) -> None:
    cells = [*cells_alike(3), *(replace(cell, **apart) for cell in cells_alike(3))]
    assert loops_of(cells) == ([3, 3], 16, 0, 0)
    assert len({wheel_key(cell) for cell in cells}) == 2


def test_layers_share_a_wheel_if_they_are_the_same() -> None:
    chains = [(3, 3), (3, 3), (2, 3), (2, 3), (3, 3), (2, 3)]
    cells = [Cell(tries=tries, budget=0.1 * k) for k, tries in enumerate(chains)]
    assert loops_of(cells) == ([3, 3], 16, 0, 0)
    flattened = [replace(cell, chain="flattened") for cell in cells]
    assert loops_of(flattened) == ([6], 16, 0, 0)


def test_cells_are_grouped_by_the_model_as_by_the_kernel() -> None:
    rng = np.random.default_rng(20260806)
    for _ in range(100):
        cells = [cell for cell in random_cells(rng, 40) if kernel.loop_of(chain_kind(cell)) is None]
        if cells:
            made = tables(cells, "philox")
            got = choice.wheel_keys(made, list(range(len(cells))))
            expected = [wheel_key(cell) for cell in cells]
            pairs = set(zip(got, expected, strict=True))
            assert len(pairs) == len(set(got)) == len(set(expected))


FALL_BACKS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], str]]] = {
    "a wait that is longer than the table's wheel": ({}, {"backoff_cap": 5000}, "fast"),
    "more requests than an entry has places for": ({"MOST_PLACES": 20_000}, {}, "fast"),
    "sums of waits beyond 32 bits": ({"MOST_WAITED": 100_000}, {}, "single"),
    "sums of waits beyond 32 bits, with failures": (
        {"MOST_WAITED": 100_000}, {"failure_rate": 0.1}, "fast",
    ),
    "budgets that take too much memory": ({"MOST_LIMIT_BYTES": 100_000}, {}, "single"),
    "a deadline and a budget": ({"LEAST": {False: 5}}, {"deadline": 30}, "fast"),
}  # fmt: skip


@pytest.mark.parametrize("why", FALL_BACKS)
def test_a_fall_back_changes_nothing(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, parameters, loop = FALL_BACKS[why]
    cells = cells_alike(4, fault_rounds=100, backoff_factor=20, **parameters)
    if not parameters:
        assert loops_of(cells) == ([4], 16, 0, 0)
    for name, value in limits.items():
        monkeypatch.setattr(choice, name, value)
    assert loops_of(cells) == ([], 0, 4 * (loop == "single"), 4 * (loop == "fast"))
    made = tables(cells, "philox")
    got = simulate(made, np.arange(3))
    expected = simulate(made, np.arange(3), SEED, "general")
    np.testing.assert_array_equal(got, expected)


def test_very_many_requests_or_rounds_do_not_fit() -> None:
    (cell,) = cells_alike(1)
    made = tables([cell], "philox")
    assert choice.table_fits(made._replace(n_requests=2**25 // 5 - 1))[0]
    assert not choice.table_fits(made._replace(n_requests=2**25 // 5))[0]
    # five attempts, none of which takes 10 rounds
    assert choice.lanes_fit(made._replace(n_requests=2**31 // 50), [[0]], 16)
    assert not choice.lanes_fit(made._replace(n_requests=2**31 // 40), [[0]], 16)


def test_a_table_that_learns_changes_nothing() -> None:
    # replication by replication, each call begins with the fewest rows
    cells = cells_alike(4, 1, 1, 1, fault_rounds=300, rounds=1000, backoff_cap=2)
    cells = [replace(cell, tries=(40,), budget=None) for cell in cells]
    made = tables(cells, "philox")
    together = simulate(made, np.arange(12))
    for r in range(12):
        np.testing.assert_array_equal(simulate(made, np.array([r]))[0], together[r])


# Blocks -------------------------------------------------------------------------------------------


def test_a_block_keeps_cells_that_wait_alike_together(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell for trio in zip(*[iter(cells_alike(6, 6, 6))] * 6, strict=True) for cell in trio]
    mixed = {i: cells[i * 7 % 18] for i in range(18)}
    (block,) = plan_blocks(mixed, "philox")
    assert sorted(block.ids) == [*range(18)]
    keys = [wheel_key(cell) for cell in block.cells]
    assert len([*groupby(keys)]) == 3
    monkeypatch.setattr("mc.runner.simulation.CELLS_PER_BLOCK", 10)
    blocks = plan_blocks(mixed, "philox")
    assert [len({*map(wheel_key, block.cells)}) for block in blocks] == [1, 1, 1]
    monkeypatch.setattr("mc.runner.simulation.CELLS_PER_BLOCK", 4)
    blocks = plan_blocks(mixed, "philox")
    assert [len(block.ids) for block in blocks] == [4, 2, 4, 2, 4, 2]


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
@pytest.mark.parametrize(
    "cells",
    [
        cells_alike(4, rounds=9),
        cells_alike(40, rounds=9, failure_rate=0.5),
        cells_alike(1, 1, rounds=9),
        cells_alike(1, rounds=9, failure_rate=0.5),
        [Cell(rounds=9, tries=(3, 2)), Cell(rounds=9, tries=(3, 2), jitter="decorrelated")],
    ],
)
def test_what_is_prepared_is_all_that_a_simulation_compiles(
    generator: Any, cells: list[Cell]
) -> None:
    from mc.kernel.fast import simulate_fast
    from mc.kernel.masks import simulate_groups
    from mc.kernel.rounds import simulate_rounds
    from mc.kernel.single import simulate_single

    entries = [simulate_groups, simulate_single, simulate_fast, simulate_rounds]
    if generator == "lesson":
        cells = [replace(cell, chain="flattened", jitter="full") for cell in cells]
    (block,) = plan_blocks(dict(enumerate(cells)), generator)
    kernel.prepare(generator, block.shape)
    expected = [entry.signatures[:] for entry in entries]
    simulate_block(block, np.array([1]), SEED)
    got = [entry.signatures[:] for entry in entries]
    assert got == expected


def test_a_second_start_compiles_nothing() -> None:
    # by the kinds of loops: groups, single, fast, general, and the lesson's generator
    kinds = "[[Alike(3)], [Alike()], [Alike(can_fail=True)], [Alike(kind=ChainKind(jitter=1))]]"
    program = (
        "from mc.kernel import Alike, ChainKind, prepare\n"
        "from numba.core import event\n"
        "class Listener(event.Listener):\n"
        "    def on_start(self, event): print(event.data['dispatcher'])\n"
        "    def on_end(self, event): pass\n"
        "with event.install_listener('numba:compile', Listener()):\n"
        f"    for shape in {kinds}: prepare(shape=shape)\n"
        "    prepare('lesson')\n"
    )
    run_alone(program)
    assert run_alone(program) == ""


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
