"""From what a folder keeps to its tables: shards become tallies, tallies become tables."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import statistics, store
from mc.experiment import SEEDS, Experiment, Published, Stop
from mc.model import COUNTERS, Cell, Column, counters_of, lesson_conflicts
from mc.runner.simulation import ROW_COLUMNS, n_threads, simulate
from mc.runner.storage import Storage
from mc.statistics import ClaimCounts, tallies
from mc.statistics.published import Distribution, joint_tails
from mc.statistics.tallies import HISTOGRAMS_COLUMNS, claim_key
from mc.store import Shard
from mc.store.threads import on_threads

LESSON_RUNS: Final = 1000
"""Runs of the lesson's generator among which a published one is placed: 20 % are known to 3 %."""

CHUNKS_AT_ONCE: Final = 2
"""Threads that make tables: more would gain little, and each needs memory."""

MOST_LESSON_SEEDS: Final = 10_000
"""The lesson's streams are short: too many of more replications would share draws."""


def table_columns(experiment: Experiment) -> dict[str, Mapping[str, Column]]:
    """The columns of every table of a results folder, as its manifest describes them."""
    counters = counters_of(point.parameters for point in experiment.points)
    names = {name: experiments.CELL_COLUMNS[name] for name in store.name_columns(experiment.source)}
    return {
        "cells": experiments.CELL_COLUMNS,
        "replications": {
            name: column
            for name, column in ROW_COLUMNS.items()
            if name in counters or name not in COUNTERS
        },
        "histograms": HISTOGRAMS_COLUMNS,
        "summary": _after_cell(statistics.SUMMARY_COLUMNS, names),
        "comparisons": _after_cell(statistics.COMPARISONS_COLUMNS, names),
        "claims": statistics.CLAIMS_COLUMNS,
    }


def _after_cell(columns: Mapping[str, Column], names: Mapping[str, Column]) -> Mapping[str, Column]:
    return {"cell": columns["cell"], **names, **columns}


def make_tables(
    experiment: Experiment,
    storage: Storage,
    stops: Mapping[int, Stop],
    shards: Sequence[Shard],
    jobs: int | None = None,
) -> Iterator[tuple[str, Iterator[pl.DataFrame]]]:
    """Make summary, comparisons and claims, some cells at a time.

    With many cells they would not fit in memory.

    Parameters
    ----------
    experiment, storage
        With cells numbered as in the folder.
    stops : mapping of int to Stop
        Where each cell has stopped.
    shards : sequence of Shard
        All replications up to there, and none beyond.
    jobs : int, optional
        Threads; default all cores.

    Yields
    ------
    name, parts : str, iterator of polars.DataFrame
        One of `store.TABLES`, and its content: by baseline, cell and metric.
    """
    cells = experiments.with_stops(storage.cells, stops)
    controlled = experiment.generator == "philox"

    def tables_of(chunk: list[int]) -> tuple[bytes, bytes, dict[Published, Distribution]]:
        counted = storage.tallies(shards, chunk)
        wanted = set(chunk)
        place = {number: k for k, number in enumerate(chunk)}
        published = [figure for figure in experiment.published if figure.cell in wanted]
        summaries = [tallies.summary_of(t, published, controlled=controlled) for t in counted]
        comparisons = [tallies.comparisons_of(t) for t in counted]
        distributions = {
            figure: t.metrics[figure.metric].histogram.cell(k)
            for t in counted
            for k, number in enumerate(t.cells["cell"].to_list())
            for figure in published
            if figure.cell == number
        }
        summary, comparison = (
            _packed(_in_order(pl.concat(tables), place)) for tables in (summaries, comparisons)
        )
        return summary, comparison, distributions

    # numpy and polars leave the interpreter to others while they sort, add and read
    threads = min(CHUNKS_AT_ONCE, n_threads(jobs))
    summaries, comparisons, placed = zip(
        *on_threads(tables_of, list(storage.chunks(shards)), threads), strict=True
    )
    distributions = {figure: found for some in placed for figure, found in some.items()}
    joint = _joint_tails(experiment, distributions, cells, jobs)
    names = cells.select("cell", *store.name_columns(experiment.source))
    yield (
        "summary",
        (
            store.with_names(_unpacked(part).update(joint, on=["cell", "metric"]), names)
            for part in summaries
        ),
    )
    yield "comparisons", (store.with_names(_unpacked(part), names) for part in comparisons)
    by_key = storage.count_claims(shards)
    counted = [by_key[claim_key(claim)] for claim in experiment.claims]
    lesson = _as_the_lesson_draws(experiment, stops, cells, jobs)
    verdicts = statistics.verdicts(counted, cells, experiment.claims, lesson, experiment.thresholds)
    yield "claims", iter([verdicts])


def _in_order(table: pl.DataFrame, place: Mapping[int, int]) -> pl.DataFrame:
    """Sort a table by the place of its cells, which are often in order."""
    places = table["cell"].replace_strict(place, return_dtype=pl.Int64)
    return table if places.is_sorted() else table[np.argsort(places.to_numpy(), kind="stable")]


def _packed(table: pl.DataFrame) -> bytes:
    """Compress a part of a table, to a tenth or less, until the file is written."""
    buffer = io.BytesIO()
    table.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def _unpacked(part: bytes) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(part))


def _joint_tails(
    experiment: Experiment,
    distributions: Mapping[Published, Distribution],
    cells: pl.DataFrame,
    jobs: int | None,
) -> pl.DataFrame:
    """How far out each published figure is among all of them, by runs of the lesson's generator.

    They are taken as figures of one run, of a single seed: that is what the lesson prints, and
    with its generator policies that wait alike share their draws. There is no line where it cannot
    draw one of the cells, or has drawn the replications themselves.
    """
    figures = [figure for figure in experiment.published if len(distributions[figure][0])]
    parameters = {point.cell: point.parameters for point in experiment.points}
    named = sorted({figure.cell for figure in figures})
    cannot = any(any(lesson_conflicts(parameters[number].parameters)) for number in named)
    if experiment.generator == "lesson" or cannot:
        figures = []
    joint: Sequence[float] = ()
    if figures:
        # the first is the experiment's own seed, which may be the published one
        drawn = _lesson_rows(
            tuple(parameters[i] for i in named), LESSON_RUNS + 1, experiment.seed, jobs
        ).filter(pl.col("replication") > 0)
        numbers = pl.col("cell").replace_strict(dict(enumerate(named)), return_dtype=pl.Int32)
        rows = statistics.with_ratios(drawn.with_columns(numbers), cells)
        by_cell = {number: rows.filter(cell=number).sort("replication") for number in named}
        runs = [
            by_cell[figure.cell][figure.metric].cast(pl.Float64).fill_null(math.inf).to_numpy()
            for figure in figures
        ]
        joint = joint_tails(figures, runs, [distributions[figure] for figure in figures]).tolist()
    return pl.DataFrame(
        {
            "cell": pl.Series([figure.cell for figure in figures], dtype=pl.Int32),
            "metric": pl.Series([figure.metric for figure in figures], dtype=pl.String),
            "published_joint": pl.Series(joint, dtype=pl.Float64),
        }
    )


def _as_the_lesson_draws(
    experiment: Experiment, stops: Mapping[int, Stop], cells: pl.DataFrame, jobs: int | None
) -> dict[int, ClaimCounts]:
    """Count claims with the lesson's generator, if the experiment asks for it.

    Claims about cells that this generator cannot simulate are left out.
    """
    if not experiment.lesson_shares:
        return {}
    parameters = {point.cell: point.parameters for point in experiment.points}
    counted: dict[int, ClaimCounts] = {}
    for index, claim in enumerate(experiment.claims):
        named = sorted(set(claim.cells))
        if any(any(lesson_conflicts(parameters[i].parameters)) for i in named):
            continue
        n = min(MOST_LESSON_SEEDS, *(stops[i].n for i in named))
        rows = _lesson_rows(tuple(parameters[i] for i in named), n, experiment.seed, jobs)
        rows = rows.with_columns(
            pl.col("cell").replace_strict(dict(enumerate(named)), return_dtype=pl.Int32)
        )
        counted[index] = statistics.count_claims(rows, cells, [claim])[0]
    return counted


@lru_cache(maxsize=8)  # claims about the same cells follow each other
def _lesson_rows(cells: tuple[Cell, ...], n: int, seed: int, jobs: int | None) -> pl.DataFrame:
    low, high = SEEDS["lesson"]
    inside = low + (seed - low) % (high - low + 1)
    return simulate(cells, n, inside, "lesson", jobs=jobs)
