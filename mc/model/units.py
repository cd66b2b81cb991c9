"""Numbers with a unit, as people write them: "250 ms", "400/s", "30 %"; and back into words.

The model counts time in rounds and everything else per round. How long a round is, each cell says
for itself, so a text with a unit stays a `Quantity` until its cell is put together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

Dimension = Literal["time", "rate", "share"]

SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""Length of each unit of time."""

FORMS: Final[dict[Dimension, str]] = {
    "time": '"250 ms", "45 s", "2 min" or "1 h"',
    "rate": '"400/s" or "30/min"',
    "share": '0.3 or "30 %"',
}
"""How a quantity of each dimension is written."""

_NUMBER: Final = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?"
_UNIT: Final = "|".join(SECONDS)
_PATTERNS: Final[dict[Dimension, re.Pattern[str]]] = {
    "time": re.compile(rf"(?P<number>{_NUMBER}) ?(?P<unit>{_UNIT})"),
    "rate": re.compile(rf"(?P<number>{_NUMBER}) ?/ ?(?P<unit>{_UNIT})"),
    "share": re.compile(rf"(?P<number>{_NUMBER}) %"),
}
PATTERNS: Final[dict[Dimension, str]] = {
    "time": f"^{_NUMBER} ?({_UNIT})$",
    "rate": f"^{_NUMBER} ?/ ?({_UNIT})$",
    "share": f"^{_NUMBER} %$",
}
"""The same as regular expressions of JSON schemas."""

_COMMA: Final = re.compile(r"[0-9]+(,[0-9]+)+(\.[0-9]+)?")

_WHOLE: Final = 1e-9
"""A time this close to a whole number of rounds, relatively, is one: 0.3 s are 30 rounds of 10 ms,
though no double says so."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit.

    Attributes
    ----------
    text : str
        As the user wrote it.
    dimension : {"time", "rate", "share"}
        What it measures.
    value : float
        In seconds, per second, or as a part of 1.
    """

    text: str
    dimension: Dimension
    value: float

    def __str__(self) -> str:
        return self.text


def parse(text: str, dimension: Dimension) -> Quantity | None:
    """Read a text with a unit; None if it is not written as `FORMS` says.

    Parameters
    ----------
    text : str
        For example ``250 ms``; the space may be left out before a unit of time.
    dimension : {"time", "rate", "share"}
        What the text should measure.

    Returns
    -------
    Quantity or None
    """
    match = _PATTERNS[dimension].fullmatch(text.strip())
    if match is None:
        return None
    number = float(match["number"])
    if dimension == "time":
        value = number * SECONDS[match["unit"]]
    elif dimension == "rate":
        value = number / SECONDS[match["unit"]]
    else:
        value = number / 100
    return Quantity(text, dimension, value) if math.isfinite(value) else None


def begins_with_a_number(text: str) -> bool:
    """Whether a text is a number with something behind it, so that a unit was probably meant."""
    return re.fullmatch(r"-?[0-9.]+[^0-9.].*", text.strip()) is not None


def is_number(text: str) -> bool:
    """Whether a text is a number in quotation marks."""
    return re.fullmatch(rf"-?{_NUMBER}", text.strip()) is not None


def advice(text: str, dimension: Dimension | None) -> str:
    """Say how a text that could not be read should be written; empty if that cannot be guessed.

    Parameters
    ----------
    text : str
        What the user wrote.
    dimension : {"time", "rate", "share"} or None
        What it should measure; None for a pure number.

    Returns
    -------
    str
    """
    text = text.strip()
    if _COMMA.fullmatch(text):
        groups = text.partition(".")[0].split(",")
        thousands = len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
        if len(groups) == 2 and "." not in text:
            point = text.replace(",", ".")
            both = f", or {text.replace(',', '')} without a comma" if thousands else ""
            return f"write {point} with a decimal point{both}"
        return f"write {text.replace(',', '')} without commas" if thousands else ""
    percent = re.fullmatch(rf"({_NUMBER})%", text)
    if percent is not None and dimension == "share":
        return f'write "{percent[1]} %" or {float(percent[1]) / 100:g}'
    return f"write a number, or a text such as {FORMS[dimension]}" if dimension else ""


def unquoted(line: str) -> str:
    """Say how a line of TOML should give its value, if that lacks quotation marks.

    That is a word, or a number with a unit. Empty for any other line.
    """
    word = re.fullmatch(r"\s*[\w.\"]+\s*=\s*([A-Za-z][\w-]*)\s*(#.*)?", line)
    if word is not None and word[1] not in ("true", "false"):
        return f'write "{word[1]}" in quotation marks'
    found = re.fullmatch(r"\s*[\w.\"]+\s*=\s*(-?[0-9.][^\"'#\[\]{}]*?)\s*(#.*)?", line)
    if found is None:
        return ""
    text = found[1]
    for dimension in FORMS:
        if parse(text, dimension) is not None:
            return f'write "{text}" in quotation marks'
    return advice(text, "share")


def in_rounds(seconds: float, rounds_per_second: float) -> float:
    """Convert a time into rounds; exactly a whole number where it is one but for rounding."""
    return whole_if_nearly(seconds * rounds_per_second)


def whole_if_nearly(number: float) -> float:
    """Return the nearest whole number where a number differs from it by rounding alone."""
    nearest = round(number)
    return float(nearest) if abs(number - nearest) <= _WHOLE * max(1.0, number) else number


def neighbours(rounds: float, rounds_per_second: float) -> str:
    """Name the two whole numbers of rounds next to a time, in the user's unit."""
    near = (math.floor(rounds), math.floor(rounds) + 1)
    times = [format_time(n / rounds_per_second) for n in near]
    if times[0] == times[1]:  # they differ in a digit that a reader is spared elsewhere
        times = [f"{n / rounds_per_second:.8g} s" for n in near]
    low, high = (
        f"{time} ({n} round{'' if n == 1 else 's'})" for time, n in zip(times, near, strict=True)
    )
    return f"{low} or {high}"


def format_time(seconds: float) -> str:
    """Write a time for a reader: four digits, in the unit that suits it.

    >>> [format_time(x) for x in (0.02, 7.34, 45, 600, 5400)]
    ['20 ms', '7.34 s', '45 s', '10 min', '1.5 h']
    """
    for unit, least in (("h", 3600.0), ("min", 120.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= least:
            return f"{_four_digits(seconds / SECONDS[unit])} {unit}"
    return f"{_four_digits(seconds / SECONDS['us'])} us" if seconds > 0 else "0 s"


def for_reader(unit: str, per_second: float | None) -> tuple[str, float]:
    """In which unit a reader is given a number, and by what it is multiplied for that.

    Parameters
    ----------
    unit : str
        Of the number, as columns have it.
    per_second : float or None
        Rounds in a second; None where a reader is given rounds, too.

    Returns
    -------
    unit : str
    factor : float
    """
    if per_second is not None and unit == "rounds":
        return "s", 1 / per_second
    if per_second is not None and unit == "calls/round":
        return "calls/s", per_second
    return unit, 1.0


@runtime_checkable
class Readable(Protocol):
    """A value of several numbers, which writes itself."""

    def in_words(self, per_second: float) -> str:
        """Write it for a reader; a second has so many rounds."""
        ...


def text_of(dimension: Dimension | None, value: object, per_second: float, unit: str = "") -> str:
    """Write a parameter's value for a reader.

    Parameters
    ----------
    dimension : {"time", "rate", "share"} or None
        What it measures.
    value : object
        In the parameter's own unit; a tuple has one for each layer.
    per_second : float
        Rounds in a second.
    unit : str
        The parameter's own unit.

    Returns
    -------
    str
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == ():
        return "none"
    if isinstance(value, list | tuple):
        return f"[{', '.join(text_of(dimension, entry, per_second, unit) for entry in value)}]"
    if isinstance(value, str):
        return value
    if isinstance(value, Readable):
        return value.in_words(per_second)
    assert isinstance(value, int | float)
    if dimension is None:
        return f"{value:.6g}"
    if dimension == "time":
        return format_time(value / per_second)
    if dimension == "rate":
        return format_rate(value * per_second if unit == "calls/round" else value)
    return format_share(value)


def format_rate(per_second: float) -> str:
    """Write a rate for a reader: four digits, per second."""
    return f"{_four_digits(per_second)}/s"


def format_share(share: float) -> str:
    """Write a share for a reader, in percent with four digits."""
    return f"{_four_digits(100 * share)} %"


def _four_digits(number: float) -> str:
    if number >= 1000:
        return f"{round(number):,}".replace(",", " ")
    return f"{number:.4g}"
