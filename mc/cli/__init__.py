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
from importlib import import_module
from typing import Annotated, Any, Final

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
from mc.cli.stderr import fail, warnings_as_lines
from mc.cli.stdout import discard_stdout

resource: Final[Any] = import_module("resource") if os.name == "posix" else None

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
    help="Simulate retries against a failing dependency thousands of times for every policy you "
    "consider: how many requests fail, how large the storm is, whether it ends, and how sure that "
    "is.",
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


_MOST_BYTES: Final = 3_500_000_000
_CORE_BYTES: Final = 200_000_000
"""Address space that libraries take, and for each core, whose threads have stacks and heaps: 3.1 GB
with two cores. With less they abort, or wait for ever, where nobody can say why."""

_LIGHT: Final = ("new", "check", "status", "presets", "schema")
"""Commands that need little of it."""


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options before the command."""
    if resource is None or context.invoked_subcommand in _LIGHT:
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _MOST_BYTES + _CORE_BYTES * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < needed:
        fail(
            f"the address space is limited to {limit / 1e9:.1f} GB, and this takes "
            f"{needed / 1e9:.1f} GB of it, though far less memory: ulimit -v unlimited",
            1,
        )


def main() -> None:
    """Entry point of `retrystorm` and of `python -m mc`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us, with >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where ± cannot be written, ? is better than none
    # thousands of cells are millions of objects without a cycle, looked through again and again
    gc.set_threshold(1_000_000, 50, 100)
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
    finally:
        # the interpreter would look through all that there is for garbage, twice, before it ends
        gc.freeze()
