"""What a parameter of a cell may be: kinds of values, and the words for them.

A `Kind` holds all that depends on the kind of a value. Nothing outside this file asks of which
kind a parameter is, so a new kind is one more function here that makes it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mc.model.columns import ColumnType


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes
    ----------
    rule : str
        Which values there are, as an error message says it: ``a number >= 0``.
    parse : callable
        Gives a value its canonical form, in which equal values are the same. A value that breaks
        the rule is a `ValueError`, whose message continues the name of the parameter:
        ``must be a number >= 0, got -0.3``.
    schema : dict
        JSON schema of a value as TOML has it; None is written "none" there.
    column : ColumnType
        Type of a column of such values.
    number : Kind or None
        The numbers among the values: what a range between two of them goes through.
    to_column, from_column : callable
        Write a canonical value as columns have it (NULL is None), and read it again.
    """

    rule: str
    parse: Callable[[object], Any]
    schema: dict[str, Any]
    column: ColumnType
    number: Kind | None = None
    to_column: Callable[[Any], Any] = _unchanged
    from_column: Callable[[Any], Any] = _unchanged

    def accepts(self, value: object) -> bool:
        """Whether `parse` takes a value."""
        try:
            self.parse(value)
        except ValueError:
            return False
        return True


@dataclass(frozen=True)
class Parameter:
    """One parameter of a cell.

    Attributes
    ----------
    kind : Kind
        Which values it may have.
    default : object
        The lesson's value, canonical.
    unit, meaning : str
        For columns, help and the manifest.
    """

    kind: Kind
    default: Any
    unit: str
    meaning: str

    @property
    def toml_default(self) -> Any:
        """The default as TOML and JSON have it."""
        if self.default is None:
            return "none"
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def description(self) -> str:
        """Meaning, unit and rule in one line."""
        return f"{self.meaning} ({self.unit}): {self.kind.rule}"


def declare(kind: Kind, default: Any, unit: str, meaning: str) -> Any:
    """Declare a field of a dataclass as a parameter, see `Parameter`."""
    return field(default=default, metadata={"parameter": Parameter(kind, default, unit, meaning)})


# ---- Kinds -----------------------------------------------------------------------------------


def whole(low: int, high: int, if_fraction: str = "") -> Kind:
    """Make the kind of whole numbers in a range; `if_fraction` says what to do if one is given."""
    rule = f"a whole number >= {low} and <= {high}"

    def parse(value: object) -> int:
        real = _finite(value)
        if real is None or not real.is_integer() or not low <= real <= high:
            raise _refusal(rule, value, if_fraction if real is not None and real % 1 else "")
        return int(real)

    kind = Kind(rule, parse, {"type": "integer", "minimum": low, "maximum": high}, "int32")
    return replace(kind, number=kind)


def real(low: float, high: float = math.inf, *, low_open: bool = False) -> Kind:
    """Make the kind of numbers in a range, `low` itself excluded if `low_open`."""
    rule = f"a number {'>' if low_open else '>='} {low:g}"
    schema: dict[str, Any] = {"type": "number", "exclusiveMinimum" if low_open else "minimum": low}
    if high < math.inf:
        rule += f" and <= {int(high) if float(high).is_integer() else high!r}"
        schema |= {"maximum": high}

    def parse(value: object) -> float:
        number = _finite(value)
        if number is None or not low <= number <= high or (low_open and number == low):
            raise _refusal(rule, value)
        return number + 0.0  # -0.0 becomes 0.0: one identity for one cell

    kind = Kind(rule, parse, schema, "float")
    return replace(kind, number=kind)


def or_none(kind: Kind) -> Kind:
    """Make the kind that also has the value None: ``"none"`` in TOML, NULL in columns."""
    rule = f"none or {kind.rule}"

    def parse(value: object) -> Any:
        if value is None or (isinstance(value, str) and value == "none"):
            return None
        try:
            return kind.parse(value)
        except ValueError:
            raise _refusal(rule, value) from None

    return replace(kind, rule=rule, parse=parse, schema={"anyOf": [{"const": "none"}, kind.schema]})


def layers(low: int, high: int) -> Kind:
    """Make the kind of tuples with a whole number for each layer, the outermost first.

    In TOML a number alone is one layer; columns have the text ``3x3x3``.
    """
    entry = whole(low, high)
    rule = f"a list of whole numbers, each >= {low} and <= {high}"

    def parse(value: object) -> tuple[Any, ...]:
        values = [value] if type(value) is int else value
        if not isinstance(values, list | tuple) or not values:
            raise _refusal(rule, values)
        try:
            return tuple(entry.parse(value) for value in values)
        except ValueError:
            raise _refusal(rule, values) from None

    return Kind(
        rule,
        parse,
        {"anyOf": [{"type": "array", "minItems": 1, "items": entry.schema}, entry.schema]},
        "text",
        to_column=lambda value: "x".join(map(str, value)),
        from_column=lambda text: tuple(map(int, text.split("x"))),
    )


def _refusal(rule: str, value: object, advice: str = "") -> ValueError:
    return ValueError(f"must be {rule}, got {value!r}{advice and '; '}{advice}")


def _finite(value: object) -> float | None:
    """The number as a float; None for all that is no finite number."""
    # numpy's numbers are registered as such, its truth values are not; Python's own stand first,
    # because a search in the register takes ten times as long
    if isinstance(value, bool) or not isinstance(value, (float, int, numbers.Real)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
