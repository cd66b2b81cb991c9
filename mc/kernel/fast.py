"""The fast loop: one cell, retries without memory of anything but their number.

It carries what can be said by tables: capacity and failures by round, waits by attempt, a budget
that looks at how many calls have run. A replication's draws are made once for all cells, and rounds
in which nothing can happen are passed over.

Marks
-----
As long as no retry is pending, nothing happens in a round whose first calls are all served and
succeed. The others have a mark: bits 0 to 3 say which of its first four requests would fail though
served; `MANY` says that more arrive than are served, or than there are bits for. A marked round in
which no call fails after all does no harm.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mc.kernel.cache import compiled
from mc.kernel.draws import (
    U,
    draw_arrivals,
    draw_first_service,
    remember_jitter,
    remember_window,
    remembered_jitter,
    remembered_service,
    unlikely,
    wait_of,
)
from mc.kernel.layout import (
    ATTEMPT_MASK,
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    CALLS,
    DENIED,
    DONE,
    DRAIN,
    DROPPED,
    EXPIRED,
    GROW,
    IN_FLIGHT,
    INDEX_MASK,
    LATE,
    P_CAN_FAIL,
    P_WINDOW_END,
    P_WINDOW_START,
    PEAK,
    PRIMARY,
    REQUEST_COUNT,
    REQUEST_SHIFT,
    REQUESTS,
    RETRIES,
    ROUND_SHIFT,
    SECOND_PEAK,
    SUCCESSFUL,
    UNDEFINED,
    WAIT_MAX,
    WAIT_TOTAL,
    WINDOW_CALLS,
    WINDOW_REQUESTS,
    Stream,
)

MANY: Final = 1 << 4


@compiled()
def mark_rounds(p, tables, traffic):
    """Mark and list the rounds of a profile in which a first call may fail.

    Marks are read eight rounds at a time, since most rounds have none.
    """
    n_rounds, arrivals, words = tables.n_rounds, traffic.arrivals, traffic.first_service
    marks, capacity, failures = traffic.marks[p], tables.capacities[p], tables.failures[p]
    if tables.profiles[p, P_CAN_FAIL] == 0:
        for t in range(n_rounds):
            marks[t] = np.uint8(MANY) if arrivals[t] > capacity[t] else np.uint8(0)
    else:
        w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
        for t in range(n_rounds):
            failure, n_new = failures[t], arrivals[t]
            marks[t] = (
                np.uint8((n_new > 0) & (U(w0[t]) < failure))
                | np.uint8((n_new > 1) & (U(w1[t]) < failure)) << np.uint8(1)
                | np.uint8((n_new > 2) & (U(w2[t]) < failure)) << np.uint8(2)
                | np.uint8((n_new > 3) & (U(w3[t]) < failure)) << np.uint8(3)
                | np.uint8((n_new > 4) | (n_new > capacity[t])) << np.uint8(4)
            )
    n_busy = 0
    for word in range(traffic.marks_by_eight.shape[1]):
        if traffic.marks_by_eight[p, word] != U(0):
            for t in range(8 * word, 8 * word + 8):
                traffic.busy[p, n_busy] = t
                n_busy += np.int64(marks[t] != 0)
    traffic.busy[p, n_busy] = n_rounds


def _make_replicate(calls_can_fail: bool) -> Any:
    """Compile the loop for cells in which a served call can fail, or for those in which none can.

    The flag is a constant of the compiled code: the second kind must not pay for the first.
    """

    @compiled()
    def replicate(tables, c, traffic, stream, jitter, service, wheel, row):
        first, n_rounds = traffic.first, tables.n_rounds
        n_waiting, entries, room_bits = wheel.n_waiting, wheel.entries, wheel.room_bits
        p = tables.scalars[c, C_PROFILE]
        window_start = tables.profiles[p, P_WINDOW_START]
        window_end = tables.profiles[p, P_WINDOW_END]
        capacity, failures = tables.capacities[p], tables.failures[p]
        busy, marks_of = traffic.busy[p], traffic.marks[p]
        widths = tables.widths[tables.scalars[c, C_WAITS]]
        offsets = tables.offsets[tables.scalars[c, C_WAITS]]
        last_attempt = tables.scalars[c, C_MAX_ATTEMPTS] - 1
        limits = tables.limits[tables.scalars[c, C_LIMITS]]
        limit_mask = tables.scalars[c, C_LIMIT_MASK]
        threshold = tables.scalars[c, C_THRESHOLD]
        wheel_mask = n_waiting.size - 1
        room = np.int32(1 << room_bits)

        pending = 0
        retries = 0
        dropped = 0
        denied = 0
        wait_total = 0
        wait_max = 0
        late = 0
        drain = -1
        peak = traffic.most[p, 0]
        second_peak = traffic.most[p, 1]
        retries_before_window = 0
        window_retries = 0
        next_busy = 0
        t = 0
        for phase in range(3):  # before, inside and after the measured window
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
                    if calls_can_fail:
                        # A request that fails alone and comes back before anything else happens,
                        # in rounds with room for all calls, needs no wheel: 21 instead of 35 ns on
                        # a healthy day, where nearly all are of this kind.
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
                                attempt = entry & ATTEMPT_MASK
                                if (attempt >= last_attempt) | (
                                    retries > np.int64(limits[U(n_primary & limit_mask)])
                                ):
                                    dropped += 1
                                    denied += attempt < last_attempt
                                    t += 1
                                    break
                                word = remembered_jitter(stream, first, jitter, entry)
                                due = t + wait_of(word, widths[U(attempt)], offsets[U(attempt)])
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

                # Retries and new requests have a loop each. One loop over both that chooses the
                # entry is slower (11.4 instead of 8.0 ns for a retry in degradation), and so are
                # loops over two or four calls that mask what is not there (13 and 16 ns): a round
                # has few calls, and an idle lane costs as much as a branch that goes astray.

                # The budget sees the calls that have run: from one retry of the round to the next
                # only the number of retries grows.
                n_allowed = np.int64(limits[U(first_request & limit_mask)]) - retries
                n_failed = max(n_calls - n_served, 0)
                dropped_before = dropped
                for i in range(n_due):
                    entry = entries[base + U(i)]
                    if i < n_served:
                        fails = False
                        if calls_can_fail:
                            word = remembered_service(stream, first, service, entry)
                            fails = word < failures[U(t)]
                            n_failed += np.int64(fails)
                        if not fails:
                            wait = t - (entry >> ROUND_SHIFT)
                            wait_total += wait
                            wait_max = max(wait_max, wait)
                            late += wait > threshold
                            continue
                    attempt = entry & ATTEMPT_MASK
                    if (attempt < last_attempt) & (i < n_allowed):
                        # `remembered_jitter`, written out here and below: 3 % of a retry
                        place = ((entry >> REQUEST_SHIFT) & jitter.request_mask) | (
                            (entry << (jitter.level_shift - 2)) & jitter.level_mask
                        )
                        tag = stream.serial | ((entry & INDEX_MASK) >> 2)
                        word = U(jitter.words[U(8 * place + 2 + (entry & 3))])
                        if unlikely(jitter.tags[U(4 * place)] != tag):
                            word = remember_jitter(stream, first, jitter, entry, place, tag)
                        due = t + wait_of(word, widths[U(attempt)], offsets[U(attempt)])
                        if due < n_rounds:
                            due_slot = U(due & wheel_mask)
                            n = n_waiting[due_slot]
                            if unlikely(n == room):
                                return GROW
                            entries[(due_slot << U(room_bits)) + U(n)] = entry + 1
                            n_waiting[due_slot] = n + 1
                    else:
                        dropped += 1
                        denied += attempt < last_attempt
                retries += n_due

                j = max(n_served - n_due, 0)
                if calls_can_fail:
                    # in a round without a mark a new request fails only for want of capacity
                    marks = np.int64(marks_of[U(t)])
                    j = 0 if marks != 0 else j
                while j < n_new:
                    if calls_can_fail and n_due + j < n_served:
                        if j < 4:
                            fails = (marks >> j) & 1 == 1
                        else:
                            entry = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                            word = remembered_service(stream, first, service, entry)
                            fails = word < failures[U(t)]
                        if not fails:
                            j += 1
                            continue
                        n_failed += 1
                    n_primary = first_request + j + 1
                    if (last_attempt > 0) & (retries <= limits[U(n_primary & limit_mask)]):
                        entry = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                        place = (first_request + j) & jitter.request_mask
                        tag = stream.serial | ((entry & INDEX_MASK) >> 2)
                        word = U(jitter.words[U(8 * place + 2 + (entry & 3))])
                        if unlikely(jitter.tags[U(4 * place)] != tag):
                            word = remember_jitter(stream, first, jitter, entry, place, tag)
                        due = t + wait_of(word, widths[U(0)], offsets[U(0)])
                        if due < n_rounds:
                            due_slot = U(due & wheel_mask)
                            n = n_waiting[due_slot]
                            if unlikely(n == room):
                                return GROW
                            entries[(due_slot << U(room_bits)) + U(n)] = entry + 1
                            n_waiting[due_slot] = n + 1
                    else:
                        dropped += 1
                        denied += last_attempt > 0
                    j += 1
                pending += n_failed - (dropped - dropped_before)
                t += 1
            peak = max(peak, phase_peak)
            if phase == 2:
                second_peak = max(second_peak, phase_peak)
        if pending == 0 and drain < 0:
            drain = n_rounds - window_end

        requests = np.int64(first[n_rounds])
        window_requests = np.int64(first[window_end]) - np.int64(first[window_start])
        has_after = window_start < window_end < n_rounds
        row[REQUEST_COUNT] = requests
        row[WINDOW_REQUESTS] = window_requests
        row[CALLS] = requests + retries
        row[PRIMARY] = requests
        row[RETRIES] = retries
        row[SUCCESSFUL] = requests - dropped - pending
        row[DROPPED] = dropped
        row[IN_FLIGHT] = pending
        row[PEAK] = peak
        row[WINDOW_CALLS] = window_requests + window_retries
        row[SECOND_PEAK] = second_peak if has_after else UNDEFINED
        row[WAIT_TOTAL] = wait_total
        row[WAIT_MAX] = wait_max
        row[LATE] = late
        row[DRAIN] = drain if has_after else UNDEFINED
        row[EXPIRED] = UNDEFINED
        row[DENIED] = denied if limit_mask != 0 else UNDEFINED
        return DONE

    return replicate


_replicate_sure = _make_replicate(False)
_replicate_failing = _make_replicate(True)


@compiled()
def make_traffic(tables, traffic, stream, jitter):
    """Draw what all cells have in common in a replication; give the status."""
    n_rounds = tables.n_rounds
    n_requests = draw_arrivals(
        stream, n_rounds, tables.thresholds, tables.guide,
        traffic.uniforms, traffic.arrivals, traffic.first,
    )  # fmt: skip
    if n_requests > tables.n_requests:
        return REQUESTS
    if traffic.first_service.shape[1] > 0:
        draw_first_service(stream, n_rounds, traffic.first_service)
    for p in range(tables.profiles.shape[0]):
        mark_rounds(p, tables, traffic)
        traffic.most[p, 0] = _most(traffic.arrivals, 0, n_rounds)
        traffic.most[p, 1] = _most(traffic.arrivals, tables.profiles[p, P_WINDOW_END], n_rounds)
    begin, end = tables.ahead
    if begin < end:
        remember_window(stream, begin, end, traffic, jitter)
    return DONE


@compiled()
def _most(arrivals, begin, end):
    most = np.int32(0)
    for t in range(begin, end):
        most = max(most, arrivals[t])
    return np.int64(most)


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
        Output, overwritten from row `start` on.
    start : int
        First of the R * K rows to fill: 0, or the row that a GROW named.

    Returns
    -------
    status, row : int
        DONE; or GROW or REQUESTS and the row at which it happened. The rows before it stand.
    """
    n_cells = cells.size
    for r in range(start // n_cells, replications.size):
        stream = Stream(k0, k1, U(replications[r]), np.int64(r + 1) << ROUND_SHIFT)
        status = make_traffic(tables, traffic, stream, jitter)
        if status != DONE:
            return status, r * n_cells
        for i in range(max(start - r * n_cells, 0), n_cells):
            c = cells[i]
            arguments = (tables, c, traffic, stream, jitter, service, wheel, counters[r, c])
            if tables.profiles[tables.scalars[c, C_PROFILE], P_CAN_FAIL] != 0:
                status = _replicate_failing(*arguments)
            else:
                status = _replicate_sure(*arguments)
            if status != DONE:
                return status, r * n_cells + i
    return DONE, replications.size * n_cells
