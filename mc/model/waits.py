"""How long the layers of a chain wait before they retry, and so how long a request can live.

All that depends on the name of a jitter is here: the delays it can draw, exactly, in ticks of
2**-32 rounds. What the kernel reads is made of them in `kernel_tables`.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from mc.model.budgets import Budget
    from mc.model.cell import Cell

TICKS: Final = 2**32
"""Ticks in a round, and values that a drawn word can have."""

Jitter = Literal["full", "equal", "none", "plus_minus", "decorrelated", "polly"]

POLLY_STEPS: Final = 1024
"""Steps of the curve of `polly`: the 10 high bits of a word name one, the others go between."""

POLLY_MOST: Final = 2.0**30
"""Most that ``backoff_base * 2**tries`` may be with `polly`, in rounds: the curve has 64 bits."""

DECORRELATED_MOST: Final = 2.0**29
"""Most that `backoff_base` may be with `decorrelated`, in rounds: 3 times it has 64 bits."""


class Backoff(NamedTuple):
    """How a layer waits; base, cap and first wait in rounds."""

    base: float
    factor: float
    cap: float
    jitter: Jitter
    share: float
    first_wait: float | None


class Layer(NamedTuple):
    """One layer of a chain: its attempts, its waits, its deadline (rounds) and budget."""

    tries: int
    backoff: Backoff
    deadline: int | None
    budget: float | Budget | None


class Wait(NamedTuple):
    """What a layer can wait after one of its attempts.

    Attributes
    ----------
    offset, width : float
        The delay lies between offset and offset + width, rounds.
    longest : int
        Rounds until the retry runs, at most.
    """

    offset: float
    width: float
    longest: int


class Schedule(NamedTuple):
    """The waits of each layer by attempt, the outermost first, and the life of a request.

    Attributes
    ----------
    layers : tuple of tuple of Wait
        One for each attempt of a layer that a retry can follow.
    longest : int
        Most rounds between the arrival of a request and its last attempt.
    """

    layers: tuple[tuple[Wait, ...], ...]
    longest: int


def schedule(cell: Cell) -> Schedule:
    """The waits of each layer of a cell, and how long they let a request live."""
    return Schedule(tuple(map(waits_of, cell.layers)), longest_life(cell.layers))


@functools.lru_cache(maxsize=4096)
def longest_life(layers: tuple[Layer, ...], in_queue: int = 0) -> int:
    """Most rounds between the first attempt of a request and the end of its last.

    Each attempt of a layer can take as long as the layers inside take for it, a call as many
    rounds as it waits `in_queue`, and no attempt begins, or waits, after the deadline of a layer
    that works on it.
    """
    longest = in_queue
    for layer in reversed(layers):
        longest = layer.tries * longest + _longest_waits(layer.backoff, layer.tries - 1)
        if layer.deadline is not None:
            longest = min(longest, layer.deadline)
    return longest


@functools.lru_cache(maxsize=4096)
def longest_wait(layers: tuple[Layer, ...]) -> int:
    """Most rounds between an attempt and the retry that follows it; 0 without retries."""
    return max((wait.longest for layer in layers for wait in waits_of(layer)), default=0)


def waits_of(layer: Layer) -> tuple[Wait, ...]:
    """The waits of a layer, one for each of its attempts that a retry can follow."""
    return tuple(
        Wait(offset / TICKS, width / TICKS, _rounds_up(offset + width))
        for offset, width in spans(layer.backoff, layer.tries - 1)
    )


def _rounds_up(delay: int) -> int:
    return max(1, -(-delay // TICKS))


@functools.lru_cache(maxsize=4096)
def _longest_waits(backoff: Backoff, n: int) -> int:
    """Most rounds that the first n waits of one call of a layer take together."""
    longest = [_rounds_up(offset + width) for offset, width in spans(backoff, n)]
    total = sum(longest)
    if backoff.jitter == "polly" and n > 0:
        # together the delays end on the curve, wherever they go between; each is rounded up
        first = 0 if backoff.first_wait is None else longest[0]
        total = min(total, first + n + polly_curve(backoff.base, n - 1)[-1] // TICKS)
    return total


@functools.lru_cache(maxsize=64)
def spans(backoff: Backoff, n: int) -> tuple[tuple[int, int], ...]:
    """Between which bounds the delays after the first n attempts of a layer's call lie.

    Returns
    -------
    tuple of (offset, width)
        In ticks. Where the jitter has no memory the delay is ``offset + u * width``.

    Notes
    -----
    `full`, `equal`, `decorrelated`: Brooker 2015, "Exponential Backoff And Jitter", AWS
    Architecture Blog; `plus_minus`: gRPC proposal A6; `polly`: Polly.Core, RetryHelper.cs.
    """
    if backoff.jitter == "decorrelated":
        found = _decorrelated_spans(backoff, n)
    elif backoff.jitter == "polly":
        curves = [polly_curve(backoff.base, k) for k in range(n)]
        befores = [0, *(curve[0] for curve in curves)]
        cap = in_ticks(backoff.cap)
        found = [
            (0, min(cap, curve[-1] - before))
            for curve, before in zip(curves, befores, strict=False)
        ]
    else:
        found = [_span(backoff, in_ticks(e)) for e in ceilings(backoff, n)]
    if backoff.first_wait is not None:
        found[:1] = [(in_ticks(backoff.first_wait), 0)][:n]
    return tuple(found)


def ceilings(backoff: Backoff, n: int) -> list[float]:
    """``min(cap, base * factor**k)`` for attempts k = 0 .. n - 1 of a layer, rounds.

    One multiplication of doubles for each attempt: the last bit of a power differs between
    platforms.
    """
    rising: list[float] = []
    e = backoff.base
    while len(rising) < n:
        rising.append(min(backoff.cap, e))
        if not 0 < e < backoff.cap or backoff.factor == 1:  # it stays
            rising += rising[-1:] * (n - len(rising))
        e *= backoff.factor
    return rising


def _span(backoff: Backoff, ceiling: int) -> tuple[int, int]:
    if backoff.jitter == "full":
        return 0, ceiling
    if backoff.jitter == "equal":
        return ceiling - ceiling // 2, ceiling // 2
    if backoff.jitter == "none":
        return ceiling, 0
    half = round(Fraction(repr(backoff.share)) * ceiling)
    return ceiling - half, 2 * half


def _decorrelated_spans(backoff: Backoff, n: int) -> list[tuple[int, int]]:
    base, cap = in_ticks(backoff.base), in_ticks(backoff.cap)
    found: list[tuple[int, int]] = []
    before = base  # after the first wait of `first_wait`, too
    for k in range(n):
        if k > 0 or backoff.first_wait is None:
            before = min(cap, max(base, 3 * before))
        found.append((min(base, cap), before - min(base, cap)))
    return found


def in_ticks(rounds: float) -> int:
    """The tick nearest to a time in rounds."""
    return round(math.ldexp(rounds, 32))


@functools.lru_cache(maxsize=1024)
def polly_curve(base: float, k: int) -> tuple[int, ...]:
    """``base * 2**t * tanh(sqrt(4 t)) / 1.4`` for t = k + u, at each step of u from 0 to 1, ticks.

    A delay of `polly` is the way from where the one before ended to where u lies on the curve.

    Notes
    -----
    Polly v8: src/Polly.Core/Retry/RetryHelper.cs, DecorrelatedJitterBackoffV2. Every entry is the
    integer nearest to the exact value, since the last bits of a platform's tanh differ. The line
    between two entries is off by at most 1.2 % of the base (k = 0, first step), else by less than
    0.1 %.
    """
    if base == 0:
        return (0,) * (POLLY_STEPS + 1)
    with decimal.localcontext(_DIGITS):
        scale = Decimal(base) * 2**k * TICKS / Decimal("1.4")
        return tuple(round(scale * value) for value in _polly_values(k))


_DIGITS: Final = decimal.Context(prec=40)
"""More than the 19 of 64 bits, so that what is rounded to an integer is the exact value."""


@functools.lru_cache(maxsize=64)
def _polly_values(k: int) -> tuple[Decimal, ...]:
    """``2**u * tanh(sqrt(4 (k + u)))`` at each step of u."""
    values = []
    with decimal.localcontext(_DIGITS):
        doubling = Decimal(2).ln() / POLLY_STEPS
        for step in range(POLLY_STEPS + 1):
            x = (4 * (k + Decimal(step) / POLLY_STEPS)).sqrt()
            falling = (-2 * x).exp()
            values.append((step * doubling).exp() * (1 - falling) / (1 + falling))
    return tuple(values)
