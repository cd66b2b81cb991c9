"""A JSON schema of the experiment file, for editors that complete and check TOML."""

from __future__ import annotations

import math
from typing import Any, Final

from mc.experiment.tables import (
    Bounds,
    ClaimKeys,
    DesignKeys,
    File,
    Named,
    PrecisionKeys,
    PublishedKeys,
    Range,
    Span,
    Table,
)
from mc.model import METRICS, PARAMETERS, Parameter

Schema = dict[str, Any]

NUMBERS: Final = {name: p for name, p in PARAMETERS.items() if p.kind != "tries"}
"""Parameters that a range may go through."""


def json_schema() -> Schema:
    """Make the schema of an experiment file, in the draft 7 that editors of TOML know.

    It says which keys and parameters there are, of which type, in which range, and what they
    mean. What holds between tables (names that must exist, axes that exclude each other) it cannot
    say: `read` does.

    Returns
    -------
    dict
        To be written as JSON.
    """
    parameters = _closed({name: _reference(name) for name in PARAMETERS})
    named = _table(Named, parameters["properties"])
    file = _table(
        File,
        {},
        precision=_table(PrecisionKeys, {}, metric=_one_or_more(_metric()))
        | {"anyOf": [{"required": ["relative"]}, {"required": ["absolute"]}]},
        fixed=parameters,
        scenario=_list_of(named),
        policy=_list_of(named),
        grid=_closed({name: _axis(name) for name in PARAMETERS}),
        design=_design(),
        exclude=_list_of(_exclude()),
        claim=_list_of(_table(ClaimKeys, {}, metric=_one_or_more(_metric()), at=parameters)),
        published=_list_of(_published(parameters)),
    )
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "retrystorm experiment",
        **file,
        "definitions": {name: _value(parameter) for name, parameter in PARAMETERS.items()},
    }


# ---- Parameters ------------------------------------------------------------------------------


def _value(parameter: Parameter) -> Schema:
    """One value of a parameter."""
    unit = f" ({parameter.unit})" if parameter.unit else ""
    schema: Schema = {"description": f"{parameter.meaning}{unit}: {parameter.rule}"}
    match parameter.kind:
        case "tries":
            several = _list_of(_number(parameter))
            schema |= {"anyOf": [several, _number(parameter)], "default": list(parameter.default)}
        case "budget":
            schema |= {"anyOf": [{"const": "none"}, _number(parameter)], "default": "none"}
        case _:
            schema |= _number(parameter) | {"default": parameter.default}
    return schema


def _number(parameter: Parameter) -> Schema:
    whole = parameter.kind in ("int", "tries")
    schema: Schema = {"type": "integer" if whole else "number"}
    schema["exclusiveMinimum" if parameter.low_open else "minimum"] = parameter.low
    if parameter.high < math.inf:
        schema["maximum"] = parameter.high
    return schema


def _axis(name: str) -> Schema:
    """A parameter in [grid]: a list of values or a range."""
    values = _list_of(_reference(name)) | {"uniqueItems": True}
    if name not in NUMBERS:
        return values
    return {"anyOf": [values, _between(Range, name)]}


def _between(model: type[Span], name: str) -> Schema:
    """Two ends that are values of a parameter."""
    ends = {end: _number(NUMBERS[name]) for end in ("from", "to")}
    return _table(model, {}, **ends)


def _design() -> Schema:
    schema = _table(DesignKeys, {name: _between(Span, name) for name in NUMBERS})
    # without a seed of its own it has the file's
    return schema | {"required": [key for key in schema["required"] if key != "seed"]}


def _exclude() -> Schema:
    conditions: Schema = {axis: _one_or_more({"type": "string"}) for axis in ("scenario", "policy")}
    for name in PARAMETERS:
        conditions[name] = _one_or_more(_reference(name))
        if name in NUMBERS:
            conditions[name]["anyOf"].append(_table(Bounds, {}) | {"minProperties": 1})
    return _closed(conditions) | {"minProperties": 1}


def _published(parameters: Schema) -> Schema:
    figures = {
        name: {"type": "number", "description": metric.meaning} for name, metric in METRICS.items()
    }
    return _table(PublishedKeys, figures, at=parameters)


def _metric() -> Schema:
    return {"enum": list(METRICS)}


# ---- Tables ----------------------------------------------------------------------------------


def _table(model: type[Table], further: Schema, **replaced: Schema) -> Schema:
    """A table: keys of a model, some of them by a schema that says more, and further keys."""
    schema = model.model_json_schema()
    keys = {key: _plain(entry) for key, entry in schema["properties"].items()}
    for key, entry in replaced.items():
        keys[key] = {"description": keys[key]["description"]} | entry
    required = {"required": schema["required"]} if "required" in schema else {}
    return _closed(keys | further) | required


def _plain(entry: Schema) -> Schema:
    """A key as pydantic tells of it, without what TOML does not know: null."""
    entry = {key: value for key, value in entry.items() if key != "title"}
    if entry.get("default", ...) in (None, {}, []):
        del entry["default"]
    kinds = [kind for kind in entry.pop("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {**kinds[0], **entry}
    return entry | ({"anyOf": kinds} if kinds else {})


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _list_of(entry: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": entry}


def _one_or_more(entry: Schema) -> Schema:
    return {"anyOf": [entry, _list_of(entry)]}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}
