"""What summary, comparisons and claims have in common: columns of estimates and of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import Column
from mc.statistics import intervals

OF_SHARE: Final = f"Wilson; Clopper-Pearson where fewer than {intervals.MIN_EITHER} hold or fail"


def interval_columns(name: str, unit: str, of: str, method: str) -> dict[str, Column]:
    """The two ends of a 95 % interval."""
    return {
        f"{name}_{suffix}": Column(
            "float", unit, f"{which} end of the 95 % interval of the {of}: {method}"
        )
        for suffix, which in (("low", "lower"), ("high", "upper"))
    }


def mean_columns(
    n: NDArray[np.int64],
    mean: NDArray[np.float64],
    variance: NDArray[np.float64],
    has_interval: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:
    """The columns of a mean and its error, a value for each cell; NaN where undefined.

    There is an interval only where `has_interval`: see `intervals.mean_has_interval`.

    Notes
    -----
    Student's t interval with n - 1 degrees of freedom, for a mean over independent replications:
    Law, *Simulation Modeling and Analysis*, section 4.5. `mcse` is the Monte Carlo standard error
    sd / sqrt(n): Morris, White and Crowther (2019), table 6.
    """
    sd = np.sqrt(variance)
    mcse = sd / np.sqrt(np.maximum(n, 1))
    half_width = np.where(has_interval, intervals.t_half_width(n, mcse), math.nan)
    ends = {"ci_low": mean - half_width, "ci_high": mean + half_width}
    return {"n": n, "mean": mean, "sd": sd, "mcse": mcse} | ends


def as_frame(
    schema: pl.Schema,
    keys: Mapping[str, NDArray[Any]],
    columns_of: Mapping[str, Mapping[str, NDArray[Any]]],
) -> pl.DataFrame:
    """Build a table with a line for each (cell, metric).

    Parameters
    ----------
    schema : polars.Schema
        Of the table.
    keys : mapping of str to ndarray, each of shape (K,)
        Columns that do not depend on the metric: the number of the cell.
    columns_of : mapping of str to mapping
        By metric its columns, each of shape (K,); NaN for NULL.

    Returns
    -------
    polars.DataFrame
        Cell after cell, the metrics of each in the order of `columns_of`.
    """
    repeated = {name: np.repeat(key, len(columns_of)) for name, key in keys.items()}
    values = {}
    for name in next(iter(columns_of.values())):
        together = np.stack([columns[name] for columns in columns_of.values()], axis=1).ravel()
        is_text = together.dtype == object
        values[name] = pl.Series(together.tolist(), dtype=pl.String) if is_text else together
    n_cells = len(next(iter(keys.values())))
    values["metric"] = pl.Series(list(columns_of) * n_cells, dtype=pl.String)
    frame = pl.DataFrame(repeated | values, nan_to_null=True)
    return frame.select(schema.names()).cast(schema)
