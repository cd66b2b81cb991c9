"""What the cells of a block have in common in a replication: the traffic, and where it can fail.

Marks
-----
As long as no retry is pending, nothing happens in a round whose first calls are all served and
succeed. The others have a mark: bits 0 to 3 say which of its first four requests would fail though
served; `MANY` says that more arrive than are served, or than there are bits for. A marked round in
which no call fails after all does no harm.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mc.kernel.cache import compiled, inlined
from mc.kernel.draws import (
    U,
    arrivals_block,
    draw_jitter,
    draw_service,
    jitter_place,
    keep,
    service_block,
    service_place,
    trailing_zeros,
    wide_vectors,
)
from mc.kernel.layout import (
    DONE,
    P_CAN_FAIL,
    P_WINDOW_END,
    REQUEST_SHIFT,
    REQUESTS,
)

MANY: Final = 1 << 4

_U32: Final = np.uint64(32)
_U52: Final = np.uint64(52)


@compiled()
def draw_traffic(tables, traffic, stream, jitter, service):
    """Draw what all cells have in common in a replication; give the status."""
    n_rounds = tables.n_rounds
    n_requests = draw_arrivals(
        stream, n_rounds, tables.thresholds, tables.guide,
        traffic.uniforms, traffic.arrivals, traffic.first,
    )  # fmt: skip
    if n_requests > tables.n_requests:
        return REQUESTS
    n_candidates = 0
    if traffic.worst > U(0):
        n_candidates = _draw_first_service(n_rounds, traffic, stream)
        _draw_ahead_of_failures(n_candidates, traffic, stream, jitter, service)
    most = _most(traffic.arrivals)
    for p in range(tables.profiles.shape[0]):
        _mark_rounds(p, n_candidates, tables, traffic)
        traffic.most[p, 0] = most
        traffic.most[p, 1] = _most(traffic.arrivals[tables.profiles[p, P_WINDOW_END] :])
    return DONE


@compiled()
def draw_arrivals(stream, n_rounds, thresholds, guide, uniforms, arrivals, first):
    """Draw the arrivals of each round and number their first requests; give their sum.

    The guide names, for the 12 high bits of a uniform, the count to start from. Few of its 4096
    steps hold a threshold, so the search that follows ends at once and its branch is predicted.
    """
    wide_vectors()
    even, odd = uniforms[0], uniforms[1]
    for i in range(even.size):  # nothing loops in this loop, so it becomes SIMD code
        w0, w1, w2, w3 = arrivals_block(stream, i)
        even[i] = (w0 << _U32) | w1
        odd[i] = (w2 << _U32) | w3
    total = 0
    for t in range(n_rounds):
        u = uniforms[t & 1, t >> 1]
        k = np.int64(guide[u >> _U52])
        while k < thresholds.size and u >= thresholds[k]:
            k += 1
        arrivals[t] = k
        first[t] = total
        total += k
    first[n_rounds] = total
    return total


@compiled()
def _most(arrivals):
    most = np.int32(0)
    for t in range(arrivals.size):
        most = max(most, arrivals[t])
    return np.int64(most)


# --- marks ---------------------------------------------------------------------------------------


@compiled()
def _draw_first_service(n_rounds, traffic, stream):
    """List the rounds in which a first call may fail though served, and keep its SERVICE words.

    Of the first attempts of the first four requests; a round with more is listed, too. All rounds
    are drawn, for that costs less than to leave some out, and the words of those that are listed
    are drawn again, for that costs less than to keep them all.
    """
    wide_vectors()
    arrivals, worst, may_fail, words = (
        traffic.arrivals, traffic.worst, traffic.may_fail, traffic.first_service
    )  # fmt: skip
    candidates, listed, drawn = traffic.candidates, traffic.listed, traffic.drawn
    for t in range(n_rounds):
        w0, w1, w2, w3 = service_block(stream, t, 0, 0)
        n = arrivals[t]
        may_fail[t] = (
            np.uint8((n > 0) & (w0 < worst))
            | np.uint8((n > 1) & (w1 < worst))
            | np.uint8((n > 2) & (w2 < worst))
            | np.uint8((n > 3) & (w3 < worst))
            | np.uint8(n > 4)
        )
    n_candidates = _list_marked(traffic.may_fail_by_eight, candidates)
    for i in range(n_candidates):
        listed[0, i], listed[1, i] = candidates[i], 0
    draw_service(stream, n_candidates, listed, 0, drawn)
    for i in range(n_candidates):
        for j in range(4):
            words[j, candidates[i]] = drawn[j, i]
    return n_candidates


@compiled()
def _list_marked(by_eight, rounds):
    """List the rounds that have a mark; they are looked at by eight, since most have none."""
    n = 0
    for i in range(by_eight.size):
        word = by_eight[i]
        while word != U(0):
            byte = trailing_zeros(word) >> U(3)
            rounds[U(n)] = 8 * i + np.int64(byte)
            word &= ~(U(0xFF) << (U(8) * byte))
            n += 1
    return n


@compiled()
def _mark_rounds(p, n_candidates, tables, traffic):
    """Mark and list the rounds of a profile in which a first call may fail."""
    arrivals, words = traffic.arrivals, traffic.first_service
    marks, capacity, failures = traffic.marks[p], tables.capacities[p], tables.failures[p]
    for t in range(tables.n_rounds):
        marks[t] = np.uint8(MANY) if arrivals[t] > capacity[t] else np.uint8(0)
    if tables.profiles[p, P_CAN_FAIL] != 0:
        for i in range(n_candidates):
            t = traffic.candidates[i]
            mark = np.int64(MANY) if arrivals[t] > 4 else 0
            for j in range(4):
                mark |= np.int64((arrivals[t] > j) & (U(words[j, t]) < failures[t])) << j
            marks[t] |= np.uint8(mark)
    n_busy = _list_marked(traffic.marks_by_eight[p], traffic.busy[p])
    traffic.busy[p, n_busy] = tables.n_rounds


# --- draws together, ahead of their need ---------------------------------------------------------


@compiled()
def _draw_ahead_of_failures(n_candidates, traffic, stream, jitter, service):
    """Draw for the requests whose first call may fail its first waits, and its second service."""
    listed, n = traffic.listed, np.int64(0)  # not a literal, for which all would compile anew
    for i in range(n_candidates):
        t = traffic.candidates[i]
        for j in range(4):
            listed[0, n], listed[1, n] = t, j
            fails = U(traffic.first_service[j, t]) < traffic.worst
            n += np.int64(fails & (j < traffic.arrivals[t]))
    draw_jitter(stream, n, listed, 0, traffic.drawn)
    for i in range(n):
        _keep_jitter(
            i, np.int64(traffic.first[listed[0, i]]) + listed[1, i], traffic, stream, jitter
        )
    draw_service(stream, n, listed, 1, traffic.drawn)
    for i in range(n):
        block = traffic.drawn[0, i], traffic.drawn[1, i], traffic.drawn[2, i], traffic.drawn[3, i]
        request = np.int64(traffic.first[listed[0, i]])
        place, tag = service_place(stream, service, (request << REQUEST_SHIFT) + 1, 0)
        keep(service, place, tag, block)


@compiled()
def list_requests(begin, end, traffic):
    """List all requests of some rounds, four to a round without a branch; give their number."""
    listed, arrivals, n = traffic.listed, traffic.arrivals, 0
    for t in range(begin, end):
        for j in range(4):
            listed[0, U(n + j)] = t
            listed[1, U(n + j)] = j
        for j in range(4, arrivals[U(t)]):
            listed[0, U(n + j)] = t
            listed[1, U(n + j)] = j
        n += arrivals[U(t)]
    return n


@compiled()
def draw_ahead_in_window(begin, end, traffic, stream, jitter):
    """Draw the first JITTER block of every request of some rounds.

    Nearly all of them are needed where the dependency serves less than arrives.
    """
    n = list_requests(begin, end, traffic)
    draw_jitter(stream, n, traffic.listed, 0, traffic.drawn)
    for i in range(n):
        _keep_jitter(i, np.int64(traffic.first[begin]) + i, traffic, stream, jitter)


@inlined
def _keep_jitter(i, request, traffic, stream, jitter):
    block = traffic.drawn[0, i], traffic.drawn[1, i], traffic.drawn[2, i], traffic.drawn[3, i]
    place, tag = jitter_place(stream, jitter, request << REQUEST_SHIFT)
    keep(jitter, place, tag, block)
