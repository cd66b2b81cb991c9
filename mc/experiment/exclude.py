"""[[exclude]]: which of all combinations remain as cells, and whether those can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mc.experiment.axes import Axes
from mc.experiment.tables import (
    FAULTY,
    Bounds,
    Generator,
    check_names,
    keys,
    refuse_others,
    same_values,
    unknown_parameter,
)
from mc.experiment.words import add, cell_place, show, value_text, values_text
from mc.model import PARAMETERS, check_parameter, check_together

COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "above": lambda value, bound: value > bound,
    "below": lambda value, bound: value < bound,
    "at_least": lambda value, bound: value >= bound,
    "at_most": lambda value, bound: value <= bound,
}

Condition = list[Any] | dict[str, float]
"""Either the names or values that meet it, or bounds that a number must keep."""


@dataclass(frozen=True)
class Exclude:
    """Conditions that a cell must all meet to be left out.

    Attributes
    ----------
    where : str
        What messages call it.
    conditions : dict
        By parameter, or for the name on the axis ``scenario`` or ``policy``.
    """

    where: str
    conditions: dict[str, Condition]

    def meets(self, values: Mapping[str, Any]) -> bool:
        """Say whether a cell is left out: its parameters, its scenario and its policy."""
        return all(_meets(values[name], rule) for name, rule in self.conditions.items())


def _meets(value: Any, rule: Condition) -> bool:
    if isinstance(rule, list):
        return value in rule
    # no budget is no number: neither below nor above another
    return value is not None and all(
        COMPARISONS[name](value, bound) for name, bound in rule.items()
    )


@dataclass(frozen=True)
class Remaining:
    """The cells that remain, by their index before any is left out.

    Attributes
    ----------
    numbers : dict of int to int
        0, 1, 2, ... in the same order.
    left_out : dict of int to str
        For each of the others what left it out.
    """

    numbers: dict[int, int] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


# ---- Reading ---------------------------------------------------------------------------------


def read_excludes(
    tables: Sequence[Mapping[str, Any]], axes: Axes, fixed: dict[str, Any], faults: list[str]
) -> list[Exclude]:
    """Read the [[exclude]] tables; those with a fault are reported and left out."""
    excludes = []
    for number, table in enumerate(tables, 1):
        where = f"exclude {number}"
        n_faults = len(faults)
        conditions: dict[str, Condition] = {}
        for name, given in table.items():
            if name in ("scenario", "policy"):
                names = axes.scenario if name == "scenario" else axes.policy
                conditions[name] = _names(name, given, list(names), where, faults)
            elif name not in PARAMETERS:
                unknown_parameter(name, where, faults)
            elif isinstance(given, dict):
                conditions[name] = _bounds(name, given, where, faults)
            else:
                conditions[name] = _values(name, given, axes.values(name, fixed), where, faults)
        if not table:
            add(faults, where, "one or more conditions must be given, such as budget = 0.3")
        if len(faults) == n_faults:
            excludes.append(Exclude(where, conditions))
    return excludes


def _names(kind: str, given: object, known: list[str], where: str, faults: list[str]) -> list[str]:
    """Read names on an axis."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        add(faults, where, f"{kind} must be a name or a list of names, got {show(given)}")
        return []
    check_names(kind, names, known, where, faults)
    return names


def _bounds(name: str, given: Mapping[str, Any], where: str, faults: list[str]) -> dict[str, float]:
    """Read the bounds of a number."""
    place = f"{where}: {name}"
    refuse_others(Bounds, given, place, faults)
    bounds = keys(Bounds, given, place, faults)
    if PARAMETERS[name].kind not in ("int", "float", "budget"):
        add(faults, place, "this is no number: give a value or a list of values")
    elif not given:
        add(faults, place, f"one or more of {', '.join(COMPARISONS)} must be given")
    return {key: bound for key, bound in bounds.items() if bound is not None}


def _values(name: str, given: object, known: list[Any], where: str, faults: list[str]) -> list[Any]:
    """Read one value or a list of them, each one that the parameter has somewhere."""
    entries = given if isinstance(given, list) and given else [given]
    if PARAMETERS[name].kind == "tries" and not all(isinstance(entry, list) for entry in entries):
        entries = [given]  # one value is a list already
    values = []
    for entry in entries:
        value, fault = check_parameter(name, entry)
        if fault is not None:
            add(faults, where, fault)
            continue
        same = same_values(value, known)
        if not same and FAULTY not in known:
            there = values_text(known)
            add(faults, where, f"{name} is nowhere {value_text(value)}; there are {there}")
        values += same
    return values


# ---- The cells -------------------------------------------------------------------------------


def check_cells(
    axes: Axes,
    fixed: dict[str, Any],
    excludes: Sequence[Exclude],
    generator: Generator | None,
    faults: list[str],
) -> Remaining:
    """Leave out what an exclude names, and check what remains.

    Parameters that cannot stand together are reported once, at their first cell.
    """
    remaining = Remaining()
    found: dict[str, tuple[str, str]] = {}
    counts: Counter[str] = Counter()
    n_met: Counter[str] = Counter()
    n_faulty = 0
    for index, (scenario, policy, at, parameters) in enumerate(axes.cells(fixed)):
        if any(value is FAULTY for value in parameters.values()):
            n_faulty += 1
            continue
        if excludes:
            values = parameters | {"scenario": scenario, "policy": policy}
            met = [exclude.where for exclude in excludes if exclude.meets(values)]
            n_met.update(met)
            if met:
                remaining.left_out[index] = met[0]
                continue
        remaining.numbers[index] = len(remaining.numbers)
        here = check_together(parameters)
        if generator == "lesson" and parameters["fault_rounds"] and parameters["failure_rate"]:
            here.append(
                "failure_rate must be 0 in a cell with a fault window for generator "
                f'"lesson", got {parameters["failure_rate"]}'
            )
        for fault in here:
            rule = fault.partition(", got ")[0]  # the number differs from cell to cell
            found.setdefault(rule, (cell_place(scenario, policy, at), fault))
            counts[rule] += 1
    for rule, (where, fault) in found.items():
        more = f" (and {counts[rule] - 1} more cells)" if counts[rule] > 1 else ""
        add(faults, where, fault + more)
    if n_faulty == 0:
        for exclude in excludes:
            if not n_met[exclude.where]:
                add(faults, exclude.where, "no cell meets all of it")
        if axes.n_cells and not remaining.numbers:
            add(faults, "", "no cell remains: the [[exclude]] tables leave out all of them")
    return remaining
