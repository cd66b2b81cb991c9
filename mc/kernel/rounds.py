"""The general loop: round by round and call by call, written to be read.

It follows the model step by step and keeps nothing in mind but what the model does, so it is the
place for whatever no table can say. What differs between cells (the generator, what layers
remember of their waits, deadlines, budgets) is an argument with a type of its own, None where a
cell has no such thing: functions are chosen by it when the loop is compiled, so nobody pays for
what a cell does not use. Under `philox` its rows are those of the fast loop, bit for bit.
"""

from __future__ import annotations

import numpy as np

from mc.kernel.budgets import allows, begins, has_budget, start_budgets
from mc.kernel.cache import compiled
from mc.kernel.chain import count_layers, digit_of, out_of_time, retry_of, start_clocks
from mc.kernel.generators import arrivals, fails, start_cell, start_replication, wait
from mc.kernel.layout import (
    C_LAYERS,
    C_PROFILE,
    C_THRESHOLD,
    CALLS,
    CALLS_OF_LAYER,
    DENIED,
    DONE,
    DRAIN,
    DROPPED,
    EXPIRED,
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
)

NO_RETRY = -1


@compiled()
def decide(draws, waits, deadlines, budgets, tables, c, t, entry, row):
    """Let the layers decide after a call of round t failed, the innermost first.

    Returns
    -------
    retry, due : int
        The call that one of them makes, and its round; NO_RETRY where all have given up.
    """
    i = tables.scalars[c, C_LAYERS] - 1
    while i >= 0:
        if digit_of(tables, c, i, entry) + 1 < tables.tries[c, i]:
            retry = retry_of(tables, c, i, entry)
            if deadlines is None:
                if allows(budgets, tables, c, i, row):
                    return retry, t + wait(draws, waits, tables, c, i, retry)
            else:
                due = t + wait(draws, waits, tables, c, i, retry)
                over = out_of_time(deadlines, tables, c, i, retry, due)
                if over >= 0:
                    row[EXPIRED] += 1
                    i = over - 1  # its caller sees the failure, those between decide nothing
                    continue
                if allows(budgets, tables, c, i, row):
                    return retry, due
            row[DENIED] += 1
        i -= 1
    return NO_RETRY, 0


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
def replicate(draws, waits, deadlines, budgets, tables, c, wheel, row, record):
    """Simulate one replication of one cell; give the status."""
    p = tables.scalars[c, C_PROFILE]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    has_after = window_start < window_end < tables.n_rounds
    row[: CALLS_OF_LAYER + tables.scalars[c, C_LAYERS] - 1] = 0
    row[DRAIN] = UNDEFINED
    start_cell(draws)
    start_budgets(budgets)
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
            count_layers(tables, c, entry, row)
            start_clocks(deadlines, tables, c, t, entry)
            begins(budgets, tables, c, entry)

            if i < tables.capacities[p, t] and not fails(draws, tables, p, t, entry):
                waited = t - (entry >> ROUND_SHIFT)
                row[SUCCESSFUL] += 1
                row[WAIT_TOTAL] += waited
                row[WAIT_MAX] = max(row[WAIT_MAX], waited)
                row[LATE] += waited > tables.scalars[c, C_THRESHOLD]
                continue

            n_failed += 1
            retry, due = decide(draws, waits, deadlines, budgets, tables, c, t, entry, row)
            if retry == NO_RETRY:
                row[DROPPED] += 1
                continue
            pending += 1
            if due < tables.n_rounds and not schedule(wheel, due, retry):
                return GROW

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
    if deadlines is None:
        row[EXPIRED] = UNDEFINED
    if not has_budget(budgets, tables, c):
        row[DENIED] = UNDEFINED
    return DONE


@compiled(entry=True)
def simulate_rounds(
    draws, waits, deadlines, budgets, tables, cells, indices, wheel, counters, start, record
):
    """Fill the rows of some cells, replication by replication.

    Parameters
    ----------
    draws : Philox or Lesson
        Which draws.
    waits : Decorrelated, Polly or None
        What the layers remember of their waits; None where a table says how long they are.
    deadlines : Deadlines or None
        When the calls of the layers began; None where there is no deadline.
    budgets : LayerBudgets or None
        The budgets of the layers; None where the chain has one, or none.
    tables : CellTables
        C cells.
    cells : ndarray of int64, shape (K,)
        Those to simulate.
    indices : ndarray of int64, shape (R,)
        Replication indices or seeds.
    wheel : Wheel
        Room to work in.
    counters : ndarray of int64, shape (R, C, N_COUNTERS or more)
        Output, overwritten from replication `start` on.
    start : int
        Where to begin: 0, or the replication that a GROW named.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), or None
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, r : int
        DONE; or GROW or REQUESTS and the replication in which it happened. Those before it stand.
    """
    for r in range(start, indices.size):
        start_replication(draws, tables, indices[r])
        for c in cells:
            rounds = None if record is None else record[r, c]
            status = replicate(
                draws, waits, deadlines, budgets, tables, c, wheel, counters[r, c], rounds
            )
            if status != DONE:
                return status, r
    return DONE, indices.size
