"""The axes that span the cells: [[scenario]], [[policy]], [grid], the points of [design]."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mc.experiment.keys import (
    LIST,
    VALUES,
    ParameterTable,
    Printable,
    key,
    list_or_table,
    value_key,
)
from mc.experiment.messages import quote, same_values, show, table_label, values_text
from mc.experiment.quantities import parameter_tables
from mc.experiment.spacing import Design, Range
from mc.experiment.validation import (
    FAULTY,
    Checked,
    checked,
    labelled,
    outcome,
    validate,
    with_keys,
    within,
)
from mc.model import PARAMETERS, default_arrivals, has_entries, parse_parameter
from mc.model.budgets import as_table
from mc.model.digits import value_text
from mc.model.presets import PRESETS, completed
from mc.model.settings import Settings, is_range
from mc.model.traffic import DEPTHS

MAX_CELLS: Final = 1_000_000
"""Beyond, a mistyped grid would fill the memory before the first fault could be shown."""


@with_keys(PARAMETERS, value_key)
class Named(ParameterTable):
    """A [[scenario]] or a [[policy]]: a named point that sets some parameters together."""

    label = "name"
    name: Printable


class Policy(Named):
    """A [[policy]]: it may begin with a library's defaults, see `read_presets`."""

    like: Literal[*PRESETS] | None = key(f"one of {', '.join(PRESETS)}", None)  # type: ignore[valid-type]


def read_presets(data: Mapping[str, Any]) -> Checked[None]:
    """Fill up the policies of a parsed file that are like a library; the others stay."""
    tables = data.get("policy")
    for number, table in enumerate(tables if isinstance(tables, list) else (), 1):
        if not isinstance(table, dict) or "like" not in table:
            continue
        if isinstance(table["like"], str) and table["like"] in PRESETS:
            full = completed(table)
        else:
            rule = f"one of {', '.join(PRESETS)}"
            label = table_label("policy", number, table.get("name"))
            yield f"{label}: like must be {rule}, got {show(table['like'])}"
            full = {name: value for name, value in table.items() if name != "like"}
        table.clear()
        table.update(full)


def _axis_key(name: str) -> Any:
    unique = Field(min_length=1, json_schema_extra={"uniqueItems": True})
    values: Any = Annotated[LIST[VALUES[name]], unique]
    rule = "a list of one or more values or a range {from, to, steps}"
    return list_or_table(values, Range.of(name)), key(rule, None)


@with_keys(PARAMETERS, _axis_key)
class Grid(ParameterTable):
    """[grid]: each parameter is an axis of its own."""


def with_entries(value: Any, entries: dict[str, Any]) -> Checked[Any]:
    """Change entries of a value, which may be none; a plain budget is a table with a ratio."""
    if isinstance(value, dict):
        return {**value, **entries}
    if isinstance(value, list):
        yield "an entry cannot be set where [fixed] has a value for each layer: write all of them"
        return FAULTY
    if value not in (None, "none"):
        return {"kind": "ratio", "ratio": value, **entries}
    return {"kind": "ratio", **entries} if "ratio" in entries else entries


def read_axes_of_tables(data: Mapping[str, Any]) -> Checked[None]:
    """Write out the axes of a parsed grid that vary entries of a table: ``budget.ratio = [...]``.

    What the grid does not say of the table is taken from [fixed]. Ranges stay in the tables until
    their ends are numbers, see `read_ranges_in_tables`.
    """
    grid, design = _table(data, "grid"), _table(data, "design")
    for name, side in design.items():
        if has_entries(name) and isinstance(side, dict) and not is_range(side):
            yield f"[design]: {name} must be a range {{from, to}}; entries of tables vary in [grid]"
            design[name] = FAULTY
    for name, axis in grid.items():
        if not has_entries(name) or not isinstance(axis, dict) or is_range(axis):
            continue
        base = _table(data, "fixed").pop(name, None)
        table = yield from within(f"[grid]: {name}", with_entries(base, axis))
        if table is FAULTY:
            grid[name] = FAULTY
            continue
        if not any(_is_varied(entry, value) or is_range(value) for entry, value in axis.items()):
            yield f"[grid]: {name}: one or more entries must be lists of values or ranges"
        lists = {
            entry: value if entry in axis and _is_varied(entry, value) else [value]
            for entry, value in table.items()
        }
        grid[name] = yield from _tables_of(name, lists)


def read_ranges_in_tables(data: Mapping[str, Any]) -> Checked[None]:
    """Write out the ranges within the tables of a grid, whose ends are numbers now."""
    grid = _table(data, "grid")
    for name, axis in grid.items():
        if not has_entries(name) or not isinstance(axis, list):
            continue
        tables: list[Any] = []
        for table in axis:
            written = [table]
            if isinstance(table, dict) and any(map(is_range, table.values())):
                written = yield from _written_out(name, table)
            if written is FAULTY:  # so are the same ranges in the other tables
                tables = FAULTY
                break
            tables += written
        grid[name] = tables


def read_named_entries(data: Mapping[str, Any]) -> Checked[None]:
    """Put whole values in the place of entries by which [[exclude]] and `at` name them.

    ``budget.ratio = 0.1`` means every value whose table has this entry; in `at` it must be one.
    """
    for label, table in parameter_tables(data):
        is_exclude = label.startswith("exclude ")
        if not is_exclude and not label.endswith(": at"):
            continue
        for name, entries in table.items():
            if not has_entries(name) or not _is_part(name, entries):
                continue
            known = _values_of(data, name, everywhere=is_exclude)
            meant = [value for value in known if _has_entries(name, value, entries)]
            written = ", ".join(f"{name}.{entry} = {show(x)}" for entry, x in entries.items())
            table[name] = FAULTY
            if FAULTY in known:
                continue
            if not meant or (len(meant) > 1 and not is_exclude):
                n = "several values" if meant else "no value"
                yield f"{label}: {n} of {name} {'have' if meant else 'has'} {written}"
            else:
                table[name] = meant if is_exclude else meant[0]


def _is_part(name: str, value: object) -> bool:
    """Whether a value names entries of a table, and is neither a table nor bounds."""
    tables = PARAMETERS[name].kind.tables
    entries = {entry for of in tables.values() for entry in of.declared()}
    return isinstance(value, dict) and "kind" not in value and bool(value.keys() & entries)


def _values_of(data: Mapping[str, Any], name: str, everywhere: bool) -> list[Any]:
    """The values that a parameter has on the grid, or everywhere, as they are written."""
    values: list[Any] = []
    for label, table in parameter_tables(data):
        if name not in table or label.endswith(": at") or label.startswith("exclude "):
            continue
        if label == "[grid]":
            values += table[name] if isinstance(table[name], list) else [FAULTY]
        elif everywhere:
            values.append(table[name])
    return values


def _has_entries(name: str, value: Any, entries: Mapping[str, Any]) -> bool:
    """Whether a value is a table with these entries; of a list of values one is enough."""
    try:
        table = as_table(parse_parameter(name, value))
    except ValueError:  # it is reported where it stands
        return False
    if not isinstance(table, Settings) or not entries.keys() <= table.entries.keys():
        return False
    lists = {entry: x if _is_varied(entry, x) else [x] for entry, x in entries.items()}
    kinds = {entry: parameter.kind for entry, parameter in table.declared().items()}
    return all(
        any(kinds[entry].accepts(x) and same_values(x, [table.entries[entry]]) for x in wanted)
        for entry, wanted in lists.items()
    )


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A table of a parsed file; empty where there is none."""
    table = data.get(key)
    return table if isinstance(table, dict) else {}


def _written_out(name: str, table: dict[str, Any]) -> Checked[Any]:
    """Give a table with each value of its ranges."""
    settings = PARAMETERS[name].kind.tables.get(str(table.get("kind", "")))
    lists = {entry: [value] for entry, value in table.items()}
    for entry, value in table.items():
        # what is no entry of this kind is a fault that the table itself reports
        if is_range(value) and settings is not None and entry in settings.declared():
            model = Range.of_entry(entry, settings)
            faults, values = outcome(_range_of_entry(f"{name}.{entry}", model, value))
            yield from (f"[grid]: {fault}" for fault in faults)
            if faults:
                return FAULTY
            lists[entry] = values
    return (yield from _tables_of(name, lists))


def _range_of_entry(name: str, model: type[Range], value: dict[str, Any]) -> Checked[list[Any]]:
    span = yield from within(name, validate(model, value))
    n = _n(span)
    if n > MAX_CELLS:
        yield f"{name}: steps must be <= {MAX_CELLS}, got {n}"
        return [FAULTY]
    return (yield from _axis_values(name, span))


def _tables_of(name: str, lists: Mapping[str, list[Any]]) -> Checked[Any]:
    """Cross the values of entries."""
    n = math.prod(map(len, lists.values()))
    if n > MAX_CELLS:
        yield f"[grid]: {name}: its entries must have <= {MAX_CELLS} combinations, got {n}"
        return FAULTY
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _is_varied(entry: str, value: object) -> bool:
    """Whether an axis has several values of an entry, which may be a list itself."""
    if not isinstance(value, list):
        return False
    depth, inner = 0, value
    while isinstance(inner, list) and inner:
        depth, inner = depth + 1, inner[0]
    return depth > DEPTHS.get(entry, 0) - isinstance(inner, dict)


@dataclass(frozen=True)
class Axes:
    """What spans the cells: names and values, each with the parameters it sets.

    Attributes
    ----------
    scenario, policy : dict
        Parameters by the name of the point; empty where the axis itself has a fault.
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
    def coordinates(self) -> list[dict[str, Any]]:
        """All points of the grid, each with every point of the design, which varies fastest."""
        return [
            dict(zip(self.grid, values, strict=True)) | point
            for values in itertools.product(*self.grid.values())
            for point in self.design
        ]

    @property
    def n_cells(self) -> int:
        """Cells, those left out by an exclude included."""
        n_coordinates = math.prod(map(len, self.grid.values())) * len(self.design)
        return len(self.scenario) * len(self.policy) * n_coordinates

    def cells(
        self, fixed: dict[str, Any]
    ) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Scenario, policy, coordinates and all parameters of every cell, in order."""
        common = {name: parameter.default for name, parameter in PARAMETERS.items()}
        common |= {"arrivals_per_second": ...} | fixed  # it depends on the traffic
        for scenario, policy in itertools.product(self.scenario, self.policy):
            named = common | self.scenario[scenario] | self.policy[policy]
            for at in self.coordinates:
                parameters = named | at
                if parameters["arrivals_per_second"] is ...:
                    arrivals = default_arrivals(parameters["traffic"])
                    parameters["arrivals_per_second"] = arrivals
                yield scenario, policy, at, parameters

    def values(self, name: str, fixed: Mapping[str, Any]) -> list[Any]:
        """All values that a parameter has anywhere, each once."""
        points = [*self.scenario.values(), *self.policy.values(), *self.design]
        on_axes = [point[name] for point in points if name in point] + self.grid.get(name, [])
        return list(dict.fromkeys([fixed.get(name, PARAMETERS[name].default), *on_axes]))

    def setters(self, name: str) -> list[str]:
        """What sets a parameter: the first point of each axis that does."""
        setters = []
        for kind, points in (("scenario", self.scenario), ("policy", self.policy)):
            names = [point for point, values in points.items() if name in values]
            setters += [f"{kind} {quote(point)}" for point in names[:1]]
        setters += ["[grid]"] if name in self.grid else []
        return setters + (["[design]"] if name in self.design[0] else [])

    def check(self, fixed: Mapping[str, Any]) -> Checked[None]:
        """Check that no two axes set a parameter (a scenario or a policy may override [fixed])."""
        for name in PARAMETERS:
            setters = self.setters(name)
            if name in fixed and (name in self.grid or name in self.design[0]):
                setters.insert(0, "[fixed]")
            if len(setters) > 1:
                yield f"{name} is set by {' and by '.join(setters)}: keep it in one of them"


# ---- Reading ---------------------------------------------------------------------------------


def read_axes(
    scenario: Sequence[Named], policy: Sequence[Named], grid: Grid, design: Design | None
) -> Checked[Axes]:
    """Read all axes; if they span too many cells, no range and no design is written out."""
    scenarios = yield from _named_points("scenario", scenario)
    policies = yield from _named_points("policy", policy)
    sound_design = None if design is None else (yield from within("[design]", checked(design)))
    axes = {} if grid is FAULTY else grid.entries
    n_cells = max(1, len(scenarios)) * max(1, len(policies)) * math.prod(map(_n, axes.values()))
    n_cells *= 1 if sound_design is None else sound_design.n_points
    if n_cells > MAX_CELLS:
        yield f"the axes must span <= {MAX_CELLS} cells, got {n_cells}"
        axes, sound_design = dict.fromkeys(axes, FAULTY), None
    values = {}
    for name, axis in axes.items():
        values[name] = yield from within("[grid]", _axis_values(name, axis))
    if sound_design is not None:
        points = yield from within("[design]", _design_points(sound_design))
    else:
        points = [dict.fromkeys({} if design in (None, FAULTY) else design.entries, FAULTY)]
    return Axes(scenarios, policies, values, points)


def _named_points(kind: str, tables: Sequence[Named]) -> Checked[dict[str, dict[str, Any]]]:
    """Read [[scenario]] or [[policy]]: parameters by name; {} if the axis itself has a fault."""
    if tables is FAULTY:
        return {}
    points: dict[str, dict[str, Any]] = {}
    for label, table in labelled(kind, tables):
        if table.name in points:
            yield f"{label}: this name is used twice"
        points.setdefault(label if table.name is FAULTY else table.name, table.entries)
    return points or {"default": {}}


def _n(axis: list[Any] | Range) -> int:
    """Count the values on an axis without making them; one with a fault counts as one."""
    n = len(axis) if isinstance(axis, list) else 1 if axis is FAULTY else axis.steps
    return 1 if n is FAULTY else n


def _axis_values(name: str, axis: list[Any] | Range) -> Checked[list[Any]]:
    """Read the values on an axis."""
    if isinstance(axis, list):
        for value, n in Counter(axis).items():
            if n > 1:
                yield f"{name} has the value {value_text(value)} twice"
        return axis
    sound = yield from within(name, checked(axis))
    if sound is None:
        return [FAULTY]
    values = sound.values()
    different = list(dict.fromkeys(values))
    if len(different) < len(values):
        ends = " to ".join(map(value_text, sound.ends))
        cure = f"use fewer steps or a list of these: {values_text(different)}"
        few = f"{len(values)} steps from {ends} give only {len(different)} different values"
        yield f"{name}: {few}; {cure}"
        return [FAULTY]
    return values


def _design_points(design: Design) -> Checked[list[dict[str, Any]]]:
    points = design.points()
    n_different = len({tuple(point.values()) for point in points})
    if n_different < len(points):
        cure = "use fewer points or wider ranges"
        yield f"{len(points)} points give only {n_different} different; {cure}"
    return points
