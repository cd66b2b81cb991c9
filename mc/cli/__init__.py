"""The command line: parses, calls one function, prints. Data go to stdout, all else to stderr.

The command X is the function X in X.py; schema is in new.py, merge in run.py. What they share:

    options, questions             options; which cells are asked about
    signals, stderr, stdout        Ctrl-C; messages, errors and progress; results
    formats, readable              facts and data frames in each format; texts for readers
    result_tables, terminal_tables what is printed of a finished run, and how a terminal shows it

Whatever takes long to import is imported where it is used: `--help` loads typer alone.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import Annotated

import typer

from mc.cli import (
    ask,
    best,
    check,
    compare,
    demo,
    doctor,
    export,
    frontier,
    methods,
    new,
    plan,
    presets,
    report,
    run,
    sensitivity,
    show,
    status,
    trace,
    verify,
)
from mc.cli.stderr import warnings_as_lines
from mc.cli.stdout import discard_stdout

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
    help="Rerun a retry-storm model for thousands of seeds at every point of a grid, and say of "
    "each number how large it is, how sure that is, and whether a claim survives other seeds.",
)

COMMANDS = (
    *(demo.demo, ask.ask, new.new, check.check, plan.plan, run.run, run.merge),
    *(show.show, report.report, compare.compare, best.best, frontier.frontier),
    *(sensitivity.sensitivity, trace.trace, status.status, verify.verify),
    *(methods.methods, presets.presets, export.export, new.schema, doctor.doctor),
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
    # thousands of cells are millions of objects without a cycle, looked through again and again
    gc.set_threshold(100_000, 50, 100)
    for variable in ("NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS"):
        os.environ.pop(variable, None)  # for those who look for faults in code of their own
    name = "retrystorm" if not sys.argv[0].endswith("__main__.py") else "python -m mc"
    try:
        with warnings_as_lines():
            app(prog_name=name)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        discard_stdout()  # the help, the version: whatever else is written has its own message
        sys.stderr.write(f"{error.filename or 'stdout'}: {error.strerror}\n")
        sys.exit(1)
