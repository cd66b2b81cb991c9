"""A Dask cluster in place of the threads of this process.

Workers receive tasks, simulate them, write the shards into the results folder themselves, and
return numbers of rows. They must be able to write there, and have the same retrystorm.

A worker may die and its task be done again by another, or by two: the same rows make the same
shard. Only a task that was saved in parts may leave shards that overlap; they are put aside.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from mc import store
from mc.runner.shards import make_shards
from mc.runner.simulation import Task
from mc.runner.storage import Storage
from mc.store.threads import StopFlag, deferred_signals

CONNECT_SECONDS: Final = 10
"""How long a scheduler may take to answer, or a worker to give a result that it has."""

TASKS_PER_THREAD: Final = 2
"""Tasks that a thread of a worker is sent ahead, the one it does included."""

COUNT_SECONDS: Final = 2.0
"""How often the threads of all workers are counted: workers come and go."""

LOOK_SECONDS: Final = 2.0
"""How often a worker looks whether the run still holds its lock: it ends with the run."""

SHARED_SECONDS: Final = 10.0
"""A network file system may take so long to show a new file."""

_POLL_SECONDS: Final = 0.02
"""How often this side looks for results, and for Ctrl-C."""


class ClusterError(ValueError):
    """A cluster that cannot be used; the message says what would be right."""


# --- this side -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """A connection to a Dask scheduler.

    Attributes
    ----------
    address : str
        Of the scheduler.
    client : distributed.Client
        The connection.
    """

    address: str
    client: Any

    @property
    def n_threads(self) -> int:
        """Threads of all workers, now; an `OSError` where the connection is lost."""
        try:
            return sum(self.client.nthreads().values())
        except OSError as error:
            raise self.lost from error

    @property
    def lost(self) -> OSError:
        """The error that says that nothing is heard of the scheduler any more."""
        return OSError(f"scheduler {self.address}: the connection to it is lost")


@contextmanager
def connected(address: str, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Connect to a scheduler, ``tcp://10.0.0.1:8786``, and wait until it has a worker.

    Raises
    ------
    ClusterError
        Dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            f"scheduler {address}: Dask is not installed: pip install 'retrystorm[dask]'"
        ) from error
    # for a protocol that it does not know, Dask makes a client that cannot be closed
    if not re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^/]+:\d+", address):
        raise ClusterError(f"scheduler must be an address like tcp://host:8786, got {address!r}")
    try:
        # asked first: of what is no scheduler, a client waits for ever
        with ThreadPoolExecutor(1) as pool:  # a notebook has a loop of its own in this thread
            pool.submit(_ask, address).result()
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # whatever the other side sent may fail anywhere in there
        raise ClusterError(f"scheduler {address}: no Dask scheduler answers there") from error
    with client:
        cluster = Cluster(address, client)
        if not cluster.n_threads:
            say(f"scheduler {address}: waiting for workers")
            while not cluster.n_threads:
                time.sleep(0.5)
        yield cluster


def _ask(address: str) -> None:
    """Ask a scheduler who it is."""
    import asyncio  # with it come sockets and ciphers, which other runs need not load

    from distributed.core import rpc

    async def identity() -> None:
        async with asyncio.timeout(CONNECT_SECONDS), rpc(address) as scheduler:
            await scheduler.identity(n_workers=0)

    asyncio.run(identity())


def work_on(
    cluster: Cluster,
    folder: Path,
    storage: Storage,
    token: str,
    tasks: Sequence[Task],
    progress: Callable[[int], None],
) -> None:
    """Have all tasks done by the workers of a cluster.

    Only as many are sent as keep every thread busy. After an interrupt, or an error, those that
    were sent are called back; what is written stays.

    Parameters
    ----------
    cluster, folder, storage
        The workers, the results folder, and what is saved in it.
    token : str
        Of the lock of this run, see `store.held`.
    tasks, progress
        As for `threads.do_all`; called with the number of new rows.

    Raises
    ------
    ClusterError
        A worker has another retrystorm, or does not see the folder.
    OSError
        A worker cannot write, workers died again and again, or the scheduler is gone.
    """
    from distributed import as_completed

    client = cluster.client
    waiting = deque(tasks)
    if not store.is_remote(folder):
        folder = folder.absolute()
    under_way: set[Any] = set()
    finished = as_completed(loop=client.loop)
    start = _starter()
    n_threads, counted = cluster.n_threads, time.monotonic()

    def send() -> None:
        while waiting and len(under_way) < TASKS_PER_THREAD * max(1, n_threads):
            task = waiting.popleft()
            payload = pickle.dumps((folder, storage.only(task), task, token))
            key = f"retrystorm-{uuid.uuid4().hex}"
            future = client.submit(start, code_name(), payload, key=key, pure=False)
            under_way.add(future)
            finished.add(future)

    with deferred_signals() as stop:
        try:
            send()
            while under_way and not stop.is_set():
                if not finished.has_ready():
                    time.sleep(_POLL_SECONDS)
                    continue
                future = next(finished)
                outcome = _outcome(cluster, future)
                if outcome is None:
                    finished.add(future)
                    continue
                n_rows, rest = outcome
                under_way.remove(future)
                progress(n_rows)
                waiting.extendleft(reversed(rest))
                if time.monotonic() > counted + COUNT_SECONDS:
                    n_threads, counted = cluster.n_threads, time.monotonic()
                send()
        finally:
            with suppress(Exception):  # they may be gone with the connection
                client.cancel(list(under_way))


def _outcome(cluster: Cluster, future: Any) -> tuple[int, list[Task]] | None:
    """What a worker returned; raises what went wrong there.

    None: it was lost with its worker, and another makes it again, or its worker does not answer. It
    is not waited for here, as Ctrl-C could not end that.
    """
    from distributed import CancelledError, KilledWorker

    if future.status in ("lost", "pending"):
        return None
    try:
        result = future.result(timeout=CONNECT_SECONDS)
    except CancelledError as error:
        raise cluster.lost from error
    except ImportError as error:
        raise ClusterError(
            f"scheduler {cluster.address}: a worker has another retrystorm, or none ({error}): "
            f"install {code_name().partition(' (')[0]} there"
        ) from error
    except KilledWorker as error:
        raise OSError(
            f"scheduler {cluster.address}: workers died again and again at the same task"
        ) from error
    except OSError as error:
        if future.status == "error":  # of the worker's disk
            raise
        if isinstance(error, TimeoutError):
            return None
        raise cluster.lost from error
    n_rows, rest = pickle.loads(result)
    return n_rows, rest


def _starter() -> Callable[[str, bytes], bytes]:
    """The function that workers call.

    A function inside another is sent as code: so a worker, or the scheduler, that has another
    retrystorm, or none, can still say so.
    """

    def start(expected: str, payload: bytes) -> bytes:
        from mc.runner.dask import make_here

        return make_here(expected, payload)

    return start


# --- the worker's side ----------------------------------------------------------------------------


@cache
def code_name() -> str:
    """Version and hash of the package, the same on all machines that work together."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return f"retrystorm {version('retrystorm')} (source {digest.hexdigest()[:12]})"


def make_here(expected: str, payload: bytes) -> bytes:
    """Do a task on a worker.

    `expected` is the `code_name` of the sender, `payload` holds folder, storage, task and token,
    and the result is what `make_shards` returns; both pickled.

    Raises
    ------
    ClusterError
        The package here has another version or source than the sender's, or the folder here is
        not that of the run.
    """
    if code_name() != expected:
        raise ClusterError(
            f"the worker on {platform.node()} has {code_name()}, this is {expected}: "
            "install the same on all machines"
        )
    folder, storage, task, token = pickle.loads(payload)
    run = _Run(folder, token)
    run.wait_until_seen()
    made = make_shards(folder, storage, task, run, may_write=lambda: store.is_held(folder, token))
    return pickle.dumps(made)


class _Run(StopFlag):
    """Tells a worker whether the run that has a token has ended."""

    def __init__(self, folder: Path, token: str) -> None:
        super().__init__()
        self.folder, self.token = folder, token
        self.next_look = 0.0

    def is_set(self) -> bool:
        """Whether the run has ended; looks into the folder from time to time."""
        if not super().is_set() and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_SECONDS
            if not store.is_held(self.folder, self.token):
                self.set()
        return super().is_set()

    def wait_until_seen(self) -> None:
        """Wait until the run's lock can be seen; after a while, raise `ClusterError`."""
        deadline = time.monotonic() + SHARED_SECONDS
        while not store.is_held(self.folder, self.token):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{self.folder}: the worker on {platform.node()} does not see this run there: "
                    "the folder must be on storage that all machines share"
                )
            time.sleep(0.5)
