"""What the general loop asks of a generator of random numbers, and how Philox answers.

The lesson's generator answers in `lesson`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.delays import wait_by_word
from mc.kernel.draws import U, client_word, jitter_word, service_word, throttle_word
from mc.kernel.layout import INDEX_MASK, REQUEST_SHIFT, ROUND_SHIFT, CellTables, Stream
from mc.kernel.traffic import draw_arrivals
from mc.kernel.workers import first_place


def start_replication(draws, tables, index):
    """Begin the replication that has this index, or seed."""


def start_cell(draws):
    """Begin a cell of the replication."""


def arrivals(draws, tables, t):
    """How many requests arrive in round t."""


def fails(draws, tables, p, t, entry):
    """Whether a call that is served in round t fails all the same."""


def wait(draws, waits, tables, c, i, retry):
    """Rounds until a retry of layer i runs: 1 or more."""


def client_drawn(draws, t, j):
    """The word that decides which client request (t, j) belongs to."""


def throttle(draws, tables, entry, layer):
    """The word that decides whether a call is rejected at a layer."""


class Philox(NamedTuple):
    """Draws by purpose; the traffic is made once for all cells of a replication.

    Attributes
    ----------
    k0, k1 : uint64
        Low and high half of the seed.
    replication : ndarray of uint64, shape (1,)
        Its index.
    uniforms, arrivals, first
        As in `Traffic`.
    names : ndarray of int32, shape (W,)
        As in `Workers`.
    """

    k0: np.uint64
    k1: np.uint64
    replication: NDArray[np.uint64]
    uniforms: NDArray[np.uint64]
    arrivals: NDArray[np.int32]
    first: NDArray[np.int32]
    names: NDArray[np.int32]


def philox_draws(tables: CellTables, seed: int) -> Philox:
    """Room for the draws of one replication after another."""
    n_rounds = tables.n_rounds
    return Philox(
        U(seed & 0xFFFFFFFF),
        U(seed >> 32),
        np.zeros(1, np.uint64),
        np.empty((2, (n_rounds + 1) // 2), np.uint64),
        np.empty(n_rounds, np.int32),
        np.empty(n_rounds + 1, np.int32),
        np.zeros(tables.workers, np.int32),
    )


@compiled()
def _stream(draws):
    return Stream(draws.k0, draws.k1, draws.replication[0], 0)


@form_for(Philox, start_replication)
def _(draws, tables, index):
    draws.replication[0] = U(index)
    draw_arrivals(_stream(draws), tables, draws.uniforms, draws.arrivals, draws.first)


@form_for(Philox, start_cell)
def _(draws):
    pass


@form_for(Philox, arrivals)
def _(draws, tables, t):
    return np.int64(draws.arrivals[t])


@compiled()
def _named(draws, tables, entry):
    """A call by the running number that its request would have: that of a worker has a place."""
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    place = request - first_place(tables)
    if place < 0:
        return entry
    number = np.int64(draws.first[entry >> ROUND_SHIFT]) + draws.names[place]
    return entry + ((number - request) << REQUEST_SHIFT)


@form_for(Philox, fails)
def _(draws, tables, p, t, entry):
    failure = tables.failures[p, t]
    if failure == U(0):
        return False
    return service_word(_stream(draws), draws.first, _named(draws, tables, entry)) < failure


@form_for(Philox, wait)
def _(draws, waits, tables, c, i, retry):
    # the draw of the wait before attempt n has number n - 1: that of the attempt before, if no
    # layer has given up early
    word = jitter_word(_stream(draws), draws.first, _named(draws, tables, retry) - 1)
    return wait_by_word(waits, word, tables, c, i, retry)


@form_for(Philox, client_drawn)
def _(draws, t, j):
    return client_word(_stream(draws), t, j)


@form_for(Philox, throttle)
def _(draws, tables, entry, layer):
    return throttle_word(_stream(draws), draws.first, _named(draws, tables, entry), layer)
