"""Tallies: all counts of some cells, of which every table is made.

A tally of a range of replications has for each of its cells the histogram of every metric, its sums
with traffic, and its sums with the baseline; and the counts of some claims. Rows become tallies
with `count`; a file of histograms holds one in place of rows. Two tallies of the same cells are
added to give that of both ranges.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import METRICS, Column, schema_of
from mc.statistics.claims import ClaimCounts, count_claim
from mc.statistics.comparisons import (
    COMPARISONS_SCHEMA,
    PairCounts,
    comparison,
    count_pairs,
    mean_has_interval,
)
from mc.statistics.counts import Histogram, Sums, from_pairs
from mc.statistics.estimates import as_frame
from mc.statistics.rows import Numbers, Stack, divisors_of
from mc.statistics.summary import MetricCounts, count_metrics, summary

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
        f"a value, of {' and '.join(_RATES)} the window_calls; NULL where the metric is undefined, "
        "and of a ratio of counters",
    ),
    "quotient": Column("float", "of the metric", f"a value of {' or '.join(_RATIOS)}, else NULL"),
    "count": Column("int64", "replications", "in how many replications the metric has this value"),
}
"""The columns of the histograms, in their order."""

HISTOGRAMS_SCHEMA: Final = schema_of(HISTOGRAMS_COLUMNS)

_IS_DEFINED: Final = pl.col("value").is_not_null() | pl.col("quotient").is_not_null()

DIFFERENCES_SCHEMA: Final = pl.Schema(
    {
        "cell": pl.Int32(),
        "metric": pl.String(),
        "what": pl.String(),
        "stored": pl.String(),  # sums may need more than 64 bits
        "recomputed": pl.String(),
    }
)

COUNTING: Final = 2
"""What is counted, and how. 1 left out what did not come within the run, and rounded ratios."""

SUMS: Final = {
    "traffic": ("n", "x", "a", "b", "xx", "xa", "xb", "aa", "ab", "bb"),
    "ratio": ("n", "x", "y", "xx", "xy", "yy"),
    "pairs": (
        *("n", "x", "y", "xx", "xy", "yy"),
        *("less", "equal", "greater", "compared", "cubes"),
    ),
}
"""Columns of the parts of `sums`: x is the metric (of a ratio its numerator), a and b are the
counters of `TRAFFIC`, y is the baseline (the denominator)."""


def claim_key(claim: Claim) -> str:
    """All that is counted of a claim, which is not its text; `claim_of` is the way back."""
    metrics, cells = list(claim.metrics), list(claim.cells)
    return json.dumps([metrics, claim.relation, cells, claim.value, claim.times, claim.margin])


def claim_of(key: str) -> Claim:
    """The claim of a `claim_key`, without its words."""
    from mc.experiment import Claim

    metrics, relation, cells, value, times, margin = json.loads(key)
    if isinstance(value, list):
        value = tuple(value)
    labels = ("",) * len(cells)
    return Claim("", "", tuple(metrics), relation, tuple(cells), labels, value, times, margin)


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
        Of each metric that the rows have.
    pairs : mapping of str to PairCounts
        The same, with the baseline, of all K cells.
    claims : mapping of str to ClaimCounts
        By `claim_key`.
    """

    n: NDArray[np.int64]
    cells: pl.DataFrame
    metrics: Mapping[str, MetricCounts]
    pairs: Mapping[str, PairCounts]
    claims: Mapping[str, ClaimCounts]


def count(
    stack: Stack,
    counted: Sequence[int] | None = None,
    claims: Mapping[str, Claim] | None = None,
) -> Tally:
    """Count some rows.

    Parameters
    ----------
    stack : Stack
        The same replications of cells, of their baselines, and of all that the claims name.
    counted : sequence of int, optional
        Cells that are counted; the others only serve as baselines, or in claims. Default all.
    claims : mapping of str to Claim, optional
        By `claim_key`.

    Returns
    -------
    Tally
        Of the cells in `counted`; of all of the claims, by the same keys.
    """
    numbers = stack.cells["cell"].to_numpy()
    left = np.arange(len(numbers))
    if counted is not None:
        left = np.flatnonzero(np.isin(numbers, counted))
    baselines = stack.cells["baseline"].to_numpy()[left]
    right = np.searchsorted(numbers, baselines)
    assert np.array_equal(numbers[right], baselines), "a baseline has as many replications"
    own = stack.some(left)
    metrics, pairs = {}, {}
    for metric, numbers_of_own, counts in count_metrics(own):
        metrics[metric.name] = counts
        numbers_of_all = numbers_of_own if own is stack else stack.numbers(metric)
        pairs[metric.name] = _with_baselines(numbers_of_all, left, right, counts.traffic)
    return Tally(
        n=np.full(len(left), stack.n_rows),
        cells=own.cells,
        metrics=metrics,
        pairs=pairs,
        claims={key: count_claim(stack, claim) for key, claim in (claims or {}).items()},
    )


def _with_baselines(
    numbers: Numbers, left: NDArray[np.int64], right: NDArray[np.int64], traffic: Sums
) -> PairCounts:
    """Count one metric in pairs of cells, at the places left and right.

    The sums of a cell with itself are known by its sums with traffic: n, x, a, b, xx, ...
    """
    n = traffic[:, 0].astype(np.int64)
    none = np.zeros(len(left), np.int64)
    pairs = PairCounts(
        traffic[:, [0, 1, 1, 4, 4, 4]],
        none.copy(),
        n.copy(),
        none.copy(),
        n + np.count_nonzero(numbers.later[left], axis=1),
        np.zeros(len(left), object),
        numbers.divisors[left],
        numbers.divisors[right],
    )
    others = np.flatnonzero(left != right)
    if others.size:
        counted = count_pairs(numbers.of(left[others]), numbers.of(right[others]))
        for name in ("sums", "less", "equal", "greater", "compared", "cubes"):
            getattr(pairs, name)[others] = getattr(counted, name)
    return pairs


def added(tallies: Sequence[Tally]) -> Tally:
    """Join the tallies of different replications of the same cells."""
    first = tallies[0]
    if len(tallies) == 1:
        return first
    return Tally(
        n=reduce(add, (tally.n for tally in tallies)),
        cells=first.cells,
        metrics={
            name: _added_metrics([tally.metrics[name] for tally in tallies])
            for name in first.metrics
        },
        pairs={
            name: _added_pairs([tally.pairs[name] for tally in tallies]) for name in first.pairs
        },
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
            np.concatenate([h.values if h.quotients is None else h.quotients for h in histograms]),
            np.concatenate([h.counts for h in histograms]),
            divisors,
        ),
        reduce(add, (part.traffic for part in parts)),
        reduce(add, ratios) if ratios else None,
    )


def _added_pairs(parts: Sequence[PairCounts]) -> PairCounts:
    names = ("sums", "less", "equal", "greater", "compared", "cubes")
    counted = {name: reduce(add, (getattr(part, name) for part in parts)) for name in names}
    return replace(parts[0], **counted)


# --- tables ---------------------------------------------------------------------------------


def summary_of(
    tally: Tally,
    published: Sequence[Published] = (),
    *,
    controlled: bool = True,
) -> pl.DataFrame:
    """The summary of all cells of a tally; see `summary`."""
    counted = ((METRICS[name], counts) for name, counts in tally.metrics.items())
    return summary(tally.cells, tally.n, counted, published, controlled=controlled)


def comparisons_of(tally: Tally) -> pl.DataFrame:
    """The comparisons of all cells of a tally that are no baselines; see `compare`."""
    numbers, baselines = (tally.cells[name].to_numpy() for name in ("cell", "baseline"))
    chosen = np.flatnonzero(numbers != baselines)
    if chosen.size == 0:
        return COMPARISONS_SCHEMA.to_frame()
    columns = {
        name: comparison(
            _some_pairs(pairs, chosen), mean_has_interval(tally.metrics[name].histogram)[chosen]
        )
        for name, pairs in tally.pairs.items()
    }
    keys = {"cell": numbers[chosen], "baseline": baselines[chosen]}
    return as_frame(COMPARISONS_SCHEMA, keys, columns)


def _some_pairs(pairs: PairCounts, chosen: NDArray[np.int64]) -> PairCounts:
    return PairCounts(*(getattr(pairs, field.name)[chosen] for field in fields(pairs)))


# --- as files keep them ---------------------------------------------------------------------


def histograms(tally: Tally) -> pl.DataFrame:
    """The histograms as a table, in the schema of `HISTOGRAMS_SCHEMA`, sorted by all columns.

    The counts of a (cell, metric) add up to the replications: NULL counts, too.
    """
    numbers = tally.cells["cell"].to_numpy()
    counted = [metric.histogram for metric in tally.metrics.values()]
    n_values = np.stack([np.diff(of_metric.offsets) for of_metric in counted], axis=1)
    undefined = tally.n[:, np.newaxis] - np.stack([of_metric.n for of_metric in counted], axis=1)
    n_lines = n_values + (undefined > 0)  # of each cell and metric
    ends = np.cumsum(n_lines).reshape(n_lines.shape)
    value, count = np.empty((2, n_lines.sum()), np.int64)
    quotient, is_quotient = np.zeros(len(value)), np.zeros(len(value), np.bool_)
    is_null = np.zeros(len(value), np.bool_)
    is_null[ends[undefined > 0] - 1] = True
    count[is_null] = undefined[undefined > 0]
    for order, of_metric in enumerate(counted):
        first = ends[:, order] - n_lines[:, order]
        shift = np.repeat(first - of_metric.offsets[:-1], n_values[:, order])
        places = np.arange(len(of_metric.values)) + shift
        value[places], count[places] = of_metric.values, of_metric.counts
        if of_metric.quotients is not None:
            quotient[places], is_quotient[places] = of_metric.quotients, True
    orders = np.tile(np.arange(len(counted)), len(numbers))
    return pl.DataFrame(
        {
            "cell": np.repeat(numbers, n_lines.sum(axis=1)),
            "metric": pl.Series(list(tally.metrics))[np.repeat(orders, n_lines.ravel())],
            "value": pl.Series(value).set(pl.Series(is_null | is_quotient), None),
            "quotient": pl.Series(quotient).set(pl.Series(~is_quotient), None),
            "count": count,
        },
        HISTOGRAMS_SCHEMA,
    )


def sums(tally: Tally) -> dict[str, Any]:
    """Everything else, in types that JSON keeps exactly: whole numbers of any size."""
    return {
        "counting": COUNTING,
        "n": tally.n.tolist(),
        "baselines": tally.cells["baseline"].to_list(),
        "traffic": {name: counted.traffic.tolist() for name, counted in tally.metrics.items()},
        "ratio": {name: _listed(tally.metrics[name].ratio) for name in _RATIOS},
        "pairs": {
            name: [
                [*line, *rest]
                for line, *rest in zip(
                    pairs.sums.tolist(),
                    *(column.tolist() for column in (pairs.less, pairs.equal, pairs.greater)),
                    pairs.compared.tolist(),
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
    table: pl.DataFrame,
    kept: Mapping[str, Any],
    cells: pl.DataFrame,
    baselines: pl.DataFrame,
    names: Sequence[str],
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
    names : sequence of str
        The metrics of the experiment. One that it had not when the tally was made is NULL in
        all of these cells.

    Returns
    -------
    Tally
        The one of which `histograms` and `sums` were made.
    """
    counted = histograms_of(table, cells, names)
    metrics, pairs = {}, {}
    for name in names:
        metric = METRICS[name]
        undefined = np.zeros((cells.height, len(SUMS["traffic"])), object)
        traffic = np.array(kept["traffic"].get(name, undefined), object)
        ratio = np.array(kept["ratio"][name], object) if name in _RATIOS else None
        metrics[name] = MetricCounts(counted[name], traffic, ratio)
        n_sums = len(SUMS["pairs"])
        of_none = np.zeros((cells.height, n_sums), object)
        lines = np.array(kept["pairs"].get(name, of_none), object).reshape(cells.height, n_sums)
        pairs[name] = PairCounts(
            lines[:, :6],
            lines[:, 6].astype(np.int64),
            lines[:, 7].astype(np.int64),
            lines[:, 8].astype(np.int64),
            lines[:, 9].astype(np.int64),
            lines[:, 10],
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
    numbers, lines = cells["cell"].to_numpy(), table["cell"].to_numpy()
    by_number = np.argsort(numbers)
    places = np.searchsorted(numbers, lines, sorter=by_number).clip(max=len(numbers) - 1)
    places = by_number[places]
    is_defined = (table["value"].is_not_null() | table["quotient"].is_not_null()).to_numpy()
    orders = _orders(table["metric"], metrics)
    chosen = (numbers[places] == lines) & is_defined & (orders >= 0)
    by_metric = np.flatnonzero(chosen)
    by_metric = by_metric[np.argsort(orders[by_metric], kind="stable")]
    ends = np.searchsorted(orders[by_metric], np.arange(len(metrics)), side="right")
    count = table["count"].to_numpy()
    values = {name: table[name].fill_null(0).to_numpy() for name in ("value", "quotient")}
    counted = {}
    for name, own in zip(metrics, np.split(by_metric, ends[:-1]), strict=True):
        value = values["quotient" if METRICS[name].per else "value"]
        divisors = _positive(divisors_of(METRICS[name], cells))
        counted[name] = from_pairs(places[own], value[own], count[own], divisors)
    return counted


def _orders(names: pl.Series, metrics: Sequence[str]) -> NDArray[np.int16]:
    """The place of each name among some metrics, -1 if it is none of them."""
    runs = names.rle().struct.unnest()  # a name stands in many lines that follow one another
    order_of = {name: order for order, name in enumerate(metrics)}
    orders = [order_of.get(name, -1) for name in runs["value"].to_list()]
    return np.repeat(np.array(orders, np.int16), runs["len"].to_numpy())


# --- whether what is kept can be right ------------------------------------------------------

_KEYS: Final = ["cell", "metric", "value", "quotient"]


def contradictions(
    table: pl.DataFrame,
    kept: Mapping[str, Any],
    cells: pl.DataFrame,
    baselines: Sequence[int],
    n: int,
) -> Iterator[str]:
    """Where the histograms and the sums of a tally contradict each other.

    Parameters
    ----------
    table : polars.DataFrame
        Its `histograms`.
    kept : mapping
        Its `sums`.
    cells : polars.DataFrame, height K
        The lines of its cells in the table of cells, sorted by `cell`.
    baselines : sequence of int
        What each cell was compared with.
    n : int
        Its replications.

    Yields
    ------
    str
        A contradiction, in words.

    Raises
    ------
    ValueError, LookupError, TypeError, polars.exceptions.PolarsError
        This is not what is kept of a tally at all.
    """
    if kept.get("counting") != COUNTING:
        raise ValueError("counted by another version of this program")
    if table.schema != HISTOGRAMS_SCHEMA:
        raise ValueError(f"columns {', '.join(table.columns)}")
    if table.select(_KEYS).is_duplicated().any() or (table["count"] < 1).any():
        yield "a value stands twice, or never occurs"
    if kept["n"] != [n] * cells.height or kept["baselines"] != list(baselines):
        yield "its sums are not of the cells and replications that its footer names"
    undefined = table.filter(~_IS_DEFINED).select("cell", "metric", "count")
    null = {(cell, metric): count for cell, metric, count in undefined.iter_rows()}
    always = [name for name, metric in METRICS.items() if metric.exists is None]
    names = [name for name in METRICS if name in {*kept["traffic"], *always}]
    for name, own in histograms_of(table, cells, names).items():
        known, first, second = (
            own.sums(terms).tolist()
            for terms in (own.counts, own.counts * own.values, own.counts * own.values**2)
        )
        for k, number in enumerate(cells["cell"].to_list()):
            n_all = known[k] + null.get((number, name), 0)
            moments = known[k], first[k], second[k]
            place = f"cell {number}, {name}"
            if n_all != n:
                yield f"{place}: the counts add up to {n_all:,}, not to {n:,}"
            yield from (
                f"{place}: {fault}"
                for fault in _wrong_sums(kept, name, k, moments, number == baselines[k])
            )
    for key, (n_all, n_holds, _) in kept["claims"].items():
        if not 0 <= n_holds <= n_all <= n:
            yield f"claim {key}: holds in {n_holds:,} of {n_all:,} of {n:,} replications"


def _wrong_sums(
    kept: Mapping[str, Any], name: str, k: int, moments: tuple[int, int, int], alone: bool
) -> Iterator[str]:
    """Where the sums of one metric of the k-th cell contradict its histogram.

    Parameters
    ----------
    kept, name, k
        The `sums` of the tally, the metric, the place of the cell.
    moments : tuple of int
        By its histogram: in how many replications it is defined, sum and sum of squares, these
        modulo 2**64.
    alone : bool
        Whether the cell is its own baseline.
    """
    n = moments[0]
    traffic, pair = (
        dict(zip(SUMS[part], kept[part][name][k], strict=True)) for part in ("traffic", "pairs")
    )
    if not _agree(moments, (traffic["n"], traffic["x"], traffic["xx"])):
        yield "its histogram and its sums with traffic are not of the same values"
    if (
        not pair["n"] <= min(n, pair["compared"])
        or pair["less"] + pair["equal"] + pair["greater"] > pair["compared"]
    ):
        yield "more replications in the comparison than there are"
    elif (alone or pair["n"] == n) and not _agree(moments, (pair["n"], pair["x"], pair["xx"])):
        yield "its histogram and its sums with the baseline are not of the same values"
    if name in kept["ratio"] and kept["ratio"][name][k][0] != n:
        yield "its numerators and denominators are of another number of replications"


def _agree(some: Iterable[int], others: Iterable[int]) -> bool:
    """Whether sums are equal modulo 2**64."""
    return all((a - b) % 2**64 == 0 for a, b in zip(some, others, strict=True))


def differences(table: pl.DataFrame, kept: Mapping[str, Any], tally: Tally) -> pl.DataFrame:
    """What is not the same in the histograms and sums that were kept, and in a tally.

    Returns
    -------
    polars.DataFrame
        In the schema of `DIFFERENCES_SCHEMA`: counts of values, then sums, then claims.
    """
    frames = [DIFFERENCES_SCHEMA.to_frame()]
    made = histograms(tally)
    if not table.equals(made):
        both = table.join(
            made, on=_KEYS, how="full", nulls_equal=True, coalesce=True, suffix="_made"
        ).filter(pl.col("count").ne_missing(pl.col("count_made")))
        numbers = (pl.col(name).cast(pl.String) for name in ("value", "quotient"))
        value = pl.coalesce(*numbers, pl.lit("NULL"))
        frames.append(
            both.sort(_KEYS).select(
                "cell",
                "metric",
                (pl.lit("count of ") + value).alias("what"),
                pl.col("count").fill_null(0).cast(pl.String).alias("stored"),
                pl.col("count_made").fill_null(0).cast(pl.String).alias("recomputed"),
            )
        )
    other_sums = list(_other_sums(kept, sums(tally), tally.cells["cell"].to_list()))
    frames.append(pl.DataFrame(other_sums, DIFFERENCES_SCHEMA, orient="row"))
    return pl.concat(frames)


def _other_sums(
    kept: Mapping[str, Any], made: Mapping[str, Any], numbers: Sequence[int]
) -> Iterator[tuple[int, str, str, str, str]]:
    """Cell, metric, what, stored and recomputed of each sum that is not the same."""
    for part, names in SUMS.items():
        for metric, lines in made[part].items():
            if kept[part][metric] == lines:
                continue
            for number, old, new in zip(numbers, kept[part][metric], lines, strict=True):
                for name, a, b in zip(names, old, new, strict=True):
                    if a != b:
                        yield number, metric, f"{part} {name}", str(a), str(b)
    for key, counted in made["claims"].items():
        if kept["claims"][key] != counted:
            claim, stored = claim_of(key), kept["claims"][key]
            yield claim.cells[0], claim.metrics[0], f"claim {key}", str(stored), str(counted)
