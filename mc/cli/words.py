"""Numbers and lines in words, for a reader at a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping


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


def labelled(entries: Mapping[str, str]) -> Iterator[str]:
    """A line for each entry that has something to say."""
    width = max(map(len, entries))
    return (f"  {label:<{width}}  {text}" for label, text in entries.items() if text)


def size(n_bytes: float) -> str:
    """A number of bytes, in units of a thousand."""
    power = min(4, max(0, int(math.log10(max(n_bytes, 1)) // 3)))
    number = n_bytes / 1000**power
    digits = f"{number:.0f}" if number >= 100 or power == 0 else f"{float(f'{number:.2g}'):g}"
    return f"{digits} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
