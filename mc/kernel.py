"""All compiled code: the draws, the timing wheel, one replication, a block of them.

Compiled code stays in this one file: numba's cache on disk does not notice an edit in another
file. The functions here check nothing and raise nothing: `model.py` makes tables that cannot
lead them astray, and what is only known at run time (a wheel that is too small, more requests
than a table has room for) comes back as a status, upon which the caller grows and goes on.

The timing wheel
----------------
The retries due in round t wait in slot ``t % W`` in the order in which they were scheduled. W is a
power of two greater than the longest backoff, so a slot never holds two rounds. A slot is a run of
the arena, ``arena[start:tail]``, that may grow up to ``end``; one that is full moves to the end of
the arena with twice the room. A retry is one 64-bit entry::

    arrival round (23 bits) | request (24 bits) << S | attempt (S bits)         S <= 16

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
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from platformdirs import user_cache_path

__all__ = ["DONE", "GROW", "REQUESTS", "philox", "simulate_lesson", "simulate_philox"]

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

# --- statuses ------------------------------------------------------------------------------------

DONE: Final = 0
GROW: Final = 1
"""The arena is too small; the rows before the one reported stand."""
REQUESTS: Final = 2
"""A replication has more requests than its tables have room for."""

# --- columns of the tables of cells --------------------------------------------------------------

C_PROFILE: Final = 0
C_CEILINGS: Final = 1
C_MAX_ATTEMPTS: Final = 2
C_LIMITS: Final = 3
C_LIMIT_MASK: Final = 4
C_THRESHOLD: Final = 5
N_CELL_COLUMNS: Final = 6

P_WINDOW_START: Final = 0
P_WINDOW_END: Final = 1
P_FAILURE: Final = 2
N_PROFILE_COLUMNS: Final = 3

# --- the entry -----------------------------------------------------------------------------------

ROUND_SHIFT: Final = 40
INDEX_MASK: Final = (1 << ROUND_SHIFT) - 1
PAD: Final = 8
"""Entries that may be read past the end of a slot."""

CACHE_BITS: Final = 15
"""log2 of the blocks of draws that are remembered: 2**15 blocks are 8 words for 16,000 requests."""

_ARRIVALS: Final = np.uint64(1)
_SERVICE: Final = np.uint64(2)
_JITTER: Final = np.uint64(3)

_M32: Final = np.uint64(0xFFFFFFFF)
_U1: Final = np.uint64(1)
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


_CACHE: Final = _cache_directory()
# Without a place for the cache every start compiles anew; better slow than not at all.
_OPTIONS: Final[dict[str, Any]] = {"error_model": "numpy", "cache": _writable(_CACHE)}
_config: Any = numba.config  # its attributes are made at import, unseen by type checkers
_numba_cache_dir = _config.CACHE_DIR
_config.CACHE_DIR = _CACHE  # read by each `njit` below; put back at the end of this file


@intrinsic
def _mul_high(typing_context: Any, a: Any, b: Any) -> Any:
    """High 64 bits of the product of two uint64: one machine instruction."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


_u4 = types.UniTuple(types.uint64, 4)


@njit(_u4(*[types.uint64] * 6), **_OPTIONS)
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
    Words are kept in 64 bits: products are exact, and the loop over blocks becomes SIMD code.
    """
    for _ in range(10):
        p0 = _PHILOX_M0 * c0
        p1 = _PHILOX_M1 * c2
        c0 = (p1 >> _U32) ^ c1 ^ k0
        c1 = p1 & _M32
        c2 = (p0 >> _U32) ^ c3 ^ k1
        c3 = p0 & _M32
        k0 = (k0 + _PHILOX_W0) & _M32
        k1 = (k1 + _PHILOX_W1) & _M32
    return c0, c1, c2, c3


_i8 = types.int64
_u8 = types.uint64
_ai8 = types.int64[::1]
_au8 = types.uint64[::1]
_ai4 = types.int32[::1]
_au4 = types.uint32[::1]
_au2 = types.uint16[::1]
_au1 = types.uint8[::1]
_ai8_2 = types.int64[:, ::1]
_ai8_3 = types.int64[:, :, ::1]
_ai4_2 = types.int32[:, ::1]
_au8_2 = types.uint64[:, ::1]
_af8 = types.float64[::1]


# --- the traffic of one replication, made once for all cells -------------------------------------


@njit(types.void(_au8, _i8, _u8, _u8, _u8), **_OPTIONS)
def _fill_arrival_uniforms(uniforms, n_blocks, replication, k0, k1):
    """Two rounds' 64-bit uniforms from each block."""
    for i in range(n_blocks):
        w0, w1, w2, w3 = philox(np.uint64(i), np.uint64(0), replication, _ARRIVALS, k0, k1)
        uniforms[2 * i] = (w0 << _U32) | w1
        uniforms[2 * i + 1] = (w2 << _U32) | w3


@njit(_i8(_au8, _i8, _au8, _au2, _ai4, _ai8), **_OPTIONS)
def _invert_arrivals(uniforms, n_rounds, thresholds, guide, arrivals, first):
    """Arrivals of each round and the running number of its first request; the largest round.

    The guide names, for the 12 high bits of a uniform, the count to start from. Few of its 4096
    steps hold a threshold, so the search that follows ends at once and its branch is predicted.
    """
    total = 0
    largest = 0
    for t in range(n_rounds):
        u = uniforms[t]
        k = np.int64(guide[u >> _U52])
        while k < thresholds.size and u >= thresholds[k]:
            k += 1
        arrivals[t] = k
        first[t] = total
        total += k
        largest = max(largest, k)
    first[n_rounds] = total
    return largest


@njit(types.void(_ai4, _ai8, _i8, _au4, _ai4, _ai4, _ai8, _au4, _u8, _u8, _u8), **_OPTIONS)
def _fill_first_service(
    arrivals,
    first,
    n_rounds,
    service,
    block_round,
    block_quad,
    block_first,
    words,
    replication,
    k0,
    k1,
):
    """The SERVICE word of every request's first attempt.

    A block serves four requests of one round. The blocks are listed first, then drawn in a loop
    without branches, then dealt out: later requests overwrite what a block wrote too much.
    """
    n_blocks = 0
    for t in range(n_rounds):
        block_round[n_blocks] = t
        block_quad[n_blocks] = 0
        block_first[n_blocks] = first[t]
        n_blocks += arrivals[t] > 0
        for quad in range(1, (arrivals[t] + 3) >> 2):
            block_round[n_blocks] = t
            block_quad[n_blocks] = quad
            block_first[n_blocks] = first[t] + 4 * quad
            n_blocks += 1
    for i in range(n_blocks):
        w0, w1, w2, w3 = philox(
            np.uint64(block_round[i]), np.uint64(block_quad[i]), replication, _SERVICE, k0, k1
        )
        words[4 * i] = w0
        words[4 * i + 1] = w1
        words[4 * i + 2] = w2
        words[4 * i + 3] = w3
    for i in range(n_blocks):
        at = block_first[i]
        service[at] = words[4 * i]
        service[at + 1] = words[4 * i + 1]
        service[at + 2] = words[4 * i + 2]
        service[at + 3] = words[4 * i + 3]


@njit(types.void(_ai4, _ai8, _i8, _ai4, _u8, _au4, _au1, _au8, _ai4), **_OPTIONS)
def _list_busy_rounds(
    arrivals, first, n_rounds, capacity, failure, service, flags, flag_words, busy
):
    """The rounds in which a first call fails, in order, ended by `n_rounds`.

    As long as no retry is pending nothing happens in any other round. `flag_words` is the same
    memory as `flags`, read eight rounds at a time, since most are quiet.
    """
    for t in range(n_rounds):
        flags[t] = arrivals[t] > capacity[t]
    if failure > np.uint64(0):
        for t in range(n_rounds):
            fails = np.uint8(0)
            for i in range(first[t], first[t + 1]):
                fails |= np.uint8(np.uint64(service[i]) < failure)
            flags[t] |= fails
    n_busy = 0
    for word in range((n_rounds + 7) >> 3):
        if flag_words[word] != np.uint64(0):
            for t in range(8 * word, 8 * word + 8):
                busy[n_busy] = t
                n_busy += np.int64(flags[t])
    busy[n_busy] = n_rounds


# --- the wheel -----------------------------------------------------------------------------------

W_START: Final = 0
W_TAIL: Final = 1
W_END: Final = 2


@njit(types.boolean(_i8, _ai8_2, _ai8, _ai8), **_OPTIONS)
def _grow_slot(slot, wheel, arena, arena_used):
    """Move a full slot to the end of the arena with twice the room; False if none is left."""
    start = wheel[slot, W_START]
    tail = wheel[slot, W_TAIL]
    room = 2 * (wheel[slot, W_END] - start)
    moved = arena_used[0]
    if moved + room + PAD > arena.size:
        return False
    for i in range(tail - start):
        arena[moved + i] = arena[start + i]
    wheel[slot, W_START] = moved
    wheel[slot, W_TAIL] = moved + tail - start
    wheel[slot, W_END] = moved + room
    arena_used[0] = moved + room
    return True


@njit(types.void(_ai8_2, _i8), **_OPTIONS)
def _lay_out_slots(wheel, room):
    for slot in range(wheel.shape[0]):
        wheel[slot, W_START] = slot * room
        wheel[slot, W_TAIL] = slot * room
        wheel[slot, W_END] = (slot + 1) * room


@njit(types.void(_ai8_2), **_OPTIONS)
def _empty_slots(wheel):
    for slot in range(wheel.shape[0]):
        wheel[slot, W_TAIL] = wheel[slot, W_START]


# --- draws of retries, remembered ----------------------------------------------------------------
# A block of draws is kept where its index says; the tag tells whose it is. Another cell of the same
# replication finds it there; a newer request may overwrite it, and then it is drawn again.


@njit(types.void(_i8, _i8, _i8, _ai8, _i8, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _draw_jitter(place, tag, entry, first, attempt_bits, replication, k0, k1, tags, words):
    t = entry >> ROUND_SHIFT
    index = entry & INDEX_MASK
    request = index >> attempt_bits
    quad = (index & ((1 << attempt_bits) - 1)) >> 2
    w0, w1, w2, w3 = philox(
        np.uint64(t),
        np.uint64(request - first[t]),
        replication,
        _JITTER | (np.uint64(quad) << _U2),
        k0,
        k1,
    )
    words[4 * place] = w0
    words[4 * place + 1] = w1
    words[4 * place + 2] = w2
    words[4 * place + 3] = w3
    tags[place] = tag


# --- one replication of one cell -----------------------------------------------------------------


@njit(types.void(_i8, _i8, _i8, _i8, _i8, _u8, _u8, _u8, _ai8, _au4), **_OPTIONS)
def _draw_service(place, tag, t, quad, attempt, replication, k0, k1, tags, words):
    w0, w1, w2, w3 = philox(
        np.uint64(t),
        np.uint64(quad),
        replication,
        _SERVICE | (np.uint64(attempt) << _U2),
        k0,
        k1,
    )
    words[4 * place] = w0
    words[4 * place + 1] = w1
    words[4 * place + 2] = w2
    words[4 * place + 3] = w3
    tags[place] = tag


@njit(
    _i8(
        *[_i8, _ai4, _ai8, _i8, _i8, _ai4, _ai4, _i8, _i8, _u8, _au4],
        *[_au8, _i8, _ai4, _i8, _i8, _i8],
        *[_ai8_2, _ai8, _ai8],
        *[_ai8, _au4, _ai8, _au4, _i8, _u8, _u8, _u8, _ai8],
    ),
    **_OPTIONS,
)
def _replicate(
    n_rounds,
    arrivals,
    first,
    largest,
    largest_after,
    busy,
    capacity,
    window_start,
    window_end,
    failure,
    service,
    ceilings,
    max_attempts,
    limits,
    limit_mask,
    threshold,
    attempt_bits,
    wheel,
    arena,
    arena_used,
    jitter_tags,
    jitter_words,
    service_tags,
    service_words,
    serial,
    replication,
    k0,
    k1,
    counters,
):
    """One replication of one cell; False status GROW leaves the wheel to be laid out anew."""
    wheel_mask = wheel.shape[0] - 1
    place_mask = jitter_tags.size - 1
    attempt_mask = (1 << attempt_bits) - 1
    serial_bits = serial << ROUND_SHIFT

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
                while busy[next_busy] < t:
                    next_busy += 1
                t = np.int64(busy[next_busy])
                if t >= phase_end:
                    t = phase_end
                    break
            slot = t & wheel_mask
            base = wheel[slot, W_START]
            n_due = wheel[slot, W_TAIL] - base
            wheel[slot, W_TAIL] = base
            n_calls = n_due + np.int64(arrivals[t])
            phase_peak = max(phase_peak, n_calls)
            pending -= n_due
            n_served = np.int64(capacity[t])
            i = n_served
            if failure == np.uint64(0):
                # Four at a time without a branch: most rounds serve no more, so the loop's end
                # is predicted.
                k = 0
                n_served_retries = min(n_served, n_due)
                while k < n_served_retries:
                    for lane in range(4):
                        wait = t - (arena[base + k + lane] >> ROUND_SHIFT)
                        wait = wait if k + lane < n_served_retries else 0
                        wait_total += wait
                        wait_max = max(wait_max, wait)
                        late += wait > threshold
                    k += 4
            else:
                i = 0
            while i < n_calls:
                is_retry = i < n_due
                entry = (
                    arena[base + i]
                    if is_retry
                    else ((t << ROUND_SHIFT) | ((first[t] + i - n_due) << attempt_bits))
                )
                index = entry & INDEX_MASK
                if i < n_served:
                    # drawn only where calls that are served can fail
                    request = index >> attempt_bits
                    if is_retry:
                        arrived = entry >> ROUND_SHIFT
                        j = request - first[arrived]
                        attempt = index & attempt_mask
                        key = ((request - (j & 3)) << attempt_bits) | attempt
                        place = key & place_mask
                        if service_tags[place] != (serial_bits | key):
                            _draw_service(
                                place,
                                serial_bits | key,
                                arrived,
                                j >> 2,
                                attempt,
                                replication,
                                k0,
                                k1,
                                service_tags,
                                service_words,
                            )
                        fails = np.uint64(service_words[4 * place + (j & 3)]) < failure
                        if not fails:
                            wait = t - arrived
                            wait_total += wait
                            wait_max = max(wait_max, wait)
                            late += wait > threshold
                            i += 1
                            continue
                    elif np.uint64(service[request]) >= failure:
                        i += 1
                        continue
                i += 1
                attempt = index & attempt_mask
                n_retries = retries + min(i, n_due)
                n_primary = first[t] + max(i - n_due, 0)
                if attempt + 1 < max_attempts and n_retries <= limits[n_primary & limit_mask]:
                    block = index >> 2
                    place = block & place_mask
                    if jitter_tags[place] != (serial_bits | block):
                        _draw_jitter(
                            place,
                            serial_bits | block,
                            entry,
                            first,
                            attempt_bits,
                            replication,
                            k0,
                            k1,
                            jitter_tags,
                            jitter_words,
                        )
                    word = np.uint64(jitter_words[4 * place + (index & 3)])
                    due = t + 1 + np.int64(_mul_high(word, ceilings[attempt]))
                    due = min(due, n_rounds)
                    due_slot = due & wheel_mask
                    tail = wheel[due_slot, W_TAIL]
                    if tail == wheel[due_slot, W_END]:
                        if not _grow_slot(due_slot, wheel, arena, arena_used):
                            return GROW
                        tail = wheel[due_slot, W_TAIL]
                    arena[tail] = entry + 1
                    wheel[due_slot, W_TAIL] = tail + 1
                    pending += 1
                else:
                    dropped += 1
            retries += n_due
            t += 1
        peak = max(peak, phase_peak)
        if phase == 2:
            second_peak = max(second_peak, phase_peak)
    if pending > 0:
        _empty_slots(wheel)
    elif drain < 0:
        drain = n_rounds - window_end

    requests = first[n_rounds]
    window_requests = first[window_end] - first[window_start]
    has_after = window_start < window_end < n_rounds
    counters[REQUEST_COUNT] = requests
    counters[WINDOW_REQUESTS] = window_requests
    counters[CALLS] = requests + retries
    counters[PRIMARY] = requests
    counters[RETRIES] = retries
    counters[SUCCESSFUL] = requests - dropped - pending
    counters[DROPPED] = dropped
    counters[IN_FLIGHT] = pending
    counters[PEAK] = peak
    counters[WINDOW_CALLS] = window_requests + window_retries
    counters[SECOND_PEAK] = second_peak if has_after else UNDEFINED
    counters[WAIT_TOTAL] = wait_total
    counters[WAIT_MAX] = wait_max
    counters[LATE] = late
    counters[DRAIN] = drain if has_after else UNDEFINED
    return DONE


@njit(
    types.UniTuple(_i8, 2)(
        *[_i8, _au8, _au2, _ai4_2, _ai8_2, _ai8_2, _au8_2, _ai4_2],
        *[_ai8, _u8, _u8, _i8, _i8, _i8, _i8, _i8, _ai8_3, _i8],
    ),
    nogil=True,
    **_OPTIONS,
)
def simulate_philox(
    n_rounds,
    thresholds,
    guide,
    capacities,
    profiles,
    cells,
    ceilings,
    limits,
    replications,
    k0,
    k1,
    n_requests,
    attempt_bits,
    wheel_size,
    slot_room,
    arena_size,
    counters,
    start,
):
    """Fill the rows of a block of cells that share their traffic, replication by replication.

    Parameters
    ----------
    n_rounds : int64
        Length of a replication, the same for all cells.
    thresholds, guide : ndarray of uint64, shape (K,), and of uint16, shape (4096,)
        Arrivals by inversion, `model.arrival_thresholds`.
    capacities : ndarray of int32, shape (P, T)
        Calls served in each round, a row for each profile.
    profiles : ndarray of int64, shape (P, N_PROFILE_COLUMNS)
        Fault window and failure threshold of each profile.
    cells : ndarray of int64, shape (C, N_CELL_COLUMNS)
        For each cell the rows of the other tables that are its own, and its scalars.
    ceilings : ndarray of uint64, shape (B, A)
        Backoff ceiling after each attempt, in 2**-32 rounds.
    limits : ndarray of int32, shape (L, n_requests + 1)
        Most retries that a budget allows, by the number of primary calls.
    replications : ndarray of int64, shape (R,)
        Replication indices, 0 <= r < 2**32.
    k0, k1 : uint64
        Low and high half of the experiment's seed.
    n_requests : int64
        Room for the requests of a replication.
    attempt_bits : int64
        Bits for the attempt in an entry; at least 2, and 2**bits >= every `max_attempts`.
    wheel_size, slot_room, arena_size : int64
        Slots of the wheel (a power of two), entries a slot has room for at first, and entries
        of the arena in all.
    counters : ndarray of int64, shape (R, C, N_COUNTERS)
        Output, overwritten from row `start` on.
    start : int64
        First of the R * C rows to fill: 0, or the row that a GROW named.

    Returns
    -------
    status, row : int64
        DONE; or GROW or REQUESTS and the row at which it happened.
    """
    n_cells = cells.shape[0]
    n_profiles = profiles.shape[0]
    n_blocks = (n_rounds + 1) >> 1
    n_padded = (n_rounds + 7) & ~7
    uniforms = np.empty(2 * n_blocks, np.uint64)
    arrivals = np.zeros(n_padded, np.int32)
    first = np.empty(n_rounds + 1, np.int64)
    flags = np.zeros(n_padded, np.uint8)
    flag_words = flags.view(np.uint64)
    busy = np.empty((n_profiles, n_rounds + 9), np.int32)
    largest_after = np.empty(n_profiles, np.int64)
    any_failure = False
    for p in range(n_profiles):
        any_failure |= profiles[p, P_FAILURE] > 0
    n_service = n_requests if any_failure else 0
    service = np.empty(n_service + 4, np.uint32)
    block_round = np.empty(n_service + 1, np.int32)
    block_quad = np.empty(n_service + 1, np.int32)
    block_first = np.empty(n_service + 1, np.int64)
    block_words = np.empty(4 * n_service + 4, np.uint32)
    n_places = 1 << CACHE_BITS
    jitter_tags = np.zeros(n_places, np.int64)
    jitter_words = np.empty(4 * n_places, np.uint32)
    service_tags = np.zeros(n_places if any_failure else 1, np.int64)
    service_words = np.empty(4 * service_tags.size, np.uint32)
    wheel = np.empty((wheel_size, 3), np.int64)
    arena = np.zeros(arena_size, np.int64)
    arena_used = np.empty(1, np.int64)
    arena_used[0] = wheel_size * slot_room
    _lay_out_slots(wheel, slot_room)

    for r in range(start // n_cells, replications.size):
        replication = np.uint64(replications[r])
        largest = 0
        if thresholds.size > 0:
            _fill_arrival_uniforms(uniforms, n_blocks, replication, k0, k1)
            largest = _invert_arrivals(uniforms, n_rounds, thresholds, guide, arrivals, first)
        else:
            first[:] = 0
        if first[n_rounds] > n_requests:
            return REQUESTS, r * n_cells
        if any_failure:
            _fill_first_service(
                arrivals,
                first,
                n_rounds,
                service,
                block_round,
                block_quad,
                block_first,
                block_words,
                replication,
                k0,
                k1,
            )
        for p in range(n_profiles):
            _list_busy_rounds(
                arrivals,
                first,
                n_rounds,
                capacities[p],
                np.uint64(profiles[p, P_FAILURE]),
                service,
                flags,
                flag_words,
                busy[p],
            )
            after = np.int32(0)
            for t in range(profiles[p, P_WINDOW_END], n_rounds):
                after = max(after, arrivals[t])
            largest_after[p] = np.int64(after)
        for c in range(n_cells):
            if r * n_cells + c < start:
                continue
            p = cells[c, C_PROFILE]
            status = _replicate(
                n_rounds,
                arrivals,
                first,
                largest,
                largest_after[p],
                busy[p],
                capacities[p],
                profiles[p, P_WINDOW_START],
                profiles[p, P_WINDOW_END],
                np.uint64(profiles[p, P_FAILURE]),
                service,
                ceilings[cells[c, C_CEILINGS]],
                cells[c, C_MAX_ATTEMPTS],
                limits[cells[c, C_LIMITS]],
                cells[c, C_LIMIT_MASK],
                cells[c, C_THRESHOLD],
                attempt_bits,
                wheel,
                arena,
                arena_used,
                jitter_tags,
                jitter_words,
                service_tags,
                service_words,
                r + 1,
                replication,
                k0,
                k1,
                counters[r, c],
            )
            if status != DONE:
                return status, r * n_cells + c
    return DONE, replications.size * n_cells


# --- the lesson's own generator ------------------------------------------------------------------
# One stream for everything, consumed call by call: nothing can be drawn ahead or shared, so this is
# a loop of its own, plain, over the same wheel.


@njit(
    _i8(
        *[_i8, types.float64, _ai4, _i8, _i8, _i8, types.float64],
        *[_af8, _i8, _ai4, _i8, _i8, _i8, _i8],
        *[_ai8_2, _ai8, _ai8, _i8, _ai8],
    ),
    **_OPTIONS,
)
def _replicate_lesson(
    n_rounds,
    exp_rate,
    capacity,
    window_start,
    window_end,
    service_drawn,
    failure_rate,
    ceilings,
    max_attempts,
    limits,
    limit_mask,
    threshold,
    attempt_bits,
    n_requests,
    wheel,
    arena,
    arena_used,
    seed,
    counters,
):
    wheel_mask = wheel.shape[0] - 1
    attempt_mask = (1 << attempt_bits) - 1
    counters[:] = 0
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
        base = wheel[slot, W_START]
        n_due = wheel[slot, W_TAIL] - base
        wheel[slot, W_TAIL] = base
        pending -= n_due
        n_calls = n_due + n_new
        counters[PEAK] = max(counters[PEAK], n_calls)
        if window_start <= t < window_end:
            counters[WINDOW_CALLS] += n_calls
            counters[WINDOW_REQUESTS] += n_new
        if t >= window_end:
            second_peak = max(second_peak, n_calls)
        for i in range(n_calls):
            if i < n_due:
                entry = arena[base + i]
                retries += 1
            else:
                entry = (t << ROUND_SHIFT) | (requests << attempt_bits)
                requests += 1
            if i < capacity[t]:
                success = True
                # Lesson: the draw is made in every cell without a fault window, and only there
                if service_drawn:
                    state = (state * _MINSTD_A) % _MINSTD_M
                    success = state / _MINSTD_M >= failure_rate
                if success:
                    wait = t - (entry >> ROUND_SHIFT)
                    counters[SUCCESSFUL] += 1
                    counters[WAIT_TOTAL] += wait
                    counters[WAIT_MAX] = max(counters[WAIT_MAX], wait)
                    counters[LATE] += wait > threshold
                    continue
            attempt = entry & attempt_mask
            if attempt + 1 >= max_attempts or retries > limits[requests & limit_mask]:
                counters[DROPPED] += 1
                continue
            state = (state * _MINSTD_A) % _MINSTD_M
            due = t + 1 + np.int64(np.floor(state / _MINSTD_M * ceilings[attempt]))
            due_slot = min(due, n_rounds) & wheel_mask
            tail = wheel[due_slot, W_TAIL]
            if tail == wheel[due_slot, W_END]:
                if not _grow_slot(due_slot, wheel, arena, arena_used):
                    return GROW
                tail = wheel[due_slot, W_TAIL]
            arena[tail] = entry + 1
            wheel[due_slot, W_TAIL] = tail + 1
            pending += 1
    if pending > 0:
        _empty_slots(wheel)
    elif drain < 0:
        drain = n_rounds - window_end
    has_after = window_start < window_end < n_rounds
    counters[REQUEST_COUNT] = requests
    counters[CALLS] = requests + retries
    counters[PRIMARY] = requests
    counters[RETRIES] = retries
    counters[IN_FLIGHT] = pending
    counters[SECOND_PEAK] = second_peak if has_after else UNDEFINED
    counters[DRAIN] = drain if has_after else UNDEFINED
    return DONE


@njit(
    types.UniTuple(_i8, 2)(
        *[_i8, types.float64, types.float64, _i8, _ai4_2, _ai8_2, _ai8_2, types.float64[:, ::1]],
        *[_ai4_2, _ai8, _i8, _i8, _i8, _i8, _i8, _ai8_3, _i8],
    ),
    nogil=True,
    **_OPTIONS,
)
def simulate_lesson(
    n_rounds,
    exp_rate,
    failure_rate,
    service_drawn,
    capacities,
    profiles,
    cells,
    ceilings,
    limits,
    seeds,
    n_requests,
    attempt_bits,
    wheel_size,
    slot_room,
    arena_size,
    counters,
    start,
):
    """Fill the rows of a block of cells, each with the lesson's stream from its own seed.

    Parameters are those of `simulate_philox`, but for these.

    Parameters
    ----------
    exp_rate : float64
        exp(-arrivals per round), made outside: compilers differ in its last bit.
    failure_rate : float64
        Probability that a served call fails, the same for all cells of the block.
    service_drawn : int64
        1 where the lesson draws it: in cells without a fault window.
    ceilings : ndarray of float64, shape (B, A)
        Backoff ceiling after each attempt, in rounds.
    seeds : ndarray of int64, shape (R,)
        States from which the streams start, 1 <= seed < 2**31 - 1.
    """
    n_cells = cells.shape[0]
    wheel = np.empty((wheel_size, 3), np.int64)
    arena = np.zeros(arena_size, np.int64)
    arena_used = np.empty(1, np.int64)
    arena_used[0] = wheel_size * slot_room
    _lay_out_slots(wheel, slot_room)
    for row in range(start, seeds.size * n_cells):
        r = row // n_cells
        c = row % n_cells
        p = cells[c, C_PROFILE]
        status = _replicate_lesson(
            n_rounds,
            exp_rate,
            capacities[p],
            profiles[p, P_WINDOW_START],
            profiles[p, P_WINDOW_END],
            service_drawn,
            failure_rate,
            ceilings[cells[c, C_CEILINGS]],
            cells[c, C_MAX_ATTEMPTS],
            limits[cells[c, C_LIMITS]],
            cells[c, C_LIMIT_MASK],
            cells[c, C_THRESHOLD],
            attempt_bits,
            n_requests,
            wheel,
            arena,
            arena_used,
            seeds[r],
            counters[r, c],
        )
        if status != DONE:
            return status, row
    return DONE, seeds.size * n_cells


_config.CACHE_DIR = _numba_cache_dir
