"""How the report writes numbers, values, and the names of metrics and parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mc.experiment import CELL_COLUMNS
from mc.model import HEADLINE, METRICS, OF_QUEUE, RECOVERY
from mc.model.digits import MIN_REPLICATIONS, number_text
from mc.statistics import format_estimate

NAMES: Final = {name: metric.label for name, metric in METRICS.items()}
"""What the report calls the metrics."""

TABLED: Final = tuple(dict.fromkeys((*HEADLINE, *RECOVERY, *OF_QUEUE)))
"""Metrics of the tables."""


def parameter_title(name: str) -> str:
    """Name and unit of a parameter."""
    unit = CELL_COLUMNS[name].unit
    return f"{name} ({unit})" if unit else name


def value_text(value: object) -> str:
    """Write a parameter's value as a table shows it."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def short(value: float) -> str:
    """Write a number with three significant digits, or all digits of a whole number."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def json_for_page(data: object) -> str:
    """Write JSON that may stand in a script of a page, where no text may look like a tag."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def count(n: int, noun: str) -> str:
    """Write a number with what it counts."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def with_error(
    mean: float | None, error: float | None, unit: str = "", n: int = MIN_REPLICATIONS
) -> str:
    """Write an estimate with the half-width of its interval and its unit.

    An interval of fewer than `MIN_REPLICATIONS` is marked: it is rough.
    """
    mark = "~" if n < MIN_REPLICATIONS else ""
    text, half = format_estimate(mean, error)
    text = text.replace("-", "−") if mean is not None else text
    return " ".join(filter(None, (text, f"± {mark}{half}" if half else "", unit)))


def in_a_sentence(
    mean: float | None, error: float | None, unit: str, n: int = MIN_REPLICATIONS
) -> str:
    """An estimate with its unit; an error of 0 is put into words."""
    text = with_error(mean, error or None, unit, n)
    return text if error != 0 else f"{text} in every replication"


def precision_words(precision: Mapping[str, Any], per_second: float | None) -> str:
    """Which means the experiment asks for, and how precisely."""
    widths = [f"{100 * precision['relative']:g} %"] if precision["relative"] else []
    absolute = precision["absolute"]
    widths += [number_text(absolute, precision["metrics"], per_second)] if absolute else []
    return f"{', '.join(precision['metrics'])} to {' or '.join(widths)}"
