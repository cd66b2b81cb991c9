"""Tables and text in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

_MARKUP: Final = re.compile(r"[\\|*<`\[\]$&~]|(?<!\w)_|_(?!\w)")
"""An underscore inside a word is no markup; what is between dollars is taken for a formula."""


def escaped(text: str) -> str:
    """Escape all that would be markup, and put the text on one line."""
    return _MARKUP.sub(r"\\\g<0>", text.replace("\n", "; "))


def table_lines(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, n_texts: int
) -> Iterator[str]:
    """Write a table; its first `n_texts` columns are aligned left, numbers right."""
    yield _row(heads)
    yield _row("---" if k < n_texts else "---:" for k, _ in enumerate(heads))
    yield from map(_row, rows)


def _row(entries: Iterable[Any]) -> str:
    return f"| {' | '.join(escaped(str(entry)) for entry in entries)} |"
