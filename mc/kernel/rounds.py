"""The general loop: round by round and call by call, written to be read.

It follows the model step by step and keeps nothing in mind but what the model does, so it is the
place for whatever no table can say. What differs between kinds of draws is a function that is
chosen by the type of its first argument when the loop is compiled: nobody pays for what a cell does
not use. Under `philox` its rows are those of the fast loop, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from mc.kernel.cache import OPTIONS, compiled
from mc.kernel.draws import U, draw_arrivals, jitter_word, service_word, wait_of
from mc.kernel.layout import (
    ATTEMPT_MASK,
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    CALLS,
    DONE,
    DRAIN,
    DROPPED,
    GROW,
    IN_FLIGHT,
    LATE,
    P_WINDOW_END,
    P_WINDOW_START,
    PEAK,
    PRIMARY,
    REQUEST_COUNT,
    REQUEST_SHIFT,
    REQUESTS,
    RETRIES,
    ROUND_DROPPED,
    ROUND_FAILED,
    ROUND_PRIMARY,
    ROUND_RETRIES,
    ROUND_SHIFT,
    SECOND_PEAK,
    SUCCESSFUL,
    UNDEFINED,
    WAIT_MAX,
    WAIT_TOTAL,
    WINDOW_CALLS,
    WINDOW_REQUESTS,
    CellTables,
    Stream,
)

# --- draws: what the loop asks of a generator ----------------------------------------------------


def start_replication(draws, tables, index):
    """Begin the replication that has this index, or seed."""


def start_cell(draws):
    """Begin a cell of the replication."""


def arrivals(draws, tables, t):
    """How many requests arrive in round t."""


def fails(draws, tables, p, t, entry):
    """Whether a call that is served in round t fails all the same."""


def wait(draws, tables, b, entry):
    """Rounds until the retry of a call that failed: 1 or more."""


class Philox(NamedTuple):
    """Draws by purpose; the traffic is made once for all cells of a replication.

    Attributes
    ----------
    k0, k1 : uint64
        Low and high half of the seed.
    replication : ndarray of uint64, shape (1,)
        Its index.
    uniforms, arrivals, first
        As in `Traffic`.
    """

    k0: np.uint64
    k1: np.uint64
    replication: NDArray[np.uint64]
    uniforms: NDArray[np.uint64]
    arrivals: NDArray[np.int32]
    first: NDArray[np.int32]


def philox_draws(tables: CellTables, seed: int) -> Philox:
    """Room for the draws of one replication after another."""
    n_rounds = tables.n_rounds
    return Philox(
        U(seed & 0xFFFFFFFF),
        U(seed >> 32),
        np.zeros(1, np.uint64),
        np.empty((n_rounds + 1) & ~1, np.uint64),
        np.empty(n_rounds, np.int32),
        np.empty(n_rounds + 1, np.int32),
    )


def draws_of(kind: type, function: Any) -> Any:
    """Register the form that a function has for one kind of draws."""

    def register(make: Any) -> Any:
        @overload(function, jit_options=OPTIONS, strict=False)
        def choose(draws, *others):
            return make if getattr(draws, "instance_class", None) is kind else None

        return make

    return register


@compiled()
def _stream(draws):
    return Stream(draws.k0, draws.k1, draws.replication[0], 0)


@draws_of(Philox, start_replication)
def _(draws, tables, index):
    draws.replication[0] = U(index)
    draw_arrivals(
        _stream(draws), tables.n_rounds, tables.thresholds, tables.guide,
        draws.uniforms, draws.arrivals, draws.first,
    )  # fmt: skip


@draws_of(Philox, start_cell)
def _(draws):
    pass


@draws_of(Philox, arrivals)
def _(draws, tables, t):
    return np.int64(draws.arrivals[t])


@draws_of(Philox, fails)
def _(draws, tables, p, t, entry):
    failure = tables.failures[p, t]
    return failure > U(0) and service_word(_stream(draws), draws.first, entry) < failure


@draws_of(Philox, wait)
def _(draws, tables, b, entry):
    attempt = entry & ATTEMPT_MASK
    word = jitter_word(_stream(draws), draws.first, entry)
    return wait_of(word, tables.widths[b, attempt], tables.offsets[b, attempt])


# --- one replication of one cell -----------------------------------------------------------------


@compiled()
def within_budget(tables, c, retries, primary):
    """Whether a budget allows a retry when so many calls of either kind have run."""
    limits = tables.limits[tables.scalars[c, C_LIMITS]]
    return retries <= limits[primary & tables.scalars[c, C_LIMIT_MASK]]


@compiled()
def schedule(wheel, due, entry):
    """Put a retry on the wheel, if its slot has room."""
    slot = due & (wheel.n_waiting.size - 1)
    n = np.int64(wheel.n_waiting[slot])
    has_room = n < 1 << wheel.room_bits
    if has_room:
        wheel.entries[(slot << wheel.room_bits) + n] = entry
        wheel.n_waiting[slot] = n + 1
    return has_room


@compiled()
def replicate(draws, tables, c, wheel, row, record):
    """Simulate one replication of one cell; give the status."""
    p, b = tables.scalars[c, C_PROFILE], tables.scalars[c, C_WAITS]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    has_after = window_start < window_end < tables.n_rounds
    row[:] = 0
    row[DRAIN] = UNDEFINED
    start_cell(draws)
    pending = 0  # requests that wait for a retry, which may be due after the end
    for t in range(tables.n_rounds):
        if t >= window_end and pending == 0 and row[DRAIN] == UNDEFINED:
            row[DRAIN] = t - window_end

        n_new = arrivals(draws, tables, t)
        if row[PRIMARY] + n_new > tables.n_requests:
            return REQUESTS
        slot = t & (wheel.n_waiting.size - 1)
        n_due = np.int64(wheel.n_waiting[slot])
        wheel.n_waiting[slot] = 0
        pending -= n_due
        n_calls = n_due + n_new
        row[PEAK] = max(row[PEAK], n_calls)
        if window_start <= t < window_end:
            row[WINDOW_CALLS] += n_calls
            row[WINDOW_REQUESTS] += n_new
        if t >= window_end:
            row[SECOND_PEAK] = max(row[SECOND_PEAK], n_calls)

        n_failed = 0
        dropped_before = row[DROPPED]
        for i in range(n_calls):
            if i < n_due:
                entry = wheel.entries[(slot << wheel.room_bits) + i]
                row[RETRIES] += 1
            else:
                entry = (t << ROUND_SHIFT) | (row[PRIMARY] << REQUEST_SHIFT)
                row[PRIMARY] += 1

            if i < tables.capacities[p, t] and not fails(draws, tables, p, t, entry):
                waited = t - (entry >> ROUND_SHIFT)
                row[SUCCESSFUL] += 1
                row[WAIT_TOTAL] += waited
                row[WAIT_MAX] = max(row[WAIT_MAX], waited)
                row[LATE] += waited > tables.scalars[c, C_THRESHOLD]
                continue

            n_failed += 1
            attempts = (entry & ATTEMPT_MASK) + 1
            if attempts < tables.scalars[c, C_MAX_ATTEMPTS] and within_budget(
                tables, c, row[RETRIES], row[PRIMARY]
            ):
                pending += 1
                due = t + wait(draws, tables, b, entry)
                if due < tables.n_rounds and not schedule(wheel, due, entry + 1):
                    return GROW
            else:
                row[DROPPED] += 1

        if record is not None:
            record[ROUND_PRIMARY, t] = n_new
            record[ROUND_RETRIES, t] = n_due
            record[ROUND_FAILED, t] = n_failed
            record[ROUND_DROPPED, t] = row[DROPPED] - dropped_before

    row[REQUEST_COUNT] = row[PRIMARY]
    row[CALLS] = row[PRIMARY] + row[RETRIES]
    row[IN_FLIGHT] = pending
    if pending == 0 and row[DRAIN] == UNDEFINED:
        row[DRAIN] = tables.n_rounds - window_end
    if not has_after:
        row[SECOND_PEAK] = UNDEFINED
        row[DRAIN] = UNDEFINED
    return DONE


@compiled(entry=True)
def simulate_rounds(draws, tables, cells, indices, wheel, counters, start, record):
    """Fill the rows of some cells, replication by replication.

    Parameters
    ----------
    draws : Philox or Lesson
        Which draws.
    tables : CellTables
        C cells.
    cells : ndarray of int64, shape (K,)
        Those to simulate.
    indices : ndarray of int64, shape (R,)
        Replication indices or seeds.
    wheel : Wheel
        Room to work in.
    counters : ndarray of int64, shape (R, C, N_COUNTERS)
        Output, overwritten from row `start` on.
    start : int
        First of the R * K rows to fill: 0, or the row that a GROW named.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), or None
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, row : int
        DONE; or GROW or REQUESTS and the row at which it happened. The rows before it stand.
    """
    n_cells = cells.size
    for r in range(start // n_cells, indices.size):
        start_replication(draws, tables, indices[r])
        for i in range(max(start - r * n_cells, 0), n_cells):
            c = cells[i]
            if record is None:
                status = replicate(draws, tables, c, wheel, counters[r, c], None)
            else:
                status = replicate(draws, tables, c, wheel, counters[r, c], record[r, c])
            if status != DONE:
                return status, r * n_cells + i
    return DONE, indices.size * n_cells
