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
    Stream,
)

MANY: Final = 1 << 4

_U32: Final = np.uint64(32)
_U52: Final = np.uint64(52)


@compiled()
def draw_traffic(tables, traffic, stream, jitter, service):
    """Draw what all cells have in common in a replication; give the status."""
    n_rounds = tables.n_rounds
    n_requests = draw_arrivals(stream, tables, traffic.uniforms, traffic.arrivals, traffic.first)
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
def draw_arrivals(stream, tables, uniforms, arrivals, first):
    """Draw the arrivals of each round and number their first requests; give their sum."""
    draw_uniforms(stream, uniforms)
    if tables.rates.size == 0:
        return _by_guide(tables, uniforms, arrivals, first)
    return _by_search(tables, np.int64(stream.replication), uniforms, arrivals, first)


@inlined
def _number(t, k, total, tables, arrivals, first):
    """Let k requests arrive in round t, and those that are known, after so many; how many then."""
    if tables.known.size > 0:
        k += tables.known[t]
    arrivals[t] = k
    first[t + 1] = total + k
    return total + k


@compiled()
def draw_uniforms(stream, uniforms):
    """Draw the uniforms of all rounds."""
    wide_vectors()
    even, odd = uniforms[0], uniforms[1]
    for i in range(even.size):  # nothing loops in this loop, so it becomes SIMD code
        w0, w1, w2, w3 = arrivals_block(stream, i)
        even[i] = (w0 << _U32) | w1
        odd[i] = (w2 << _U32) | w3


@compiled()
def _by_guide(tables, uniforms, arrivals, first):
    """Make arrivals of a constant rate; give their sum.

    The guide names, for the 12 high bits of a uniform, the count to start from. Few of its 4096
    steps hold a threshold, so the search that follows ends at once and its branch is predicted.
    """
    thresholds, guide, fewest = tables.thresholds, tables.guide, tables.fewest
    first[0] = total = 0
    for t in range(tables.n_rounds):
        u = uniforms[t & 1, t >> 1]
        k = np.int64(guide[u >> _U52])
        while k < thresholds.size and u >= thresholds[k]:
            k += 1
        total = _number(t, fewest + k, total, tables, arrivals, first)
    return total


# --- rates that vary -----------------------------------------------------------------------------
# Each round has a rate of its own, and a table of thresholds for each would have no bounds. There
# are tables for 256 rates among them, where these are small. Arrivals are monotone in the rate, so
# where the next lower and the next higher of these rates have the same number, it is that. Else,
# and for large rates, the number is searched from the mean on, with probabilities as doubles. That
# takes about as many steps as there are standard deviations, little beside what follows from so
# many arrivals. It is exact where the uniform is further from both thresholds than any error of
# theirs; of the others, about one of 10**9, `undecided_rounds` makes a list before anything is
# simulated, and whoever calls the kernel decides them by whole numbers.
#
# Measured, ns a round: 2 constant; 5 for a ramp from 0.5 to 2, of which 0.6 % are searched (34 all
# of them); 95 for one from 50 to 200, 130 for one from 4000 to 6000.

_MARGIN: Final = 2.0**-32
_UNDECIDED: Final = -1
_U1: Final = np.uint64(1)
_U56: Final = np.uint64(56)
_LAST: Final = np.uint64(2**64 - 1)


@compiled()
def _search(u, rate, below, equal):
    """Poisson arrivals by inversion, from P(N < k) and P(N = k) on; or _UNDECIDED.

    Devroye 1986, "Non-Uniform Random Variate Generation", section III.2.2: sequential search from
    the mode.
    """
    x = np.float64(u) * 2.0**-64
    k = np.int64(rate)
    while x < below and k > 0:
        equal *= k / rate
        k -= 1
        below -= equal
    while x >= below + equal and equal > 0.0:
        below += equal
        k += 1
        equal *= rate / k
    is_sure = (k == 0 or x - below > _MARGIN) and below + equal - x > _MARGIN
    return k if is_sure else _UNDECIDED


@compiled()
def _arrivals_in(tables, t, u):
    """Arrivals of a round, or _UNDECIDED."""
    if tables.near.size > 0 and u != _LAST:
        near = U(tables.near[U(t)])
        a, k = near >> _U1, U(0)
        k += U(tables.step_guides[a, u >> _U56])
        while u >= tables.steps[a, k]:
            k += _U1
        if near & _U1 or u < tables.steps[a + _U1, k]:
            return np.int64(k)
    rate = tables.rates[t]
    return _search(u, rate, tables.at_mean[0, t], tables.at_mean[1, t]) if rate > 0.0 else 0


@compiled()
def _by_search(tables, replication, uniforms, arrivals, first):
    """Make arrivals of rates that vary; give their sum."""
    first[0] = total = 0
    for t in range(tables.n_rounds):
        k = _arrivals_in(tables, t, uniforms[t & 1, t >> 1])
        if k == _UNDECIDED:
            for i in range(tables.decided.shape[0]):
                if (tables.decided[i, 0] == replication) & (tables.decided[i, 1] == t):
                    k = tables.decided[i, 2]
        total = _number(t, k, total, tables, arrivals, first)
    return total


@compiled(entry=True)
def undecided_rounds(tables, k0, k1, replications, uniforms, found):
    """List the replication, round and uniform where doubles cannot decide.

    Parameters
    ----------
    tables : CellTables
        With rates that vary.
    k0, k1 : uint64
        Low and high half of the seed.
    replications : ndarray of int64, shape (R,)
        Replication indices.
    uniforms : ndarray of uint64, shape (2, T / 2)
        Room to work in.
    found : ndarray of uint64, shape (F, 3)
        Output.

    Returns
    -------
    int
        How many there are; only F of them are listed.
    """
    n = 0
    for r in range(replications.size):
        draw_uniforms(Stream(k0, k1, U(replications[r]), 0), uniforms)
        for t in range(tables.n_rounds):
            u = uniforms[t & 1, t >> 1]
            if _arrivals_in(tables, t, u) == _UNDECIDED:
                if n < found.shape[0]:
                    found[n, 0], found[n, 1], found[n, 2] = U(replications[r]), U(t), u
                n += 1
    return n


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
