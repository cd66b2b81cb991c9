"""Every random number: Philox, the map of its streams, the arrivals, and the draws remembered.

The stream map of the generator `philox`
----------------------------------------
Philox4x32-10, key = (low half, high half) of the experiment's seed. A draw is a function of its
purpose alone. Counter words, r the replication, (t, j) the j-th request that arrives in round t::

    stream    c0      c1    c2  c3                    words of the block
    ARRIVALS  t >> 1  0     r   1                     0, 1 of an even t; 2, 3 of an odd t (64 bits)
    SERVICE   t       j>>2  r   2 | attempt << 2      j & 3
    JITTER    t       j     r   3 | attempt>>2 << 2   attempt & 3
    CLIENT    t       j>>2  r   4                     j & 3
    THROTTLE  t       j|l<<24  r  5 + (attempt>>2<<2) attempt & 3; l the layer

ARRIVALS is compared with thresholds (inversion: monotone in the rate), SERVICE with
``failure_rate * 2**32``, JITTER is multiplied by the width of the wait, CLIENT by the number of
clients, and THROTTLE is compared with the chance of a rejection. This map never changes silently:
known answers in the tests pin it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mc.kernel.cache import compiled, inlined
from mc.kernel.layout import ATTEMPT_MASK, INDEX_MASK, REQUEST_SHIFT, ROUND_SHIFT

_ARRIVALS: Final = np.uint64(1)
_SERVICE: Final = np.uint64(2)
_JITTER: Final = np.uint64(3)
_CLIENT: Final = np.uint64(4)
_THROTTLE: Final = np.uint64(5)

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


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Number of zeros below the lowest bit of a uint64 that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@intrinsic
def wide_vectors(typing_context: Any) -> Any:
    """Let LLVM use vectors of 512 bits in this function, if the machine has them.

    Of itself it prefers 256; with 512 a loop over blocks takes two thirds of the time. That holds
    for whole functions, so this one is not put into its callers.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # its own `add` refuses attributes that it does not know
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def kept_apart(typing_context: Any) -> Any:
    """Keep LLVM from putting this function into its callers.

    For what is rare in a small loop: the loop gets the registers, and 6 percent faster.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        set.add(builder.function.attributes, "noinline")
        return context.get_dummy_value()

    return types.none(), codegen


@inlined
def _round(c0, c1, c2, c3, k0, k1):
    p0 = _PHILOX_M0 * c0
    p1 = _PHILOX_M1 * c2
    return (p1 >> _U32) ^ c1 ^ k0, p1 & _M32, (p0 >> _U32) ^ c3 ^ k1, p0 & _M32


@inlined
def _philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds, written out.

    LLVM turns a loop over blocks into SIMD code if nothing in it loops (1.9 instead of 15 ns a
    block).
    """
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + _PHILOX_W0) & _M32, (k1 + _PHILOX_W1) & _M32
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
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


# --- the draws of one call -----------------------------------------------------------------------


@inlined
def arrivals_block(stream, i):
    """ARRIVALS words of rounds 2 i and 2 i + 1."""
    return _philox(U(i), U(0), stream.replication, _ARRIVALS, stream.k0, stream.k1)


@inlined
def service_block(stream, t, j, attempt):
    """SERVICE words of an attempt of four requests of round t, the j-th among them."""
    c3 = _SERVICE | (U(attempt) << _U2)
    return _philox(U(t), U(j >> 2), stream.replication, c3, stream.k0, stream.k1)


@inlined
def jitter_block(stream, t, j, attempt):
    """JITTER words of the j-th request of round t after four attempts, this among them."""
    c3 = _JITTER | (U(attempt >> 2) << _U2)
    return _philox(U(t), U(j), stream.replication, c3, stream.k0, stream.k1)


@compiled()
def _draw_together(stream, purpose, shift, n, t, j, words):
    """Draw n blocks in a loop that becomes SIMD code: 2 to 6 ns each, one by one 21."""
    wide_vectors()
    t, j, w0, w1, w2, w3 = t[:n], j[:n], words[0], words[1], words[2], words[3]
    for i in range(n):
        w0[i], w1[i], w2[i], w3[i] = _philox(
            U(t[i]), U(j[i]) >> shift, stream.replication, purpose, stream.k0, stream.k1
        )


@inlined
def draw_service(stream, n, requests, attempt, words):
    """Draw the SERVICE blocks of an attempt of n requests, listed by round and index."""
    purpose = _SERVICE | (U(attempt) << _U2)
    _draw_together(stream, purpose, U(2), n, requests[0], requests[1], words)


@inlined
def draw_jitter(stream, n, requests, attempt, words):
    """Draw the JITTER blocks of four attempts of n requests, this among them."""
    purpose = _JITTER | (U(attempt >> 2) << _U2)
    _draw_together(stream, purpose, U(0), n, requests[0], requests[1], words)


@inlined
def _of_entry(first, entry):
    """Arrival round, index in that round, and attempt of an entry."""
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    return t, j, entry & ATTEMPT_MASK


@inlined
def _word(block, k):
    return block[0] if k == 0 else block[1] if k == 1 else block[2] if k == 2 else block[3]


@compiled()
def jitter_word(stream, first, entry):
    """The JITTER word of an entry: how long it waits when it fails."""
    t, j, attempt = _of_entry(first, entry)
    return _word(jitter_block(stream, t, j, attempt), attempt & 3)


@compiled()
def service_word(stream, first, entry):
    """The SERVICE word of an entry: whether it fails though it is served."""
    t, j, attempt = _of_entry(first, entry)
    return _word(service_block(stream, t, j, attempt), j & 3)


@compiled()
def client_word(stream, t, j):
    """The CLIENT word of a request: whose it is."""
    block = _philox(U(t), U(j >> 2), stream.replication, _CLIENT, stream.k0, stream.k1)
    return _word(block, j & 3)


@compiled()
def throttle_word(stream, first, entry, layer):
    """The THROTTLE word of an entry at a layer: whether it is rejected before it leaves."""
    t = entry >> ROUND_SHIFT
    j = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - np.int64(first[U(t)])
    c3 = _THROTTLE + (U((entry & ATTEMPT_MASK) >> 2) << _U2)
    block = _philox(U(t), U(j | (layer << 24)), stream.replication, c3, stream.k0, stream.k1)
    return _word(block, entry & 3)


# --- draws remembered ----------------------------------------------------------------------------
# A block of draws is kept where its index says; the tag tells whose it is. Another cell of the same
# replication finds it there; a newer request may overwrite it, and then it is drawn again.


@inlined
def keep(memory, place, tag, block):
    """Write a block to its place."""
    memory.words[U(8 * place + 2)] = block[0]
    memory.words[U(8 * place + 3)] = block[1]
    memory.words[U(8 * place + 4)] = block[2]
    memory.words[U(8 * place + 5)] = block[3]
    memory.tags[U(4 * place)] = tag


@inlined
def jitter_place(stream, memory, entry):
    """Where the JITTER block of an entry is kept, and its tag."""
    place = ((entry >> REQUEST_SHIFT) & memory.request_mask) | (
        (entry << (memory.level_shift - 2)) & memory.level_mask
    )
    return place, stream.serial | ((entry & INDEX_MASK) >> 2)


@inlined
def service_place(stream, memory, entry, k):
    """Where the SERVICE block of an entry is kept, and its tag; k is its place in the block."""
    request = ((entry & INDEX_MASK) >> REQUEST_SHIFT) - k
    place = (request & memory.request_mask) | ((entry << memory.level_shift) & memory.level_mask)
    return place, stream.serial | ((entry & INDEX_MASK) - (k << REQUEST_SHIFT))


@compiled()
def remember_jitter(stream, first, memory, entry, place, tag):
    """Draw the block of an entry's JITTER word, keep it, and give the word."""
    t, j, attempt = _of_entry(first, entry)
    block = jitter_block(stream, t, j, attempt)
    keep(memory, place, tag, block)
    return _word(block, attempt & 3)


@compiled()
def _remember_service(stream, first, memory, entry, place, tag, k):
    t, j, attempt = _of_entry(first, entry)
    block = service_block(stream, t, j, attempt)
    keep(memory, place, tag, block)
    return _word(block, k)


@compiled()
def remembered_jitter(stream, first, memory, entry):
    """The JITTER word of an entry, drawn if it is not remembered."""
    place, tag = jitter_place(stream, memory, entry)
    word = U(memory.words[U(8 * place + 2 + (entry & 3))])
    if unlikely(memory.tags[U(4 * place)] != tag):
        word = remember_jitter(stream, first, memory, entry, place, tag)
    return word


@compiled()
def remembered_service(stream, first, memory, entry):
    """The SERVICE word of an entry, drawn if it is not remembered."""
    request = (entry & INDEX_MASK) >> REQUEST_SHIFT
    k = (request - np.int64(first[U(entry >> ROUND_SHIFT)])) & 3
    place, tag = service_place(stream, memory, entry, k)
    word = U(memory.words[U(8 * place + 2 + k)])
    if unlikely(memory.tags[U(4 * place)] != tag):
        word = _remember_service(stream, first, memory, entry, place, tag, k)
    return word
