"""Verification of histograms: whether a shard agrees with itself, and counting it once more.

A part of a shard cannot be made again. So a sample is of whole shards.
"""

from __future__ import annotations

import io
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl

from mc import store
from mc.model import METRICS, Cell
from mc.runner.making import kernel_input
from mc.runner.tallying import Tallying, TallyTask, claim_of
from mc.runner.tasks import work_through
from mc.statistics import tallies
from mc.statistics.tallies import HISTOGRAMS_SCHEMA, SUMS, Tally
from mc.store import Shard

COUNTS_SCHEMA: Final = pl.Schema(
    {
        "file": pl.String(),
        "cell": pl.Int32(),
        "metric": pl.String(),
        "what": pl.String(),
        "stored": pl.String(),  # sums may need more than 64 bits
        "recomputed": pl.String(),
    }
)

_MOST_FAULTS: Final = 3
"""Of one shard these are told."""

_KEYS: Final = ["cell", "metric", "value"]


_Counted = tuple[TallyTask, Tally]


@dataclass
class Recount:
    """What was found out about histograms.

    Attributes
    ----------
    faults : list of str
        What is wrong with shards, a line each.
    n_checked : int
        Rows that were counted once more.
    found : list of polars.DataFrame
        What differs, in the schema of `COUNTS_SCHEMA`.
    """

    faults: list[str] = field(default_factory=list)
    n_checked: int = 0
    found: list[pl.DataFrame] = field(default_factory=list)

    def differences(self) -> pl.DataFrame:
        """All that was found to differ."""
        frames = [COUNTS_SCHEMA.to_frame(), *self.found]
        return pl.concat(frames).sort("file", maintain_order=True)


def recount(
    manifest: Mapping[str, Any],
    shards: Sequence[Shard],
    parameters: Mapping[int, Cell],
    cells: pl.DataFrame,
    jobs: int,
    *,
    seconds: float = math.inf,
    seed: int | None = None,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Recount:
    """Find out whether shards agree with themselves, and count them once more.

    Parameters
    ----------
    manifest : mapping
        Of the folder.
    shards : sequence of Shard
        Those whose content is what was written.
    parameters : mapping of int to Cell
        The cells of the folder.
    cells : polars.DataFrame
        Their lines in the table of cells.
    jobs : int
        Threads.
    seconds : float
        How long to go on; a shard that is not done by then is left out.
    seed : int, optional
        Of the order of the shards: those of half the size first, each size at random.
    progress : callable
        Told the number of rows that were counted so far.

    Returns
    -------
    Recount
    """
    source = manifest["experiment"]
    tallying = Tallying(
        int(source["seed"]), source["generator"], parameters, cells.sort("cell"), {}
    )
    n = max((shard.stop for shard in shards), default=1)
    seeds = None if source["seeds"] is None else tuple(source["seeds"])
    given = kernel_input(tallying.generator, tallying.seed, seeds, n)
    result = Recount()
    countable = [shard for shard in shards if _is_countable(shard, tallying, result.faults)]
    if seed is not None:
        random.Random(seed).shuffle(countable)
        countable.sort(key=lambda shard: shard.n_rows.bit_length())
    shards_of = {TallyTask(shard.cells, shard.start, shard.stop): shard for shard in countable}
    deadline = time.perf_counter() + seconds

    def count(task: TallyTask, stop: threading.Event) -> tuple[_Counted | None, list[TallyTask]]:
        left = deadline - time.perf_counter()
        if left <= 0:
            return None, []
        counting = replace(tallying, claims={key: claim_of(key) for key in shards_of[task].claims})
        done, rest = counting.simulate(task, given, stop, lambda n_rows: None, left)
        return (None if rest else done[0]), []

    def compare(done: _Counted | None) -> None:
        if done is None:
            return
        task, tally = done
        table, kept = _read(shards_of[task])
        result.n_checked += task.n_rows
        result.found += _differing(shards_of[task], table, kept, tally)
        progress(result.n_checked)

    work_through(list(shards_of), jobs, count, compare)
    return result


def _read(shard: Shard) -> tuple[pl.DataFrame, dict[str, Any]]:
    """What a shard keeps."""
    return pl.read_parquet(io.BytesIO(shard.path.read_bytes())), store.read_sums(shard.path)


# --- a shard alone -------------------------------------------------------------------------------


def _is_countable(shard: Shard, tallying: Tallying, faults: list[str]) -> bool:
    """Check a shard by itself; give whether it can be compared with what is counted once more."""
    needed = {*shard.cells, *shard.baselines}
    needed |= {number for key in shard.claims for number in claim_of(key).cells}
    if not tallying.parameters.keys() >= needed:
        return False  # the table of cells is at fault
    try:
        table, kept = _read(shard)
        found = list(_disagreements(shard, table, kept, tallying.cells))
    except (OSError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        text = str(error).partition("\n")[0]
        faults.append(f"{shard.path}: not what histograms look like ({text})")
        return False
    faults += [f"{shard.path}: {fault}" for fault in found[:_MOST_FAULTS]]
    if len(found) > _MOST_FAULTS:
        faults.append(f"{shard.path}: and {len(found) - _MOST_FAULTS:,} such faults more")
    lines = tallying.cells.filter(pl.col("cell").is_in(list(shard.cells)))
    if lines["baseline"].to_list() != list(shard.baselines):
        faults.append(f"{shard.path}: was counted with other baselines than the table of cells has")
        return False
    return True


def _disagreements(
    shard: Shard, table: pl.DataFrame, kept: Mapping[str, Any], cells: pl.DataFrame
) -> Iterator[str]:
    """Where the histograms and the sums of a shard contradict each other, or its footer."""
    n = shard.stop - shard.start
    if table.schema != HISTOGRAMS_SCHEMA:
        raise ValueError(f"columns {', '.join(table.columns)}")
    if table.select(_KEYS).is_duplicated().any() or (table["count"] < 1).any():
        yield "a value stands twice, or never occurs"
    if kept["n"] != [n] * len(shard.cells) or kept["baselines"] != list(shard.baselines):
        yield "its sums are not of the cells and replications that its footer names"
    lines = cells.filter(pl.col("cell").is_in(list(shard.cells)))
    counted = tallies.histograms_of(table, lines, list(METRICS))
    undefined = table.filter(pl.col("value").is_null()).select("cell", "metric", "count")
    null = {(cell, metric): count for cell, metric, count in undefined.iter_rows()}
    for name, own in counted.items():
        known, first, second = (
            own.sums(terms).tolist()
            for terms in (own.counts, own.counts * own.values, own.counts * own.values**2)
        )
        for k, number in enumerate(shard.cells):
            all_of_them = known[k] + null.get((number, name), 0)
            moments = known[k], first[k], second[k]
            place = f"cell {number}, {name}"
            if all_of_them != n:
                yield f"{place}: the counts add up to {all_of_them:,}, not to {n:,}"
            yield from (
                f"{place}: {fault}"
                for fault in _contradictions(kept, name, k, moments, number == shard.baselines[k])
            )
    for key, (n_all, n_holds, _) in kept["claims"].items():
        if not 0 <= n_holds <= n_all <= n:
            yield f"claim {key}: holds in {n_holds:,} of {n_all:,} of {n:,} replications"


def _contradictions(
    kept: Mapping[str, Any], name: str, k: int, moments: tuple[int, int, int], alone: bool
) -> Iterator[str]:
    """Where the sums of one metric of the k-th cell contradict its histogram.

    Parameters
    ----------
    kept : mapping
        See `tallies.sums`.
    name : str
        The metric.
    k : int
        Place of the cell.
    moments : tuple of int
        By its histogram: in how many replications it is defined, sum and sum of squares, these
        modulo 2**64.
    alone : bool
        Whether the cell is its own baseline.
    """
    n = moments[0]
    sums = {
        part: dict(zip(SUMS[part], kept[part][name][k], strict=True))
        for part in ("traffic", "pairs")
    }
    traffic, pair = sums["traffic"], sums["pairs"]
    if not _agree(moments, (traffic["n"], traffic["x"], traffic["xx"])):
        yield "its histogram and its sums with traffic are not of the same values"
    if pair["n"] > n or pair["less"] + pair["equal"] > pair["n"]:
        yield "more replications in the comparison than there are"
    elif (alone or pair["n"] == n) and not _agree(moments, (pair["n"], pair["x"], pair["xx"])):
        yield "its histogram and its sums with the baseline are not of the same values"
    if name in kept["ratio"] and kept["ratio"][name][k][0] != n:
        yield "its numerators and denominators are of another number of replications"


def _agree(some: Iterable[int], others: Iterable[int]) -> bool:
    """Whether sums are equal modulo 2**64."""
    return all((a - b) % 2**64 == 0 for a, b in zip(some, others, strict=True))


# --- counted once more ---------------------------------------------------------------------------


def _differing(
    shard: Shard, table: pl.DataFrame, kept: Mapping[str, Any], tally: Tally
) -> list[pl.DataFrame]:
    """What is not equal in a shard and in what was counted of it once more."""
    found = []
    made = tallies.histograms(tally)
    if not table.equals(made):
        both = table.join(
            made, on=_KEYS, how="full", nulls_equal=True, coalesce=True, suffix="_made"
        ).filter(pl.col("count").ne_missing(pl.col("count_made")))
        value = pl.col("value").cast(pl.String).fill_null("NULL")
        found.append(
            both.sort(_KEYS).select(
                pl.lit(str(shard.path)).alias("file"),
                "cell",
                "metric",
                (pl.lit("count of ") + value).alias("what"),
                pl.col("count").fill_null(0).cast(pl.String).alias("stored"),
                pl.col("count_made").fill_null(0).cast(pl.String).alias("recomputed"),
            )
        )
    lines = list(_other_sums(shard, kept, tallies.sums(tally)))
    if lines:
        found.append(
            pl.DataFrame([(str(shard.path), *line) for line in lines], COUNTS_SCHEMA, orient="row")
        )
    return found


def _other_sums(
    shard: Shard, kept: Mapping[str, Any], made: Mapping[str, Any]
) -> Iterator[tuple[int, str, str, str, str]]:
    """Cell, metric, what, stored and recomputed of each sum that is not equal."""
    for part, names in SUMS.items():
        for metric, lines in made[part].items():
            if kept[part][metric] == lines:
                continue
            for number, old, new in zip(shard.cells, kept[part][metric], lines, strict=True):
                for name, a, b in zip(names, old, new, strict=True):
                    if a != b:
                        yield number, metric, f"{part} {name}", str(a), str(b)
    for key, counted in made["claims"].items():
        if kept["claims"][key] != counted:
            claim = claim_of(key)
            what = f"claim {key}"
            yield claim.cells[0], claim.metrics[0], what, str(kept["claims"][key]), str(counted)
