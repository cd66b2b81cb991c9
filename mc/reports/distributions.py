"""How each headline number is distributed over the seeds, with the published figure marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from mc.model import HEADLINE, METRICS
from mc.reports.style import INK, SERIES, WIDTH, hide_unused, new_figure, plain_numbers, wrapped
from mc.reports.view import MOST_SCENARIOS, View, metric_title
from mc.statistics import with_ratios
from mc.statistics.rows import divisors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SCHEMA: Final = pl.Schema(
    {"cell": pl.Int32(), "metric": pl.String(), "low": pl.Float64(), "high": pl.Float64()}
    | {"replications": pl.Int64()}
)

_BARS: Final = 60
"""Bars of a histogram, at most: more values than that are put together."""


Counted = dict[tuple[int, str], tuple[NDArray[Any], NDArray[np.int64]]]
"""Values of a metric in a cell, ascending, and how many replications have each."""


def counted(view: View) -> Counted:
    """Count the values of all cells that are drawn one by one."""
    wanted = [c for scenario in view.scenarios[:MOST_SCENARIOS] for c in view.chosen(scenario)]
    drawn = view.results.cells.filter(pl.col("cell").is_in(wanted))
    if view.results.keeps_rows:
        rows = view.results.scan().filter(pl.col("cell").is_in(wanted)).collect()
        long = (
            with_ratios(rows, drawn)
            .select("cell", pl.col(HEADLINE).cast(pl.Float64))
            .unpivot(index="cell", variable_name="metric")
            .drop_nulls()
            .group_by("cell", "metric", "value")
            .agg(count=pl.len())
        )
    else:
        long = view.results.histograms.drop_nulls().filter(
            pl.col("cell").is_in(wanted), pl.col("metric").is_in(HEADLINE)
        )
        divisors = {metric: pl.Series(divisors_of(METRICS[metric], drawn)) for metric in HEADLINE}
        per = pl.DataFrame({"cell": drawn["cell"]} | divisors).unpivot(
            index="cell", variable_name="metric", value_name="divisor"
        )
        long = long.join(per, on=["cell", "metric"]).with_columns(
            value=pl.col("value") / pl.col("divisor")
        )
    return {
        (cell, metric): (some["value"].to_numpy(), some["count"].to_numpy().astype(np.int64))
        for (cell, metric), some in long.sort("value").group_by("cell", "metric")
    }


def histograms(view: View, scenario: str, found: Counted) -> pl.DataFrame:
    """Count replications, for each headline number with the same bars in all cells.

    Parameters
    ----------
    view : View
    scenario : str
    found : Counted
        What `counted` gave.

    Returns
    -------
    polars.DataFrame
        A line for each bar that is not empty: `cell`, `metric`, `low` and `high` (its ends, in
        the unit of the metric), `replications`.
    """
    frames = [_SCHEMA.to_frame()]
    for metric in HEADLINE:
        cells = [cell for cell in view.chosen(scenario) if (cell, metric) in found]
        if not cells:
            continue
        every = np.unique(np.concatenate([found[cell, metric][0] for cell in cells]))
        edges = _edges(every, _bar_width(view, cells, metric))
        for cell in cells:
            values, counts = found[cell, metric]
            heights = np.histogram(values, edges, weights=counts)[0].astype(np.int64)
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


def draw_distributions(view: View, scenario: str, table: pl.DataFrame) -> Figure:
    """Draw a panel for each headline number: below one another a histogram for each cell.

    Parameters
    ----------
    view, scenario
        As for `histograms`.
    table : polars.DataFrame
        What `histograms` gave.

    Returns
    -------
    Figure
    """
    chosen = view.chosen(scenario)
    metrics = table["metric"].unique(maintain_order=True).to_list()
    n_columns = 2
    n_rows = -(-len(metrics) // n_columns)
    labels = [wrapped(view.marked(cell), 52) for cell in chosen]
    n_lines = max(label.count("\n") + 1 for label in labels)
    figure = new_figure(WIDTH, 0.5 + n_rows * ((0.38 + 0.15 * n_lines) * len(chosen) + 0.6))
    grid = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    above = 0.38 / (0.38 + 0.15 * n_lines)  # of a row: the histogram, above it the cell's label
    panels = list(grid.ravel())
    hide_unused(panels, len(metrics))
    for metric, panel in zip(metrics, panels, strict=False):
        _panel(view, chosen, metric, table.filter(pl.col("metric") == metric), panel, 0.9 * above)
        for i, label in enumerate(labels):
            panel.annotate(
                label,
                (0.0, i - above),
                xycoords=("axes fraction", "data"),
                va="bottom",
                fontsize=7.5,
                linespacing=1.0,
            ).set_in_layout(False)  # inside the panel; to measure it takes long
        panel.set_yticks([])
    panels[0].set_ylim(len(chosen) - 0.85, -1.0)
    handles: dict[str, Any] = {}
    for panel in panels[: len(metrics)]:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=3)
    return figure


def _panel(
    view: View,
    chosen: list[int],
    metric: str,
    table: pl.DataFrame,
    panel: Axes,
    height: float,
) -> None:
    """One metric: histograms on a common axis, each as high as its row allows."""
    for i, cell in enumerate(chosen):
        color = SERIES[i % len(SERIES)]
        panel.axhline(i, color=color, linewidth=0.5)
        bars = table.filter(pl.col("cell") == cell)
        if bars.height:
            low, high, counts = (bars[name].to_numpy() for name in ("low", "high", "replications"))
            # from each end of a bar to the next; 0 where bars are left out
            x = np.column_stack([low, low, high, high]).ravel()
            y = np.column_stack([0 * counts, counts, counts, 0 * counts]).ravel() / counts.max()
            panel.fill_between(x, i, i - height * y, color=color, alpha=0.55, linewidth=0.3)
            panel.plot(
                view.estimates[cell, metric]["mean"],
                i,
                marker="|",
                color=INK,
                markersize=7,
                markeredgewidth=1.4,
                linestyle="none",
                label="mean",
                zorder=3,
            )
        published = view.estimates[cell, metric]["published"]
        if published is not None:
            panel.plot(
                published,
                i - 0.06,
                marker="D",
                markerfacecolor="none",
                markeredgecolor=INK,
                markeredgewidth=1.3,
                markersize=5.5,
                linestyle="none",
                label="published figure",
                zorder=4,
            )
    panel.set_title(metric_title(metric))
    panel.grid(False, axis="y")
    panel.spines["left"].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    plain_numbers(panel.xaxis)


def _bar_width(view: View, cells: list[int], metric: str) -> float:
    """A width that suits the usual cell: Freedman and Diaconis 1981."""
    widths = [
        2 * (line["p75"] - line["p25"]) / line["n"] ** (1 / 3)
        for line in (view.estimates[cell, metric] for cell in cells)
        if line["n"]
    ]
    return float(np.median([width for width in widths if width > 0] or [0.0]))


def _edges(values: NDArray[Any], width: float) -> NDArray[np.float64]:
    """Edges of bars: whole numbers have whole steps."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        width = max(abs(low) * 1e-3, 0.5 if low == round(low) else 1e-6)
        return np.array([low - width, low + width])
    width = max(width, (high - low) / _BARS)
    if np.all(values == np.round(values)):
        step = max(1, round(width))
        n = int((high - low) // step) + 1
        return np.array(low - 0.5 + step * np.arange(n + 1), np.float64)
    return np.linspace(low, high, max(2, int(np.ceil((high - low) / width)) + 1))
