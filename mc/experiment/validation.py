"""From the tables of a TOML file to pydantic models, with a message for every fault in them.

Whatever checks a part of the file yields the faults it finds, one message each, and returns what
it has read: see `Checked`. So no fault hides another. What has a fault is reported once and is
`FAULTY` from then on: later checks say nothing about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
    model_validator,
)

from mc.experiment.messages import hint, quote, show, table_label

FAULTY: Final[Any] = object()
"""In place of a value that has a fault, which was reported."""

T = TypeVar("T")
Checked = Generator[str, None, T]
"""Yields faults, and returns what was read in spite of them."""


def outcome(check: Checked[T]) -> tuple[list[str], T]:
    """Run a check: all faults, and what it has read."""
    faults = []
    while True:
        try:
            faults.append(next(check))
        except StopIteration as end:
            result: T = end.value
            return faults, result


def within(where: str, check: Checked[T]) -> Checked[T]:
    """Put the place where they are in front of faults."""
    faults, result = outcome(check)
    for fault in faults:
        yield f"{where}: {fault}"
    return result


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> Checked[None]:
    """Check that each name is known and occurs once; of an axis with a fault none are known."""
    for name, n in Counter(names).items():
        if known and name not in known:
            yield f"{kind} {quote(name)} does not exist{hint(name, known)}"
        if n > 1:
            yield f"{kind} {quote(name)} is named {n} times"


# ---- Tables ----------------------------------------------------------------------------------


class Table(BaseModel):
    """A table of the file. The description of a field is the rule that messages quote."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)
    label: ClassVar[str] = ""
    """The key that holds the name of a table, where a file may have many of the kind."""
    unknown_key: ClassVar[str] = "unknown key {}"
    added_keys: ClassVar[Collection[str]] = ()
    """Keys that were added by `with_keys`."""
    _order: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, data: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        table = handler(data)
        table._order = tuple(data)
        return table

    @field_validator("*", mode="wrap")
    @classmethod
    def _let_faulty_pass(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return value if value is FAULTY else handler(value)

    @classmethod
    def field_names(cls) -> dict[str, str]:
        """Each key of the file with its field: `from` is a word of Python."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def unknown(cls, key: str) -> str:
        """Report an unknown key."""
        return cls.unknown_key.format(quote(key)) + hint(key, cls.field_names())

    @property
    def contents(self) -> dict[str, Any]:
        """What the file gives, in its order; an unknown key is `FAULTY`."""
        names = self.field_names()
        return {key: getattr(self, names.get(key, ""), FAULTY) for key in self._order}

    @property
    def entries(self) -> dict[str, Any]:
        """Those of the contents whose key was added by `with_keys`."""
        return {key: value for key, value in self.contents.items() if key in self.added_keys}

    @property
    def has_fault(self) -> bool:
        """Whether a key has a fault, in this table or one within it."""
        return any(
            value is FAULTY or (isinstance(value, Table) and value.has_fault)
            for value in self.contents.values()
        )

    def check(self) -> Checked[None]:
        """Check what keys must keep together; pydantic has checked each by itself."""
        yield from ()


M = TypeVar("M", bound=Table)


def checked(table: M) -> Checked[M | None]:
    """Check a table; None if it has a fault, or is `FAULTY` itself."""
    if table is FAULTY:
        return None
    faults, _ = outcome(table.check())
    yield from faults
    return None if faults or table.has_fault else table


def labelled(kind: str, tables: Sequence[M]) -> list[tuple[str, M]]:
    """Pair each table of a list with what messages call it; a list with a fault has none."""
    return [
        (table_label(kind, number, getattr(table, table.label, None)), table)
        for number, table in enumerate(() if tables is FAULTY else tables, 1)
    ]


def with_keys(names: Collection[str], field: Callable[[str], Any]) -> Callable[[type[M]], type[M]]:
    """Add an optional key for each name to a table; `field` gives its type and pydantic field."""

    def add(cls: type[M]) -> type[M]:
        fields = {name: field(name) for name in names}
        model = create_model(cls.__name__, __base__=cls, __doc__=cls.__doc__, **fields)
        model.added_keys = names
        return model

    return add


# ---- Validation ------------------------------------------------------------------------------

BRANCHES: Final = ("<list>", "<table>")
"""Tags of the branches of a union that pydantic chooses by type."""


def validate(model: type[M], data: dict[str, Any]) -> Checked[M]:
    """Make a model of a table; `data` itself then has `FAULTY` in place of what has a fault."""
    try:
        return model.model_validate(data)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
    faults: list[tuple[str, str]] = []
    faulty: dict[tuple[int, str], dict[str, Any]] = {}
    for error in errors:
        where, table, contents, key = _locate(model, data, error["loc"])
        own_words = str(error.get("ctx", {}).get("error", ""))
        # of a value that fits no branch of a union pydantic reports each: one of them is enough
        if own_words or (id(contents), key) not in faulty:
            faults.append((where, own_words or _message(table, key, error)))
        faulty[id(contents), key] = contents
    # first what stands at the top of the file, whose place has no name
    # each once: tables that differ in one entry may all have the fault of another
    for where, message in sorted(dict.fromkeys(faults), key=lambda fault: fault[0] != ""):
        yield f"{where}: {message}" if where else message
    for (_, key), contents in faulty.items():
        contents[key] = FAULTY
    return model.model_validate(data, extra="ignore")


def _message(table: type[Table], key: str, error: Any) -> str:
    """Put an error of pydantic into our words."""
    if error["type"] == "extra_forbidden":
        return table.unknown(key)
    rule = table.model_fields[table.field_names()[key]].description
    if error["type"] == "missing":
        return f"{key} is missing, it must be {rule}"
    return f"{key} must be {rule}, got {show(error['input'])}"


def _locate(
    table: type[Table], contents: dict[str, Any], loc: Sequence[int | str]
) -> tuple[str, type[Table], dict[str, Any], str]:
    """Follow a location to the innermost table: its place, model, contents, and the key in it."""
    where, key = "", loc[0]
    rest = [part for part in loc[1:] if part not in BRANCHES]
    while True:
        field = table.field_names().get(str(key))
        inner = None if field is None else _table_in(table.model_fields[field].annotation)
        value = contents.get(str(key))
        label = f"{where}: {key}" if where else f"[{key}]"
        if inner and isinstance(value, list) and len(rest) > 1:  # a key in one of several tables
            number = int(rest.pop(0))
            value = value[number]
            label = table_label(str(key), number + 1, value.get(inner.label))
        # one value that stands for a list of values has a place in it
        if inner is None or not rest or not isinstance(value, dict) or isinstance(rest[0], int):
            return where, table, contents, str(key)
        where, table, contents, key = label, inner, value, rest.pop(0)


def _table_in(annotation: Any) -> type[Table] | None:
    """Find the model in the type of a field, such as the one in `list[Named]`."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next(filter(None, map(_table_in, get_args(annotation))), None)
