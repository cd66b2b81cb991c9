"""Runs in processes of their own, to be watched and stopped from outside."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mc import store

# A parent that ignores Ctrl-C hands that down: switch it on again before the program looks.
# A run waits after each file until it is told to go on, and so is where a test wants it, however
# fast or slow both are. Once it may go on alone it takes its time, so that it can still be stopped.
COMMAND: Final = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
replace, told = os.replace, int(sys.argv.pop(1))
def slowly(source, target):
    seconds = 0.01 if "replications" in str(target) else 0.1
    time.sleep(seconds)
    replace(source, target)
    os.write(told, b".")
    if not os.read(0, 1):
        time.sleep(seconds)
os.replace = slowly
from mc.cli import main
main()
"""

DEADLINE_SECONDS: Final = 300.0


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
        self.tables_before = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
        self._n_written, self._n_allowed = 0, 0
        self._written, told = os.pipe()
        command = [sys.executable, "-c", COMMAND, str(told), *arguments, "--out", str(out)]
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, text=True, pass_fds=(told,), **pipes)
        os.close(told)

    def go_on(self, n_files: int = 1) -> None:
        """Let the process write its next files, if it waits."""
        if select.select([self._written], [], [], 0)[0]:
            self._n_written += len(os.read(self._written, 1000))
        if self._n_written > self._n_allowed and self.process.stdin is not None:
            os.write(self.process.stdin.fileno(), b"." * n_files)
            self._n_allowed += n_files

    def let_go(self) -> None:
        """Let the process go on alone."""
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Let the process go on until it has happened, or the process has ended."""
        give_up = time.monotonic() + DEADLINE_SECONDS
        while self.is_alive and not happened():
            if time.monotonic() > give_up:
                raise TimeoutError("it did not happen")
            self.go_on()
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
            return path.exists() and path.stat().st_mtime_ns != self.tables_before.get(path)

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
        """Let it go on alone until it has ended; give exit code, stdout and stderr."""
        self.let_go()
        out, err = self.process.communicate(timeout=DEADLINE_SECONDS)
        os.close(self._written)
        return self.process.returncode, out, err
