"""The command frontier: which cells no other beats in both of two metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli import options
from mc.cli.questions import (
    Per,
    Where,
    metric_for_reader,
    names_in,
    print_answers,
    questions,
)
from mc.cli.stderr import errors_as_messages, write_message

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType


def frontier(
    folder: options.Folder,
    one: Annotated[str, typer.Argument(help="A metric.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    per: Per = None,
    where: Where = None,
    form: options.Format = "table",
) -> None:
    """Say which cells no other beats in both of two metrics, small being good.

    All answers about the cells of a question hold together with 95 % confidence.
    """
    with errors_as_messages():
        from mc import decisions, store

        names = names_in(per)
        results = store.load(folder)
        cells = decisions.frontier(
            results, one, other, per=names, where=where or (), say=write_message
        )
        source = results.manifest["experiment"]
        print_answers(cells, form, partial(_blocks, metrics=(one, other), per=names, source=source))


def _blocks(
    cells: pl.DataFrame,
    metrics: tuple[str, str],
    per: Sequence[str],
    source: Mapping[str, Any],
) -> Iterator[RenderableType]:
    import polars as pl
    from rich.text import Text

    from mc.cli.terminal_tables import table_of
    from mc.model.digits import format_estimate

    yield "Means with the half-width of their 95 % interval (each alone). Whether a cell"
    yield "is on the frontier holds for all of them together with 95 %."
    order = {"yes": 0, "undecided": 1, "no": 2}
    told = [metric_for_reader(metric, source) for metric in metrics]
    one, other = (head.replace(", ", "\n") for head, _ in told)
    cells = cells.with_columns(
        pl.col(metric, f"{metric}_half_width") * factor
        for metric, (_, factor) in zip(metrics, told, strict=True)
    )
    for title, group, listed in questions(cells, per, metrics[0], source):
        yield Text(f"\n{title}", "bold")
        table = table_of("cell", one, "±", other, "±", "on it", "beaten by")
        table.columns[-1].no_wrap = False
        lines = list(group.iter_rows(named=True))
        names: dict[int, list[str]] = {}
        of_cell = {cell["cell"]: names.setdefault(cell["group"], []) for cell in lines}
        for cell, name in zip(lines, listed, strict=True):
            of_cell[cell["cell"]].append(name)
        once = {cell["group"]: cell for cell in reversed(lines)}.values()
        for cell in sorted(once, key=lambda cell: (order[cell["group_on"]], cell[metrics[0]])):
            numbers = [
                text
                for metric in metrics
                for text in format_estimate(cell[metric], cell[f"{metric}_half_width"])
            ]
            named = "\n= ".join(names[cell["group"]])
            on = cell["on"] if cell["on"] == cell["group_on"] else "at least one"
            beaten_by = " = ".join(of_cell.get(cell["dominated_by"], []))
            table.add_row(Text(named), *numbers, on, Text(beaten_by))
        yield table
        if len(once) < len(lines):
            yield f"=: equal in all {group[0, 'n']:,} replications; which is better is unknown."
