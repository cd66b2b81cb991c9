"""What the commands share: options, messages, signals, progress, and the way to stdout."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mc.cli.words import duration

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C or SIGTERM, as shells have it."""

stderr = Console(stderr=True, highlight=False)


def fail(message: str, code: int) -> NoReturn:
    """End with a message."""
    typer.echo(message, err=True)
    raise typer.Exit(code)


def tell(message: str) -> None:
    """Say something that is no result."""
    typer.echo(message, err=True)


@contextmanager
def faults() -> Iterator[None]:
    """Turn what the user can mend into a message and an exit code."""
    from mc.experiment import ExperimentError
    from mc.store import FolderError

    try:
        yield
    except (ExperimentError, FolderError) as error:
        fail(str(error), 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}; once that is mended, the same command goes on", 1)


@contextmanager
def on_signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM, unless whoever started us has them ignored."""
    previous = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def interrupt(signum: int, frame: object) -> None:
    """Let the work end as Python does it after Ctrl-C."""
    raise KeyboardInterrupt


def end_at_once(signum: int, frame: object) -> None:
    """End the process: an exception can get lost where compiled code imports something."""
    os.write(2, b"stopped before anything was done\n")
    os._exit(INTERRUPTED)


@contextmanager
def told_of_compiling() -> Iterator[None]:
    """Say so when the kernel is compiled: that takes longer than all other imports together."""
    from numba.core import event

    class Teller(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                kept = event.data["dispatcher"].stats.cache_path is not None
                typer.echo(f"compiling the kernel{' (once)' if kept else ''}", err=True)
            self.told = True

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Teller()):
        yield


def import_all() -> None:
    """Import and compile what a run needs, while an interrupt can still end it on the spot."""
    with on_signals(end_at_once), told_of_compiling():
        for room in ("mc.runner", "mc.statistics"):
            import_module(room)
        import_module("mc.kernel").prepare()


# --- options --------------------------------------------------------------------------------------


def parse_overrides(settings: Sequence[str], option: str = "--set") -> dict[str, str]:
    """Read what --set was given, or an option like it: name=value, each name once."""
    overrides = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            fail(f"{option}: must be name=value, got {setting!r}", 2)
        if name.strip() in overrides:
            fail(f"{option}: {name.strip()} is given twice", 2)
        overrides[name.strip()] = value.strip()
    return overrides


def _settings(incomplete: str) -> list[str]:
    """What the shell may complete: names of parameters."""
    from mc.model import PARAMETERS

    return [f"{name}=" for name in PARAMETERS if name.startswith(incomplete)]


# What several commands have in common.
File = Annotated[Path, typer.Argument(help="The experiment: a TOML file.", show_default=False)]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Results folder, or a URL: s3://bucket/folder.  [default: results/<name of FILE>]",
        show_default=False,
    ),
]
Replications = Annotated[
    int | None,
    typer.Option(help="Replications of every cell, in place of the file's.", min=1),
]
Seed = Annotated[int | None, typer.Option(help="Seed, in place of the file's.")]
Jobs = Annotated[
    int | None,
    typer.Option(help="Threads; results do not depend on it.  [default: all cores]", min=1),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=_settings,
        help="A parameter of every cell, in place of the file's; may be repeated.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Start afresh in a folder that holds other results.")
]
Folder = Annotated[
    str, typer.Argument(help="A results folder, or the URL of one.", show_default=False)
]


# --- progress ------------------------------------------------------------------------------------

LINE_SECONDS: Final = 5.0
"""Between two lines of progress, where there is no terminal to draw a bar on."""


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress on stderr: a bar on a terminal, else a line every few seconds."""
    if stderr.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=stderr, transient=True) as bar:
            task = bar.add_task("rows", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    started = last = time.monotonic()
    first: int | None = None

    def line(done: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first is None else first
        if now - last < LINE_SECONDS:
            return
        last = now
        left = ""  # the speed is not known before anything is done
        if done > first:
            left = f", {duration((now - started) * (total - done) / (done - first))} left"
        typer.echo(f"{done:,} of {total:,} rows{left}", err=True)

    yield line


# --- stdout ---------------------------------------------------------------------------------------


def print_text(text: str) -> None:
    """Print lines, whole, to stdout."""
    with to_stdout():
        sys.stdout.write(text)


def stdout_to_nowhere() -> None:
    """Drop what is still in the buffer: it would fail a second time when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def to_stdout() -> Iterator[None]:
    """End without a traceback if stdout cannot take what is written to it."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:  # of stdout: a file that cannot be read is a `FolderError`
        stdout_to_nowhere()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            raise typer.Exit(1) from error
        fail(f"stdout: {error.strerror}", 1)
