"""Workers of a closed loop: each makes a request, waits until it ends, thinks, and starts over.

Workers are alike, so only their number is kept of those that think. A request of theirs takes one
of as many places as there are workers, and has its number in place of a running one: memory grows
with the workers, not with the run. Draws know it by its name (t, j); those of a round come after
all others of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.layout import INDEX_MASK, REQUEST_SHIFT, CellTables


class Workers(NamedTuple):
    """W workers.

    Attributes
    ----------
    starting : ndarray of int32, shape (T,)
        How many start over in each round.
    free : ndarray of int32, shape (W,)
        Places without a request, a stack.
    started : ndarray of int32, shape (W,)
        Places of those that have started in this round, in the order of their requests.
    names : ndarray of int32, shape (W,)
        Of each place: the index of its request among those of its round.
    n : ndarray of int64, shape (2,)
        How many places are free; requests of this round that are not theirs.
    """

    starting: NDArray[np.int32]
    free: NDArray[np.int32]
    started: NDArray[np.int32]
    names: NDArray[np.int32]
    n: NDArray[np.int64]


_FREE = 0
_OTHERS = 1


def empty_workers(tables: CellTables, names: NDArray[np.int32]) -> Workers:
    """Room for the workers of one cell after another."""
    w = tables.workers
    started, free = np.zeros(w, np.int32), np.zeros(w, np.int32)
    starting = np.zeros(tables.n_rounds, np.int32)
    return Workers(starting, free, started, names, np.zeros(2, np.int64))


@compiled()
def first_place(tables):
    """The number of the first place, after those of all other requests."""
    return tables.n_requests - tables.workers


def start_workers(workers, tables):
    """Begin a cell: all start in round 0."""


def start_requests(workers, tables, t, n_others):
    """Let those start whose round this is; give their number."""


def request_of(workers, tables, first, j):
    """The number of the j-th new request of a round, whose first has the number `first`."""


def start_over(workers, tables, t, entry):
    """Let the worker whose request has ended in round t think."""


@form_for(None, start_workers)
def _(workers, tables):
    pass


@form_for(None, start_requests)
def _(workers, tables, t, n_others):
    return 0


@form_for(None, request_of)
def _(workers, tables, first, j):
    return first + j


@form_for(None, start_over)
def _(workers, tables, t, entry):
    pass


@form_for(Workers, start_workers)
def _(workers, tables):
    workers.starting[:] = 0
    workers.starting[0] = tables.workers
    for place in range(tables.workers):
        workers.free[place] = place
    workers.n[_FREE] = tables.workers


@form_for(Workers, start_requests)
def _(workers, tables, t, n_others):
    n = np.int64(workers.starting[t])
    for i in range(n):
        workers.n[_FREE] -= 1
        place = workers.free[workers.n[_FREE]]
        workers.started[i] = place
        workers.names[place] = n_others + i
    workers.n[_OTHERS] = n_others
    return n


@form_for(Workers, request_of)
def _(workers, tables, first, j):
    if j < workers.n[_OTHERS]:
        return first + j
    return first_place(tables) + workers.started[j - workers.n[_OTHERS]]


@form_for(Workers, start_over)
def _(workers, tables, t, entry):
    place = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - first_place(tables)
    if place < 0:
        return
    workers.free[workers.n[_FREE]] = place
    workers.n[_FREE] += 1
    following = t + 1 + tables.think
    if following < tables.n_rounds:
        workers.starting[following] += 1
