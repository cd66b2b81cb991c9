"""What the loops read and write: counters, statuses, the tables of cells, the wheel, the entry.

Every array stands here once, in a tuple with names, which numba passes on as it is: the loops name
what they take out of it. Axis letters: R replications, C cells, T rounds, P profiles, B kinds of
waits, A attempts, L layers, S slots of the wheel.

The timing wheel
----------------
The retries due in round t wait in slot ``t % S`` in the order in which they were scheduled. S is a
power of two greater than the longest wait, so a slot never holds two rounds. All slots have the
same room, a power of two; when one is full the loop gives up the replication, and it is
started again with twice the room. A retry is one 64-bit entry::

    arrival round (23 bits) | request (24 bits) | attempt (16 bits)

so that the next attempt is ``entry + 1``. Requests are numbered from 0 in order of arrival.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# --- what a row holds ----------------------------------------------------------------------------

REQUEST_COUNT: Final = 0
WINDOW_REQUESTS: Final = 1
CALLS: Final = 2
PRIMARY: Final = 3
RETRIES: Final = 4
SUCCESSFUL: Final = 5
DROPPED: Final = 6
IN_FLIGHT: Final = 7
PEAK: Final = 8
WINDOW_CALLS: Final = 9
SECOND_PEAK: Final = 10
WAIT_TOTAL: Final = 11
WAIT_MAX: Final = 12
LATE: Final = 13
DRAIN: Final = 14
WINDOW_DROPPED: Final = 15
EXPIRED: Final = 16
DENIED: Final = 17
REJECTED: Final = 18
CALLS_OF_LAYER: Final = 19
"""The first of the counters of layers: one for each but the innermost, the outermost first."""
N_COUNTERS: Final = 19
"""Those of a cell with one layer and no queue."""
MOST_LAYERS: Final = 8
REFUSED: Final = CALLS_OF_LAYER + MOST_LAYERS - 1
TIMED_OUT: Final = REFUSED + 1
WASTED: Final = REFUSED + 2
QUEUE_PEAK: Final = REFUSED + 3
RECOVERY: Final = REFUSED + 4
RECOVERED: Final = REFUSED + 5
"""Those of a queue, and of recovery, come last: rows of cells without are no longer for it."""

UNDEFINED: Final = -1
"""Stands for NULL in a counter that is otherwise never negative."""

# --- what a record holds of each round -----------------------------------------------------------

ROUND_PRIMARY: Final = 0
ROUND_RETRIES: Final = 1
ROUND_FAILED: Final = 2
ROUND_DROPPED: Final = 3
ROUND_PENDING: Final = 4
ROUND_SUCCESSFUL: Final = 5
ROUND_WAITING: Final = 6
N_RECORDED: Final = 7

# --- statuses ------------------------------------------------------------------------------------

DONE: Final = 0
GROW: Final = 1
"""A slot of the wheel is full; the replications before the one reported stand."""
REQUESTS: Final = 2
"""A replication has more requests than its tables have room for."""
PLACES: Final = 3
"""A call has no place in the queue's memory; otherwise as GROW."""
STOPPED: Final = 4
"""Asked to end; nothing of the call is of use."""

# --- tables of cells -----------------------------------------------------------------------------

C_PROFILE: Final = 0
C_WAITS: Final = 1
C_MAX_ATTEMPTS: Final = 2
C_LIMITS: Final = 3
C_LIMIT_MASK: Final = 4
C_THRESHOLD: Final = 5
C_CHAIN: Final = 6
C_FIRST_WAIT: Final = 7
C_LAYERS: Final = 8
C_JITTER: Final = 9
C_DEADLINES: Final = 10
C_BUDGETS: Final = 11
C_BREAKER: Final = 12
C_QUEUED: Final = 13
C_CLOSED: Final = 14
C_SEES: Final = 15
C_CLIENTS: Final = 16
C_QUEUE: Final = 17
C_TIMEOUT: Final = 18
C_CANCEL: Final = 19
C_SECONDS: Final = 20
N_SCALARS: Final = 21

CHAIN_KIND: Final = slice(C_LAYERS, C_SEES)
"""Columns that are a `ChainKind`."""

BY_TABLE: Final = 0
DECORRELATED: Final = 1
POLLY: Final = 2
"""Values of C_JITTER."""

NO_DEADLINE: Final = 0
REQUEST_DEADLINE: Final = 1
LAYER_DEADLINES: Final = 2
"""Values of C_DEADLINES."""

CHAIN_BUDGET: Final = 0
"""One ratio before the dependency, as a table, or no budget."""
RATIO: Final = 1
FINAGLE: Final = 2
LINKERD: Final = 3
GRPC: Final = 4
AWS: Final = 5
ENVOY: Final = 6
SRE: Final = 7
MIXED: Final = 8
"""Values of C_BUDGETS: the kind of all budgets of a cell, or MIXED."""

NO_BREAKER: Final = 0
COUNT_WINDOW: Final = 1
IN_A_ROW: Final = 2
"""Values of C_BREAKER."""

B_KIND: Final = 0
B_WHOLE: Final = 1
B_NUMERATOR: Final = 2
B_DENOMINATOR: Final = 3
B_WINDOW: Final = 4
B_MOST: Final = 5
B_GAIN: Final = 6
B_COST: Final = 7
B_RESERVE: Final = 8
B_ON_DECISION: Final = 9
B_K: Final = 10
N_OF_BUDGET: Final = 11
"""Columns of `CellTables.budgets`."""

K_WHOLE: Final = 0
K_NUMERATOR: Final = 1
K_DENOMINATOR: Final = 2
K_WINDOW: Final = 3
K_MINIMUM: Final = 4
K_WAIT: Final = 5
K_TRIALS: Final = 6
N_OF_BREAKER: Final = 7
"""Columns of `CellTables.breakers`."""


class ChainKind(NamedTuple):
    """What a cell's chain has, and so which loop it goes through.

    Attributes
    ----------
    layers : int
        How many its chain has.
    jitter, deadlines, budgets, breaker : int
        As in C_JITTER, C_DEADLINES, C_BUDGETS, C_BREAKER.
    queued : int
        Whether calls may wait before the dependency, as in C_QUEUED.
    closed : int
        Whether some requests follow the end of others, as in C_CLOSED.
    """

    layers: int = 1
    jitter: int = BY_TABLE
    deadlines: int = NO_DEADLINE
    budgets: int = CHAIN_BUDGET
    breaker: int = NO_BREAKER
    queued: int = 0
    closed: int = 0


NEVER: Final = 1 << 62
"""The deadline of a layer, or the time-out of a call, that has none."""

POLLY_STEPS: Final = 1024
"""Steps of a curve of `CellTables.polly`: the 10 high bits of a word name one."""

P_WINDOW_START: Final = 0
P_WINDOW_END: Final = 1
P_CAN_FAIL: Final = 2


class CellTables(NamedTuple):
    """What the loops read of C cells that share their traffic, made by `model.tables`.

    Attributes
    ----------
    n_rounds : int
        T, the length of a replication.
    fewest : int
    thresholds, guide : ndarray of uint64, shape (K,), and of uint16, shape (4096,)
        Arrivals of a constant rate by inversion, see `model.arrival_thresholds`.
    rates : ndarray of float64, shape (T,), or (0,) where the rate is constant
        Mean arrivals of each round.
    at_mean : ndarray of float64, shape (2, T), or (2, 0)
        P(N < k) and P(N = k) in each round, k the whole part of its mean.
    near : ndarray of uint16, shape (T,), or (0,)
        For each round the last of the A rates that is not above its own, times 2, and 1 more if it
        is its own.
    steps, step_guides : ndarray of uint64, shape (A, K), and of uint16, shape (A, 256)
        As `thresholds` and `guide`, for A rates in ascending order; a row is filled up with
        2**64 - 1.
    decided : ndarray of int64, shape (D, 3)
        Replication, round and arrivals where doubles cannot decide between two numbers of them.
    known : ndarray of int32, shape (T,), or (0,) where there are none
        Requests that arrive in each round beside those that are drawn.
    exp_rate : float
        For `lesson`: exp(-arrivals per round), made outside because compilers differ in its last
        bit.
    service_drawn : bool
        For `lesson`: whether it draws the failure of a served call, as it does in cells without a
        fault window.
    scalars : ndarray of int64, shape (C, N_SCALARS)
        Of each cell: its profile, its kind of waits, max_attempts, row of `limits`, mask of the
        index into `limits` (0 without a budget, so that its one large entry is read), threshold,
        row of `makers`, first wait of its layers (0: by the jitter; read where no table says it),
        its `ChainKind`, the outermost layer that a budget sees (the innermost if there is one
        budget before the dependency), and its clients.
    capacities : ndarray of int32, shape (P, T)
        Calls served in each round.
    failures : ndarray, shape (P, T)
        How often a served call fails all the same, in each round: uint64 in 2**-32 (`philox`),
        float64 (`lesson`).
    profiles : ndarray of int64, shape (P, 3)
        First round of the measured window, the round after its last, whether any served call can
        fail.
    offsets, widths : ndarray, shape (B, A)
        Attempt n + 1 runs ``max(1, 1 + floor(offset + u * width))`` rounds after the one that the
        layer which makes it saw fail, u uniform on [0, 1): uint64 in 2**-32 rounds (`philox`; the
        offset may be -1, in two's complement), float64 in rounds (`lesson`). Where no table can
        say it: base and cap (DECORRELATED), row of `polly` and cap (POLLY).
    makers : ndarray of int8, shape (K, A + 1)
        The outermost layer that itself makes attempt n: the one that retries, or for n = 0 the
        first. All layers inside make it, too.
    tries, strides : ndarray of int64, shape (C, L)
        Attempts of each layer; the value of its digit in the number of an attempt, see `chain`.
    deadlines : ndarray of int64, shape (C, L)
        Rounds that each layer has from the first attempt of what it received; NEVER: no deadline.
    budgets : ndarray of int64, shape (C, L, N_OF_BUDGET)
        Settings of the budget of each layer, or of the chain at the innermost: its kind; a ratio
        (whole part, numerator and denominator of the rest); the window, rounds (0: for ever); most
        tokens, a quota, or the least limit; what is gained; what a retry costs; a reserve; whether
        a retry counts when it is decided; 100 times the throttle's k (0: none).
    breakers : ndarray of int64, shape (C, N_OF_BREAKER)
        Settings of the breaker: share of failures (as a ratio above), calls in the window, least
        calls that decide, rounds before it tries again, calls with which it does.
    polly : ndarray of int64, shape (F, POLLY_STEPS + 1)
        Curves of the jitter POLLY, by the step of u, in 2**-32 rounds.
    seconds : ndarray of int32, shape (lengths of a round, whole seconds + 1)
        First rounds of the whole seconds of the run, and the round after the last; a round of more
        than a second is one of them. Filled up with the largest number.
    limits : ndarray of int32, shape (budgets, n_requests + 1)
        Most retries that a budget of the chain allows, by the number of primary calls.
    n_requests : int
        Room for the requests of a replication, of workers for those that live at once.
    workers, think : int
        Workers of a closed loop, 0 without one, and the rounds that they think.
    ahead : tuple of int
        Rounds, from the first to before the second, whose requests nearly all fail at first.
    wheel_size : int
        S, a power of two greater than the longest wait.
    """

    n_rounds: int
    fewest: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.uint16]
    rates: NDArray[np.float64]
    at_mean: NDArray[np.float64]
    near: NDArray[np.uint16]
    steps: NDArray[np.uint64]
    step_guides: NDArray[np.uint16]
    decided: NDArray[np.int64]
    known: NDArray[np.int32]
    exp_rate: float
    service_drawn: bool
    scalars: NDArray[np.int64]
    capacities: NDArray[np.int32]
    failures: NDArray[Any]
    profiles: NDArray[np.int64]
    offsets: NDArray[Any]
    widths: NDArray[Any]
    makers: NDArray[np.int8]
    tries: NDArray[np.int64]
    strides: NDArray[np.int64]
    deadlines: NDArray[np.int64]
    budgets: NDArray[np.int64]
    breakers: NDArray[np.int64]
    polly: NDArray[np.int64]
    seconds: NDArray[np.int32]
    limits: NDArray[np.int32]
    n_requests: int
    workers: int
    think: int
    ahead: tuple[int, int]
    wheel_size: int


class Alike(NamedTuple):
    """Cells of a block that differ in attempts and budget alone.

    Attributes
    ----------
    n : int
        How many.
    kind : ChainKind
        What their chains have.
    can_fail : bool
        Whether a call that is served can fail.
    """

    n: int = 1
    kind: ChainKind = ChainKind()
    can_fail: bool = False


def smallest_tables(number: type, shape: Collection[Alike]) -> CellTables:
    """Cells without traffic; `number` is the type of their rates and waits."""
    n = sum(alike.n for alike in shape)
    scalars = np.zeros((n, N_SCALARS), np.int64)
    scalars[:, C_WAITS] = np.repeat(range(len(shape)), [alike.n for alike in shape])
    scalars[:, C_PROFILE] = [alike.can_fail for alike in shape for _ in range(alike.n)]
    scalars[:, CHAIN_KIND] = [alike.kind for alike in shape for _ in range(alike.n)]
    return CellTables(
        n_rounds=1,
        fewest=0,
        thresholds=np.empty(0, np.uint64),
        guide=np.zeros(4096, np.uint16),
        rates=np.empty(0),
        at_mean=np.empty((2, 0)),
        near=np.empty(0, np.uint16),
        steps=np.empty((0, 0), np.uint64),
        step_guides=np.empty((0, 256), np.uint16),
        decided=np.empty((0, 3), np.int64),
        known=np.empty(0, np.int32),
        exp_rate=1.0,
        service_drawn=False,
        scalars=scalars,
        profiles=np.array([[0, 0, 0], [0, 0, 1]]),
        capacities=np.zeros((2, 1), np.int32),
        failures=np.zeros((2, 1), number),
        offsets=np.zeros((len(shape), 1), number),
        widths=np.zeros((len(shape), 1), number),
        makers=np.zeros((1, 2), np.int8),
        tries=np.ones((n, 1), np.int64),
        strides=np.ones((n, 1), np.int64),
        deadlines=np.full((n, 1), NEVER),
        budgets=np.zeros((n, 1, N_OF_BUDGET), np.int64),
        breakers=np.zeros((n, N_OF_BREAKER), np.int64),
        polly=np.empty((0, POLLY_STEPS + 1), np.int64),
        seconds=np.empty((1, 0), np.int32),
        limits=np.zeros((1, 1), np.int32),
        n_requests=0,
        workers=0,
        think=0,
        ahead=(0, 0),
        wheel_size=2,
    )


# --- the wheel -----------------------------------------------------------------------------------

ROUND_SHIFT: Final = 40
REQUEST_SHIFT: Final = 16
ATTEMPT_MASK: Final = (1 << REQUEST_SHIFT) - 1
INDEX_MASK: Final = (1 << ROUND_SHIFT) - 1
"""The bits of an entry that tell the draws of one call from those of all others."""


class Wheel(NamedTuple):
    """Retries that are due.

    Attributes
    ----------
    n_waiting : ndarray of int32, shape (S,)
        How many in each slot.
    entries : ndarray of int64, shape (S << room_bits,)
        Those of a slot stand together.
    room_bits : int
        log2 of the entries that a slot has room for.
    stop : ndarray of int8, shape (1,)
        Not 0 once the loop is to end, see STOPPED.
    """

    n_waiting: NDArray[np.int32]
    entries: NDArray[np.int64]
    room_bits: int
    stop: NDArray[np.int8]


GOES_ON: Final = np.zeros(1, np.int8)
"""A flag that nobody sets."""


def empty_wheel(size: int, room_bits: int, stop: NDArray[np.int8] = GOES_ON) -> Wheel:
    """A wheel on which nothing is due."""
    return Wheel(np.zeros(size, np.int32), np.empty(size << room_bits, np.int64), room_bits, stop)


# --- draws ---------------------------------------------------------------------------------------

LEVELS: Final = 8
"""Blocks of draws that are remembered for a request: 8 times 4 attempts. Later ones take their
place."""


class Stream(NamedTuple):
    """The draws of one replication, see `draws`.

    Attributes
    ----------
    k0, k1 : uint64
        Low and high half of the seed.
    replication : uint64
        Its index.
    serial : int64
        A number for it that was not used before in this block, above the bits of `INDEX_MASK`.
    """

    k0: np.uint64
    k1: np.uint64
    replication: np.uint64
    serial: int


class Memory(NamedTuple):
    """Blocks of four draws, kept for the other cells of the replication.

    Attributes
    ----------
    tags : ndarray of int64, shape (4 * places,)
        At 4 times the place: whose block stands there.
    words : ndarray of uint32, shape (8 * places,)
        The same memory: the block follows its tag.
    request_mask, level_mask, level_shift : int
        The place is made of the low bits of the request and of a number below `LEVELS`.
    """

    tags: NDArray[np.int64]
    words: NDArray[np.uint32]
    request_mask: int
    level_mask: int
    level_shift: int


def empty_memory(n_requests: int) -> Memory:
    """Room for as many requests as a replication has, or as fit in 8 MB."""
    n_bits = min(max(n_requests.bit_length(), 4), 15)
    tags = np.zeros(4 * LEVELS << n_bits, np.int64)
    mask = (1 << n_bits) - 1
    return Memory(tags, tags.view(np.uint32), mask, (LEVELS - 1) << n_bits, n_bits)


class Traffic(NamedTuple):
    """What the cells of a block have in common in a replication, made anew for each.

    Attributes
    ----------
    uniforms : ndarray of uint64, shape (2, T / 2)
        From which the arrivals of even and odd rounds are made.
    arrivals : ndarray of int32, shape (T,)
        Requests that arrive in each round.
    first : ndarray of int32, shape (T + 1,)
        Running number of the first request of each round; at last the number of all.
    worst : uint64
        Largest failure rate of all profiles and rounds. Not made anew.
    may_fail : ndarray of uint8, shape (T, padded to a multiple of 8)
        Whether one of the first calls of a round fails at that rate.
    candidates : ndarray of int32, shape (T, padded)
        The rounds in which it does.
    first_service : ndarray of uint32, shape (4, T)
        SERVICE words of the first attempts of the first four requests of those rounds.
    marks : ndarray of uint8, shape (P, T, padded)
        How first calls can fail in each round, see `traffic`.
    busy : ndarray of int32, shape (P, T, padded, + 1)
        The rounds that have a mark; T ends the list.
    most : ndarray of int64, shape (P, 2)
        Most arrivals in one round: of all rounds, and of those after the window.
    listed : ndarray of int32, shape (2, n_requests + T)
        Round and index of requests that draw together.
    drawn : ndarray of uint32, shape (4, n_requests + T)
        What they draw.
    may_fail_by_eight, marks_by_eight : ndarray of uint64, shape (T / 8,), (P, T / 8)
        The same memory as `may_fail` and `marks`.
    """

    uniforms: NDArray[np.uint64]
    arrivals: NDArray[np.int32]
    first: NDArray[np.int32]
    worst: np.uint64
    may_fail: NDArray[np.uint8]
    candidates: NDArray[np.int32]
    first_service: NDArray[np.uint32]
    marks: NDArray[np.uint8]
    busy: NDArray[np.int32]
    most: NDArray[np.int64]
    listed: NDArray[np.int32]
    drawn: NDArray[np.uint32]
    may_fail_by_eight: NDArray[np.uint64]
    marks_by_eight: NDArray[np.uint64]


def empty_traffic(tables: CellTables) -> Traffic:
    """Room for the traffic of one replication."""
    n_rounds, n_profiles = tables.n_rounds, len(tables.profiles)
    n_padded = (n_rounds + 7) & ~7
    n_drawn = n_rounds if tables.failures.any() else 0
    may_fail, marks = np.zeros(n_padded, np.uint8), np.zeros((n_profiles, n_padded), np.uint8)
    return Traffic(
        uniforms=np.empty((2, (n_rounds + 1) // 2), np.uint64),
        arrivals=np.zeros(n_rounds, np.int32),
        first=np.zeros(n_rounds + 1, np.int32),
        worst=tables.failures.max(),
        may_fail=may_fail,
        candidates=np.empty(n_padded, np.int32),
        first_service=np.empty((4, n_drawn), np.uint32),
        marks=marks,
        busy=np.empty((n_profiles, n_padded + 1), np.int32),
        most=np.empty((n_profiles, 2), np.int64),
        listed=np.empty((2, tables.n_requests + n_rounds + 4), np.int32),
        drawn=np.empty((4, tables.n_requests + n_rounds), np.uint32),
        may_fail_by_eight=may_fail.view(np.uint64),
        marks_by_eight=marks.view(np.uint64),
    )
