"""Durations, sizes, lists of numbers and labelled lines, as a reader at a terminal wants them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence


def duration(seconds: float) -> str:
    """Write a duration in minutes and seconds, or hours and minutes."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def rough_duration(seconds: float) -> str:
    """Write a duration that was estimated: below a minute, two significant digits."""
    return duration(seconds) if seconds >= 60 else f"{two_digits(seconds)} s"


def size(n_bytes: float) -> str:
    """Write a number of bytes in units of a thousand."""
    power = min(4, max(0, int(math.log10(max(n_bytes, 1)) // 3)))
    number = n_bytes / 1000**power
    digits = f"{number:.0f}" if number >= 100 or power == 0 else two_digits(number)
    return f"{digits} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def two_digits(number: float) -> str:
    """Round to two significant digits."""
    return f"{float(f'{number:.2g}'):g}"


def first_three(numbers: Sequence[int]) -> str:
    """List the first three numbers; dots stand for the others."""
    return ", ".join(map(str, numbers[:3])) + (", ..." if len(numbers) > 3 else "")


def first_to_last(numbers: Sequence[int]) -> str:
    """Write one number, or the first and the last of several."""
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def labelled_lines(texts: Mapping[str, str], *, wrap: bool = False) -> Iterator[str]:
    """Write each text that is not empty beside its label, line below line.

    With `wrap`, lines longer than 80 characters are broken between words.
    """
    width = max(map(len, texts))
    for label, text in texts.items():
        lines = text.splitlines()
        if wrap:
            lines = [part for line in lines for part in textwrap.wrap(line, 80 - width - 4)]
        for number, line in enumerate(lines):
            yield f"  {'' if number else label:<{width}}  {line}"
