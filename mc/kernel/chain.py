"""The layers of a chain: which of them makes an attempt, which retries, whose time is over.

The attempts of a request have numbers in mixed radix, with one digit for each layer, the innermost
layer's last: ``n = (d[0] * tries[1] + d[1]) * tries[2] + d[2]``. The stride of a layer is the value
of its digit, the product of the tries of the layers inside. Layer i makes attempt n itself if its
stride divides n; its retry raises its digit by 1 and sets those inside to 0. Where layers gave up
before their attempts were used up, n jumps over numbers that never run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.layout import (
    ATTEMPT_MASK,
    C_CHAIN,
    C_LAYERS,
    INDEX_MASK,
    NEVER,
    REQUEST_SHIFT,
    CellTables,
)


@compiled()
def digit_of(tables, c, i, entry):
    """The attempt of layer i, from 0, that a call belongs to."""
    # a division takes as long as all else that is done for a call: none where it changes nothing
    n, stride = entry & ATTEMPT_MASK, tables.strides[c, i]
    if stride > 1:
        n //= stride
    return n if i == 0 else n % tables.tries[c, i]


@compiled()
def retry_of(tables, c, i, entry):
    """The call that layer i makes when it retries after a failed call."""
    n, stride = entry & ATTEMPT_MASK, tables.strides[c, i]
    return entry + 1 if stride == 1 else entry - n + (n // stride + 1) * stride


@compiled()
def layers_left(tables, c, attempt):
    """How many layers have attempts left when an attempt has failed."""
    n = 0
    for i in range(tables.scalars[c, C_LAYERS]):
        n += np.int64(digit_of(tables, c, i, attempt) + 1 < tables.tries[c, i])
    return n


@compiled()
def maker_of(tables, c, entry):
    """The outermost layer that itself makes a call."""
    return np.int64(tables.makers[tables.scalars[c, C_CHAIN], entry & ATTEMPT_MASK])


# --- deadlines -----------------------------------------------------------------------------------


class Deadlines(NamedTuple):
    """Layers give up when their time is over.

    Attributes
    ----------
    started : ndarray of int32, shape (n_requests, L)
        The round of the first attempt of what each layer works on.
    """

    started: NDArray[np.int32]


def empty_deadlines(tables: CellTables) -> Deadlines:
    """Room for the requests of one replication after another."""
    return Deadlines(np.empty((tables.n_requests, tables.tries.shape[1]), np.int32))


def start_clocks(deadlines, tables, c, t, entry):
    """Begin the time of the layers for which a call of round t is the first of what they do."""


@form_for(None, start_clocks)
def _(deadlines, tables, c, t, entry):
    pass


@form_for(Deadlines, start_clocks)
def _(deadlines, tables, c, t, entry):
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    is_retry = entry & ATTEMPT_MASK > 0  # then the layer that makes it has begun before
    for i in range(maker_of(tables, c, entry) + is_retry, tables.scalars[c, C_LAYERS]):
        deadlines.started[request, i] = t


@compiled()
def out_of_time(deadlines, tables, c, i, retry, due):
    """The outermost layer, down to i, whose time is over when a retry runs; -1 if none is."""
    request = (retry & INDEX_MASK) >> REQUEST_SHIFT
    for outer in range(i + 1):
        if due - deadlines.started[request, outer] > tables.deadlines[c, outer]:
            return outer
    return -1


def last_round(deadlines, tables, c, entry):
    """The round at whose end a waiting call is given up for a deadline; NEVER without one."""


@form_for(None, last_round)
def _(deadlines, tables, c, entry):
    return NEVER


@form_for(Deadlines, last_round)
def _(deadlines, tables, c, entry):
    request, last = (entry & INDEX_MASK) >> REQUEST_SHIFT, NEVER
    for i in range(tables.scalars[c, C_LAYERS]):
        if tables.deadlines[c, i] < NEVER:
            last = min(last, deadlines.started[request, i] + tables.deadlines[c, i])
    return last
