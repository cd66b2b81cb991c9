"""Every number of a replication, declared once.

All that depends on a metric is read off its declaration: columns and manifest of the results
folder, the ratios, the tables of the terminal and of the page, the stopping rule. A new counter
is an entry here and its place in the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from mc.model import units
from mc.model.budgets import Sre
from mc.model.cell import MAX_LAYERS, Cell
from mc.model.parameters import DIMENSIONS
from mc.model.units import Dimension

PerCell = Literal["window_rounds", "window_arrivals", "capacity"]
"""What a counter can be divided by that is constant in a cell: the rounds of the fault window that
lie inside the run; the requests that arrive in these on average; the calls that the dependency
usually serves in a round."""

CensoredIn = Literal[
    "no cell", "cells with requests", "cells with a window", "cells that may recover"
]
"""Where a metric is NULL because what it times did not come within the run."""

Worst = Literal["high", "low"]

Most = Literal["requests", "calls", "wait", "attempts", "rounds", "one"]
"""What a metric cannot exceed: every request counts once; makes every call it is allowed; waits
until the run ends; a number of attempts, of rounds; 1."""


@dataclass(frozen=True)
class Metric:
    """One number of a replication: a counter, or a ratio with a counter above the line.

    Attributes
    ----------
    name, unit, meaning : str
        As columns, manifest and help give them; the unit of a pure number is empty.
    counter : str
        Of a ratio its numerator; a counter itself.
    per : str or None
        Denominator of a ratio of two counters.
    per_cell : PerCell or None
        Denominator of a ratio that is constant in a cell.
    nullable : bool
        Whether it may be undefined in a replication: NULL.
    censored_in : CensoredIn
        Where NULL means: not within the run, so later than all that did come within it.
    most : Most or None
        What it (of a ratio over a constant, its counter) cannot exceed; None if nothing is known.
    worst : {"high", "low"}
        Which of its values are bad news.
    above_capacity : bool
        Whether it is of interest how often it exceeds the usual capacity.
    without_retries : int or None
        What it is, if defined, wherever a request has a single attempt; None where that varies.
    heading : str
        Head of its column on the terminal; the name if not given.
    decimals : int
        Digits after the point of its value in a single replication, on the terminal.
    label : str
        What a sentence or an axis calls it; the name if not given.
    exists : callable or None
        Whether there is such a thing in a cell, by its parameters; None if in every cell. It is
        NULL in a cell where there is none, and no column of an experiment without such a cell.
    """

    name: str
    unit: str
    meaning: str
    counter: str = ""
    per: str | None = None
    per_cell: PerCell | None = None
    nullable: bool = False
    censored_in: CensoredIn = "no cell"
    most: Most | None = None
    worst: Worst = "high"
    above_capacity: bool = False
    without_retries: int | None = None
    heading: str = ""
    decimals: int = 0
    label: str = ""
    exists: Callable[[Cell], bool] | None = None

    def __post_init__(self) -> None:
        plain = self.name.replace("_", " ")
        for field, default in (("counter", self.name), ("heading", plain), ("label", plain)):
            object.__setattr__(self, field, getattr(self, field) or default)

    @property
    def is_ratio(self) -> bool:
        """Whether it is computed from counters, and never stored in their place."""
        return self.counter != self.name

    @property
    def is_indicator(self) -> bool:
        """Whether it is 0 or 1 in every replication, so that its mean is a share of them."""
        return self.most == "one" and not self.is_ratio

    @property
    def dimension(self) -> Dimension | None:
        """What a text with a unit measures; None if a number of it is written without one."""
        return DIMENSIONS.get(self.unit)

    def number_of(self, text: str, per_second: float | None) -> float:
        """Read a text with a unit (``2 s``, ``300/s``, ``3 %``) as a number in the metric's own.

        Parameters
        ----------
        text : str
            What the user wrote.
        per_second : float or None
            Rounds in a second; None where cells differ in it.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            It is no such text, or `per_second` is None.
        """
        dimension = self.dimension
        quantity = None if dimension is None else units.parse(text, dimension)
        if quantity is None:
            of = f" ({self.unit})" if self.unit else ""
            advice = units.advice(text, dimension)
            cure = f"; {advice}" if advice else ""
            for other in METRICS.values():
                fits = other.dimension is not None and units.parse(text, other.dimension)
                if other.counter == self.counter and fits:
                    cure = f"; {other.name} is in such a unit"
            raise ValueError(f"{self.name} must be a number{of}, got {text!r}{cure}")
        if dimension == "share":
            return quantity.value
        if per_second is None:
            raise ValueError(
                f"{self.name} must be a number ({self.unit}) where cells differ in the length of "
                f"their rounds, got {text!r}"
            )
        if dimension == "time":
            return units.in_rounds(quantity.value, per_second)
        return units.whole_if_nearly(quantity.value / per_second)


def _has_deadline(cell: Cell) -> bool:
    return any(layer.deadline is not None for layer in cell.layers)


def _has_budget(cell: Cell) -> bool:
    return any(layer.budget is not None for layer in cell.layers)


def rejects(cell: Cell) -> bool:
    """Whether something can reject calls."""
    return cell.breaker is not None or any(
        isinstance(layer.budget, Sre) and layer.budget.k is not None for layer in cell.layers
    )


def has_queue(cell: Cell) -> bool:
    """Whether calls may wait before the dependency."""
    return cell.queue > 0


def outlives(cell: Cell) -> bool:
    """Whether a fault can outlive itself: calls wait, are rejected, or come from a closed loop."""
    return has_queue(cell) or rejects(cell) or cell.is_closed


def may_recover(cell: Cell) -> bool:
    """Whether the fault can outlive itself, and the run has a whole second after it."""
    start, end = cell.window
    if not outlives(cell) or not start < end < cell.rounds:
        return False
    per_second = Fraction(repr(cell.rounds_per_second))
    if cell.is_closed and start < max(1, math.ceil(per_second)):
        return False  # there is no second before the fault to compare with
    second = math.ceil(end / per_second)  # the first that begins after the end
    return math.ceil((second + 1) * per_second) <= cell.rounds or per_second <= 1


def _calls_of(layer: int) -> Metric:
    """The calls of one of the layers, counted from 1, that has another inside."""
    inside = "the outermost layer" if layer == 1 else f"layer {layer}, counted from outside,"
    return Metric(
        f"calls_{layer}",
        "calls",
        f"calls that {inside} made; NULL if it is the innermost, whose calls are `calls`",
        nullable=True,
        most="calls",
        heading=f"calls of\nlayer {layer}",
        exists=lambda cell: len(cell.layers) > layer,
    )


_COUNTERS: Final = (  # in the kernel's order
    Metric("requests", "requests", "requests that arrived", most="requests"),
    Metric(
        "window_requests",
        "requests",
        "requests that arrived inside the fault window",
        most="requests",
    ),
    Metric("calls", "calls", "calls made, first attempts and retries", most="calls"),
    Metric("primary", "calls", "first attempts", most="requests"),
    Metric("retries", "calls", "all other attempts", most="calls", without_retries=0),
    Metric(
        "successful",
        "requests",
        "requests with a call that succeeded",
        worst="low",
        heading="success-\nful",
        most="requests",
    ),
    Metric("dropped", "requests", "requests given up", most="requests"),
    Metric("in_flight", "requests", "requests undecided when the run ended", most="requests"),
    Metric("peak", "calls/round", "most calls in one round", most="requests", above_capacity=True),
    Metric("window_calls", "calls", "calls inside the fault window", most="calls"),
    Metric(
        "second_peak",
        "calls/round",
        "most calls in one round after the fault window",
        nullable=True,
        above_capacity=True,
        heading="second\npeak",
        most="requests",
    ),
    Metric(
        "wait_total",
        "rounds",
        "waits from arrival to success, summed over requests",
        without_retries=0,
        most="wait",
    ),
    Metric(
        "wait_max",
        "rounds",
        "longest wait from arrival to success",
        without_retries=0,
        heading="longest\nwait",
        most="rounds",
    ),
    Metric(
        "late",
        "requests",
        "successes that waited more than `threshold` rounds",
        without_retries=0,
        most="requests",
    ),
    Metric(
        "drain",
        "rounds",
        "from the end of the fault window until no retry was pending; without a queue, a breaker "
        "or a throttle nothing else keeps the storm alive; NULL if not within the run",
        nullable=True,
        censored_in="cells with a window",
        without_retries=0,
        most="rounds",
    ),
    Metric(
        "window_dropped",
        "requests",
        "requests that arrived inside the fault window and were given up",
        heading="window\ndropped",
        most="requests",
    ),
    Metric(
        "expired",
        "retries",
        "how often a deadline made a layer give up; NULL without one",
        nullable=True,
        without_retries=0,
        exists=_has_deadline,
    ),
    Metric(
        "denied",
        "retries",
        "how often a budget refused a retry; NULL without one",
        nullable=True,
        without_retries=0,
        exists=_has_budget,
    ),
    Metric(
        "rejected",
        "calls",
        "calls rejected before the dependency, by a breaker or a throttle; NULL without one",
        nullable=True,
        exists=rejects,
    ),
    *(_calls_of(layer) for layer in range(1, MAX_LAYERS)),
    Metric(
        "refused",
        "calls",
        "calls that failed at once because the queue had no room; NULL without a queue",
        nullable=True,
        most="calls",
        exists=has_queue,
    ),
    Metric(
        "timed_out",
        "calls",
        "calls that their callers counted as failed while they waited; NULL without a queue",
        nullable=True,
        most="calls",
        heading="timed\nout",
        exists=has_queue,
    ),
    Metric(
        "wasted",
        "calls",
        "calls served in vain, after their callers had given them up; NULL without a queue",
        nullable=True,
        most="calls",
        exists=has_queue,
    ),
    Metric(
        "queue_peak",
        "calls",
        "most calls in the queue of one round, those that are served in it included; NULL without "
        "a queue",
        nullable=True,
        most="calls",
        heading="queue\npeak",
        exists=has_queue,
    ),
    Metric(
        "recovery",
        "rounds",
        "from the end of the fault to the end of the last second in which less than 90 % as many "
        "requests succeeded as arrived, or in a closed loop as in the seconds before the fault; "
        "NULL if one of the last five of the run is such, and without a queue, a breaker, a "
        "throttle or a closed loop",
        nullable=True,
        censored_in="cells that may recover",
        most="rounds",
        exists=may_recover,
    ),
    Metric(
        "recovered",
        "share",
        "1 if the run came back, if none of its last five seconds is as in recovery; else 0; NULL "
        "without a fault, and without a queue, a breaker, a throttle or a closed loop",
        nullable=True,
        most="one",
        worst="low",
        decimals=0,
        label="share of runs that recovered",
        exists=may_recover,
    ),
)

_RATIOS: Final = (
    Metric(
        "multiplier",
        "calls/request",
        "calls per request",
        counter="calls",
        per="requests",
        nullable=True,
        without_retries=1,
        heading="multi-\nplier",
        decimals=2,
        most="attempts",
    ),
    Metric(
        "failed_share",
        "share",
        "requests given up, over all requests; those undecided at the end are not among them",
        counter="dropped",
        per="requests",
        nullable=True,
        heading="failed\nshare",
        decimals=4,
        label="share of requests that failed",
        most="one",
    ),
    Metric(
        "late_share",
        "share",
        "successes that waited more than `threshold` rounds, over all requests",
        counter="late",
        per="requests",
        nullable=True,
        without_retries=0,
        heading="late\nshare",
        decimals=4,
        label="share of requests that were late",
        most="one",
    ),
    Metric(
        "window_failed_share",
        "share",
        "requests that arrived inside the fault window and were given up, over those that arrived "
        "there; NULL if none did",
        counter="window_dropped",
        per="window_requests",
        nullable=True,
        heading="window\nfailed",
        decimals=4,
        label="share of requests of the fault window that failed",
        most="one",
    ),
    Metric(
        "window_rate",
        "calls/round",
        "calls inside the fault window, over its length",
        counter="window_calls",
        per_cell="window_rounds",
        nullable=True,
        heading="window\nrate",
        decimals=2,
        most="calls",
    ),
    Metric(
        "times_usual",
        "",
        "rate of calls inside the fault window, over that of the arrivals",
        counter="window_calls",
        per_cell="window_arrivals",
        nullable=True,
        heading="times\nusual",
        decimals=1,
        label="times the usual rate",
        most="calls",
    ),
    Metric(
        "wait_mean",
        "rounds",
        "wait from arrival to success, per successful request; NULL if none succeeded",
        counter="wait_total",
        per="successful",
        nullable=True,
        censored_in="cells with requests",
        without_retries=0,
        heading="mean\nwait",
        decimals=2,
        most="rounds",
    ),
)

METRICS: Final = {metric.name: metric for metric in (*_COUNTERS, *_RATIOS)}
"""Every number that is summarised, compared and put to claims: the counters, then the ratios."""

OVER_CAPACITY: Final = {
    f"{name}_x_capacity": replace(
        METRICS[name],
        name=f"{name}_x_capacity",
        unit="x capacity",
        counter=name,
        per_cell="capacity",
        decimals=2,
    )
    for name in ("peak", "second_peak")
}
"""What a reader is given, and may ask for in a condition, but no table of a folder has: the most
calls in a round over those that are usually served in one."""

COUNTERS: Final = tuple(metric.name for metric in _COUNTERS)
"""What can be counted in a replication, in the kernel's order."""

RATIOS: Final = tuple(metric.name for metric in _RATIOS)
"""What is computed from the counters."""

HEADLINE: Final = (
    *("calls", "multiplier", "peak", "successful", "dropped"),
    *("window_rate", "times_usual"),
)
"""Columns of the first table that a run prints, and of the page, in the lesson's order."""

OF_QUEUE: Final = ("refused", "timed_out", "wasted", "queue_peak", "recovered", "recovery")
"""Columns of the third table: what waits, and whether and when the run comes back."""

NO_STORM_STAYS: Final = (
    "retries were gone; without a queue, a breaker or a throttle nothing else keeps a storm alive"
)
"""What is said of `drain` where calls cannot wait."""

RECOVERY: Final = ("failed_share", "wait_mean", "wait_max", "late", "second_peak", "drain")
"""Columns of the second table: how many callers fail, how long the others wait, and what follows
the fault."""


def calls_per_request(means: Mapping[str, float | None]) -> list[float]:
    """How many calls each layer of a cell makes for a request, the outermost first.

    Parameters
    ----------
    means : mapping of str to float or None
        Of the metrics of the cell.

    Returns
    -------
    list of float
        Means of calls over the mean of requests; empty where a single layer decides.
    """
    of_outer = [means.get(f"calls_{layer}") for layer in range(1, MAX_LAYERS)]
    known = [mean for mean in of_outer if mean is not None]
    requests, calls = means["requests"], means["calls"]
    return [mean / requests for mean in (*known, calls or 0.0)] if known and requests else []


def metrics_of(cells: Iterable[Cell]) -> dict[str, Metric]:
    """Those of `METRICS` that exist in one of the cells or more, in the same order."""
    return {name: METRICS[name] for name in _existing(tuple(cells))}


@lru_cache(maxsize=4)
def _existing(cells: tuple[Cell, ...]) -> list[str]:
    return [
        name
        for name, metric in METRICS.items()
        if metric.exists is None or any(map(metric.exists, cells))
    ]


def counters_of(cells: Iterable[Cell]) -> tuple[str, ...]:
    """Those of `COUNTERS` that exist in one of the cells or more: the columns of their rows."""
    return tuple(name for name, metric in metrics_of(cells).items() if not metric.is_ratio)
