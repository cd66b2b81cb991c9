"""Runs in processes of their own, to be watched and stopped from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mc import store

# A parent that ignores Ctrl-C hands that down: switch it on again before the program looks.
# A run waits before and after each file gets its name, and so takes long enough to be watched and
# stopped, however fast it works.
COMMAND: Final = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
replace = os.replace
def slowly(source, target):
    seconds = 0.01 if "replications" in str(target) else 0.1
    time.sleep(seconds)
    replace(source, target)
    time.sleep(seconds)
os.replace = slowly
from mc.cli import main
main()
"""

DEADLINE_SECONDS: Final = 120.0


class Running:
    """The command `retrystorm ...` on one thread, in a process of its own.

    Parameters
    ----------
    out : Path
        The results folder.
    arguments : str
        The command and its arguments, without the folder.
    """

    def __init__(self, out: Path, *arguments: str) -> None:
        self.out = out
        self.n_before = len(store.shard_paths(out))
        self.started_ns = time.time_ns()
        command = [sys.executable, "-c", COMMAND, *arguments, "--out", str(out)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Return when it has happened, or the process has ended."""
        give_up = time.monotonic() + DEADLINE_SECONDS
        while self.is_alive and not happened():
            if time.monotonic() > give_up:
                raise TimeoutError("it did not happen")
            time.sleep(0.002)

    def wait_for_shards(self, n: int) -> None:
        """Return when the process has added n shards, or has ended."""
        self.wait_until(lambda: len(store.shard_paths(self.out)) >= self.n_before + n)

    def wait_for_lock(self) -> None:
        """Return when the process is at work in the folder, or has ended."""

        def is_at_work() -> bool:
            for path in self.out.glob(".lock*"):
                try:
                    if json.loads(path.read_text())["pid"] == self.process.pid:
                        return True
                except (OSError, ValueError):
                    continue  # it is being written, or gone
            return False

        self.wait_until(is_at_work)

    def wait_for_table(self, name: str) -> None:
        """Return when the process has written a table of the results, or has ended."""
        path = self.out / f"{name}.parquet"

        def is_new() -> bool:
            return path.exists() and path.stat().st_mtime_ns > self.started_ns

        self.wait_until(is_new)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def stop(self, signum: int) -> tuple[int, str, str]:
        """Send a signal; give exit code, stdout and stderr."""
        self.process.send_signal(signum)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        """Wait until it has ended; give exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, out, err
