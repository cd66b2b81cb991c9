"""Tables of the page: what stands in each field, and by what it is sorted.

Titles, notes and the heads of the columns are in page.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.experiment import CELL_COLUMNS, MAX, cells_of
from mc.model import METRICS, PARAMETERS, units
from mc.reports.notation import NAMES, percent, value_text, with_error
from mc.reports.scenario import Scenario
from mc.reports.view import View
from mc.statistics import half_width
from mc.store import axis_names

MOST_LINES: Final = 200
"""Lines of a table: a page of all cells of a large sweep would not open."""

_COMPARED: Final = ("window_rate", "multiplier", "dropped")

_MOST_VALUES: Final = 12
"""Values of a parameter that are listed."""


@dataclass(frozen=True)
class Field:
    """One field of a table: what is read, and by what it is sorted, if not by that."""

    text: str
    value: float | None = None


Line = tuple[Field, ...]
"""The first field of each line names it."""


@dataclass(frozen=True)
class Table:
    """The lines of a table that are shown, and how many there are in its file."""

    lines: Sequence[Line]
    n_lines: int


def _of_texts(lines: Sequence[tuple[str, ...]]) -> Table:
    return Table([tuple(map(Field, line)) for line in lines], len(lines))


def _number(mean: float | None, error: float | None, n: int) -> Field:
    return Field("" if mean is None else with_error(mean, error, n=n), mean)


def _mean(view: View, cell: int, metric: str, *, ranged: bool = False) -> Field:
    """A mean; if `ranged` with the range of nine of ten single runs."""
    line = view.estimates[cell, metric]
    field = _number(line["mean"], half_width(line), line["n"])
    if not ranged or None in (line["p05"], line["p95"]) or line["n"] == 1:
        return field
    return Field(f"{field.text} ({line['p05']:.4g} to {line['p95']:.4g})", field.value)


def _share(share: float | None, low: float | None = None, high: float | None = None) -> Field:
    if share is None:
        return Field("")
    ends = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return Field(f"{percent(share)}{ends}", share)


def _attempts(line: dict[str, Any]) -> Field:
    return Field(str(line["max_attempts"]), line["max_attempts"])


def _cell(view: View, cell: int) -> Line:
    """Name a cell; its scenario only where there are several."""
    line = view.lines[cell]
    names = [line["scenario"]] if len(view.scenarios) > 1 else []
    return tuple(Field(name) for name in [line["label"], *names])


def missed_mark(line: dict[str, Any]) -> str:
    """Mark a cell that is not as precise as the experiment asks."""
    return " †" if line["stopped_by"] == MAX else ""


def claims(view: View) -> Table:
    """Each claim with its verdict."""
    lines = [
        (
            *(Field(claim[name] or "") for name in ("text", "scenario", "verdict", "on_average")),
            _share(claim["share"], claim["share_low"], claim["share_high"]),
            Field(claim["names"]),
            Field(claim["difference"], claim["mean_difference"]),
        )
        for claim in view.claims[:MOST_LINES]
    ]
    return Table(lines, len(view.claims))


def means(view: View) -> Table:
    """Each cell with the means of the headline numbers."""
    lines = [
        (
            *_cell(view, cell),
            Field(f"{line['replications']:,}{missed_mark(line)}", line["replications"]),
            _attempts(line),
            *(_mean(view, cell, m, ranged=True) for m in view.metrics),
        )
        for cell, line in list(view.lines.items())[:MOST_LINES]
    ]
    return Table(lines, len(view.lines))


def tails(view: View) -> Table:
    """How bad single runs can be: the worst of each cell, and how often its peak is too much."""
    lines = []
    for cell in list(view.lines)[:MOST_LINES]:
        if view.lines[cell]["replications"] == 1:
            continue
        above = view.estimates[cell, "peak"]
        fields = []
        for metric in view.metrics:
            line = view.estimates[cell, metric]
            fields.append(_number(line["worst_mean"], half_width(line, "worst_mean"), line["n"]))
            fields.append(_number(line["p01" if _is_low(metric) else "p99"], None, line["n"]))
        shares = (above[f"share_above_capacity{end}"] for end in ("", "_low", "_high"))
        lines.append((*_cell(view, cell), _share(*shares), *fields))
    return Table(lines, len(view.lines))


def tail_heads(view: View) -> list[str]:
    """The heads of the columns of `tails` that are numbers of a metric."""
    heads = []
    for metric in view.metrics:
        quantile = "1 % quantile" if _is_low(metric) else "99 % quantile"
        heads += [f"{view.title(metric)}: worst 5 %", quantile]
    return heads


def _is_low(metric: str) -> bool:
    """Whether small values of a metric are bad news."""
    return METRICS[metric].worst == "low"


def layers(view: View) -> Table:
    """The calls of each layer of each cell in which several retry."""
    n = len(view.layer_names)
    lines = [
        (
            *_cell(view, cell),
            *(Field(f"{calls:.2f}", calls) for calls in of_layers),
            *[Field("")] * (n - len(of_layers)),
        )
        for cell, of_layers in list(view.calls_by_layer.items())[:MOST_LINES]
    ]
    return Table(lines, len(view.calls_by_layer))


def frontier_metrics(scenario: Scenario) -> list[str]:
    """The metrics in the table of a frontier."""
    strain = scenario.strain
    return ["dropped", strain, *(["times_usual"] if strain == "window_rate" else [])]


def frontier(scenario: Scenario) -> Table:
    """What there is to choose from in a sweep: cells that have a letter, and the baseline."""
    view, lines = scenario.view, []
    for cell in dict.fromkeys((*scenario.marks, scenario.baseline)):
        if cell is None:
            continue
        line, n = view.lines[cell], scenario.n_like(cell)
        notes = ["baseline"] if cell == scenario.baseline else []
        notes += [f"and {n:,} with the same means"] if n else []
        note = f" ({', '.join(notes)})" if notes else ""
        numbers = (_mean(view, cell, metric) for metric in frontier_metrics(scenario))
        name = Field(scenario.marked(cell) + missed_mark(line) + note)
        lines.append((name, Field(scenario.on_frontier(cell)), *numbers, _attempts(line)))
    return Table(lines, len(lines))


def published(view: View) -> Table:
    """Each published figure beside the mean and the spread of the seeds."""
    figures = view.summary.filter(pl.col("published").is_not_null())
    lines = []
    for line in figures.head(MOST_LINES).iter_rows(named=True):
        p05, p95, percentile = (line[name] for name in ("p05", "p95", "published_percentile"))
        lines.append(
            (
                *_cell(view, line["cell"]),
                Field(line["metric"]),
                Field(f"{line['published']:g}", line["published"]),
                _number(line["mean"], half_width(line), line["n"]),
                Field("" if p05 is None else f"{p05:.5g} to {p95:.5g}", p05),
                Field("" if percentile is None else f"{percentile:.1f}", percentile),
            )
        )
    return Table(lines, figures.height)


def _named(view: View, metric: str) -> str:
    """Name a metric as its column is named, with the unit where it is not that of the column."""
    unit = view.unit(metric)
    return metric if unit == METRICS[metric].unit else f"{metric}, {unit}"


def differences(view: View) -> Table:
    """Each cell compared with its baseline."""
    compared = view.comparisons.filter(
        pl.col("metric").is_in(_COMPARED), pl.col("mean_difference").is_not_null()
    )
    lines = [
        (
            *_cell(view, line["cell"]),
            Field(view.lines[line["baseline"]]["label"]),
            Field(_named(view, line["metric"])),
            _number(line["mean_difference"], half_width(line), line["n"]),
            *(_share(line[f"share_{name}"]) for name in ("less", "equal", "greater")),
        )
        for line in compared.head(MOST_LINES).iter_rows(named=True)
    ]
    return Table(lines, compared.height)


def metrics(view: View) -> Table:
    """Unit and meaning of every number that the page shows."""
    named = {*view.metrics, *(claim["link_metric"] for claim in view.claims)}
    named |= set(view.results.summary.drop_nulls("published")["metric"])
    attempts = CELL_COLUMNS["max_attempts"]
    return _of_texts(
        [
            *(
                (NAMES.get(name, name), view.unit(name) or "1", metric.meaning)
                for name, metric in METRICS.items()
                if name in named
            ),
            ("max_attempts", attempts.unit, attempts.meaning),
            ("replications", "1", "independent runs of a cell"),
            ("±", "of the number", "half-width of the 95 % interval of a mean"),
        ]
    )


def _has_unit(view: View, name: str) -> bool:
    """Whether the values of a parameter are written with a unit that suits them."""
    return view.per_second is not None and PARAMETERS[name].dimension is not None


def _value_text(view: View, name: str, value: Any) -> str:
    parameter = PARAMETERS[name]
    if view.per_second is None or not _has_unit(view, name):
        return value_text(parameter.kind.to_column(value))
    return units.text_of(parameter.dimension, value, view.per_second, parameter.unit)


def parameters(view: View) -> Table:
    """Every parameter with its values, whether the file gives them or not."""
    source = view.source
    groups = [source["fixed"], *source["scenario"], *source["policy"]]
    in_file = {name for group in groups for name in group}
    in_file |= set(axis_names(view.results.manifest))
    lines = []
    cells = cells_of(view.results.cells).values()  # the table may be older than a parameter
    for name, parameter in PARAMETERS.items():
        values = list(dict.fromkeys(getattr(cell, name) for cell in cells))
        texts = ", ".join(_value_text(view, name, value) for value in values[:_MOST_VALUES])
        more = f" and {len(values) - _MOST_VALUES:,} more" if len(values) > _MOST_VALUES else ""
        origin = "" if name in in_file else "default"
        unit = "" if _has_unit(view, name) else parameter.unit
        lines.append((name, texts + more, unit, parameter.meaning, origin))
    return _of_texts(lines)
