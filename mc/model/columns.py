"""One column of a table of the results folder: type, unit and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import polars as pl

ColumnType = Literal["int32", "int64", "float", "text", "truth"]
"""A float has 64 bits."""


OF_METRIC: Final = "of the metric"
"""The unit of a column whose lines are about several metrics."""


BUDGET_TEXT: Final = "budget_text"
"""A column wherever there is one of the budget: where NULL is a value, pandas' groupby leaves out
its lines."""

MEAN_REQUESTS: Final = "mean_requests"
MEAN_WINDOW_REQUESTS: Final = "mean_window_requests"
"""Columns of the table of cells."""


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes
    ----------
    type : ColumnType
    unit, meaning : str
        As the manifest gives them; the unit of a pure number and of a text is empty.
    """

    type: ColumnType
    unit: str
    meaning: str


About = Mapping[str, Mapping[str, str]]
"""Unit and meaning of each column, as a manifest and the metadata of a file have them."""


def about(columns: Mapping[str, Any]) -> About:
    """Say unit and meaning of columns, or of metrics."""
    return {name: {"unit": one.unit, "meaning": one.meaning} for name, one in columns.items()}


def schema_of(columns: Mapping[str, Column]) -> pl.Schema:
    """The schema of a table with these columns."""
    import polars as pl

    types = {
        "int32": pl.Int32(),
        "int64": pl.Int64(),
        "float": pl.Float64(),
        "text": pl.String(),
        "truth": pl.Boolean(),
    }
    return pl.Schema({name: types[column.type] for name, column in columns.items()})
