"""What Ctrl-C and SIGTERM do to a command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from mc.cli.stderr import compile_notice, errors_as_messages, fail

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C or SIGTERM, as shells have it."""


@contextmanager
def interruptible(message: str) -> Iterator[None]:
    """Around what simulates: end on a signal with this message, on a user's error with its own.

    All that it needs is imported first, while a signal still ends the process at once.
    """
    try:
        with on_signals(interrupt):
            import_all()
            with errors_as_messages():
                yield
    except KeyboardInterrupt:
        fail(message, INTERRUPTED)


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


def import_all() -> None:
    """Import and compile what a run needs, while an interrupt can still end it on the spot."""
    with on_signals(end_at_once), compile_notice():
        for room in ("mc.runner", "mc.statistics"):
            import_module(room)
        import_module("mc.kernel").prepare()
