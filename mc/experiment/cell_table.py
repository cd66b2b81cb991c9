"""The table of the cells: a row for each, with its names, parameters and what follows from them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mc.experiment.experiment import Experiment, Point
from mc.model import PARAMETERS, Cell, Column, schema_of
from mc.model.columns import BUDGET_TEXT, MEAN_REQUESTS, MEAN_WINDOW_REQUESTS
from mc.model.traffic import Counts

if TYPE_CHECKING:
    import polars as pl

COUNTS: Final = "traffic_counts"
FIXED: Final = "fixed"
PRECISION: Final = "precision"
MAX: Final = "max"


@dataclass(frozen=True)
class Stop:
    """Where a cell has stopped.

    Attributes
    ----------
    n : int
        Its replications.
    by : {"fixed", "precision", "max"}
        As many were asked for; it is as precise as asked; it is not, but there may be no more.
    """

    n: int
    by: str


CELL_COLUMNS: Final[dict[str, Column]] = (
    {
        "cell": Column("int32", "", "number of the cell"),
        "scenario": Column("text", "", "name of the scenario"),
        "policy": Column("text", "", "name of the policy"),
    }
    | {
        name: Column(parameter.kind.column, parameter.unit, parameter.meaning)
        for name, parameter in PARAMETERS.items()
    }
    | {
        BUDGET_TEXT: Column("text", "", "the budget as a text, none where there is none"),
        "max_attempts": Column(
            "int32", "attempts", "most attempts of one request: the product of tries"
        ),
        "longest_wait": Column(
            "int64",
            "rounds",
            "most rounds between an arrival and its last attempt, if no call waits",
        ),
        MEAN_REQUESTS: Column("float", "requests", "mean of a run; NULL with workers"),
        MEAN_WINDOW_REQUESTS: Column(
            "float",
            "requests",
            "requests that arrive in the fault window on average; NULL with workers",
        ),
        COUNTS: Column("text", "", "counts of recorded traffic, as 64-bit floats, zlib and base64"),
        "baseline": Column("int32", "", "number of the cell it is compared with"),
        "identity": Column("text", "", "hash of the parameters"),
        "replications": Column(
            "int64", "replications", "how many the cell has; NULL until that is known"
        ),
        "stopped_by": Column(
            "text",
            "",
            f"why there are no more: {FIXED} (as many were asked for), {PRECISION} (it is known "
            f"as precisely as asked) or {MAX} (it is not, but there may be no more)",
        ),
    }
)
"""The columns of `cell_table`, in their order."""


def cell_table(experiment: Experiment, stops: Mapping[int, Stop] | None = None) -> pl.DataFrame:
    """One row per cell, as stored in ``cells.parquet``.

    Parameters
    ----------
    experiment : Experiment
    stops : mapping of int to Stop, optional
        Of the cells that have stopped. Not needed where the number of replications is fixed.

    Returns
    -------
    polars.DataFrame
        `cell`, `scenario`, `policy`, every parameter in its unit (`tries` as the text
        ``3x3x3``, a value for each layer as the text ``[2.0, 4.0]``, no budget as null; a column
        with such a text is text for all cells), `budget_text`, `max_attempts`, `longest_wait`
        (rounds) and `baseline` (a `cell`), the cell's `identity`, its number of `replications` and
        what it was `stopped_by` (null until it has stopped). In the order of the file.
    """
    points = experiment.points
    if experiment.precision is None:
        stops = {point.cell: Stop(experiment.replications, FIXED) for point in points}
    return with_stops(_without_stops(points, experiment.baselines), stops or {})


def with_stops(table: pl.DataFrame, stops: Mapping[int, Stop]) -> pl.DataFrame:
    """A table of cells with what is known of where they have stopped."""
    import polars as pl

    stopped = [stops.get(number) for number in table["cell"].to_list()]
    schema = schema_of(CELL_COLUMNS)
    return table.with_columns(
        pl.Series(name, values, schema[name])
        for name, values in (
            ("replications", [stop and stop.n for stop in stopped]),
            ("stopped_by", [stop and stop.by for stop in stopped]),
        )
    )


def _without_stops(points: Sequence[Point], baselines: Sequence[int]) -> pl.DataFrame:
    """The table of some cells, as long as nobody knows where they stop."""
    import polars as pl

    cells = [point.parameters for point in points]
    columns: dict[str, Any] = {
        "cell": [point.cell for point in points],
        "scenario": [point.scenario for point in points],
        "policy": [point.policy for point in points],
    }
    schema = schema_of(CELL_COLUMNS)
    for name, parameter in PARAMETERS.items():
        values = list(map(operator.attrgetter(name), cells))
        n_repeated = 1
        if values.count(values[0]) == len(values):  # as most are
            values, n_repeated = values[:1], len(values)
        values = [parameter.kind.to_column(value) for value in values]
        types = set(map(type, values))
        if str in types:
            schema[name] = pl.String()
            values = [value if value is None else str(value) for value in values]
        elif float in types:
            schema[name] = pl.Float64()
        series = pl.Series(name, values, schema[name])
        columns[name] = series.extend_constant(series[0], n_repeated - 1)
    columns |= {
        BUDGET_TEXT: _budget_texts(columns["budget"]),
        "max_attempts": [cell.max_attempts for cell in cells],
        "longest_wait": [cell.longest_wait for cell in cells],
        MEAN_REQUESTS: [cell.mean_requests for cell in cells],
        MEAN_WINDOW_REQUESTS: [cell.mean_window_requests for cell in cells],
        COUNTS: [_packed(cell) for cell in cells],
        "baseline": baselines,
        "identity": [cell.identity for cell in cells],
    }
    return pl.DataFrame(columns, {name: schema[name] for name in columns})


def _packed(cell: Cell) -> str | None:
    """The counts of a cell's traffic: with them a results folder needs no other file."""
    counts = cell.traffic and cell.traffic.counts
    return counts.packed if counts else None


def counts_of(table: pl.DataFrame) -> dict[str, Counts]:
    """The counts of recorded traffic in a table of cells, by their hash."""
    packed = table[COUNTS].drop_nulls().unique() if COUNTS in table.columns else ()
    return {counts.sha256: counts for counts in map(Counts.unpacked, packed)}


def cells_of(table: pl.DataFrame) -> dict[int, Cell]:
    """Make the cells again from the table of them: the way back from `cell_table`.

    Parameters
    ----------
    table : polars.DataFrame
        As `cell_table` gives it.

    Returns
    -------
    dict of int to Cell
        Each by its number.

    Raises
    ------
    ValueError
        A row is not that of a cell.
    """
    cells = {}
    counts = [COUNTS] if COUNTS in table.columns else []
    for row in completed(table).select("cell", *PARAMETERS, *counts).iter_rows(named=True):
        number, packed = row.pop("cell"), row.pop(COUNTS, None)
        values = {name: PARAMETERS[name].kind.from_column(value) for name, value in row.items()}
        if packed is not None:
            values["traffic"] = replace(values["traffic"], counts=Counts.unpacked(packed))
        cells[number] = Cell(**values)
    return cells


def _budget_texts(budgets: Iterable[Any]) -> list[str]:
    return ["none" if one is None else str(one).removesuffix(".0") for one in budgets]


def completed(table: pl.DataFrame) -> pl.DataFrame:
    """Add the parameters that a table of cells is older than, and the text of the budget.

    Its cells have their defaults, or, where it knows no `chain`, flattened layers.
    """
    import polars as pl

    schema = schema_of(CELL_COLUMNS)
    values = {name: p.kind.to_column(p.default) for name, p in PARAMETERS.items()}
    values["chain"] = "flattened"
    table = table.with_columns(
        pl.lit(value, schema[name]).alias(name)
        for name, value in values.items()
        if name not in table.columns
    )
    if BUDGET_TEXT in table.columns:
        return table
    return table.with_columns(pl.Series(BUDGET_TEXT, _budget_texts(table["budget"]), pl.String()))
