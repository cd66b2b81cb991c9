"""Texts with units in an experiment file become numbers, before anything else reads them.

Times and capacities are numbers in rounds from then on, so the length of a round must be the same
in all cells of a file that has such texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mc.experiment.messages import show, table_label
from mc.experiment.traffic_files import with_counts
from mc.experiment.validation import FAULTY, Checked
from mc.model import METRICS, PARAMETERS, as_number, units
from mc.model.settings import Settings

_NAMES: Final = (
    *("scale", "kind", "charged"),
    *("noise", "file", "column", "times", "timestamps"),
)
"""Keys of tables within values whose texts are names."""

ROUND: Final = "round"
"""The other form of `rounds_per_second`: how long a round is, as a time."""


NUMBERS_OF_METRICS: Final = {"ClaimTable": ("value", "margin"), "PrecisionTable": ("absolute",)}
"""By the model of a table its keys whose numbers are compared with a metric."""


def read_quantities(
    data: dict[str, Any], overrides: dict[str, Any], folder: Path
) -> Checked[list[str]]:
    """Replace the texts with units in a parsed file, and in what the command line sets.

    Parameters
    ----------
    data : dict
        The file. What has a fault becomes `FAULTY`.
    overrides : dict
        Parameters that the command line sets, in place of the file's.
    folder : Path
        Where the file is, and files of traffic that it names.

    Returns
    -------
    list of str
        Parameters that the axes give in units, and so do all texts about them.
    """
    fixed = data.get("fixed")
    tables = [fixed] if isinstance(fixed, dict) else []
    per_second = PARAMETERS["rounds_per_second"].default
    for where, table in (*(("[fixed]", table) for table in tables), ("--set", overrides)):
        if ROUND in table:
            yield from _read_round(where, table)
        given = table.get("rounds_per_second", per_second)
        if PARAMETERS["rounds_per_second"].kind.accepts(given):
            per_second = float(given)
    varying = [
        label
        for label, table in parameter_tables(data)
        if label != "[fixed]" and {"rounds_per_second", ROUND} & table.keys()
    ]
    in_units = []
    for label, table in (*parameter_tables(data), ("--set", overrides)):
        if ROUND in table:
            yield f"{label}: {ROUND} must be set in [fixed], for all cells"
            del table[ROUND]
        for name, value in table.items():
            if name not in PARAMETERS:
                continue
            kinds = PARAMETERS[name].kind.tables
            is_table = _has_table(kinds, value)
            has_text = _has_text(value) and bool(PARAMETERS[name].dimension or is_table)
            if has_text or is_table:
                if varying and (has_text or _has_times(kinds, value)):
                    cure = "write numbers of rounds, or keep one length of a round in [fixed]"
                    rule = f"a number where {varying[0]} sets rounds_per_second"
                    yield f"{label}: {name} must be {rule}, got {show(value)}; {cure}"
                    table[name] = FAULTY
                    continue
                try:
                    read = with_counts(value, folder, per_second) if name == "traffic" else value
                    table[name] = _number(name, read, per_second)
                except ValueError as error:
                    yield f"{label}: {error}"
                    table[name] = FAULTY
                plain = [x for x in value if not isinstance(x, dict)] if is_table else value
                if label in ("[grid]", "[design]") and _has_text(plain):
                    in_units.append(name)
    yield from _read_numbers_of_metrics(data, None if varying else per_second)
    return in_units


def _read_numbers_of_metrics(data: Mapping[str, Any], per_second: float | None) -> Checked[None]:
    """Replace texts with units by numbers in the unit of the metric that they are compared with."""
    tables = [
        (table_label("claim", number, table.get("text")), table, NUMBERS_OF_METRICS["ClaimTable"])
        for number, table in _listed(data, "claim")
    ]
    if isinstance(data.get("precision"), dict):
        tables.append(("[precision]", data["precision"], NUMBERS_OF_METRICS["PrecisionTable"]))
    for label, table, keys in tables:
        named = table.get("metric")
        names = named if isinstance(named, list) else [named]
        metrics = [METRICS[name] for name in names if isinstance(name, str) and name in METRICS]
        for key in (key for key in keys if metrics and _has_number_with_unit(table.get(key))):
            value = table[key]
            try:
                if len({metric.unit for metric in metrics}) > 1:
                    raise ValueError(
                        f"must be a number for metrics of several units, got {value!r}"
                    )
                entries = value if isinstance(value, list) else [value]
                numbers = [
                    metrics[0].number_of(entry, per_second) if isinstance(entry, str) else entry
                    for entry in entries
                ]
                table[key] = numbers if isinstance(value, list) else numbers[0]
            except ValueError as error:
                yield f"{label}: {key}: {error}"
                table[key] = FAULTY


def _read_round(where: str, table: dict[str, Any]) -> Checked[None]:
    """Put `rounds_per_second` in the place of the length of a round."""
    text = table.pop(ROUND)
    length = units.parse(text, "time") if isinstance(text, str) else None
    if "rounds_per_second" in table:
        yield f"{where}: {ROUND} and rounds_per_second say the same: keep one of them"
    elif length is None or length.value == 0:
        yield f'{where}: {ROUND} must be a time > 0 such as "10 ms", got {show(text)}'
        table["rounds_per_second"] = FAULTY
    else:
        table["rounds_per_second"] = units.whole_if_nearly(1 / length.value)


def parameter_tables(data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every table of the file that has parameters as keys, and what messages call it."""
    for key in ("fixed", "grid", "design"):
        if isinstance(data.get(key), dict):
            yield f"[{key}]", data[key]
    for key, name in (("scenario", "name"), ("policy", "name"), ("exclude", "")):
        for number, table in _listed(data, key):
            yield table_label(key, number, table.get(name)), table
    for key, name in (("claim", "text"), ("published", "")):
        for number, table in _listed(data, key):
            if isinstance(table.get("at"), dict):
                yield f"{table_label(key, number, table.get(name))}: at", table["at"]


def _listed(data: Mapping[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    tables = data.get(key)
    if isinstance(tables, list):
        yield from ((i, table) for i, table in enumerate(tables, 1) if isinstance(table, dict))


def _has_text(value: object) -> bool:
    if isinstance(value, dict):  # a range, bounds, or a budget
        return any(_has_text(entry) for key, entry in value.items() if key not in _NAMES)
    if isinstance(value, list):
        return any(map(_has_text, value))
    return isinstance(value, str) and value != "none"


def _has_number_with_unit(value: object) -> bool:
    """Whether a value, or one of a list, seems to be one; other texts are refused later."""
    if isinstance(value, list):
        return any(map(_has_number_with_unit, value))
    return isinstance(value, str) and units.begins_with_a_number(value)


def _has_table(tables: Mapping[str, type[Settings]], value: object) -> bool:
    """Whether a value is a table with a kind (or one that needs none), or one of a list is."""
    if isinstance(value, list):
        return any(_has_table(tables, entry) for entry in value)
    return (
        isinstance(value, dict)
        and bool(tables)
        and ("kind" in value or ("" in tables and "from" not in value))
    )


def _is_without_kind(tables: Mapping[str, type[Settings]], value: Mapping[str, Any]) -> bool:
    """Whether a table lacks the kind that says what its entries are, which is reported later."""
    entries = {entry for settings in tables.values() for entry in settings.declared()}
    return "kind" not in value and "" not in tables and bool(entries & value.keys())


def _has_times(tables: Mapping[str, type[Settings]], value: object) -> bool:
    """Whether there is a default in a table that is a time, or a file has times."""
    if isinstance(value, list):
        return any(_has_times(tables, entry) for entry in value)
    settings = tables.get(str(value.get("kind", ""))) if isinstance(value, dict) else None
    return (
        isinstance(value, dict)
        and settings is not None
        and any(
            (isinstance(parameter.default, str) and parameter.dimension and name not in value)
            or (name == "timestamps" and name in value)
            for name, parameter in settings.declared().items()
        )
    )


def _number(name: str, value: Any, per_second: float) -> Any:
    tables = PARAMETERS[name].kind.tables
    if isinstance(value, dict) and tables and _is_without_kind(tables, value):
        return {entry: _entry_number(name, entry, x, per_second) for entry, x in value.items()}
    if isinstance(value, dict) and not _has_table(tables, value):
        read = {
            key: entry if key == "scale" else _number(name, entry, per_second)
            for key, entry in value.items()
        }
        ends = [value.get(end) for end in ("from", "to")]
        are_read = all(isinstance(read.get(end), int | float) for end in ("from", "to"))
        if are_read and all(isinstance(end, str) for end in ends) and read["from"] >= read["to"]:
            raise ValueError(f"{name}: from must be < to, got {ends[0]} and {ends[1]}")
        return read
    if isinstance(value, list):
        return [_number(name, entry, per_second) for entry in value]
    return as_number(name, value, per_second)


def _entry_number(name: str, entry: str, value: Any, per_second: float) -> Any:
    """Read an entry that is given without the kind of its table: of all kinds it means the same."""
    if isinstance(value, list):
        return [_entry_number(name, entry, x, per_second) for x in value]
    kinds = [kind for kind, of in PARAMETERS[name].kind.tables.items() if entry in of.declared()]
    if not kinds or not isinstance(value, str):
        return value
    return as_number(name, {"kind": kinds[0], entry: value}, per_second)[entry]
