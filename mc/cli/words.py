"""Numbers and lines in words, for a reader at a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence


def duration(seconds: float) -> str:
    """A time in seconds, minutes and hours."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def in_words(seconds: float) -> str:
    """A time that was estimated: two digits of it count."""
    if seconds < 60:
        return f"{float(f'{seconds:.2g}'):g} s"
    return duration(seconds)


def labelled(entries: Mapping[str, str], *, wrap: bool = False) -> Iterator[str]:
    """A line for each entry that has something to say, or several, one below the other.

    With `wrap` they are cut between words where they are longer than 80 characters.
    """
    width = max(map(len, entries))
    for label, text in entries.items():
        lines = text.splitlines()
        if wrap:
            lines = [part for line in lines for part in textwrap.wrap(line, 80 - width - 4)]
        for number, line in enumerate(lines):
            yield f"  {'' if number else label:<{width}}  {line}"


def some(numbers: Sequence[int]) -> str:
    """The first of several numbers."""
    more = ", ..." if len(numbers) > 3 else ""
    return ", ".join(map(str, numbers[:3])) + more


def size(n_bytes: float) -> str:
    """A number of bytes, in units of a thousand."""
    power = min(4, max(0, int(math.log10(max(n_bytes, 1)) // 3)))
    number = n_bytes / 1000**power
    digits = f"{number:.0f}" if number >= 100 or power == 0 else f"{float(f'{number:.2g}'):g}"
    return f"{digits} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
