"""Numbers as text: no more digits than the error supports, or as an experiment file has them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, ROUND_UP, Context, Decimal
from typing import Any, Final

from mc.model import units
from mc.model.budgets import as_table
from mc.model.cell import PARAMETERS, as_number
from mc.model.metrics import METRICS
from mc.model.settings import Settings

MIN_REPLICATIONS: Final = 200
"""With fewer, a sample tells neither its skewness nor its spread: intervals are rough."""

FEW: Final = 30
"""A mean of the runs that have such a number says nothing if fewer have one."""

UNDECIDED: Final = 0.001
"""It is said if more requests than this share are undecided when the runs end."""

MISSING: Final = "-"
"""Printed in place of a number that is undefined."""

UNSURE: Final = "≈"
"""Printed before a mean of which nobody knows how well it is known: its runs are too skewed."""

_WIDE: Final = Context(prec=1100)  # no double has more digits than this
_N_DIGITS_ALONE: Final = 4  # of an estimate without an error
_MOST_DIGITS: Final = 5  # of an estimate with one
_MOST_DIGITS_SHORT: Final = 4


def format_estimate(mean: float | None, half_width: float | None) -> tuple[str, str]:
    """Print an estimate with no more digits than its error supports.

    Parameters
    ----------
    mean : float or None
        The estimate; None where it is undefined.
    half_width : float or None
        Half the length of its interval; None where it has none (a single replication).

    Returns
    -------
    estimate, error : str
        The error with two significant digits, or fewer where the estimate, which ends with the same
        digit, would have more than five. Where the error is missing or 0, it is printed as nothing
        or as 0, and the estimate as it is if it is a whole number, otherwise with four significant
        digits, or all before the point.

    Examples
    --------
    >>> format_estimate(4523.3172, 1.2345), format_estimate(96.0, None)
    (('4523.3', '1.2'), ('96', ''))
    >>> format_estimate(1.00008, 0.00092)
    ('1.0001', '0.0009')
    """
    if mean is None:
        return MISSING, ""
    if not half_width:
        error = "" if half_width is None else "0"
        if mean.is_integer():
            return str(int(mean)), error
        before = math.floor(math.log10(abs(mean))) + 1
        text = f"{mean:.{max(0, _N_DIGITS_ALONE - before)}f}"
        return _unsigned_zero(_without_end_zeros(text)), error
    return _with_error(mean, half_width, _first_digit(mean) - _MOST_DIGITS + 1)


def _with_error(mean: float, half_width: float, least: int) -> tuple[str, str]:
    """Round both to the second digit of the error, but to no power of ten below `least`."""
    # the exponent after rounding: 0.0996 is 0.10, not 0.100
    unit = Decimal(1).scaleb(max(int(f"{half_width:.1e}".partition("e")[2]) - 1, least))
    text, error = (Decimal(number).quantize(unit, context=_WIDE) for number in (mean, half_width))
    return _unsigned_zero(f"{text:f}"), f"{max(error, unit):f}"


def short_estimate(mean: float, half_width: float | None) -> str:
    """Print an estimate with its error in as few characters as a table of many columns has.

    With an error as `format_estimate` does, but in at most four digits; without one in three.

    Parameters
    ----------
    mean : float
    half_width : float or None
        Half the length of its interval; None or 0 for none.

    Returns
    -------
    str

    Examples
    --------
    >>> short_estimate(20.1144, 0.043), short_estimate(49.0, 3.2), short_estimate(1.0, None)
    ('20.11±0.04', '49.0±3.2', '1')
    """
    if half_width:
        least = max(_first_digit(mean) - _MOST_DIGITS_SHORT + 1, _LEAST_PLACE)
        return "±".join(_with_error(mean, half_width, least))
    return _at_place(mean, max(_first_digit(mean) - 2, _LEAST_PLACE), half_width)


def known_digits(mean: float, half_width: float | None, ends: Sequence[str] = ()) -> str:
    """Print an estimate in at most three digits, of which the last is known to ±1.

    Where that would be fewer digits than its range has, its error follows.

    Parameters
    ----------
    mean : float
    half_width : float or None
        Half the length of its interval; 0 where it is known exactly, None where nobody knows how
        well.
    ends : sequence of str
        The ends of the range that stands beside it, as printed.

    Returns
    -------
    str

    Examples
    --------
    >>> known_digits(20.1144, 0.043), known_digits(54.5, 1.3, ("52", "57")), known_digits(0.0, 0)
    ('20.1', '55±2', '0')
    """
    last = -max((len(end.partition(".")[2]) for end in ends), default=0)
    place = min(last, max(_first_digit(mean) - 2, _LEAST_PLACE + 1))
    if half_width is None:
        text = _at_place(mean, last if ends else place, half_width)
        return text if text.startswith("<") else UNSURE + text
    if half_width:
        place = max(place, math.ceil(math.log10(half_width)))
    if place <= last:
        return _at_place(mean, place, half_width)
    unit = Decimal(1).scaleb(last)
    error = Decimal(half_width).quantize(unit, ROUND_UP, _WIDE)
    return f"{to_fixed(mean, -last)}±{error:f}"


_LEAST_PLACE: Final = -3
"""Nobody chooses by less than a thousandth of a percent, a second or a multiple."""


def _at_place(mean: float, place: int, half_width: float | None) -> str:
    """Round to a power of ten; what is known exactly without zeros at its end."""
    unit = Decimal(1).scaleb(place)
    number = Decimal(mean).quantize(unit, ROUND_HALF_UP, _WIDE)
    if mean and not number:
        return f"<{unit:f}"
    text = _unsigned_zero(f"{number:f}")
    return text if half_width else _without_end_zeros(text)


def _without_end_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _first_digit(number: float) -> int:
    """The power of ten of a number's first digit; 0 for 0."""
    return math.floor(math.log10(abs(number))) if number else 0


def unseen(n: int) -> float:
    """Largest share that may well be missing from n replications (95 %); 1 for none.

    ``1 - 0.025^(1 / n)``, about 3.7 / n: the upper end of the exact interval for 0 of n.
    """
    return -math.expm1(math.log(0.025) / n) if n > 0 else 1.0


def share_text(share: float) -> str:
    """A small share in percent, rounded up to two digits: 0.000369 is 0.037 %."""
    return f"{rounded_up(100 * share)} %"


def rounded_up(number: float) -> str:
    """Round a number that is at least 0 up to two digits."""
    decimals = max(0, 1 - _first_digit(number))
    return f"{math.ceil(number * 10**decimals) / 10**decimals:.{decimals if number else 0}f}"


def range_ends(
    low: float, high: float | None, n_digits: int = 2, mean: float | None = None
) -> tuple[str, str]:
    """Print where single runs lie: to some digit of the higher end, or to what tells them apart.

    A mean that lies between the ends also does so between the printed ones.

    Parameters
    ----------
    low : float
        At least 0.
    high : float or None
        At least `low`; None where it is later than the run.
    n_digits : int
        Fewer are printed of a small number, which has at most two after the point.
    mean : float, optional

    Returns
    -------
    low, high : str

    Examples
    --------
    >>> range_ends(5.32, 7.48), range_ends(0.9865, 1.0134), range_ends(0.271, None)
    (('5.3', '7.5'), ('0.99', '1.01'), ('0.27', 'later'))
    """
    decimals = max(0, min(2, n_digits - 1 - _first_digit(low if high is None else high)))
    if high is not None:
        decimals = decimals_apart(low, high, decimals, mean)

    def text(end: float) -> str:
        return to_fixed(end, decimals) if end else "0"

    return text(low), "later" if high is None else text(high)


def decimals_apart(low: float, high: float, decimals: int, mean: float | None = None) -> int:
    """So many decimals or more, up to three, that two ends differ, and do not cut off a mean.

    >>> decimals_apart(1.2621, 1.2934, 1), decimals_apart(2.93, 3.04, 1, mean=3.02)
    (2, 2)
    """
    while low != high and decimals < -_LEAST_PLACE:
        ends = [float(to_fixed(end, decimals)) for end in (low, high)]
        cuts_off = mean is not None and low <= mean <= high and not ends[0] <= mean <= ends[1]
        if ends[0] != ends[1] and not cuts_off:
            break
        decimals += 1
    return decimals


def percent(share: float) -> str:
    """A share in percent, with as many digits as tell it from 0 and from 100."""
    for decimals in (1, 2, 3):
        text = f"{100 * share:.{decimals}f}"
        if share in (0, 1) or float(text) not in (0, 100):
            break
    return f"{float(text):g}"


def share_ends(low: float, high: float) -> str:
    """Print the ends of the interval of a share, in percent, rounded outwards.

    Examples
    --------
    >>> share_ends(76.87, 96.04), share_ends(99.963, 100.0)
    ('76–97', '99.96–100')
    """
    decimals = min(2, max(0, 1 - math.floor(math.log10(high - low)))) if high > low else 2
    scale = 10**decimals
    # an end that is a whole number, but for the last bits, is not moved
    ends = (math.floor(low * scale + 1e-6) / scale, math.ceil(high * scale - 1e-6) / scale)
    return "–".join(f"{end:.{decimals}f}".removesuffix("." + "0" * decimals) for end in ends)


def half_width(line: Mapping[str, Any], name: str = "ci") -> float | None:
    """Half the length of the interval `name` in a line of a table; None where it has none.

    Of a metric that is 0 or 1 it is lopsided, and the longer side counts: where all recovered,
    the bound that so many replications allow.
    """
    low, high = line[f"{name}_low"], line[f"{name}_high"]
    if low is None or high is None:
        return None
    metric = METRICS.get(line.get("metric", ""))
    if name == "ci" and metric is not None and metric.is_indicator and "mean" in line:
        return float(max(line["mean"] - low, high - line["mean"]))
    return float(high - low) / 2


def has_known_mean(line: Mapping[str, Any]) -> bool:
    """Whether the mean in a line of the summary says something.

    One of a part of the runs, those that have such a number, needs an interval and `FEW` of them.
    """
    is_of_all = line["share_defined"] in (None, 1)
    return is_of_all or line["n"] == 0 or (half_width(line) is not None and line["n"] >= FEW)


def of_runs(line: Mapping[str, Any]) -> str:
    """How many of all runs have a number, in place of its mean: – 2 of 200 runs."""
    n_all = round(line["n"] / line["share_defined"])
    return f"– {line['n']:,} of {n_all:,} runs"


def placed(percentile: float) -> str:
    """Where among the seeds a published figure lies, in words.

    Parameters
    ----------
    percentile : float
        Percentage of the replications below the figure, those equal to it counted half.

    Returns
    -------
    str
        For example ``lower than 99.5 % of seeds``.
    """
    if percentile == 50:
        return "in the middle of the seeds"
    if percentile < 50:
        return f"lower than {_percent(100 - percentile)} of seeds"
    return f"higher than {_percent(percentile)} of seeds"


def counted(n: int, noun: str) -> str:
    """Write a number with what it counts: 1 cell, 2,000 cells."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _percent(share: float) -> str:
    """A percentage, printed as 100 only if nothing is missing."""
    return f"{share:.1f} %" if share == 100 or share < 99.95 else "more than 99.9 %"


def to_fixed(number: float, decimals: int) -> str:
    """Print a number with so many decimals as JavaScript's `toFixed` does, halves away from zero.

    The exact binary value is rounded: 1.005 is a little less than that in binary, hence '1.00'.
    """
    unit = Decimal(1).scaleb(-decimals)
    return _unsigned_zero(f"{Decimal(number).quantize(unit, ROUND_HALF_UP, _WIDE):f}")


def _unsigned_zero(text: str) -> str:
    """Drop the sign of a number whose digits are all zero."""
    return text.removeprefix("-") if float(text) == 0 else text


def value_text(value: object) -> str:
    """Write a parameter's value as an experiment file has it, a float with six digits."""
    if value is None:
        return "none"
    if isinstance(value, Settings):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    text = json.dumps(float(f"{value:.6g}") if isinstance(value, float) else value)
    return text.removesuffix(".0")


def rounds_per_second(source: Mapping[str, Any]) -> float | None:
    """How many rounds a second has in all cells of an experiment; None where they differ in it.

    The argument is the experiment as read, see `Experiment.source`.
    """
    name = "rounds_per_second"
    design = source["design"] or {"ranges": []}
    axes = {axis["name"] for axis in (*source["grid"], *design["ranges"])}
    if name in axes or any(name in point for point in (*source["scenario"], *source["policy"])):
        return None
    return float(source["fixed"].get(name, PARAMETERS[name].default))


def readers_second(source: Mapping[str, Any]) -> float | None:
    """How many rounds the second has in which a reader is given times and rates.

    None where a reader is given rounds: where the cells of an experiment differ in their length,
    and where figures were published, which are in rounds and are compared digit by digit.
    """
    return None if source["published"] else rounds_per_second(source)


def number_text(number: float, metrics: Sequence[str], per_second: float | None) -> str:
    """Write a number that some metrics are compared with, in the unit of a reader.

    Parameters
    ----------
    number : float
        In the unit of the metrics.
    metrics : sequence of str
        If they have different units, the number is written as it is.
    per_second : float or None
        Rounds in a second; None where a reader is given rounds.

    Returns
    -------
    str
    """
    own = {METRICS[name].unit for name in metrics}
    unit, factor = units.for_reader(own.pop() if len(own) == 1 else "", per_second)
    return f"{number * factor:g} {unit}" if factor != 1 else f"{number:g}"


def layer_names(source: Mapping[str, Any], n: int) -> list[str]:
    """Name n layers, the outermost first: as the experiment does, or by their number from 1."""
    names: list[str] = source.get("layer_names", [])
    return names if len(names) == n else [f"layer {i}" for i in range(1, n + 1)]


def axis_text(source: Mapping[str, Any], name: str, value: object) -> str:
    """Write a value of an axis as the experiment gives it: with a unit, or as a number.

    Parameters
    ----------
    source : mapping
        See `Experiment.source`.
    name : str
        The parameter.
    value : object
        Its value, in the parameter's own unit, or as columns have it.

    Returns
    -------
    str
    """
    plain = value if isinstance(value, str) else value_text(value)
    per_second = rounds_per_second(source)
    if per_second is None or value in (None, "none") or name not in PARAMETERS:
        return plain
    parameter = PARAMETERS[name]
    if name in source.get("in_units", ()):
        typed = parameter.kind.from_column(value)
        return units.text_of(parameter.dimension, typed, per_second, parameter.unit)
    if parameter.kind.tables and isinstance(value, str):
        typed = parameter.kind.from_column(value)
        if isinstance(typed, units.Readable):
            return typed.in_words(per_second)
    return plain


def is_axis_value(source: Mapping[str, Any], name: str, value: object, text: str) -> bool:
    """Whether a text with a unit, as people write it, means a value of an axis.

    Arguments as for `axis_text`, and the text.
    """
    per_second = rounds_per_second(source)
    if per_second is None or name not in PARAMETERS:
        return False
    if text == axis_text(source, name, value):
        return True
    try:
        number = as_number(name, text, per_second)
    except ValueError:
        return False
    return (
        isinstance(number, float)
        and isinstance(value, int | float)
        and (value_text(number) == value_text(float(value)))
    )


def is_entry_value(
    source: Mapping[str, Any], name: str, value: object, entry: str, text: str
) -> bool:
    """Whether a text means an entry of a table that a parameter has, `budget.ratio`.

    Parameters
    ----------
    source, name, value
        As for `axis_text`; a table may be itself, or as columns have it.
    entry, text : str

    Returns
    -------
    bool
    """
    kind, per_second = PARAMETERS[name].kind, rounds_per_second(source) or 1.0
    table = as_table(kind.from_column(value) if isinstance(value, str) else value)
    if not isinstance(table, Settings) or entry not in {"kind", *table.declared()}:
        return False
    if entry == "kind":
        return table.kind == text
    own, declared = table.entries[entry], table.declared()[entry]
    if text == units.text_of(declared.dimension, own, per_second, declared.unit):
        return True
    try:
        given: Any = text
        if not units.is_number(text):
            given = as_number(name, {"kind": table.kind, entry: text}, per_second)[entry]
        return value_text(float(given)) == value_text(float(own))
    except (TypeError, ValueError):
        return False
