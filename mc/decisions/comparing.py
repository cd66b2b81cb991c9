"""One cell or another: any two, replication by replication."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from mc import statistics, store
from mc.decisions.choosing import (
    QuestionError,
    Wanted,
    coordinates,
    metric_named,
    select,
    several,
    where_all,
)
from mc.experiment.messages import listed, quote
from mc.model import METRICS
from mc.statistics.intervals import LEVEL, bonferroni_level, t_half_width
from mc.store import FolderError, Results, cell_name


def compare(
    folder: str | Path | Results,
    left: Wanted,
    right: Wanted,
    metrics: str | Sequence[str] = (),
    where: Wanted | Sequence[Wanted] = (),
    *,
    together: bool = False,
) -> pl.DataFrame:
    """Compare cells in pairs, replication by replication.

    Parameters
    ----------
    folder : path or Results
        A results folder.
    left, right : str or int
        Which cells: the number of a cell, the name of a policy, or conditions ``name=value`` on
        scenario, policy and parameters, separated by commas. Each cell of the left is compared
        with the one of the right that has the same scenario, policy and place on the grid as far
        as neither text fixes these.
    metrics : str or sequence of str
        Names as in the column `metric` of the summary. Default all.
    where : str, int, or sequence of these
        Like `left`; only cells that all of them describe are compared.
    together : bool
        Whether the intervals of all mean differences that are returned hold at once.

    Returns
    -------
    polars.DataFrame
        One line for each (pair, metric) in the schema of the folder's comparisons, `left` and
        `right` in place of `cell` and `baseline`, and `left_name`, `right_name`. Differences are
        left - right; each interval is one of 95 % for itself, but with `together` those of the mean
        differences.

    Raises
    ------
    FolderError
        The folder is not finished, or keeps histograms and has not counted these pairs.
    QuestionError
        There is no such pair, metric or coordinate; or the texts do not tell which cell of the
        right belongs to a cell of the left.

    Notes
    -----
    Together: Student's intervals, each of m lines at the level 1 - 0.05 / m, by Bonferroni's
    inequality (Dunn 1961). It asks nothing of how the lines depend on one another, which here share
    their traffic; lines without an interval count, too, for which these are chance decides.

    Examples
    --------
    What three layers of retries drop with a budget, and do not drop without:

    >>> import mc
    >>> compared = mc.compare(
    ...     "results/lesson",
    ...     "three layers + budget 0.30",
    ...     "three layers (3x3x3)",
    ...     metrics=["dropped"],
    ...     where=["scenario=outage (1 s)"],
    ... )
    >>> [round(x, 2) for x in compared.select("mean_difference", "ci_low", "ci_high").row(0)]
    [97.21, 97.02, 97.4]
    """
    results = store.load(folder)
    chosen = [metric_named(name, results).name for name in several(metrics)] or list(METRICS)
    pairs = _pairs(results, left, right, where)
    table = results.cells.drop("baseline").join(
        pairs.rename({"left": "cell", "right": "baseline"}), on="cell", how="left"
    )
    if results.keeps_rows:
        numbers = [*pairs["left"], *pairs["right"]]
        lines = table.filter(pl.col("cell").is_in(numbers)).with_columns(
            pl.col("baseline").fill_null(pl.col("cell"))
        )
        rows = results.scan().filter(pl.col("cell").is_in(numbers)).collect()
        compared = statistics.compare(rows, lines)
    else:
        compared = results.comparisons.select(statistics.COMPARISONS_COLUMNS.keys()).join(
            pairs.select(cell="left", baseline="right"), on=["cell", "baseline"], how="semi"
        )
        if compared["cell"].n_unique() < pairs.height:
            baseline = quote(results.manifest["experiment"]["baseline"])
            raise FolderError(
                f"{results.folder}: keeps histograms, and has counted no other pairs than those of "
                f"a policy with the baseline {baseline}, which stands right; for others name it as "
                "`baseline` in the file, or keep rows, and run it again with --force"
            )
    compared = compared.filter(pl.col("metric").is_in(chosen))
    if together:
        compared = _together(compared)
    names, source = coordinates(results), results.manifest["experiment"]
    named = {
        cell["cell"]: cell_name(cell, names, source) for cell in results.cells.iter_rows(named=True)
    }
    return compared.rename({"cell": "left", "baseline": "right"}).with_columns(
        pl.col(side).replace_strict(named, return_dtype=pl.String).alias(f"{side}_name")
        for side in ("left", "right")
    )


def _together(lines: pl.DataFrame) -> pl.DataFrame:
    """Widen the intervals of the mean differences until all hold at once."""
    level = bonferroni_level(LEVEL, lines.height)
    half_width = pl.Series(t_half_width(lines["n"].to_numpy(), lines["mcse"].to_numpy(), level))
    mean, has_interval = pl.col("mean_difference"), pl.col("ci_low").is_not_null()
    ends = {"ci_low": mean - half_width, "ci_high": mean + half_width}
    return lines.with_columns(
        pl.when(has_interval).then(end).alias(name) for name, end in ends.items()
    )


def _pairs(
    results: Results, left: Wanted, right: Wanted, where: Wanted | Sequence[Wanted]
) -> pl.DataFrame:
    """Columns `left` and `right`: numbers of cells."""
    allowed = where_all(results, where)["cell"].implode()
    (one, _), (other, fixed) = select(results, left), select(results, right)
    left, right = str(left), str(right)
    shared = [n for n in coordinates(results) if n not in fixed]
    one, other = (side.filter(pl.col("cell").is_in(allowed)) for side in (one, other))
    if shared:
        pairs = one.select(*shared, left="cell").join(
            other.select(*shared, right="cell"), on=shared, nulls_equal=True, maintain_order="left"
        )
    else:
        pairs = one.select(left="cell").join(other.select(right="cell"), how="cross")
    if pairs.height == 0:
        raise QuestionError(f"no cell of {quote(left)} has a counterpart in {quote(right)}")
    if pairs.filter(pl.col("left") == pl.col("right")).height:
        raise QuestionError(f"{quote(left)} and {quote(right)} mean the same cells")
    if pairs["left"].n_unique() < pairs.height:
        raise QuestionError(
            f"{quote(right)} means several cells for one of {quote(left)}: fix more of "
            f"{listed([n for n in coordinates(results) if n not in shared])}"
        )
    if set(pairs["left"]) & set(pairs["right"]):
        raise QuestionError(f"{quote(left)} and {quote(right)} have cells in common")
    return pairs.select("left", "right")
