"""The answer in sentences, made from the numbers and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mc.experiment import MAX
from mc.model import METRICS
from mc.reports.style import short
from mc.reports.tables import Table, frontier
from mc.reports.view import NAMES, View
from mc.reports.words import (
    count,
    is_against_number,
    link,
    percent,
    precision_words,
    told,
    with_error,
)
from mc.statistics import DEPENDS, FAILS, HOLDS, OPEN, half_width

_MOST_CLAIMS: Final = {HOLDS: 3, FAILS: 6, DEPENDS: 6}
"""Claims of each verdict that are told: what fails is news."""

_MOST_NAMED: Final = 4
"""Cells with equal means that are named."""


@dataclass(frozen=True)
class Paragraph:
    """Some sentences, and items that belong to them.

    Attributes
    ----------
    head : str
        What it is about; may be empty.
    text : str
        Sentences.
    items : tuple of str
        A line each.
    table : Table or None
        What the sentences are about.
    """

    head: str
    text: str
    items: tuple[str, ...] = ()
    table: Table | None = None


def answer(view: View) -> list[Paragraph]:
    """Say what a reader wants to know first: the claims, then each scenario.

    Parameters
    ----------
    view : View

    Returns
    -------
    list of Paragraph
    """
    return [
        *_claims(view),
        *(_scenario(view, scenario) for scenario in view.scenarios),
        *_published(view),
    ]


def size(view: View) -> str:
    """Say how much was simulated."""
    cells = view.results.cells
    counts = cells["replications"].unique().sort().to_list()
    span = " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))
    each = " each" if cells.height > 1 and len(counts) == 1 else ""
    return f"{count(cells.height, 'cell')}, {span} replication{'s' * (counts[-1] > 1)}{each}"


def missed(view: View) -> str:
    """Say how many cells are not as precise as the experiment asks; nothing where all are."""
    precision = view.source["precision"]
    n = view.cells.filter(pl.col("stopped_by") == MAX).height
    if precision is None or n == 0:
        return ""
    return (
        f"{n:,} of {count(view.cells.height, 'cell')} {'is' if n == 1 else 'are'} not as precise "
        f"as asked ({precision_words(precision)}): "
        f"{precision['max']:,} replications did not suffice."
    )


# --- claims --------------------------------------------------------------------------------------


def _claims(view: View) -> Iterator[Paragraph]:
    claims = view.results.claims
    if claims.height == 0:
        return
    if claims["n"].max() == 1:
        n_true = claims.filter(pl.col("n_holds") == 1).height
        yield Paragraph(
            "Claims",
            f"There is one replication: {n_true} of {count(claims.height, 'claim')} "
            f"{'is' if n_true == 1 else 'are'} true in it. That says little of other seeds.",
        )
        return
    counts = {
        verdict: claims.filter(pl.col("verdict") == verdict).height
        for verdict in (HOLDS, FAILS, DEPENDS, OPEN)
    }
    text = (
        f"Of {count(claims.height, 'claim')}, {counts[HOLDS]} hold{'s' * (counts[HOLDS] == 1)}, "
        f"{counts[FAILS]} fail{'s' * (counts[FAILS] == 1)}, and {counts[DEPENDS]} "
        f"depend{'s' * (counts[DEPENDS] == 1)} on the seed."
    )
    if counts[OPEN]:
        text += f" For {counts[OPEN]} there are too few replications."
    yield Paragraph("Claims", text)
    for verdict, head in ((FAILS, "Fails"), (DEPENDS, "Depends on the seed"), (HOLDS, "Holds")):
        some = claims.filter(pl.col("verdict") == verdict).to_dicts()
        if not some:
            continue
        most = _MOST_CLAIMS[verdict]
        more = f"The first {most} of {len(some)}; the table has all." if len(some) > most else ""
        yield Paragraph(head, more, tuple(_claim(view, line) for line in some[:most]))


def _claim(view: View, line: dict[str, Any]) -> str:
    """One claim with its share and the difference behind it."""
    where = f", {line['scenario']}" if len(view.scenarios) > 1 else ""
    text = f"“{line['text']}”{where}: true in {percent(line['share'])} %"
    if line["share_low"] is not None:
        text += f" ({percent(line['share_low'])} to {percent(line['share_high'])})"
    text += " of the replications"
    if line["mean_difference"] is not None:
        metric = line["link_metric"].replace("_", " ")
        names, difference = link(view, line)
        if is_against_number(view, line):
            text += f"; mean {metric} of {line['left']}: {difference}"
        else:
            text += f"; mean {metric}, {names}: {difference}"
    return f"{text}."


# --- a scenario ----------------------------------------------------------------------------------


def _scenario(view: View, scenario: str) -> Paragraph:
    """What is lowest and highest, and what differs most; of a sweep what is worth choosing from."""
    if view.is_sweep(scenario):
        return _sweep(view, scenario)
    strain = view.strain(scenario)
    cells = view.in_scenario(scenario)
    head = _head(view, scenario)
    if len(cells) == 1:
        parts = [
            f"{NAMES[metric]} {told(*_estimate(view, cells[0], metric))}"
            for metric in (strain, "times_usual", "multiplier", "peak", "dropped")
            if view.mean(cells[0], metric) is not None
        ]
        return Paragraph(head, f"On average: {', '.join(parts)}.")
    sentences = [
        _extremes(view, cells, strain, f"Lowest mean {NAMES[strain]}", "highest"),
        _extremes(view, cells, "dropped", "Fewest requests dropped", "most"),
        _against_baseline(view, cells, strain),
    ]
    return Paragraph(head, " ".join(filter(None, sentences)))


def _head(view: View, scenario: str) -> str:
    return scenario if len(view.scenarios) > 1 or scenario != "default" else "Result"


def _sweep(view: View, scenario: str) -> Paragraph:
    """The frontier as a table."""
    n, n_best = len(view.in_scenario(scenario)), len(view.frontier(scenario))
    n_like = sum(map(view.n_like, view.frontier(scenario)))
    verb, n_shown = "is" if n_best == 1 else "are", len(view.marks(scenario))
    shown = f", {n_shown} that lie apart in the table" if n_best > n_shown else ""
    text = (
        f"Of {count(n, 'cell')}, {n_best} {verb} on the frontier{shown}: no other has both a lower "
        f"mean {NAMES[view.strain(scenario)]} and fewer requests dropped. "
    )
    if n_like:
        text += f"{n_like} {'has' if n_like == 1 else 'have'} the same means as one of them. "
    if n - n_best - n_like:
        others = n - n_best - n_like
        text += (
            f"{'The other one' if others == 1 else f'Each of the other {others:,}'} is beaten by "
            f"one of them: better in neither, worse in at least one."
        )
    return Paragraph(_head(view, scenario), text.strip(), table=frontier(view, scenario))


def _estimate(view: View, cell: int, metric: str) -> tuple[float | None, float | None, str]:
    return view.mean(cell, metric), view.half_width(cell, metric), METRICS[metric].unit


def _extremes(
    view: View, cells: Sequence[int], metric: str, lowest_words: str, highest_word: str
) -> str:
    """Name the cells with the smallest and the largest mean, and who cannot be told from them."""
    known = [cell for cell in cells if view.mean(cell, metric) is not None]
    if not known:
        return ""
    ordered = sorted(known, key=lambda cell: view.mean(cell, metric) or 0.0)
    lowest, highest = ordered[0], ordered[-1]
    if view.mean(lowest, metric) == view.mean(highest, metric):
        same = with_error(*_estimate(view, lowest, metric))
        return f"{lowest_words.split(maxsplit=1)[1].capitalize()}: {same}, the same in every cell."
    low, high = (
        f"{told(*_estimate(view, cell, metric))}{_who(view, cell, known, metric)}"
        for cell in (lowest, highest)
    )
    small, large = view.mean(lowest, metric), view.mean(highest, metric)
    ratio = f", {short(large / small)} times as much" if small and large else ""
    return f"{lowest_words}: {low}; {highest_word}: {high}{ratio if metric != 'dropped' else ''}."


def _who(view: View, cell: int, cells: Sequence[int], metric: str) -> str:
    """Name the cells with just this mean, and say how many intervals overlap theirs."""
    mine = view.estimates[cell, metric]
    same = [other for other in cells if view.mean(other, metric) == mine["mean"]]
    names = "; ".join(view.lines[other]["label"] for other in same[:_MOST_NAMED])
    more = f" and {len(same) - _MOST_NAMED:,} more" if len(same) > _MOST_NAMED else ""
    constant = mine["sd"] in (0, None)
    text = f", {names}"
    if len(same) > 1:
        text = f"{'' if constant else ', the same'} in {count(len(same), 'cell')}: {names}{more}"
    if mine["ci_low"] is None:
        return text
    n = sum(
        view.estimates[other, metric]["ci_low"] is not None
        and view.estimates[other, metric]["ci_low"] <= mine["ci_high"]
        and view.estimates[other, metric]["ci_high"] >= mine["ci_low"]
        for other in cells
        if other not in same
    )
    overlap = f" (and {count(n, 'cell')} whose interval{'s overlap' if n > 1 else ' overlaps'})"
    return text + (overlap if n else "")


def _against_baseline(view: View, cells: Sequence[int], metric: str) -> str:
    """The largest paired difference from a baseline."""
    compared = view.results.comparisons.filter(
        pl.col("cell").is_in(list(cells)),
        pl.col("metric") == metric,
        pl.col("mean_difference").is_not_null(),
    )
    if compared.height == 0:
        return ""
    line = compared.sort(pl.col("mean_difference").abs(), "cell", descending=[True, False])
    most = line.row(0, named=True)
    difference = with_error(most["mean_difference"], half_width(most), METRICS[metric].unit)
    more = "more" if most["mean_difference"] >= 0 else "less"
    share = most["share_greater"] if more == "more" else most["share_less"]
    labels = [view.lines[most[name]]["label"] for name in ("cell", "baseline")]
    sign = "+" if most["mean_difference"] > 0 else ""
    return (
        f"Largest difference from the baseline, paired by replication: {labels[0]} against "
        f"{labels[1]}, {sign}{difference}, {more} in {percent(share)} % of the replications."
    )


# --- published figures ---------------------------------------------------------------------------


def _published(view: View) -> Iterator[Paragraph]:
    figures = view.results.summary.filter(pl.col("published_percentile").is_not_null())
    if figures.height == 0:
        return
    if figures["n"].max() == 1:
        same = figures.filter(pl.col("published_percentile") == 50.0).height
        yield Paragraph(
            "Published figures", f"{same} of {figures.height} published figures are reproduced."
        )
        return
    inside = figures.filter(pl.col("published_percentile").is_between(5, 95)).height
    furthest = figures.sort(
        (pl.col("published_percentile") - 50).abs(), "cell", descending=[True, False]
    ).row(0, named=True)
    line = view.lines[furthest["cell"]]
    yield Paragraph(
        "Published figures",
        f"Of {count(figures.height, 'published figure')}, {inside} lie in the middle 90 % of the "
        f"replications. Furthest out is the {NAMES.get(furthest['metric'], furthest['metric'])} of "
        f"{line['label']} in {line['scenario']}: published {furthest['published']:g}, mean "
        f"{with_error(furthest['mean'], half_width(furthest))}; "
        f"{furthest['published_percentile']:.1f} % of the replications lie below it.",
    )
