"""`sensitivity`: the same system with shorter rounds, for a round is no mere unit of time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import experiment as experiments
from mc import statistics
from mc.experiment import Claim, Experiment
from mc.experiment.messages import first_of
from mc.experiment.remarks import ties
from mc.model import METRICS, PARAMETERS, Cell, Parameter, units
from mc.model.digits import axis_text, counted
from mc.model.settings import Settings
from mc.model.thresholds import OPEN
from mc.runner.simulation import simulate
from mc.statistics import intervals
from mc.store import place_name

MOST_REPLICATIONS: Final = 1000
"""Of each cell, unless more are asked for: it is the size of an effect that is asked about."""

POWERS: Final = {"rounds": 1, "1/s": 1, "calls/round": -1}
"""The power of `times` by which a number in this unit is multiplied in rounds as much shorter."""

SHOWN: Final = (
    *("calls", "dropped", "failed_share", "times_usual", "peak", "wait_mean", "drain", "recovery"),
    "recovered",
)
"""Metrics that mean the same with any rounds; `peak`, in times the capacity of a round, does not,
and its change says how much of it is the round's."""

TIMES: Final = (2, 10)
"""How much shorter rounds are: half as long, or a tenth where rounding decides in half, too."""

MOST_CHANGE: Final = 0.1
"""A mean that changes by a larger part of itself is named."""

Z: Final = 1.96
"""So many standard errors away is what lies outside a 95 % interval."""


class Sensitivity(NamedTuple):
    """What an experiment says with rounds as given, and with shorter rounds.

    Attributes
    ----------
    means : polars.DataFrame
        For each cell and each of `SHOWN` that it has: `cell`, `scenario`, `policy`, the axes as a
        reader is given them; `metric` and `unit` (seconds in place of rounds); `mean` as the file
        has it, and with `shorter_rounds`; their `difference` with its 95 % interval `low`, `high`
        (NULL where one of the means has none), `change` relative to the mean, and `n`, the
        replications of the smaller sample in which it is defined; `share_defined` and
        `shorter_rounds_share_defined`, in which share of the replications there is such a number:
        means are of these; `mcse` and `mcse_shorter`, the standard errors of both means.
    claims : polars.DataFrame
        For each claim its `text`, and its `share` and `verdict` with rounds as given and with
        shorter rounds (`share_shorter`, `verdict_shorter`).
    conclusion : str
        Whether runs recover, the order of the policies, the best and the verdicts are the same
        with both.
    times : int
        How much shorter the rounds were, one of `TIMES`.
    """

    means: pl.DataFrame
    claims: pl.DataFrame
    conclusion: str
    times: int


LENGTHS: Final = {2: "half as long", 10: "a tenth as long"}
"""How a sentence names each of `TIMES`."""


def with_shorter_rounds(cell: Cell, times: int) -> Cell:
    """Describe the same system with rounds so many times shorter, all its values converted."""
    return Cell(
        **{
            name: _converted(value, PARAMETERS[name], times)
            for name, value in cell.parameters.items()
        }
    )


def _converted(value: Any, parameter: Parameter, times: int) -> Any:
    unit, columns = parameter.unit, parameter.kind.rows.values()
    if columns and value is not None:
        return tuple(
            tuple(_converted(x, column, times) for x, column in zip(row, columns, strict=True))
            for row in value
        )
    if isinstance(value, tuple):
        return tuple(_converted(entry, parameter, times) for entry in value)
    if isinstance(value, Settings):
        declared = value.declared()
        entries = {name: _converted(x, declared[name], times) for name, x in value.entries.items()}
        return dataclasses.replace(value, **entries)
    if unit not in POWERS or value is None:
        return value
    product = value * times if POWERS[unit] > 0 else value / times
    return int(product) if product == int(product) else product


def _shortened(experiment: Experiment) -> tuple[Experiment, int]:
    """The experiment with shorter rounds and another seed, and how much shorter they are."""
    times, longer = TIMES
    cells = [with_shorter_rounds(point.parameters, times) for point in experiment.points]
    if any(next(ties(cell), None) for cell in cells):
        try:
            cells = [with_shorter_rounds(point.parameters, longer) for point in experiment.points]
            times = longer
        except ValueError:  # too many rounds
            pass
    low, high = experiments.SEEDS[experiment.generator]
    seed = experiment.seed + 1 if experiment.seed < high else low
    points = tuple(
        dataclasses.replace(point, parameters=cell)
        for point, cell in zip(experiment.points, cells, strict=True)
    )
    claims = tuple(_with_value(claim, times) for claim in experiment.claims)
    return dataclasses.replace(experiment, points=points, claims=claims, seed=seed), times


def _with_value(claim: Claim, times: int) -> Claim:
    """Convert what a claim compares its first metric with."""
    factor = float(times) ** POWERS.get(METRICS[claim.metrics[0]].unit, 0)
    value, margin = claim.value, claim.margin
    if isinstance(value, tuple):
        value = (value[0] * factor, value[1] * factor)
    elif value is not None:
        value *= factor
    return dataclasses.replace(
        claim, value=value, margin=None if margin is None else margin * factor
    )


def sensitivity(
    file: str | Path,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Sensitivity:
    """Run an experiment file as it is, and with rounds half as long or less; nothing is written.

    They are a tenth as long where half rounds still decide which of two durations is longer, see
    `mc.experiment.remarks.ties`, and a run has room for so many.

    What arrives within a round meets its capacity together, so a longer round smooths the traffic:
    the length of a round is a part of the model.

    Parameters
    ----------
    file
        See `mc.run`.
    replications : int, optional
        Of each cell; default those of the file, but at most `MOST_REPLICATIONS`.
    seed, jobs, overrides
        See `mc.run`. The shorter rounds have the next seed.
    say : callable, optional
        Called with what else changes with the rounds.

    Returns
    -------
    Sensitivity

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
    shortened, times = _shortened(experiment)
    if say is not None and (uneven := _uneven_capacities(shortened)):
        least, most = math.floor(min(uneven)), math.ceil(min(uneven))
        say(
            f"with rounds {LENGTHS[times]} a capacity is {min(uneven):g} calls a round: rounds "
            f"serve {least} or {most}, and a part of the difference is due to that"
        )
    (as_given, claims), (shorter, claims_shorter) = (
        _results(one, n, jobs) for one in (experiment, shortened)
    )
    keys = ["cell", "metric", "unit"]
    both = as_given.join(shorter, on=keys, suffix="_shorter", maintain_order="left")
    both = both.filter((pl.col("n") > 0) | (pl.col("n_shorter") > 0))
    difference = pl.col("mean_shorter") - pl.col("mean")
    places = _places(experiment)
    half_width = pl.when(pl.col("is_known") & pl.col("is_known_shorter")).then(
        pl.Series(_welch(both))
    )
    means = places.join(both, on="cell", maintain_order="right").select(
        *places.columns,
        "metric",
        "unit",
        "mean",
        pl.col("mean_shorter").alias("shorter_rounds"),
        difference.alias("difference"),
        (difference - half_width).fill_nan(None).alias("low"),
        (difference + half_width).fill_nan(None).alias("high"),
        pl.when(pl.col("mean") != 0).then(difference / pl.col("mean")).alias("change"),
        pl.min_horizontal("n", "n_shorter").alias("n"),
        "share_defined",
        pl.col("share_defined_shorter").alias("shorter_rounds_share_defined"),
        "mcse",
        "mcse_shorter",
    )
    judged = pl.concat(
        [claims, claims_shorter.select(pl.all().exclude("text").name.suffix("_shorter"))],
        how="horizontal",
    )
    return Sensitivity(means, judged, _conclusion(means, judged), times)


def _places(experiment: Experiment) -> pl.DataFrame:
    """Scenario, policy and axes of each cell, as a reader is given them."""
    return pl.DataFrame(
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


def _uneven_capacities(experiment: Experiment) -> set[float]:
    """Capacities that are no whole number of calls a round."""
    cells = [point.parameters for point in experiment.points]
    faults = [fault for cell in cells for fault in cell.all_faults]
    every = {cell.capacity for cell in cells} | {fault.capacity for fault in faults}
    return {capacity for capacity in every if capacity % 1}


def _results(experiment: Experiment, n: int, jobs: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Mean and error of each metric of `SHOWN` in each cell, in seconds; the claims' verdicts."""
    cells = [point.parameters for point in experiment.points]
    rows = simulate(cells, n, experiment.seed, experiment.generator, jobs=jobs)
    table = experiments.cell_table(experiment)
    summary = statistics.summarise(rows, table)
    of_cell = {point.cell: point.parameters for point in experiment.points}
    told = [
        _for_reader(metric, of_cell[cell])
        for cell, metric in summary.select("cell", "metric").iter_rows()
    ]
    factor = pl.Series([factor for _, factor in told])
    means = (
        summary.with_columns(
            unit=pl.Series([unit for unit, _ in told]),
            mean=pl.col("mean") * factor,
            mcse=pl.col("mcse") * factor,
            is_known=pl.col("ci_low").is_not_null(),
        )
        .filter(pl.col("metric").is_in(SHOWN))
        .select("cell", "metric", "unit", "n", "mean", "mcse", "share_defined", "is_known")
    )
    counts = statistics.count_claims(rows, table, experiment.claims)
    verdicts = statistics.verdicts(
        counts, table, experiment.claims, thresholds=experiment.thresholds
    )
    return means, verdicts.select("text", "share", "verdict")


def _for_reader(metric: str, cell: Cell) -> tuple[str, float]:
    """The unit in which a reader is given a metric, and by what it is multiplied for that."""
    if metric == "peak" and cell.capacity:
        return "x capacity", 1 / cell.capacity
    return units.for_reader(METRICS[metric].unit, cell.rounds_per_second)


def _welch(both: pl.DataFrame) -> NDArray[np.float64]:
    """Half the lengths of the intervals of differences; NaN where a mean has no error."""
    a, b = (both[name].fill_null(np.nan).to_numpy() ** 2 for name in ("mcse", "mcse_shorter"))
    n, m = (both[name].to_numpy() for name in ("n", "n_shorter"))
    below = a**2 / np.maximum(n - 1, 1) + b**2 / np.maximum(m - 1, 1)
    df = np.divide((a + b) ** 2, below, out=np.full(len(a), np.nan), where=below > 0)
    quantiles = [intervals.t_quantile_of(int(x)) if np.isfinite(x) else np.nan for x in df]
    return np.asarray(np.array(quantiles) * np.sqrt(a + b), np.float64)


# --- in sentences ---------------------------------------------------------------------------------


def _conclusion(means: pl.DataFrame, claims: pl.DataFrame) -> str:
    """Say what of the answer is the same with shorter rounds, and what is not."""
    kept, lost = [], []
    if means["cell"].n_unique() > 1:
        for metric, word in (("failed_share", "failures"), ("times_usual", "the storm")):
            swapped = _swapped(means.filter(metric=metric))
            if swapped:
                lost.append(f"in {word} {first_of(swapped)} surely change places")
            elif metric in means["metric"]:
                kept.append(f"the order in {word}")
        other = _other_best(means.filter(metric="failed_share"))
        if other:
            lost.append(f"the fewest failures have {first_of(other)}")
        else:
            kept.append("what fails least")
    if claims.height:
        decided = claims.filter(pl.col("verdict") != OPEN, pl.col("verdict_shorter") != OPEN)
        changed = decided.filter(pl.col("verdict") != pl.col("verdict_shorter"))
        if changed.height:
            told = [
                f'"{text}" ({before}, then {after})'
                for text, before, after in changed.select(
                    "text", "verdict", "verdict_shorter"
                ).iter_rows()
            ]
            lost.append(f"{changed.height} of {decided.height} verdicts, {first_of(told)}")
        elif decided.height:
            kept.append(f"the verdict of {counted(decided.height, 'claim')}")
    sentences = []
    if flipped := _flipped(means.filter(metric="recovered")):
        sentences.append(
            "Whether runs recover depends on the length of a round: with rounds as given, and with "
            f"shorter ones, {first_of(flipped)}."
        )
    if kept:
        sentences.append(f"With shorter rounds the same: {', '.join(kept)}.")
    if lost:
        sentences.append(f"Not the same: {'; '.join(lost)}.")
    sentences.append(f"By more than {100 * MOST_CHANGE:.0f} % change: {_changed(means)}.")
    return " ".join(sentences)


def _flipped(recovered: pl.DataFrame) -> list[str]:
    """In which cells surely more or fewer runs recover, or more than half of the runs differ."""
    found = []
    for name, line in zip(_names(recovered), recovered.iter_rows(named=True), strict=True):
        n, shares = line["n"], np.array([line["mean"], line["shorter_rounds"]])
        counts = np.rint(shares * n).astype(np.int64)
        low, high = intervals.share_interval(counts, np.full(2, n))
        if abs(shares[0] - shares[1]) > 0.5 or max(low) > min(high):
            before, after = (f"{count:,}" for count in counts)
            where = "" if line["scenario"] == "default" else f" ({line['scenario']})"
            found.append(f"{before} and {after} of {n:,} in {name}{where}")
    return found


def _swapped(means: pl.DataFrame) -> list[str]:
    """Pairs of cells of a scenario that surely are in another order with shorter rounds.

    Surely: both differences exceed 1.96 of their standard errors, as if the two cells had met
    other traffic; under the same traffic they are known better.
    """
    found = []
    for (scenario,), cells in means.group_by("scenario", maintain_order=True):
        names = _names(cells)
        where = "" if scenario == "default" else f" ({scenario})"
        for i in range(cells.height):
            before, after = (_signs(cells, i, *columns) for columns in _BOTH)
            others = (j for j in np.flatnonzero(before * after < 0).tolist() if j > i)
            found += [f"{names[i]} and {names[j]}{where}" for j in others]
    return found


_BOTH: Final = (("mean", "mcse"), ("shorter_rounds", "mcse_shorter"))


def _signs(cells: pl.DataFrame, i: int, mean: str, error: str) -> NDArray[np.float64]:
    """1 for each cell that surely lies above cell i, -1 for each below, 0 for all others."""
    x, variance = cells[mean].to_numpy(), cells[error].fill_null(0.0).to_numpy() ** 2
    sure = np.abs(x - x[i]) > Z * np.sqrt(variance + variance[i])
    return np.asarray(np.sign(x - x[i]) * sure, np.float64)


def _other_best(means: pl.DataFrame) -> list[str]:
    """Cells with the lowest mean of a scenario where another surely takes that place."""
    found = []
    for (scenario,), cells in means.group_by("scenario", maintain_order=True):
        before, after = (int(cells[name].arg_min() or 0) for name in ("mean", "shorter_rounds"))
        if _signs(cells, after, *_BOTH[1])[before] > 0:
            names = _names(cells)
            where = "" if scenario == "default" else f" in {scenario}"
            found.append(f"{names[after]}{where} (as given {names[before]})")
    return found


def _names(cells: pl.DataFrame) -> list[str]:
    """Name each line by what tells it apart in its scenario."""
    names = cells.columns[2 : cells.columns.index("metric")]
    return [place_text(dict(zip(names, line, strict=True))) for line in cells.select(names).rows()]


def place_text(place: Mapping[str, str]) -> str:
    """Write scenario, policy and axes of a cell."""
    told = {name: text for name, text in place.items() if text != "default"}
    return place_name(told) or "the only cell"


def _changed(means: pl.DataFrame) -> str:
    """The metrics that surely change much, each with the largest change; `dropped` is a share.

    Surely: outside the interval, or, where runs are too few for one, by `Z` standard errors.
    """
    errors = (pl.col("mcse") ** 2 + pl.col("mcse_shorter") ** 2).sqrt()
    difference = pl.col("shorter_rounds") - pl.col("mean")
    is_sure = pl.when(pl.col("low").is_null()).then(difference.abs() > Z * errors)
    much = means.filter(
        pl.col("change").abs() > MOST_CHANGE,
        is_sure.otherwise((pl.col("low") > 0) | (pl.col("high") < 0)),
        ~pl.col("metric").is_in(["dropped", "recovered"]),
    )
    n_cells = means["cell"].n_unique()
    texts = []
    for (metric,), lines in much.group_by("metric", maintain_order=True):
        furthest = lines.sort(pl.col("change").abs(), descending=True)[0, "change"]
        where = f" in {lines.height} of {n_cells} cells" if n_cells > 1 else ""
        texts.append(f"{metric} (by up to {100 * furthest:+.0f} %{where})")
    return ", ".join(texts) or "nothing"
