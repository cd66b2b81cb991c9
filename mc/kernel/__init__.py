"""All compiled code: makes room, chooses the loop of each cell, and compiles it on first use.

    layout      what the loops read and write, the timing wheel
    draws       Philox, the stream map, all random numbers
    traffic     what the cells of a block have in common in a replication
    choice      which loop a cell goes through
    masks       cells that wait alike share one wheel; of its parts
    lanes         whole numbers side by side, one for each cell
    waits         the table of waits
    single      one cell, by the table's words
    fast        one cell, without
    rows        what these loops make of their counts
    rounds      the general loop, written to be read; of its parts
    chain         the layers, which retries, whose time is over
    delays        how long a layer waits
    budgets       what may refuse a retry, or a call
    breakers      what may reject a call
    queues        the calls that wait before the dependency
    workers       a closed loop
    recovery      whether a run comes back after its fault
    generators    where its draws come from: Philox
    lesson        the lesson's own generator
    cache       how compiled code is made and kept
    linking     how functions become one piece of it

Which loop: where waits are a table by attempt, and neither deadlines nor budgets belong to single
layers, `choice` says which of the first three; all other cells, and what is recorded round by round
or drawn by the lesson's generator, go through the general one. Rows do not depend on it.

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
from mc.kernel.choice import LEAST, Choice, choose, wheel_size
from mc.kernel.layout import (
    BY_TABLE,
    CALLS,
    CHAIN_BUDGET,
    CHAIN_KIND,
    DECORRELATED,
    DONE,
    GOES_ON,
    GROW,
    LAYER_DEADLINES,
    MIXED,
    N_COUNTERS,
    N_RECORDED,
    NEVER,
    NO_BREAKER,
    NO_DEADLINE,
    PLACES,
    POLLY,
    POLLY_STEPS,
    REJECTED,
    REQUEST_COUNT,
    REQUEST_DEADLINE,
    REQUESTS,
    RETRIES,
    ROUND_DROPPED,
    ROUND_FAILED,
    ROUND_PENDING,
    ROUND_PRIMARY,
    ROUND_RETRIES,
    ROUND_SUCCESSFUL,
    ROUND_WAITING,
    SRE,
    STOPPED,
    UNDEFINED,
    Alike,
    CellTables,
    ChainKind,
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
    "GOES_ON",
    "LAYER_DEADLINES",
    "NEVER",
    "NO_BREAKER",
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
    "ROUND_PENDING",
    "ROUND_PRIMARY",
    "ROUND_RETRIES",
    "ROUND_SUCCESSFUL",
    "ROUND_WAITING",
    "STOPPED",
    "UNDEFINED",
    "Alike",
    "CellTables",
    "ChainKind",
    "loop_of",
    "prepare",
    "simulate_lesson",
    "simulate_philox",
    "undecided_arrivals",
]

_ROOM_BITS: Final = 5
"""log2 of the calls that a slot of the wheel has room for at first."""

_PLACES: Final = 4096
"""Calls that the memory of a queue has room for at first."""

_IN_FLIGHT: Final = 500
"""Requests whose draws are remembered beside a table of waits, which has most of the others."""


def simulate_philox(
    tables: CellTables,
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None = None,
    stop: NDArray[np.int8] = GOES_ON,
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
    stop : ndarray of int8, shape (1,), optional
        Each loop ends in the round in which it is no longer 0.

    Returns
    -------
    status, r : int
        DONE; REQUESTS and a replication that has no rows; or STOPPED, when no row can be relied on.
    """
    counters[:, :, REJECTED:] = UNDEFINED
    status, r = DONE, replications.size
    for parts, cells in _by_loop(tables, recorded=record is not None).items():
        if parts is None:
            status, r = _simulate_by_tables(tables, cells, replications, seed, counters, stop)
        else:
            status, r = _simulate_rounds(
                parts, tables, cells, replications, seed, counters, record, stop
            )
        if status != DONE:
            break
    return status, r


def undecided_arrivals(
    tables: CellTables, replications: NDArray[np.int64], seed: int
) -> list[tuple[int, int, int]]:
    """List replication, round and uniform of the arrivals that only whole numbers can decide.

    Parameters
    ----------
    tables, replications, seed
        Those of a call of `simulate_philox`, which expects these in `CellTables.decided`.

    Returns
    -------
    list of (int, int, int)
    """
    if tables.rates.size == 0:
        return []
    from mc.kernel.traffic import undecided_rounds

    uniforms, n = np.empty((2, (tables.n_rounds + 1) // 2), np.uint64), 64
    while True:
        found = np.empty((n, 3), np.uint64)
        n = undecided_rounds(tables, *_key_of(seed), replications, uniforms, found)
        if n <= len(found):
            return [(int(r), int(t), int(u)) for r, t, u in found[:n]]


def simulate_lesson(
    tables: CellTables,
    seeds: NDArray[np.int64],
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None = None,
    stop: NDArray[np.int8] = GOES_ON,
) -> tuple[int, int]:
    """Fill the rows of a block of cells, each with the lesson's stream from its own seed.

    Parameters and returns are those of `simulate_philox`, with `seeds` in place of replications:
    the states from which the streams start, 1 <= seed < 2**31 - 1.
    """
    from mc.kernel.lesson import lesson_draws
    from mc.kernel.rounds import simulate_rounds

    counters[:, :, REJECTED:] = UNDEFINED
    cells, draws = np.arange(len(tables.scalars)), lesson_draws()
    return _grow(
        lambda room_bits: empty_wheel(tables.wheel_size, room_bits, stop),
        lambda wheel, start: simulate_rounds(
            draws, None, None, None, None, None, None, None, None, tables, cells, seeds, wheel,
            counters, start, record,
        ),
    )  # fmt: skip


def prepare(generator: str = "philox", shape: Collection[Alike] = (Alike(LEAST[False]),)) -> None:
    """Compile what simulating a block of such cells takes, or load it, by simulating nothing.

    To be called before threads start: they would wait for each other, deaf to an interrupt.
    """
    n = sum(alike.n for alike in shape)
    nobody, no_rows = np.empty(0, np.int64), np.empty((0, n, N_COUNTERS), np.int64)
    if generator == "philox":
        simulate_philox(smallest_tables(np.uint64, shape), nobody, 0, no_rows)
    else:
        simulate_lesson(smallest_tables(np.float64, shape), nobody, no_rows)


class Parts(NamedTuple):
    """What the general loop is compiled for, beside the generator.

    Attributes
    ----------
    jitter : int
        As in C_JITTER.
    deadlines : bool
        Whether there are any.
    budgets, breaker : int
        As in C_BUDGETS, C_BREAKER.
    queued : bool
        Whether calls may wait.
    closed : bool
        Whether there are workers.
    """

    jitter: int
    deadlines: bool
    budgets: int
    breaker: int = NO_BREAKER
    queued: bool = False
    closed: bool = False


def loop_of(kind: ChainKind, *, recorded: bool = False) -> Parts | None:
    """Which loop a cell goes through: None for the fast one, or the parts of the general one."""
    has_deadlines, is_queued = kind.deadlines != NO_DEADLINE, kind.queued == 1
    is_closed = kind.closed == 1
    parts = Parts(kind.jitter, has_deadlines, kind.budgets, kind.breaker, is_queued, is_closed)
    by_table = (kind.jitter, kind.budgets, kind.breaker) == (BY_TABLE, CHAIN_BUDGET, NO_BREAKER)
    by_table = by_table and kind.deadlines != LAYER_DEADLINES and not (is_queued or is_closed)
    return None if by_table and not recorded else parts


def _by_loop(tables: CellTables, *, recorded: bool) -> dict[Parts | None, list[int]]:
    """The cells that go through each loop."""
    cells: dict[Parts | None, list[int]] = {}
    kinds = list(map(tuple, tables.scalars[:, CHAIN_KIND].tolist()))
    loops = {kind: loop_of(ChainKind(*kind), recorded=recorded) for kind in set(kinds)}
    for c, kind in enumerate(kinds):
        cells.setdefault(loops[kind], []).append(c)
    return cells


def _simulate_rounds(
    parts: Parts,
    tables: CellTables,
    cells: list[int],
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
    record: NDArray[np.int32] | None,
    stop: NDArray[np.int8],
) -> tuple[int, int]:
    from mc.kernel.breakers import empty_breakers
    from mc.kernel.budgets import empty_budgets, empty_clients
    from mc.kernel.chain import empty_deadlines
    from mc.kernel.delays import empty_waits
    from mc.kernel.generators import philox_draws
    from mc.kernel.queues import empty_queue
    from mc.kernel.recovery import empty_seconds
    from mc.kernel.rounds import simulate_rounds
    from mc.kernel.workers import empty_workers

    some, draws = np.array(cells), philox_draws(tables, seed)
    waits = empty_waits(tables, parts.jitter)
    deadlines = empty_deadlines(tables) if parts.deadlines else None
    budgets = empty_budgets(tables, some, parts.budgets) if parts.budgets else None
    breakers = empty_breakers(tables, some, parts.breaker) if parts.breaker else None
    clients = empty_clients(tables) if parts.budgets or parts.breaker else None
    rejects = parts.breaker != NO_BREAKER or parts.budgets in (SRE, MIXED)
    seconds = empty_seconds() if parts.queued or parts.closed or rejects else None
    workers = empty_workers(tables, draws.names) if parts.closed else None
    status, r, room_bits, n_places = GROW, 0, _ROOM_BITS, _PLACES
    while status in (GROW, PLACES):
        wheel = empty_wheel(tables.wheel_size, room_bits, stop)
        queue = empty_queue(tables, some, n_places) if parts.queued else None
        status, r = simulate_rounds(
            draws, waits, deadlines, budgets, breakers, clients, queue, seconds, workers, tables,
            some, replications, wheel, counters, r, record,
        )  # fmt: skip
        room_bits += status == GROW
        n_places *= 4 if status == PLACES else 1
    return int(status), int(r)


def _simulate_by_tables(
    tables: CellTables,
    cells: list[int],
    replications: NDArray[np.int64],
    seed: int,
    counters: NDArray[np.int64],
    stop: NDArray[np.int8],
) -> tuple[int, int]:
    """Simulate cells that go through the loops by tables, as `choose` says."""
    key = _key_of(seed)
    chosen = choose(tables, cells)
    status, r = DONE, replications.size
    if chosen.groups:
        status, r = _simulate_groups(tables, chosen, replications, key, counters, stop)
    if status == DONE and chosen.single:
        status, r = _simulate_single(tables, chosen.single, replications, key, counters, stop)
    if status == DONE and chosen.fast:
        status, r = _simulate_fast(tables, chosen.fast, replications, key, counters, stop)
    return status, r


Key = tuple[np.uint64, np.uint64]


def _key_of(seed: int) -> Key:
    return np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)


def _simulate_groups(
    tables: CellTables,
    chosen: Choice,
    replications: NDArray[np.int64],
    key: Key,
    counters: NDArray[np.int64],
    stop: NDArray[np.int8],
) -> tuple[int, int]:
    from mc.kernel.masks import N_COUNTS, groups_of, shared_wheel, simulate_groups
    from mc.kernel.waits import empty_waits

    zeros, groups = (0,) * chosen.width, groups_of(tables, chosen.groups, chosen.width)
    traffic, waits = empty_traffic(tables), empty_waits(tables, len(tables.widths))
    jitter, service = empty_memory(_IN_FLIGHT), empty_memory(_IN_FLIGHT)
    n_counts = N_COUNTS + tables.tries.shape[1] - 1
    counts = np.empty(n_counts * chosen.width, np.int32)
    size = wheel_size(tables, [c for part in chosen.groups for c in part])
    return _grow(
        lambda room_bits: shared_wheel(size, room_bits, stop),
        lambda wheel, start: simulate_groups(
            zeros, tables, groups, replications, *key, traffic, waits, jitter, service, wheel,
            counters, counts, start,
        ),
    )  # fmt: skip


def _simulate_single(
    tables: CellTables,
    cells: list[int],
    replications: NDArray[np.int64],
    key: Key,
    counters: NDArray[np.int64],
    stop: NDArray[np.int8],
) -> tuple[int, int]:
    from mc.kernel.single import simulate_single, single_wheel
    from mc.kernel.waits import empty_waits

    some, size = np.array(cells), wheel_size(tables, cells)
    traffic, waits = empty_traffic(tables), empty_waits(tables, 1)
    jitter, service = empty_memory(_IN_FLIGHT), empty_memory(_IN_FLIGHT)
    return _grow(
        lambda room_bits: single_wheel(size, room_bits, stop),
        lambda wheel, start: simulate_single(
            tables, some, replications, *key, traffic, waits, jitter, service, wheel, counters,
            start,
        ),
    )  # fmt: skip


def _simulate_fast(
    tables: CellTables,
    cells: list[int],
    replications: NDArray[np.int64],
    key: Key,
    counters: NDArray[np.int64],
    stop: NDArray[np.int8],
) -> tuple[int, int]:
    from mc.kernel.fast import simulate_fast

    some, traffic = np.array(cells), empty_traffic(tables)
    jitter, service = empty_memory(tables.n_requests), empty_memory(tables.n_requests)
    return _grow(
        lambda room_bits: empty_wheel(tables.wheel_size, room_bits, stop),
        lambda wheel, start: simulate_fast(
            tables, some, replications, *key, traffic, jitter, service, wheel, counters, start
        ),
    )


def _grow(
    make_wheel: Callable[[int], Any], simulate: Callable[[Any, int], tuple[Any, Any]]
) -> tuple[int, int]:
    """Call a loop until it is done; with more room where a slot of the wheel was full."""
    status, r, room_bits = GROW, 0, _ROOM_BITS
    while status == GROW:
        status, r = simulate(make_wheel(room_bits), r)
        room_bits += 1
    return int(status), int(r)
