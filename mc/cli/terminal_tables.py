"""The tables of a finished run as a terminal shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from mc.cli.result_tables import (
    RANGE,
    VERDICT_STYLES,
    ScenarioTable,
    claim_texts,
    introduction,
    is_rough,
    is_share_of_runs,
    is_single,
    layer_lines,
    n_cells_left_out,
    notes_on,
    of_a_run,
    percent_defined,
    reproduced,
    scenario_tables,
    title_of,
)
from mc.model.thresholds import OPEN

if TYPE_CHECKING:
    from mc.store import Results

FAR_OUT: Final = 0.05
"""A published figure is pointed out if no more of the seeds lie as far on either side."""


def result_blocks(
    results: Results, every: bool, adjusted: bool, metrics: Sequence[str]
) -> Iterator[RenderableType]:
    """Yield all that is printed of a finished run, see `show`."""
    from mc.store import undecided_told

    single = is_single(results)
    yield from introduction(results)
    if adjusted and not single:
        yield "Adjusted for the traffic of these replications, whose expectation is known, where"
        yield "that narrows the interval (control variates)."
    for table in scenario_tables(results, every, metrics):
        yield Text(f"\n{table.title}", "bold underline")
        if single:
            yield _value_table(table)
        else:
            yield from _mean_lines(table, adjusted)
            for note in notes_on(table.cells, table.metrics):
                yield Text(note, "dim")
        if table.is_first:
            yield from _layer_lines(results, table)
    n_more = n_cells_left_out(results)
    if n_more and not every:
        command = f"retrystorm show {results.folder} --all"
        yield f"\n{n_more} more cells: {command}, or read summary.parquet"
    if told := undecided_told(results):
        yield Text(f"\n{told}")
    if single:
        yield from filter(None, [reproduced(results)])
    else:
        yield from _far_out_lines(results)
    yield from _claim_blocks(results)
    yield _unbroken(f"Results: {results.folder}")


def _unbroken(text: str, style: str = "") -> Text:
    """A line that is neither wrapped nor cut off."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def table_of(*heads: str) -> Table:
    """Make an empty table: texts in the first column, numbers in the others."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def table_or_sentences(
    heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str | Text]]]
) -> Iterator[RenderableType]:
    """A table of named rows; where names have too little room in it, two lines for each.

    Then an entry without a head stands behind the name, and an error behind its number.
    """
    table = table_of("cell", *heads)
    table.columns[-1].no_wrap = False
    for name, entries in rows:
        table.add_row(Text(name), *entries)
    longest, of_last = (_longest(table.columns[i]) for i in (0, -1))
    if _room_for_names(table) + max(0, of_last - _LEAST_NAME) >= min(longest, _LEAST_NAME):
        yield table
        return
    yield ""
    for name, entries in rows:
        first = Text(name.replace("\n", " "), "bold")
        parts: list[str] = []
        for head, entry in zip(heads, entries, strict=True):
            value, _, below = str(entry).partition("\n")
            if not head:
                first.append(f": {value} {below}".rstrip(), getattr(entry, "style", ""))
            elif head == "±" and value:
                parts[-1] += f" ± {value}"
            elif value or below:
                of, _, unit = head.partition("\n")
                named = f"{of}, {unit}" if unit and not unit.startswith("(") else of
                parts.append(f"{named} {value}{f' ({below})' if below else ''}")
        yield first
        # a number is not torn from its error
        unbroken = "; ".join(part.replace(" ", "\xa0") for part in parts)
        for line in textwrap.wrap(unbroken, Console().width - 2):
            yield Text("  " + line.replace("\xa0", " "))
    yield ""


_LEAST_NAME: Final = 16
"""Characters of a name, in a column of a table, that can be read."""


def _longest(column: Column) -> int:
    return max(
        (cell_len(line) for text in column.cells for line in str(text).split("\n")), default=0
    )


def _room_for_names(table: Table) -> int:
    """Characters that the other columns leave of the screen."""
    console = Console()
    wide = console.options.update(max_width=10_000)
    others = Measurement.get(console, wide, table).maximum - _longest(table.columns[0])
    return console.width - others


# --- a single replication -------------------------------------------------------------------------


def _value_table(shown: ScenarioTable) -> Table:
    """A line of values for each cell, in the lesson's layout.

    Published figures are shown only where one differs.
    """
    from mc.model.digits import MISSING, to_fixed

    unit_line = "\n" if shown.has_units else ""
    table = table_of(f"policy{unit_line}", f"max at-\ntempts{unit_line}", *shown.heads)
    for name, cell in shown.cells.items():
        values, published = (
            [
                none if e[key] is None else to_fixed(e[key], shown.decimals(e["metric"]))
                for e in (cell[metric] for metric in shown.metrics)
            ]
            for key, none in (("mean", MISSING), ("published", ""))
        )
        table.add_row(Text(name), str(cell["max_attempts"]), *values)
        if any(p not in ("", v) for p, v in zip(published, values, strict=True)):
            table.add_row("  published", "", *published)
    return _fitted(table)


def _fitted(table: Table) -> Table:
    """Let the first column take what the others leave of the screen, but at least 8 characters."""
    names, width = table.columns[0], Console().width
    room = _room_for_names(table)
    names.width = max(8, min(_longest(names), room))
    table.width = width - room + names.width
    return table


# --- many replications ----------------------------------------------------------------------------


def _mean_lines(shown: ScenarioTable, adjusted: bool) -> Iterator[Text]:
    """Below the name of each cell a line of means, one of half-widths, and so on.

    The name has a line of its own, so that seven columns of numbers fit 80 characters.
    """
    blocks = {
        title_of(name, cell, shown.metrics): _labelled(shown, cell, adjusted)
        for name, cell in shown.cells.items()
    }
    n_lines = 3 if shown.has_units else 2
    heads = [("\n" + head).split("\n")[-n_lines:] for head in shown.heads]
    rows = [entries for lines in blocks.values() for entries in lines.values()]
    widths = [max(map(len, (*head, *(row[i] for row in rows)))) for i, head in enumerate(heads)]

    def line(label: str, entries: Sequence[str], style: str = "") -> Text:
        columns = (f"{entry:>{width}}" for entry, width in zip(entries, widths, strict=True))
        return _unbroken(f"  {label:<10}  " + "  ".join(columns), style)

    for i in range(n_lines):
        yield line("", [head[i] for head in heads])
    for title, lines in blocks.items():
        yield Text(title, "bold")
        for label, entries in lines.items():
            yield line(label, entries, "" if label == "mean" else "dim")


def _layer_lines(results: Results, table: ScenarioTable) -> Iterator[Text]:
    lines = list(layer_lines(results, table))
    if lines:
        yield Text("Calls per request, by layer", "bold")
    for name, text in lines:
        yield Text(f"  {name}: {text}")


def _labelled(
    shown: ScenarioTable, cell: Mapping[str, Any], adjusted: bool
) -> dict[str, list[str]]:
    """The lines of a cell by label, with an entry for each metric."""
    from mc.model.digits import MISSING, format_estimate, half_width, has_known_mean

    estimates = [cell[metric] for metric in shown.metrics]
    means = [
        format_estimate(e["mean"], half_width(e)) if has_known_mean(e) else ("–", "")
        for e in estimates
    ]
    lines = {
        "mean": [mean for mean, _ in means],
        "±": [_error(e) for e in estimates],
    }
    if any(e["n"] and e["share_defined"] < 1 for e in estimates):
        lines["% of runs"] = [percent_defined(e) for e in estimates]
    lines |= {
        label: [
            "" if is_share_of_runs(e) else of_a_run(e, name, shown.decimals(e["metric"]))
            for e in estimates
        ]
        for label, name in RANGE.items()
    }
    if adjusted:
        means = [
            ("", "")
            if e["adjusted_mean"] is None
            else format_estimate(e["adjusted_mean"], half_width(e, "adjusted"))
            for e in estimates
        ]
        lines |= {"adjusted": [mean for mean, _ in means], " ±": [error for _, error in means]}
    if any(e["published"] is not None for e in estimates):
        published = [(e["published"], e["published_percentile"]) for e in estimates]
        lines["published"] = ["" if figure is None else f"{figure:g}" for figure, _ in published]
        lines["percentile"] = [
            "" if figure is None else MISSING if percentile is None else f"{percentile:.1f}"
            for figure, percentile in published
        ]
    return lines


def _error(estimate: Mapping[str, Any]) -> str:
    """Half of an interval; of a share of runs its ends, which 0 and 1 bound."""
    from mc.model.digits import format_estimate, half_width

    half = half_width(estimate)
    if half and is_share_of_runs(estimate):
        return "–".join(format_estimate(estimate[end], half)[0] for end in ("ci_low", "ci_high"))
    error = format_estimate(estimate["mean"], half)[1]
    return f"~{error}" if error and is_rough(estimate) else error


def _far_out_lines(results: Results) -> Iterator[Text]:
    """Yield the published figures that few seeds are like."""
    import polars as pl

    from mc.model.digits import placed

    n = results.summary["published"].count()
    found = results.summary.filter(pl.col("published_tail") < FAR_OUT)
    if found.height == 0:
        return
    yield _unbroken(
        f"\nOf {n} published figures these are among the outer {100 * FAR_OUT:g} % of seeds:"
    )
    for cell, lines in found.group_by("scenario", "policy", maintain_order=True):
        yield _unbroken("  " + ", ".join(str(name) for name in cell if name != "default"))
        for line in lines.iter_rows(named=True):
            where = placed(line["published_percentile"])
            yield _unbroken(f"    {line['metric']} {line['published']:g} is {where}")
    joints = found["published_joint"].drop_nulls().to_list()
    if joints:
        yield _unbroken("Figures of one run depend on one another: by the lesson's own generator")
        yield _unbroken(
            f"{100 * min(joints):.0f} % of seeds have some figure as far out (joint p)."
        )


# --- claims ---------------------------------------------------------------------------------------


def _claim_blocks(results: Results) -> Iterator[RenderableType]:
    if results.claims.is_empty():
        return
    yield _claims_table(results)
    yield "Intervals of 95 % each. Those that decide the verdicts are wider: they hold for"
    yield "all claims together, however often one looks. Of several comparisons the"
    yield "weakest is shown; its ± holds for all of them."
    if (results.claims["verdict"] == OPEN).any():
        yield "Open: too few replications; retrystorm run FILE --replications N adds to them."
    if results.claims["lesson_share"].count():
        yield "Where every cell draws from a stream of its own, as in the lesson, a claim holds"
        yield "in another share of seeds: it depends on how cells are coupled. The mean"
        yield "difference does not."


def _claims_table(results: Results) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("claim\nleft - right", ratio=1, overflow="fold")
    table.add_column("holds in %\n(95 % interval)", justify="right", no_wrap=True)
    table.add_column("difference\n(95 % interval)", justify="right", no_wrap=True)
    with_lesson = results.claims["lesson_share"].count() > 0
    if with_lesson:
        table.add_column("as lesson\ndraws, %", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=not with_lesson)
    for claim in claim_texts(results):
        table.add_row(
            Text.assemble(claim.text, (f"\n{claim.operands}" if claim.operands else "", "dim")),
            f"{claim.share}\n{claim.interval}" if claim.interval else claim.share,
            claim.difference.replace(" ± ", "\n± "),
            *([claim.lesson_share] if with_lesson else []),
            Text.assemble(
                (claim.verdict, VERDICT_STYLES.get(claim.verdict, "")),
                f", about\n{claim.to_decide} decide" if claim.to_decide else "",
            ),
        )
    return table
