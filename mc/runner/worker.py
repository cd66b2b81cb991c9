"""What a worker of a Dask cluster does with a task that it is sent."""

from __future__ import annotations

import hashlib
import pickle
import platform
import threading
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from mc import store
from mc.runner.making import make_shards

LOOK_SECONDS: Final = 2.0
"""How often a worker looks whether the run is still at work, so that it does not go on for one
that was stopped."""

SHARED_SECONDS: Final = 10.0
"""A network file system may show a new file this late."""


class ClusterError(ValueError):
    """A cluster that cannot be used; the message says what would be right."""


@cache
def code_name() -> str:
    """Version and hash of the package: who works together must have the same."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return f"retrystorm {version('retrystorm')} (source {digest.hexdigest()[:12]})"


def make_here(expected: str, payload: bytes) -> bytes:
    """Do a task on a worker.

    Parameters
    ----------
    expected : str
        `code_name` of who sent it.
    payload : bytes
        Recipe, task and token.

    Returns
    -------
    bytes
        What `make_shards` gives.
    """
    if code_name() != expected:
        raise ClusterError(
            f"the worker on {platform.node()} has {code_name()}, this is {expected}: "
            "install the same on all machines"
        )
    recipe, task, token = pickle.loads(payload)
    run = _Run(recipe.folder, token)
    run.wait_until_seen()
    return pickle.dumps(
        make_shards(recipe, task, run, may_write=lambda: store.is_held(recipe.folder, token))
    )


class _Run(threading.Event):
    """The end of the run that has a token, as an event that a worker can look at."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__()
        self.folder, self.token = folder, token
        self.next_look = 0.0

    def is_set(self) -> bool:
        """Whether the run has ended; asks the folder from time to time."""
        if not super().is_set() and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_SECONDS
            if not store.is_held(self.folder, self.token):
                self.set()
        return super().is_set()

    def wait_until_seen(self) -> None:
        """Wait until the run's lock is there; refuse if it is not.

        Raises
        ------
        ClusterError
            The folder here is another one than that of the run, or the run has ended.
        """
        deadline = time.monotonic() + SHARED_SECONDS
        while not store.is_held(self.folder, self.token):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{self.folder}: the worker on {platform.node()} does not see this run there: "
                    "the folder must be on storage that all machines share"
                )
            time.sleep(0.5)
