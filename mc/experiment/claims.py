"""[[claim]] and [[published]]: what is said about cells, and which cells these are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mc.experiment.axes import Axes
from mc.experiment.exclude import Remaining
from mc.experiment.result import Claim, Published
from mc.experiment.tables import (
    FAULTY,
    LARGEST,
    ClaimKeys,
    PublishedKeys,
    Relation,
    check_names,
    keys,
    others,
    refuse_others,
    same_values,
)
from mc.experiment.words import (
    add,
    hint,
    listed,
    place,
    quote,
    show,
    value_text,
    values_text,
)
from mc.model import METRICS, check_parameter


@dataclass(frozen=True)
class Cells:
    """All axes, and what remains of their combinations."""

    axes: Axes
    remaining: Remaining

    def number(
        self, scenario: str, policy: str, at: int, where: str, faults: list[str]
    ) -> int | None:
        """Return the number of a cell; None if it was left out, which is reported."""
        index = self.axes.index(scenario, policy, at)
        if index in self.remaining.left_out:
            by = self.remaining.left_out[index]
            add(faults, where, f"the cell of policy {quote(policy)} is left out by {by}")
        return self.remaining.numbers.get(index)


# ---- Finding a cell --------------------------------------------------------------------------


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
        add(faults, where, f"{kind} is missing, it must be one of {listed(names)}")
    if not isinstance(given, str) or not names:
        return None
    if given not in names:
        add(faults, where, f"{kind} {quote(given)} does not exist{hint(given, names)}")
    return given if given in names else None


def _place(at: Mapping[str, Any], axes: Axes, where: str, faults: list[str]) -> int | None:
    """Find the index among `axes.places` of the point `at`; None if there is none (reported)."""
    known = [*axes.grid, *axes.design[0]]
    for name in [name for name in at if name not in known]:
        add(faults, where, f"at: {quote(name)} is not on the grid{hint(name, known)}")
    index: int | None = 0
    for name, values in axes.grid.items():
        found: int | None = 0 if len(values) == 1 and name not in at else None
        if name in at:
            same = _same(name, at[name], values, where, faults)
            found = values.index(same[0]) if same else None
        elif found is None:
            add(faults, where, f"at: {name} is missing, it must be one of {_texts(values)}")
        index = None if index is None or found is None else index * len(values) + found
    number = _design_point(at, axes.design, where, faults)
    return None if index is None or number is None else index * len(axes.design) + number


def _same(name: str, given: object, known: list[Any], where: str, faults: list[str]) -> list[Any]:
    """Return the known values that a given one means; that there is none, is reported."""
    value, fault = check_parameter(name, given)
    same = [] if fault is not None else same_values(value, known)
    if not same and FAULTY not in known:
        add(faults, where, f"at: {name} must be one of {_texts(known)}, got {show(given)}")
    return same


def _texts(values: list[Any]) -> str:
    return values_text([value for value in values if value is not FAULTY])


def _design_point(
    at: Mapping[str, Any], points: list[dict[str, Any]], where: str, faults: list[str]
) -> int | None:
    """Find the one point of the design that has the values of `at`."""
    names = [name for name in points[0] if name in at]
    allowed = {
        name: _same(name, at[name], [*dict.fromkeys(p[name] for p in points)], where, faults)
        for name in names
    }
    if not all(allowed.values()):
        return None
    found = [
        number
        for number, point in enumerate(points)
        if all(point[name] in allowed[name] for name in names)
    ]
    if len(found) != 1:
        rule = f"at must give one point of [design] by its {', '.join(points[0])}"
        add(faults, where, f"{rule}; {len(found)} have these values")
    return found[0] if len(found) == 1 else None


# ---- Claims ----------------------------------------------------------------------------------


def read_claims(
    tables: Sequence[Mapping[str, Any]], cells: Cells, faults: list[str]
) -> list[Claim]:
    """Read the claims; those with a fault are reported and left out."""
    claims = []
    policy_names = cells.axes.policy
    for number, table in enumerate(tables, 1):
        n_faults = len(faults)
        where = place("claim", number, table.get("text"))
        given = keys(ClaimKeys, table, where, faults)
        refuse_others(ClaimKeys, table, where, faults)
        scenario = _choose("scenario", table, cells.axes.scenario, where, faults)
        metrics = [given["metric"]] if isinstance(given["metric"], str) else given["metric"] or []
        check_names("metric", metrics, METRICS, where, faults)
        policies = given["policies"] or []
        if "policies" not in table and len(policy_names) == 1:
            policies = list(policy_names)
        elif "policies" not in table:
            add(faults, where, f"policies is missing, name some of {listed(policy_names)}")
        check_names("policy", policies, policy_names, where, faults)
        at = _place(given["at"] or {}, cells.axes, where, faults)
        if len(faults) == n_faults:
            _check_value(given["relation"], given["value"], len(policies), where, faults)
            if given["value"] is not None and "times" in table:
                add(faults, where, "times is for claims that compare policies, not with a value")
            if given["margin"] is not None and given["relation"] != "=":
                add(faults, where, f"margin goes with relation =, got {given['relation']}")
        if len(faults) > n_faults or scenario is None or at is None or not policy_names:
            continue
        numbers = [cells.number(scenario, policy, at, where, faults) for policy in policies]
        value = given["value"]
        claims.append(
            Claim(
                text=given["text"],
                scenario=scenario,
                metrics=tuple(metrics),
                relation=given["relation"],
                cells=tuple(number for number in numbers if number is not None),
                labels=tuple(", ".join([policy, *_written(given["at"])]) for policy in policies),
                value=(value[0], value[1]) if isinstance(value, list) else value,
                times=given["times"],
                margin=given["margin"],
            )
        )
    return claims


def _written(at: Mapping[str, Any] | None) -> list[str]:
    """The place on the grid that a claim is about."""
    return [
        f"{name} {value if isinstance(value, str) else value_text(value)}"
        for name, value in (at or {}).items()
    ]


def _check_value(
    relation: Relation,
    value: float | list[float] | None,
    n_policies: int,
    where: str,
    faults: list[str],
) -> None:
    """Check that the value fits the relation; without one, that two things are compared."""
    numbers = value if isinstance(value, list) else [] if value is None else [value]
    finite = all(abs(number) <= LARGEST for number in numbers)
    if relation == "between":
        if not isinstance(value, list) or len(value) != 2 or not finite or value[0] > value[1]:
            rule = "[low, high] with low <= high"
            add(faults, where, f"value must be {rule} for relation between, got {show(value)}")
    elif isinstance(value, list) or not finite:
        add(faults, where, f"value must be a number for relation {relation}, got {show(value)}")
    elif value is None and n_policies < 2:
        rule = "policies must name two or more, or a value must be given"
        add(faults, where, f"{rule} (to compare places of the grid, make them policies)")


# ---- Published figures -----------------------------------------------------------------------


class Printed(float):
    """A float that remembers how it was written: 1.00 has two decimals."""

    text: str

    def __new__(cls, text: str) -> Printed:
        """Make the float of its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def read_published(
    tables: Sequence[Mapping[str, Any]], cells: Cells, faults: list[str]
) -> list[Published]:
    """Read the published figures; those with a fault are reported and left out."""
    figures: dict[tuple[int, str], Published] = {}
    for count, table in enumerate(tables, 1):
        where = f"published {count}"
        given = keys(PublishedKeys, table, where, faults)
        scenario = _choose("scenario", table, cells.axes.scenario, where, faults)
        policy = _choose("policy", table, cells.axes.policy, where, faults)
        at = _place(given["at"] or {}, cells.axes, where, faults)
        number = None
        if scenario is not None and policy is not None and at is not None:
            number = cells.number(scenario, policy, at, where, faults)
        if not others(PublishedKeys, table):
            add(faults, where, "one or more metrics must be given a number")
        for metric, figure in others(PublishedKeys, table).items():
            if metric not in METRICS:
                known = [*METRICS, *PublishedKeys.model_fields]
                add(faults, where, f"metric {quote(metric)} does not exist{hint(metric, known)}")
            elif type(figure) not in (int, Printed) or not abs(figure) <= LARGEST:
                add(faults, where, f"{metric} must be a number, got {show(figure)}")
            elif number is not None:
                if (number, metric) in figures:
                    add(faults, where, f"{metric} was published before for this cell")
                digits = _decimals(figure)
                figures[number, metric] = Published(number, metric, float(figure), digits)
    return list(figures.values())


def _decimals(figure: int | Printed) -> int | None:
    """Count the digits after the point as printed; None where an exponent moves the point."""
    if not isinstance(figure, Printed):
        return 0
    tail = figure.text.partition(".")[2].replace("_", "")
    return len(tail) if tail.isdigit() else None
