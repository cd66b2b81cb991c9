"""Values that are tables: ``{kind = "grpc", max_tokens = 100}``.

A kind of table is a frozen dataclass whose fields are declared like the parameters of a cell. Its
values are canonical: times in rounds, so that equal tables are equal.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

from mc.model import units
from mc.model.parameters import ENTRY, EntryError, Kind, Parameter

_TEXT: Final = re.compile(r"(\w+)\((.*)\)")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a table sets.

    Attributes
    ----------
    kind : str
        Its ``kind``; where a parameter has tables of one kind only, they need not name it.
    library : str
        Whose rules these are, as a message says it; empty if nobody's.
    seconds : dict
        The shortest and longest time that the library takes, by entry.
    """

    kind: ClassVar[str]
    library: ClassVar[str] = ""
    seconds: ClassVar[dict[str, tuple[float, float]]] = {}

    @classmethod
    def declared(cls) -> dict[str, Parameter]:
        """Every entry but the kind, by name."""
        return {entry.name: entry.metadata["parameter"] for entry in dataclasses.fields(cls)}

    @property
    def entries(self) -> dict[str, Any]:
        """Every value by name."""
        return {name: getattr(self, name) for name in self.declared()}

    @property
    def written(self) -> dict[str, Any]:
        """What texts give: all that is not none."""
        return {name: value for name, value in self.entries.items() if value is not None}

    @property
    def table(self) -> dict[str, Any]:
        """The kind, and what differs from the defaults, in types that TOML and JSON have."""
        entries = self.entries.items()
        given = {name: x for name, x in entries if x != self.declared()[name].default}
        return {"kind": self.kind} | {
            name: "none" if value is None else value for name, value in given.items()
        }

    @classmethod
    def source(cls) -> str:
        """Whose rule a message quotes: `` (Finagle's RetryBudget)``."""
        return f" ({cls.library})" if cls.library else ""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Read a table whose times are numbers of rounds.

        Raises
        ------
        EntryError
            For example ``.max_tokens must be a whole number >= 1 and <= 1000, got 0``.
        """
        declared = cls.declared()
        for name in table:
            is_kind = name == "kind" and table[name] == cls.kind
            if not is_kind and name not in declared:
                raise EntryError(f": {cls.kind} has no {name!r}; it has {', '.join(declared)}")
        values = {}
        for name, parameter in declared.items():
            value = table.get(name, parameter.default)
            if value is ...:
                rule = parameter.kind.rule
                raise EntryError(f".{name} is missing, it must be {rule}{cls.source()}")
            try:
                values[name] = parameter.kind.parse(value)
            except EntryError as fault:
                raise EntryError(f".{name}{fault}") from None
            except ValueError as error:
                raise EntryError(f".{name} {error}{cls.source()}") from None
        return cls(**values)

    def conflicts(self, name: str, rounds_per_second: float) -> Iterator[str]:
        """Say which entries the library refuses, though each is in range."""
        for entry, (low, high) in self.seconds.items():
            rounds = getattr(self, entry)
            if not low <= rounds / rounds_per_second <= high:
                rule = f">= {units.format_time(low)} and <= {units.format_time(high)}"
                got = units.format_time(rounds / rounds_per_second)
                yield f"{name}.{entry} must be {rule} ({self.library}), got {got}"

    def __str__(self) -> str:
        """Write it as columns have it: ``finagle(ttl=1000 rounds, min_retries_per_sec=10)``."""
        written = (
            f"{name}={value}" + (" rounds" if self.declared()[name].unit == "rounds" else "")
            for name, value in self.written.items()
        )
        return f"{self.kind}({', '.join(written)})"

    def in_words(self, per_second: float) -> str:
        """Write it for a reader: ``finagle(ttl 10 s, min_retries_per_sec 10/s)``."""
        declared = self.declared()
        written = (
            f"{name} "
            + units.text_of(declared[name].dimension, value, per_second, declared[name].unit)
            for name, value in self.written.items()
        )
        return f"{self.kind}({', '.join(written)})"


def is_range(value: object) -> bool:
    """Whether an experiment file has a range {from, to, ...} in place of a value."""
    return isinstance(value, Mapping) and bool({"from", "to"} & value.keys())


def kind_of(classes: Mapping[str, type[Settings]], example: str) -> Kind:
    """Make the kind of tables of some classes; columns have their texts.

    Parameters
    ----------
    classes : mapping of str to type
        By the ``kind`` of the table.
    example : str
        A kind that the rule names.

    Returns
    -------
    Kind

    Raises
    ------
    EntryError
        By `parse`, for a fault within a table.
    """
    rule = f'a table such as {{kind = "{example}"}}'

    def parse(value: object) -> Any:
        if isinstance(value, Settings):
            value = {"kind": value.kind, **value.entries}
        if not isinstance(value, Mapping):
            raise ValueError(f"must be {rule}, got {value!r}")
        known = ", ".join(classes)
        if "kind" not in value:
            raise EntryError(f".kind is missing, it must be one of {known}")
        if not isinstance(value["kind"], str) or value["kind"] not in classes:
            raise EntryError(f".kind must be one of {known}, got {value['kind']!r}")
        return classes[value["kind"]].of(value)

    return Kind(
        rule,
        parse,
        {"anyOf": [schema_of(settings) for settings in classes.values()]},
        "text",
        to_column=str,
        from_column=lambda text: parse(read(text)),
        tables=classes,
    )


def list_of(settings: type[Settings]) -> Kind:
    """Make the kind of lists of tables of one class, which have no ``kind``.

    Columns have a text such as ``[fault(start=500 rounds, length=100 rounds), ...]``; NULL is an
    empty list.

    Raises
    ------
    EntryError
        By `parse`, for a fault within a table.
    """
    rule = f"a list of tables {{{', '.join(settings.declared())}}}"

    def parse(value: object) -> tuple[Settings, ...]:
        if not isinstance(value, list | tuple) or not all(map(is_table, value)):
            raise ValueError(f"must be {rule}, got {value!r}")
        return tuple(one(number, entry) for number, entry in enumerate(value, 1))

    def is_table(entry: object) -> bool:
        return isinstance(entry, settings) or (
            isinstance(entry, Mapping) and entry.get("kind", settings.kind) == settings.kind
        )

    def one(number: int, entry: Any) -> Settings:
        try:
            return settings.of(entry.entries if isinstance(entry, settings) else entry)
        except EntryError as fault:
            raise EntryError(f", number {number}: {str(fault).lstrip('.: ')}") from None

    return Kind(
        rule,
        parse,
        {"type": "array", "items": schema_of(settings)},
        "text",
        to_column=lambda values: f"[{', '.join(map(str, values))}]" if values else None,
        from_column=lambda text: parse([*map(read, ENTRY.findall(text[1:-1]))] if text else []),
        tables={"": settings, settings.kind: settings},
    )


def read(text: str) -> dict[str, Any]:
    """Read a table from its text in a column."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a text such as grpc(max_tokens=10), got {text!r}")
    table: dict[str, Any] = {"kind": match[1]}
    for entry in filter(None, match[2].split(", ")):
        name, _, value = entry.partition("=")
        value = value.removesuffix(" rounds")
        try:
            table[name] = float(value)
        except ValueError:
            table[name] = value
    return table


def schema_of(settings: type[Settings]) -> dict[str, Any]:
    """JSON schema of a table."""
    entries: dict[str, Any] = {}
    for name, parameter in settings.declared().items():
        schema = parameter.kind.schema
        if parameter.dimension is not None:  # a text with a unit
            schema = {"anyOf": [schema, {"type": "string"}]}
        has_default = parameter.default is not None and parameter.default is not ...
        default = {"default": parameter.toml_default} if has_default else {}
        entries[name] = {"description": parameter.description, **schema, **default}
    # a class of a list of its own needs no name
    kind = {"kind": {"const": settings.kind}} if settings.library else {}
    return {
        "type": "object",
        "title": settings.library or settings.kind,
        "properties": kind | entries,
        # an entry of a budget or a breaker may also come from [grid]
        "required": [*kind]
        or [name for name, p in settings.declared().items() if p.default is ...],
        "additionalProperties": False,
    }
