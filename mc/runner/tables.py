"""From what a folder keeps to its tables: shards become tallies, tallies become tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import polars as pl

from mc import experiment as experiments
from mc import statistics
from mc.experiment import SEEDS, Experiment, Stop
from mc.model import COUNTERS, Cell, Column, counters_of, lesson_conflicts
from mc.runner.simulation import ROW_COLUMNS, n_threads, simulate
from mc.runner.storage import Storage
from mc.statistics import ClaimCounts, tallies
from mc.statistics.tallies import HISTOGRAMS_COLUMNS, claim_key
from mc.store import Shard
from mc.store.threads import on_threads

CHUNKS_AT_ONCE: Final = 2
"""Threads that make tables: more would gain little, and each needs memory."""

MOST_LESSON_SEEDS: Final = 10_000
"""The lesson's streams are short: too many of more replications would share draws."""


def table_columns(experiment: Experiment) -> dict[str, Mapping[str, Column]]:
    """The columns of every table of a results folder, as its manifest describes them."""
    counters = counters_of(point.parameters for point in experiment.points)
    return {
        "cells": experiments.CELL_COLUMNS,
        "replications": {
            name: column
            for name, column in ROW_COLUMNS.items()
            if name in counters or name not in COUNTERS
        },
        "histograms": HISTOGRAMS_COLUMNS,
        "summary": statistics.SUMMARY_COLUMNS,
        "comparisons": statistics.COMPARISONS_COLUMNS,
        "claims": statistics.CLAIMS_COLUMNS,
    }


def make_tables(
    experiment: Experiment,
    storage: Storage,
    stops: Mapping[int, Stop],
    shards: Sequence[Shard],
    jobs: int | None = None,
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Make summary, comparisons and claims.

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
    name, table : str, polars.DataFrame
        One of `store.TABLES`, and its content.
    """
    cells = experiments.cell_table(experiment, stops)
    controlled = experiment.generator == "philox"

    def tables_of(chunk: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        counted = storage.tallies(shards, chunk)
        wanted = set(chunk)
        published = [figure for figure in experiment.published if figure.cell in wanted]
        summaries = [tallies.summary_of(t, published, controlled=controlled) for t in counted]
        return pl.concat(summaries), pl.concat(map(tallies.comparisons_of, counted))

    # numpy and polars leave the interpreter to others while they sort, add and read
    threads = min(CHUNKS_AT_ONCE, n_threads(jobs))
    made = on_threads(tables_of, list(storage.chunks(shards)), threads)
    for name, parts in zip(("summary", "comparisons"), zip(*made, strict=True), strict=True):
        yield name, pl.concat(parts).sort("cell", maintain_order=True)
    by_key = storage.count_claims(shards)
    counted = [by_key[claim_key(claim)] for claim in experiment.claims]
    lesson = _as_the_lesson_draws(experiment, stops, cells, jobs)
    yield "claims", statistics.verdicts(counted, cells, experiment.claims, lesson)


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
