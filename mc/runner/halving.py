"""`sensitivity`: the same system with rounds half as long, for a round is no mere unit of time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import experiment as experiments
from mc import statistics
from mc.experiment import Experiment
from mc.model import METRICS, PARAMETERS, Cell, Parameter, units
from mc.model.digits import axis_text
from mc.model.settings import Settings
from mc.runner.simulation import simulate
from mc.statistics import intervals

MOST_REPLICATIONS: Final = 1000
"""Of each cell, unless more are asked for: it is the size of an effect that is asked about."""

FACTORS: Final = {"rounds": 2, "1/s": 2, "calls/round": 0.5}
"""By what a number in this unit is multiplied where rounds are half as long."""

SHOWN: Final = (
    *("calls", "dropped", "failed_share", "times_usual", "wait_mean", "drain", "recovery"),
    "recovered",
)
"""Metrics that mean the same with any rounds; the most calls in one round do not."""


def with_half_rounds(cell: Cell) -> Cell:
    """Describe the same system with rounds half as long: every time and capacity is converted."""
    return Cell(
        **{name: _converted(value, PARAMETERS[name]) for name, value in cell.parameters.items()}
    )


def _converted(value: Any, parameter: Parameter) -> Any:
    unit, columns = parameter.unit, parameter.kind.rows.values()
    if columns and value is not None:
        return tuple(tuple(map(_converted, row, columns)) for row in value)
    if isinstance(value, tuple):
        return tuple(_converted(entry, parameter) for entry in value)
    if isinstance(value, Settings):
        declared = value.declared()
        entries = {name: _converted(x, declared[name]) for name, x in value.entries.items()}
        return dataclasses.replace(value, **entries)
    if unit not in FACTORS or value is None:
        return value
    product = value * FACTORS[unit]
    return int(product) if product == int(product) else product


def sensitivity(
    file: str | Path,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> pl.DataFrame:
    """Run an experiment file as it is, and with rounds half as long; nothing is written.

    What arrives within a round meets its capacity together, so a longer round smooths the traffic:
    the length of a round is a part of the model.

    Parameters
    ----------
    file
        See `mc.run`.
    replications : int, optional
        Of each cell; default those of the file, but at most `MOST_REPLICATIONS`.
    seed, jobs, overrides
        See `mc.run`. The rounds half as long have the next seed.
    say : callable, optional
        Called with what else changes with the rounds.

    Returns
    -------
    polars.DataFrame
        For each cell and each of `SHOWN` that it has: `cell`, `scenario`, `policy`, the axes;
        `metric` and `unit` (seconds in place of rounds); `mean` as the file has it, and
        `half_rounds`; their `difference` with its 95 % interval `low`, `high` (NULL where one of
        the means has none), `change` relative to the mean, and `n`, the replications of the
        smaller sample in which it is defined; `share_defined` and `half_rounds_share_defined`, in
        which share of the replications there is such a number: means are of these.

    Raises
    ------
    ExperimentError
        Everything that is wrong with the file.
    ValueError
        A cell cannot be simulated with rounds half as long: it would have too many.

    Notes
    -----
    The two samples have seeds of their own and are independent: with one seed the first half of
    both would share its draws. Welch's interval for unequal variances (Law, *Simulation Modeling
    and Analysis*, section 10.2.2).
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    n = replications or min(experiment.replications, MOST_REPLICATIONS)
    halved = dataclasses.replace(
        experiment,
        points=tuple(
            dataclasses.replace(point, parameters=with_half_rounds(point.parameters))
            for point in experiment.points
        ),
    )
    low, high = experiments.SEEDS[experiment.generator]
    halved = dataclasses.replace(
        halved, seed=experiment.seed + 1 if experiment.seed < high else low
    )
    if say is not None and (uneven := _uneven_capacities(halved)):
        least, most = math.floor(min(uneven)), math.ceil(min(uneven))
        say(
            f"with rounds half as long a capacity is {min(uneven):g} calls a round: rounds serve "
            f"{least} or {most}, and a part of the difference is due to that"
        )
    as_given, half = (_summary(one, n, jobs) for one in (experiment, halved))
    keys = ["cell", "metric", "unit"]
    both = as_given.join(half, on=keys, suffix="_half", maintain_order="left")
    both = both.filter((pl.col("n") > 0) | (pl.col("n_half") > 0))
    difference = pl.col("mean_half") - pl.col("mean")
    places = pl.DataFrame(
        [
            {"cell": point.cell, "scenario": point.scenario, "policy": point.policy}
            | {
                name: axis_text(experiment.source, name, PARAMETERS[name].kind.to_column(value))
                for name, value in point.at.items()
            }
            for point in experiment.points
        ],
        schema_overrides={"cell": pl.Int32},
    )
    half_width = pl.Series(_welch(both))
    return places.join(both, on="cell", maintain_order="right").select(
        *places.columns,
        "metric",
        "unit",
        "mean",
        pl.col("mean_half").alias("half_rounds"),
        difference.alias("difference"),
        (difference - half_width).fill_nan(None).alias("low"),
        (difference + half_width).fill_nan(None).alias("high"),
        pl.when(pl.col("mean") != 0).then(difference / pl.col("mean")).alias("change"),
        pl.min_horizontal("n", "n_half").alias("n"),
        "share_defined",
        pl.col("share_defined_half").alias("half_rounds_share_defined"),
    )


def _uneven_capacities(experiment: Experiment) -> set[float]:
    """Capacities that are no whole number of calls a round."""
    cells = [point.parameters for point in experiment.points]
    faults = [fault for cell in cells for fault in cell.all_faults]
    every = {cell.capacity for cell in cells} | {fault.capacity for fault in faults}
    return {capacity for capacity in every if capacity % 1}


def _summary(experiment: Experiment, n: int, jobs: int | None) -> pl.DataFrame:
    """Mean and error of each metric of `SHOWN` in each cell, in seconds in place of rounds."""
    cells = [point.parameters for point in experiment.points]
    rows = simulate(cells, n, experiment.seed, experiment.generator, jobs=jobs)
    summary = statistics.summarise(rows, experiments.cell_table(experiment))
    per_second = {point.cell: point.parameters.rounds_per_second for point in experiment.points}
    told = [
        units.for_reader(METRICS[metric].unit, per_second[cell])
        for cell, metric in summary.select("cell", "metric").iter_rows()
    ]
    factor = pl.Series([factor for _, factor in told])
    has_interval = pl.col("ci_low").is_not_null()
    return (
        summary.with_columns(
            unit=pl.Series([unit for unit, _ in told]),
            mean=pl.col("mean") * factor,
            mcse=pl.when(has_interval).then(pl.col("mcse") * factor),
        )
        .filter(pl.col("metric").is_in(SHOWN))
        .select("cell", "metric", "unit", "n", "mean", "mcse", "share_defined")
    )


def _welch(both: pl.DataFrame) -> NDArray[np.float64]:
    """Half the lengths of the intervals of differences; NaN where a mean has no interval."""
    a, b = (both[name].fill_null(np.nan).to_numpy() ** 2 for name in ("mcse", "mcse_half"))
    n, m = (both[name].to_numpy() for name in ("n", "n_half"))
    below = a**2 / np.maximum(n - 1, 1) + b**2 / np.maximum(m - 1, 1)
    df = np.divide((a + b) ** 2, below, out=np.full(len(a), np.nan), where=below > 0)
    quantiles = [intervals.t_quantile_of(int(x)) if np.isfinite(x) else np.nan for x in df]
    return np.asarray(np.array(quantiles) * np.sqrt(a + b), np.float64)
