"""A TOML experiment file, read into cells, claims and published figures.

`read` checks the whole file before anything runs and reports every fault at once, each with its
place: ``experiments/budget.toml: policy "two layers": budget must be ..., got -0.3``. The rule
of a parameter comes from `model.PARAMETERS`, that of any other key from the pydantic models
below: their descriptions are the words an error message quotes.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mc.model import COUNTERS, PARAMETERS, RATIOS, Cell, check_parameter, check_together

if TYPE_CHECKING:
    import polars as pl

Generator = Literal["philox", "lesson"]
Relation = Literal["<", "<=", "=", ">=", ">", "between"]

METRICS: Final = COUNTERS + RATIOS
"""What a claim or a published figure may be about."""

SEEDS: Final[dict[Generator, tuple[int, int]]] = {
    "philox": (0, 2**64 - 1),
    "lesson": (1, 2**31 - 2),
}
"""Smallest and largest seed of each generator: a 64-bit key; the states of MINSTD."""

MAX_REPLICATIONS: Final = 2**32 - 1
"""A replication's index is one 32-bit word of the generator's counter."""

MAX_CELLS: Final = 1_000_000
"""Beyond, a mistyped grid would fill the memory before the first fault could be shown."""

_LARGEST: Final = sys.float_info.max
"""A number beyond is infinite, or an integer that no float holds; nan compares as false."""

_FAULTY: Final = object()
"""Stands where a parameter had a fault, so that nothing is said twice about it."""


# ---- What a file becomes --------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One cell with its place on the axes.

    Attributes
    ----------
    cell : int
        Index of the cell: scenarios vary slowest, then policies, then the axes of the grid in
        the order of the file, the last one fastest.
    scenario, policy : str
        Names on the two axes of named points; ``default`` where the file has no such axis.
    at : dict
        The value on each axis of the grid.
    parameters : Cell
        All parameters.
    """

    cell: int
    scenario: str
    policy: str
    at: dict[str, Any]
    parameters: Cell


@dataclass(frozen=True)
class Claim:
    """A sentence put to the test in every replication.

    Attributes
    ----------
    text, scenario : str
        The sentence, and where it is said to hold.
    metrics : tuple of str
        It must hold for all of these in the same replication.
    relation : {"<", "<=", "=", ">=", ">", "between"}
        Between each cell and the next; with a `value`, between every cell and the value.
    cells : tuple of int
        What is compared, in this order.
    labels : tuple of str
        The policy of each of the cells.
    value : float, tuple of float or None
        A number to compare with; for "between" the two ends, both included.
    """

    text: str
    scenario: str
    metrics: tuple[str, ...]
    relation: Relation
    cells: tuple[int, ...]
    labels: tuple[str, ...]
    value: float | tuple[float, float] | None


@dataclass(frozen=True)
class Published:
    """A published figure, to be placed in the distribution of its metric.

    Attributes
    ----------
    cell : int
        Index of the cell.
    metric : str
        One of `METRICS`.
    value : float
        The figure, in the metric's unit.
    decimals : int or None
        Digits after the point as printed (``1.00`` has 2); None for ``1e3``.
    """

    cell: int
    metric: str
    value: float
    decimals: int | None


@dataclass(frozen=True)
class Experiment:
    """An experiment file without a fault.

    Attributes
    ----------
    path, title : str
        Where it was read, and what it calls itself.
    generator : {"philox", "lesson"}
        Which draws are used.
    seed, replications : int
        Replications 0 .. `replications` - 1 are drawn from `seed`.
    seeds : tuple of int or None
        With the lesson's generator: the seed of each replication, where the file lists them.
    points : tuple of Point
        Every cell, in order of its index.
    baselines : tuple of int
        For each cell the one it is compared with: the baseline policy in the same scenario and
        at the same point of the grid.
    claims : tuple of Claim
        In the order of the file.
    published : tuple of Published
        In the order of the file.
    source : dict
        The experiment in one canonical form that JSON can hold, overrides included: two files
        that differ only in layout or in 8 against 8.0 have the same. The axes of the grid are a
        list, because their order decides the order of the cells.
    """

    path: str
    title: str
    generator: Generator
    seed: int
    replications: int
    seeds: tuple[int, ...] | None
    points: tuple[Point, ...]
    baselines: tuple[int, ...]
    claims: tuple[Claim, ...]
    published: tuple[Published, ...]
    source: dict[str, Any]

    @property
    def name(self) -> str:
        """The file's name without folder and ending; names the results folder."""
        return Path(self.path).stem


class ExperimentError(ValueError):
    """All faults of an experiment file.

    Attributes
    ----------
    faults : list of str
        One line each: ``<path>: <place>: <what is wrong>``. `str` of the error joins them.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(self.faults)


# ---- The tables of the file: a key's type, its default, and its rule in words ----------------


class _Table(BaseModel):
    model_config = ConfigDict(strict=True)


class _File(_Table):
    title: str = Field(min_length=1, description="a text")
    generator: Generator = Field(default="philox", description='"philox" or "lesson"')
    seed: int = Field(default=20260802, description="a whole number")
    replications: int = Field(
        default=10_000,
        ge=1,
        le=MAX_REPLICATIONS,
        description=f"a whole number >= 1 and <= {MAX_REPLICATIONS}",
    )
    seeds: list[int] | None = Field(
        default=None, min_length=1, description="a list of one or more whole numbers"
    )
    baseline: str | None = Field(default=None, description="the name of a policy")
    fixed: dict[str, Any] = Field(default={}, description="a table: [fixed]")
    scenario: list[dict[str, Any]] = Field(default=[], description="tables: [[scenario]]")
    policy: list[dict[str, Any]] = Field(default=[], description="tables: [[policy]]")
    grid: dict[str, Any] = Field(default={}, description="a table: [grid]")
    claim: list[dict[str, Any]] = Field(default=[], description="tables: [[claim]]")
    published: list[dict[str, Any]] = Field(default=[], description="tables: [[published]]")


class _Named(_Table):
    name: str = Field(min_length=1, description="a text")


class _Claim(_Table):
    text: str = Field(min_length=1, description="a text")
    scenario: str | None = Field(default=None, description="the name of a scenario")
    metric: str | list[str] = Field(description="the name of a metric or a list of such names")
    policies: list[str] | None = Field(
        default=None, min_length=1, description="a list of one or more names of policies"
    )
    relation: Relation = Field(description=f"one of {' '.join(get_args(Relation))}")
    value: float | list[float] | None = Field(default=None, description="a number or [low, high]")
    at: dict[str, Any] = Field(default={}, description="a table {axis = value}")


class _Published(_Table):
    scenario: str | None = Field(default=None, description="the name of a scenario")
    policy: str | None = Field(default=None, description="the name of a policy")
    at: dict[str, Any] = Field(default={}, description="a table {axis = value}")


class _Printed(float):
    """A float that remembers how it was written: 1.00 has two decimals."""

    text: str

    def __new__(cls, text: str) -> _Printed:
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True)
class _Axes:
    """What spans the grid: names and values, each with the parameters it sets."""

    scenario: dict[str, dict[str, Any]]
    policy: dict[str, dict[str, Any]]
    grid: dict[str, list[Any]]

    @property
    def n_cells(self) -> int:
        return len(self.scenario) * len(self.policy) * self.n_grid

    @property
    def n_grid(self) -> int:
        return math.prod(len(values) for values in self.grid.values())

    def index(self, scenario: str, policy: str, grid_point: int) -> int:
        """Index of a cell; `grid_point` counts within the grid alone."""
        row = list(self.scenario).index(scenario) * len(self.policy)
        return (row + list(self.policy).index(policy)) * self.n_grid + grid_point

    def setters(self, name: str) -> list[str]:
        """Places that set a parameter: the first of each axis."""
        places = []
        for kind, points in (("scenario", self.scenario), ("policy", self.policy)):
            first = next((point for point, values in points.items() if name in values), None)
            places += [] if first is None else [f"{kind} {_quote(first)}"]
        return places + (["[grid]"] if name in self.grid else [])

    def cells(
        self, fixed: dict[str, Any]
    ) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Scenario, policy, grid values and all parameters of every cell, in order."""
        common = {name: parameter.default for name, parameter in PARAMETERS.items()} | fixed
        for scenario, policy in itertools.product(self.scenario, self.policy):
            named = common | self.scenario[scenario] | self.policy[policy]
            for values in itertools.product(*self.grid.values()):
                at = dict(zip(self.grid, values, strict=True))
                yield scenario, policy, at, named | at


# ---- Reading ---------------------------------------------------------------------------------


def read(
    path: str | Path,
    *,
    replications: int | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Experiment:
    """Read an experiment file and check all of it.

    Parameters
    ----------
    path : str or Path
        The TOML file.
    replications : int, optional
        Used instead of the file's `replications` or `seeds`.
    seed : int, optional
        Used instead of the file's `seed`; where the file lists `seeds`, alone in their place.
    overrides : mapping of str to str, optional
        Parameters that every cell shall share, written as in TOML (``{"tries": "[3, 3]"}``;
        a bare ``none`` is allowed). One that the file varies cannot be overridden.

    Returns
    -------
    Experiment

    Raises
    ------
    ExperimentError
        Every fault of the file and of the overrides.
    """
    data = _load(path)
    if (replications is not None or seed is not None) and data.pop("seeds", None) is not None:
        data["replications"] = 1  # one seed alone: replication 0 is drawn from it
    data |= {} if replications is None else {"replications": replications}
    data |= {} if seed is None else {"seed": seed}
    faults: list[str] = []
    top = _keys(_File, data, "", faults)
    for name in _others(_File, data):
        hint = ": write it under [fixed]" if name in PARAMETERS else _hint(name, _File.model_fields)
        _add(faults, "", f"unknown key {_quote(name)}{hint}")
    _check_seeds(data, top, faults)
    axes = _Axes(
        _axis("scenario", top["scenario"], faults),
        _axis("policy", top["policy"], faults),
        _grid(top["grid"] or {}, faults),
    )
    fixed = _fixed(top["fixed"] or {}, overrides or {}, axes, faults)
    _check_axes(axes, fixed, faults)
    _check_cells(axes, fixed, top["generator"], faults)
    if top["baseline"] is not None and top["baseline"] not in axes.policy:
        hint = _hint(top["baseline"], axes.policy)
        _add(faults, "", f"baseline {_quote(top['baseline'])} is not a policy{hint}")
    claims = _claims(top["claim"] or [], axes, faults)
    published = _published(top["published"] or [], axes, faults)
    if faults:
        raise ExperimentError([f"{path}: {fault}" for fault in faults])
    return _experiment(
        path=str(path), top=top, axes=axes, fixed=fixed, claims=claims, published=published
    )


def _load(path: str | Path) -> dict[str, Any]:
    """Parse the file, floats as `_Printed`."""
    try:
        # Windows editors put a byte order mark in front
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ExperimentError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        fault = f"{path}: not a TOML file: byte {error.start} is not UTF-8"
        raise ExperimentError([fault]) from error
    try:
        return tomllib.loads(text, parse_float=_Printed)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError says line and column
        raise ExperimentError([f"{path}: not a TOML file: {error}"]) from error


def _keys(
    model: type[_Table], table: Mapping[str, Any], where: str, faults: list[str]
) -> dict[str, Any]:
    """Check the keys that `model` knows and return their values, defaults included.

    A key with a fault is reported and has the value None, so that the rest of the file can
    still be checked. Keys that the model does not know are left to the caller.
    """
    known = model.model_fields
    given = {name: value for name, value in table.items() if name in known}
    try:
        return dict(model.model_validate(given))
    except ValidationError as error:
        # a union reports one error for each of its types: the first of a key says it all
        first = {str(fault["loc"][0]): fault for fault in reversed(error.errors())}
    for name, fault in first.items():
        rule = known[name].description
        if fault["type"] == "missing":
            _add(faults, where, f"{name} is missing, it must be {rule}")
        else:
            _add(faults, where, f"{name} must be {rule}, got {_show(fault['input'])}")
    defaults = {name: None if f.is_required() else f.default for name, f in known.items()}
    return defaults | given | dict.fromkeys(first)


def _others(model: type[_Table], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that `model` does not know."""
    return {name: value for name, value in table.items() if name not in model.model_fields}


def _parameters(table: Mapping[str, Any], where: str, faults: list[str]) -> dict[str, Any]:
    """Bring parameters to their own types, those with a fault (reported) to `_FAULTY`."""
    values: dict[str, Any] = {}
    for name, given in table.items():
        if name not in PARAMETERS:
            _add(faults, where, f"unknown parameter {_quote(name)}{_hint(name, PARAMETERS)}")
            continue
        value, fault = check_parameter(name, given)
        if fault is not None:
            _add(faults, where, fault)
        values[name] = value if fault is None else _FAULTY
    return values


def _axis(
    kind: str, tables: list[dict[str, Any]] | None, faults: list[str]
) -> dict[str, dict[str, Any]]:
    """Read [[scenario]] or [[policy]]: parameters by name; {} if the axis itself has a fault."""
    if tables is None:
        return {}
    points: dict[str, dict[str, Any]] = {}
    for number, table in enumerate(tables, 1):
        where = _place(kind, number, table.get("name"))
        name = _keys(_Named, table, where, faults)["name"]
        if name in points:
            _add(faults, where, "this name is used twice")
        points.setdefault(name or where, _parameters(_others(_Named, table), where, faults))
    return points or {"default": {}}


def _grid(table: dict[str, Any], faults: list[str]) -> dict[str, list[Any]]:
    """Read [grid]: the values on each axis."""
    axes: dict[str, list[Any]] = {}
    for name, given in table.items():
        if name not in PARAMETERS:
            _add(faults, "[grid]", f"unknown parameter {_quote(name)}{_hint(name, PARAMETERS)}")
        elif not isinstance(given, list) or not given:
            rule = "a list of one or more values"
            _add(faults, "[grid]", f"{name} must be {rule}, got {_show(given)}")
            axes[name] = [_FAULTY]
        else:
            values = [_parameters({name: entry}, "[grid]", faults)[name] for entry in given]
            for i, value in enumerate(values):
                if value is not _FAULTY and value in values[:i]:
                    _add(faults, "[grid]", f"{name} has the value {_value_text(value)} twice")
            axes[name] = values
    return axes


def _fixed(
    table: dict[str, Any], overrides: Mapping[str, str], axes: _Axes, faults: list[str]
) -> dict[str, Any]:
    """Read [fixed], the overrides in place of the file's values."""
    kept = {name: value for name, value in table.items() if name not in overrides}
    fixed = _parameters(kept, "[fixed]", faults)
    for name, text in overrides.items():
        setters = axes.setters(name)
        if setters:
            places = " and by ".join(setters)
            _add(faults, "--set", f"{name} is set by {places}: change it in the file")
        else:
            fixed |= _parameters({name: _toml_value(text)}, "--set", faults)
    return fixed


def _toml_value(text: str) -> object:
    """Parse one TOML value; what is none, such as a bare none, remains a text."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


# ---- Checks across tables --------------------------------------------------------------------


def _check_seeds(data: Mapping[str, Any], top: dict[str, Any], faults: list[str]) -> None:
    """Check the range of the seeds, and that replications are asked for in one way."""
    if "seeds" in data and "replications" in data:
        _add(faults, "", "seeds and replications are both given: keep one of them")
    generator: Generator | None = top["generator"]
    if generator is None:
        return
    if "seeds" in data and generator != "lesson":
        _add(faults, "", 'seeds need generator = "lesson": replace them by seed and replications')
        return
    low, high = SEEDS[generator]
    rule = f"a whole number >= {low} and <= {high} for generator {_quote(generator)}"
    if top["seed"] is not None and not low <= top["seed"] <= high:
        _add(faults, "", f"seed must be {rule}, got {top['seed']}")
    for seed, n in Counter(top["seeds"] or []).items():
        if not low <= seed <= high:
            _add(faults, "", f"seeds must each be {rule}, got {seed}")
        if n > 1:
            _add(faults, "", f"seeds must differ, got {seed} {n} times")


def _check_axes(axes: _Axes, fixed: dict[str, Any], faults: list[str]) -> None:
    """Check that no two axes set a parameter (a scenario or a policy may override [fixed])."""
    for name in PARAMETERS:
        setters = axes.setters(name)
        if name in axes.grid and name in fixed:
            setters.insert(0, "[fixed]")
        if len(setters) > 1:
            places = " and by ".join(setters)
            _add(faults, "", f"{name} is set by {places}: keep it in one of them")


def _check_cells(
    axes: _Axes, fixed: dict[str, Any], generator: Generator | None, faults: list[str]
) -> None:
    """Find parameters that cannot stand together: each fault once, at its first cell."""
    if axes.n_cells > MAX_CELLS:
        _add(faults, "", f"the axes must span <= {MAX_CELLS} cells, got {axes.n_cells}")
        return
    found: dict[str, tuple[str, str]] = {}
    counts: Counter[str] = Counter()
    for scenario, policy, at, parameters in axes.cells(fixed):
        if any(value is _FAULTY for value in parameters.values()):
            continue
        here = check_together(parameters)
        if generator == "lesson" and parameters["fault_rounds"] and parameters["failure_rate"]:
            here.append(
                "failure_rate must be 0 in a cell with a fault window for generator "
                f'"lesson", got {parameters["failure_rate"]}'
            )
        for fault in here:
            rule = fault.partition(", got ")[0]  # the number differs from cell to cell
            if rule not in found:
                names = [f"scenario {_quote(scenario)}", f"policy {_quote(policy)}"]
                names += [f"{name} {_value_text(value)}" for name, value in at.items()]
                found[rule] = ", ".join(names), fault
            counts[rule] += 1
    for rule, (where, fault) in found.items():
        more = f" (and {counts[rule] - 1} more cells)" if counts[rule] > 1 else ""
        _add(faults, where, fault + more)


# ---- Claims and published figures ------------------------------------------------------------


def _choose(
    kind: str, table: Mapping[str, Any], names: Collection[str], where: str, faults: list[str]
) -> str | None:
    """Return the name that a table gives for the axis `kind`, or the only one there is.

    None if there is none: that is reported here, unless the axis or the key has a fault of its
    own and was reported before.
    """
    only = next(iter(names)) if len(names) == 1 else None
    given = table.get(kind, only)
    if kind not in table and len(names) > 1:
        _add(faults, where, f"{kind} is missing, it must be one of {_list(names)}")
    if not isinstance(given, str) or not names:
        return None
    if given not in names:
        _add(faults, where, f"{kind} {_quote(given)} does not exist{_hint(given, names)}")
    return given if given in names else None


def _grid_point(at: Mapping[str, Any], axes: _Axes, where: str, faults: list[str]) -> int | None:
    """Find the index within the grid of the point `at`; None if there is none (reported)."""
    index: int | None = 0
    for name in [name for name in at if name not in axes.grid]:
        _add(faults, where, f"at: {_quote(name)} is not on the grid{_hint(name, axes.grid)}")
    for name, values in axes.grid.items():
        rule = " ".join(_value_text(value) for value in values if value is not _FAULTY)
        place = 0 if len(values) == 1 and name not in at else None
        if name in at:
            value, fault = check_parameter(name, at[name])
            place = values.index(value) if fault is None and value in values else None
            if place is None:
                _add(faults, where, f"at: {name} must be one of {rule}, got {_show(at[name])}")
        elif place is None:
            _add(faults, where, f"at: {name} is missing, it must be one of {rule}")
        index = None if index is None or place is None else index * len(values) + place
    return index


def _claims(tables: list[dict[str, Any]], axes: _Axes, faults: list[str]) -> list[Claim]:
    """Read the claims; those with a fault are reported and left out."""
    claims = []
    for number, table in enumerate(tables, 1):
        n_faults = len(faults)
        where = _place("claim", number, table.get("text"))
        keys = _keys(_Claim, table, where, faults)
        for name in _others(_Claim, table):
            _add(faults, where, f"unknown key {_quote(name)}{_hint(name, _Claim.model_fields)}")
        scenario = _choose("scenario", table, axes.scenario, where, faults)
        metrics = [keys["metric"]] if isinstance(keys["metric"], str) else keys["metric"] or []
        _check_names("metric", metrics, METRICS, where, faults)
        policies = keys["policies"] or []
        if "policies" not in table and len(axes.policy) == 1:
            policies = list(axes.policy)
        elif "policies" not in table:
            _add(faults, where, f"policies is missing, name some of {_list(axes.policy)}")
        _check_names("policy", policies, axes.policy, where, faults)
        point = _grid_point(keys["at"] or {}, axes, where, faults)
        if len(faults) == n_faults:
            _check_value(keys["relation"], keys["value"], len(policies), where, faults)
        if len(faults) > n_faults or scenario is None or point is None or not axes.policy:
            continue
        value = keys["value"]
        claims.append(
            Claim(
                text=keys["text"],
                scenario=scenario,
                metrics=tuple(metrics),
                relation=keys["relation"],
                cells=tuple(axes.index(scenario, policy, point) for policy in policies),
                labels=tuple(policies),
                value=(value[0], value[1]) if isinstance(value, list) else value,
            )
        )
    return claims


def _check_names(
    kind: str, names: list[str], known: Collection[str], where: str, faults: list[str]
) -> None:
    """Check that each name is known and given once. An axis with a fault knows none."""
    for name, n in Counter(names).items():
        if known and name not in known:
            _add(faults, where, f"{kind} {_quote(name)} does not exist{_hint(name, known)}")
        if n > 1:
            _add(faults, where, f"{kind} {_quote(name)} is named {n} times")


def _check_value(
    relation: Relation,
    value: float | list[float] | None,
    n_policies: int,
    where: str,
    faults: list[str],
) -> None:
    """Check that the value fits the relation; without one, that two things are compared."""
    numbers = value if isinstance(value, list) else [] if value is None else [value]
    finite = all(abs(number) <= _LARGEST for number in numbers)
    if relation == "between":
        if not isinstance(value, list) or len(value) != 2 or not finite or value[0] > value[1]:
            rule = "[low, high] with low <= high"
            _add(faults, where, f"value must be {rule} for relation between, got {_show(value)}")
    elif isinstance(value, list) or not finite:
        _add(faults, where, f"value must be a number for relation {relation}, got {_show(value)}")
    elif value is None and n_policies < 2:
        _add(faults, where, "policies must name two or more, or a value must be given")


def _published(tables: list[dict[str, Any]], axes: _Axes, faults: list[str]) -> list[Published]:
    """Read the published figures; those with a fault are reported and left out."""
    figures: dict[tuple[int, str], Published] = {}
    for number, table in enumerate(tables, 1):
        where = f"published {number}"
        keys = _keys(_Published, table, where, faults)
        scenario = _choose("scenario", table, axes.scenario, where, faults)
        policy = _choose("policy", table, axes.policy, where, faults)
        point = _grid_point(keys["at"] or {}, axes, where, faults)
        if not _others(_Published, table):
            _add(faults, where, "one or more metrics must be given a number")
        for metric, figure in _others(_Published, table).items():
            if metric not in METRICS:
                hint = _hint(metric, [*METRICS, *_Published.model_fields])
                _add(faults, where, f"metric {_quote(metric)} does not exist{hint}")
            elif type(figure) not in (int, _Printed) or not abs(figure) <= _LARGEST:
                _add(faults, where, f"{metric} must be a number, got {_show(figure)}")
            elif scenario is not None and policy is not None and point is not None:
                cell = axes.index(scenario, policy, point)
                if (cell, metric) in figures:
                    _add(faults, where, f"{metric} was published before for this cell")
                figures[cell, metric] = Published(cell, metric, float(figure), _decimals(figure))
    return list(figures.values())


def _decimals(figure: int | _Printed) -> int | None:
    """Count the digits after the point as printed; None where an exponent moves the point."""
    if not isinstance(figure, _Printed):
        return 0
    tail = figure.text.partition(".")[2].replace("_", "")
    return len(tail) if tail.isdigit() else None


# ---- The experiment --------------------------------------------------------------------------


def _experiment(
    *,
    path: str,
    top: dict[str, Any],
    axes: _Axes,
    fixed: dict[str, Any],
    claims: list[Claim],
    published: list[Published],
) -> Experiment:
    """Put the checked parts together."""
    points = tuple(
        Point(cell, scenario, policy, at, Cell(**parameters))
        for cell, (scenario, policy, at, parameters) in enumerate(axes.cells(fixed))
    )
    baseline = top["baseline"] or next(iter(axes.policy))
    seeds = None if top["seeds"] is None else tuple(top["seeds"])
    source = {
        "title": top["title"],
        "generator": top["generator"],
        "seed": top["seed"],
        "replications": top["replications"] if seeds is None else len(seeds),
        "seeds": seeds,
        "baseline": baseline,
        "fixed": fixed,
        "scenario": [{"name": name} | values for name, values in axes.scenario.items()],
        "policy": [{"name": name} | values for name, values in axes.policy.items()],
        "grid": [{"name": name, "values": values} for name, values in axes.grid.items()],
        "claim": top["claim"],
        "published": top["published"],
    }
    return Experiment(
        path=path,
        title=top["title"],
        generator=top["generator"],
        seed=top["seed"],
        replications=source["replications"],
        seeds=seeds,
        points=points,
        baselines=tuple(
            axes.index(point.scenario, baseline, point.cell % axes.n_grid) for point in points
        ),
        claims=tuple(claims),
        published=tuple(published),
        source=_plain(source),
    )


def cell_table(experiment: Experiment) -> pl.DataFrame:
    """One row per cell, as stored in ``cells.parquet``.

    Parameters
    ----------
    experiment : Experiment

    Returns
    -------
    polars.DataFrame
        `cell`, `scenario`, `policy`, every parameter in its unit (`tries` as the text
        ``3x3x3``, no budget as null), `max_attempts`, `longest_wait` (rounds) and `baseline`
        (a `cell`), and the cell's `identity`. In the order of the file.
    """
    import polars as pl

    types = {"int": pl.Int32, "float": pl.Float64, "budget": pl.Float64, "tries": pl.String}
    points = experiment.points
    cells = [point.parameters for point in points]
    columns = [
        pl.Series("cell", [point.cell for point in points], pl.Int32),
        pl.Series("scenario", [point.scenario for point in points], pl.String),
        pl.Series("policy", [point.policy for point in points], pl.String),
    ]
    for name, parameter in PARAMETERS.items():
        values = [getattr(cell, name) for cell in cells]
        if parameter.kind == "tries":
            values = ["x".join(map(str, tries)) for tries in values]
        columns.append(pl.Series(name, values, types[parameter.kind]))
    return pl.DataFrame(
        [
            *columns,
            pl.Series("max_attempts", [cell.max_attempts for cell in cells], pl.Int32),
            pl.Series("longest_wait", [cell.longest_wait for cell in cells], pl.Int64),
            pl.Series("baseline", experiment.baselines, pl.Int32),
            pl.Series("identity", [cell.identity for cell in cells], pl.String),
        ]
    )


def renumber(experiment: Experiment, numbers: Sequence[int]) -> Experiment:
    """Give every cell another index, in all places where cells are named.

    Parameters
    ----------
    experiment : Experiment
        Cells 0 .. C-1, as `read` numbers them.
    numbers : sequence of int, length C
        The new index of each, without repeats.
    """
    return replace(
        experiment,
        points=tuple(replace(point, cell=numbers[point.cell]) for point in experiment.points),
        baselines=tuple(numbers[cell] for cell in experiment.baselines),
        claims=tuple(
            replace(claim, cells=tuple(numbers[cell] for cell in claim.cells))
            for claim in experiment.claims
        ),
        published=tuple(
            replace(figure, cell=numbers[figure.cell]) for figure in experiment.published
        ),
    )


# ---- Words -----------------------------------------------------------------------------------


def _add(faults: list[str], where: str, message: str) -> None:
    faults.append(f"{where}: {message}" if where else message)


def _place(kind: str, number: int, name: object) -> str:
    """Call a table of the file by its name, or by its number if it has none."""
    return f"{kind} {_quote(name)}" if isinstance(name, str) and name else f"{kind} {number}"


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)  # a line break in a name stays on the line


def _list(names: Collection[str]) -> str:
    return ", ".join(_quote(name) for name in names)


def _hint(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name; where none is near, list all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {_quote(near[0])}?"
    return f"; there are {_list(known)}" if known else ""


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _value_text(value: object) -> str:
    """Write a parameter's value as an experiment file has it."""
    return "none" if value is None else json.dumps(value)


def _plain(value: Any) -> Any:
    """Bring a value to types that JSON gives back as they were."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return float(value) if isinstance(value, float) else value
