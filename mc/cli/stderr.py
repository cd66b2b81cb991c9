"""All that is written to stderr: messages, errors with their exit code, progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import typer

from mc.cli.readable import duration

PROGRESS_SECONDS: Final = 5.0
"""Between two lines of progress, where there is no terminal to draw a bar on."""


def write_message(message: str) -> None:
    """Write a message to stderr; what would move a terminal's cursor, from a name, is spelt out."""
    shown = (c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)
    typer.echo("".join(shown), err=True)


def write_caution(message: str) -> None:
    """Write a message if it is a `Caution`: what is said with --quiet."""
    from mc.experiment.messages import Caution

    if isinstance(message, Caution):
        write_message(message)


def fail(message: str, code: int) -> NoReturn:
    """Write a message to stderr and end with an exit code."""
    write_message(message)
    raise typer.Exit(code)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """End with a message, not a traceback, on what the user can mend: exit code 2, or 1 for I/O."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}; once that is mended, the same command goes on", 1)
    except MemoryError:
        fail("there is not enough memory for this", 1)
    except ValueError as error:
        if not isinstance(error, _errors_of_users()):
            raise
        fail(str(error), 2)


def _errors_of_users() -> tuple[type[ValueError], ...]:
    """Return the errors whose text is the message; imported once there is one."""
    from mc.experiment import ExperimentError
    from mc.store import FolderError

    return ExperimentError, FolderError


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Write a warning as its text alone, on one line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        write_message(" ".join(str(message).split()))

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


@contextmanager
def compile_notice(quiet: bool = False) -> Iterator[None]:
    """Write a message when the kernel is compiled, which takes longer than all other imports."""
    if quiet:
        yield
        return
    from numba.core import event

    class Listener(event.Listener):
        is_announced = False

        def on_start(self, event: Any) -> None:
            if not self.is_announced:
                is_kept = event.data["dispatcher"].stats.cache_path is not None
                write_message(f"compiling the kernel{' (once)' if is_kept else ''}")
            self.is_announced = True

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show how many rows are done: a bar on a terminal, else a line every few seconds."""
    if quiet:
        yield lambda done, total: None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield progress_lines("rows")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def progress_lines(unit: str) -> Callable[[int, int], None]:
    """Write every few seconds how many rows, or other units, are done.

    The time left is by the speed since the first of them were done: until then the kernel may have
    been compiled.
    """
    last = time.monotonic()
    n_at_first: int | None = None
    began: tuple[float, int] | None = None

    def show(done: int, total: int) -> None:
        nonlocal last, n_at_first, began
        now = time.monotonic()
        if n_at_first is None:
            n_at_first = done
        elif began is None and done > n_at_first:
            began = now, done
        if now - last < PROGRESS_SECONDS:
            return
        last = now
        left = ""
        if began is not None and done > began[1]:
            seconds = (now - began[0]) * (total - done) / (done - began[1])
            left = f", {duration(seconds)} left"
        write_message(f"{done:,} of {total:,} {unit}{left}")

    return show
