"""How each of the metrics shown is distributed over the seeds, with the published figure marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from mc.decisions.scorecard import LEAST_CAPACITY
from mc.model import METRICS, Column
from mc.model.columns import OF_METRIC, schema_of
from mc.reports.panels import Drawing, arrange, legend, new_panels, plain_numbers, wrapped
from mc.reports.scenario import Scenario
from mc.reports.style import INK, SERIES
from mc.statistics import with_ratios
from mc.statistics.rows import divisors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mc.store import Results

SHOWN: Final = ("times_usual", "peak", "dropped", "recovery")
"""What single runs are shown by: the storm, its highest round, who pays, and for how long."""

BAR_COLUMNS: Final = {
    "cell": Column("int32", "", "number of the cell"),
    "metric": Column("text", "", "what is counted"),
    "low": Column("float", OF_METRIC, "left end of a bar"),
    "high": Column("float", OF_METRIC, "right end of the bar"),
    "replications": Column("int64", "replications", "how many have a value in it"),
}
"""Columns of the table that `histograms` makes."""

_SCHEMA: Final = schema_of(BAR_COLUMNS)

_MOST_BARS: Final = 60
"""Bars of a histogram: of more values some share a bar."""

_BESIDE: Final = 10
"""So many times its width is the room on either side of a bar that is alone."""

_BAND: Final = 0.38
_NAME_LINE: Final = 0.15
"""Inches of a histogram, and of a line of the name of its cell, which stands above."""

Counts = dict[tuple[int, str], tuple[NDArray[Any], NDArray[np.int64]]]
"""By cell and metric: the values, ascending, and how many replications have each."""


def count_values(results: Results, numbers: list[int]) -> Counts:
    """Count the values of each of the metrics shown in some cells."""
    cells = results.cells.filter(pl.col("cell").is_in(numbers))
    there = set(results.scan_summary().select("metric").unique().collect().to_series())
    names = [name for name in SHOWN if name in there]
    if all(capacity < LEAST_CAPACITY for capacity in cells["capacity"]):
        names.remove("peak")
    metrics = [METRICS[name] for name in names]
    if results.keeps_rows:
        counters = {name for m in metrics for name in (m.counter, m.per) if name}
        rows = results.scan().filter(pl.col("cell").is_in(numbers))
        values = with_ratios(rows.select("cell", *sorted(counters)).collect(), cells)
        return {
            (cell, metric): np.unique(known.to_numpy(), return_counts=True)
            for (cell,), some in values.group_by("cell")
            for metric in names
            if len(known := some[metric].drop_nulls().cast(pl.Float64))
        }
    divisors = {
        m.name: dict(zip(cells["cell"], divisors_of(m, cells), strict=True))
        for m in metrics
        if not m.per
    }
    number = pl.coalesce(pl.col("value").cast(pl.Float64), "quotient")
    counted = (
        results.histograms.select("cell", "metric", "count", value=number)
        .drop_nulls()
        .filter(pl.col("cell").is_in(numbers), pl.col("metric").is_in(names))
    )
    return {
        (cell, metric): (
            # a ratio of counters is kept as the quotient that it is
            bars["value"].to_numpy() / (divisors[metric][cell] if metric in divisors else 1.0),
            bars["count"].to_numpy(),
        )
        for (cell, metric), bars in counted.sort("value").group_by("cell", "metric")
    }


def histograms(scenario: Scenario, counts: Counts) -> pl.DataFrame:
    """Put the values of each of the metrics shown into the same bars for all cells that are drawn.

    Returns
    -------
    polars.DataFrame
        A line for each bar that is not empty, with `BAR_COLUMNS`.
    """
    frames = [_SCHEMA.to_frame()]
    for metric in SHOWN:
        cells = [cell for cell in scenario.chosen if (cell, metric) in counts]
        if not cells:
            continue
        counted = [counts[cell, metric] for cell in cells]
        every = np.unique(np.concatenate([values for values, _ in counted]))
        edges = _edges(every, _bar_width(counted))
        for cell in cells:
            values, weights = counts[cell, metric]
            heights = np.histogram(values, edges, weights=weights)[0].astype(np.int64)
            bars = np.flatnonzero(heights)
            columns = {
                "cell": np.full(bars.size, cell, np.int32),
                "metric": [metric] * bars.size,
                "low": edges[bars],
                "high": edges[bars + 1],
                "replications": heights[bars],
            }
            frames.append(pl.DataFrame(columns, _SCHEMA))
    return pl.concat(frames)


def _bar_width(counted: list[tuple[NDArray[Any], NDArray[np.int64]]]) -> float:
    """A width that suits the usual cell: Freedman and Diaconis 1981."""
    widths = []
    for values, weights in counted:
        # of the values that are drawn: where a run never recovers, the quartiles of all may lie
        # beyond the run
        low, high = np.quantile(values, (0.25, 0.75), weights=weights, method="inverted_cdf")
        widths.append(2 * (high - low) / weights.sum() ** (1 / 3))
    return float(np.median([width for width in widths if width > 0] or [0.0]))


def _edges(values: NDArray[Any], width: float) -> NDArray[np.float64]:
    """Edges of bars; those of whole numbers are whole numbers apart."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        width = max(abs(low) * 1e-3, 0.5 if low == round(low) else 1e-6)
        return np.array([low - width, low + width])
    width = max(width, (high - low) / _MOST_BARS)
    if np.all(values == np.round(values)):
        step = max(1, round(width))
        n = int((high - low) // step) + 1
        return np.array(low - 0.5 + step * np.arange(n + 1), np.float64)
    return np.linspace(low, high, max(2, int(np.ceil((high - low) / width)) + 1))


# --- drawing --------------------------------------------------------------------------------------


def draw_distributions(scenario: Scenario, table: pl.DataFrame) -> Drawing:
    """Draw a panel for each of the metrics shown: a histogram for each cell, from `histograms`."""
    chosen = scenario.chosen
    metrics = table["metric"].unique(maintain_order=True).to_list()
    names = [wrapped(scenario.marked(cell), 52) for cell in chosen]
    row = _BAND + _NAME_LINE * max(name.count("\n") + 1 for name in names)
    panels = new_panels(list(map(scenario.view.title, metrics)), 3.4, row * (len(chosen) + 0.1))
    bars = dict(table.group_by("metric", "cell"))
    for metric, panel in zip(metrics, panels, strict=True):
        beside: Any = panel.get_yaxis_transform()
        name_look: Any = {"transform": beside, "va": "bottom", "fontsize": 7.5, "linespacing": 1.0}
        for y, name in enumerate(names):
            panel.text(0.0, y - _BAND / row, name, **name_look)
        known = [(y, cell) for y, cell in enumerate(chosen) if (metric, cell) in bars]
        factor, high = scenario.view.factor(metric), 0.9 * _BAND / row
        outlines = [_outline(bars[metric, cell], factor, y, high) for y, cell in known]
        color = SERIES[0]
        look: Any = {"facecolors": color, "edgecolors": color, "alpha": 0.55, "linewidths": 0.3}
        panel.add_collection(PolyCollection(outlines, **look))
        grounds = [[(0, y), (1, y)] for y in range(len(chosen))]
        look = {"colors": color, "linewidths": 0.5, "transform": beside}
        panel.add_collection(LineCollection(grounds, **look), autolim=False)
        _draw_marks(panel, [scenario.view.estimate(cell, metric) for cell in chosen])
        panel.autoscale_view()
        panel.set_ylim(len(chosen) - 0.9, -1.0)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
        _write_values(panel, table.filter(pl.col("metric") == metric), factor)
    return arrange(panels, 3, legend(panels, 3))


def _write_values(panel: Axes, bars: pl.DataFrame, factor: float) -> None:
    """Write numbers below the bars; where all have one value, it alone, below a narrow bar.

    A bar as wide as the panel would look like a spread of values that there is not.
    """
    panel.xaxis.set_major_locator(MaxNLocator(5))
    ends = bars.select("low", "high").unique() * factor
    if ends.height == 1:
        [(low, high)] = ends.iter_rows()
        panel.set_xlim(low - _BESIDE * (high - low), high + _BESIDE * (high - low))
        panel.set_xticks([(low + high) / 2])
    plain_numbers(panel.xaxis)


def _outline(bars: pl.DataFrame, factor: float, y: int, height: float) -> list[tuple[float, float]]:
    """Outline of a histogram that stands on a line, its highest bar of the given height."""
    low, high, counts = (bars[name].to_numpy() for name in ("low", "high", "replications"))
    # from each end of a bar to the next; 0 where bars are left out
    x = factor * np.column_stack([low, low, high, high]).ravel()
    shares = np.column_stack([0 * counts, counts, counts, 0 * counts]).ravel() / counts.max()
    return list(zip(x, y - height * shares, strict=True))


def _draw_marks(panel: Axes, estimates: list[dict[str, Any]]) -> None:
    """On each line the mean, and the published figure if there is one."""
    stroke: Any = {"marker": "|", "markersize": 7, "markeredgewidth": 1.4}
    diamond: Any = {
        "marker": "D",
        "markersize": 5.5,
        "markeredgewidth": 1.3,
        "markerfacecolor": "none",
    }
    for column, label, above, look in (
        ("mean", "mean", 0.0, stroke),
        ("published", "published figure", 0.06, diamond),
    ):
        points = [(e[column], y - above) for y, e in enumerate(estimates) if e[column] is not None]
        if points:
            x, y = zip(*points, strict=True)
            panel.plot(x, y, color=INK, linestyle="none", label=label, zorder=3, **look)
