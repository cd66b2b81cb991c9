"""Tables of the page: what stands in each field, and by what it is sorted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.experiment import MAX
from mc.model import HEADLINE
from mc.reports.view import View, metric_title
from mc.reports.words import link, percent, with_error
from mc.statistics import half_width

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
            Field(link(view, line)[0]),
            Field(link(view, line)[1], line["mean_difference"]),
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
        ("mean difference, or mean", True),
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
            Field(f"{line['replications']:,}{_missed(line)}", line["replications"]),
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
        "other metrics are in the file." + _missed_note(view),
        _heads(view, *heads),
        tuple(lines),
        view.cells.height,
        "summary.parquet",
    )


def _missed(line: dict[str, Any]) -> str:
    """Mark a cell that is not as precise as asked."""
    return " †" if line["stopped_by"] == MAX else ""


def _missed_note(view: View) -> str:
    missed = any(map(_missed, view.lines.values()))
    return " †: not as precise as asked." if missed else ""


def frontier(view: View, scenario: str) -> Table:
    """What there is to choose from in a sweep: cells on the frontier, and the baseline."""
    marks = view.marks(scenario)
    strain = view.strain(scenario)
    metrics = ["dropped", strain, *(["times_usual"] if strain == "window_rate" else [])]
    baseline = view.baseline(scenario)
    cells = [*marks, *([] if baseline is None or baseline in marks else [baseline])]
    lines = [
        (
            Field(_frontier_label(view, cell, baseline)),
            *(_number(view.mean(cell, m), view.half_width(cell, m)) for m in metrics),
            Field(str(view.lines[cell]["max_attempts"]), view.lines[cell]["max_attempts"]),
        )
        for cell in cells
    ]
    return Table(
        f"Frontier of {scenario}",
        "From the lowest strain to the highest; letters as in the figures. Neighbours whose "
        "intervals overlap may stand in the other order."
        + (_missed_note(view) if any(_missed(view.lines[cell]) for cell in cells) else ""),
        (
            ("cell", False),
            *((metric_title(metric), True) for metric in metrics),
            ("max_attempts", True),
        ),
        tuple(lines),
        len(lines),
        "summary.parquet",
    )


def _frontier_label(view: View, cell: int, baseline: int | None) -> str:
    line, n = view.lines[cell], view.n_like(cell)
    notes = ["baseline"] if cell == baseline else []
    notes += [f"and {n:,} with the same means"] if n else []
    return f"{view.marked(cell)}{_missed(line)}" + (f" ({', '.join(notes)})" if notes else "")


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
