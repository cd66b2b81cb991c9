"""What a command prints, in each of the formats: a few facts, or a data frame."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mc.cli.readable import labelled_lines
from mc.cli.stdout import print_lines, print_text

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Facts:
    """The answer of a command that is no table: for programs, and for readers.

    Attributes
    ----------
    data : dict
        Numbers in base units, texts, and lists of them or of records; None where undefined.
    texts : dict of str to str
        The same for a reader, by label; an empty text is left out.
    title : str
        Line above the texts; empty for none.
    before, after : tuple of str
        Lines before the title and after the texts.
    wrap : bool
        Whether long texts may be broken between words: not where one holds a path.
    """

    data: dict[str, Any]
    texts: dict[str, str]
    title: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    wrap: bool = False


def print_facts(facts: Facts, form: str) -> None:
    """Print facts in one of `FORMATS`."""
    if form == "json":
        print_json(facts.data)
    elif form == "csv":
        print_text(_csv_line(facts.data))
    else:
        print_lines(_markdown_lines(facts) if form == "markdown" else _lines(facts))


def _lines(facts: Facts) -> Iterator[str]:
    yield from facts.before
    if facts.title:
        yield facts.title
    yield from labelled_lines(facts.texts, wrap=facts.wrap)
    yield from facts.after


def _markdown_lines(facts: Facts) -> Iterator[str]:
    if facts.title:
        yield from (f"**{escaped(facts.title)}**", "")
    if facts.before:
        yield from (*(f"- {escaped(line)}" for line in facts.before), "")
    rows = [(label, text) for label, text in facts.texts.items() if text]
    yield from markdown_table(["", ""], rows, n_texts=2)
    if facts.after:
        yield from ("", *map(escaped, facts.after))


def _csv_line(record: Mapping[str, Any]) -> str:
    """One line of values under their names; lists and records have no place in it."""
    fields = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerow(
        {
            name: neutral(value) if isinstance(value, str) else value
            for name, value in fields.items()
        }
    )
    return text.getvalue()


_FORMULA: Final = re.compile(r"[=+\-@\t\r][\s\S]")
"""How a cell begins that a spreadsheet runs; a sign alone, as the relation ``=``, is a text."""


def neutral(text: str) -> str:
    """Put a quote before a text that a spreadsheet would run as a formula.

    Notes
    -----
    OWASP, CSV Injection: a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a return is
    run; behind a single quote it is a text.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def print_frame(frame: pl.DataFrame, form: str) -> None:
    """Print a data frame as json (a list of records), csv or markdown."""
    if form == "json":
        print_json(frame.to_dicts())
    elif form == "csv":
        import polars as pl

        texts = pl.selectors.string().str.replace(f"^({_FORMULA.pattern})", "'$1")
        print_text(frame.with_columns(texts).write_csv())
    else:
        rows = (["" if value is None else value for value in row] for row in frame.iter_rows())
        print_lines(markdown_table(frame.columns, rows, n_texts=0))


def print_json(value: Any) -> None:
    """Print a value as JSON, indented."""
    print_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


# --- Markdown, as GitHub has it ------------------------------------------------------------------

_MARKUP: Final = re.compile(r"[\\|*`\[\]$~]|(?<!\w)_|_(?!\w)")
"""An underscore inside a word is no markup; what is between dollars is taken for a formula."""


def escaped(text: str) -> str:
    """Escape all that would be markup, HTML among it, and put the text on one line."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(text.replace("\n", "; "), quote=False))


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, n_texts: int
) -> Iterator[str]:
    """Write a table; its first `n_texts` columns are aligned left, numbers right."""
    yield _markdown_row(heads)
    yield _markdown_row("---" if k < n_texts else "---:" for k, _ in enumerate(heads))
    yield from map(_markdown_row, rows)


def _markdown_row(entries: Iterable[Any]) -> str:
    return f"| {' | '.join(escaped(str(entry)) for entry in entries)} |"
