"""The command frontier: which cells no other beats in both of two metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli import options
from mc.cli.questions import (
    MAX_ENTRIES,
    Entry,
    Every,
    Per,
    Question,
    Where,
    mean_and_error,
    metric_for_reader,
    names_in,
    notes_below,
    print_answers,
    questions,
    say_undecided,
)
from mc.cli.stderr import errors_as_messages, write_message

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType


def frontier(
    folder: options.Folder,
    one: Annotated[str, typer.Argument(metavar="ONE", help="A metric.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another.")],
    per: Per = None,
    where: Where = None,
    every: Every = False,
    form: options.Format = "table",
) -> None:
    """Say which cells no other beats in both of two metrics.

    Small is good. With 95 % confidence all answers about the cells of a question are true at once.
    """
    with errors_as_messages():
        from mc import decisions, store

        names = names_in(per)
        results = store.load(folder)
        cells = decisions.frontier(
            results, one, other, per=names, where=where or (), say=write_message
        )
        say_undecided(results, (one, other))
        source = results.manifest["experiment"]
        blocks = partial(_blocks, metrics=(one, other), per=names, source=source, every=every)
        print_answers(cells, form, blocks)


def _blocks(
    cells: pl.DataFrame,
    metrics: tuple[str, str],
    per: Sequence[str],
    source: Mapping[str, Any],
    every: bool,
) -> Iterator[RenderableType]:
    import polars as pl
    from rich.text import Text

    from mc.cli.terminal_tables import table_or_sentences

    yield (
        "Means ± half of their 95 % interval, each alone; none where the replications are too few "
        "for one. A cell is on the frontier if no other is better in one mean and as good in the "
        "other; the answers of a table hold together with 95 %. Undecided: for want of "
        "replications; one of these: one of the equal cells is on it, or more. Undecided requests: "
        "too many, so the cell is compared with none."
    )
    told = [metric_for_reader(metric, source) for metric in metrics]
    one, other = (head.replace(", ", "\n") for head, _ in told)
    cells = cells.with_columns(
        pl.col(metric, f"{metric}_half_width") * factor
        for metric, (_, factor) in zip(metrics, told, strict=True)
    )
    for question in questions(cells, per, metrics[0], source, every):
        yield Text(f"\n{question.title}", "bold")
        rows: list[tuple[str, list[str | Text]]] = []
        group_of = dict(question.cells.select("cell", "group").iter_rows())
        shown = _shown(question, metrics, every)
        for name, cell in shown:
            numbers = [
                text
                for metric in metrics
                for text in mean_and_error(
                    metric, cell[metric], cell[f"{metric}_half_width"], cell["n"]
                )
            ]
            on = cell["on"] if cell["on"] == cell["group_on"] else "one of these"
            style = {"yes": "bold green", "undecided": "yellow"}.get(cell["group_on"], "dim")
            beaten_by = ""
            if cell["dominated_by"] is not None:
                beaten_by = question.entries[group_of[cell["dominated_by"]]].name
            rows.append((name, [*numbers, Text(on, style), Text(beaten_by.replace("\n", " "))]))
        yield from table_or_sentences([one, "±", other, "±", "on it", "beaten by"], rows)
        yield from notes_below(question, len(shown))


def _shown(question: Question, metrics: tuple[str, str], every: bool) -> list[Entry]:
    """All entries, the frontier first; or those along it, evenly thinned out, and the next."""
    entries = sorted(question.entries.values(), key=lambda entry: entry.cell[metrics[0]])
    if every or len(entries) <= MAX_ENTRIES:
        order = {"yes": 0, "undecided": 1, "no": 2}
        return sorted(entries, key=lambda entry: order.get(entry.cell["group_on"], 3))
    first: list[Entry] = []
    undecided: list[Entry] = []
    others: list[Entry] = []
    least = math.inf
    for entry in entries:
        on, mean = entry.cell["group_on"], entry.cell[metrics[1]]
        # of those that are undecided the ones that none beats in both means come first
        if on == "yes" or (on == "undecided" and mean < least):
            first.append(entry)
        else:
            (undecided if on == "undecided" else others).append(entry)
        if on in ("yes", "undecided", "no"):  # else it is compared with none
            least = min(least, mean)
    if len(first) > MAX_ENTRIES:
        return [first[i * (len(first) - 1) // (MAX_ENTRIES - 1)] for i in range(MAX_ENTRIES)]
    return [*first, *undecided, *others][:MAX_ENTRIES]
