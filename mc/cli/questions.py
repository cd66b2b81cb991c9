"""What compare, best and frontier share: which cells are asked about, one table a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli.formats import print_frame
from mc.cli.stdout import print_rich

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Only cells with this scenario, policy or value on an axis; may be repeated.",
    ),
]
Per = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Ask for each scenario, policy or value of an axis by itself; may be repeated; "
        "all for one question about all cells.  [default: scenario]",
    ),
]


def names_in(per: Per) -> tuple[str, ...]:
    """Return the names that --per was given, each once; none for all."""
    if per is None:
        return ("scenario",)
    return () if per == ["all"] else tuple(dict.fromkeys(per))


def metric_for_reader(name: str, source: Mapping[str, Any]) -> tuple[str, float]:
    """Return what a reader calls a metric, and by what its numbers are multiplied for that.

    That is its name, with the unit where this is not the one of the files.
    """
    from mc.model import METRICS, units
    from mc.model.digits import readers_second

    own = METRICS[name].unit
    unit, factor = units.for_reader(own, readers_second(source))
    return (name if unit == own else f"{name}, {unit}"), factor


def questions(
    answers: pl.DataFrame, per: Sequence[str], first_answer: str, source: Mapping[str, Any]
) -> Iterator[tuple[str, pl.DataFrame, list[str]]]:
    """Divide a table of answers by question: title, cells, and the names of these.

    The columns before `first_answer` name a cell; those of `per` tell questions apart. `source` is
    the experiment.
    """
    from mc.decisions import cell_name

    coordinates = answers.columns[: answers.columns.index(first_answer)]
    coordinates = [name for name in coordinates if name != "cell"]
    axes = [name for name in coordinates if name not in per] or coordinates
    groups = answers.group_by(per, maintain_order=True) if per else [((), answers)]
    for _, cells in groups:
        where = cell_name(cells.row(0, named=True), per, source) if per else "all cells"
        names = [cell_name(cell, axes, source) for cell in cells.iter_rows(named=True)]
        yield f"{where} ({cells[0, 'n']:,} replications)", cells, names


def print_answers(
    answers: pl.DataFrame, form: str, blocks: Callable[[pl.DataFrame], Iterable[RenderableType]]
) -> None:
    """Print a table of answers in one of `FORMATS`; for a terminal `blocks` lays it out."""
    if form == "table":
        print_rich(blocks(answers))
    else:
        print_frame(answers, form)
