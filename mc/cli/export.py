"""The command export: a policy of a finished run as the configuration of a library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

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
    layer: Annotated[
        int | None,
        typer.Option("--layer", help="One layer alone; the outermost is 1.", **options.whole(1)),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Print the rest, too, where a budget is lost.")
    ] = False,
) -> None:
    """Print a cell's policy as the configuration of a library.

    What the library cannot express is said on stderr, and in comments where the configuration can
    have them. If that is a budget, a breaker or a time-out, nothing is printed, for the rest would
    not protect: the exit code is 1. A policy in several scenarios is one.
    """
    with errors_as_messages():
        from mc import decisions, store
        from mc.experiment import cells_of
        from mc.model.snippets import LostGuard, policies, snippets_of

        chosen, _ = decisions.select(store.load(folder), cell)
        cells = cells_of(chosen)
        if len({tuple(policies(one)) for one in cells.values()}) > 1:
            fail(f"--cell: {cell} names several policies; give more conditions or a number", 2)
        snippets = list(snippets_of(next(iter(cells.values())), library))
        if layer is not None:
            if not 1 <= layer <= len(snippets):
                fail(f"--layer: {layer} is none of the {len(snippets)} layers of {cell}", 2)
            snippets = snippets[layer - 1 : layer]
        for where, snippet in snippets:
            for part in snippet.cannot:
                write_message(f"{where + ': ' if where else ''}{library} cannot say: {part}")
        lost = [part for _, one in snippets for part in one.cannot if isinstance(part, LostGuard)]
        if lost and not partial:
            fail("what is left would not protect as this policy does; --partial prints it", 1)
        if library == "grpc" and len(snippets) > 1:
            write_message(f"{len(snippets)} layers, a service config each; --layer 1 prints one")
        lines: list[str] = []
        for where, snippet in snippets:
            lines += ["---"] if library in _YAML and lines else []
            lines += [*_comments(where, snippet.cannot, library), snippet.text]
        print_lines(lines)


_YAML: Final = ("envoy", "istio", "resilience4j", "linkerd")
"""Libraries whose snippets are documents of one YAML file."""


def _comments(where: str, cannot: Sequence[str], library: str) -> Iterator[str]:
    """Which of several layers a snippet is of, and what it leaves out; JSON has no comments."""
    if library != "grpc":
        mark = "//" if library in ("finagle", "polly") else "#"
        yield from (f"{mark} {line}" for line in [where] if where)
        yield from (f"{mark} {library} cannot say: {part}" for part in cannot)
