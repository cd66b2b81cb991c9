"""Which combinations of the axes are cells: all that no [[exclude]] leaves out."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field

from mc.experiment.axes import Axes
from mc.experiment.experiment import Point
from mc.experiment.keys import (
    HIDDEN,
    LIST,
    VALUES,
    Names,
    ParameterTable,
    as_list,
    key,
    list_or_table,
)
from mc.experiment.messages import Write, cell_label, quote, same_values, values_text
from mc.experiment.validation import (
    FAULTY,
    Checked,
    Table,
    check_names,
    labelled,
    outcome,
    with_keys,
    within,
)
from mc.model import PARAMETERS, Cell, Generator, Kind, conflicts, lesson_conflicts

Progress = Callable[[int, int], None]
"""Called with the number of cells done and that of all."""

_STEP: Final = 10_000
"""Cells between two calls of `Progress`: a tenth of a second, or less."""


# ---- Excludes --------------------------------------------------------------------------------

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "above": operator.gt,
    "below": operator.lt,
    "at_least": operator.ge,
    "at_most": operator.le,
}

Condition = list[Any] | dict[str, float]
"""Either the names or values that meet it, or bounds that a number must keep."""


class Bounds(Table):
    """A condition on a number."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    above: float | None = key("a number", None)
    below: float | None = key("a number", None)
    at_least: float | None = key("a number", None)
    at_most: float | None = key("a number", None)


def _split(kind: Kind, values: object) -> list[object]:
    """Tell a list of values from one value, which may be a list itself: of tries.

    Where a number is a value as well, a list of numbers is several of them, and one value for each
    layer is a list in the list.
    """
    if isinstance(values, list) and values and (kind.number or not kind.accepts(values)):
        return values
    return [values]


def _condition_key(name: str) -> Any:
    value, kind = VALUES[name], PARAMETERS[name].kind
    one_or_more = value | Annotated[LIST[value], Field(min_length=1)]
    split = BeforeValidator(partial(_split, kind), json_schema_input_type=one_or_more)
    values: Any = Annotated[LIST[value], split]
    bounds = Bounds if kind.number else HIDDEN[Bounds]
    return list_or_table(values, bounds, kind), None


@with_keys(PARAMETERS, _condition_key)
class Exclude(ParameterTable):
    """An [[exclude]]: cells that meet all of its conditions are left out."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    scenario: Names = None
    policy: Names = None


def read_excludes(
    tables: Sequence[Exclude], axes: Axes, fixed: Mapping[str, Any], write: Write
) -> Checked[dict[str, dict[str, Condition]] | None]:
    """Read the conditions of each [[exclude]], by its label.

    None if there is a fault in any: then it is not known which cells are meant.
    """
    excludes = {}
    for label, table in labelled("exclude", tables):
        faults, conditions = outcome(within(label, _conditions(table, axes, fixed, write)))
        yield from faults
        if not faults and not table.has_fault:
            excludes[label] = conditions
    return None if tables is FAULTY or len(excludes) < len(tables) else excludes


def _conditions(
    table: Exclude, axes: Axes, fixed: Mapping[str, Any], write: Write
) -> Checked[dict[str, Condition]]:
    """Read conditions by parameter, or for the name on the axis ``scenario`` or ``policy``."""
    conditions: dict[str, Condition] = {}
    for name, condition in table.contents.items():
        if name in ("scenario", "policy"):
            known = axes.scenario if name == "scenario" else axes.policy
            conditions[name] = as_list(condition)
            yield from check_names(name, as_list(condition), known)
        elif isinstance(condition, Bounds):
            if PARAMETERS[name].kind.number is None:
                yield f"{name}: this is no number: give a value or a list of values"
            elif not condition.contents:
                yield f"{name}: one or more of {', '.join(_COMPARISONS)} must be given"
            conditions[name] = {key: bound for key, bound in condition if bound is not None}
        elif condition is not FAULTY:
            known_values = axes.values(name, fixed)
            conditions[name] = yield from _known_values(name, condition, known_values, write)
    if not table.contents:
        yield "one or more conditions must be given, such as budget = 0.3"
    return conditions


def _known_values(
    name: str, values: list[Any], known: list[Any], write: Write
) -> Checked[list[Any]]:
    """Find each of some values among those that a parameter has somewhere."""
    sound = [value for value in known if value is not FAULTY]
    found = []
    for value in values:
        same = same_values(value, sound)
        if not same and sound == known:
            there = values_text(known, partial(write, name))
            yield f"{name} is nowhere {write(name, value)}; there are {there}"
        found += same
    return found


def _meets(value: Any, condition: Condition) -> bool:
    if isinstance(condition, list):
        return value in condition
    # no budget is no number: neither below nor above another
    return value is not None and all(
        _COMPARISONS[name](value, bound) for name, bound in condition.items()
    )


# ---- The cells -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """All cells, and what is left out.

    Attributes
    ----------
    axes : Axes
        What spans them.
    points : list of Point
        The cells, by their number.
    numbers : dict
        For each pair of a scenario and a policy, by the index among `Axes.coordinates`: the number
        of the cell; what leaves it out, as a text; or None, if its parameters have a fault.
    """

    axes: Axes
    points: list[Point] = field(default_factory=list)
    numbers: dict[tuple[str, str], list[int | str | None]] = field(default_factory=dict)

    def number(self, scenario: str, policy: str, i: int) -> Checked[int | None]:
        """Find the number of a cell; None if there is none."""
        number = self.numbers[scenario, policy][i] if self.numbers else None
        if isinstance(number, str):
            yield f"the cell of policy {quote(policy)} is left out by {number}"
        return number if isinstance(number, int) else None

    def baselines(self, policy: str) -> tuple[int, ...]:
        """Find each cell's baseline: itself, where the baseline's own cell was left out."""
        return tuple(
            baseline if isinstance(baseline, int) else number
            for (scenario, _), numbers in self.numbers.items()
            for number, baseline in zip(numbers, self.numbers[scenario, policy], strict=True)
            if isinstance(number, int)
        )


def make_cells(
    axes: Axes,
    fixed: dict[str, Any],
    excludes: Mapping[str, Mapping[str, Condition]],
    generator: Generator,
    progress: Progress | None,
) -> Checked[Cells]:
    """Make all cells that are not left out, and check them.

    Parameters that cannot stand together are reported once, at their first cell.
    """
    cells = Cells(axes)
    conflict_at: dict[str, tuple[str, str]] = {}
    n_conflicts: Counter[str] = Counter()
    n_met = Counter(dict.fromkeys(excludes, 0))
    n_faulty = 0
    for done, (scenario, policy, at, parameters) in enumerate(axes.cells(fixed)):
        if progress is not None and done % _STEP == 0:
            progress(done, axes.n_cells)
        numbers = cells.numbers.setdefault((scenario, policy), [])
        if FAULTY in parameters.values():
            n_faulty += 1
            numbers.append(None)
            continue
        if excludes:
            values = parameters | {"scenario": scenario, "policy": policy}
            met = [
                label
                for label, conditions in excludes.items()
                if all(_meets(values[name], rule) for name, rule in conditions.items())
            ]
            n_met.update(met)
            if met:
                numbers.append(met[0])
                continue
        of_lesson = lesson_conflicts(parameters) if generator == "lesson" else ()
        found = (*conflicts(parameters), *of_lesson)
        for conflict in found:
            rule = conflict.partition(", got ")[0]  # the number differs from cell to cell
            conflict_at.setdefault(rule, (cell_label(scenario, policy, at), conflict))
            n_conflicts[rule] += 1
        if found:
            numbers.append(None)  # nothing can be asked of such a cell
            continue
        number = len(cells.points)
        numbers.append(number)
        cells.points.append(Point(number, scenario, policy, at, Cell.from_checked(parameters)))
    if progress is not None:
        progress(axes.n_cells, axes.n_cells)
    for rule, (label, conflict) in conflict_at.items():
        n = n_conflicts[rule]
        yield f"{label}: {conflict}" + (f" (and {n - 1} more cells)" if n > 1 else "")
    if n_faulty == 0 and not conflict_at:
        yield from (f"{label}: no cell meets all of it" for label, n in n_met.items() if n == 0)
        if axes.n_cells and not cells.points:
            yield "no cell remains: the [[exclude]] tables leave out all of them"
    return cells
