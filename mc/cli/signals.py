"""What Ctrl-C and SIGTERM do to a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from mc.cli.stderr import compile_notice, errors_as_messages, fail


def exit_code(error: KeyboardInterrupt) -> int:
    """Code of a command that ends after a signal, as shells have it: 130, or 143 after SIGTERM."""
    signum = error.args[0] if error.args else signal.SIGINT
    return 128 + int(signum)


@contextmanager
def interruptible(message: str, *modules: str, quiet: bool = False) -> Iterator[None]:
    """Around what simulates: end on a signal with this message, on a user's error with its own.

    All that it needs, and these further modules, are imported first, while a signal still ends the
    process at once.
    """
    try:
        with on_signals(interrupt):
            import_all(*modules, quiet=quiet)
            with errors_as_messages():
                yield
    except KeyboardInterrupt as error:
        fail(message, exit_code(error))


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
    raise KeyboardInterrupt(signum)


def end_at_once(signum: int, frame: object) -> None:
    """End the process: an exception can get lost where compiled code imports something."""
    os.write(2, b"stopped before it began; what was there is unchanged\n")
    os._exit(128 + signum)


def import_all(*modules: str, quiet: bool = False) -> None:
    """Import and compile what a run needs, while an interrupt can still end it on the spot."""
    with on_signals(end_at_once), compile_notice(quiet):
        for name in ("mc.runner", "mc.statistics", *modules):
            import_module(name)
        import_module("mc.kernel").prepare()
