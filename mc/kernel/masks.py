"""Cells that wait alike share one wheel.

Why it is exact
---------------
If a request keeps failing, the rounds of its attempts depend on its draws and on its kind of waits
alone. The order in a slot of the wheel is the order of scheduling, and calls that drop out never
reorder the rest. So cells that differ only in what decides *whether* a call goes on, in attempts or
budget, see the same calls in the same order, each some of them: they run on one wheel, and each
call carries a mask of the cells in which it is pending.

A *group* has up to N cells with the same profile, kind of waits and threshold; N is 16, 32 or 64.
What is counted for each of them are lanes, see `lanes`; how long a call waits is looked up, see
`waits`.

The wheel
---------
A call is two 64-bit numbers: an entry, and its mask. Unlike those of the general loop the entry
names a place in the table of waits::

    arrival round (23 bits) | attempt (16 bits) | place in the table (25 bits)

A slot is known by its tail, the index behind its last call. A call is always written there, whether
or not it goes on in any cell, and the tail moves on by 0 or 1: there is no branch to go astray. So
there has to be room behind the last call: a wheel grows when a slot is half full, which is looked
at once a round. Retries that are due after the end lie on the wheel, too.

A round
-------
Where one call is served or none, and all served calls succeed, a mask has the cells that have the
place still free, and retries and first calls go through one loop. Elsewhere the calls of each cell
are counted. In both, a call that fails goes on where the attempt is not the last and the budget
allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, inlined
from mc.kernel.chain import layers_left
from mc.kernel.draws import U, remembered_service, unlikely
from mc.kernel.lanes import (
    add_where,
    equal,
    in_lanes,
    larger,
    load,
    minus,
    more,
    plus,
    splat,
    store,
    where,
)
from mc.kernel.layout import (
    C_CHAIN,
    C_LAYERS,
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    CALLS_OF_LAYER,
    DONE,
    GROW,
    P_CAN_FAIL,
    P_WINDOW_END,
    P_WINDOW_START,
    REQUEST_SHIFT,
    ROUND_SHIFT,
    STOPPED,
    CellTables,
    Stream,
)
from mc.kernel.rows import write_row
from mc.kernel.traffic import draw_traffic
from mc.kernel.waits import (
    ARRIVAL_SHIFT,
    NEXT_ATTEMPT,
    PLACE_MASK,
    attempt_of,
    draw_words,
    fill,
    learn_rows,
    plain_entry,
    wait_drawn,
)

N_COUNTS: Final = 13
"""What is counted for each cell, beside the calls of its layers."""

WINDOW_DROPPED: Final = 10
"""Which of it is kept in memory while a group is simulated."""


class Groups(NamedTuple):
    """The cells of G groups, those with the same kind of waits one after the other.

    Attributes
    ----------
    cells : ndarray of int64, shape (G, N)
        The cell of each lane; -1 where there is none.
    everyone : ndarray of uint64, shape (G,)
        The lanes that have a cell.
    goes_on : ndarray of uint64, shape (G, A + 1)
        By attempt: the cells for which it is not the last.
    limits : ndarray of int32, shape (L, (n_requests + 1) * N)
        Most retries that a budget allows, by the number of primary calls and lane.
    limits_of : ndarray of int64, shape (G,)
        Row of `limits`, or -1 for a group without a budget.
    """

    cells: NDArray[np.int64]
    everyone: NDArray[np.uint64]
    goes_on: NDArray[np.uint64]
    limits: NDArray[np.int32]
    limits_of: NDArray[np.int64]


class SharedWheel(NamedTuple):
    """Calls that are due.

    Attributes
    ----------
    tails : ndarray of int64, shape (S,)
        Index behind the last call of each slot.
    calls : ndarray of int64, shape (2 * (S + 1) << room_bits,)
        Entry and mask of each; those of a slot stand together.
    room_bits : int
        log2 of the calls that a slot has room for.
    stop : ndarray of int8, shape (1,)
        As of `layout.Wheel`.
    """

    tails: NDArray[np.int64]
    calls: NDArray[np.int64]
    room_bits: int
    stop: NDArray[np.int8]


def shared_wheel(size: int, room_bits: int, stop: NDArray[np.int8]) -> SharedWheel:
    """A wheel on which nothing is due."""
    n = (size + 1) << room_bits
    return SharedWheel(np.zeros(size, np.int64), np.zeros(2 * n, np.int64), room_bits, stop)


def groups_of(tables: CellTables, parts: Sequence[Sequence[int]], n: int) -> Groups:
    """Make the tables of groups of cells, each of at most n."""
    most_attempts = int(tables.scalars[:, C_MAX_ATTEMPTS].max())
    cells = np.full((len(parts), n), -1)
    everyone = np.zeros(len(parts), np.uint64)
    goes_on = np.zeros((len(parts), most_attempts), np.uint64)
    limits_of = np.full(len(parts), -1)
    rows: dict[tuple[int, ...], int] = {}
    for g, part in enumerate(parts):
        cells[g, : len(part)] = part
        everyone[g] = (1 << len(part)) - 1
        for lane, c in enumerate(part):
            last = tables.scalars[c, C_MAX_ATTEMPTS] - 1
            goes_on[g, :last] |= np.uint64(1 << lane)
        if tables.scalars[part, C_LIMIT_MASK].any():
            limits_of[g] = rows.setdefault(tuple(tables.scalars[part, C_LIMITS]), len(rows))
    n_limits = tables.limits.shape[1]
    limits = np.zeros((len(rows), n_limits * n), np.int32)
    for row, lanes in enumerate(rows):
        limits[row].reshape(n_limits, n)[:, : len(lanes)] = tables.limits[list(lanes)].T
    return Groups(cells, everyone, goes_on, limits, limits_of)


@inlined
def _schedule(wheel, due, entry, goes):
    """Write a call behind the last of its slot, which it is if it goes on in any cell.

    Returns
    -------
    tail, is_new : int
        The tail of the slot; whether it has moved on.
    """
    slot = U(due & (wheel.tails.size - 1))
    tail = wheel.tails[slot]
    wheel.calls[U(2 * tail)] = entry
    wheel.calls[U(2 * tail + 1)] = np.int64(goes)
    is_new = np.int64(goes != U(0))
    wheel.tails[slot] = tail + is_new
    return tail + is_new, is_new


@compiled()
def _pending(wheel, n_waiting, zero, one):
    """Calls of each cell that lie on the wheel."""
    pending = zero
    if n_waiting > 0:
        for slot in range(wheel.tails.size):
            for i in range(slot << wheel.room_bits, wheel.tails[slot]):
                pending = add_where(U(wheel.calls[2 * i + 1]), pending, one)
    return pending


class Fixed(NamedTuple):
    """What does not change while a group is simulated."""

    tables: Any
    c: Any
    goes_on: Any
    widths: Any
    offsets: Any
    waits: Any
    b: Any
    rows: Any
    step: Any
    deadline: Any
    has_budget: Any
    n_layers: Any
    n: Any
    counts: Any
    stream: Any
    first: Any
    jitter: Any
    wheel: Any
    one: Any


@inlined
def _retry(fixed, before, t, entry, failing, run, budget, expired, denied):
    """Let a call that failed in some cells go on where it may.

    A request that arrived in the rounds `before`, those of the phase before, is counted if it is
    dropped.

    Returns
    -------
    goes : uint64
        The cells in which it goes on.
    expired, denied : Lanes
        Counted on.
    tail, is_new
        As of `_schedule`.
    """
    attempt = attempt_of(entry)
    goes = failing & fixed.goes_on[U(attempt)]
    wait = np.int64(fixed.waits.table[U(entry & PLACE_MASK)])
    following = entry + fixed.step
    if unlikely(wait == 0):
        if attempt >= fixed.rows:
            following -= fixed.waits.stride
        wait = 1
        if goes != U(0):
            wait = wait_drawn(
                fixed.waits, fixed.b, fixed.widths, fixed.offsets, entry, fixed.stream,
                fixed.first, fixed.jitter,
            )  # fmt: skip
    arrival = entry >> ARRIVAL_SHIFT
    if unlikely(t + wait - arrival > fixed.deadline):
        expired = add_where(goes, expired, fixed.one)
        goes = U(0)
    if fixed.has_budget:
        refused = goes & more(run, budget)
        goes &= ~refused
        if fixed.n_layers == 0:
            denied = add_where(refused, denied, fixed.one)
        elif refused != U(0):
            asked = splat(run, layers_left(fixed.tables, fixed.c, attempt))
            denied = add_where(refused, denied, asked)
    if unlikely(arrival < before[1]) and arrival >= before[0]:
        at = WINDOW_DROPPED * fixed.n
        so_far = load(fixed.one, fixed.counts, at)
        store(fixed.counts, at, add_where(failing & ~goes, so_far, fixed.one))
    tail, is_new = _schedule(fixed.wheel, t + wait, following, goes)
    return goes, expired, denied, tail, is_new


@compiled()
def _simulate_group(
    zero, tables, groups, g, traffic, waits, stream, jitter, service, wheel, counters, counts
):
    first, n_rounds, n = traffic.first, tables.n_rounds, groups.cells.shape[1]
    c = groups.cells[g, 0]
    p, b = tables.scalars[c, C_PROFILE], tables.scalars[c, C_WAITS]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    can_fail = tables.profiles[p, P_CAN_FAIL] != 0
    capacities, failures = tables.capacities[p], tables.failures[p]
    busy, marks_of = traffic.busy[p], traffic.marks[p]
    everyone = groups.everyone[g]
    has_budget = groups.limits_of[g] >= 0
    limits = groups.limits[groups.limits_of[g]]
    makers = tables.makers[tables.scalars[c, C_CHAIN]]
    n_layers = tables.scalars[c, C_LAYERS] - 1  # those whose calls are counted
    layer_calls = counts[N_COUNTS * n :]
    layer_calls[: n_layers * n] = 0
    tails, calls, room_bits = wheel.tails, wheel.calls, wheel.room_bits
    wheel_mask = tails.size - 1
    half_full = 1 << (room_bits - 1)
    if traffic.most[p, 0] > half_full:
        return GROW
    for slot in range(tails.size):
        tails[slot] = slot << room_bits
    one, threshold = splat(zero, 1), splat(zero, tables.scalars[c, C_THRESHOLD])
    fixed = Fixed(
        tables, c, groups.goes_on[g], tables.widths[b], tables.offsets[b], waits, b,
        waits.rows[b], NEXT_ATTEMPT + waits.stride, tables.deadlines[c, 0], has_budget,
        n_layers, n, counts, stream, first, jitter, wheel, one,
    )  # fmt: skip

    retries = zero
    failed = zero
    expired = zero
    denied = zero
    wait_total = zero
    wait_max = zero
    late = zero
    peak = zero
    second_peak = zero
    retries_before_window = zero
    dropped_before_window = zero
    window_retries = zero
    pending = zero
    drain = splat(zero, -1)
    undrained = U(0)  # cells whose drain is looked for
    n_waiting = np.int64(0)  # calls on the wheel
    next_busy = 0
    t = 0
    for phase in range(3):  # before, inside and after the measured window
        pending = _pending(wheel, n_waiting, zero, one)
        dropped = minus(minus(failed, retries), pending)
        if phase == 0:
            before = (0, 0)
            phase_end = window_start
        elif phase == 1:
            before = (0, window_start)
            phase_end = window_end
            retries_before_window = retries
            dropped_before_window = dropped
            store(counts, WINDOW_DROPPED * n, zero)
        else:
            before = (window_start, window_end)
            phase_end = n_rounds
            window_retries = minus(retries, retries_before_window)
            # all that were dropped in it but those that had arrived before
            window_dropped = minus(dropped, dropped_before_window)
            strangers = load(zero, counts, WINDOW_DROPPED * n)
            store(counts, WINDOW_DROPPED * n, minus(window_dropped, strangers))
            if window_start < window_end < n_rounds:
                drain = where(equal(pending, zero), zero, drain)
                undrained = everyone & more(pending, zero)
        phase_peak = zero
        while True:
            if n_waiting == 0:
                while busy[U(next_busy)] < t:
                    next_busy += 1
                t = np.int64(busy[U(next_busy)])
            if t >= phase_end:
                t = phase_end
                break
            slot = U(t & wheel_mask)
            base = np.int64(slot) << room_bits
            tail = tails[slot]
            tails[slot] = base
            marks = np.int64(marks_of[U(t)])
            if (tail == base) & (marks == 0):
                t += 1
                continue
            n_waiting -= tail - base
            first_request = np.int64(first[U(t)])
            n_new = np.int64(first[U(t + 1)]) - first_request
            capacity = min(np.int64(capacities[U(t)]), tail - base + n_new)
            if n_layers > 0:
                for i in range(base, tail):
                    mask = U(calls[U(2 * i + 1)])
                    for layer in range(makers[attempt_of(calls[U(2 * i)])], n_layers):
                        so_far = load(zero, layer_calls, layer * n)
                        store(layer_calls, layer * n, add_where(mask, so_far, one))

            run = retries  # retries that have run
            budget = zero  # retries that may have run
            if has_budget:
                budget = load(zero, limits, first_request * n)
            going = zero  # retries that are scheduled
            fullest = 0
            if (capacity <= 1) & (not can_fail) & (undrained == U(0)):
                places = everyone if capacity == 1 else U(0)
                arrived = zero
                for i in range(base, tail):
                    entry = calls[U(2 * i)]
                    mask = U(calls[U(2 * i + 1)])
                    served = mask & places
                    places &= ~mask
                    arrived = where(served, splat(zero, entry >> ARRIVAL_SHIFT), arrived)
                    run = add_where(mask, run, one)
                    goes, expired, denied, at, is_new = _retry(
                        fixed, before, t, entry, mask & ~served, run, budget, expired, denied
                    )
                    n_waiting += is_new
                    fullest |= at
                won = (everyone if capacity == 1 else U(0)) & ~places
                waited = minus(splat(zero, t), arrived)
                wait_total = add_where(won, wait_total, waited)
                wait_max = where(won, larger(wait_max, waited), wait_max)
                late = add_where(won & more(waited, threshold), late, one)
            else:
                room = plus(retries, splat(zero, capacity))
                for i in range(base, tail):
                    entry = calls[U(2 * i)]
                    mask = U(calls[U(2 * i + 1)])
                    served = mask & more(room, run)
                    if can_fail and served != U(0):
                        plain = plain_entry(entry, fixed.rows, waits.stride)
                        word = remembered_service(stream, first, service, plain)
                        if word < failures[U(t)]:
                            failed = add_where(served, failed, one)
                            served = U(0)
                    waited = splat(zero, t - (entry >> ARRIVAL_SHIFT))
                    wait_total = add_where(served, wait_total, waited)
                    wait_max = where(served, larger(wait_max, waited), wait_max)
                    late = add_where(served & more(waited, threshold), late, one)
                    run = add_where(mask, run, one)
                    if served != mask:
                        goes, expired, denied, at, is_new = _retry(
                            fixed, before, t, entry, mask & ~served, run, budget, expired, denied
                        )
                        n_waiting += is_new
                        fullest |= at
                        going = add_where(goes, going, one)
            old_calls = minus(run, retries)
            n_calls = plus(old_calls, splat(zero, n_new))
            unserved = minus(n_calls, splat(zero, capacity))
            # new calls, of which none fails without a mark if all calls are served
            if (marks != 0) | (everyone & more(unserved, zero) != U(0)):
                new_entry = (t << ARRIVAL_SHIFT) | first_request
                for j in range(n_new):
                    served = everyone & more(splat(zero, capacity - j), old_calls)
                    if can_fail and served != U(0):
                        if j < 4:
                            fails = (marks >> j) & 1 == 1
                        else:
                            plain = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                            word = remembered_service(stream, first, service, plain)
                            fails = word < failures[U(t)]
                        if fails:
                            failed = add_where(served, failed, one)
                            served = U(0)
                    if served != everyone:
                        if has_budget:
                            budget = load(zero, limits, (first_request + j + 1) * n)
                        goes, expired, denied, at, is_new = _retry(
                            fixed, before, t, new_entry + j, everyone & ~served, run, budget,
                            expired, denied,
                        )  # fmt: skip
                        n_waiting += is_new
                        fullest |= at
                        going = add_where(goes, going, one)
            if unlikely(fullest & half_full != 0):
                return GROW
            if unlikely(wheel.stop[0] != 0):
                return STOPPED
            retries = run
            failed = plus(failed, larger(unserved, zero))
            phase_peak = larger(phase_peak, n_calls)
            t += 1
            if undrained != U(0):
                pending = plus(minus(pending, old_calls), going)
                drained = equal(pending, zero) & undrained
                drain = where(drained, splat(zero, t - window_end), drain)
                undrained &= ~drained
        peak = larger(peak, phase_peak)
        if phase == 2:
            second_peak = phase_peak
    pending = _pending(wheel, n_waiting, zero, one)
    store(counts, 0, retries)
    store(counts, n, minus(minus(failed, retries), pending))
    store(counts, 2 * n, pending)
    store(counts, 3 * n, peak)
    store(counts, 4 * n, second_peak)
    store(counts, 5 * n, window_retries)
    store(counts, 6 * n, wait_total)
    store(counts, 7 * n, wait_max)
    store(counts, 8 * n, late)
    store(counts, 9 * n, drain)
    store(counts, 11 * n, expired)
    store(counts, 12 * n, denied)
    for lane in range(n):
        c = groups.cells[g, lane]
        if c < 0:
            break
        _write_row(tables, traffic, c, p, counters[c], counts[lane::n])
    return DONE


@compiled()
def _write_row(tables, traffic, c, p, row, counts):
    for layer in range(tables.scalars[c, C_LAYERS] - 1):
        row[CALLS_OF_LAYER + layer] = counts[N_COUNTS + layer]
    write_row(
        row, tables, traffic, c, p, np.int64(counts[0]), np.int64(counts[1]), np.int64(counts[2]),
        (np.int64(counts[3]), np.int64(counts[4])), np.int64(counts[5]),
        (np.int64(counts[6]), np.int64(counts[7])), np.int64(counts[8]), np.int64(counts[9]),
        np.int64(counts[10]), np.int64(counts[11]), np.int64(counts[12]),
    )  # fmt: skip


@compiled(entry=True)
def simulate_groups(
    zeros, tables, groups, replications, k0, k1, traffic, waits, jitter, service, wheel, counters,
    counts, start,
):  # fmt: skip
    """Fill the rows of groups of cells; `zeros` has as many as there are lanes.

    Otherwise as `simulate_single`, with `counts` for room to work in.
    """
    zero = in_lanes(zeros)
    begin, end = tables.ahead
    for r in range(start, replications.size):
        stream = Stream(k0, k1, U(replications[r]), np.int64(r + 1) << ROUND_SHIFT)
        status = draw_traffic(tables, traffic, stream, jitter, service)
        if status != DONE:
            return status, r
        draw_words(waits, begin, end, traffic, stream)
        filled = -1
        for g in range(groups.everyone.size):
            b = tables.scalars[groups.cells[g, 0], C_WAITS]
            if b != filled:
                fill(waits, b, tables.widths[b], tables.offsets[b])
                filled = b
            status = _simulate_group(
                zero, tables, groups, g, traffic, waits, stream, jitter, service, wheel,
                counters[r], counts,
            )  # fmt: skip
            if status != DONE:
                return status, r
        learn_rows(waits)
    return DONE, replications.size
