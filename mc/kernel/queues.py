"""The calls that wait before the dependency, and what is given up while it waits.

A call takes a place, and a place stands in one of three lists:

    WAITING          the queue: first come, first served
    FAILED_AT_ONCE   rejected or refused in this round, decided when all its calls have come
    FREE             no call

A call that its caller will give up stands in a second list, with all that are given up at the end
of the same round t: that of slot ``t % S``. Lists are rings of places, the one before and the one
after, whose head stands behind the places; so whatever is done takes as long in a long queue as in
a short one. Where no place is free the loop gives up the replication, and it is started again with
more: memory grows with the calls that wait, not with the run.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled
from mc.kernel.chain import last_round
from mc.kernel.layout import C_CANCEL, C_TIMEOUT, NEVER, WASTED, CellTables


class Queue(NamedTuple):
    """Places for calls.

    Attributes
    ----------
    calls : ndarray of int64, shape (N, 3)
        Of each place: the call (NOBODY: its caller has given it up), the generation of the breaker
        in which it passed, and the layer where it was rejected.
    line : ndarray of int32, shape (N + 3, 2)
        Its neighbours in its list; those of the heads follow the N places.
    clock : ndarray of int32, shape (N + S, 2)
        Its neighbours among those that are given up in the same round, or itself.
    n : ndarray of int64, shape (2,)
        How many calls wait, and how many are still to be served in the round.
    """

    calls: NDArray[np.int64]
    line: NDArray[np.int32]
    clock: NDArray[np.int32]
    n: NDArray[np.int64]


N_WAITING: Final = 0
N_TO_SERVE: Final = 1

WAITING: Final = 0
FAILED_AT_ONCE: Final = 1
FREE: Final = 2

NOBODY: Final = -1
NO_PLACE: Final = -1

NOTHING: Final = 0
AT_ONCE: Final = 1
SERVED: Final = 2
TIME_OVER: Final = 3
"""What there is to decide of a call: it was rejected or refused, served, or given up."""

ENTRY: Final = 0
GENERATION: Final = 1
LAYER: Final = 2

_BEFORE: Final = 0
_AFTER: Final = 1


def empty_queue(tables: CellTables, cells: NDArray[np.int64], n_places: int) -> Queue:
    """A queue without calls."""
    limits = np.append(tables.deadlines[cells], tables.scalars[cells, C_TIMEOUT])
    longest = int(limits.max(where=limits < NEVER, initial=0))
    n_slots = 1 << min(longest, tables.n_rounds).bit_length()
    line, free = _alone(n_places + 3), n_places + FREE
    line[:n_places] += np.array([-1, 1], np.int32)
    line[0, _BEFORE] = line[n_places - 1, _AFTER] = free
    line[free] = n_places - 1, 0
    return Queue(
        calls=np.empty((n_places, 3), np.int64),
        line=line,
        clock=_alone(n_places + n_slots),
        n=np.zeros(2, np.int64),
    )


def _alone(n: int) -> NDArray[np.int32]:
    """Lists of one each."""
    return np.repeat(np.arange(n, dtype=np.int32), 2).reshape(-1, 2)


@compiled()
def append(links, head, place):
    """Put a place at the end of a list."""
    last = links[head, _BEFORE]
    links[last, _AFTER] = place
    links[place, _BEFORE] = last
    links[place, _AFTER] = head
    links[head, _BEFORE] = place


@compiled()
def take_out(links, place):
    """Take a place out of its list, so that it stands alone, if it does not already."""
    before, after = links[place, _BEFORE], links[place, _AFTER]
    links[before, _AFTER] = after
    links[after, _BEFORE] = before
    links[place, _BEFORE] = place
    links[place, _AFTER] = place


@compiled()
def first_of(queue, name):
    """The first place of a list; NO_PLACE if there is none."""
    n_places = queue.calls.shape[0]
    place = np.int64(queue.line[n_places + name, _AFTER])
    return place if place < n_places else NO_PLACE


@compiled()
def add_call(queue, name, entry, generation, layer):
    """Put a call into a list; give its place, NO_PLACE if none is free."""
    n_places = queue.calls.shape[0]
    place = np.int64(queue.line[n_places + FREE, _BEFORE])
    if place >= n_places:
        return NO_PLACE
    take_out(queue.line, place)
    append(queue.line, n_places + name, place)
    queue.calls[place, ENTRY] = entry
    queue.calls[place, GENERATION] = generation
    queue.calls[place, LAYER] = layer
    queue.n[N_WAITING] += name == WAITING
    return place


@compiled()
def free_place(queue, place, name):
    """Let a call go from its list."""
    take_out(queue.line, place)
    append(queue.line, queue.calls.shape[0] + FREE, place)
    queue.n[N_WAITING] -= name == WAITING


@compiled()
def start_waiting(queue, deadlines, tables, c, t, place):
    """Note in which round the caller will give a call up that came in round t."""
    end = min(
        t + tables.scalars[c, C_TIMEOUT] - 1,
        last_round(deadlines, tables, c, queue.calls[place, ENTRY]),
    )
    if end < tables.n_rounds:
        append(queue.clock, _slot(queue, end), place)


@compiled()
def _slot(queue, t):
    n_places = queue.calls.shape[0]
    return n_places + (t & (queue.clock.shape[0] - n_places - 1))


@compiled()
def next_decision(queue, tables, c, t, row):
    """Take the call that is decided next in round t.

    Calls that failed at once come first, then those that are served, in the order of the queue,
    then those whose callers give up at the end of the round, the oldest first. Calls that are
    served in vain are counted on the way.

    Returns
    -------
    what, entry, generation, layer : int
        NOTHING, AT_ONCE, SERVED or TIME_OVER; the call, and what was noted when it came.
    """
    n_places = queue.calls.shape[0]
    place = first_of(queue, FAILED_AT_ONCE)
    if place != NO_PLACE:
        free_place(queue, place, FAILED_AT_ONCE)
        return AT_ONCE, *_noted(queue, place)
    while queue.n[N_TO_SERVE] > 0 and queue.n[N_WAITING] > 0:
        queue.n[N_TO_SERVE] -= 1
        place = first_of(queue, WAITING)
        free_place(queue, place, WAITING)
        if queue.calls[place, ENTRY] != NOBODY:
            take_out(queue.clock, place)
            return SERVED, *_noted(queue, place)
        row[WASTED] += 1
    place = np.int64(queue.clock[_slot(queue, t), _AFTER])
    if place >= n_places:
        return NOTHING, NOBODY, 0, 0
    noted = _noted(queue, place)
    take_out(queue.clock, place)
    queue.calls[place, ENTRY] = NOBODY
    if tables.scalars[c, C_CANCEL] == 1:
        free_place(queue, place, WAITING)
    return TIME_OVER, *noted


@compiled()
def _noted(queue, place):
    return queue.calls[place, ENTRY], queue.calls[place, GENERATION], queue.calls[place, LAYER]


@compiled()
def start_queue(queue):
    """Begin a cell: let go of all calls of the one before."""
    for name in (WAITING, FAILED_AT_ONCE):
        place = first_of(queue, name)
        while place != NO_PLACE:
            take_out(queue.clock, place)
            free_place(queue, place, name)
            place = first_of(queue, name)
