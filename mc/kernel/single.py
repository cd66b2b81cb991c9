"""One cell that waits like no other, by the table of words.

Its wheel is that of `masks` without masks: an entry names a place in the table, and a slot is known
by its tail. The wait is made of the word when it is needed: to fill in a table of waits for one
cell takes longer. All served calls of these cells succeed, so in a round those that fail are the
last ones. The budget sees the calls that have run: it allows the first so many retries of a round,
and the new calls from some one on. What may go on is brought together, and goes through one loop.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled
from mc.kernel.chain import layers_left
from mc.kernel.draws import U, kept_apart, unlikely, wait_of
from mc.kernel.layout import (
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    DONE,
    GROW,
    P_WINDOW_END,
    P_WINDOW_START,
    ROUND_SHIFT,
    STOPPED,
    Stream,
)
from mc.kernel.rows import count_layers, start_layers, write_row
from mc.kernel.traffic import draw_traffic
from mc.kernel.waits import (
    ARRIVAL_SHIFT,
    NEXT_ATTEMPT,
    PLACE_MASK,
    attempt_of,
    draw_words,
    learn_rows,
    wait_drawn,
)

AFTER: Final = 50
"""Rounds after a fault for which words are drawn, too: its retries still crowd out new calls. For
the lesson's outage, 40 cells, 5 percent."""


class SingleWheel(NamedTuple):
    """Calls that are due.

    Attributes
    ----------
    tails : ndarray of int64, shape (S,)
        Index behind the last call of each slot.
    entries : ndarray of int64, shape ((S + 1) << room_bits,)
        Those of a slot stand together.
    room_bits : int
        log2 of the calls that a slot has room for.
    stop : ndarray of int8, shape (1,)
        As of `layout.Wheel`.
    """

    tails: NDArray[np.int64]
    entries: NDArray[np.int64]
    room_bits: int
    stop: NDArray[np.int8]


def single_wheel(size: int, room_bits: int, stop: NDArray[np.int8]) -> SingleWheel:
    """A wheel on which nothing is due."""
    n = (size + 1) << room_bits
    return SingleWheel(np.zeros(size, np.int64), np.zeros(n, np.int64), room_bits, stop)


@compiled()
def _wait_drawn(waits, widths, offsets, entry, stream, first, jitter):
    kept_apart()
    return wait_drawn(waits, 0, widths, offsets, entry, stream, first, jitter)


@compiled()
def _replicate(tables, c, traffic, waits, stream, jitter, wheel, row):
    first, n_rounds = traffic.first, tables.n_rounds
    p, b = tables.scalars[c, C_PROFILE], tables.scalars[c, C_WAITS]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    capacities, busy = tables.capacities[p], traffic.busy[p]
    widths, offsets = tables.widths[b], tables.offsets[b]
    words, stride, rows = waits.words, waits.stride, waits.rows[0]
    step = NEXT_ATTEMPT + stride
    last_attempt = tables.scalars[c, C_MAX_ATTEMPTS] - 1
    deadline = tables.deadlines[c, 0]
    n_layers = start_layers(row, tables, c)
    limits = tables.limits[tables.scalars[c, C_LIMITS]]
    has_budget = tables.scalars[c, C_LIMIT_MASK] != 0
    threshold = tables.scalars[c, C_THRESHOLD]
    tails, entries, room_bits = wheel.tails, wheel.entries, wheel.room_bits
    wheel_mask = tails.size - 1
    half_full = 1 << (room_bits - 1)
    if traffic.most[p, 0] + 4 > half_full:
        return GROW
    for slot in range(tails.size):
        tails[slot] = slot << room_bits

    pending = 0
    retries = 0
    failed = 0
    window_dropped = 0
    expired = 0
    denied = 0
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
        if phase == 0:
            phase_end = window_start
        elif phase == 1:
            phase_end = window_end
            retries_before_window = retries
        else:
            phase_end = n_rounds
            window_retries = retries - retries_before_window
        phase_peak = 0
        while True:
            if pending == 0:
                if phase == 2 and drain < 0:
                    drain = t - window_end
                while busy[U(next_busy)] < t:
                    next_busy += 1
                t = np.int64(busy[U(next_busy)])
            if t >= phase_end:
                t = phase_end
                break
            slot = U(t & wheel_mask)
            base = np.int64(slot) << room_bits
            n_due = tails[slot] - base
            tails[slot] = base
            first_request = np.int64(first[U(t)])
            n_new = np.int64(first[U(t + 1)]) - first_request
            capacity = np.int64(capacities[U(t)])
            phase_peak = max(phase_peak, n_due + n_new)
            failed += max(n_due + n_new - capacity, 0)
            pending -= n_due

            begin = base + min(n_due, capacity)
            for i in range(base, begin):
                wait = t - (entries[U(i)] >> ARRIVAL_SHIFT)
                wait_total += wait
                wait_max = max(wait_max, wait)
                late += wait > threshold
            if n_layers > 0:
                for i in range(base, base + n_due):
                    count_layers(row, tables, c, n_layers, attempt_of(entries[U(i)]))

            # those that fail: retries up to `end`, new calls from the j-th on
            end = base + n_due
            j = max(capacity - n_due, 0)
            if has_budget:
                end = max(begin, min(end, base + np.int64(limits[U(first_request)]) - retries))
                for i in range(end, base + n_due):
                    entry = entries[U(i)]
                    denied += layers_left(tables, c, attempt_of(entry))
                    window_dropped += window_start <= entry >> ARRIVAL_SHIFT < window_end
            retries += n_due
            if has_budget:
                while j < n_new and retries > limits[U(first_request + j + 1)]:
                    denied += layers_left(tables, c, 0)
                    window_dropped += phase == 1
                    j += 1
            if end + n_new - j > begin:
                new_entry = (t << ARRIVAL_SHIFT) | (first_request + j)
                for i in range(4):
                    entries[U(end + i)] = new_entry + i
                for i in range(4, n_new - j):
                    entries[U(end + i)] = new_entry + i
                pending += end + n_new - j - begin
                fullest = 0
                for i in range(begin, end + n_new - j):
                    entry = entries[U(i)]
                    attempt, arrival = attempt_of(entry), entry >> ARRIVAL_SHIFT
                    goes = attempt < last_attempt
                    if goes:
                        following = entry + step
                        word = U(words[U(entry & PLACE_MASK)])
                        if unlikely(word == U(0)):
                            following -= stride * np.int64(attempt >= rows)
                            wait = _wait_drawn(waits, widths, offsets, entry, stream, first, jitter)
                        else:
                            wait = wait_of(word, widths[U(attempt)], offsets[U(attempt)])
                        goes = t + wait - arrival <= deadline
                        expired += not goes
                    if goes:
                        slot = U((t + wait) & wheel_mask)
                        tail = tails[slot]
                        entries[U(tail)] = following
                        tails[slot] = tail + 1
                        fullest |= tail + 1
                    else:
                        pending -= 1
                        window_dropped += window_start <= arrival < window_end
                if unlikely(fullest & half_full != 0):
                    return GROW
            if unlikely(wheel.stop[0] != 0):
                return STOPPED
            t += 1
        peak = max(peak, phase_peak)
        if phase == 2:
            second_peak = phase_peak
    if pending == 0 and drain < 0:
        drain = n_rounds - window_end
    dropped = failed - retries - pending
    write_row(
        row, tables, traffic, c, p, retries, dropped, pending, (peak, second_peak), window_retries,
        (wait_total, wait_max), late, drain, window_dropped, expired, denied,
    )  # fmt: skip
    return DONE


@compiled(entry=True)
def simulate_single(
    tables, cells, replications, k0, k1, traffic, waits, jitter, service, wheel, counters, start
):
    """Fill the rows of some cells.

    As `simulate_fast`, with `waits` for the table.
    """
    begin, end = tables.ahead
    if begin < end:
        end = min(end + AFTER, tables.n_rounds)
    for r in range(start, replications.size):
        stream = Stream(k0, k1, U(replications[r]), np.int64(r + 1) << ROUND_SHIFT)
        status = draw_traffic(tables, traffic, stream, jitter, service)
        if status != DONE:
            return status, r
        draw_words(waits, begin, end, traffic, stream)
        for c in cells:
            status = _replicate(tables, c, traffic, waits, stream, jitter, wheel, counters[r, c])
            if status != DONE:
                return status, r
        learn_rows(waits)
    return DONE, replications.size
