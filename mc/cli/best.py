"""The command best: which cell is best, and which cannot be told from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mc.cli import options
from mc.cli.questions import (
    MAX_ENTRIES,
    MAX_NAMES,
    Entry,
    Every,
    Per,
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
    from rich.text import Text

    from mc.statistics.best import Goal


def best(
    folder: options.Folder,
    metric: Annotated[str, typer.Option(metavar="METRIC", help="What is to be small, on average.")],
    subject_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='A condition on another mean, like "times_usual <= 2", "peak <= 3 x capacity", '
            '"window_rate <= 300/s" or "late_share < 1 %"; may be repeated.',
        ),
    ] = None,
    goal: Annotated[
        str, typer.Option(help="Small or large.", **options.one_of(lambda: ("min", "max")))
    ] = "min",
    across: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="One answer for all of these, scenario for example: the mean over them counts, "
            "and conditions must hold in each; may be repeated.",
        ),
    ] = None,
    per: Per = None,
    where: Where = None,
    every: Every = False,
    form: options.Format = "table",
) -> None:
    """Say which cell is best, and which cannot be told from it.

    With 95 % confidence all statements about the cells of a question are true at once.
    """
    with errors_as_messages():
        from mc import decisions, store

        over = tuple(dict.fromkeys(across or ()))
        names = tuple(name for name in names_in(per) if name not in over)
        results = store.load(folder)
        cells = decisions.best(
            *(results, metric, cast("Goal", goal), subject_to or (), names, where or (), over),
            say=write_message,
        )
        say_undecided(results, (metric, *(subject_to or ())))
        source = results.manifest["experiment"]
        name = metric_for_reader(metric, source)[0]
        title = f"{name}, {'smallest' if goal == 'min' else 'largest'} mean is best"
        if subject_to:
            told = [decisions.condition(text, results).text(source) for text in subject_to]
            title += f", subject to {' and '.join(told)}"
        if over:
            title += f";\nmean over {' and '.join(over)}, conditions in each"
        blocks = partial(
            _blocks, title=title, per=names, metric=metric, goal=goal, source=source, every=every
        )
        print_answers(cells, form, blocks)


def _blocks(
    cells: pl.DataFrame,
    title: str,
    per: Sequence[str],
    metric: str,
    goal: str,
    source: Mapping[str, Any],
    every: bool,
) -> Iterator[RenderableType]:
    import polars as pl
    from rich.text import Text

    from mc.cli.terminal_tables import table_or_sentences

    yield title
    good, bad = ("-a .. 0", "0 .. a") if goal == "min" else ("0 .. a", "-a .. 0")
    yield (
        "Means ± half of their 95 % interval, each alone. Difference: the mean less that of the "
        "best other cell. Intervals of differences hold together with 95 % and are cut off at 0: "
        f"{good} is surely as good as each other cell, {bad} surely no better than some other. "
        "A cell is called worse only where that is sure."
    )
    means = cells.columns[cells.columns.index("mean") : cells.columns.index("difference")]
    told = {name: metric_for_reader(name, source) for name in means[2::2]}
    factors = {name: factor for name, (_, factor) in told.items()}
    of_metric = metric_for_reader(metric, source)[1]
    factors |= dict.fromkeys(("mean", "difference", "low", "high"), of_metric)
    factors |= {f"{name}_half_width": factors[name] for name in means[::2]}
    cells = cells.with_columns(pl.col(name) * factor for name, factor in factors.items())
    heads = [head.replace(", ", "\n") for head, _ in told.values()]
    for question in questions(cells, per, "mean", source, every):
        yield Text(f"\n{question.title}", "bold")
        ranked = sorted(question.entries.values(), key=lambda entry: _rank(entry.cell))
        shown = ranked if every else ranked[:MAX_ENTRIES]
        rows: list[tuple[str, list[str | Text]]] = [
            (
                name,
                [
                    *(_with_error(cell, of, metric) for of in means[::2]),
                    _difference_text(cell),
                    _standing(cell),
                ],
            )
            for name, cell in shown
        ]
        yield from table_or_sentences(["mean", *heads, "difference\n(interval)", ""], rows)
        if any(entry.cell["is_bound"] for entry in shown):
            yield (
                "Too few: in so few replications cells differ too seldom for an interval; behind "
                "it about how many give one, if they differed at all."
            )
        yield from notes_below(question, len(shown))
        yield _answer(ranked)


def _rank(cell: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """The candidates first, then the others by their distance, what is not feasible last."""
    distance = cell["mean"] if cell["difference"] is None else cell["difference"]
    is_out = cell["feasible"] == "no" or cell["candidate"] is None
    return not cell["candidate"], is_out, abs(distance)


def _with_error(cell: Mapping[str, Any], name: str, metric: str) -> str:
    """The mean in a column, which is called `mean` for the metric that is asked about."""
    of = metric if name == "mean" else name
    number, error = mean_and_error(of, cell[name], cell[f"{name}_half_width"], cell["n"])
    return f"{number} ({error})" if "–" in error else " ± ".join(filter(None, (number, error)))


def _difference_text(cell: dict[str, Any]) -> str:
    from mc.model.digits import format_estimate

    if cell["is_bound"]:
        needed = cell["n_needed"]
        known = format_estimate(cell["difference"], None)[0]
        return f"{known}\ntoo few" + ("" if needed is None else f": ~{_rounded(needed)}")
    half = None
    if None not in (cell["low"], cell["high"]):
        half = (cell["high"] - cell["low"]) / 2
    text = "" if cell["difference"] is None else format_estimate(cell["difference"], half)[0]
    if half is not None:
        text += "\n" + " .. ".join(format_estimate(cell[end], half)[0] for end in ("low", "high"))
    return text


def _standing(cell: Mapping[str, Any]) -> Text:
    from rich.text import Text

    if cell["feasible"] == "no":
        return Text("not feasible", "dim")
    if cell["candidate"] is None:
        return Text(cell["feasible"].replace(" ", "\n"), "yellow")
    if cell["best"]:
        return Text("best", "bold green")
    standing = "may be best" if cell["candidate"] else "worse than\nanother"
    style = "green" if cell["candidate"] else "dim"
    return Text(standing if cell["feasible"] == "yes" else f"{standing},\nif feasible", style)


def _answer(ranked: Sequence[Entry]) -> str:
    apart = [entry.name for entry in ranked if entry.cell["candidate"] is None]
    if not apart:
        return _best_of(ranked)
    compared = [entry for entry in ranked if entry.cell["candidate"] is not None]
    told = f"{_best_of(compared)} " if compared else ""
    return f"{told}Not compared, for their undecided requests: {_listed(apart)}."


def _best_of(ranked: Sequence[Entry]) -> str:
    winner = [entry.name for entry in ranked if entry.cell["best"]]
    if winner:
        return f"Best: {_listed(winner)}."
    candidates = [entry for entry in ranked if entry.cell["candidate"]]
    if not candidates:
        return "None satisfies the conditions."
    needed = [entry.cell["n_needed"] for entry in candidates]
    told = ""
    if None not in needed:
        told = f" About {_rounded(max(needed))} replications decide it, if means stay as they are."
    if len(candidates) == 1 and candidates[0].cell["feasible"] != "yes":
        return f"One is left, but whether it satisfies the conditions is undecided.{told}"
    return f"May be best: {_listed([entry.name for entry in candidates])}.{told}"


def _rounded(n: int) -> str:
    return f"{float(f'{n:.2g}'):,.0f}"


def _listed(names: Sequence[str]) -> str:
    """Some names, or the first of many."""
    n_more = len(names) - MAX_NAMES
    listed = "; ".join(name.replace("\n", " ") for name in names[:MAX_NAMES])
    return listed + (f" and {n_more:,} more" if n_more > 0 else "")
