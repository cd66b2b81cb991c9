"""All counts of some cells together: what is kept in place of rows.

A tally of a range of replications has, for each of its cells, the histogram of every metric, the
sums of it and traffic, the sums of the pair with the baseline; and the counts of some claims. Two
tallies of the same cells are added to give that of both ranges. The tables made of a tally are,
to the last bit, those made of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import METRICS, Column, schema_of
from mc.statistics.claims import ClaimCounts, count_claims
from mc.statistics.comparisons import COMPARISONS_SCHEMA, PairCounts, comparison, count_pairs
from mc.statistics.counts import Histogram, Sums, from_pairs
from mc.statistics.estimates import as_frame
from mc.statistics.rows import Stack, divisors_of, stacks
from mc.statistics.summary import MetricCounts, count_metric, summary

if TYPE_CHECKING:
    from mc.experiment import Claim, Published

_RATIOS: Final = [metric.name for metric in METRICS.values() if metric.per]
_RATES: Final = [metric.name for metric in METRICS.values() if metric.per_cell]

HISTOGRAMS_COLUMNS: Final[dict[str, Column]] = {
    "cell": Column("int32", "", "number of the cell"),
    "metric": Column("text", "", "what is counted"),
    "value": Column(
        "int64",
        "of the metric",
        f"a value; of {' and '.join(_RATIOS)} a millionth, of {' and '.join(_RATES)} the "
        "window_calls; NULL where the metric is undefined",
    ),
    "count": Column("int64", "replications", "in how many replications the metric has this value"),
}
"""The columns of the histograms, in their order."""

HISTOGRAMS_SCHEMA: Final = schema_of(HISTOGRAMS_COLUMNS)

SUMS: Final = {
    "traffic": ("n", "x", "a", "b", "xx", "xa", "xb", "aa", "ab", "bb"),
    "ratio": ("n", "x", "y", "xx", "xy", "yy"),
    "pairs": ("n", "x", "y", "xx", "xy", "yy", "less", "equal", "cubes"),
}
"""Columns of the parts of `sums`: x is the metric (of a ratio its numerator), a and b are the
counters of `TRAFFIC`, y is the baseline (the denominator)."""


@dataclass(frozen=True)
class Tally:
    """What is kept of the rows of K cells.

    Attributes
    ----------
    n : ndarray of int64, shape (K,)
        Replications of each cell.
    cells : polars.DataFrame, height K
        Their lines in the table of cells, sorted by `cell`.
    metrics : mapping of str to MetricCounts
        Of each of `METRICS`.
    pairs : mapping of str to PairCounts
        Of each of `METRICS`, with the baseline, of all K cells.
    claims : mapping of str to ClaimCounts
        By `claim_key`.
    """

    n: NDArray[np.int64]
    cells: pl.DataFrame
    metrics: Mapping[str, MetricCounts]
    pairs: Mapping[str, PairCounts]
    claims: Mapping[str, ClaimCounts]


def count(
    rows: pl.DataFrame, cells: pl.DataFrame, counted: Sequence[int], claims: Mapping[str, Claim]
) -> Tally:
    """Count all that is kept of some rows.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters: the same replications of every cell.
    cells : polars.DataFrame
        The lines of these cells in the table of cells.
    counted : sequence of int
        Cells that are counted; the others are baselines, or named by claims.
    claims : mapping of str to Claim
        By a key of each; all that they name is there.

    Returns
    -------
    Tally
        Of the cells in `counted`; of all of the claims, by the same keys.
    """
    (stack,) = stacks(rows, cells)
    numbers = stack.cells["cell"].to_numpy()
    left = np.flatnonzero(np.isin(numbers, counted))
    right = np.searchsorted(numbers, stack.cells["baseline"].to_numpy()[left])
    own = _part(stack, left)
    pairs = {}
    for name, metric in METRICS.items():
        taken = stack.numbers(metric)
        pairs[name] = count_pairs(taken.of(left), taken.of(right))
    return Tally(
        n=np.full(len(left), rows.height // cells.height),
        cells=own.cells,
        metrics={name: count_metric(own, metric) for name, metric in METRICS.items()},
        pairs=pairs,
        claims=dict(zip(claims, count_claims(rows, cells, list(claims.values())), strict=True)),
    )


def _part(stack: Stack, places: NDArray[np.int64]) -> Stack:
    """Some cells of a stack."""
    if len(places) == stack.cells.height:
        return stack
    lines = stack.cells[places]
    rows = stack.rows.filter(pl.col("cell").is_in(lines["cell"].implode()))
    return Stack(lines, np.arange(len(places)), rows)


def added(tallies: Sequence[Tally]) -> Tally:
    """Join the tallies of different replications of the same cells."""
    first = tallies[0]
    if len(tallies) == 1:
        return first
    return Tally(
        n=reduce(add, (tally.n for tally in tallies)),
        cells=first.cells,
        metrics={
            name: _added_metrics([tally.metrics[name] for tally in tallies]) for name in METRICS
        },
        pairs={name: _added_pairs([tally.pairs[name] for tally in tallies]) for name in METRICS},
        claims={key: reduce(add, (tally.claims[key] for tally in tallies)) for key in first.claims},
    )


def _added_metrics(parts: Sequence[MetricCounts]) -> MetricCounts:
    histograms = [part.histogram for part in parts]
    divisors = histograms[0].divisors
    cells = [np.repeat(np.arange(len(divisors)), np.diff(h.offsets)) for h in histograms]
    ratios = [part.ratio for part in parts if part.ratio is not None]
    return MetricCounts(
        from_pairs(
            np.concatenate(cells),
            np.concatenate([h.values for h in histograms]),
            np.concatenate([h.counts for h in histograms]),
            divisors,
        ),
        reduce(add, (part.traffic for part in parts)),
        reduce(add, ratios) if ratios else None,
    )


def _added_pairs(parts: Sequence[PairCounts]) -> PairCounts:
    return PairCounts(
        reduce(add, (part.sums for part in parts)),
        reduce(add, (part.less for part in parts)),
        reduce(add, (part.equal for part in parts)),
        reduce(add, (part.cubes for part in parts)),
        parts[0].left,
        parts[0].right,
    )


# --- tables ---------------------------------------------------------------------------------


def summary_of(
    tally: Tally, published: Sequence[Published] = (), *, controlled: bool = True
) -> pl.DataFrame:
    """The summary of all cells of a tally; see `summarise`."""
    counted = ((METRICS[name], counts) for name, counts in tally.metrics.items())
    return summary(tally.cells, tally.n, counted, published, controlled=controlled)


def comparisons_of(tally: Tally) -> pl.DataFrame:
    """The comparisons of all cells of a tally that are no baselines; see `compare`."""
    numbers, baselines = (tally.cells[name].to_numpy() for name in ("cell", "baseline"))
    chosen = np.flatnonzero(numbers != baselines)
    if chosen.size == 0:
        return COMPARISONS_SCHEMA.to_frame()
    found = {name: comparison(_some_pairs(pairs, chosen)) for name, pairs in tally.pairs.items()}
    keys = {"cell": numbers[chosen], "baseline": baselines[chosen]}
    return as_frame(COMPARISONS_SCHEMA, keys, found)


def _some_pairs(pairs: PairCounts, chosen: NDArray[np.int64]) -> PairCounts:
    return PairCounts(
        pairs.sums[chosen],
        pairs.less[chosen],
        pairs.equal[chosen],
        pairs.cubes[chosen],
        pairs.left[chosen],
        pairs.right[chosen],
    )


# --- as files keep them ---------------------------------------------------------------------


def histograms(tally: Tally) -> pl.DataFrame:
    """The histograms as a table, in the schema of `HISTOGRAMS_SCHEMA`, sorted by all columns.

    The counts of a (cell, metric) add up to the replications: NULL counts, too.
    """
    frames = []
    numbers = tally.cells["cell"].to_numpy()
    for order, name in enumerate(METRICS):
        counted = tally.metrics[name].histogram
        places = np.repeat(np.arange(len(numbers)), np.diff(counted.offsets))
        frame = pl.DataFrame(
            {
                "cell": numbers[places],
                "order": np.full(len(places), order),
                "value": counted.values,
                "count": counted.counts,
            }
        )
        undefined = tally.n - counted.n
        rest = pl.DataFrame(
            {
                "cell": numbers[undefined > 0],
                "order": np.full(np.count_nonzero(undefined), order),
                "value": pl.Series([None] * int(np.count_nonzero(undefined)), dtype=pl.Int64),
                "count": undefined[undefined > 0],
            }
        )
        frames += [rest, frame]
    names = pl.col("order").replace_strict(
        range(len(METRICS)), list(METRICS), return_dtype=pl.String
    )
    together = pl.concat(frames).sort("cell", "order", "value", nulls_last=True)
    return together.select("cell", metric=names, value="value", count="count").cast(
        HISTOGRAMS_SCHEMA
    )


def sums(tally: Tally) -> dict[str, Any]:
    """Everything else, in types that JSON keeps exactly: whole numbers of any size."""
    return {
        "n": tally.n.tolist(),
        "baselines": tally.cells["baseline"].to_list(),
        "traffic": {name: tally.metrics[name].traffic.tolist() for name in METRICS},
        "ratio": {name: _listed(tally.metrics[name].ratio) for name in _RATIOS},
        "pairs": {
            name: [
                [*line, less, equal, third]
                for line, less, equal, third in zip(
                    pairs.sums.tolist(),
                    pairs.less.tolist(),
                    pairs.equal.tolist(),
                    pairs.cubes.tolist(),
                    strict=True,
                )
            ]
            for name, pairs in tally.pairs.items()
        },
        "claims": {
            key: [counted.n, counted.n_holds, counted.links.tolist()]
            for key, counted in tally.claims.items()
        },
    }


def _listed(ratio: Sums | None) -> Any:
    assert ratio is not None, "of a ratio of counters"
    return ratio.tolist()


def restored(
    table: pl.DataFrame, kept: Mapping[str, Any], cells: pl.DataFrame, baselines: pl.DataFrame
) -> Tally:
    """Make the tally again from what was kept of it.

    Parameters
    ----------
    table : polars.DataFrame
        Its `histograms`.
    kept : mapping
        Its `sums`.
    cells, baselines : polars.DataFrame, height K
        The lines of its cells in the table of cells, sorted by `cell`, and those of their
        baselines.

    Returns
    -------
    Tally
        The one of which `histograms` and `sums` were made.
    """
    counted = histograms_of(table, cells, list(METRICS))
    metrics, pairs = {}, {}
    for name, metric in METRICS.items():
        ratio = np.array(kept["ratio"][name], object) if name in _RATIOS else None
        metrics[name] = MetricCounts(counted[name], np.array(kept["traffic"][name], object), ratio)
        lines = np.array(kept["pairs"][name], object).reshape(cells.height, 9)
        pairs[name] = PairCounts(
            lines[:, :6],
            lines[:, 6].astype(np.int64),
            lines[:, 7].astype(np.int64),
            lines[:, 8],
            counted[name].divisors,
            _positive(divisors_of(metric, baselines)),
        )
    return Tally(np.array(kept["n"]), cells, metrics, pairs, claims_of(kept))


def _positive(divisors: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `Stack.numbers` has them: 1 where the metric is undefined."""
    return np.where(divisors > 0, divisors, 1.0)


def some_sums(kept: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The `sums` of some of the cells of a tally, without claims."""

    def chosen(lines: Sequence[Any]) -> list[Any]:
        return [lines[k] for k in places]

    tables = {
        part: {name: chosen(lines) for name, lines in kept[part].items()}
        for part in ("traffic", "ratio", "pairs")
    }
    return tables | {"n": chosen(kept["n"]), "claims": {}}


def claims_of(kept: Mapping[str, Any]) -> dict[str, ClaimCounts]:
    """What the `sums` of a tally say of claims."""
    return {
        key: ClaimCounts(n, n_holds, np.array(links, object))
        for key, (n, n_holds, links) in kept["claims"].items()
    }


def histograms_of(
    table: pl.DataFrame, cells: pl.DataFrame, metrics: Sequence[str]
) -> dict[str, Histogram]:
    """The histogram of some metrics in K cells.

    Parameters
    ----------
    table : polars.DataFrame
        In the schema of `HISTOGRAMS_SCHEMA`; several lines of one value are added.
    cells : polars.DataFrame, height K
        The lines of the cells in the table of cells.
    metrics : sequence of str
        Some of `METRICS`.

    Returns
    -------
    dict of str to Histogram
        By the name of the metric, in the order of `metrics`.
    """
    places = pl.DataFrame({"cell": cells["cell"], "place": np.arange(cells.height)})
    known = table.filter(pl.col("value").is_not_null()).join(places, on="cell")
    by_metric = {name: frame for (name,), frame in known.group_by("metric")}
    found = {}
    for name in metrics:
        part = by_metric.get(name, known.clear())
        place, value, count = (part[column].to_numpy() for column in ("place", "value", "count"))
        divisors = _positive(divisors_of(METRICS[name], cells))
        found[name] = from_pairs(place, value, count, divisors)
    return found
