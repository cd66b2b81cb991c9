"""All compiled code: makes room, chooses the loop of each cell, and compiles it on first use.

    layout      what the loops read and write, the timing wheel
    draws       Philox, the stream map, all random numbers
    fast        the fast loop
    rounds      the general loop, written to be read; of its parts
    chain         the layers, which retries, whose time is over
    waits         how long a layer waits
    budgets       what may refuse a retry
    generators    where its draws come from: Philox
    lesson        the lesson's own generator
    cache       how compiled code is made and kept

Which loop: the fast one for cells with one layer, waits by table and no deadline; the general one
for all others, and for what is recorded round by round or drawn by the lesson's generator. Rows do
not depend on it.

The functions here check nothing and raise nothing: `model.tables` makes tables that cannot lead
them astray, and more requests than there is room for come back as a status. Importing this room
imports no compiler; the loops do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import CACHE_FOLDER
from mc.kernel.layout import (
    BY_TABLE,
    CALLS,
    CALLS_OF_LAYER,
    CHAIN_BUDGET,
    CHAIN_KIND,
    DECORRELATED,
    DONE,
    GROW,
    LAYER_BUDGETS,
    LAYER_DEADLINES,
    N_COUNTERS,
    N_RECORDED,
    NEVER,
    NO_DEADLINE,
    P_CAN_FAIL,
    POLLY,
    POLLY_STEPS,
    REQUEST_COUNT,
    REQUEST_DEADLINE,
    REQUESTS,
    RETRIES,
    ROUND_DROPPED,
    ROUND_FAILED,
    ROUND_PRIMARY,
    ROUND_RETRIES,
    UNDEFINED,
    CellTables,
    ChainKind,
    Wheel,
    empty_memory,
    empty_traffic,
    empty_wheel,
    smallest_tables,
)

__all__ = [
    "BY_TABLE",
    "CACHE_FOLDER",
    "CALLS",
    "CHAIN_BUDGET",
    "DECORRELATED",
    "DONE",
    "LAYER_BUDGETS",
    "LAYER_DEADLINES",
    "NEVER",
    "NO_DEADLINE",
    "N_COUNTERS",
    "N_RECORDED",
    "POLLY",
    "POLLY_STEPS",
    "REQUESTS",
    "REQUEST_COUNT",
    "REQUEST_DEADLINE",
    "RETRIES",
    "ROUND_DROPPED",
    "ROUND_FAILED",
    "ROUND_PRIMARY",
    "ROUND_RETRIES",
    "UNDEFINED",
    "CellTables",
    "ChainKind",
    "loop_of",
    "prepare",
    "simulate_lesson",
    "simulate_philox",
]

_ROOM_BITS: Final = 4
"""log2 of the entries that a slot of the wheel has room for at first."""


def simulate_philox(
    tables: CellTables,
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None = None,
) -> tuple[int, int]:
    """Fill the rows of a block of cells that share their traffic.

    Parameters
    ----------
    tables : CellTables
        C cells.
    replications : ndarray of int64, shape (R,)
        Replication indices, 0 <= r < 2**32.
    seed : int
        The experiment's seed, 0 <= seed < 2**64.
    counters : ndarray of int64, shape (R, C, N_COUNTERS or more)
        Output, overwritten. What follows N_COUNTERS are the calls of layers, the outermost first,
        as many as the cell with most layers has but its innermost; UNDEFINED where a cell has
        fewer.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), optional
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, row : int
        DONE; or REQUESTS and the first of the R * C rows that has none.
    """
    counters[:, :, CALLS_OF_LAYER:] = UNDEFINED
    n_cells = len(tables.scalars)
    for parts, some in _by_loop(tables, recorded=record is not None).items():
        cells = np.array(some)
        if parts is None:
            status, row = _simulate_fast(tables, cells, replications, seed, counters)
        else:
            status, row = _simulate_rounds(
                parts, tables, cells, replications, seed, counters, record
            )
        if status != DONE:
            return status, row // cells.size * n_cells + some[row % cells.size]
    return DONE, replications.size * n_cells


def simulate_lesson(
    tables: CellTables,
    seeds: NDArray[np.int64],
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None = None,
) -> tuple[int, int]:
    """Fill the rows of a block of cells, each with the lesson's stream from its own seed.

    Parameters and returns are those of `simulate_philox`, with `seeds` in place of replications:
    the states from which the streams start, 1 <= seed < 2**31 - 1.
    """
    from mc.kernel.lesson import lesson_draws
    from mc.kernel.rounds import simulate_rounds

    counters[:, :, CALLS_OF_LAYER:] = UNDEFINED
    cells, draws = np.arange(len(tables.scalars)), lesson_draws()
    return _grow(
        tables.wheel_size,
        lambda wheel, start: simulate_rounds(
            draws, None, None, None, tables, cells, seeds, wheel, counters, start, record
        ),
    )


def prepare(generator: str = "philox", kinds: Collection[ChainKind] = (ChainKind(),)) -> None:
    """Compile what simulating cells of these kinds takes, or load it, by simulating nothing.

    To be called before threads start: they would wait for each other, deaf to an interrupt.
    """
    nobody, no_rows = np.empty(0, np.int64), np.empty((0, len(kinds), N_COUNTERS), np.int64)
    if generator == "philox":
        simulate_philox(smallest_tables(np.uint64, kinds), nobody, 0, no_rows)
    else:
        simulate_lesson(smallest_tables(np.float64, kinds), nobody, no_rows)


class Parts(NamedTuple):
    """What the general loop is compiled for, beside the generator.

    Attributes
    ----------
    jitter : int
        As in C_JITTER.
    deadlines : bool
        Whether there are any.
    budgets : int
        As in C_BUDGETS.
    """

    jitter: int
    deadlines: bool
    budgets: int


def loop_of(kind: ChainKind, *, recorded: bool = False) -> Parts | None:
    """Which loop a cell goes through: None for the fast one, or the parts of the general one."""
    parts = Parts(kind.jitter, kind.deadlines != NO_DEADLINE, kind.budgets)
    is_table = parts == Parts(BY_TABLE, deadlines=False, budgets=CHAIN_BUDGET)
    return None if is_table and kind.layers == 1 and not recorded else parts


def _by_loop(tables: CellTables, *, recorded: bool) -> dict[Parts | None, list[int]]:
    """The cells that go through each loop."""
    cells: dict[Parts | None, list[int]] = {}
    for c, kind in enumerate(tables.scalars[:, CHAIN_KIND].tolist()):
        cells.setdefault(loop_of(ChainKind(*kind), recorded=recorded), []).append(c)
    return cells


def _simulate_rounds(
    parts: Parts,
    tables: CellTables,
    cells: NDArray[np.int64],
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None,
) -> tuple[int, int]:
    from mc.kernel.budgets import empty_budgets
    from mc.kernel.chain import empty_deadlines
    from mc.kernel.delays import empty_waits
    from mc.kernel.generators import philox_draws
    from mc.kernel.rounds import simulate_rounds

    draws, waits = philox_draws(tables, seed), empty_waits(tables, parts.jitter)
    deadlines = empty_deadlines(tables) if parts.deadlines else None
    budgets = empty_budgets(tables) if parts.budgets else None
    return _grow(
        tables.wheel_size,
        lambda wheel, start: simulate_rounds(
            draws, waits, deadlines, budgets, tables, cells, replications, wheel, counters, start,
            record,
        ),
    )  # fmt: skip


def _simulate_fast(
    tables: CellTables,
    cells: NDArray[np.int64],
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
) -> tuple[int, int]:
    from mc.kernel.fast import simulate_fast

    key = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    calls_can_fail = bool(tables.profiles[:, P_CAN_FAIL].any())
    traffic, jitter = empty_traffic(tables), empty_memory(tables.n_requests)
    service = empty_memory(tables.n_requests if calls_can_fail else 0)
    return _grow(
        tables.wheel_size,
        lambda wheel, start: simulate_fast(
            tables, cells, replications, *key, traffic, jitter, service, wheel, counters, start
        ),
    )


def _grow(wheel_size: int, simulate: Callable[[Wheel, int], tuple[Any, Any]]) -> tuple[int, int]:
    """Call a loop until it is done, from the row at which a slot was full with twice the room."""
    status, row, room_bits = GROW, 0, _ROOM_BITS
    while status == GROW:
        status, row = simulate(empty_wheel(wheel_size, room_bits), row)
        room_bits += 1
    return int(status), int(row)
