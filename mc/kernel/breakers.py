"""What may reject a call between the innermost layer and the dependency: a breaker of each client.

`permits` is asked before a call reaches the dependency, `records` hears what became of it. A
rejected call fails at once, and the chain decides as after any failure. CLOSED: calls pass. OPEN:
they are rejected. The first call so many rounds after the round of opening finds the breaker
HALF_OPEN, which lets some calls pass and decides by their outcomes.

The outcome of a call that waited in a queue may come in another state than that in which it
passed: CountWindow counts it there, as its library does, InARow does not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, form_for
from mc.kernel.layout import (
    C_CLIENTS,
    COUNT_WINDOW,
    K_DENOMINATOR,
    K_MINIMUM,
    K_NUMERATOR,
    K_TRIALS,
    K_WAIT,
    K_WHOLE,
    K_WINDOW,
    CellTables,
)


class CountWindow(NamedTuple):
    """Opens when too large a share of the last calls failed.

    HALF_OPEN decides when the outcomes of its trials (or of the minimum, if that is fewer) are
    there: OPEN again, or CLOSED with an empty window.

    Attributes
    ----------
    numbers : ndarray of int64, shape (N, 8)
        Of each client: state; round of opening; of the window its size, the outcomes in it, the
        place of the first, how many are failures, and how many decide; trials that may still pass.
    outcomes : ndarray of uint8, shape (N, W)
        The outcomes in the window: 1 is a failure.

    Notes
    -----
    resilience4j/resilience4j: CircuitBreakerStateMachine.java, CircuitBreakerMetrics.java,
    COUNT_BASED. Slow calls, automatic transition and windows of time are not modelled.
    """

    numbers: NDArray[np.int64]
    outcomes: NDArray[np.uint8]


class InARow(NamedTuple):
    """Opens after more than so many failures in a row.

    HALF_OPEN: a failure opens it again, as many successes as there are trials close it.

    Attributes
    ----------
    numbers : ndarray of int64, shape (N, 6)
        Of each client: state; round of opening; since the last change of state calls that passed,
        successes, and failures in a row; how often the state has changed.

    Notes
    -----
    sony/gobreaker: v2/gobreaker.go, with its default ReadyToTrip and no Interval.
    """

    numbers: NDArray[np.int64]


CLOSED: Final = 0
OPEN: Final = 1
HALF_OPEN: Final = 2

_STATE: Final = 0
_OPENED: Final = 1
# of CountWindow
_SIZE: Final = 2
_HELD: Final = 3
_FIRST: Final = 4
_FAILED: Final = 5
_MINIMUM: Final = 6
_LEFT: Final = 7
# of InARow
_PASSED: Final = 2
_SUCCESSES: Final = 3
_FAILURES: Final = 4
_GENERATION: Final = 5


def empty_breakers(tables: CellTables, cells: NDArray[np.int64], kind: int) -> CountWindow | InARow:
    """Room for the breakers of some cells."""
    n_clients = tables.scalars[cells, C_CLIENTS].max()
    if kind == COUNT_WINDOW:
        longest = tables.breakers[cells][:, (K_WINDOW, K_TRIALS)].max()
        outcomes = np.empty((n_clients, longest), np.uint8)
        return CountWindow(np.empty((n_clients, 8), np.int64), outcomes)
    return InARow(np.empty((n_clients, 6), np.int64))


def start_breakers(breakers, tables, c):
    """Begin a cell."""


def permits(breakers, tables, c, client, t):
    """Whether a call may pass in round t."""


def generation_of(breakers, client):
    """The generation in which a call passes, where late outcomes do not count."""


def records(breakers, tables, c, client, t, failed, generation):
    """Hear the outcome of a call that passed in a generation."""


@form_for(None, start_breakers)
def _(breakers, tables, c):
    pass


@form_for(None, permits)
def _(breakers, tables, c, client, t):
    return True


@form_for((None, CountWindow), generation_of)
def _(breakers, client):
    return 0


@form_for(None, records)
def _(breakers, tables, c, client, t, failed, generation):
    pass


# --- a window of the last calls ------------------------------------------------------------------


@compiled()
def become(numbers, state, size, minimum):
    """Begin a state with an empty window."""
    numbers[_STATE] = state
    numbers[_SIZE] = size
    numbers[_HELD] = 0
    numbers[_FIRST] = 0
    numbers[_FAILED] = 0
    numbers[_MINIMUM] = min(minimum, size)
    numbers[_LEFT] = size


@compiled()
def append(numbers, outcomes, failed):
    """Put an outcome into the window, in place of the oldest if it is full."""
    at = numbers[_FIRST] + numbers[_HELD]
    if numbers[_HELD] == numbers[_SIZE]:
        at = numbers[_FIRST]
        numbers[_FAILED] -= outcomes[at]
        numbers[_FIRST] = 0 if at + 1 == numbers[_SIZE] else at + 1
    else:
        numbers[_HELD] += 1
    outcomes[at] = failed
    numbers[_FAILED] += failed


@form_for(CountWindow, start_breakers)
def _(breakers, tables, c):
    settings = tables.breakers[c]
    for client in range(tables.scalars[c, C_CLIENTS]):
        become(breakers.numbers[client], CLOSED, settings[K_WINDOW], settings[K_MINIMUM])


@form_for(CountWindow, permits)
def _(breakers, tables, c, client, t):
    numbers, settings = breakers.numbers[client], tables.breakers[c]
    if numbers[_STATE] == CLOSED:
        return True
    if numbers[_STATE] == OPEN:
        if t < numbers[_OPENED] + settings[K_WAIT]:
            return False
        become(numbers, HALF_OPEN, settings[K_TRIALS], settings[K_MINIMUM])
    numbers[_LEFT] -= 1
    return numbers[_LEFT] >= 0


@form_for(CountWindow, records)
def _(breakers, tables, c, client, t, failed, generation):
    numbers, settings = breakers.numbers[client], tables.breakers[c]
    append(numbers, breakers.outcomes[client], np.int64(failed))
    held = numbers[_HELD]
    if numbers[_STATE] == OPEN or held < numbers[_MINIMUM]:
        return
    excess = numbers[_FAILED] - settings[K_WHOLE] * held
    if excess >= 0 and excess * settings[K_DENOMINATOR] >= settings[K_NUMERATOR] * held:
        numbers[_STATE] = OPEN
        numbers[_OPENED] = t
    elif numbers[_STATE] == HALF_OPEN:
        become(numbers, CLOSED, settings[K_WINDOW], settings[K_MINIMUM])


# --- failures in a row ---------------------------------------------------------------------------


@compiled()
def change(numbers, state):
    """Go to a state."""
    numbers[:_GENERATION] = 0
    numbers[_STATE] = state
    numbers[_GENERATION] += 1


@form_for(InARow, start_breakers)
def _(breakers, tables, c):
    for client in range(tables.scalars[c, C_CLIENTS]):
        breakers.numbers[client, _GENERATION] = 0
        change(breakers.numbers[client], CLOSED)


@form_for(InARow, generation_of)
def _(breakers, client):
    return breakers.numbers[client, _GENERATION]


@form_for(InARow, permits)
def _(breakers, tables, c, client, t):
    numbers, settings = breakers.numbers[client], tables.breakers[c]
    if numbers[_STATE] == OPEN:
        if t < numbers[_OPENED] + settings[K_WAIT]:
            return False
        change(numbers, HALF_OPEN)
    if numbers[_STATE] == HALF_OPEN and numbers[_PASSED] == settings[K_TRIALS]:
        return False
    numbers[_PASSED] += 1
    return True


@form_for(InARow, records)
def _(breakers, tables, c, client, t, failed, generation):
    numbers, settings = breakers.numbers[client], tables.breakers[c]
    if generation != numbers[_GENERATION]:
        return
    if not failed:
        numbers[_FAILURES] = 0
        numbers[_SUCCESSES] += 1
        if numbers[_STATE] == HALF_OPEN and numbers[_SUCCESSES] == settings[K_TRIALS]:
            change(numbers, CLOSED)
    else:
        numbers[_FAILURES] += 1
        if numbers[_STATE] == HALF_OPEN or numbers[_FAILURES] > settings[K_MINIMUM]:
            change(numbers, OPEN)
            numbers[_OPENED] = t
