"""The axes that span the cells: named points, the grid, the points of a design."""

from __future__ import annotations

import decimal
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from mc.experiment.tables import (
    FAULTY,
    Named,
    Range,
    Scale,
    keys,
    others,
    parameters,
    refuse_others,
    unknown_parameter,
)
from mc.experiment.words import add, place, quote, show, value_text, values_text
from mc.model import PARAMETERS, check_parameter

MAX_CELLS: Final = 1_000_000
"""Beyond, a mistyped grid would fill the memory before the first fault could be shown."""

DIGITS: Final = 30
"""Nearly twice those of a double: a value between two ends is rounded once, at the end."""


@dataclass(frozen=True)
class Axes:
    """What spans the cells: names and values, each with the parameters it sets.

    Attributes
    ----------
    scenario, policy : dict
        Parameters by the name of the point.
    grid : dict
        Values by parameter.
    design : list of dict
        Parameters of each point of the design; one empty point where there is no design.
    """

    scenario: dict[str, dict[str, Any]]
    policy: dict[str, dict[str, Any]]
    grid: dict[str, list[Any]]
    design: list[dict[str, Any]]

    @cached_property
    def places(self) -> list[dict[str, Any]]:
        """Coordinates on the grid and in the design, which varies fastest."""
        return [
            dict(zip(self.grid, values, strict=True)) | point
            for values in itertools.product(*self.grid.values())
            for point in self.design
        ]

    @property
    def n_places(self) -> int:
        """Cells of one policy in one scenario."""
        return math.prod(map(len, self.grid.values())) * len(self.design)

    @property
    def n_cells(self) -> int:
        """Cells, those left out by an exclude included."""
        return len(self.scenario) * len(self.policy) * self.n_places

    def index(self, scenario: str, policy: str, at: int) -> int:
        """Index of a cell before any is left out; `at` counts within `places`."""
        row = list(self.scenario).index(scenario) * len(self.policy)
        return (row + list(self.policy).index(policy)) * self.n_places + at

    def setters(self, name: str) -> list[str]:
        """Places that set a parameter: the first of each axis."""
        found = []
        for kind, points in (("scenario", self.scenario), ("policy", self.policy)):
            first = next((point for point, values in points.items() if name in values), None)
            found += [] if first is None else [f"{kind} {quote(first)}"]
        found += ["[grid]"] if name in self.grid else []
        return found + (["[design]"] if name in self.design[0] else [])

    def values(self, name: str, fixed: Mapping[str, Any]) -> list[Any]:
        """All that a parameter is set to, anywhere, each value once."""
        points = [*self.scenario.values(), *self.policy.values(), *self.design]
        found = [point[name] for point in points if name in point] + self.grid.get(name, [])
        return list(dict.fromkeys([fixed.get(name, PARAMETERS[name].default), *found]))

    def cells(
        self, fixed: dict[str, Any]
    ) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Scenario, policy, coordinates and all parameters of every cell, in order."""
        common = {name: parameter.default for name, parameter in PARAMETERS.items()} | fixed
        for scenario, policy in itertools.product(self.scenario, self.policy):
            named = common | self.scenario[scenario] | self.policy[policy]
            for at in self.places:
                yield scenario, policy, at, named | at


# ---- Named points ----------------------------------------------------------------------------


def read_named(
    kind: str, tables: list[dict[str, Any]] | None, faults: list[str]
) -> dict[str, dict[str, Any]]:
    """Read [[scenario]] or [[policy]]: parameters by name; {} if the axis itself has a fault."""
    if tables is None:
        return {}
    points: dict[str, dict[str, Any]] = {}
    for number, table in enumerate(tables, 1):
        where = place(kind, number, table.get("name"))
        name = keys(Named, table, where, faults)["name"]
        if name in points:
            add(faults, where, "this name is used twice")
        points.setdefault(name or where, parameters(others(Named, table), where, faults))
    return points or {"default": {}}


# ---- The grid --------------------------------------------------------------------------------


def n_values(table: Mapping[str, Any]) -> int:
    """Count the points of a [grid] without making them; an axis with a fault counts as one."""
    counts = [
        len(given) if isinstance(given, list) else given.get("steps")
        for given in table.values()
        if isinstance(given, list | dict)
    ]
    return math.prod(n for n in counts if type(n) is int and n > 0)


def read_grid(table: Mapping[str, Any], faults: list[str], *, expand: bool) -> dict[str, list[Any]]:
    """Read [grid]: the values on each axis, or a faulty one for a range not to be expanded."""
    axes: dict[str, list[Any]] = {}
    for name, given in table.items():
        if name not in PARAMETERS:
            unknown_parameter(name, "[grid]", faults)
        elif isinstance(given, dict):
            axes[name] = _range(name, given, faults, expand=expand) or [FAULTY]
        elif not isinstance(given, list) or not given:
            rule = "a list of one or more values or a range {from, to, steps}"
            add(faults, "[grid]", f"{name} must be {rule}, got {show(given)}")
            axes[name] = [FAULTY]
        else:
            axes[name] = [parameters({name: entry}, "[grid]", faults)[name] for entry in given]
            for value, n in Counter(axes[name]).items():
                if n > 1 and value is not FAULTY:
                    add(faults, "[grid]", f"{name} has the value {value_text(value)} twice")
    return axes


def _range(
    name: str, table: Mapping[str, Any], faults: list[str], *, expand: bool
) -> list[Any] | None:
    """Write a range out; None if it has a fault (reported) or is not to be expanded."""
    where = f"[grid]: {name}"
    refuse_others(Range, table, where, faults)
    given = keys(Range, table, where, faults)
    ends, steps = read_ends(name, given, where, faults), given["steps"]
    if ends is None or steps is None or not expand:
        return None
    values = ends.steps(steps)
    different = list(dict.fromkeys(values))
    if len(different) < steps:
        many = f"{steps} steps from {value_text(ends.low)} to {value_text(ends.high)}"
        cure = f"use fewer steps or a list of these: {values_text(different)}"
        add(faults, where, f"{many} give only {len(different)} different values; {cure}")
        return None
    return values


# ---- Between two ends ------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """Two values of a parameter and the scale between them.

    Attributes
    ----------
    low, high : float
        Both included, low < high; whole numbers where `whole` says so.
    scale : {"linear", "log"}
        Steps of equal difference or of equal ratio.
    whole : bool
        Whether the values between are rounded to whole numbers, a half upwards.
    """

    low: float
    high: float
    scale: Scale
    whole: bool

    def steps(self, n: int) -> list[float]:
        """Go from one end to the other in `n` values, both ends included as they are."""
        inner = self._between(self.low, self.high, range(1, n - 1), n - 1)
        return [self.low, *inner, self.high]

    def shares(self, parts: Iterable[float]) -> list[float]:
        """Divide all values evenly over 0 .. 1: each whole number has an equal share."""
        # a whole number stands for all that is rounded to it: half a step at either end
        margin = 0.5 if self.whole else 0
        values = self._between(self.low - margin, self.high + margin, parts, 1)
        return [min(value, self.high) for value in values]

    def _between(self, low: float, high: float, parts: Iterable[float], of: int) -> list[float]:
        """Go each of `parts` / `of` of the way from `low` to `high`.

        In decimal arithmetic: the second step of 0.05, 0.1, ... 0.5 is 0.15 and not
        0.15000000000000002, so the cell is the same as one with the value written out; and the
        last bit of a double's exp differs between platforms.
        """
        with decimal.localcontext(decimal.Context(prec=DIGITS)):
            start, end = Decimal(repr(low)), Decimal(repr(high))
            if self.scale == "log":
                start, end = start.ln(), end.ln()
            values = [start + (end - start) * Decimal(part) / of for part in parts]
            if self.scale == "log":
                values = [value.exp() for value in values]
            if self.whole:
                return [int(value.to_integral_value(decimal.ROUND_HALF_UP)) for value in values]
            return [float(value) for value in values]


def read_ends(name: str, given: Mapping[str, Any], where: str, faults: list[str]) -> Ends | None:
    """Check `from`, `to` and `scale`, whose types were checked by `keys`, for a parameter.

    None if there is a fault: it is reported, here or before.
    """
    parameter = PARAMETERS[name]
    if parameter.kind not in ("int", "float", "budget"):
        add(faults, where, "this is no number: write a list of values in [grid]")
        return None
    ends = []
    for key in ("from", "to"):
        value, fault = check_parameter(name, given[key])
        if given[key] is not None and fault is not None:
            rule = parameter.rule.removeprefix("none or ")
            add(faults, where, f"{key} must be {rule}, got {given[key]}")
        ends.append(value)
    low, high = ends
    if low is None or high is None or given["scale"] is None:
        return None
    if not low < high:
        add(faults, where, f"from must be < to, got {value_text(low)} and {value_text(high)}")
    elif given["scale"] == "log" and low <= 0:
        add(faults, where, f'from must be > 0 for scale "log", got {value_text(low)}')
    else:
        return Ends(low, high, given["scale"], whole=parameter.kind == "int")
    return None
