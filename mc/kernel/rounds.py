"""The general loop: round by round and call by call, written to be read.

It follows the model step by step and keeps nothing in mind but what the model does, so it is the
place for whatever no table can say. What differs between cells (the generator, what layers
remember of their waits, deadlines, budgets, a queue) is an argument with a type of its own, None
where a cell has no such thing: functions are chosen by it when the loop is compiled, so nobody pays
for what a cell does not use. Under `philox` its rows are those of the fast loop, bit for bit.
"""

from __future__ import annotations

import numpy as np

from mc.kernel.breakers import generation_of, permits, records, start_breakers
from mc.kernel.budgets import (
    FAILED,
    GIVEN_UP,
    OK,
    announce,
    begins,
    client_of,
    draw_clients,
    ends,
    may_retry,
    rejects,
    sees,
    start_budgets,
)
from mc.kernel.cache import compiled, inlined
from mc.kernel.chain import digit_of, maker_of, out_of_time, retry_of, start_clocks
from mc.kernel.generators import arrivals, fails, start_cell, start_replication, wait
from mc.kernel.layout import (
    ATTEMPT_MASK,
    B_K,
    C_BREAKER,
    C_BUDGETS,
    C_CLOSED,
    C_DEADLINES,
    C_LAYERS,
    C_LIMIT_MASK,
    C_PROFILE,
    C_QUEUE,
    C_QUEUED,
    C_SEES,
    C_THRESHOLD,
    CALLS,
    CALLS_OF_LAYER,
    CHAIN_BUDGET,
    DENIED,
    DONE,
    DRAIN,
    DROPPED,
    EXPIRED,
    GROW,
    IN_FLIGHT,
    LATE,
    NO_BREAKER,
    NO_DEADLINE,
    P_WINDOW_END,
    P_WINDOW_START,
    PEAK,
    PLACES,
    PRIMARY,
    QUEUE_PEAK,
    RECOVERED,
    RECOVERY,
    REFUSED,
    REJECTED,
    REQUEST_COUNT,
    REQUEST_SHIFT,
    REQUESTS,
    RETRIES,
    ROUND_DROPPED,
    ROUND_FAILED,
    ROUND_PENDING,
    ROUND_PRIMARY,
    ROUND_RETRIES,
    ROUND_SHIFT,
    ROUND_SUCCESSFUL,
    ROUND_WAITING,
    SECOND_PEAK,
    STOPPED,
    SUCCESSFUL,
    TIMED_OUT,
    UNDEFINED,
    WAIT_MAX,
    WAIT_TOTAL,
    WINDOW_CALLS,
    WINDOW_DROPPED,
    WINDOW_REQUESTS,
)
from mc.kernel.queues import (
    AT_ONCE,
    FAILED_AT_ONCE,
    N_TO_SERVE,
    N_WAITING,
    NO_PLACE,
    NOTHING,
    SERVED,
    TIME_OVER,
    WAITING,
    add_call,
    next_decision,
    start_queue,
    start_waiting,
)
from mc.kernel.recovery import start_seconds, watch, write_recovery
from mc.kernel.workers import first_place, request_of, start_over, start_requests, start_workers

PASSED = -1
NO_RETRY = -1
NO_ROOM = -1


@inlined
def passes(draws, deadlines, budgets, breakers, tables, c, client, t, entry, row):
    """Send a call down the chain: the layer where it is rejected, or PASSED.

    It counts for every layer that makes it, unless it is rejected there; the calls of the innermost
    are counted as calls.
    """
    start_clocks(deadlines, tables, c, t, entry)
    outermost = maker_of(tables, c, entry)
    innermost = tables.scalars[c, C_LAYERS] - 1
    for i in range(outermost, innermost + 1):
        is_rejected = False
        if sees(budgets, tables, c, i):
            is_rejected = rejects(budgets, draws, tables, c, i, client, t, entry)
            # of the layers that make a retry the outermost alone retries; the others have received
            # something new; a chain's budget sees retries of the request
            again = i == outermost or i == tables.scalars[c, C_SEES]
            begins(budgets, tables, c, i, client, t, again and entry & ATTEMPT_MASK > 0)
        if i == innermost and not is_rejected:
            is_rejected = not permits(breakers, tables, c, client, t)
        if is_rejected:
            row[REJECTED] += 1
            return i
        if i < innermost:
            row[CALLS_OF_LAYER + i] += 1
    return PASSED


@inlined
def ended(workers, tables, c, t, entry, success, row):
    """Count a request that ends in round t."""
    start_over(workers, tables, t, entry)
    arrived = entry >> ROUND_SHIFT
    if not success:
        p = tables.scalars[c, C_PROFILE]
        row[DROPPED] += 1
        row[WINDOW_DROPPED] += (
            tables.profiles[p, P_WINDOW_START] <= arrived < tables.profiles[p, P_WINDOW_END]
        )
        return
    waited = t - arrived
    row[SUCCESSFUL] += 1
    row[WAIT_TOTAL] += waited
    row[WAIT_MAX] = max(row[WAIT_MAX], waited)
    row[LATE] += waited > tables.scalars[c, C_THRESHOLD]


@inlined
def succeeded(budgets, workers, tables, c, client, t, entry, row):
    """End a request whose call of round t succeeded."""
    for i in range(tables.scalars[c, C_LAYERS]):
        if sees(budgets, tables, c, i):
            ends(budgets, tables, c, i, client, t, entry, OK)
    ended(workers, tables, c, t, entry, True, row)


@inlined
def decide(draws, waits, deadlines, budgets, tables, c, client, t, entry, i, row):
    """Let layer i decide after its call failed in round t, and then those outside.

    Returns
    -------
    retry, due : int
        The call that one of them makes, and its round; NO_RETRY where all have given up.
    """
    while i >= 0:
        if sees(budgets, tables, c, i):
            ends(budgets, tables, c, i, client, t, entry, FAILED)
        if digit_of(tables, c, i, entry) + 1 < tables.tries[c, i]:
            retry = retry_of(tables, c, i, entry)
            if deadlines is None:
                if may_retry(budgets, tables, c, i, client, t, row):
                    return retry, t + wait(draws, waits, tables, c, i, retry)
            else:
                due = t + wait(draws, waits, tables, c, i, retry)
                over = out_of_time(deadlines, tables, c, i, retry, due)
                if over >= 0:
                    row[EXPIRED] += 1
                    for inner in range(over, i):
                        if sees(budgets, tables, c, inner):
                            ends(budgets, tables, c, inner, client, t, entry, GIVEN_UP)
                    i = over - 1  # its caller sees the failure, those between decide nothing
                    continue
                if may_retry(budgets, tables, c, i, client, t, row):
                    return retry, due
            row[DENIED] += 1
        i -= 1
    return NO_RETRY, 0


@inlined
def schedule(wheel, due, entry):
    """Put a retry on the wheel, if its slot has room."""
    slot = due & (wheel.n_waiting.size - 1)
    n = np.int64(wheel.n_waiting[slot])
    has_room = n < 1 << wheel.room_bits
    if has_room:
        wheel.entries[(slot << wheel.room_bits) + n] = entry
        wheel.n_waiting[slot] = n + 1
    return has_room


@inlined
def give_up_waiting(deadlines, budgets, tables, c, client, t, entry, row):
    """Give up a call that waits at the end of round t; the layer that decides then.

    If a layer's time is over that is its caller, otherwise the innermost, whose call timed out.
    """
    innermost = tables.scalars[c, C_LAYERS] - 1
    over = -1
    if deadlines is not None:
        over = out_of_time(deadlines, tables, c, innermost, entry, t + 1)
    if over < 0:
        row[TIMED_OUT] += 1
        return innermost
    row[EXPIRED] += 1
    for i in range(over, innermost + 1):
        if sees(budgets, tables, c, i):
            ends(budgets, tables, c, i, client, t, entry, GIVEN_UP)
    return over - 1


@inlined
def conclude(
    draws, waits, deadlines, budgets, breakers, workers, tables, c, wheel, client, t, entry,
    generation, layer, is_failure, is_over, row,
):  # fmt: skip
    """Decide what follows in round t from a call that PASSED, or was rejected at a layer.

    If it fails, the innermost layer decides, or that which rejected it, and then those outside;
    `is_over`: it still waits, and its caller gives it up.

    Returns
    -------
    n_failed, n_retries : int
        Whether it passed and failed; how many retries that makes, 1 or 0, or NO_ROOM on the wheel.
    """
    n_failed = 0
    if layer == PASSED:
        records(breakers, tables, c, client, t, is_failure, generation)
        if not is_failure:
            succeeded(budgets, workers, tables, c, client, t, entry, row)
            return 0, 0
        n_failed = 1
        layer = tables.scalars[c, C_LAYERS] - 1
        if is_over:
            layer = give_up_waiting(deadlines, budgets, tables, c, client, t, entry, row)
    retry, due = decide(draws, waits, deadlines, budgets, tables, c, client, t, entry, layer, row)
    if retry == NO_RETRY:
        ended(workers, tables, c, t, entry, False, row)
        return n_failed, 0
    if due < tables.n_rounds and not schedule(wheel, due, retry):
        return n_failed, NO_ROOM
    return n_failed, 1


@inlined
def called(wheel, workers, tables, slot, n_due, t, first, i):
    """The i-th call of a round: retries that are due, then the first calls of new requests."""
    if i < n_due:
        return wheel.entries[(slot << wheel.room_bits) + i]
    request = request_of(workers, tables, first, i - n_due)
    return (t << ROUND_SHIFT) | (request << REQUEST_SHIFT)


@inlined
def serve_from_queue(
    draws, waits, deadlines, budgets, breakers, clients, queue, workers, tables, c, wheel, t, slot,
    n_due, n_new, first, row,
):  # fmt: skip
    """Play the calls of a round where they may wait: first all come, then everything is decided.

    Returns
    -------
    status, n_calls, n_failed, pending : int
        Calls that reached the dependency, how many failed in this round, and by how many the
        retries that wait, for their round or in the queue, are more.
    """
    p = tables.scalars[c, C_PROFILE]
    capacity = np.int64(tables.capacities[p, t])
    n_calls, n_failed, pending = 0, 0, 0
    for i in range(n_due + n_new):
        entry = called(wheel, workers, tables, slot, n_due, t, first, i)
        client = client_of(clients, tables, c, entry)
        layer = passes(
            draws, deadlines, budgets, breakers, tables, c, client, t, entry, row
        )  # fmt: skip
        name = FAILED_AT_ONCE
        if layer == PASSED:
            row[RETRIES if i < n_due else PRIMARY] += 1
            n_calls += 1
            if queue.n[N_WAITING] < tables.scalars[c, C_QUEUE] + capacity:
                name = WAITING
                pending += i < n_due
            else:
                row[REFUSED] += 1
        place = add_call(queue, name, entry, generation_of(breakers, client), layer)
        if place == NO_PLACE:
            return PLACES, 0, 0, 0
        if name == WAITING:
            start_waiting(queue, deadlines, tables, c, t, place)
    row[QUEUE_PEAK] = max(row[QUEUE_PEAK], queue.n[N_WAITING])

    queue.n[N_TO_SERVE] = capacity
    while True:
        what, entry, generation, layer = next_decision(queue, tables, c, t, row)
        if what == NOTHING:
            return DONE, n_calls, n_failed, pending
        client = client_of(clients, tables, c, entry)
        if what != AT_ONCE:
            pending -= entry & ATTEMPT_MASK > 0
        is_failure = what != SERVED or fails(draws, tables, p, t, entry)
        failed, more = conclude(
            draws, waits, deadlines, budgets, breakers, workers, tables, c, wheel, client, t,
            entry, generation, layer, is_failure, what == TIME_OVER, row,
        )  # fmt: skip
        if more == NO_ROOM:
            return GROW, 0, 0, 0
        n_failed += failed
        pending += more


@compiled()
def replicate(
    draws, waits, deadlines, budgets, breakers, clients, queue, seconds, workers, tables, c, wheel,
    row, record,
):  # fmt: skip
    """Simulate one replication of one cell; give the status."""
    p = tables.scalars[c, C_PROFILE]
    window_start = tables.profiles[p, P_WINDOW_START]
    window_end = tables.profiles[p, P_WINDOW_END]
    has_after = window_start < window_end < tables.n_rounds
    innermost = tables.scalars[c, C_LAYERS] - 1
    row[: CALLS_OF_LAYER + innermost] = 0
    row[DRAIN] = UNDEFINED
    start_cell(draws)
    start_budgets(budgets, tables, c)
    start_breakers(breakers, tables, c)
    if queue is not None:
        row[REFUSED:RECOVERED] = 0
        start_queue(queue)
    if seconds is not None:
        start_seconds(seconds)
    start_workers(workers, tables)
    n_others = 0  # requests that are not of workers
    pending = 0  # requests that wait for a retry, which may be due after the end, or in the queue
    for t in range(tables.n_rounds):
        if t >= window_end and pending == 0 and row[DRAIN] == UNDEFINED:
            row[DRAIN] = t - window_end
        if wheel.stop[0]:
            return STOPPED

        n_new = arrivals(draws, tables, t)
        first = n_others
        n_others += n_new
        if n_others > first_place(tables):
            return REQUESTS
        n_new += start_requests(workers, tables, t, n_new)
        row[REQUEST_COUNT] += n_new
        draw_clients(clients, draws, workers, tables, c, t, first, n_new)
        slot = t & (wheel.n_waiting.size - 1)
        n_due = np.int64(wheel.n_waiting[slot])
        wheel.n_waiting[slot] = 0
        pending -= n_due
        for i in range(n_due + n_new):
            entry = called(wheel, workers, tables, slot, n_due, t, first, i)
            announce(budgets, clients, tables, c, t, entry)

        primary, retries, n_failed, dropped = row[PRIMARY], row[RETRIES], 0, row[DROPPED]
        successful = row[SUCCESSFUL]
        n_calls = 0  # that have reached the dependency
        if queue is not None:
            status, n_calls, n_failed, more = serve_from_queue(
                draws, waits, deadlines, budgets, breakers, clients, queue, workers, tables, c,
                wheel, t, slot, n_due, n_new, first, row,
            )  # fmt: skip
            if status != DONE:
                return status
            pending += more
        else:
            for i in range(n_due + n_new):
                entry = called(wheel, workers, tables, slot, n_due, t, first, i)
                client = client_of(clients, tables, c, entry)
                layer = passes(
                    draws, deadlines, budgets, breakers, tables, c, client, t, entry, row
                )  # fmt: skip
                is_failure = True
                if layer == PASSED:
                    row[RETRIES if i < n_due else PRIMARY] += 1
                    n_calls += 1
                    is_failure = n_calls > tables.capacities[p, t]
                    is_failure = is_failure or fails(draws, tables, p, t, entry)
                failed, more = conclude(
                    draws, waits, deadlines, budgets, breakers, workers, tables, c, wheel, client,
                    t, entry, generation_of(breakers, client), layer, is_failure, False, row,
                )  # fmt: skip
                if more == NO_ROOM:
                    return GROW
                n_failed += failed
                pending += more

        if seconds is not None:
            watch(seconds, tables, c, t, row)
        row[PEAK] = max(row[PEAK], n_calls)
        if window_start <= t < window_end:
            row[WINDOW_CALLS] += n_calls
            row[WINDOW_REQUESTS] += n_new
        if t >= window_end:
            row[SECOND_PEAK] = max(row[SECOND_PEAK], n_calls)
        if record is not None:
            record[ROUND_PRIMARY, t] = row[PRIMARY] - primary
            record[ROUND_RETRIES, t] = row[RETRIES] - retries
            record[ROUND_FAILED, t] = n_failed
            record[ROUND_DROPPED, t] = row[DROPPED] - dropped
            record[ROUND_PENDING, t] = pending
            record[ROUND_SUCCESSFUL, t] = row[SUCCESSFUL] - successful
            record[ROUND_WAITING, t] = 0
            if queue is not None:
                record[ROUND_WAITING, t] = queue.n[N_WAITING]

    row[CALLS] = row[PRIMARY] + row[RETRIES]
    row[IN_FLIGHT] = row[REQUEST_COUNT] - row[SUCCESSFUL] - row[DROPPED]
    if pending == 0 and row[DRAIN] == UNDEFINED:
        row[DRAIN] = tables.n_rounds - window_end
    if not has_after:
        row[SECOND_PEAK] = UNDEFINED
        row[DRAIN] = UNDEFINED
    if seconds is not None and row.size > RECOVERED:
        write_recovery(seconds, tables, c, row)
    leave_out(tables, c, row)
    return DONE


@compiled()
def leave_out(tables, c, row):
    """Leave out of a row what there is not in its cell."""
    if tables.scalars[c, C_DEADLINES] == NO_DEADLINE:
        row[EXPIRED] = UNDEFINED
    budgets = tables.scalars[c, C_BUDGETS]
    if budgets == CHAIN_BUDGET and tables.scalars[c, C_LIMIT_MASK] == 0:
        row[DENIED] = UNDEFINED
    can_reject = tables.scalars[c, C_BREAKER] != NO_BREAKER
    for i in range(tables.scalars[c, C_LAYERS]):
        can_reject |= tables.budgets[c, i, B_K] > 0
    if can_reject:
        return
    row[REJECTED] = UNDEFINED
    lasts = tables.scalars[c, C_QUEUED] == 1 or tables.scalars[c, C_CLOSED] == 1
    if row.size > RECOVERED and not lasts:
        row[RECOVERY] = UNDEFINED
        row[RECOVERED] = UNDEFINED


@compiled(entry=True)
def simulate_rounds(
    draws, waits, deadlines, budgets, breakers, clients, queue, seconds, workers, tables, cells,
    indices, wheel, counters, start, record,
):  # fmt: skip
    """Fill the rows of some cells, replication by replication.

    Parameters
    ----------
    draws : Philox or Lesson
        Which draws.
    waits : Decorrelated, Polly or None
        What the layers remember of their waits; None where a table says how long they are.
    deadlines : Deadlines or None
        When the calls of the layers began; None where there is no deadline.
    budgets : one of the classes of `budgets`, or None
        What budgets remember; None where a table says it, or there is none.
    breakers : CountWindow, InARow or None
        What breakers remember; None where there is none.
    clients : Clients or None
        Whose the requests are; None without budgets (but that of a table) and breakers.
    queue, seconds : Queue and Seconds, or None
        Who waits, and how the seconds went; None where no call waits (seconds: nor is
        rejected, nor do workers call).
    workers : Workers or None
        Who thinks; None without a closed loop.
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
        Where to begin: 0, or the replication that a GROW or PLACES named.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), or None
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, r : int
        DONE; or GROW, PLACES, REQUESTS or STOPPED and the replication in which it happened. Those
        before it stand.
    """
    for r in range(start, indices.size):
        start_replication(draws, tables, indices[r])
        for c in cells:
            rounds = None if record is None else record[r, c]
            status = replicate(
                draws, waits, deadlines, budgets, breakers, clients, queue, seconds, workers,
                tables, c, wheel, counters[r, c], rounds,
            )  # fmt: skip
            if status != DONE:
                return status, r
    return DONE, indices.size
