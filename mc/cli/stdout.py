"""All that is written to stdout: whole, and with one message if it cannot be written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from mc.cli.stderr import fail

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_text(text: str) -> None:
    """Print a text as it is."""
    with _stdout_errors():
        sys.stdout.write(text)


def print_lines(lines: Iterable[str]) -> None:
    """Print all lines, or none if one of them cannot be made."""
    print_text("".join(f"{line}\n" for line in lines))


def print_rich(blocks: Iterable[RenderableType], width: int | None = None) -> None:
    """Print lines and tables of rich, a `str` as it is: all of them, or none if one fails.

    As wide as the terminal, if no `width` is given.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, width=width)
    made = list(blocks)  # errors of what is read for them are not those of stdout
    with _stdout_errors():
        with console.capture() as captured:  # at the end of which rich writes, too
            for block in made:
                # what is wider than the terminal and must not wrap is not cut off either
                console.print(Text(block) if isinstance(block, str) else block, crop=False)
        sys.stdout.write(captured.get())


def discard_stdout() -> None:
    """Send what is still in the buffer nowhere: it would fail a second time when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _stdout_errors() -> Iterator[None]:
    """End without a traceback if stdout cannot take what is written to it."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:  # of stdout: a file that cannot be read is a `FolderError`
        discard_stdout()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            raise typer.Exit(1) from error
        fail(f"stdout: {error.strerror}", 1)
