"""The command show, and what run and merge print at their end: the tables of a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli import options
from mc.cli.formats import escaped, markdown_table, print_frame, print_json
from mc.cli.result_tables import (
    MAX_CELLS,
    RANGE,
    ClaimTexts,
    ScenarioTable,
    claim_texts,
    estimate_texts,
    introduction,
    is_single,
    layer_lines,
    n_cells_left_out,
    notes_on,
    of_a_run,
    percent_defined,
    reproduced,
    scenario_tables,
    with_error,
)
from mc.cli.stderr import errors_as_messages, fail
from mc.cli.stdout import print_lines, print_rich

if TYPE_CHECKING:
    import polars as pl

    from mc.store import Results


def _table_names() -> list[str]:
    """Return the tables of a results folder: the estimates, then the cells."""
    from mc.store import TABLES

    return sorted(TABLES, key=lambda name: name == "cells")


def _every_table() -> list[str]:
    """Return these, and what the tables are made of."""
    from mc.store import FOLDERS

    return [*_table_names(), *("replications" if name == "rows" else name for name in FOLDERS)]


def show(
    folder: options.Folder,
    every: Annotated[
        bool, typer.Option("--all", help=f"Every cell, not only the first {MAX_CELLS}.")
    ] = False,
    adjusted: Annotated[
        bool,
        typer.Option(
            "--adjusted", help="Means adjusted for the traffic, too, where that narrows them down."
        ),
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Only this metric, of every one that there is; may be repeated.  [default: those "
            "of the three tables]",
        ),
    ] = None,
    form: options.Format = "table",
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            help="As json, csv or markdown: only this table, such as claims or replications, "
            "every column of it.",
            **options.one_of(_every_table, "NAME"),
        ),
    ] = None,
) -> None:
    """Print the tables of a finished run again.

    As json all tables of FOLDER are printed, as csv the summary; --table names another.
    """
    if table is not None and form == "table":
        fail("--table: needs --format json, csv or markdown: it has too many columns to look at", 2)
    if metric and (table is not None or form == "json"):
        fail("--metric: picks of the summary, and needs --format table, csv or markdown", 2)
    from mc import store

    with errors_as_messages():
        results = store.load(folder)
        metrics = _named(metric, results) if metric else []
        print_results(results, form, every=every, adjusted=adjusted, metrics=metrics, table=table)


def _named(metrics: Sequence[str], results: Results) -> list[str]:
    """The metrics, each of which there must be."""
    from mc import decisions

    return list(dict.fromkeys(decisions.metric_named(name, results).name for name in metrics))


def print_results(
    results: Results,
    form: str,
    *,
    every: bool = False,
    adjusted: bool = False,
    metrics: Sequence[str] = (),
    table: str | None = None,
) -> None:
    """Print the tables of a finished run, see `show`; nothing if one of them cannot be read."""
    if table is not None or form == "csv":
        frame = _whole_table(results, table or "summary")
        print_frame(frame.filter(frame["metric"].is_in(metrics)) if metrics else frame, form)
    elif form == "json":
        print_json(_all_tables(results))
    elif form == "markdown":
        print_lines(_markdown_lines(results, every, metrics))
    else:
        from mc.cli.terminal_tables import result_blocks

        print_rich(result_blocks(results, every, adjusted, metrics))


# --- with every column ----------------------------------------------------------------------------


def _all_tables(results: Results) -> dict[str, Any]:
    about = ("title", "generator", "seed", "n_cells", "n_rows")
    return (
        {key: results.manifest[key] for key in about}
        | {"results": str(results.folder)}
        | {name: _whole_table(results, name).to_dicts() for name in _table_names()}
    )


def _whole_table(results: Results, name: str) -> pl.DataFrame:
    """A table with all its columns; each line of a cell has the cell's value on every axis.

    Rows have the ratios of their counters, too.
    """
    frame: pl.DataFrame = getattr(results, name)
    if name == "replications":
        from mc.statistics import with_ratios

        frame = with_ratios(frame, results.cells)
    return results.named(frame) if name in ("replications", "histograms") else frame


# --- for a page -----------------------------------------------------------------------------------


def _markdown_lines(results: Results, every: bool, metrics: Sequence[str]) -> Iterator[str]:
    """The same as on a terminal."""
    from mc.store import undecided_told

    title, *lines = introduction(results)
    yield f"**{escaped(title)}**"
    for line in lines:
        yield from ("", escaped(line))
    for table in scenario_tables(results, every, metrics):
        yield from ("", f"### {escaped(table.title)}", "")
        heads = [head.replace("-\n", "").replace("\n", " ").strip() for head in table.heads]
        yield from markdown_table(
            ["policy", "max attempts", *heads], _markdown_rows(table), n_texts=1
        )
        layers = list(layer_lines(results, table)) if table.is_first else []
        if layers:
            yield from ("", "Calls per request, by layer:", "")
            yield from (f"- {escaped(f'{name}: {text}')}" for name, text in layers)
        if not is_single(results):
            for note in notes_on(table.cells, table.metrics):
                yield from ("", escaped(note))
    n_more = n_cells_left_out(results)
    if n_more and not every:
        yield from ("", f"{n_more} more cells are in summary.parquet.")
    for line in (undecided_told(results), reproduced(results)):
        yield from ("", escaped(line)) if line else ()
    if results.claims.height:
        heads = ["claim", "verdict", "holds in %", "95 % interval", "left - right", "difference"]
        heads += ["as the lesson draws, %"] if results.claims["lesson_share"].count() else []
        with_lesson = results.claims["lesson_share"].count() > 0
        rows = map(partial(_claim_row, with_lesson=with_lesson), claim_texts(results))
        yield ""
        yield from markdown_table(heads, rows, n_texts=2)
    yield from ("", f"Results: {escaped(str(results.folder))}")


def _markdown_rows(table: ScenarioTable) -> Iterator[list[str]]:
    """For each cell a row of means, and one of published figures with their percentiles."""
    for name, cell in table.cells.items():
        estimates = [cell[metric] for metric in table.metrics]
        means = [_markdown_mean(e) for e in estimates]
        yield [f"{name}{cell['replications_text']}", str(cell["max_attempts"]), *means]
        ranges = [
            [of_a_run(e, end, table.decimals(e["metric"])) for end in RANGE.values()]
            for e in estimates
        ]
        if any(e["n"] > 1 for e in estimates):
            yield [" to ".join(RANGE) + " of runs", "", *(" to ".join(ends) for ends in ranges)]
        if any(e["published"] is not None for e in estimates):
            yield ["published (percentile)", "", *map(_published, estimates)]


def _markdown_mean(estimate: Mapping[str, Any]) -> str:
    from mc.model import digits

    if not digits.has_known_mean(estimate):
        return digits.of_runs(estimate)
    share = percent_defined(estimate)
    of_runs = f" (in {share} % of runs)" if share else ""
    return with_error(*estimate_texts(estimate, "mean")) + of_runs


def _claim_row(claim: ClaimTexts, with_lesson: bool) -> list[str]:
    """A line of the claims; how many replications decide one stands with its verdict."""
    to_decide = f", about {claim.to_decide} decide" if claim.to_decide else ""
    row = [claim.text, claim.verdict + to_decide, claim.share, claim.interval]
    row += [claim.operands, claim.difference]
    return [*row, claim.lesson_share] if with_lesson else row


def _published(estimate: Mapping[str, Any]) -> str:
    if estimate["published"] is None:
        return ""
    percentile = estimate["published_percentile"]
    return f"{estimate['published']:g}" + ("" if percentile is None else f" ({percentile:.1f} %)")
