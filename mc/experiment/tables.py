"""The tables of an experiment file: each key's type, its default, and its rule in words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mc.experiment.words import add, hint, quote, show, value_text
from mc.model import PARAMETERS, check_parameter

Generator = Literal["philox", "lesson"]
Relation = Literal["<", "<=", "=", ">=", ">", "between"]
Scale = Literal["linear", "log"]
Keep = Literal["rows", "histograms"]
DesignKind = Literal["latin-hypercube", "sobol"]

SEEDS: Final[dict[Generator, tuple[int, int]]] = {
    "philox": (0, 2**64 - 1),
    "lesson": (1, 2**31 - 2),
}
"""Smallest and largest seed of each generator: a 64-bit key; the states of MINSTD."""

DEFAULT_SEED: Final = 20260802
"""The lesson's."""

MAX_REPLICATIONS: Final = 2**32 - 1
"""A replication's index is one 32-bit word of the generator's counter."""

MIN_OF_PRECISION: Final = 10
"""Of fewer replications a spread that is small by luck would end too many cells: Law, *Simulation
Modeling and Analysis*, section 9.4.1."""

LARGEST: Final = sys.float_info.max
"""A number beyond is infinite, or an integer that no float holds; nan compares as false."""

FAULTY: Final = object()
"""Stands where a parameter had a fault, so that nothing is said twice about it."""


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("control characters would end up on the terminal")
    return text


Printable = Annotated[str, AfterValidator(_printable)]
"""A name or a text: it is printed, on lines of its own."""


class Table(BaseModel):
    """Some keys of a table; which others it may have, the reader of the table decides."""

    model_config = ConfigDict(strict=True)


class File(Table):
    """The top of the file."""

    title: Printable = Field(description="a text of printable characters")
    generator: Generator = Field(default="philox", description='"philox" or "lesson"')
    seed: int = Field(default=DEFAULT_SEED, description="a whole number")
    replications: int = Field(
        default=10_000,
        ge=1,
        le=MAX_REPLICATIONS,
        description=f"a whole number >= 1 and <= {MAX_REPLICATIONS}",
    )
    seeds: list[int] | None = Field(
        default=None, min_length=1, description="a list of one or more whole numbers"
    )
    keep: Keep = Field(default="rows", description='"rows" or "histograms"')
    lesson_shares: bool = Field(default=False, description="true or false")
    precision: dict[str, Any] | None = Field(default=None, description="a table: [precision]")
    baseline: str | None = Field(default=None, description="the name of a policy")
    fixed: dict[str, Any] = Field(default={}, description="a table: [fixed]")
    scenario: list[dict[str, Any]] = Field(default=[], description="tables: [[scenario]]")
    policy: list[dict[str, Any]] = Field(default=[], description="tables: [[policy]]")
    grid: dict[str, Any] = Field(default={}, description="a table: [grid]")
    design: dict[str, Any] | None = Field(default=None, description="a table: [design]")
    exclude: list[dict[str, Any]] = Field(default=[], description="tables: [[exclude]]")
    claim: list[dict[str, Any]] = Field(default=[], description="tables: [[claim]]")
    published: list[dict[str, Any]] = Field(default=[], description="tables: [[published]]")


class PrecisionKeys(Table):
    """[precision]. The default stages are 1000, 2000, 4000, ... 64000 replications."""

    metric: str | list[str] = Field(
        min_length=1, description="the name of a metric or a list of such names"
    )
    relative: float | None = Field(
        default=None, gt=0, lt=1, description="a number > 0 and < 1 (0.01 is 1 %)"
    )
    absolute: float | None = Field(
        default=None, gt=0, le=LARGEST, description="a number > 0, in the metric's unit"
    )
    confidence: float = Field(default=0.95, gt=0, lt=1, description="a number > 0 and < 1")
    min: int = Field(
        default=1000, ge=MIN_OF_PRECISION, description=f"a whole number >= {MIN_OF_PRECISION}"
    )
    max: int = Field(
        default=64_000,
        ge=MIN_OF_PRECISION,
        le=MAX_REPLICATIONS,
        description=f"a whole number >= {MIN_OF_PRECISION} and <= {MAX_REPLICATIONS}",
    )


class Named(Table):
    """A [[scenario]] or a [[policy]]."""

    name: Printable = Field(description="a text of printable characters")


class Span(Table):
    """What a parameter of [design] lies between."""

    low: float = Field(alias="from", description="a number")
    high: float = Field(alias="to", description="a number")
    scale: Scale = Field(default="linear", description='"linear" or "log"')


class Range(Span):
    """An axis of [grid] that is not written out."""

    steps: int = Field(ge=2, description="a whole number >= 2")


class DesignKeys(Table):
    """The keys of [design] that are no parameters."""

    kind: DesignKind = Field(description='"latin-hypercube" or "sobol"')
    points: int = Field(ge=1, description="a whole number >= 1")
    seed: int = Field(ge=0, description="a whole number >= 0")


class Bounds(Table):
    """A condition on a number."""

    above: float | None = Field(default=None, description="a number")
    below: float | None = Field(default=None, description="a number")
    at_least: float | None = Field(default=None, description="a number")
    at_most: float | None = Field(default=None, description="a number")


class ClaimKeys(Table):
    """A [[claim]]."""

    text: Printable = Field(description="a text of printable characters")
    scenario: str | None = Field(default=None, description="the name of a scenario")
    metric: str | list[str] = Field(description="the name of a metric or a list of such names")
    policies: list[str] | None = Field(
        default=None, min_length=1, description="a list of one or more names of policies"
    )
    relation: Relation = Field(description=f"one of {' '.join(get_args(Relation))}")
    value: float | list[float] | None = Field(default=None, description="a number or [low, high]")
    times: float = Field(default=1.0, gt=0, le=1e9, description="a number > 0 and <= 1e9")
    margin: float | None = Field(default=None, gt=0, le=LARGEST, description="a number > 0")
    at: dict[str, Any] = Field(default={}, description="a table {axis = value}")


class PublishedKeys(Table):
    """The keys of a [[published]] that are no metrics."""

    scenario: str | None = Field(default=None, description="the name of a scenario")
    policy: str | None = Field(default=None, description="the name of a policy")
    at: dict[str, Any] = Field(default={}, description="a table {axis = value}")


def key_names(model: type[Table]) -> dict[str, str]:
    """Return what each field of a model is called in the file: `from` is a word of Python."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def keys(
    model: type[Table], table: Mapping[str, Any], where: str, faults: list[str]
) -> dict[str, Any]:
    """Check the keys that `model` knows and return their values, defaults included.

    A key with a fault is reported and has the value None, so that the rest of the file can
    still be checked. Keys that the model does not know are left to the caller.
    """
    names = key_names(model)
    known = {key: model.model_fields[name] for key, name in names.items()}
    given = {key: value for key, value in table.items() if key in known}
    try:
        checked = model.model_validate(given)
    except ValidationError as error:
        # a union reports one error for each of its types: the first of a key says it all
        first = {str(fault["loc"][0]): fault for fault in reversed(error.errors())}
    else:
        return {key: getattr(checked, name) for key, name in names.items()}
    for key, fault in first.items():
        rule = known[key].description
        if fault["type"] == "missing":
            add(faults, where, f"{key} is missing, it must be {rule}")
        else:
            add(faults, where, f"{key} must be {rule}, got {show(fault['input'])}")
    defaults = {key: None if f.is_required() else f.default for key, f in known.items()}
    return defaults | given | dict.fromkeys(first)


def others(model: type[Table], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that `model` does not know."""
    known = key_names(model)
    return {name: value for name, value in table.items() if name not in known}


def refuse_others(
    model: type[Table], table: Mapping[str, Any], where: str, faults: list[str]
) -> None:
    """Report the keys that `model` does not know."""
    for name in others(model, table):
        add(faults, where, f"unknown key {quote(name)}{hint(name, key_names(model))}")


def parameters(table: Mapping[str, Any], where: str, faults: list[str]) -> dict[str, Any]:
    """Bring parameters to their own types, those with a fault (reported) to `FAULTY`."""
    values: dict[str, Any] = {}
    for name, given in table.items():
        if name not in PARAMETERS:
            unknown_parameter(name, where, faults)
            continue
        value, fault = check_parameter(name, given)
        if fault is not None:
            add(faults, where, fault)
        values[name] = value if fault is None else FAULTY
    return values


def unknown_parameter(name: str, where: str, faults: list[str]) -> None:
    """Report a name that should be a parameter's."""
    add(faults, where, f"unknown parameter {quote(name)}{hint(name, PARAMETERS)}")


def check_names(
    kind: str, names: list[str], known: Collection[str], where: str, faults: list[str]
) -> None:
    """Check that each name is known and given once. An axis with a fault knows none."""
    for name, n in Counter(names).items():
        if known and name not in known:
            add(faults, where, f"{kind} {quote(name)} does not exist{hint(name, known)}")
        if n > 1:
            add(faults, where, f"{kind} {quote(name)} is named {n} times")


def same_values(value: object, known: Collection[Any]) -> list[Any]:
    """Return the known values that `value` means.

    That is itself; where it is not among them, those that are written alike: a value made by a
    range or a design has up to 17 digits, of which a message shows six.
    """
    if value in known:
        return [value]
    text = value_text(value)
    return [entry for entry in known if entry is not FAULTY and value_text(entry) == text]
