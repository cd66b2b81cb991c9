"""Tables of the page: what stands in each field, and by what it is sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.model import MEANINGS
from mc.reports.answer import percent, with_error
from mc.reports.view import HEADLINE, View, half_width, metric_title

MOST_LINES: Final = 200
"""Lines of a table: a page of all cells of a large sweep would not open."""

_COMPARED: Final = ("window_rate", "multiplier", "dropped")


@dataclass(frozen=True)
class Field:
    """One field of a table.

    Attributes
    ----------
    text : str
        What is read.
    value : float or None
        By what it is sorted, if not by the text.
    """

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """A table of the page.

    Attributes
    ----------
    title, note : str
        What it is; what has to be said of it.
    columns : tuple of (str, bool)
        Heads, and whether the column holds numbers.
    lines : tuple of tuple of Field
        The first field of each names the line.
    n_lines : int
        How many there are in the file.
    data : str
        The file, relative to the results folder.
    """

    title: str
    note: str
    columns: tuple[tuple[str, bool], ...]
    lines: tuple[tuple[Field, ...], ...]
    n_lines: int
    data: str


def tables(view: View) -> list[Table]:
    """Make all tables that are not empty."""
    made = [_claims(view), _summary(view), _published(view), _comparisons(view)]
    return [table for table in made if table.lines]


def _number(mean: float | None, error: float | None = None) -> Field:
    return Field("" if mean is None else with_error(mean, error), mean)


def _share(share: float | None, low: float | None = None, high: float | None = None) -> Field:
    if share is None:
        return Field("")
    ends = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return Field(f"{percent(share)}{ends}", share)


def _where(view: View, cell: int) -> list[Field]:
    """Name a cell; its scenario only where there are several."""
    line = view.lines[cell]
    names = [line["scenario"]] if len(view.scenarios) > 1 else []
    return [Field(name) for name in [line["label"], *names]]


def _heads(view: View, *heads: tuple[str, bool]) -> tuple[tuple[str, bool], ...]:
    names = ["cell", *(["scenario"] if len(view.scenarios) > 1 else [])]
    return (*((name, False) for name in names), *heads)


def _claims(view: View) -> Table:
    claims = view.results.claims
    lines = [
        (
            Field(line["text"]),
            Field(line["scenario"]),
            Field(line["verdict"] or ""),
            Field(line["on_average"] or ""),
            _share(line["share"], line["share_low"], line["share_high"]),
            Field(f"{line['left']} − {line['right']}"),
            _number(line["mean_difference"], half_width(line)),
            Field(MEANINGS[line["link_metric"]][0] or "1"),
        )
        for line in claims.head(MOST_LINES).to_dicts()
    ]
    columns = (
        ("claim", False),
        ("scenario", False),
        ("verdict", False),
        ("on average", False),
        ("holds in % (95 % interval)", True),
        ("weakest link", False),
        ("mean difference", True),
        ("unit", False),
    )
    return Table(
        "Claims",
        "A claim holds if the interval of its share lies above 95 %, fails if below 5 %, else it "
        "depends on the seed, or is open if it held in all or none of too few replications; for "
        "the verdict the intervals are so wide that all hold together, "
        "here each stands for itself. On average: whether the mean difference of every link lies "
        "in the claimed direction. A claim about several comparisons is as strong as its weakest "
        "link.",
        columns,
        tuple(lines),
        claims.height,
        "claims.parquet",
    )


def _summary(view: View) -> Table:
    metrics = [m for m in HEADLINE if any(view.mean(c, m) is not None for c in view.lines)]
    lines = [
        (
            *_where(view, cell),
            Field(f"{line['replications']:,}", line["replications"]),
            Field(str(line["max_attempts"]), line["max_attempts"]),
            *(_number(view.mean(cell, m), view.half_width(cell, m)) for m in metrics),
        )
        for cell, line in _first(view)
    ]
    heads = [
        ("replications", True),
        ("max_attempts", True),
        *((metric_title(m), True) for m in metrics),
    ]
    return Table(
        "Means",
        "Mean over replications ± half-width of its 95 % interval, each alone. Quantiles and all "
        "other metrics are in the file.",
        _heads(view, *heads),
        tuple(lines),
        view.cells.height,
        "summary.parquet",
    )


def _first(view: View) -> Iterator[tuple[int, dict[str, Any]]]:
    return iter(list(view.lines.items())[:MOST_LINES])


def _published(view: View) -> Table:
    figures = view.results.summary.filter(pl.col("published").is_not_null())
    lines = [
        (
            *_where(view, line["cell"]),
            Field(line["metric"]),
            Field(f"{line['published']:g}", line["published"]),
            _number(line["mean"], half_width(line)),
            _quantiles(line),
            Field(
                ""
                if line["published_percentile"] is None
                else f"{line['published_percentile']:.1f}",
                line["published_percentile"],
            ),
        )
        for line in figures.head(MOST_LINES).to_dicts()
    ]
    heads = (
        ("metric", False),
        ("published", True),
        ("mean", True),
        ("5 % to 95 %", True),
        ("percentile", True),
    )
    return Table(
        "Published figures",
        "Percentile: replications below the published figure, in %; those equal to it as printed "
        "count half.",
        _heads(view, *heads),
        tuple(lines),
        figures.height,
        "summary.parquet",
    )


def _quantiles(line: dict[str, Any]) -> Field:
    if line["p05"] is None:
        return Field("")
    return Field(f"{line['p05']:.5g} to {line['p95']:.5g}", line["p05"])


def _comparisons(view: View) -> Table:
    compared = view.results.comparisons.filter(
        pl.col("metric").is_in(list(_COMPARED)), pl.col("mean_difference").is_not_null()
    )
    lines = [
        (
            *_where(view, line["cell"]),
            Field(view.lines[line["baseline"]]["label"]),
            Field(line["metric"]),
            _number(line["mean_difference"], half_width(line)),
            *(_share(line[f"share_{name}"]) for name in ("less", "equal", "greater")),
        )
        for line in compared.head(MOST_LINES).to_dicts()
    ]
    heads = (
        ("baseline", False),
        ("metric", False),
        ("mean difference", True),
        ("less, %", True),
        ("equal, %", True),
        ("greater, %", True),
    )
    return Table(
        "Differences from the baseline",
        "Paired: the difference within each replication, which has the same traffic and the same "
        "luck in both cells; then its mean ± half-width of the 95 % interval, and the share of "
        "replications in which the cell is below, equal to or above its baseline.",
        _heads(view, *heads),
        tuple(lines),
        compared.height,
        "comparisons.parquet",
    )


def making(view: View) -> Sequence[tuple[str, str]]:
    """How the results were made: what the manifest says."""
    manifest = view.results.manifest
    source = view.source
    seeds = source["seeds"]
    drawn = str(manifest["seed"]) if seeds is None else ", ".join(map(str, seeds[:10]))
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    precision = source["precision"]
    entries = [
        ("command", f"retrystorm run {manifest['file']}"),
        ("generator", manifest["generator"]),
        ("seed" if seeds is None else "seeds", drawn + (" ..." if len(seeds or ()) > 10 else "")),
        ("cells", f"{manifest['n_cells']:,}"),
        ("rows", f"{manifest['n_rows']:,}"),
        (
            "replications",
            f"{manifest['replications']:,} of each cell"
            if precision is None
            else f"up to {manifest['replications']:,}, until "
            + ", ".join(
                f"{name} {value}" for name, value in precision.items() if value is not None
            ),
        ),
        ("baseline", source.get("baseline") or ""),
        ("versions", versions),
        ("started", manifest["started"]),
        ("took", f"{manifest['seconds']:.1f} s on {manifest['jobs']} threads"),
        ("experiment", f"SHA-256 {manifest['experiment_sha256']}"),
    ]
    return [(name, text) for name, text in entries if text]
