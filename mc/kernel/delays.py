"""How long a layer waits before it retries: by a table, or by what it remembers of its last wait.

Delays are exact, in ticks of 2**-32 rounds, made of one 32-bit word (u = word / 2**32). Jitters
whose delay is ``offset + u * width`` are a table by the number of the attempt. With two others, x'
the delay before, F' the position before, both of one call of one layer, the delay is

    decorrelated   min(cap, base + u * (max(base, 3 x') - base))     x' = base at first
    polly          min(cap, F(n, u) - F')                            F' = 0 at first

and the retry runs ``max(1, ceil(delay))`` rounds after the failed attempt. F is a table, see
`CellTables.polly`, with a straight line between two entries.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.chain import digit_of
from mc.kernel.draws import U, scaled, wait_of
from mc.kernel.layout import (
    ATTEMPT_MASK,
    BY_TABLE,
    C_FIRST_WAIT,
    C_WAITS,
    DECORRELATED,
    INDEX_MASK,
    POLLY_STEPS,
    REQUEST_SHIFT,
    CellTables,
)

_STEP_SHIFT: Final = 33 - POLLY_STEPS.bit_length()
_REST_MASK: Final = (1 << _STEP_SHIFT) - 1


class Decorrelated(NamedTuple):
    """Each wait depends on the one before.

    Attributes
    ----------
    delays : ndarray of int64, shape (n_requests, L)
        The last delay of each layer.
    """

    delays: NDArray[np.int64]


class Polly(NamedTuple):
    """Each wait goes on from where the one before ended on a curve.

    Attributes
    ----------
    positions : ndarray of int64, shape (n_requests, L)
        Where the last wait of each layer ended.
    """

    positions: NDArray[np.int64]


def empty_waits(tables: CellTables, jitter: int) -> Decorrelated | Polly | None:
    """Room for what the layers remember of each request."""
    if jitter == BY_TABLE:
        return None
    memory = np.empty((tables.n_requests, tables.tries.shape[1]), np.int64)
    return Decorrelated(memory) if jitter == DECORRELATED else Polly(memory)


def wait_by_word(waits, word, tables, c, i, retry):
    """Rounds until a retry of layer i runs, by the word that is drawn for it."""


@form_for(None, wait_by_word)
def _(waits, word, tables, c, i, retry):
    b, n = tables.scalars[c, C_WAITS], (retry & ATTEMPT_MASK) - 1
    return wait_of(word, tables.widths[b, n], tables.offsets[b, n])


@form_for(Decorrelated, wait_by_word)
def _(waits, word, tables, c, i, retry):
    b, n = tables.scalars[c, C_WAITS], (retry & ATTEMPT_MASK) - 1
    request = (retry & INDEX_MASK) >> REQUEST_SHIFT
    base, cap = np.int64(tables.offsets[b, n]), np.int64(tables.widths[b, n])
    is_first = digit_of(tables, c, i, retry) == 1
    if is_first and tables.scalars[c, C_FIRST_WAIT] > 0:
        waits.delays[request, i] = base
        return tables.scalars[c, C_FIRST_WAIT]
    before = base if is_first else waits.delays[request, i]
    delay = min(cap, base + np.int64(scaled(word, U(max(base, 3 * before) - base))))
    waits.delays[request, i] = delay
    return _rounds_up(delay)


@form_for(Polly, wait_by_word)
def _(waits, word, tables, c, i, retry):
    b, n = tables.scalars[c, C_WAITS], (retry & ATTEMPT_MASK) - 1
    request = (retry & INDEX_MASK) >> REQUEST_SHIFT
    cap = np.int64(tables.widths[b, n])
    is_first = digit_of(tables, c, i, retry) == 1
    if is_first and tables.scalars[c, C_FIRST_WAIT] > 0:
        waits.positions[request, i] = 0
        return tables.scalars[c, C_FIRST_WAIT]
    before = 0 if is_first else waits.positions[request, i]
    curve = tables.polly[tables.offsets[b, n]]
    step = word >> U(_STEP_SHIFT)
    rest = (word & U(_REST_MASK)) << U(32 - _STEP_SHIFT)  # a share of the step in 2**-32
    position = curve[step] + np.int64(scaled(rest, U(curve[step + U(1)] - curve[step])))
    waits.positions[request, i] = position
    return _rounds_up(min(cap, position - before))


@compiled()
def _rounds_up(delay):
    return max(1, (delay + 0xFFFFFFFF) >> 32)
