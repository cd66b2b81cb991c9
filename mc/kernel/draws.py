"""Every random number: Philox, the map of its streams, the arrivals, and the draws remembered.

The stream map of the generator `philox`
----------------------------------------
Philox4x32-10, key = (low half, high half) of the experiment's seed. A draw is a function of its
purpose alone. Counter words, r the replication, (t, j) the j-th request that arrives in round t::

    stream    c0      c1    c2  c3                    words of the block
    ARRIVALS  t >> 1  0     r   1                     0, 1 of an even t; 2, 3 of an odd t (64 bits)
    SERVICE   t       j>>2  r   2 | attempt << 2      j & 3
    JITTER    t       j     r   3 | attempt>>2 << 2   attempt & 3

ARRIVALS is compared with thresholds (inversion: monotone in the rate), SERVICE with
``failure_rate * 2**32``, and JITTER is multiplied by the width of the wait. This map never changes
silently: known answers in the tests pin it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from mc.kernel.cache import compiled
from mc.kernel.layout import ATTEMPT_MASK, INDEX_MASK, REQUEST_SHIFT, ROUND_SHIFT

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


@intrinsic
def wait_of(typing_context: Any, word: Any, width: Any, offset: Any) -> Any:
    """Rounds until a retry: ``max(1, 1 + floor(offset + word / 2**32 * width))``.

    Offset and width in 2**-32 rounds, the offset in two's complement: it may be -1. The product has
    128 bits, so the wait is exact.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        word, width = (builder.zext(arg, wide) for arg in args[:2])
        start = builder.shl(builder.sext(args[2], wide), ir.Constant(wide, 32))
        total = builder.add(builder.mul(word, width), start)
        high = builder.trunc(builder.lshr(total, ir.Constant(wide, 64)), ir.IntType(64))
        zero, one = (ir.Constant(ir.IntType(64), n) for n in (0, 1))
        rounds = builder.select(builder.icmp_signed("<", high, zero), zero, high)
        return builder.add(rounds, one)

    return types.int64(types.uint64, types.uint64, types.uint64), codegen


@intrinsic
def scaled(typing_context: Any, word: Any, width: Any) -> Any:
    """``floor(word / 2**32 * width)``, by a product of 128 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(arg, wide) for arg in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 32)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def unlikely(typing_context: Any, condition: Any) -> Any:
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


@compiled(entry=True)
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


# --- the traffic of one replication, made once for all cells -------------------------------------


@compiled()
def draw_arrivals(stream, n_rounds, thresholds, guide, uniforms, arrivals, first):
    """Draw the arrivals of each round and number their first requests; give their sum.

    The guide names, for the 12 high bits of a uniform, the count to start from. Few of its 4096
    steps hold a threshold, so the search that follows ends at once and its branch is predicted.
    """
    for i in range(uniforms.size >> 1):  # a block for two rounds, in a loop that becomes SIMD code
        w0, w1, w2, w3 = _philox(U(i), U(0), stream.replication, _ARRIVALS, stream.k0, stream.k1)
        uniforms[2 * i] = (w0 << _U32) | w1
        uniforms[2 * i + 1] = (w2 << _U32) | w3
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


@compiled()
def draw_first_service(stream, n_rounds, words):
    """Draw the SERVICE words of the first attempts of the first four requests of every round.

    Rounds without requests are drawn, too: that costs less than to leave them out.
    """
    for t in range(n_rounds):
        w0, w1, w2, w3 = _philox(U(t), U(0), stream.replication, _SERVICE, stream.k0, stream.k1)
        words[0, t] = w0
        words[1, t] = w1
        words[2, t] = w2
        words[3, t] = w3


# --- the draws of one call -----------------------------------------------------------------------


@njit(inline="always")
def _jitter_block(stream, first, entry):
    """The JITTER words of four attempts, the entry's among them."""
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    c3 = _JITTER | (U((entry & ATTEMPT_MASK) >> 2) << _U2)
    return _philox(U(t), U(j), stream.replication, c3, stream.k0, stream.k1)


@njit(inline="always")
def _service_block(stream, first, entry):
    """The SERVICE words of four requests, the entry's among them."""
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    c3 = _SERVICE | (U(entry & ATTEMPT_MASK) << _U2)
    return _philox(U(t), U(j >> 2), stream.replication, c3, stream.k0, stream.k1)


@njit(inline="always")
def _word(block, k):
    return block[0] if k == 0 else block[1] if k == 1 else block[2] if k == 2 else block[3]


@compiled()
def jitter_word(stream, first, entry):
    """The JITTER word of an entry: how long it waits when it fails."""
    return _word(_jitter_block(stream, first, entry), entry & 3)


@compiled()
def service_word(stream, first, entry):
    """The SERVICE word of an entry: whether it fails though it is served."""
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    j = request - np.int64(first[U(entry >> ROUND_SHIFT)])
    return _word(_service_block(stream, first, entry), j & 3)


# --- draws remembered ----------------------------------------------------------------------------
# A block of draws is kept where its index says; the tag tells whose it is. Another cell of the same
# replication finds it there; a newer request may overwrite it, and then it is drawn again.


@njit(inline="always")
def _remember(memory, place, tag, block):
    memory.words[U(8 * place + 2)] = block[0]
    memory.words[U(8 * place + 3)] = block[1]
    memory.words[U(8 * place + 4)] = block[2]
    memory.words[U(8 * place + 5)] = block[3]
    memory.tags[U(4 * place)] = tag


@compiled()
def remember_jitter(stream, first, memory, entry, place, tag):
    """Draw the block of an entry's JITTER word, keep it, and give the word."""
    block = _jitter_block(stream, first, entry)
    _remember(memory, place, tag, block)
    return _word(block, entry & 3)


@compiled()
def _remember_service(stream, first, memory, entry, place, tag, k):
    block = _service_block(stream, first, entry)
    _remember(memory, place, tag, block)
    return _word(block, k)


@compiled()
def remembered_jitter(stream, first, memory, entry):
    """The JITTER word of an entry, drawn if it is not remembered."""
    tag = stream.serial | ((entry & INDEX_MASK) >> 2)
    place = ((entry >> REQUEST_SHIFT) & memory.request_mask) | (
        (entry << (memory.level_shift - 2)) & memory.level_mask
    )
    word = U(memory.words[U(8 * place + 2 + (entry & 3))])
    if unlikely(memory.tags[U(4 * place)] != tag):
        word = remember_jitter(stream, first, memory, entry, place, tag)
    return word


@compiled()
def remembered_service(stream, first, memory, entry):
    """The SERVICE word of an entry, drawn if it is not remembered."""
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    k = (request - np.int64(first[U(entry >> ROUND_SHIFT)])) & 3
    tag = stream.serial | ((entry & INDEX_MASK) - (k << REQUEST_SHIFT))
    place = ((request - k) & memory.request_mask) | (
        (entry << memory.level_shift) & memory.level_mask
    )
    word = U(memory.words[U(8 * place + 2 + k)])
    if unlikely(memory.tags[U(4 * place)] != tag):
        word = _remember_service(stream, first, memory, entry, place, tag, k)
    return word


@compiled()
def remember_window(stream, begin, end, traffic, memory):
    """Draw the first JITTER block of every request of some rounds, ahead of its need.

    Nearly all of them are needed where the dependency serves less than arrives. Drawn together
    they take 6 ns each, one by one 21. They are listed first, four to a round without a branch.
    """
    first, arrivals, listed, drawn = traffic.first, traffic.arrivals, traffic.listed, traffic.drawn
    n = 0
    for t in range(begin, end):
        for j in range(max(4, arrivals[t])):
            listed[0, n + j] = t
            listed[1, n + j] = j
        n += arrivals[t]
    for i in range(n):
        w0, w1, w2, w3 = _philox(
            U(listed[0, i]), U(listed[1, i]), stream.replication, _JITTER, stream.k0, stream.k1
        )
        drawn[0, i] = w0
        drawn[1, i] = w1
        drawn[2, i] = w2
        drawn[3, i] = w3
    for i in range(n):
        request = np.int64(first[begin]) + i
        tag = stream.serial | (request << (REQUEST_SHIFT - 2))
        block = drawn[0, i], drawn[1, i], drawn[2, i], drawn[3, i]
        _remember(memory, request & memory.request_mask, tag, block)
