"""All compiled code: makes room, chooses the loop of each cell, and compiles it on first use.

    layout   what the loops read and write, the timing wheel
    draws    Philox, the stream map, all random numbers
    fast     the fast loop
    rounds   the general loop, written to be read
    lesson   the lesson's own generator
    cache    how compiled code is made and kept

Which loop: the fast one, except that what is recorded round by round, or drawn by the lesson's
generator, goes through the general one. Rows do not depend on it.

The functions here check nothing and raise nothing: `model.tables` makes tables that cannot lead
them astray, and more requests than there is room for come back as a status. Importing this room
imports no compiler; the loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import CACHE_FOLDER
from mc.kernel.layout import (
    CALLS,
    DONE,
    GROW,
    N_COUNTERS,
    N_RECORDED,
    P_CAN_FAIL,
    REQUEST_COUNT,
    REQUESTS,
    RETRIES,
    ROUND_DROPPED,
    ROUND_FAILED,
    ROUND_PRIMARY,
    ROUND_RETRIES,
    UNDEFINED,
    CellTables,
    Wheel,
    empty_memory,
    empty_traffic,
    empty_wheel,
    smallest_tables,
)

__all__ = [
    "CACHE_FOLDER",
    "CALLS",
    "DONE",
    "N_COUNTERS",
    "N_RECORDED",
    "REQUESTS",
    "REQUEST_COUNT",
    "RETRIES",
    "ROUND_DROPPED",
    "ROUND_FAILED",
    "ROUND_PRIMARY",
    "ROUND_RETRIES",
    "UNDEFINED",
    "CellTables",
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
    counters : ndarray of int64, shape (R, C, N_COUNTERS)
        Output, overwritten.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), optional
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, row : int
        DONE; or REQUESTS and the first of the R * C rows that has none.
    """
    cells = np.arange(len(tables.scalars))
    if record is None:
        return _simulate_fast(tables, cells, replications, seed, counters)
    from mc.kernel.rounds import philox_draws, simulate_rounds

    draws = philox_draws(tables, seed)
    return _grow(
        tables.wheel_size,
        lambda wheel, start: simulate_rounds(
            draws, tables, cells, replications, wheel, counters, start, record
        ),
    )


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

    cells, draws = np.arange(len(tables.scalars)), lesson_draws()
    return _grow(
        tables.wheel_size,
        lambda wheel, start: simulate_rounds(
            draws, tables, cells, seeds, wheel, counters, start, record
        ),
    )


def prepare(generator: str = "philox") -> None:
    """Compile what simulating cells takes, or load it, by simulating nothing.

    To be called before threads start: they would wait for each other, deaf to an interrupt.
    """
    no_replications, no_rows = np.empty(0, np.int64), np.empty((0, 1, N_COUNTERS), np.int64)
    if generator == "philox":
        simulate_philox(smallest_tables(np.uint64), no_replications, 0, no_rows)
    else:
        simulate_lesson(smallest_tables(np.float64), no_replications, no_rows)


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
