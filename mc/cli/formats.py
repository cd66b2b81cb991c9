"""What a command prints: a table for the eye, or JSON, CSV or Markdown for what comes next."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mc.cli.common import print_text
from mc.cli.words import labelled

if TYPE_CHECKING:
    import polars as pl

    from mc.store import Results

FORMATS: Final = ("table", "json", "csv", "markdown")

TABLES: Final = ("summary", "comparisons", "claims", "cells")
"""Tables of a results folder that `show` can print as they are."""


def one_of(known: Sequence[str]) -> Any:
    """A parser for an option with few values, which suggests the nearest one."""

    def parse(text: str) -> str:
        if text not in known:
            from mc.experiment.messages import hint, quote

            raise typer.BadParameter(
                f"must be one of {', '.join(known)}, got {quote(text)}{hint(text, known)}"
            )
        return text

    return parse


def _values(known: Sequence[str]) -> Any:
    """What the shell may complete."""
    return lambda incomplete: [text for text in known if text.startswith(incomplete)]


Format = Annotated[
    str,
    typer.Option(
        "--format",
        parser=one_of(FORMATS),
        autocompletion=_values(FORMATS),
        metavar="|".join(FORMATS),
        help="What is printed: for the eye, for programs, or for a page.",
    ),
]
TableName = Annotated[
    str | None,
    typer.Option(
        "--table",
        parser=one_of(TABLES),
        autocompletion=_values(TABLES),
        metavar="|".join(TABLES),
        help="As json, csv or markdown: this table of the folder, every column of it.",
        show_default=False,
    ),
]


# --- a few figures --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What a command found out, for programs and for readers.

    Attributes
    ----------
    data : dict
        Numbers in base units, texts, and lists of them or of records; None where undefined.
    labels : dict of str to str
        The same in words; an entry without text is left out.
    title : str
        Above them; empty for none.
    before, after : tuple of str
        Further lines.
    wrap : bool
        Whether entries longer than a line may be cut between words: not those with a path.
    """

    data: dict[str, Any]
    labels: dict[str, str]
    title: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    wrap: bool = False


def print_figures(figures: Figures, form: str) -> None:
    """Print them in one of `FORMATS`."""
    if form == "json":
        print_text(_json(figures.data))
    elif form == "csv":
        print_text(_csv_line(figures.data))
    else:
        lines = _markdown_lines(figures) if form == "markdown" else _lines(figures)
        print_text("".join(f"{line}\n" for line in lines))


def _lines(figures: Figures) -> Iterator[str]:
    yield from figures.before
    if figures.title:
        yield figures.title
    yield from labelled(figures.labels, wrap=figures.wrap)
    yield from figures.after


def _markdown_lines(figures: Figures) -> Iterator[str]:
    if figures.title:
        yield from (f"**{escaped(figures.title)}**", "")
    if figures.before:
        yield from (*(f"- {escaped(line)}" for line in figures.before), "")
    rows = [(label, text) for label, text in figures.labels.items() if text]
    yield from markdown_table(["", ""], rows, n_texts=2)
    if figures.after:
        yield from ("", *map(escaped, figures.after))


# --- tables of a results folder -------------------------------------------------------------------


def print_table(results: Results, name: str | None, form: str) -> None:
    """Print a table of a results folder with all its columns, or as JSON also all of them.

    Parameters
    ----------
    results : Results
        Of a finished run.
    name : str or None
        One of `TABLES`; None for all of them with how they were made, or for the summary where
        there is room for one table only.
    form : {"json", "csv", "markdown"}
        Of `FORMATS`.
    """
    if form == "json":
        if name is not None:
            print_text(_json(_named(results, name).to_dicts()))
            return
        manifest = results.manifest
        about = {key: manifest[key] for key in ("title", "generator", "seed", "n_cells", "n_rows")}
        tables = {table: _named(results, table).to_dicts() for table in TABLES}
        print_text(_json(about | {"results": str(results.folder)} | tables))
        return
    print_frame(_named(results, name or "summary"), form)


def print_frame(frame: pl.DataFrame, form: str) -> None:
    """Print a frame as json (a list of records), csv or markdown."""
    if form == "json":
        print_text(_json(frame.to_dicts()))
    elif form == "csv":
        print_text(frame.write_csv())
    else:
        rows = (["" if value is None else value for value in row] for row in frame.iter_rows())
        lines = markdown_table(frame.columns, rows, n_texts=0)
        print_text("".join(f"{line}\n" for line in lines))


def _named(results: Results, name: str) -> pl.DataFrame:
    """A table, each line with the place of its cell on all axes."""
    from mc.store import axis_names

    frame: pl.DataFrame = getattr(results, name)
    if name == "cells" or "cell" not in frame.columns:
        return frame
    places = results.cells.select("cell", "scenario", "policy", *axis_names(results.manifest))
    joined = places.join(frame, on="cell", how="inner", maintain_order="right")
    return joined.select(*places.columns, *(n for n in frame.columns if n not in places.columns))


# --- the formats ----------------------------------------------------------------------------------


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _csv_line(record: Mapping[str, Any]) -> str:
    """Names and values, lists and the like left out: there is one line only."""
    fields = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerow(fields)
    return text.getvalue()


def markdown_table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], *, n_texts: int
) -> Iterator[str]:
    """Lines of a table as GitHub's Markdown has it.

    Parameters
    ----------
    names : sequence of str
        Heads of the columns.
    rows : iterable of sequence
        Entries of each row.
    n_texts : int
        So many columns on the left are set to the left, the others, which hold numbers, to the
        right.

    Yields
    ------
    str
    """
    yield _piped(names)
    yield _piped("---" if k < n_texts else "---:" for k, _ in enumerate(names))
    yield from map(_piped, rows)


_MARKUP: Final = re.compile(r"[\\|*<`\[\]$&~]|(?<!\w)_|_(?!\w)")
"""An underscore inside a word is none; GitHub takes what is between dollars for a formula."""


def _piped(entries: Iterable[Any]) -> str:
    return f"| {' | '.join(escaped(str(entry)) for entry in entries)} |"


def escaped(text: str) -> str:
    """Text in which nothing is markup that would change what is read, in one line."""
    text = text.replace("\n", "; ")
    return _MARKUP.sub(r"\\\g<0>", text)
