"""What compare, best and frontier share: which cells are asked about, one table a question."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from mc.cli.formats import print_frame
from mc.cli.stdout import print_rich
from mc.model.digits import counted

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from mc.store import Results

MAX_ENTRIES: Final = 10
"""So many cells a terminal shows of a question, equal ones counted once."""

MAX_NAMES: Final = 4
"""So many cells, or policies, are named in a sentence."""

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

Every = Annotated[
    bool,
    typer.Option("--all", help=f"Every cell, not only the first {MAX_ENTRIES} of a question."),
]


class Entry(NamedTuple):
    """A cell, or several that are equal in every replication.

    Attributes
    ----------
    name : str
    cell : dict
        The answer about the first of them.
    """

    name: str
    cell: dict[str, Any]


class Question(NamedTuple):
    """A question and the answers to it.

    Attributes
    ----------
    title : str
    cells : polars.DataFrame
        The answers, a line for each cell.
    entries : dict of int to Entry
        By group of equal cells, in the order of the cells.
    """

    title: str
    cells: pl.DataFrame
    entries: dict[int, Entry]


def say_undecided(results: Results, metrics: Iterable[str]) -> None:
    """Say on stderr that answers about such a metric would be others if the runs went on."""
    from mc.cli.stderr import write_message
    from mc.store import OF_UNDECIDED, undecided_told

    told = undecided_told(results) if any(m.startswith(OF_UNDECIDED) for m in metrics) else ""
    if told:
        write_message(told)


def names_in(per: Per) -> tuple[str, ...]:
    """Return the names that --per was given, each once; none for all."""
    if per is None:
        return ("scenario",)
    return () if per == ["all"] else tuple(dict.fromkeys(per))


def metric_for_reader(name: str, source: Mapping[str, Any]) -> tuple[str, float]:
    """Return what a reader calls a metric, and by what its numbers are multiplied for that.

    That is its name, with the unit where this is not the one of the files.
    """
    from mc.model import METRICS, OVER_CAPACITY, units
    from mc.model.digits import readers_second

    if name in OVER_CAPACITY:
        return f"{OVER_CAPACITY[name].counter}, {OVER_CAPACITY[name].unit}", 1.0
    own = METRICS[name].unit
    unit, factor = units.for_reader(own, readers_second(source))
    return (name if unit == own else f"{name}, {unit}"), factor


def mean_and_error(metric: str, mean: float, half_width: float | None, n: int) -> tuple[str, str]:
    """Print a mean of n runs and half of its interval; of a share of runs the ends of its own."""
    from mc.model import METRICS
    from mc.model.digits import format_estimate
    from mc.statistics.intervals import share_interval

    number, error = format_estimate(mean, half_width)
    if not half_width or metric not in METRICS or not METRICS[metric].is_indicator:
        return number, error
    low, high = map(float, share_interval(round(mean * n), n))
    if not math.isclose(max(mean - low, high - mean), half_width):  # over several places
        low, high = max(0.0, mean - half_width), min(1.0, mean + half_width)
    return number, "–".join(format_estimate(end, half_width)[0] for end in (low, high))


def questions(
    answers: pl.DataFrame,
    per: Sequence[str],
    first_answer: str,
    source: Mapping[str, Any],
    every: bool,
) -> Iterator[Question]:
    """Divide a table of answers by question.

    The columns before `first_answer` name a cell; those of `per` tell questions apart. `source` is
    the experiment. With `every` each of many equal cells is named.
    """
    from mc.decisions import cell_name
    from mc.model.columns import BUDGET_TEXT
    from mc.model.digits import MIN_REPLICATIONS

    coordinates = answers.columns[: answers.columns.index(first_answer)]
    coordinates = [name for name in coordinates if name not in ("cell", BUDGET_TEXT)]
    axes = [name for name in coordinates if name not in per] or coordinates
    by_question = answers.group_by(per, maintain_order=True) if per else [((), answers)]
    for _, cells in by_question:
        where = cell_name(cells.row(0, named=True), per, source) if per else "all cells"
        groups: dict[int, list[dict[str, Any]]] = {}
        for cell in cells.iter_rows(named=True):
            groups.setdefault(cell["group"], []).append(cell)
        if every or cells.height <= MAX_ENTRIES:
            names = [
                "\n= ".join(cell_name(cell, axes, source) for cell in group)
                for group in groups.values()
            ]
        else:
            names = _common_names(list(groups.values()), axes, source)
        entries = {
            number: Entry(name, group[0])
            for (number, group), name in zip(groups.items(), names, strict=True)
        }
        rough = ": intervals are rough" if cells[0, "n"] < MIN_REPLICATIONS else ""
        yield Question(f"{where} ({counted(cells[0, 'n'], 'replication')}{rough})", cells, entries)


def _common_names(
    groups: Sequence[Sequence[Mapping[str, Any]]], axes: Sequence[str], source: Mapping[str, Any]
) -> list[str]:
    """Name each group by what its cells have in common, of all that differs in the question."""
    from mc.decisions import place_name, places

    every = [cell for group in groups for cell in group]
    varying = [name for name in axes if len({str(cell[name]) for cell in every}) > 1]
    names = []
    for group, place in zip(groups, places(groups, varying, source), strict=True):
        equal = f"\n({len(group)} equal cells)" if len(group) > 1 else ""
        names.append(place_name(place) + equal)
    return names


def notes_below(question: Question, n_shown: int) -> Iterator[str]:
    """Yield what is to be said of cells that are left out, and of equal ones."""
    n_more = len(question.entries) - n_shown
    if n_more:
        yield f"{n_more:,} more; --all lists every cell."
    if len(question.entries) < question.cells.height:
        n = question.cells[0, "n"]
        yield f"Equal cells are equal in all {n:,} replications; which is better is unknown."


def print_answers(
    answers: pl.DataFrame, form: str, blocks: Callable[[pl.DataFrame], Iterable[RenderableType]]
) -> None:
    """Print a table of answers in one of `FORMATS`; for a terminal `blocks` lays it out."""
    if form == "table":
        print_rich(blocks(answers))
    else:
        print_frame(answers, form)
