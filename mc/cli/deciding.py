"""Commands that put a question to a results folder: compare, best, frontier."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mc.cli.common import Folder, faults, tell, to_stdout
from mc.cli.formats import Format, one_of, print_frame

if TYPE_CHECKING:
    import polars as pl

    from mc.statistics.best import Goal

GOALS: Final = ("min", "max")

Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Only cells with this scenario, policy or value on an axis; may be repeated.",
        show_default=False,
    ),
]
Per = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Ask for each scenario, policy or value of an axis by itself; may be repeated; "
        "all for one question about all cells.  [default: scenario]",
        show_default=False,
    ),
]


def compare(
    folder: Folder,
    left: Annotated[
        str,
        typer.Argument(
            help="Which cells: a policy, the number of a cell, or conditions like "
            "budget=0.1,backoff_cap=32.",
            show_default=False,
        ),
    ],
    right: Annotated[
        str, typer.Argument(help="With which cells, in the same way.", show_default=False)
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this metric; may be repeated; all for every one.  [default: those that a "
            "run prints first]",
            show_default=False,
        ),
    ] = None,
    where: Where = None,
    form: Format = "table",
) -> None:
    """Compare cells in pairs, replication by replication.

    Each cell of LEFT is compared with the cell of RIGHT in the same scenario and at the same place
    of the grid, as far as LEFT and RIGHT do not say otherwise.
    """
    with faults():
        from mc import decisions
        from mc.model import HEADLINE

        wanted = () if metric == ["all"] else metric or HEADLINE
        found = decisions.compare(folder, left, right, wanted, where or ())
        _print(found, form, _compare_lines)


def _compare_lines(found: pl.DataFrame) -> Iterable[Any]:
    from mc.statistics import MISSING, format_estimate, half_width

    yield "Mean of left - right over the same replications, with the half-width of its"
    yield "95 % interval (each alone), and in how many % of them left is <, =, > right."
    for _, lines in found.group_by("left", "right", maintain_order=True):
        yield ""
        yield Text(f"{lines[0, 'left_name']}  -  {lines[0, 'right_name']}", "bold")
        table = _table("metric", "difference", "±", "change in %", "<", "=", ">", "n")
        for line in lines.iter_rows(named=True):
            if line["n"] == 0:
                continue
            mean, error = format_estimate(line["mean_difference"], half_width(line))
            change, _ = format_estimate(
                _times(line["relative_change"], 100), _times(half_width(line, "relative"), 100)
            )
            shares = (f"{100 * line[f'share_{name}']:.1f}" for name in ("less", "equal", "greater"))
            row = (line["metric"], mean, error, change, *shares, f"{line['n']:,}")
            table.add_row(*(entry if entry != MISSING else "" for entry in row))
        yield table
        notes = lines.filter(lines["note"].is_not_null(), lines["n"] > 0).select("metric", "note")
        for name, note in notes.iter_rows():
            yield Text(f"no interval for {name}: {note}", "dim")


def best(
    folder: Folder,
    metric: Annotated[
        str, typer.Option(help="What is to be small, on average.", show_default=False)
    ],
    subject_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='A condition on another mean, like "times_usual <= 2"; may be repeated.',
            show_default=False,
        ),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(parser=one_of(GOALS), metavar="|".join(GOALS), help="Small or large."),
    ] = "min",
    across: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="One answer for all of these, scenario for example: the mean over them counts, "
            "and conditions must hold in each; may be repeated.",
            show_default=False,
        ),
    ] = None,
    per: Per = None,
    where: Where = None,
    form: Format = "table",
) -> None:
    """Say which cell is best, and which cannot be told from it.

    All that is said of the cells of a question holds together with 95 % confidence.
    """
    with faults():
        from mc import decisions

        over = tuple(dict.fromkeys(across or ()))
        asked = tuple(name for name in _per(per) if name not in over)
        found = decisions.best(
            *(folder, metric, cast("Goal", goal), subject_to or (), asked, where or (), over),
            say=tell,
        )
        conditions = f", subject to {' and '.join(subject_to)}" if subject_to else ""
        title = f"{metric}, {'smallest' if goal == 'min' else 'largest'} mean is best{conditions}"
        if over:
            title += f";\nmean over {' and '.join(over)}, conditions in each"
        _print(found, form, lambda frame: _best_lines(frame, title, asked))


def _best_lines(found: pl.DataFrame, title: str, per: Sequence[str]) -> Iterable[Any]:
    from mc.decisions import cell_name
    from mc.statistics import format_estimate

    yield Text(title)
    yield "Difference to the best of the others, all of a table together with 95 %:"
    yield "where an interval ends at 0 the cell is surely the best, or surely not."
    names = _coordinates(found, "mean")
    conditions = found.columns[found.columns.index("mean") + 1 : found.columns.index("difference")]
    for cells in _groups(found, per):
        yield from ("", _head(cells, per))
        table = _table("cell", "mean", *conditions, "difference\n(interval)", "")
        rest = [name for name in names if name not in per] or list(names)
        halves = ((cells["high"] - cells["low"]) / 2).drop_nulls()
        finest = float(halves.filter(halves > 0).min() or 0) or None  # type: ignore[arg-type]
        for cell in _by_rank(cells):
            ends = [cell["low"], cell["high"]]
            half = None if None in ends else (cell["high"] - cell["low"]) / 2
            difference = ""
            if cell["difference"] is not None:
                difference = format_estimate(cell["difference"], half)[0]
            if half is not None:
                low, high = (format_estimate(end, half)[0] for end in ends)
                difference += f"\n{low} .. {high}"
            table.add_row(
                Text(cell_name(cell, rest)),
                format_estimate(cell["mean"], finest)[0],
                *(format_estimate(cell[name], None)[0] for name in conditions),
                difference,
                _status(cell),
            )
        yield table
        yield _answer(cells, rest)


def _status(cell: dict[str, Any]) -> str:
    if cell["feasible"] == "no":
        return "not feasible"
    standing = "may be best" if cell["candidate"] else "not the best"
    return standing if cell["feasible"] == "yes" else f"{standing},\nif feasible"


def _by_rank(cells: pl.DataFrame) -> Iterable[dict[str, Any]]:
    """The candidates first, then the others by their distance, what is not feasible last."""

    def place(cell: dict[str, Any]) -> tuple[bool, bool, float]:
        apart = abs(cell["difference"]) if cell["difference"] is not None else abs(cell["mean"])
        return not cell["candidate"], cell["feasible"] == "no", apart

    return sorted(cells.iter_rows(named=True), key=place)


def _answer(cells: pl.DataFrame, names: Sequence[str]) -> Text:
    from mc.decisions import cell_name

    winner = cells.filter(cells["best"])
    if winner.height:
        called = [cell_name(cell, names) for cell in winner.iter_rows(named=True)]
        same = f" (the same in every replication: {_listed(called[1:])})" if called[1:] else ""
        return Text(f"Best: {called[0]}{same}.")
    chosen = cells.filter(cells["candidate"])
    if chosen.height == 0:
        return Text("None satisfies the conditions.")
    if chosen.height == 1:
        return Text("One is left, but whether it satisfies the conditions is undecided.")
    called = [cell_name(cell, names) for cell in chosen.iter_rows(named=True)]
    return Text(f"May be best: {_listed(called)}.")


def _listed(called: Sequence[str]) -> str:
    """Some names, or the first of many."""
    more = f" and {len(called) - _MOST_NAMED} more" if len(called) > _MOST_NAMED else ""
    return "; ".join(called[:_MOST_NAMED]) + more


_MOST_NAMED: Final = 4


def frontier(
    folder: Folder,
    one: Annotated[str, typer.Argument(help="A metric.", show_default=False)],
    other: Annotated[str, typer.Argument(help="Another.", show_default=False)],
    per: Per = None,
    where: Where = None,
    form: Format = "table",
) -> None:
    """Say which cells no other beats in both of two metrics, small being good.

    All answers about the cells of a question hold together with 95 % confidence.
    """
    with faults():
        from mc import decisions

        found = decisions.frontier(folder, one, other, per=_per(per), where=where or (), say=tell)
        _print(found, form, lambda frame: _frontier_lines(frame, (one, other), _per(per)))


def _frontier_lines(
    found: pl.DataFrame, metrics: tuple[str, str], per: Sequence[str]
) -> Iterable[Any]:
    from mc.decisions import cell_name
    from mc.statistics import format_estimate

    yield "Means with the half-width of their 95 % interval (each alone). Whether a cell"
    yield "is on the frontier holds for all of them together with 95 %."
    names = _coordinates(found, metrics[0])
    for cells in _groups(found, per):
        yield from ("", _head(cells, per))
        table = _table("cell", metrics[0], "±", metrics[1], "±", "on it", "beaten by")
        rest = [name for name in names if name not in per] or list(names)
        by_number = {cell["cell"]: cell_name(cell, rest) for cell in cells.iter_rows(named=True)}
        order = {"yes": 0, "undecided": 1, "no": 2}
        lines = sorted(cells.iter_rows(named=True), key=lambda c: (order[c["on"]], c[metrics[0]]))
        for cell in lines:
            numbers = [
                text
                for metric in metrics
                for text in format_estimate(cell[metric], cell[f"{metric}_half_width"])
            ]
            beaten = by_number[cell["dominated_by"]] if cell["dominated_by"] is not None else ""
            table.add_row(Text(by_number[cell["cell"]]), *numbers, cell["on"], Text(beaten))
        yield table


# --- printing -------------------------------------------------------------------------------------


def _print(found: pl.DataFrame, form: str, lines: Callable[[pl.DataFrame], Iterable[Any]]) -> None:
    if form != "table":
        print_frame(found, form)
        return
    console = Console(highlight=False)
    with to_stdout():
        with console.capture() as captured:
            for line in lines(found):
                console.print(line)
        sys.stdout.write(captured.get())


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=name != "beaten by")
    return table


def _per(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return ("scenario",)
    return () if list(names) == ["all"] else tuple(dict.fromkeys(names))


def _groups(found: pl.DataFrame, per: Sequence[str]) -> Iterable[pl.DataFrame]:
    if not per:
        return [found]
    return [cells for _, cells in found.group_by(per, maintain_order=True)]


def _head(cells: pl.DataFrame, per: Sequence[str]) -> Text:
    from mc.decisions import cell_name

    where = cell_name(cells.row(0, named=True), per) if per else "all cells"
    return Text(f"{where} ({cells[0, 'n']:,} replications)", "bold")


def _coordinates(found: pl.DataFrame, first: str) -> list[str]:
    """The columns before the first that was found out, but for the number of a cell."""
    return [name for name in found.columns[: found.columns.index(first)] if name != "cell"]


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
