"""Whether a run comes back after its fault: second by second, what succeeds of what arrives.

A whole second after the end of the fault is bad if fewer requests succeed in it than 90 % of those
that arrive in it; in a closed loop, whose arrivals follow its successes, than 90 % of the mean of
the seconds that are over before the fault begins. Recovery is the end of the last bad one; there is
none if one of the last seconds of the run is bad.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled
from mc.kernel.layout import (
    C_PROFILE,
    C_SECONDS,
    P_WINDOW_END,
    P_WINDOW_START,
    RECOVERED,
    RECOVERY,
    REQUEST_COUNT,
    SUCCESSFUL,
    UNDEFINED,
)

CALM_SECONDS: Final = 5
"""So many at the end of the run must not be bad."""

ENOUGH_TENTHS: Final = 9
"""A second is bad if less than this part of it succeeds."""


class Seconds(NamedTuple):
    """How the seconds of a run went.

    Attributes
    ----------
    numbers : ndarray of int64, shape (6,)
        The present second, from 0; requests and successes before it; the last bad one, or -1;
        how many seconds are over before the fault begins, and successes in them.
    """

    numbers: NDArray[np.int64]


_SECOND: Final = 0
_REQUESTS: Final = 1
_SUCCESSES: Final = 2
_BAD: Final = 3
_CALM: Final = 4
_USUAL: Final = 5


def empty_seconds() -> Seconds:
    """Room for the seconds of one cell after another."""
    return Seconds(np.zeros(6, np.int64))


@compiled()
def start_seconds(seconds):
    """Begin a cell."""
    seconds.numbers[:] = 0
    seconds.numbers[_BAD] = -1


@compiled()
def watch(seconds, tables, c, t, row):
    """Look at the second that ends with round t, if one does."""
    numbers, firsts = seconds.numbers, tables.seconds[tables.scalars[c, C_SECONDS]]
    k = numbers[_SECOND]
    if k + 1 >= firsts.size or t + 1 < firsts[k + 1]:
        return
    arrived = row[REQUEST_COUNT] - numbers[_REQUESTS]
    succeeded = row[SUCCESSFUL] - numbers[_SUCCESSES]
    p = tables.scalars[c, C_PROFILE]
    if firsts[k + 1] <= tables.profiles[p, P_WINDOW_START]:
        numbers[_CALM] += 1
        numbers[_USUAL] += succeeded
    expected, parts = arrived, 1
    if tables.workers > 0:
        expected, parts = numbers[_USUAL], numbers[_CALM]
    is_after = firsts[k] >= tables.profiles[p, P_WINDOW_END]
    if is_after and 10 * succeeded * parts < ENOUGH_TENTHS * expected:
        numbers[_BAD] = k
    numbers[_SECOND] = k + 1
    numbers[_REQUESTS] = row[REQUEST_COUNT]
    numbers[_SUCCESSES] = row[SUCCESSFUL]


@compiled()
def write_recovery(seconds, tables, c, row):
    """Say whether, and when, the run has come back; nothing without a second to judge by."""
    p, firsts = tables.scalars[c, C_PROFILE], tables.seconds[tables.scalars[c, C_SECONDS]]
    start, end = tables.profiles[p, P_WINDOW_START], tables.profiles[p, P_WINDOW_END]
    n_seconds, bad = seconds.numbers[_SECOND], seconds.numbers[_BAD]
    row[RECOVERED] = UNDEFINED
    row[RECOVERY] = UNDEFINED
    is_known = tables.workers == 0 or seconds.numbers[_CALM] > 0
    if is_known and start < end and n_seconds > 0 and firsts[n_seconds - 1] >= end:
        row[RECOVERED] = bad < n_seconds - CALM_SECONDS or bad < 0
        if row[RECOVERED] == 1:
            row[RECOVERY] = np.int64(firsts[bad + 1]) - end if bad >= 0 else 0
