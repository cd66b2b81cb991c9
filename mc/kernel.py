"""All compiled code: the draws, the timing wheel, one replication, a block of them.

Compiled code stays in this one file: numba's cache on disk does not notice an edit in another
file. The functions here check nothing and raise nothing: `model.py` makes tables that cannot
lead them astray, and what is only known at run time (a wheel that is too small, more requests
than a table has room for) comes back as a status, upon which the caller grows and goes on.

The timing wheel
----------------
The retries due in round t wait in slot ``t % W`` in the order in which they were scheduled. W is a
power of two greater than the longest backoff, so a slot never holds two rounds. All slots have the
same room, a power of two; when one is full the kernel gives up the row, and the caller starts it
again with twice the room. A retry is one 64-bit entry::

    arrival round (23 bits) | request (24 bits) | attempt (16 bits)

so that the next attempt is ``entry + 1`` and the 40 low bits index the table of its draws.

The stream map of the generator `philox`
----------------------------------------
Philox4x32-10, key = (low half, high half) of the experiment's seed. A draw is a function of its
purpose alone. Counter words, r the replication, (t, j) the j-th request that arrives in round t::

    stream    c0      c1    c2  c3                    words of the block
    ARRIVALS  t >> 1  0     r   1                     0, 1 of an even t; 2, 3 of an odd t (64 bits)
    SERVICE   t       j>>2  r   2 | attempt << 2      j & 3
    JITTER    t       j     r   3 | attempt>>2 << 2   attempt & 3

ARRIVALS is compared with thresholds (inversion: monotone in the rate), SERVICE with
``failure_rate * 2**32``, and JITTER is multiplied by the backoff ceiling. This map never changes
silently: known answers in the tests pin it.

Round by round
--------------
A replication can be recorded: `record` takes what happens in every round. It is either an array
or None, of which numba makes two versions of the same loop; in the one for None nothing is left
of it. That one is compiled with this file, the other when something is recorded for the first time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from platformdirs import user_cache_path

__all__ = ["DONE", "GROW", "REQUESTS", "CellTables", "philox", "simulate_lesson", "simulate_philox"]

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
N_COUNTERS: Final = 15

UNDEFINED: Final = -1
"""Stands for NULL in a counter that is otherwise never negative."""

# --- what a record holds of each round -----------------------------------------------------------

ROUND_PRIMARY: Final = 0
ROUND_RETRIES: Final = 1
ROUND_FAILED: Final = 2
ROUND_DROPPED: Final = 3
N_RECORDED: Final = 4

# --- statuses ------------------------------------------------------------------------------------

DONE: Final = 0
GROW: Final = 1
"""A slot of the wheel is full; the rows before the one reported stand."""
REQUESTS: Final = 2
"""A replication has more requests than its tables have room for."""

# --- columns of the tables of cells --------------------------------------------------------------

C_PROFILE: Final = 0
C_CEILINGS: Final = 1
C_MAX_ATTEMPTS: Final = 2
C_LIMITS: Final = 3
C_LIMIT_MASK: Final = 4
C_THRESHOLD: Final = 5

P_WINDOW_START: Final = 0
P_WINDOW_END: Final = 1
P_FAILURE: Final = 2


@dataclass(frozen=True)
class CellTables:
    """What the kernel reads of C cells that share their traffic, made by `model.tables`.

    Attributes
    ----------
    n_rounds : int
        T, the length of a replication.
    thresholds, guide : ndarray of uint64, shape (K,), and of uint16, shape (4096,)
        Arrivals by inversion, see `model.arrival_thresholds`.
    exp_rate : float
        For `lesson`: exp(-arrivals per round), made outside because compilers differ in its last
        bit.
    failure_rate : float
        For `lesson`: probability that a served call fails.
    service_drawn : bool
        For `lesson`: whether it draws that at all, as it does in cells without a fault window.
    capacities : ndarray of int32, shape (P, T)
        Calls served in each round, a row for each profile (capacity, window, failure rate).
    profiles : ndarray of int64, shape (P, 3)
        First round of the window, the round after its last, failure rate in 2**-32.
    scalars : ndarray of int64, shape (C, 6)
        Row of `profiles`, row of `ceilings`, max_attempts, row of `limits`, mask of the index
        into `limits` (0 without a budget, so that its one large entry is read), threshold.
    ceilings : ndarray, shape (B, A)
        Backoff ceiling after each attempt: uint64 in 2**-32 rounds (`philox`), float64 in
        rounds (`lesson`).
    limits : ndarray of int32, shape (L, n_requests + 1)
        Most retries that a budget allows, by the number of primary calls.
    n_requests : int
        Room for the requests of a replication.
    ahead : tuple of int
        Rounds, from the first to before the second, whose requests nearly all fail at first.
    wheel_size : int
        Slots of the timing wheel, a power of two greater than the longest wait.
    """

    n_rounds: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.uint16]
    exp_rate: float
    failure_rate: float
    service_drawn: bool
    capacities: NDArray[np.int32]
    profiles: NDArray[np.int64]
    scalars: NDArray[np.int64]
    ceilings: NDArray[Any]
    limits: NDArray[np.int32]
    n_requests: int
    ahead: tuple[int, int]
    wheel_size: int


# --- the entry -----------------------------------------------------------------------------------

ROUND_SHIFT: Final = 40
REQUEST_SHIFT: Final = 16
ATTEMPT_MASK: Final = (1 << REQUEST_SHIFT) - 1
INDEX_MASK: Final = (1 << ROUND_SHIFT) - 1

MANY: Final = 1 << 4
"""Mark of a round that has more first calls than it serves, or than four; the bits below it mark
which of the first four fail."""

LEVELS: Final = 8
"""Blocks of draws that are remembered for a request: 8 times 4 attempts. Later ones take their
place."""

_ARRIVALS: Final = np.uint64(1)
_SERVICE: Final = np.uint64(2)
_JITTER: Final = np.uint64(3)

U: Final = np.uint64
"""Indices are unsigned where it matters: for a signed one numba tests whether it is negative."""

_M32: Final = np.uint64(0xFFFFFFFF)
_U2: Final = np.uint64(2)
_U32: Final = np.uint64(32)
_U52: Final = np.uint64(52)
# Salmon et al. 2011, table 2 and section 4.3: multipliers and Weyl increments of Philox4x32
_PHILOX_M0: Final = np.uint64(0xD2511F53)
_PHILOX_M1: Final = np.uint64(0xCD9E8D57)
_PHILOX_W0: Final = np.uint64(0x9E3779B9)
_PHILOX_W1: Final = np.uint64(0xBB67AE85)

_MINSTD_A: Final = 48271
_MINSTD_M: Final = 2147483647


def _cache_directory() -> str:
    """Where compiled code is kept: named by this source and the versions, so never stale."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr(versions).encode())
    root = os.environ.get("NUMBA_CACHE_DIR") or user_cache_path("retrystorm")
    return str(Path(root) / f"kernel-{digest.hexdigest()[:16]}")


def _writable(directory: str) -> bool:
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


CACHE_FOLDER: Final = _cache_directory()
"""Where the compiled code of this file is kept."""

# Without a place for the cache every start compiles anew; better slow than not at all.
# `_nrt`: no function here allocates, and without numba's reference counts a call costs nothing
# beside its work (with them, 84 instead of 11 ns for a retry).
_OPTIONS: Final[dict[str, Any]] = {
    "error_model": "numpy",
    "_nrt": False,
    "cache": _writable(CACHE_FOLDER),
}
_config: Any = numba.config  # its attributes are made at import, unseen by type checkers
_numba_cache_dir = _config.CACHE_DIR
_config.CACHE_DIR = CACHE_FOLDER  # read by each `njit` below; put back at the end of this file


@intrinsic
def _mul_high(typing_context: Any, a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64: one machine instruction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _unlikely(typing_context: Any, condition: Any) -> Any:
    """The condition itself; tells LLVM to keep what follows out of the way of the usual case."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bit = ir.IntType(1)
        kind = ir.FunctionType(bit, [bit, bit])
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], kind)
        return builder.call(expect, [args[0], ir.Constant(bit, 0)])

    return types.boolean(types.boolean), codegen


@njit(inline="always")
def _philox_round(c0, c1, c2, c3, k0, k1):
    p0 = _PHILOX_M0 * c0
    p1 = _PHILOX_M1 * c2
    return (p1 >> _U32) ^ c1 ^ k0, p1 & _M32, (p0 >> _U32) ^ c3 ^ k1, p0 & _M32


@njit(inline="always")
def _philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds, written out.

    LLVM turns a loop over blocks into SIMD code if nothing in it loops (1.9 instead of 15 ns a
    block).
    """
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
    return c0, c1, c2, c3


@njit(types.UniTuple(types.uint64, 4)(*[types.uint64] * 6), **_OPTIONS)
def philox(c0, c1, c2, c3, k0, k1):
    """One block of Philox4x32-10: four words below 2**32.

    Parameters
    ----------
    c0, c1, c2, c3 : uint64
        Counter words, each below 2**32.
    k0, k1 : uint64
        Key words, each below 2**32.

    Notes
    -----
    Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.3.
    Words are kept in 64 bits, so that products are exact.
    """
    return _philox(c0, c1, c2, c3, k0, k1)


_i8 = types.int64
_u8 = types.uint64
_ai8 = types.int64[::1]
_au8 = types.uint64[::1]
_ai4 = types.int32[::1]
_au4 = types.uint32[::1]
_au2 = types.uint16[::1]
_ai8_2 = types.int64[:, ::1]
_ai4_2 = types.int32[:, ::1]
_au8_2 = types.uint64[:, ::1]
_au4_2 = types.uint32[:, ::1]
_au1_2 = types.uint8[:, ::1]
_af8_2 = types.float64[:, ::1]
_ai8_3 = types.int64[:, :, ::1]
_no_record = types.none


def _compiled(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile for these types now, and for others (a record in place of None) when they come."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options, **_OPTIONS)(function)
        dispatcher.compile(signature)
        return dispatcher

    return compiled


# --- the traffic of one replication, made once for all cells -------------------------------------


@njit(types.void(_au8, _i8, _u8, _u8, _u8), **_OPTIONS)
def _fill_arrival_uniforms(uniforms, n_blocks, replication, k0, k1):
    """Two rounds' 64-bit uniforms from each block."""
    for i in range(n_blocks):
        w0, w1, w2, w3 = _philox(U(i), U(0), replication, _ARRIVALS, k0, k1)
        uniforms[2 * i] = (w0 << _U32) | w1
        uniforms[2 * i + 1] = (w2 << _U32) | w3


@njit(_i8(_au8, _i8, _au8, _au2, _ai4, _ai4), **_OPTIONS)
def _invert_arrivals(uniforms, n_rounds, thresholds, guide, arrivals, first):
    """Arrivals of each round and the running number of its first request; their sum.

    The guide names, for the 12 high bits of a uniform, the count to start from. Few of its 4096
    steps hold a threshold, so the search that follows ends at once and its branch is predicted.
    """
    total = 0
    for t in range(n_rounds):
        u = uniforms[t]
        k = np.int64(guide[u >> _U52])
        while k < thresholds.size and u >= thresholds[k]:
            k += 1
        arrivals[t] = k
        first[t] = total
        total += k
    first[n_rounds] = total
    return total


@njit(types.void(_au4_2, _i8, _u8, _u8, _u8), **_OPTIONS)
def _fill_first_service(words, n_rounds, replication, k0, k1):
    """SERVICE words of the first attempts of the first four requests of every round.

    Rounds without requests are drawn, too: that costs less than to leave them out.
    """
    for t in range(n_rounds):
        w0, w1, w2, w3 = _philox(U(t), U(0), replication, _SERVICE, k0, k1)
        words[0, t] = w0
        words[1, t] = w1
        words[2, t] = w2
        words[3, t] = w3


@njit(types.void(_i8, _ai4, _i8, _ai4_2, _u8, _au4_2, _au1_2, _au8_2, _ai4_2), **_OPTIONS)
def _list_busy_rounds(p, arrivals, n_rounds, capacities, failure, words, flags, flag_words, busy):
    """Mark and list the rounds in which a first call may fail, the list ended by `n_rounds`.

    As long as no retry is pending nothing happens in any other round. A busy round in which no
    call fails after all does no harm, so a round with more requests than there are `words` for
    is simply busy. `flag_words` is the memory of `flags`, read eight rounds at a time, since
    most rounds are quiet.
    """
    for t in range(n_rounds):
        flags[p, t] = np.uint8(MANY) if arrivals[t] > capacities[p, t] else np.uint8(0)
    if failure > U(0):
        for t in range(n_rounds):
            flags[p, t] |= np.uint8(MANY) if arrivals[t] > 4 else np.uint8(0)
        for j in range(4):
            for t in range(n_rounds):
                fails = (arrivals[t] > j) & (U(words[j, t]) < failure)
                flags[p, t] |= np.uint8(fails) << np.uint8(j)
    n_busy = 0
    for word in range(flag_words.shape[1]):
        if flag_words[p, word] != U(0):
            for t in range(8 * word, 8 * word + 8):
                busy[p, n_busy] = t
                n_busy += np.int64(flags[p, t] != 0)
    busy[p, n_busy] = n_rounds


# --- draws of retries, remembered ----------------------------------------------------------------
# A block of draws is kept where its index says; the tag tells whose it is. Another cell of the same
# replication finds it there; a newer request may overwrite it, and then it is drawn again.


@njit(_u8(_i8, _i8, _i8, _ai4, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _draw_jitter(entry, place, block, first, replication, k0, k1, tags, words):
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    c3 = _JITTER | (U((entry & ATTEMPT_MASK) >> 2) << _U2)
    w0, w1, w2, w3 = _philox(U(t), U(j), replication, c3, k0, k1)
    words[8 * place + 2] = w0
    words[8 * place + 3] = w1
    words[8 * place + 4] = w2
    words[8 * place + 5] = w3
    tags[4 * place] = block
    return U(words[8 * place + 2 + (entry & 3)])


@njit(_u8(_i8, _i8, _i8, _ai4, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _draw_service(entry, place, block, first, replication, k0, k1, tags, words):
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    c3 = _SERVICE | (U(entry & ATTEMPT_MASK) << _U2)
    w0, w1, w2, w3 = _philox(U(t), U(j >> 2), replication, c3, k0, k1)
    words[8 * place + 2] = w0
    words[8 * place + 3] = w1
    words[8 * place + 4] = w2
    words[8 * place + 5] = w3
    tags[4 * place] = block
    return U(words[8 * place + 2 + (j & 3)])


@njit(_u8(_i8, _i8, _ai4, _i8, _i8, _i8, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _jitter_word(
    entry, serial, first, request_mask, level_shift, level_mask, replication, k0, k1, tags, words
):
    """The JITTER word of an entry: how long it waits when it fails."""
    block = serial | ((entry & INDEX_MASK) >> 2)
    place = ((entry >> REQUEST_SHIFT) & request_mask) | ((entry << (level_shift - 2)) & level_mask)
    word = U(words[U(8 * place + 2 + (entry & 3))])
    if _unlikely(tags[U(4 * place)] != block):
        word = _draw_jitter(entry, place, block, first, replication, k0, k1, tags, words)
    return word


@njit(_u8(_i8, _i8, _ai4, _i8, _i8, _i8, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _service_word(
    entry, serial, first, request_mask, level_shift, level_mask, replication, k0, k1, tags, words
):
    """The SERVICE word of an entry: whether it fails though it is served."""
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    j = request - np.int64(first[U(entry >> ROUND_SHIFT)])
    block = serial | ((entry & INDEX_MASK) - ((j & 3) << REQUEST_SHIFT))
    place = ((request - (j & 3)) & request_mask) | ((entry << level_shift) & level_mask)
    word = U(words[U(8 * place + 2 + (j & 3))])
    if _unlikely(tags[U(4 * place)] != block):
        word = _draw_service(entry, place, block, first, replication, k0, k1, tags, words)
    return word


@njit(types.void(_i8, _i8, _ai4, _ai4, _i8, _u8, _u8, _u8, _ai4_2, _au4_2, _ai8, _au4), **_OPTIONS)
def _draw_window_jitter(
    begin, end, arrivals, first, serial, replication, k0, k1, listed, drawn, tags, words
):
    """Draw the first JITTER block of every request of some rounds, ahead of its need.

    Nearly all of them are needed where the dependency serves less than arrives. Drawn together
    they take 6 ns each, one by one 21. They are listed first, four to a round without a branch.
    """
    n = 0
    for t in range(begin, end):
        for j in range(max(4, arrivals[t])):
            listed[0, n + j] = t
            listed[1, n + j] = j
        n += arrivals[t]
    for i in range(n):
        w0, w1, w2, w3 = _philox(U(listed[0, i]), U(listed[1, i]), replication, _JITTER, k0, k1)
        drawn[0, i] = w0
        drawn[1, i] = w1
        drawn[2, i] = w2
        drawn[3, i] = w3
    for i in range(n):
        request = np.int64(first[begin]) + i
        place = request & ((tags.size >> 5) - 1)
        tags[U(4 * place)] = serial | (request << (REQUEST_SHIFT - 2))
        words[U(8 * place + 2)] = drawn[0, i]
        words[U(8 * place + 3)] = drawn[1, i]
        words[U(8 * place + 4)] = drawn[2, i]
        words[U(8 * place + 5)] = drawn[3, i]


# --- one replication of one cell -----------------------------------------------------------------


def _make_replicate(calls_can_fail: bool) -> Any:
    """Compile the loop for cells in which a served call can fail, or for those in which none can.

    The flag is a constant of the compiled code: the second kind must not pay for the first.
    """

    @_compiled(
        _i8(
            *[_i8, _ai4, _i8, _i8, _i8, _ai4_2, _au1_2, _ai4_2, _i8, _i8, _u8],
            *[_au8_2, _i8, _i8, _ai4_2, _i8, _i8, _i8],
            *[_ai4, _ai8, _i8, _ai8, _au4, _ai8, _au4, _i8, _u8, _u8, _u8, _ai8_3, _i8, _i8],
            _no_record,
        )
    )
    def replicate(
        n_rounds, first, largest, largest_after, p, busy_rounds, flags, capacities,
        window_start, window_end,
        failure, all_ceilings, b, max_attempts, all_limits, m, limit_mask, threshold,
        n_waiting, entries, room_bits,
        jitter_tags, jitter_words, service_tags, service_words, serial_number,
        replication, k0, k1, counters, r, c, record,
    ):  # fmt: skip
        if record is not None:
            for round_ in range(n_rounds):
                record[r, c, ROUND_PRIMARY, round_] = first[round_ + 1] - first[round_]
                for column in (ROUND_RETRIES, ROUND_FAILED, ROUND_DROPPED):
                    record[r, c, column, round_] = 0  # rounds that are skipped
        busy = busy_rounds[p]
        capacity = capacities[p]
        ceilings = all_ceilings[b]
        limits = all_limits[m]
        wheel_mask = n_waiting.size - 1
        room = np.int32(1 << room_bits)
        request_mask = (jitter_tags.size >> 5) - 1
        level_mask = (LEVELS - 1) * (request_mask + 1)
        level_shift = 0
        while 1 << level_shift <= request_mask:
            level_shift += 1
        serial = serial_number << ROUND_SHIFT
        last_attempt = max_attempts - 1

        pending = 0
        retries = 0
        dropped = 0
        wait_total = 0
        wait_max = 0
        late = 0
        drain = -1
        peak = largest
        second_peak = largest_after
        retries_before_window = 0
        window_retries = 0
        next_busy = 0
        t = 0
        for phase in range(3):  # before, inside and after the fault window
            if phase == 0:
                phase_end = window_start
            elif phase == 1:
                phase_end = window_end
                retries_before_window = retries
            else:
                phase_end = n_rounds
                window_retries = retries - retries_before_window
            phase_peak = 0
            while t < phase_end:
                if pending == 0:
                    if phase == 2 and drain < 0:
                        drain = t - window_end
                    while busy[U(next_busy)] < t:
                        next_busy += 1
                    t = np.int64(busy[U(next_busy)])
                    if calls_can_fail and record is None:
                        # A request that fails alone and comes back before anything else happens,
                        # in rounds with room for all calls, needs no wheel: 21 instead of 35 ns on
                        # a healthy day, where nearly all are of this kind.
                        while t < phase_end:
                            marks = np.int64(flags[U(p), U(t)])
                            if (marks & (marks - 1) != 0) | (marks >= MANY):
                                break
                            next_busy += 1
                            quiet_end = min(np.int64(busy[U(next_busy)]), phase_end)
                            request = np.int64(first[U(t)]) + (marks >> 1) - (marks >> 3)
                            entry = (t << ROUND_SHIFT) | (request << REQUEST_SHIFT)
                            n_primary = request + 1
                            while True:
                                attempt = entry & ATTEMPT_MASK
                                if (attempt >= last_attempt) | (
                                    retries > np.int64(limits[U(n_primary & limit_mask)])
                                ):
                                    dropped += 1
                                    t += 1
                                    break
                                word = _jitter_word(
                                    entry, serial, first, request_mask, level_shift, level_mask,
                                    replication, k0, k1, jitter_tags, jitter_words,
                                )  # fmt: skip
                                due = t + 1 + np.int64(_mul_high(word, ceilings[U(attempt)]))
                                entry += 1
                                if due < quiet_end:
                                    n_primary = np.int64(first[U(due)])
                                    n_calls = np.int64(first[U(due + 1)]) - n_primary + 1
                                    alone = n_calls <= np.int64(capacity[U(due)])
                                else:
                                    alone = False
                                t += 1
                                if not alone:
                                    pending = 1
                                    if due < n_rounds:
                                        due_slot = U(due & wheel_mask)
                                        entries[due_slot << U(room_bits)] = entry
                                        n_waiting[due_slot] = 1
                                    break
                                t = due
                                retries += 1
                                phase_peak = max(phase_peak, n_calls)
                                word = _service_word(
                                    entry, serial, first, request_mask, level_shift, level_mask,
                                    replication, k0, k1, service_tags, service_words,
                                )  # fmt: skip
                                if word >= failure:
                                    wait = t - (entry >> ROUND_SHIFT)
                                    wait_total += wait
                                    wait_max = max(wait_max, wait)
                                    late += wait > threshold
                                    t += 1
                                    break
                            if pending != 0:
                                break
                            t = np.int64(busy[U(next_busy)])
                        if pending != 0:
                            continue
                    if t >= phase_end:
                        t = phase_end
                        break
                slot = U(t & wheel_mask)
                n_due = np.int64(n_waiting[slot])
                n_waiting[slot] = 0
                base = slot << U(room_bits)
                first_request = np.int64(first[U(t)])
                n_new = np.int64(first[U(t + 1)]) - first_request
                n_calls = n_due + n_new
                n_served = np.int64(capacity[U(t)])
                phase_peak = max(phase_peak, n_calls)
                pending -= n_due

                # Retries and new requests have a loop each. One loop over both that chooses the
                # entry is slower (11.4 instead of 8.0 ns for a retry in degradation), and so are
                # loops over two or four calls that mask what is not there (13 and 16 ns): a round
                # has few calls, and an idle lane costs as much as a branch that goes astray.

                # The budget sees the calls that have run: from one retry of the round to the next
                # only the number of retries grows.
                n_allowed = np.int64(limits[U(first_request & limit_mask)]) - retries
                n_failed = max(n_calls - n_served, 0)
                dropped_before = dropped
                for i in range(n_due):
                    entry = entries[base + U(i)]
                    if i < n_served:
                        fails = False
                        if calls_can_fail:
                            word = _service_word(
                                entry, serial, first, request_mask, level_shift, level_mask,
                                replication, k0, k1, service_tags, service_words,
                            )  # fmt: skip
                            fails = word < failure
                            n_failed += np.int64(fails)
                        if not fails:
                            wait = t - (entry >> ROUND_SHIFT)
                            wait_total += wait
                            wait_max = max(wait_max, wait)
                            late += wait > threshold
                            continue
                    attempt = entry & ATTEMPT_MASK
                    if (attempt < last_attempt) & (i < n_allowed):
                        # `_jitter_word`, written out here and below: 3 % of a retry
                        place = ((entry >> REQUEST_SHIFT) & request_mask) | (
                            (entry << (level_shift - 2)) & level_mask
                        )
                        block = serial | ((entry & INDEX_MASK) >> 2)
                        word = U(jitter_words[U(8 * place + 2 + (entry & 3))])
                        if _unlikely(jitter_tags[U(4 * place)] != block):
                            word = _draw_jitter(
                                entry, place, block, first, replication, k0, k1,
                                jitter_tags, jitter_words,
                            )  # fmt: skip
                        due = t + 1 + np.int64(_mul_high(word, ceilings[U(attempt)]))
                        if due < n_rounds:
                            due_slot = U(due & wheel_mask)
                            n = n_waiting[due_slot]
                            if _unlikely(n == room):
                                return GROW
                            entries[(due_slot << U(room_bits)) + U(n)] = entry + 1
                            n_waiting[due_slot] = n + 1
                    else:
                        dropped += 1
                retries += n_due

                j = max(n_served - n_due, 0)
                if calls_can_fail:
                    # in a round without a mark a new request fails only for want of capacity
                    marks = np.int64(flags[U(p), U(t)])
                    j = 0 if marks != 0 else j
                while j < n_new:
                    if calls_can_fail and n_due + j < n_served:
                        if j < 4:
                            fails = (marks >> j) & 1 == 1
                        else:
                            entry = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                            word = _service_word(
                                entry, serial, first, request_mask, level_shift, level_mask,
                                replication, k0, k1, service_tags, service_words,
                            )  # fmt: skip
                            fails = word < failure
                        if not fails:
                            j += 1
                            continue
                        n_failed += 1
                    n_primary = first_request + j + 1
                    if (last_attempt > 0) & (retries <= limits[U(n_primary & limit_mask)]):
                        entry = (t << ROUND_SHIFT) | ((first_request + j) << REQUEST_SHIFT)
                        place = (first_request + j) & request_mask
                        block = serial | ((entry & INDEX_MASK) >> 2)
                        word = U(jitter_words[U(8 * place + 2 + (entry & 3))])
                        if _unlikely(jitter_tags[U(4 * place)] != block):
                            word = _draw_jitter(
                                entry, place, block, first, replication, k0, k1,
                                jitter_tags, jitter_words,
                            )  # fmt: skip
                        due = t + 1 + np.int64(_mul_high(word, ceilings[U(0)]))
                        if due < n_rounds:
                            due_slot = U(due & wheel_mask)
                            n = n_waiting[due_slot]
                            if _unlikely(n == room):
                                return GROW
                            entries[(due_slot << U(room_bits)) + U(n)] = entry + 1
                            n_waiting[due_slot] = n + 1
                    else:
                        dropped += 1
                    j += 1
                pending += n_failed - (dropped - dropped_before)
                if record is not None:
                    record[r, c, ROUND_RETRIES, t] = n_due
                    record[r, c, ROUND_FAILED, t] = n_failed
                    record[r, c, ROUND_DROPPED, t] = dropped - dropped_before
                t += 1
            peak = max(peak, phase_peak)
            if phase == 2:
                second_peak = max(second_peak, phase_peak)
        if pending == 0 and drain < 0:
            drain = n_rounds - window_end

        row = counters[r, c]
        requests = np.int64(first[n_rounds])
        window_requests = np.int64(first[window_end]) - np.int64(first[window_start])
        has_after = window_start < window_end < n_rounds
        row[REQUEST_COUNT] = requests
        row[WINDOW_REQUESTS] = window_requests
        row[CALLS] = requests + retries
        row[PRIMARY] = requests
        row[RETRIES] = retries
        row[SUCCESSFUL] = requests - dropped - pending
        row[DROPPED] = dropped
        row[IN_FLIGHT] = pending
        row[PEAK] = peak
        row[WINDOW_CALLS] = window_requests + window_retries
        row[SECOND_PEAK] = second_peak if has_after else UNDEFINED
        row[WAIT_TOTAL] = wait_total
        row[WAIT_MAX] = wait_max
        row[LATE] = late
        row[DRAIN] = drain if has_after else UNDEFINED
        return DONE

    return replicate


_replicate_sure = _make_replicate(False)
_replicate_failing = _make_replicate(True)


@_compiled(
    types.UniTuple(_i8, 2)(
        *[_i8, _au8, _au2, _ai4_2, _ai8_2, _ai8_2, _au8_2, _ai4_2, _ai8, _u8, _u8, _i8, _i8, _i8],
        *[_au8, _ai4, _ai4, _au4_2, _au1_2, _au8_2, _ai4_2, _ai8, _ai4_2, _au4_2],
        *[_ai4, _ai8, _i8, _ai8, _au4, _ai8, _au4, _ai8_3, _i8, _no_record],
    ),
    nogil=True,
)
def _simulate_philox(
    n_rounds, thresholds, guide, capacities, profiles, cells, ceilings, limits,
    replications, k0, k1, n_requests, ahead_start, ahead_end,
    uniforms, arrivals, first, first_service, flags, flag_words, busy, largest_after,
    listed, drawn,
    n_waiting, entries, room_bits,
    jitter_tags, jitter_words, service_tags, service_words, counters, start, record,
):  # fmt: skip
    n_cells = cells.shape[0]
    for r in range(start // n_cells, replications.size):
        replication = U(replications[r])
        if thresholds.size > 0:
            _fill_arrival_uniforms(uniforms, uniforms.size >> 1, replication, k0, k1)
            n = _invert_arrivals(uniforms, n_rounds, thresholds, guide, arrivals, first)
            if n > n_requests:
                return REQUESTS, r * n_cells
        if first_service.shape[1] > 0:
            _fill_first_service(first_service, n_rounds, replication, k0, k1)
        for p in range(profiles.shape[0]):
            _list_busy_rounds(
                p, arrivals, n_rounds, capacities, U(profiles[p, P_FAILURE]), first_service,
                flags, flag_words, busy,
            )  # fmt: skip
            after = np.int32(0)
            for t in range(profiles[p, P_WINDOW_END], n_rounds):
                after = max(after, arrivals[t])
            largest_after[p] = np.int64(after)
        if ahead_start < ahead_end:
            _draw_window_jitter(
                ahead_start, ahead_end, arrivals, first, (r + 1) << ROUND_SHIFT,
                replication, k0, k1, listed, drawn, jitter_tags, jitter_words,
            )  # fmt: skip
        largest = np.int32(0)
        for t in range(n_rounds):
            largest = max(largest, arrivals[t])
        for c in range(max(start - r * n_cells, 0), n_cells):
            p = cells[c, C_PROFILE]
            arguments = (
                n_rounds, first, np.int64(largest), largest_after[p], p, busy, flags, capacities,
                profiles[p, P_WINDOW_START], profiles[p, P_WINDOW_END],
                U(profiles[p, P_FAILURE]), ceilings, cells[c, C_CEILINGS], cells[c, C_MAX_ATTEMPTS],
                limits,
                cells[c, C_LIMITS], cells[c, C_LIMIT_MASK], cells[c, C_THRESHOLD],
                n_waiting, entries, room_bits, jitter_tags, jitter_words, service_tags,
                service_words, r + 1, replication, k0, k1, counters, r, c, record,
            )  # fmt: skip
            if profiles[p, P_FAILURE] > 0:
                status = _replicate_failing(*arguments)
            else:
                status = _replicate_sure(*arguments)
            if status != DONE:
                return status, r * n_cells + c
    return DONE, replications.size * n_cells


def simulate_philox(
    tables: CellTables,
    replications: NDArray[np.int64],
    seed: int,
    room_bits: int,
    counters: NDArray[np.int64],
    start: int,
    record: NDArray[np.int32] | None = None,
) -> tuple[int, int]:
    """Fill the rows of a block of cells that share their traffic, replication by replication.

    Parameters
    ----------
    tables : CellTables
        C cells.
    replications : ndarray of int64, shape (R,)
        Replication indices, 0 <= r < 2**32.
    seed : int
        The experiment's seed, 0 <= seed < 2**64.
    room_bits : int
        log2 of the entries that a slot of the wheel has room for.
    counters : ndarray of int64, shape (R, C, N_COUNTERS)
        Output, overwritten from row `start` on.
    start : int
        First of the R * C rows to fill: 0, or the row that a GROW named.
    record : ndarray of int32, shape (R, C, N_RECORDED, T), optional
        Output: calls of each round that are primary, retries, failed, and given up.

    Returns
    -------
    status, row : int
        DONE; or GROW or REQUESTS and the row at which it happened. The rows before it stand.
    """
    n_rounds, n_profiles = tables.n_rounds, len(tables.profiles)
    n_padded = (n_rounds + 7) & ~7
    any_failure = bool((tables.profiles[:, P_FAILURE] > 0).any())
    # blocks of draws of as many requests as a replication has, or as fit in 8 MB
    places = LEVELS << min(max(tables.n_requests.bit_length(), 4), 15)
    flags = np.zeros((n_profiles, n_padded), np.uint8)
    jitter = np.zeros(4 * places, np.int64)
    service = np.zeros(4 * places if any_failure else 4 * LEVELS, np.int64)
    status, row = _simulate_philox(
        n_rounds,
        tables.thresholds,
        tables.guide,
        tables.capacities,
        tables.profiles,
        tables.scalars,
        tables.ceilings,
        tables.limits,
        replications,
        U(seed & 0xFFFFFFFF),
        U(seed >> 32),
        tables.n_requests,
        *tables.ahead,
        # what is made anew for each replication
        np.empty(2 * ((n_rounds + 1) >> 1), np.uint64),
        np.zeros(n_padded, np.int32),
        np.zeros(n_rounds + 1, np.int32),
        np.empty((4, n_rounds if any_failure else 0), np.uint32),
        flags,
        flags.view(np.uint64),
        np.empty((n_profiles, n_padded + 1), np.int32),
        np.empty(n_profiles, np.int64),
        np.empty((2, tables.n_requests + 4), np.int32),
        np.empty((4, tables.n_requests), np.uint32),
        # the wheel
        np.zeros(tables.wheel_size, np.int32),
        np.empty(tables.wheel_size << room_bits, np.int64),
        room_bits,
        # draws that are remembered: tags and words lie in the same memory
        jitter,
        jitter.view(np.uint32),
        service,
        service.view(np.uint32),
        counters,
        start,
        record,
    )
    return int(status), int(row)


# --- the lesson's own generator ------------------------------------------------------------------
# One stream for everything, consumed call by call: nothing can be drawn ahead or shared, so this is
# a loop of its own, plain, over the same wheel.


@_compiled(
    _i8(
        *[_i8, types.float64, _ai4_2, _i8, _i8, _i8, _i8, types.float64],
        *[_af8_2, _i8, _i8, _ai4_2, _i8, _i8, _i8, _i8],
        *[_ai4, _ai8, _i8, _i8, _ai8_3, _i8, _i8, _no_record],
    )
)
def _replicate_lesson(
    n_rounds, exp_rate, capacities, p, window_start, window_end, service_drawn, failure_rate,
    ceilings, b, max_attempts, limits, m, limit_mask, threshold, n_requests,
    n_waiting, entries, room_bits, seed, counters, r, c, record,
):  # fmt: skip
    wheel_mask = n_waiting.size - 1
    row = counters[r, c]
    row[:] = 0
    state = seed
    pending = 0
    requests = 0
    retries = 0
    drain = -1
    second_peak = 0
    for t in range(n_rounds):
        if t >= window_end and pending == 0 and drain < 0:
            drain = t - window_end
        n_new = -1
        product = 1.0
        while True:  # Knuth's product of uniforms, as the lesson has it
            n_new += 1
            state = (state * _MINSTD_A) % _MINSTD_M
            product *= state / _MINSTD_M
            if product <= exp_rate:
                break
        if requests + n_new > n_requests:
            return REQUESTS
        slot = t & wheel_mask
        n_due = np.int64(n_waiting[slot])
        n_waiting[slot] = 0
        pending -= n_due
        n_calls = n_due + n_new
        if record is not None:
            record[r, c, ROUND_PRIMARY, t] = n_new
            record[r, c, ROUND_RETRIES, t] = n_due
            record[r, c, ROUND_FAILED, t] = 0
            record[r, c, ROUND_DROPPED, t] = 0
        row[PEAK] = max(row[PEAK], n_calls)
        if window_start <= t < window_end:
            row[WINDOW_CALLS] += n_calls
            row[WINDOW_REQUESTS] += n_new
        if t >= window_end:
            second_peak = max(second_peak, n_calls)
        for i in range(n_calls):
            if i < n_due:
                entry = entries[(slot << room_bits) + i]
                retries += 1
            else:
                entry = (t << ROUND_SHIFT) | (requests << REQUEST_SHIFT)
                requests += 1
            if i < capacities[p, t]:
                success = True
                # Lesson: the draw is made in every cell without a fault window, and only there
                if service_drawn:
                    state = (state * _MINSTD_A) % _MINSTD_M
                    success = state / _MINSTD_M >= failure_rate
                if success:
                    wait = t - (entry >> ROUND_SHIFT)
                    row[SUCCESSFUL] += 1
                    row[WAIT_TOTAL] += wait
                    row[WAIT_MAX] = max(row[WAIT_MAX], wait)
                    row[LATE] += wait > threshold
                    continue
            attempt = entry & ATTEMPT_MASK
            if record is not None:
                record[r, c, ROUND_FAILED, t] += 1
            if attempt + 1 >= max_attempts or retries > limits[m, requests & limit_mask]:
                row[DROPPED] += 1
                if record is not None:
                    record[r, c, ROUND_DROPPED, t] += 1
                continue
            state = (state * _MINSTD_A) % _MINSTD_M
            due = t + 1 + np.int64(np.floor(state / _MINSTD_M * ceilings[b, attempt]))
            pending += 1
            if due < n_rounds:
                due_slot = due & wheel_mask
                n = np.int64(n_waiting[due_slot])
                if n == 1 << room_bits:
                    return GROW
                entries[(due_slot << room_bits) + n] = entry + 1
                n_waiting[due_slot] = n + 1
    if pending == 0 and drain < 0:
        drain = n_rounds - window_end
    has_after = window_start < window_end < n_rounds
    row[REQUEST_COUNT] = requests
    row[CALLS] = requests + retries
    row[PRIMARY] = requests
    row[RETRIES] = retries
    row[IN_FLIGHT] = pending
    row[SECOND_PEAK] = second_peak if has_after else UNDEFINED
    row[DRAIN] = drain if has_after else UNDEFINED
    return DONE


@_compiled(
    types.UniTuple(_i8, 2)(
        *[_i8, types.float64, types.float64, _i8, _ai4_2, _ai8_2, _ai8_2, _af8_2, _ai4_2],
        *[_ai8, _i8, _ai4, _ai8, _i8, _ai8_3, _i8, _no_record],
    ),
    nogil=True,
)
def _simulate_lesson(
    n_rounds, exp_rate, failure_rate, service_drawn, capacities, profiles, cells, ceilings, limits,
    seeds, n_requests, n_waiting, entries, room_bits, counters, start, record,
):  # fmt: skip
    n_cells = cells.shape[0]
    for row in range(start, seeds.size * n_cells):
        r = row // n_cells
        c = row % n_cells
        p = cells[c, C_PROFILE]
        status = _replicate_lesson(
            n_rounds, exp_rate, capacities, p, profiles[p, P_WINDOW_START],
            profiles[p, P_WINDOW_END], service_drawn, failure_rate,
            ceilings, cells[c, C_CEILINGS], cells[c, C_MAX_ATTEMPTS],
            limits, cells[c, C_LIMITS], cells[c, C_LIMIT_MASK], cells[c, C_THRESHOLD],
            n_requests, n_waiting, entries, room_bits, seeds[r], counters, r, c, record,
        )  # fmt: skip
        if status != DONE:
            return status, row
    return DONE, seeds.size * n_cells


def simulate_lesson(
    tables: CellTables,
    seeds: NDArray[np.int64],
    room_bits: int,
    counters: NDArray[np.int64],
    start: int,
    record: NDArray[np.int32] | None = None,
) -> tuple[int, int]:
    """Fill the rows of a block of cells, each with the lesson's stream from its own seed.

    Parameters and returns are those of `simulate_philox`, with `seeds` in place of replications:
    the states from which the streams start, 1 <= seed < 2**31 - 1.
    """
    status, row = _simulate_lesson(
        tables.n_rounds,
        tables.exp_rate,
        tables.failure_rate,
        int(tables.service_drawn),
        tables.capacities,
        tables.profiles,
        tables.scalars,
        tables.ceilings,
        tables.limits,
        seeds,
        tables.n_requests,
        np.zeros(tables.wheel_size, np.int32),
        np.empty(tables.wheel_size << room_bits, np.int64),
        room_bits,
        counters,
        start,
        record,
    )
    return int(status), int(row)


_config.CACHE_DIR = _numba_cache_dir
