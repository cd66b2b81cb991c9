"""The command export: a policy of a finished run as the configuration of a library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from mc.cli import options
from mc.cli.stderr import errors_as_messages, fail, write_message
from mc.cli.stdout import print_lines


def _libraries() -> list[str]:
    from mc.model.snippets import LIBRARIES

    return list(LIBRARIES)


def export(
    folder: options.Folder,
    cell: Annotated[
        str,
        typer.Option(
            "--cell", metavar="CELL", help="Its number, its policy, or conditions NAME=VALUE."
        ),
    ],
    library: Annotated[
        str,
        typer.Option("--for", help="The library.", **options.one_of(_libraries, metavar="LIBRARY")),
    ],
) -> None:
    """Print a cell's policy as the configuration of a library.

    What the library cannot express is said on stderr. A policy in several scenarios is one.
    """
    with errors_as_messages():
        from mc import decisions, store
        from mc.experiment import cells_of
        from mc.model.snippets import policies, snippets_of

        chosen, _ = decisions.select(store.load(folder), cell)
        cells = cells_of(chosen)
        if len({tuple(policies(one)) for one in cells.values()}) > 1:
            fail(f"--cell: {cell} names several policies; give more conditions or a number", 2)
        lines: list[str] = []
        for where, snippet in snippets_of(next(iter(cells.values())), library):
            lines += [*_head(where, library), snippet.text]
            for part in snippet.cannot:
                write_message(f"{where + ': ' if where else ''}{library} cannot say: {part}")
        print_lines(lines)


def _head(where: str, library: str) -> Iterator[str]:
    """A comment in front of one of several layers; JSON has none."""
    if where and library != "grpc":
        mark = "//" if library in ("finagle", "polly") else "#"
        yield f"{mark} {where}"
