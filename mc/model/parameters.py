"""What a parameter of a cell may be: kinds of values, and the words for them.

A `Kind` holds all that depends on the kind of a value. Nothing outside this file asks of which
kind a parameter is, so a new kind is one more function here that makes it.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mc.model.columns import ColumnType
from mc.model.units import Dimension

INT32_MAX: Final = 2**31 - 1

DIMENSIONS: Final[dict[str, Dimension]] = {
    "rounds": "time",
    "calls/round": "rate",
    "requests/s": "rate",
    "probability": "share",
    "retries/primary": "share",
    "retries/s": "rate",
    "share": "share",
}
"""What a text with a unit measures, by the unit of the numbers."""


class EntryError(ValueError):
    """A fault within a value that is a table; the message begins with a dot or a colon."""


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
        Type of a column of such values: int32 also where some are fractions, and any type where
        some are texts; a table with such a value has the type that holds all of its values.
    number : Kind or None
        The numbers among the values: what a range between two of them goes through.
    to_column, from_column : callable
        Write a canonical value as columns have it (NULL is None), and read it again.
    tables : mapping
        The classes of values that are tables, by their ``kind``.
    rows : mapping
        Of a value that is a list of rows: the parameters in a row.
    """

    rule: str
    parse: Callable[[object], Any]
    schema: dict[str, Any]
    column: ColumnType
    number: Kind | None = None
    to_column: Callable[[Any], Any] = _unchanged
    from_column: Callable[[Any], Any] = _unchanged
    tables: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Parameter] = field(default_factory=dict)

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
    def dimension(self) -> Dimension | None:
        """What a text with a unit measures; None if the parameter takes no such text."""
        return DIMENSIONS.get(self.unit)

    @property
    def toml_default(self) -> Any:
        """The default as TOML and JSON have it."""
        if self.default is None:
            return "none"
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def meaning_with_unit(self) -> str:
        """Meaning and unit; a pure number and a name have none."""
        return f"{self.meaning} ({self.unit})" if self.unit else self.meaning

    @property
    def description(self) -> str:
        """Meaning, unit and rule in one line."""
        return f"{self.meaning_with_unit}: {self.kind.rule}"


def declare(
    kind: Kind,
    default: Any,
    unit: str,
    meaning: str,
    *,
    depends: bool = False,
    compare: bool = True,
) -> Any:
    """Declare a field of a dataclass as a parameter, see `Parameter`.

    If its default `depends` on other parameters, it is ... until the class knows them. Fields that
    do not `compare` say where a value comes from.
    """
    parameter = Parameter(kind, default, unit, meaning)
    initial = ... if depends else default
    return field(default=initial, compare=compare, metadata={"parameter": parameter})


# ---- Kinds -----------------------------------------------------------------------------------


def whole(low: int, high: int) -> Kind:
    """Make the kind of whole numbers in a range."""
    rule = f"a whole number >= {low} and <= {high}"

    def parse(value: object) -> int:
        real = _finite(value)
        if real is None or not real.is_integer() or not low <= real <= high:
            raise _refusal(rule, value)
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


def amount(low: float, high: float) -> Kind:
    """Make the kind of numbers in a range, whole ones as integers: once it had only these."""
    number = real(low, high)

    def parse(value: object) -> int | float:
        parsed = number.parse(value)
        return int(parsed) if parsed.is_integer() else parsed

    kind = replace(number, parse=parse, column="int32")
    return replace(kind, number=kind)


def truth() -> Kind:
    """Make the kind of true and false."""
    rule = "true or false"

    def parse(value: object) -> bool:
        if type(value) is not bool:
            raise _refusal(rule, value)
        return value

    return Kind(rule, parse, {"type": "boolean"}, "truth")


def text() -> Kind:
    """Make the kind of texts."""
    rule = "a text of printable characters"

    def parse(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise _refusal(rule, value)
        return value

    return Kind(rule, parse, {"type": "string"}, "text")


def one_of(*names: str) -> Kind:
    """Make the kind of a few names."""
    rule = f"one of {', '.join(names)}"

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise _refusal(rule, value)
        return value

    return Kind(rule, parse, {"enum": list(names)}, "text")


def or_none(kind: Kind) -> Kind:
    """Make the kind that also has the value None: ``"none"`` in TOML, NULL in columns."""
    rule = f"none or {kind.rule}"

    def parse(value: object) -> Any:
        if value is None or (isinstance(value, str) and value == "none"):
            return None
        try:
            return kind.parse(value)
        except EntryError:
            raise
        except ValueError:
            raise _refusal(rule, value) from None

    def to_column(value: Any) -> Any:
        return None if value is None else kind.to_column(value)

    def from_column(value: Any) -> Any:
        return value if value in (None, "none") else kind.from_column(value)

    return replace(
        kind,
        rule=rule,
        parse=parse,
        schema={"anyOf": [{"const": "none"}, kind.schema]},
        to_column=to_column,
        from_column=from_column,
    )


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


def per_layer(kind: Kind) -> Kind:
    """Make the kind that also has a tuple of values, one for each layer, the outermost first.

    In TOML that is a list, in columns the text ``[2.0, 4.0, none]``.
    """
    rule = f"{kind.rule}, or a list with one for each layer"

    def parse(value: object) -> Any:
        if not isinstance(value, list | tuple):
            return kind.parse(value)
        try:
            entries = tuple(kind.parse(entry) for entry in value)
        except EntryError:
            raise
        except ValueError:
            entries = ()
        if not entries:
            raise _refusal(rule, value)
        return entries

    def to_column(value: Any) -> Any:
        if not isinstance(value, tuple):
            return kind.to_column(value)
        written = (kind.to_column(entry) for entry in value)
        return f"[{', '.join('none' if entry is None else str(entry) for entry in written)}]"

    def from_column(value: Any) -> Any:
        if not isinstance(value, str):
            return kind.from_column(value)
        if not value.startswith("["):  # of another cell than the one that makes the column text
            return parse(kind.from_column(_number_or_text(value)))
        entries = (entry.strip() for entry in ENTRY.findall(value[1:-1]))
        return parse([kind.from_column(_number_or_text(entry)) for entry in entries])

    a_list = {"type": "array", "minItems": 1, "items": kind.schema}
    return replace(
        kind,
        rule=rule,
        parse=parse,
        schema={"anyOf": [kind.schema, a_list]},
        to_column=to_column,
        from_column=from_column,
    )


ENTRY: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
"""An entry of a list in a column; within a table there are commas, too."""


def _number_or_text(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _refusal(rule: str, value: object) -> ValueError:
    return ValueError(f"must be {rule}, got {value!r}")


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
