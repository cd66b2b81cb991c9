"""The lesson's own generator, in the general loop.

One stream for everything, consumed call by call: nothing can be drawn ahead or shared.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.generators import arrivals, fails, start_cell, start_replication, wait
from mc.kernel.layout import ATTEMPT_MASK, C_WAITS

# Park, Miller and Stockmeyer 1993, "Technical correspondence", Communications of the ACM 36(7)
_MINSTD_A: Final = 48271
_MINSTD_M: Final = 2147483647


class Lesson(NamedTuple):
    """A stream for each replication; every cell starts it anew.

    Attributes
    ----------
    seed, state : ndarray of int64, shape (1,)
        Where the stream starts, and where it is.
    """

    seed: NDArray[np.int64]
    state: NDArray[np.int64]


def lesson_draws() -> Lesson:
    """Room for a stream."""
    return Lesson(np.zeros(1, np.int64), np.zeros(1, np.int64))


@compiled()
def _uniform(draws):
    draws.state[0] = (draws.state[0] * _MINSTD_A) % _MINSTD_M
    return draws.state[0] / _MINSTD_M


@form_for(Lesson, start_replication)
def _(draws, tables, index):
    draws.seed[0] = index


@form_for(Lesson, start_cell)
def _(draws):
    draws.state[0] = draws.seed[0]


@form_for(Lesson, arrivals)
def _(draws, tables, t):
    """Knuth's product of uniforms, as the lesson has it."""
    n = 0
    product = _uniform(draws)
    while product > tables.exp_rate:
        n += 1
        product *= _uniform(draws)
    return n


@form_for(Lesson, fails)
def _(draws, tables, p, t, entry):
    # Lesson: the draw is made in every cell without a fault window, and only there
    return tables.service_drawn and _uniform(draws) < tables.failures[p, t]


@form_for(Lesson, wait)
def _(draws, waits, tables, c, i, retry):
    b, n = tables.scalars[c, C_WAITS], (retry & ATTEMPT_MASK) - 1
    waited = tables.offsets[b, n] + _uniform(draws) * tables.widths[b, n]
    return 1 + np.int64(np.floor(waited))
