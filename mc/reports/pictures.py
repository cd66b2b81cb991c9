"""Which figures a results folder gets, with their captions and alternative texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from mc.model import METRICS
from mc.reports.distributions import counted, draw_distributions, histograms
from mc.reports.forest import MOST_CLAIMS, draw_claims
from mc.reports.frontier import draw_frontier
from mc.reports.maps import draw_heat, heat_axes, heat_note
from mc.reports.parts import Part, name_parts, parts
from mc.reports.storm import curves, draw_curves
from mc.reports.style import short, style, written
from mc.reports.sweeps import draw_design, draw_lines, sweep_metrics
from mc.reports.view import MOST_SCENARIOS, NAMES, View, metric_title
from mc.reports.words import with_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STORM_DATA: Final = "figures/storm.parquet"
SPREAD_DATA: Final = "figures/distribution.parquet"


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn and written.

    Attributes
    ----------
    name : str
        Of its files, without an ending.
    section : str
        Under which heading it stands.
    title, caption, alt : str
        What it is, how to read it, and what it shows to whom it cannot be shown.
    data : str
        The file that it is made from, relative to the results folder.
    svg : str
    png : bytes
    parts : list of Part
        Its panels, which stand one by one on the page; none where it is only read as a whole.
    """

    name: str
    section: str
    title: str
    caption: str
    alt: str
    data: str
    svg: str
    png: bytes
    parts: list[Part]


STORM: Final = "The storm"
SWEEP: Final = "The sweep"
TRADE: Final = "Drops against calls"
CLAIMS: Final = "Claims"
SPREAD: Final = "Why one seed is not enough"


def storm_tables(view: View) -> dict[str, pl.DataFrame]:
    """Make the storm curves of each scenario that is drawn, by its name."""
    return {scenario: curves(view, scenario) for scenario in view.scenarios[:MOST_SCENARIOS]}


def spread_tables(view: View) -> dict[str, pl.DataFrame]:
    """Make the histograms of each scenario that is drawn, by its name; none of one replication."""
    if view.cells["replications"].max() == 1:
        return {}
    found = counted(view)
    return {
        scenario: histograms(view, scenario, found) for scenario in view.scenarios[:MOST_SCENARIOS]
    }


def pictures(
    view: View, storms: Mapping[str, pl.DataFrame], spreads: Mapping[str, pl.DataFrame]
) -> Iterator[Picture]:
    """Draw all figures, one after the other."""
    with style():
        for number_, scenario in enumerate(storms, 1):
            yield _storm(view, scenario, storms[scenario], f"storm-{number_}")
        for number_, scenario in enumerate(storms, 1):
            yield from _sweep(view, scenario, number_)
        if view.cells.height > 2:
            yield _frontier(view, list(storms))
        yield from _claims(view)
        for number_, scenario in enumerate(spreads, 1):
            yield _spread(view, scenario, spreads[scenario], f"distribution-{number_}")


def _picture(figure: Figure, name: str, section: str, title: str, *texts: str) -> Picture:
    caption, alt, data = texts
    name_parts(figure)
    svg, png = written(figure)
    pieces = [] if section == CLAIMS else parts(figure)  # the claims' names stand left of both
    return Picture(name, section, title, " ".join(caption.split()), alt, data, svg, png, pieces)


def _of(view: View, scenario: str) -> str:
    """The scenario as a title has it."""
    return (
        scenario
        if len(view.scenarios) > 1 or scenario != "default"
        else view.results.manifest["title"]
    )


def _some_scenarios(view: View) -> str:
    n = len(view.scenarios)
    return f"The first {MOST_SCENARIOS} of {n} scenarios are drawn." if n > MOST_SCENARIOS else ""


def _storm(view: View, scenario: str, table: pl.DataFrame, name: str) -> Picture:
    n, step = table["replications"][0], table["rounds"][0]
    highest = (
        table.group_by("cell", maintain_order=True)
        .agg(pl.col("median").max(), pl.col("high_95").max())
        .to_dicts()
    )
    peaks = "; ".join(f"{view.marked(line['cell'])} {short(line['median'])}" for line in highest)
    if n > 1:
        how = (
            f"Line: median over {n} replications; bands: the middle 50 % and 95 % of them in each "
            "step. "
        )
    else:
        how = "One replication. "
    averaged = (
        f"Each step is the mean of {step} rounds, so single peaks are higher. " if step > 1 else ""
    )
    caption = f"{how}{averaged}{view.choice_note(scenario)} {_some_scenarios(view)}"
    alt = f"Calls per round over time. Highest median: {peaks} calls per round."
    return _picture(
        draw_curves(view, scenario, table),
        name,
        STORM,
        _of(view, scenario),
        caption,
        alt,
        STORM_DATA,
    )


def _sweep(view: View, scenario: str, number_: int) -> Iterator[Picture]:
    metrics = sweep_metrics(view, scenario)
    known = [
        m for m in metrics if any(view.mean(c, m) is not None for c in view.in_scenario(scenario))
    ]
    alt = " ".join(_range(view, scenario, metric) for metric in known)
    if len(view.axes) == 1:
        yield _picture(
            draw_lines(view, scenario),
            f"sweep-{number_}",
            SWEEP,
            _of(view, scenario),
            "Mean with its 95 % interval; the band holds the middle 90 % of the replications."
            + _some_policies(view),
            alt,
            "summary.parquet",
        )
    if len(view.axes) > 1:
        x, y, _ = heat_axes(view)
        for metric in known:
            yield _picture(
                draw_heat(view, scenario, metric),
                f"sweep-{number_}-{metric.replace('_', '-')}",
                SWEEP,
                f"{_of(view, scenario)}: {NAMES[metric]}",
                f"Mean {metric_title(metric)} over {x.name} and {y.name}. "
                f"{heat_note(view, scenario, metric)}",
                _range(view, scenario, metric),
                "summary.parquet",
            )
    if view.design:
        yield _picture(
            draw_design(view, scenario),
            f"design-{number_}",
            SWEEP,
            f"{_of(view, scenario)}: points of the design",
            "Mean with its 95 % interval at each point; all parameters of the design vary together."
            + _some_policies(view),
            alt,
            "summary.parquet",
        )


def _some_policies(view: View) -> str:
    n = len(view.policies)
    return f" The first 6 of {n} policies are drawn." if n > 6 else ""


def _range(view: View, scenario: str, metric: str) -> str:
    """Smallest and largest mean, in words."""
    known = [c for c in view.in_scenario(scenario) if view.mean(c, metric) is not None]
    ordered = sorted(known, key=lambda cell: view.mean(cell, metric) or 0.0)
    unit = METRICS[metric].unit
    low, high = (
        f"{with_error(view.mean(c, metric), view.half_width(c, metric), unit)} with "
        f"{view.lines[c]['label']}"
        for c in (ordered[0], ordered[-1])
    )
    return f"Mean {NAMES[metric]} from {low} to {high}."


def _frontier(view: View, scenarios: list[str]) -> Picture:
    drawn = [s for s in scenarios if len(view.in_scenario(s)) > 1]
    alt = " ".join(
        f"{scenario}: {_range(view, scenario, view.strain(scenario))} "
        f"{_range(view, scenario, 'dropped')}"
        for scenario in drawn
    )
    has_letters = any(map(view.marks, drawn))
    letters = "Letters: the tables at the top say which cell. " if has_letters else ""
    return _picture(
        draw_frontier(view, drawn or scenarios),
        "frontier",
        TRADE,
        "What fewer drops cost in calls",
        "Each point is a cell, with 95 % intervals of both means unless there are too many; lower "
        "left is better. " + letters + _some_scenarios(view),
        alt,
        "summary.parquet",
    )


def _claims(view: View) -> Iterator[Picture]:
    claims = view.results.claims
    for number_, scenario in enumerate(claims["scenario"].unique(maintain_order=True), 1):
        some = claims.filter(pl.col("scenario") == scenario)
        counts = some["verdict"].value_counts(sort=True, name="n").drop_nulls().to_dicts()
        verdicts = ", ".join(f"{line['n']} × {line['verdict']}" for line in counts)
        only = f"The first {MOST_CLAIMS} of {some.height}. " if some.height > MOST_CLAIMS else ""
        yield _picture(
            draw_claims(view, some),
            f"claims-{number_}",
            CLAIMS,
            _of(view, scenario),
            f"Left: the share of replications in which a claim is true; it holds above 95 % and "
            f"fails below 5 % (dashed lines). Bars, where they are wider than the sign: 95 % "
            f"intervals, thick for the claim alone, thin for all claims together. Right: the mean "
            f"difference of its weakest link, on a scale that is logarithmic beyond 5 standard "
            f"errors, with the interval for the claim alone. {only}",
            f"{some.height} claims: {verdicts}. The table of claims has every number.",
            "claims.parquet",
        )
        if number_ == MOST_SCENARIOS:
            return


def _spread(view: View, scenario: str, table: pl.DataFrame, name: str) -> Picture:
    published = any(
        view.estimates[cell, metric]["published"] is not None
        for cell in view.chosen(scenario)
        for metric in NAMES
    )
    mark = "; diamond: the published figure, which comes from a single seed" if published else ""
    alt = " ".join(_spread_text(view, cell) for cell in view.chosen(scenario))
    return _picture(
        draw_distributions(view, scenario, table),
        name,
        SPREAD,
        _of(view, scenario),
        f"What single replications give: each histogram is one cell, its name above it. Stroke: "
        f"mean{mark}. {view.choice_note(scenario)}",
        alt,
        SPREAD_DATA,
    )


def _spread_text(view: View, cell: int) -> str:
    metric = "window_rate" if view.has_window(cell) else "calls"
    line = view.estimates[cell, metric]
    return (
        f"{view.lines[cell]['label']}: {NAMES[metric]} from {short(line['p05'])} to "
        f"{short(line['p95'])} in nine of ten replications."
    )
