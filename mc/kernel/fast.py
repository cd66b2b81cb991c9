"""The fast loop: one cell, whose retries are not in a table of waits.

It is for a cell that waits like no other and in which a served call can fail, and for whatever a
table of waits has no room for. Its own is the quiet way: as long as nothing else happens, a request
that fails and comes back needs no wheel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mc.kernel.cache import compiled, inlined
from mc.kernel.chain import layers_left
from mc.kernel.draws import U, remembered_jitter, remembered_service, unlikely, wait_of
from mc.kernel.layout import (
    ATTEMPT_MASK,
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    DENIED,
    DONE,
    EXPIRED,
    GROW,
    NEVER,
    P_WINDOW_END,
    P_WINDOW_START,
    REQUEST_SHIFT,
    ROUND_SHIFT,
    STOPPED,
    WINDOW_DROPPED,
    Stream,
)
from mc.kernel.rows import count_layers, start_layers, write_row
from mc.kernel.traffic import MANY, draw_ahead_in_window, draw_traffic


@inlined
def _schedule(wheel, due, entry):
    """Put a retry on the wheel; whether its slot had room."""
    slot = U(due & (wheel.n_waiting.size - 1))
    n = wheel.n_waiting[slot]
    has_room = n < np.int32(1 << wheel.room_bits)
    if has_room:
        wheel.entries[(slot << U(wheel.room_bits)) + U(n)] = entry
        wheel.n_waiting[slot] = n + 1
    return has_room


class Fixed(NamedTuple):
    """What does not change while a cell is simulated."""

    tables: Any
    c: Any
    last_attempt: Any
    widths: Any
    offsets: Any
    deadline: Any
    stream: Any
    first: Any
    jitter: Any


@inlined
def _due(fixed, t, entry, is_allowed, row):
    """The round in which a call comes back that failed in round t; 0 if it does not.

    `is_allowed` is what the budget says; it is asked after the deadline.
    """
    attempt = entry & ATTEMPT_MASK
    due = 0
    if attempt < fixed.last_attempt:
        if is_allowed or fixed.deadline < NEVER:
            word = remembered_jitter(fixed.stream, fixed.first, fixed.jitter, entry)
            due = t + wait_of(word, fixed.widths[U(attempt)], fixed.offsets[U(attempt)])
        if due - (entry >> ROUND_SHIFT) > fixed.deadline:
            row[EXPIRED] += 1
            due = 0
        elif not is_allowed:
            row[DENIED] += layers_left(fixed.tables, fixed.c, attempt)
            due = 0
    return due


@compiled()
def _replicate(tables, c, traffic, stream, jitter, service, wheel, row):
    first, n_rounds = traffic.first, tables.n_rounds
    n_waiting, entries, room_bits = wheel.n_waiting, wheel.entries, wheel.room_bits
    p = tables.scalars[c, C_PROFILE]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    capacity, failures = tables.capacities[p], tables.failures[p]
    busy, marks_of = traffic.busy[p], traffic.marks[p]
    limits = tables.limits[tables.scalars[c, C_LIMITS]]
    limit_mask = tables.scalars[c, C_LIMIT_MASK]
    threshold = tables.scalars[c, C_THRESHOLD]
    wheel_mask = n_waiting.size - 1
    n_layers = start_layers(row, tables, c)
    row[WINDOW_DROPPED] = row[EXPIRED] = row[DENIED] = 0
    b = tables.scalars[c, C_WAITS]
    fixed = Fixed(
        tables, c, tables.scalars[c, C_MAX_ATTEMPTS] - 1, tables.widths[b], tables.offsets[b],
        tables.deadlines[c, 0], stream, first, jitter,
    )  # fmt: skip

    pending = 0
    retries = 0
    dropped = 0
    wait_total = 0
    wait_max = 0
    late = 0
    drain = -1
    peak = 0
    second_peak = 0
    retries_before_window = 0
    window_retries = 0
    next_busy = 0
    t = 0
    for phase in range(3):  # before, inside and after the measured window
        if wheel.stop[0] != 0:
            return STOPPED
        if phase == 0:
            phase_end = window_start
        elif phase == 1:
            phase_end = window_end
            retries_before_window = retries
        else:
            phase_end = n_rounds
            window_retries = retries - retries_before_window
        phase_peak = 0
        while t < phase_end:
            if pending == 0:
                if phase == 2 and drain < 0:
                    drain = t - window_end
                while busy[U(next_busy)] < t:
                    next_busy += 1
                t = np.int64(busy[U(next_busy)])
                # A request that fails alone and comes back before anything else happens, in rounds
                # with room for all calls, needs no wheel: 21 instead of 35 ns on a healthy day,
                # where nearly all are of this kind.
                while t < phase_end:
                    marks = np.int64(marks_of[U(t)])
                    if (marks & (marks - 1) != 0) | (marks >= MANY):
                        break
                    next_busy += 1
                    quiet_end = min(np.int64(busy[U(next_busy)]), phase_end)
                    request = np.int64(first[U(t)]) + (marks >> 1) - (marks >> 3)
                    entry = (t << ROUND_SHIFT) | (request << REQUEST_SHIFT)
                    n_primary = request + 1
                    while True:
                        is_allowed = retries <= limits[U(n_primary & limit_mask)]
                        due = _due(fixed, t, entry, is_allowed, row)
                        if due == 0:
                            dropped += 1
                            row[WINDOW_DROPPED] += window_start <= entry >> ROUND_SHIFT < window_end
                            t += 1
                            break
                        entry += 1
                        if due < quiet_end:
                            n_primary = np.int64(first[U(due)])
                            n_calls = np.int64(first[U(due + 1)]) - n_primary + 1
                            alone = n_calls <= np.int64(capacity[U(due)])
                        else:
                            alone = False
                        t += 1
                        if not alone:
                            pending = 1
                            if due < n_rounds:
                                due_slot = U(due & wheel_mask)
                                entries[due_slot << U(room_bits)] = entry
                                n_waiting[due_slot] = 1
                            break
                        t = due
                        retries += 1
                        if n_layers > 0:
                            count_layers(row, tables, c, n_layers, entry & ATTEMPT_MASK)
                        phase_peak = max(phase_peak, n_calls)
                        word = remembered_service(stream, first, service, entry)
                        if word >= failures[U(t)]:
                            wait = t - (entry >> ROUND_SHIFT)
                            wait_total += wait
                            wait_max = max(wait_max, wait)
                            late += wait > threshold
                            t += 1
                            break
                    if pending != 0:
                        break
                    t = np.int64(busy[U(next_busy)])
                if pending != 0:
                    continue
                if t >= phase_end:
                    t = phase_end
                    break
            slot = U(t & wheel_mask)
            n_due = np.int64(n_waiting[slot])
            n_waiting[slot] = 0
            base = slot << U(room_bits)
            first_request = np.int64(first[U(t)])
            n_new = np.int64(first[U(t + 1)]) - first_request
            n_calls = n_due + n_new
            n_served = np.int64(capacity[U(t)])
            phase_peak = max(phase_peak, n_calls)
            pending -= n_due

            # The budget sees the calls that have run: from one retry of the round to the next
            # only the number of retries grows.
            n_allowed = np.int64(limits[U(first_request & limit_mask)]) - retries
            n_failed = max(n_calls - n_served, 0)
            dropped_before = dropped
            for i in range(n_due):
                entry = entries[base + U(i)]
                if n_layers > 0:
                    count_layers(row, tables, c, n_layers, entry & ATTEMPT_MASK)
                if i < n_served:
                    failure = failures[U(t)]
                    fails = (
                        failure > U(0)
                        and remembered_service(stream, first, service, entry) < failure
                    )
                    n_failed += np.int64(fails)
                    if not fails:
                        wait = t - (entry >> ROUND_SHIFT)
                        wait_total += wait
                        wait_max = max(wait_max, wait)
                        late += wait > threshold
                        continue
                due = _due(fixed, t, entry, i < n_allowed, row)
                if due == 0:
                    dropped += 1
                    row[WINDOW_DROPPED] += window_start <= entry >> ROUND_SHIFT < window_end
                elif due < n_rounds and unlikely(not _schedule(wheel, due, entry + 1)):
                    return GROW
            retries += n_due

            # in a round without a mark a new request fails only for want of capacity
            marks = np.int64(marks_of[U(t)])
            for j in range(0 if marks != 0 else max(n_served - n_due, 0), n_new):
                entry = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                if n_due + j < n_served:
                    if j < 4:
                        fails = (marks >> j) & 1 == 1
                    else:
                        word = remembered_service(stream, first, service, entry)
                        fails = word < failures[U(t)]
                    if not fails:
                        continue
                    n_failed += 1
                is_allowed = retries <= limits[U((first_request + j + 1) & limit_mask)]
                due = _due(fixed, t, entry, is_allowed, row)
                if due == 0:
                    dropped += 1
                    row[WINDOW_DROPPED] += phase == 1
                elif due < n_rounds and unlikely(not _schedule(wheel, due, entry + 1)):
                    return GROW
            pending += n_failed - (dropped - dropped_before)
            if unlikely(wheel.stop[0] != 0):
                return STOPPED
            t += 1
        peak = max(peak, phase_peak)
        if phase == 2:
            second_peak = phase_peak
    if pending == 0 and drain < 0:
        drain = n_rounds - window_end

    write_row(
        row, tables, traffic, c, p, retries, dropped, pending, (peak, second_peak), window_retries,
        (wait_total, wait_max), late, drain, row[WINDOW_DROPPED], row[EXPIRED],
        row[DENIED],
    )  # fmt: skip
    return DONE


@compiled(entry=True)
def simulate_fast(
    tables, cells, replications, k0, k1, traffic, jitter, service, wheel, counters, start
):
    """Fill the rows of some cells, replication by replication.

    Parameters
    ----------
    tables : CellTables
        C cells.
    cells : ndarray of int64, shape (K,)
        Those to simulate.
    replications : ndarray of int64, shape (R,)
        Replication indices, 0 <= r < 2**32.
    k0, k1 : uint64
        Low and high half of the seed.
    traffic, jitter, service, wheel : Traffic, Memory, Memory, Wheel
        Room to work in.
    counters : ndarray of int64, shape (R, C, N_COUNTERS)
        Output, overwritten from replication `start` on.
    start : int
        Where to begin: 0, or the replication that a GROW named.

    Returns
    -------
    status, r : int
        DONE; or GROW, REQUESTS or STOPPED and the replication in which it happened. Those before it
        stand.
    """
    begin, end = tables.ahead
    for r in range(start, replications.size):
        stream = Stream(k0, k1, U(replications[r]), np.int64(r + 1) << ROUND_SHIFT)
        status = draw_traffic(tables, traffic, stream, jitter, service)
        if status != DONE:
            return status, r
        if begin < end:
            draw_ahead_in_window(begin, end, traffic, stream, jitter)
        for c in cells:
            status = _replicate(tables, c, traffic, stream, jitter, service, wheel, counters[r, c])
            if status != DONE:
                return status, r
    return DONE, replications.size
