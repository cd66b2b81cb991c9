"""The command line: parses, calls one function, prints. Data go to stdout, all else to stderr.

One file per kind of command: `starting` (before the first run), `running`, `reading`, `health`.
What they share stands in `common`, the ways to print in `formats`, the tables of a run in
`printing`, numbers in words in `words`. A command is a function that is named in `COMMANDS`. What
is heavy is imported where it is used: numba and polars would cost `--help` a second.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

import typer

from mc.cli.common import stdout_to_nowhere
from mc.cli.deciding import best, compare, frontier
from mc.cli.health import doctor
from mc.cli.reading import show, status, verify
from mc.cli.reporting import report, trace
from mc.cli.running import merge, plan, run
from mc.cli.starting import check, new, schema

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
    help="Rerun a retry-storm model for thousands of seeds at every point of a grid, and say of "
    "each number how large it is, how sure that is, and whether a claim survives other seeds.",
)

COMMANDS = (
    *(new, check, plan, run, merge, show, report, compare, best, frontier, trace),
    *(status, verify, schema, doctor),
)
"""In the order in which the help lists them."""

for _command in COMMANDS:
    app.command()(_command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"retrystorm {version('retrystorm')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point of `retrystorm` and of `python -m mc`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us, with >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where ± cannot be written, ? is better than none
    try:
        app(prog_name="retrystorm" if not sys.argv[0].endswith("__main__.py") else "python -m mc")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        stdout_to_nowhere()  # the help, the version: whatever else is written has its own message
        sys.stderr.write(f"{error.filename or 'stdout'}: {error.strerror}\n")
        sys.exit(1)
