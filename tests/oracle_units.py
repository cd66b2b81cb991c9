"""Quantities with units, as an experiment file writes them; all arithmetic is exact.

A number that is written as 0.3 means three tenths here, not the double nearest to it. Only what the
lesson takes as a double (the mean of its arrivals, its waits) stays one, so that its rows stay.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

Time = int | float | str
"""Rounds as a number, or a text with a unit: ``"250 ms"``, ``"45 s"``, ``"2 min"``, ``"1 h"``."""

Rate = int | float | str
"""Per round as a number, or a text with a unit: ``"400/s"``, ``"0.5/min"``."""

Share = float | str
"""A part of the whole: ``0.3`` or ``"30 %"``."""

SECONDS: Final = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}


def exact(number: float | str) -> Fraction:
    """Return the decimal that was written."""
    return Fraction(str(number))


def in_rounds(time: Time, rounds_per_second: float) -> Fraction:
    """Return a time in rounds, whole or not."""
    if not isinstance(time, str):
        return exact(time)
    number, unit = _parsed(r"([\d.]+) *(ms|s|min|h)", time)
    return exact(number) * SECONDS[unit] * exact(rounds_per_second)


def whole_rounds(time: Time, rounds_per_second: float) -> int:
    """Return a time in rounds; a ValueError where it is not a whole number of them."""
    rounds = in_rounds(time, rounds_per_second)
    if rounds.denominator != 1:
        raise ValueError(f"{time!r} is no whole number of rounds but {float(rounds)}")
    return rounds.numerator


def per_round(rate: Rate, rounds_per_second: float) -> Fraction:
    """Return a rate per round."""
    if not isinstance(rate, str):
        return exact(rate)
    number, unit = _parsed(r"([\d.]+) */ *(ms|s|min|h)", rate)
    return exact(number) / SECONDS[unit] / exact(rounds_per_second)


def share(part: Share) -> Fraction:
    """Return a share as a fraction of 1."""
    if not isinstance(part, str):
        return exact(part)
    (number,) = _parsed(r"([\d.]+) *%", part)
    return exact(number) / 100


def _parsed(pattern: str, text: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form {pattern}")
    return match.groups()
