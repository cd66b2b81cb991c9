"""From what a folder keeps to its tables: some cells at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import SEEDS, Experiment, Stop
from mc.model import Cell
from mc.runner.tallying import Tallying, claim_key
from mc.runner.tasks import n_threads, simulate
from mc.store import Shard

if TYPE_CHECKING:
    from mc.statistics import ClaimCounts

ROWS_AT_ONCE: Final = 300_000
"""Rows of which a thread makes tables at a time: a third of a gigabyte with all that is made of
them."""

PARTS_AT_ONCE: Final = 2
"""Threads that make tables: more would gain little, and each needs its memory."""


def make_tables(
    experiment: Experiment,
    stops: Mapping[int, Stop],
    shards: Sequence[Shard],
    jobs: int | None = None,
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Make summary, comparisons and claims.

    Parameters
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    stops : mapping of int to Stop
        Where each cell has stopped.
    shards : sequence of Shard
        All that is kept, and nothing beyond.
    jobs : int, optional
        Threads, where claims are counted with the lesson's draws, too; default all cores.

    Yields
    ------
    name, table : str, polars.DataFrame
        One of `store.TABLES`, and its content.
    """
    from mc import statistics

    cells = experiments.cell_table(experiment, stops)
    of_parts = _of_rows if experiment.keep == "rows" else _of_histograms
    parts = of_parts(experiment, stops, shards, cells)
    summaries, comparisons = zip(*_on_threads(parts, n_threads(jobs)), strict=True)
    yield "summary", pl.concat(summaries).sort("cell", maintain_order=True)
    yield "comparisons", pl.concat(comparisons).sort("cell", maintain_order=True)
    if experiment.keep == "rows":
        counted = _counted_in_rows(experiment, shards, cells)
    else:
        found = Tallying.of(experiment).claims_of(shards)
        counted = [found[claim_key(claim)] for claim in experiment.claims]
    lesson = _as_the_lesson_draws(experiment, stops, cells, jobs)
    yield "claims", statistics.verdicts(counted, cells, experiment.claims, lesson)


Part = Callable[[], tuple[pl.DataFrame, pl.DataFrame]]
"""Makes summary and comparisons of some cells."""


def _on_threads(parts: Iterable[Part], jobs: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Make all parts in their order, `PARTS_AT_ONCE` at a time.

    numpy and polars leave the interpreter to others while they sort, add and read.
    """
    with ThreadPoolExecutor(min(PARTS_AT_ONCE, jobs), thread_name_prefix="tables") as pool:
        futures = [pool.submit(part) for part in parts]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _of_rows(
    experiment: Experiment,
    stops: Mapping[int, Stop],
    shards: Sequence[Shard],
    cells: pl.DataFrame,
) -> Iterator[Part]:
    from mc import statistics

    def make(chunk: set[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        some, taken = cells.filter(pl.col("cell").is_in(list(chunk))), _rows_of(chunk, shards)
        published = [figure for figure in experiment.published if figure.cell in chunk]
        controlled = experiment.generator == "philox"
        return (
            statistics.summarise(taken, some, published, controlled=controlled),
            statistics.compare(taken, some),
        )

    for chunk in _together(experiment, stops):
        yield partial(make, chunk)


def _of_histograms(
    experiment: Experiment,
    stops: Mapping[int, Stop],
    shards: Sequence[Shard],
    cells: pl.DataFrame,
) -> Iterator[Part]:
    from mc.statistics import tallies

    tallying = Tallying.of(experiment)
    controlled = experiment.generator == "philox"

    def make(chunk: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        found = tallying.restored(shards, chunk)
        summaries = [
            tallies.summary_of(tally, experiment.published, controlled=controlled)
            for tally in found
        ]
        return pl.concat(summaries), pl.concat(map(tallies.comparisons_of, found))

    for chunk in tallying.chunks(shards):
        yield partial(make, chunk)


def _counted_in_rows(
    experiment: Experiment, shards: Sequence[Shard], cells: pl.DataFrame
) -> list[ClaimCounts]:
    """Count the claims scenario by scenario: that is less in memory at once."""
    from mc import statistics

    counted: dict[int, ClaimCounts] = {}
    for scenario in dict.fromkeys(claim.scenario for claim in experiment.claims):
        chosen = [i for i, claim in enumerate(experiment.claims) if claim.scenario == scenario]
        claims = [experiment.claims[i] for i in chosen]
        rows = _rows_of({number for claim in claims for number in claim.cells}, shards)
        counted |= dict(zip(chosen, statistics.count_claims(rows, cells, claims), strict=True))
    return [counted[i] for i in range(len(experiment.claims))]


MOST_LESSON_SEEDS: Final = 10_000
"""The lesson's streams are short: of more replications too many would share draws."""


def _as_the_lesson_draws(
    experiment: Experiment, stops: Mapping[int, Stop], cells: pl.DataFrame, jobs: int | None
) -> dict[int, ClaimCounts]:
    """Count claims with the lesson's generator, if that is asked for, scenario by scenario.

    Claims about cells that this generator cannot simulate are left out.
    """
    if not experiment.lesson_shares:
        return {}
    from mc import statistics

    parameters = {point.cell: point.parameters for point in experiment.points}
    counted: dict[int, ClaimCounts] = {}
    for index, claim in enumerate(experiment.claims):
        named = sorted(set(claim.cells))
        if any(parameters[i].fault_rounds and parameters[i].failure_rate for i in named):
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


def _rows_of(numbers: set[int], shards: Sequence[Shard]) -> pl.DataFrame:
    """The rows of some cells."""
    holding = [shard.path for shard in shards if not numbers.isdisjoint(shard.cells)]
    return (
        store.scan(holding or [shards[0].path])
        .filter(pl.col("cell").is_in(list(numbers)))
        .collect()
    )


def _together(experiment: Experiment, stops: Mapping[int, Stop]) -> Iterator[set[int]]:
    """Chunks of cells, about `ROWS_AT_ONCE`, in which every cell stands with its baseline."""
    groups: dict[int, set[int]] = {}
    for point, baseline in zip(experiment.points, experiment.baselines, strict=True):
        groups.setdefault(baseline, set()).add(point.cell)
    chunk: set[int] = set()
    n_rows = 0
    for group in groups.values():
        n_more = sum(stops[number].n for number in group)
        if chunk and n_rows + n_more > ROWS_AT_ONCE:
            yield chunk
            chunk, n_rows = set(), 0
        chunk |= group
        n_rows += n_more
    yield chunk
