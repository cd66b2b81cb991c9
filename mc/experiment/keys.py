"""Types of the keys that several tables of an experiment file have in common."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from mc.experiment.validation import BRANCHES, FAULTY, Table, with_keys
from mc.model import METRICS, PARAMETERS, Kind, parse_parameter

LARGEST: Final = sys.float_info.max
"""A number beyond is infinite, or an integer that no float holds; nan compares as false."""


def key(rule: str, default: Any = ..., **more: Any) -> Any:
    """Declare a key of a table; `rule` says in a message what it must be."""
    return Field(default, description=rule, **more)


# ---- Names -----------------------------------------------------------------------------------


def _printable(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError  # control characters would end up on the terminal
    return text


Printable = Annotated[str, AfterValidator(_printable), key("a text of printable characters")]
"""A name or a text: it is printed, on lines of its own."""

Names = Annotated[
    str | Annotated[list[str], Field(min_length=1)] | None, key("a name or a list of names")
]

Metric = Annotated[str, WithJsonSchema({"enum": [*METRICS]})]
Metrics = Annotated[
    Metric | Annotated[list[Metric], Field(min_length=1)],
    key("the name of a metric or a list of such names"),
]


def as_list(names: str | list[str]) -> list[str]:
    """List the names of a key that takes one or more; none where it has a fault."""
    if names is FAULTY:
        return []
    return [names] if isinstance(names, str) else names


# ---- Parameters ------------------------------------------------------------------------------


def _value(name: str) -> Any:
    """Make the type of a parameter's values, which are brought to their canonical form."""
    parameter = PARAMETERS[name]
    schema = {"description": parameter.description, **parameter.kind.schema}
    check = PlainValidator(partial(parse_parameter, name))
    # the name of the alias becomes that of a definition in the JSON schema
    return TypeAliasType(
        name, Annotated[Any, check, WithJsonSchema(schema | {"default": parameter.toml_default})]
    )


VALUES: Final[dict[str, Any]] = {name: _value(name) for name in PARAMETERS}

LIST: Final[Any] = list
HIDDEN: Final[Any] = SkipJsonSchema
"""Under other names, as mypy knows no types that are made at run time."""


def list_or_table(a_list: Any, a_table: Any, kind: Kind | None = None) -> Any:
    """Make the type of a key that is a list or a table; a value of a kind may be a table, too."""
    list_tag, table_tag = BRANCHES

    def is_table(value: object) -> bool:
        tables = kind.tables if kind else {}
        is_value = isinstance(value, dict) and bool(tables) and ("kind" in value or "" in tables)
        return isinstance(value, dict) and not is_value

    return Annotated[
        Annotated[a_list, Tag(list_tag)] | Annotated[a_table, Tag(table_tag)],
        Discriminator(lambda value: table_tag if is_table(value) else list_tag),
    ]


class ParameterTable(Table):
    """A table with a key for each parameter, which the subclasses add."""

    unknown_key = "unknown parameter {}"


def value_key(name: str) -> Any:
    """Make the optional key of a parameter with one value."""
    return VALUES[name], None


@with_keys(PARAMETERS, value_key)
class Parameters(ParameterTable):
    """A value for each of some parameters."""


At = Annotated[
    dict[str, Any],
    BeforeValidator(lambda table: table, json_schema_input_type=Parameters),
    key("a table {axis = value}"),
]
"""Values on axes; which axes there are, the file decides."""
