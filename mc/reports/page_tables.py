"""Tables of the page: what stands in each field, and by what it is sorted.

Titles, notes and the heads of most columns are in page.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import polars as pl

from mc.decisions.scorecard import Score
from mc.experiment import CELL_COLUMNS, MAX, cells_of
from mc.model import METRICS, PARAMETERS, units
from mc.model.digits import MIN_REPLICATIONS, has_known_mean, of_runs, percent, range_ends
from mc.reports.notation import (
    NAMES,
    TABLED,
    json_for_page,
    value_text,
    with_error,
)
from mc.reports.scenario import Scenario
from mc.reports.view import View
from mc.statistics import half_width
from mc.store import axis_names

MOST_LINES: Final = 200
"""Lines of a table that are shown at once."""

MOST_HELD: Final = 5_000
"""Lines of a table that a page holds, for its script to search and sort: about a megabyte."""

_COMPARED: Final = ("times_usual", "multiplier", "failed_share")

_MOST_VALUES: Final = 12
"""Values of a parameter that are listed."""


@dataclass(frozen=True)
class Field:
    """One field of a table.

    Attributes
    ----------
    text : str
        What is read.
    value : float or None
        By what it is sorted, if not by the text.
    more : str
        What is read below the text, smaller.
    bar : tuple of float, or None
        A share and the ends of its interval, drawn.
    is_best : bool
        Whether it is surely the best of its column.
    """

    text: str
    value: float | None = None
    more: str = ""
    bar: tuple[float, float, float] | None = None
    is_best: bool = False


Line = tuple[Field, ...]
"""The first field of each line names it."""


@dataclass(frozen=True)
class Table:
    """The lines of a table that a page holds, and how many there are in its file."""

    lines: Sequence[Line]
    n_lines: int

    @property
    def shown(self) -> Sequence[Line]:
        """Those that are shown at first."""
        return self.lines[:MOST_LINES]

    @property
    def others(self) -> str:
        """The others as JSON, for the page's script."""
        others = [[_packed(field) for field in line] for line in self.lines[MOST_LINES:]]
        return json_for_page(others) if others else ""


def _packed(field: Field) -> list[Any]:
    """The attributes of a field, without those at the end that say nothing."""
    text, value, *others = astuple(field)
    attributes = [text, None if value is None else float(f"{value:.8g}"), *others]
    while attributes and not attributes[-1] and attributes[-1] != 0.0:
        attributes.pop()
    return attributes


def _of_texts(lines: Sequence[tuple[str, ...]]) -> Table:
    return Table([tuple(map(Field, line)) for line in lines], len(lines))


def _number(mean: float | None, error: float | None, n: int) -> Field:
    return Field("" if mean is None else _whole(with_error(mean, error, n=n)), mean)


def _four(value: float) -> str:
    """Write a number with four significant digits, never with an exponent where it is large."""
    text = f"{value:.4g}"
    return f"{float(text):,.0f}" if abs(value) >= 10_000 else text


def _whole(text: str) -> str:
    """Forbid a line break inside a number with its error, or inside a range."""
    return text.replace(" ", "\u00a0")


def _mean(view: View, cell: int, metric: str) -> Field:
    """A mean, and the range of nine of ten single runs."""
    line = view.estimate(cell, metric)
    field = _number(line["mean"], half_width(line), line["n"])
    if not has_known_mean(line):
        field = Field(_whole(of_runs(line)))
    if None in (line["p05"], line["p95"]) or line["n"] == 1:
        return field
    span = _whole(f"{_four(line['p05'])} to {_four(line['p95'])}")
    return Field(field.text, field.value, span)


def _share(share: float | None, low: float | None = None, high: float | None = None) -> Field:
    if share is None:
        return Field("")
    ends = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return Field(f"{percent(share)}{ends}", 100 * share)


def _cell(view: View, cell: int) -> Line:
    """Name a cell; its scenario only where there are several."""
    line = view.lines[cell]
    names = [line["scenario"]] if len(view.scenarios) > 1 else []
    return tuple(Field(name) for name in [line["label"], *names])


def missed_mark(line: dict[str, Any]) -> str:
    """Mark a cell that is not as precise as the experiment asks."""
    return " †" if line["stopped_by"] == MAX else ""


def scores(scenario: Scenario) -> Table:
    """The scorecard of a scenario."""
    card, marks, lines = scenario.card, scenario.marks, []
    for line in card.lines:
        mark = marks.get(line.cells[0])
        n = f"{len(line.cells)} equal cells" if len(line.cells) > 1 else ""
        late = f"{percent(line.undecided)} % undecided" if line.undecided else ""
        more = ", ".join(filter(None, (n, late)))
        name = Field(f"{mark}: {line.name}" if mark else line.name, more=more)
        lines.append((name, *map(score_field, line.scores)))
    return Table(lines, len(lines))


def score_heads(scenario: Scenario) -> list[str]:
    """The heads of its columns."""
    return [
        " ".join(column.head.replace("\n", " ").split())
        + (f" ({column.unit})" if column.unit not in ("", "x") else "")
        for column in scenario.card.columns
    ]


def score_field(score: Score | None) -> Field:
    """An entry of the scorecard."""
    if score is None:
        return Field("–")
    share = f" in {percent(score.share)} % of runs" if score.share < 1 else ""
    if not score.is_known:
        share = f" {score.n_of} runs"
    more = ""
    if score.low is not None and not score.low == score.high == score.mean:
        ends = " to ".join(range_ends(score.low, score.high, 3, score.mean))
        more = _whole(f"{ends}{' (95 %)' if score.of_runs else ''}")
    sign = " ± ~" if score.n < MIN_REPLICATIONS else " ± "
    text = _whole(score.text.replace("±", sign)) + share
    return Field(text, score.mean if score.is_known else None, more, None, score.is_best)


def claims(view: View, some: Sequence[dict[str, Any]]) -> Table:
    """Some claims, in how many runs each is true, and by how much."""
    lines = []
    for claim in some[:MOST_HELD]:
        share, low, high = (claim[f"share{end}"] for end in ("", "_low", "_high"))
        known = share is not None and low is not None
        n = claim["n_to_decide"]
        text = _share(share, low, high) if share is not None else Field("")
        scenario = [Field(claim["scenario"])] if len(view.scenarios) > 1 else []
        lines.append(
            (
                Field(claim["text"], more="" if n is None else f"about {n:,} runs decide"),
                *scenario,
                Field(text.text, text.value, "", (share, low, high) if known else None),
                Field(claim["difference"], claim["mean_difference"], claim["names"]),
            )
        )
    return Table(lines, len(some))


def means(view: View, metrics: Sequence[str]) -> Table:
    """Each cell with the means of some metrics."""
    lines = [
        (
            *_cell(view, cell),
            Field(f"{line['replications']:,}{missed_mark(line)}", line["replications"]),
            *(_mean(view, cell, m) for m in metrics),
        )
        for cell, line in list(view.lines.items())[:MOST_HELD]
    ]
    return Table(lines, len(view.lines))


def tails(view: View, metrics: Sequence[str]) -> Table:
    """How bad single runs can be: the worst of each cell, and how often its peak is too much."""
    lines = []
    for cell in list(view.lines)[:MOST_HELD]:
        if view.lines[cell]["replications"] == 1:
            continue
        above = view.estimate(cell, "peak")
        shares = (above[f"share_above_capacity{end}"] for end in ("", "_low", "_high"))
        fields = (_tail(view, cell, metric) for metric in metrics)
        lines.append((*_cell(view, cell), _share(*shares), *fields))
    return Table(lines, len(view.lines))


def _tail(view: View, cell: int, metric: str) -> Field:
    line = view.estimate(cell, metric)
    which = "p01" if METRICS[metric].worst == "low" else "p99"
    worst = _number(line["worst_mean"], half_width(line, "worst_mean"), line["n"])
    far = "" if line[which] is None else _whole(f"{int(which[1:])} %: {_four(line[which])}")
    return Field(worst.text, worst.value, far)


def layers(view: View) -> Table:
    """The calls of each layer of each cell in which several retry."""
    n = len(view.layer_names)
    lines = [
        (
            *_cell(view, cell),
            *(Field(f"{calls:.2f}", calls) for calls in of_layers),
            *[Field("")] * (n - len(of_layers)),
        )
        for cell, of_layers in list(view.calls_by_layer.items())[:MOST_HELD]
    ]
    return Table(lines, len(view.calls_by_layer))


def published(view: View) -> Table:
    """Each published figure beside the mean and the spread of the seeds."""
    figures = view.summary.filter(pl.col("published").is_not_null())
    lines = []
    for line in figures.head(MOST_HELD).iter_rows(named=True):
        p05, p95, percentile = (line[name] for name in ("p05", "p95", "published_percentile"))
        lines.append(
            (
                *_cell(view, line["cell"]),
                Field(line["metric"]),
                Field(f"{line['published']:g}", line["published"]),
                _number(line["mean"], half_width(line), line["n"]),
                Field("" if p05 is None else f"{_four(p05)} to {_four(p95)}", p05),
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
        for line in compared.head(MOST_HELD).iter_rows(named=True)
    ]
    return Table(lines, compared.height)


def metrics(view: View) -> Table:
    """Unit and meaning of every number that the page shows."""
    named = {*view.known(TABLED), *(claim["link_metric"] for claim in view.claims)}
    named |= set(view.summary.drop_nulls("published")["metric"])
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
