"""[[claim]] and [[published]]: what is said about cells, and which cells these are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, get_args

from pydantic import Field, PlainValidator, WithJsonSchema

from mc.experiment.axes import Axes
from mc.experiment.cells import Cells
from mc.experiment.experiment import Claim, Published, Relation
from mc.experiment.keys import (
    LARGEST,
    At,
    Metrics,
    Printable,
    as_list,
    key,
)
from mc.experiment.messages import Write, hint, listed, quote, same_values, show, values_text
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
from mc.model import METRICS, PARAMETERS, Thresholds, parse_parameter

# ---- Claims ----------------------------------------------------------------------------------


class ClaimTable(Table):
    """A [[claim]]: a sentence to be put to the test in every replication."""

    label = "text"
    text: Printable
    scenario: str | None = key("the name of a scenario", None)
    metric: Metrics
    policies: list[str] | None = key("a list of one or more names of policies", None, min_length=1)
    relation: Relation = key(f"one of {' '.join(get_args(Relation))}")
    value: float | list[float] | None = key("a number or [low, high]", None)
    times: float = key("a number > 0 and <= 1e9", 1.0, gt=0, le=1e9)
    margin: float | None = key("a number > 0", None, gt=0, le=LARGEST)
    at: At = Field({})

    def check(self) -> Checked[None]:
        """Check that value, times and margin fit the relation."""
        relation, value = self.relation, self.value
        if FAULTY in (relation, value):
            return  # which is reported already
        numbers = value if isinstance(value, list) else [] if value is None else [value]
        finite = all(abs(number) <= LARGEST for number in numbers)
        if relation == "between":
            if not isinstance(value, list) or len(value) != 2 or not finite or value[0] > value[1]:
                rule = "[low, high] with low <= high"
                yield f"value must be {rule} for relation between, got {show(value)}"
        elif isinstance(value, list) or not finite:
            yield f"value must be a number for relation {relation}, got {show(value)}"
        if value is not None and "times" in self.contents:
            yield "times is for claims that compare policies, not with a value"
        if self.margin is not None and relation != "=":
            yield f"margin goes with relation =, got {relation}"


class ThresholdsTable(Table):
    """[thresholds]: in which share of replications a claim must hold, to hold or to fail."""

    fails: float = key("a number >= 0 and < 1", Thresholds().fails, ge=0, lt=1)
    holds: float = key("a number > 0 and <= 1", Thresholds().holds, gt=0, le=1)

    def check(self) -> Checked[None]:
        """Check that there is room between them."""
        if FAULTY not in (self.fails, self.holds) and self.fails >= self.holds:
            yield f"fails must be < holds ({self.holds:g}), got {self.fails:g}"

    @property
    def thresholds(self) -> Thresholds:
        """What is asked for."""
        return Thresholds(self.fails, self.holds)


def read_claims(tables: Sequence[ClaimTable], cells: Cells, write: Write) -> Checked[list[Claim]]:
    """Read the claims; one with a fault is left out."""
    claims = []
    for label, table in labelled("claim", tables):
        claim = yield from within(label, _claim(table, cells, write))
        claims += [] if claim is None else [claim]
    return claims


def _claim(table: ClaimTable, cells: Cells, write: Write) -> Checked[Claim | None]:
    faults, (scenario, policies, i) = outcome(_compared(table, cells.axes, write))
    own, _ = outcome(table.check())
    faults += own
    needs_two = table.value is None and table.relation not in ("between", FAULTY)
    if needs_two and len(policies) < 2 and cells.axes.policy and table.policies is not FAULTY:
        rule = "policies must name two or more, or a value must be given"
        faults.append(f"{rule} (to compare places of the grid, make them policies)")
    yield from faults
    if faults or table.has_fault or scenario is None or i is None or not cells.axes.policy:
        return None
    numbers: list[int] = []
    for policy in policies:
        number = yield from cells.number(scenario, policy, i)
        numbers += [] if number is None else [number]
    at = [f"{name} {write(name, _column(name, value))}" for name, value in table.at.items()]
    value = table.value
    return Claim(
        text=table.text,
        scenario=scenario,
        metrics=tuple(as_list(table.metric)),
        relation=table.relation,
        cells=tuple(numbers),
        labels=tuple(", ".join([policy, *at]) for policy in policies),
        value=(value[0], value[1]) if isinstance(value, list) else value,
        times=table.times,
        margin=table.margin,
    )


def _column(name: str, value: object) -> object:
    """A value of `at` as it is given, a table as columns have it."""
    kind = PARAMETERS[name].kind
    return kind.to_column(parse_parameter(name, value)) if kind.tables else value


def _compared(
    table: ClaimTable, axes: Axes, write: Write
) -> Checked[tuple[str | None, Sequence[str], int | None]]:
    """Find what a claim is about: scenario, policies, and the index of the coordinates."""
    scenario = yield from _name("scenario", table.scenario, axes.scenario)
    yield from check_names("metric", as_list(table.metric), METRICS)
    policies = [] if table.policies is FAULTY else table.policies
    if policies is None and len(axes.policy) > 1:
        yield f"policies is missing, name some of {listed(axes.policy)}"
    policies = list(axes.policy) if policies is None else policies
    yield from check_names("policy", policies, axes.policy)
    return scenario, policies, (yield from _coordinates(table.at, axes, write))


# ---- Published figures -----------------------------------------------------------------------


class Printed(float):
    """A float that remembers how it was written: 1.00 has two decimals."""

    text: str

    def __new__(cls, text: str) -> Printed:
        """Make the float of its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def _figure(metric: str, figure: Any) -> Any:
    if type(figure) not in (int, Printed) or not abs(figure) <= LARGEST:
        raise ValueError(f"{metric} must be a number, got {show(figure)}")
    return figure


def _figure_key(metric: str) -> Any:
    check = PlainValidator(partial(_figure, metric))
    number = Annotated[Any, check, WithJsonSchema({"type": "number"})]
    return number, Field(None, description=METRICS[metric].meaning)


@with_keys(METRICS, _figure_key)
class PublishedTable(Table):
    """A [[published]]: figures of one cell, one for each of some metrics."""

    unknown_key = "metric {} does not exist"
    scenario: str | None = key("the name of a scenario", None)
    policy: str | None = key("the name of a policy", None)
    at: At = Field({})


def read_published(
    tables: Sequence[PublishedTable], cells: Cells, write: Write
) -> Checked[list[Published]]:
    """Read the published figures; those with a fault are left out."""
    figures: dict[tuple[int, str], Published] = {}
    for label, table in labelled("published", tables):
        number = yield from within(label, _cell(table, cells, write))
        for metric, figure in table.entries.items():
            if figure is not FAULTY and number is not None:
                if (number, metric) in figures:
                    yield f"{label}: {metric} was published before for this cell"
                decimals = _decimals(figure)
                figures[number, metric] = Published(number, metric, float(figure), decimals)
    return list(figures.values())


def _cell(table: PublishedTable, cells: Cells, write: Write) -> Checked[int | None]:
    """Find the cell that figures are about."""
    scenario = yield from _name("scenario", table.scenario, cells.axes.scenario)
    policy = yield from _name("policy", table.policy, cells.axes.policy)
    i = yield from _coordinates(table.at, cells.axes, write)
    if not table.contents.keys() - {"scenario", "policy", "at"}:
        yield "one or more metrics must be given a number"
    if scenario is None or policy is None or i is None:
        return None
    return (yield from cells.number(scenario, policy, i))


def _decimals(figure: int | Printed) -> int | None:
    """Count the digits after the point as printed; None where an exponent moves the point."""
    if not isinstance(figure, Printed):
        return 0
    tail = figure.text.partition(".")[2].replace("_", "")
    return len(tail) if tail.isdigit() else None


# ---- Finding a cell --------------------------------------------------------------------------


def _name(kind: str, name: str | None, names: Collection[str]) -> Checked[str | None]:
    """Find a name on an axis, or the only one there is; None if there is none."""
    if name is FAULTY or not names:
        return None
    if name is None and len(names) == 1:
        return next(iter(names))
    if name is None:
        yield f"{kind} is missing, it must be one of {listed(names)}"
    elif name not in names:
        yield f"{kind} {quote(name)} does not exist{hint(name, names)}"
    return name if name in names else None


def _coordinates(at: Mapping[str, Any], axes: Axes, write: Write) -> Checked[int | None]:
    """Find the index of a point among `axes.coordinates`; None if there is none."""
    if at is FAULTY:
        return None
    known = [*axes.grid, *axes.design[0]]
    for name in [name for name in at if name not in known]:
        yield f"at: {quote(name)} is not on the grid{hint(name, known)}"
    index: int | None = 0
    for name, values in axes.grid.items():
        i: int | None = 0 if len(values) == 1 else None
        if name in at:
            same = yield from _same_values(name, at[name], values, write)
            i = values.index(same[0]) if same else None
        elif i is None:
            yield f"at: {name} is missing, it must be one of {_written(name, values, write)}"
        index = None if index is None or i is None else index * len(values) + i
    i = yield from _design_point(at, axes.design, write)
    return None if index is None or i is None else index * len(axes.design) + i


def _design_point(
    at: Mapping[str, Any], points: list[dict[str, Any]], write: Write
) -> Checked[int | None]:
    """Find the index of the one point of the design that has the values of `at`."""
    allowed = {}
    for name in [name for name in points[0] if name in at]:
        different = [*dict.fromkeys(point[name] for point in points)]
        allowed[name] = yield from _same_values(name, at[name], different, write)
    if not all(allowed.values()):
        return None
    meant = [
        i
        for i, point in enumerate(points)
        if all(point[name] in values for name, values in allowed.items())
    ]
    if len(meant) != 1:
        rule = f"at must give one point of [design] by its {', '.join(points[0])}"
        yield f"{rule}; {len(meant)} have these values"
    return meant[0] if len(meant) == 1 else None


def _same_values(name: str, value: object, known: list[Any], write: Write) -> Checked[list[Any]]:
    """Find the values of an axis that a value means; where there is a fault, none."""
    if value is FAULTY or FAULTY in known:
        return []
    got = show(value)
    try:
        parsed = parse_parameter(name, value)
        same = same_values(parsed, known)
        got = _written(name, [parsed], write)
    except ValueError:
        same = []
    if not same:
        yield f"at: {name} must be one of {_written(name, known, write)}, got {got}"
    return same


def _written(name: str, values: Sequence[Any], write: Write) -> str:
    """The values of an axis as the file has them; those of one with a fault as they are."""
    sound = [value for value in values if value is not FAULTY]
    return values_text(sound, partial(write, name))
