"""Every interval that is shown without a note covers what it promises, on the lesson's cells.

A pool of a million replications of each of the 18 cells stands for the truth. An experiment draws n
of them with replacement, so that the pool's own mean, quantile or share is exactly what it
estimates, and goes through the program's own tables. What is counted is the share of experiments
whose interval holds the truth, for every cell, metric and kind of interval, of those that have one
and no note beside it.

    python tests/test_coverage.py

prints the table of experiments/README.md, and takes some ten minutes of one core.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import mc
from mc import experiment, simulate
from mc.experiment import cell_table
from mc.model import COUNTERS
from mc.statistics import compare, intervals, summarise

LESSON: Final = Path(__file__).parent.parent / "experiments" / "lesson.toml"

N_POOL: Final = 1_000_000
SIZES: Final = {200: 1000, 1000: 1000, 10_000: 200}
"""Replications of an experiment, and how many experiments."""

ROWS_AT_ONCE: Final = 600_000

LEAST: Final = 0.94
"""What a nominal 95 % must cover at least, as far as the experiments can tell."""

SURE: Final = 1 - 1e-4
"""Of some thousand intervals one in ten thousand may be told to cover less by luck."""

OF_SUMMARY: Final = {
    "mean": ("mean", "ci"),
    "adjusted mean": ("adjusted_mean", "adjusted"),
    "quantile, 5 %": ("p05", "p05"),
    "median": ("median", "median"),
    "quantile, 95 %": ("p95", "p95"),
    "quantile, 99 %": ("p99", "p99"),
    "expected shortfall": ("worst_mean", "worst_mean"),
    "share of zeros": ("share_zero", "share_zero"),
    "ratio of means": ("ratio_of_means", "ratio_of_means"),
}
"""Kinds of interval: the column of the truth, and the name of the two ends."""

OF_COMPARISONS: Final = {
    "paired difference": ("mean_difference", "ci"),
    "relative change": ("relative_change", "relative"),
    "share less": ("share_less", "share_less"),
    "share equal": ("share_equal", "share_equal"),
}

NOTED: Final = {"mean", "paired difference"}
"""What `note` is about."""

_KEYS: Final = ["cell", "metric"]

COVERAGE_SCHEMA: Final = pl.Schema(
    {
        "kind": pl.String(),
        "cell": pl.Int32(),
        "metric": pl.String(),
        "n": pl.Int64(),
        "experiments": pl.Int64(),
        "given": pl.Int64(),
        "covered": pl.Int64(),
    }
)


def coverage(
    n_pool: int = N_POOL, sizes: dict[int, int] | None = None, seed: int = 6
) -> pl.DataFrame:
    """Study the lesson's cells, scenario by scenario.

    Returns
    -------
    polars.DataFrame
        In the schema of `COVERAGE_SCHEMA`: in how many experiments an interval was given without a
        note, and in how many of these it covered.
    """
    lesson = experiment.read(LESSON)
    table = cell_table(lesson)
    flattened = [point for point in lesson.points if point.parameters.chain == "flattened"]
    frames = [COVERAGE_SCHEMA.to_frame()]
    for scenario in dict.fromkeys(point.scenario for point in flattened):
        points = [point for point in flattened if point.scenario == scenario]
        lines = table.filter(pl.col("cell").is_in([point.cell for point in points]))
        pool = simulate([point.parameters for point in points], n_pool, seed=5)
        names = [name for name in pool.columns if name in COUNTERS]
        columns = {
            name: pool[name].to_numpy().reshape(len(points), n_pool)
            if pool[name].null_count() == 0
            else pool[name].cast(pl.Float64).to_numpy().reshape(len(points), n_pool)
            for name in names
        }
        numbered = pl.col("cell").replace_strict(
            {k: point.cell for k, point in enumerate(points)}, return_dtype=pl.Int32
        )
        pool = pool.with_columns(numbered)
        truths = _truths(summarise(pool, lines), compare(pool, lines))
        del pool
        for n, n_experiments in (sizes or SIZES).items():
            generator = np.random.default_rng([seed, n])
            found = _study(columns, lines, truths, n, n_experiments, generator)
            frames.append(found.with_columns(n=pl.lit(n, pl.Int64)).select(COVERAGE_SCHEMA.names()))
    return pl.concat(frames)


def _truths(summary: pl.DataFrame, comparisons: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What each kind of interval is about, by cell and metric."""
    tables = [(OF_SUMMARY, summary), (OF_COMPARISONS, comparisons)]
    return {
        kind: frame.select(*_KEYS, truth=column).drop_nulls()
        for kinds, frame in tables
        for kind, (column, _) in kinds.items()
    }


def _study(
    columns: dict[str, NDArray[Any]],
    lines: pl.DataFrame,
    truths: dict[str, pl.DataFrame],
    n: int,
    n_experiments: int,
    generator: np.random.Generator,
) -> pl.DataFrame:
    """Make experiments of n replications, some at a time, each a group of cells of its own."""
    at_once = max(1, ROWS_AT_ONCE // (n * lines.height))
    parts = []
    for done in range(0, n_experiments, at_once):
        size = min(at_once, n_experiments - done)
        drawn = generator.integers(0, next(iter(columns.values())).shape[1], (size, n))
        rows, cells = _experiments(columns, lines, drawn)
        numbers = pl.col("cell") % lines.height
        real = dict(enumerate(lines["cell"].to_list()))
        in_lesson = numbers.replace_strict(real, return_dtype=pl.Int32).alias("cell")
        summary, comparisons = summarise(rows, cells), compare(rows, cells)
        told = (made.with_columns(in_lesson) for made in (summary, comparisons))
        parts += list(_covered(next(told), next(told), truths))
    return (
        pl.concat(parts)
        .group_by("kind", *_KEYS, maintain_order=True)
        .agg(pl.col("experiments", "given", "covered").sum())
    )


def _experiments(
    columns: dict[str, NDArray[Any]], lines: pl.DataFrame, drawn: NDArray[np.int64]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows and cells of experiments: the drawn replications of every cell."""
    (size, n), k = drawn.shape, lines.height
    data: dict[str, Any] = {
        "cell": pl.Series(np.repeat(np.arange(size * k), n), dtype=pl.Int32),
        "replication": np.tile(np.arange(n), size * k),
    }
    for name, column in columns.items():
        values = pl.Series(column[:, drawn].transpose(1, 0, 2).ravel(), nan_to_null=True)
        data[name] = values.cast(pl.Int64)
    first = lines["cell"].to_list().index(lines["baseline"][0])
    cells = pl.concat(
        [
            lines.with_columns(
                cell=pl.Series(range(e * k, (e + 1) * k), dtype=pl.Int32),
                baseline=pl.lit(e * k + first, pl.Int32),
            )
            for e in range(size)
        ]
    )
    return pl.DataFrame(data), cells


def _covered(
    summary: pl.DataFrame, comparisons: pl.DataFrame, truths: dict[str, pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Count in how many experiments each kind of interval is given, and covers."""
    for kinds, table in ((OF_SUMMARY, summary), (OF_COMPARISONS, comparisons)):
        for kind, (_, name) in kinds.items():
            low, high, truth = pl.col(f"{name}_low"), pl.col(f"{name}_high"), pl.col("truth")
            given = low.is_not_null() & high.is_not_null()
            if kind in NOTED:
                given &= pl.col("note").is_null()
            joined = table.join(truths[kind], on=_KEYS, how="inner", maintain_order="left")
            # a mean is a quotient of doubles: of the last bit nobody speaks
            slack = 1e-12 * truth.abs()
            covers = given & (low - slack <= truth) & (truth <= high + slack)
            yield joined.group_by(_KEYS, maintain_order=True).agg(
                pl.lit(kind).first().alias("kind"),
                pl.len().cast(pl.Int64).alias("experiments"),
                given.sum().cast(pl.Int64).alias("given"),
                covers.sum().cast(pl.Int64).alias("covered"),
            )


def offered(found: pl.DataFrame) -> pl.DataFrame:
    """Those that are given in at least one experiment of twenty, with their coverage."""
    some = found.filter(pl.col("given") * 20 >= pl.col("experiments"))
    high = intervals.share_interval(some["covered"].to_numpy(), some["given"].to_numpy(), SURE)[1]
    return some.with_columns(coverage=pl.col("covered") / pl.col("given"), at_most=pl.Series(high))


def table(found: pl.DataFrame) -> str:
    """Render the study in Markdown: for each kind and size all cells and metrics together."""
    lines = [
        "| interval of | n | cells x metrics | coverage, median | least | too low |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for (kind, n), some in offered(found).group_by("kind", "n", maintain_order=True):
        worst = some.filter(pl.col("at_most") < LEAST).sort("coverage")
        named = ", ".join(
            f"cell {cell}: {metric} ({100 * share:.1f})"
            for cell, metric, share in worst.select("cell", "metric", "coverage").iter_rows()
        )
        texts = (f"{100 * share:.1f}" for share in np.quantile(some["coverage"], [0.5, 0.0]))
        lines.append(f"| {kind} | {n:,} | {some.height} | {' | '.join(texts)} | {named or '-'} |")
    return "\n".join(lines) + "\n"


def test_the_study_counts_what_the_tables_show() -> None:
    """A small one: every kind is there, and no more covered than were given."""
    found = coverage(4000, {200: 20})
    assert set(found["kind"]) == {*OF_SUMMARY, *OF_COMPARISONS}
    assert (found["experiments"] == 20).all()
    assert (found["covered"] <= found["given"]).all()
    means = offered(found).filter(kind="mean", metric="calls")
    assert means["cell"].n_unique() == 18
    assert means["coverage"].min() >= 0.6  # type: ignore[operator]


@pytest.mark.slow
def test_every_interval_without_a_note_covers_what_it_promises() -> None:
    found = offered(coverage())
    got = found.filter(pl.col("at_most") < LEAST).select("kind", "cell", "metric", "n", "coverage")
    assert got.rows() == []


@pytest.mark.slow
def test_every_fifth_seed_has_a_figure_as_far_out_as_the_published_run(tmp_path: Path) -> None:
    """By 1,000 seeds of the lesson's generator 20 %, known to 3; a bound of 5 is four errors."""
    summary = mc.run(LESSON, tmp_path / "out").summary
    published = summary.filter(pl.col("published").is_not_null())
    assert published.height == 98
    assert published.filter(pl.col("published_tail") < 0.05).height == 8
    assert published["published_joint"].min() == pytest.approx(0.205, abs=0.05)


if __name__ == "__main__":
    sys.stdout.write(table(coverage()))
