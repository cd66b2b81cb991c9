"""Which cells, and which metric, a text means."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from mc.experiment.messages import SHOWN, hint, quote, same_values, tries_text
from mc.model import METRICS, Metric, has_entries
from mc.model.digits import axis_text, is_axis_value, is_entry_value, value_text
from mc.store import FolderError, Results, axis_names, coordinate_text


class QuestionError(FolderError):
    """A question that cannot be answered as it was put; the message says what would be right."""


def coordinates(results: Results) -> list[str]:
    """By what the cells of a folder differ: scenario, policy, and the axes of grid and design."""
    return ["scenario", "policy", *axis_names(results.manifest)]


MAX_POLICIES: Final = 4
"""So many are named of cells that are equal."""


def places(
    groups: Sequence[Sequence[Mapping[str, Any]]], names: Sequence[str], source: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Tell groups of equal cells apart by the coordinates in which the cells of each agree.

    Parameters
    ----------
    groups : sequence of sequences of mapping
        Lines of the table of cells.
    names : sequence of str
        Coordinates.
    source : mapping
        The experiment, which says how values are written.

    Returns
    -------
    list of dict
        For each group texts by coordinate; those of its first cell where what its cells have in
        common is nothing, or is not its own. Of policies, by which people know cells, all are
        named, or the first `MAX_POLICIES`.
    """

    def policies(group: Sequence[Mapping[str, Any]]) -> str:
        known = [*dict.fromkeys(str(cell["policy"]) for cell in group)]
        n_more = len(known) - MAX_POLICIES
        return " = ".join([*known[:MAX_POLICIES], *([f"{n_more} more"] if n_more > 0 else [])])

    def place(group: Sequence[Mapping[str, Any]], some: Sequence[str] = names) -> dict[str, str]:
        same = [name for name in some if len({str(cell[name]) for cell in group}) == 1]
        texts = {name: coordinate_text(source, name, group[0][name]) for name in same}
        if "policy" in some:
            texts["policy"] = policies(group)
        return {name: texts[name] for name in some if name in texts}

    others = [name for name in names if name != "policy"]
    short = [place(group) for group in groups]
    n_alike = Counter(tuple(one.items()) for one in short)
    return [
        one
        if (one or len(groups) == 1) and n_alike[tuple(one.items())] == 1
        else place(group[:1], others) | ({"policy": policies(group)} if "policy" in names else {})
        for one, group in zip(short, groups, strict=True)
    ]


Wanted = str | int
"""What describes cells: a text, or the number of a cell."""


def several(given: Wanted | Sequence[Any]) -> Sequence[Any]:
    """What is given alone, as a sequence of one: a text is no sequence of letters."""
    return [given] if isinstance(given, str | int) else given


def select(results: Results, wanted: Wanted) -> tuple[pl.DataFrame, set[str]]:
    """Find the cells that a text describes, or a number.

    Parameters
    ----------
    results : Results
        Of a finished run.
    wanted : str or int
        The number of a cell, the name of a policy, or conditions ``name=value`` on scenario,
        policy, parameters and entries of their tables, several of them separated by commas.

    Returns
    -------
    cells : polars.DataFrame
        Their lines in the table of cells.
    names : set of str
        The coordinates that the text fixes; all of them for the number of a cell.

    Raises
    ------
    QuestionError
        Nothing is described by it.
    """
    cells = results.cells
    if not isinstance(wanted, str):
        wanted = str(operator.index(wanted))
    elif wanted in cells["policy"].to_list():
        return cells.filter(pl.col("policy") == wanted), {"policy"}
    if wanted.isdecimal():
        numbered = cells.filter(pl.col("cell") == int(wanted))
        if numbered.height:
            return numbered, set(coordinates(results))
        raise QuestionError(f"cell {wanted} does not exist; there are 0 .. {cells.height - 1}")
    if "=" not in wanted:
        known: list[str] = cells["policy"].unique(maintain_order=True).to_list()
        raise QuestionError(f"policy {quote(wanted)} does not exist{hint(wanted, known)}")
    names = set()
    # a name is a word, a value may hold anything: commas in it, or within its
    # parentheses, do not begin a new condition
    source = results.manifest["experiment"]
    for condition in re.split(r",\s*(?=[\w.]+\s*=)(?![^(]*\))", wanted):
        full_name, _, value = (part.strip() for part in condition.partition("="))
        name, _, entry = full_name.partition(".")
        if name not in cells.columns or (entry and not has_entries(name)):
            known = [*coordinates(results), "cell"]
            raise QuestionError(f"{quote(full_name)} is not a coordinate{hint(full_name, known)}")
        same = _has_entry if entry else _equals
        left = cells.filter(same(cells[name], value, source, *filter(None, [entry])))
        if left.height == 0:
            values = list(dict.fromkeys(_written(results, name, v) for v in cells[name].to_list()))
            between = ", " if any(" " in value for value in values) else " "
            more = " ..." if len(values) > SHOWN else ""
            raise QuestionError(
                f"no cell has {full_name} = {value}; "
                f"{name} is one of {between.join(values[:SHOWN])}{more}"
            )
        cells = left
        if not entry or left[name].n_unique() == 1:
            names.add(name)
    return cells, names


def _written(results: Results, name: str, value: Any) -> str:
    if name in ("scenario", "policy"):
        return value_text(value)
    return axis_text(results.manifest["experiment"], name, value)


def _equals(column: pl.Series, text: str, source: Mapping[str, Any]) -> pl.Series:
    """Where a column has the value that a text means."""
    if text == "none" and column.null_count():
        return column.is_null()
    in_units = [
        value
        for value in column.unique().to_list()
        if value is not None and is_axis_value(source, column.name, value, text)
    ]
    if in_units:
        return column.is_in(in_units).fill_null(False)
    if column.dtype == pl.String:
        return (column == (tries_text(text) if column.name == "tries" else text)).fill_null(False)
    try:
        number = float(text)
    except ValueError:
        return pl.Series([False] * len(column))
    # a value made by a range has up to 17 digits, of which tables show six
    return column.is_in(same_values(number, column.drop_nulls().unique().to_list())).fill_null(
        False
    )


def _has_entry(column: pl.Series, text: str, source: Mapping[str, Any], entry: str) -> pl.Series:
    """Where the tables of a column have an entry with the value that a text means."""
    values = column.to_list()
    meant = [is_entry_value(source, column.name, value, entry, text) for value in values]
    return pl.Series(meant, dtype=pl.Boolean)


def where_all(results: Results, conditions: Wanted | Sequence[Wanted]) -> pl.DataFrame:
    """The cells that satisfy all of some conditions."""
    cells = results.cells
    for condition in several(conditions):
        chosen, _ = select(results, condition)
        cells = cells.filter(pl.col("cell").is_in(chosen["cell"].implode()))
    if cells.height == 0:
        raise QuestionError(f"no cell satisfies {' and '.join(map(str, several(conditions)))}")
    return cells


def metric_named(name: str, results: Results) -> Metric:
    """Give the metric of a name, which must be one that there is in these results."""
    if name not in METRICS:
        raise QuestionError(f"metric {quote(name)} does not exist{hint(name, METRICS)}")
    metric = METRICS[name]
    if metric.counter not in results.manifest["columns"]["replications"]:
        raise QuestionError(f"metric {quote(name)} is of no cell here: {metric.meaning}")
    return metric
