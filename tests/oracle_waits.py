"""How long a layer waits before it retries.

Time is counted in ticks of 2**-32 rounds, the resolution of a draw, so every wait is exact: a delay
is a whole number of ticks, made of the layer's settings and one 32-bit word (u = word / 2**32)::

    jitter         delay x in ticks; e = ceiling(n) after the layer's attempt n, in ticks
    full           (word * e) >> 32
    equal          (e - h) + (word * h >> 32)              h = e // 2
    none           e
    plus_minus     (e - h) + (word * 2h >> 32)             h = share * e, to the nearest tick
    decorrelated   min(cap, base + (word * w >> 32))       w = max(base, 3 x') - base
    polly          min(cap, F(n, word) - F')               F from a table, see `polly_position`

x' is the delay before (at first the base), F' the F of the retry before (at first 0); both belong
to one call of one layer and start afresh with its next. The retry runs ``max(1, ceil(x))`` rounds
later; with full jitter it runs ``1 + floor(x)`` rounds later, as in the lesson, which is another
number only where x is a whole number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, NamedTuple

TICKS: Final = 2**32
"""Ticks in a round, and the number of values of a word."""

Jitter = Literal["full", "equal", "none", "plus_minus", "decorrelated", "polly"]

Formula = Callable[[int], int]
"""From a 32-bit word to a delay in ticks."""


class Backoff(NamedTuple):
    """How one layer waits.

    Attributes
    ----------
    base, cap : float
        In rounds; doubles, as in the lesson. The cap bounds e; with `plus_minus` a delay may pass
        it by the share, as with gRPC (A6: the cap is applied before the jitter).
    factor : float
        At least 1. e grows by one multiplication of doubles for each attempt, with no power
        function, whose last bit differs between platforms.
    jitter : str
        A row of the table above.
    share : Fraction
        Of `plus_minus`, 0 to 1.
    first_wait : Fraction or None
        Rounds of the first retry of every call of the layer, in place of the jitter's, not drawn;
        0 lets it run in the next round. The next wait is what it would be without it: its
        exponent is 1 (as in urllib3), its x' still the base, its F' still 0.
    """

    base: float = 2.0
    factor: float = 2.0
    cap: float = 32.0
    jitter: Jitter = "full"
    share: Fraction = Fraction(1, 5)
    first_wait: Fraction | None = None

    @property
    def first_memory(self) -> int:
        """What a new call of the layer remembers of the retry before: x' or F', in ticks."""
        return in_ticks(self.base) if self.jitter == "decorrelated" else 0


@lru_cache(maxsize=100_000)
def ceiling(base: float, factor: float, cap: float, n: int) -> int:
    """Return min(cap, base * factor**n), in ticks; base and cap are in rounds."""
    e = base
    for _ in range(n):
        if not 0 < e < cap or factor == 1:
            break
        e *= factor
    return in_ticks(min(cap, e))


def in_ticks(rounds: float | Fraction) -> int:
    """Return the tick nearest to a time, of two equally near ones the even one."""
    return round(Fraction(rounds) * TICKS)


def wait(backoff: Backoff, n: int, memory: int, draw: Callable[[Formula], int]) -> tuple[int, int]:
    """Return the wait after the layer's attempt n, and what to remember of it.

    Parameters
    ----------
    backoff : Backoff
        The layer.
    n : int
        Which attempt of the layer has failed, from 0.
    memory : int
        What `first_memory` or the wait before gave.
    draw : callable (formula) -> int
        The delay in ticks, as the generator draws it by the formula.

    Returns
    -------
    rounds, memory : int
        Rounds until the retry runs, >= 1; what the next wait of this call needs.
    """
    if n == 0 and backoff.first_wait is not None:
        return max(1, math.ceil(backoff.first_wait)), memory
    if backoff.jitter == "decorrelated":
        x = min(in_ticks(backoff.cap), draw(_decorrelated(backoff, memory)))
        return _rounds_up(x), x
    if backoff.jitter == "polly":
        x = draw(lambda word: polly_position(backoff.base, n, word) - memory)
        return _rounds_up(min(in_ticks(backoff.cap), x)), memory + x
    offset, width = span(backoff, n)
    x = draw(lambda word: offset + (word * width >> 32))
    return (1 + x // TICKS if backoff.jitter == "full" else _rounds_up(x)), memory


def span(backoff: Backoff, n: int) -> tuple[int, int]:
    """Return (offset, width) in ticks: the delay is offset + u * width."""
    e = ceiling(backoff.base, backoff.factor, backoff.cap, n)
    if backoff.jitter == "full":
        return 0, e
    if backoff.jitter == "equal":
        return e - e // 2, e // 2
    if backoff.jitter == "none":
        return e, 0
    assert backoff.jitter == "plus_minus"
    half = round(backoff.share * e)
    return e - half, 2 * half


def _decorrelated(backoff: Backoff, before: int) -> Formula:
    base = in_ticks(backoff.base)
    width = max(base, 3 * before) - base
    return lambda word: base + (word * width >> 32)


def _rounds_up(x: int) -> int:
    return max(1, -(-x // TICKS))


POLLY_STEPS: Final = 1024
"""Steps of the table of F over u: the 10 high bits of a word name one, the 22 others go between."""


def polly_position(base: float, n: int, word: int) -> int:
    """Return F = base * 2**t * tanh(sqrt(4 t)) / 1.4 at t = n + u, in ticks.

    F is a table of exactly rounded entries over u with a straight line between two, so that
    integers suffice: no platform's tanh comes into it. The line is off by at most 1.2 % of the
    base (in the first step of n = 0, one draw in 1024), else by less than 0.1 %.

    Raises
    ------
    ValueError
        If F could pass 2**30 rounds: what multiplies table entries has 64 bits.

    Notes
    -----
    Polly: src/Polly.Core/Retry/RetryHelper.cs, DecorrelatedJitterBackoffV2.
    """
    table = _polly_table(base, n)
    step, rest = divmod(word, TICKS // POLLY_STEPS)
    return table[step] + ((table[step + 1] - table[step]) * rest >> 22)


@lru_cache(maxsize=1000)
def _polly_table(base: float, n: int) -> tuple[int, ...]:
    """Return F for each step of u, in ticks."""
    if base * 2.0 ** (n + 1) > 2**30:
        raise ValueError(f"polly: base * 2**tries must be <= 2**30 rounds, got base {base!r}")
    with localcontext(prec=50):
        scale = Decimal(base) * TICKS / Decimal("1.4")
        return tuple(int((scale * f).to_integral_value()) for f in _polly_curve(n))


@lru_cache(maxsize=100)
def _polly_curve(n: int) -> tuple[Decimal, ...]:
    """Return 2**t * tanh(sqrt(4 t)) for each step of t = n + u."""
    curve = []
    with localcontext(prec=50):
        step = (Decimal(2).ln() / POLLY_STEPS).exp()  # 2**t grows by it with each step of u
        power = Decimal(2) ** n
        for i in range(POLLY_STEPS + 1):
            x = (4 * (n + Decimal(i) / POLLY_STEPS)).sqrt()
            minus = (-2 * x).exp()  # tanh x = (1 - exp -2x) / (1 + exp -2x)
            curve.append(power * (1 - minus) / (1 + minus))
            power *= step
    return tuple(curve)
