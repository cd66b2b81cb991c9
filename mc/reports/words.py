"""How the report writes numbers, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mc.model import METRICS
from mc.reports.style import short
from mc.reports.view import View
from mc.statistics import format_estimate, half_width


def with_error(mean: float | None, error: float | None, unit: str = "") -> str:
    """Write an estimate with the half-width of its interval and its unit."""
    text, half = format_estimate(mean, error)
    if mean is not None and error is None:
        text = f"{float(text):.10g}"  # 0.0009, not 0.0009000
    text = text.replace("-", "−") if mean is not None else text
    return " ".join(filter(None, (text, f"± {half}" if half else "", unit)))


def count(n: int, what: str) -> str:
    """Write a number with what it counts."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float) -> str:
    """A share in percent: as many digits as tell it from 0 and from 100."""
    for decimals in (1, 2, 3):
        text = f"{100 * share:.{decimals}f}"
        if share in (0, 1) or float(text) not in (0, 100):
            break
    return f"{float(text):g}"


def told(mean: float | None, error: float | None, unit: str) -> str:
    """An estimate in a sentence; what never varies has no error that could be seen."""
    text = with_error(mean, error or None, unit)
    return text if error != 0 else f"{text} in every replication"


def link(view: View, line: dict[str, Any]) -> tuple[str, str]:
    """What a claim's weakest link compares, and how far apart that is on average.

    Against a number that is the mean itself, and its distance from the number.

    Parameters
    ----------
    view : View
    line : dict
        A line of the table of claims.

    Returns
    -------
    names, difference : str
    """
    unit = METRICS[line["link_metric"]].unit
    mean, error = line["mean_difference"], half_width(line)
    if not is_against_number(view, line) or mean is None:
        return f"{line['left']} − {line['right']}", told(mean, error, unit)
    bound = float(line["right"])
    where = f"{short(abs(mean))} {'above' if mean > 0 else 'below'}" if mean else "equal to"
    return (
        f"{line['left']} against {line['right']}",
        f"{told(mean + bound, error, unit)}, {where} {bound:,.10g}",
    )


def is_against_number(view: View, line: dict[str, Any]) -> bool:
    """Whether a claim compares cells with a number, not with one another."""
    return any(
        claim["text"] == line["text"] and claim.get("value") is not None
        for claim in view.source["claim"]
    )


def precision_words(precision: Mapping[str, Any]) -> str:
    """Say which means shall be known, and how precisely."""
    widths = [f"{100 * precision['relative']:g} %"] if precision["relative"] else []
    widths += [f"{precision['absolute']:g}"] if precision["absolute"] else []
    return f"{', '.join(precision['metrics'])} to {' or '.join(widths)}"
