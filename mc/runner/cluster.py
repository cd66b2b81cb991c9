"""A Dask cluster in place of the threads of this process.

Workers are sent which rows to make, make them, and write them into the results folder themselves;
back come numbers of rows. They must be able to write there, and have the same retrystorm.

A worker may die and its task be done again by another, or by two: the same rows make the same
shard. Only a task that was saved in parts may leave shards that overlap; they are put aside.
"""

from __future__ import annotations

import pickle
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from mc import store
from mc.runner.making import Recipe
from mc.runner.tallying import AnyTask
from mc.runner.worker import ClusterError, code_name

CONNECT_SECONDS: Final = 10
"""A scheduler that does not answer by then is not there."""

TASKS_PER_THREAD: Final = 2
"""Tasks that a thread of a worker has at most, the one it does included."""

COUNT_SECONDS: Final = 2.0
"""How often the workers are counted: they come and go."""


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
        """Threads of all workers that are there now."""
        return sum(self.client.nthreads().values())


@contextmanager
def connected(address: str, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Connect to a scheduler, and wait until it has a worker.

    Parameters
    ----------
    address : str
        For example ``tcp://10.0.0.1:8786``.
    say : callable
        Told if there is no worker yet.

    Yields
    ------
    Cluster
        With at least one thread; the connection is closed in the end.

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
    # what is no protocol of Dask's ends in a client that cannot be closed
    if not re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^/]+:\d+", address):
        raise ClusterError(f"scheduler must be an address like tcp://host:8786, got {address!r}")
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(f"scheduler {address}: no Dask scheduler answers there") from error
    with client:
        cluster = Cluster(address, client)
        if not cluster.n_threads:
            say(f"scheduler {address}: waiting for workers")
            while not cluster.n_threads:
                time.sleep(0.5)
        yield cluster


def work_on(
    cluster: Cluster,
    recipe: Recipe,
    token: str,
    tasks: Sequence[AnyTask],
    progress: Callable[[int], None],
) -> None:
    """Have all tasks done by the workers of a cluster.

    So many are given out that every thread has work, and no more. On an interrupt, or an error,
    those that were given out are called back; what is written stays.

    Parameters
    ----------
    cluster : Cluster
        Who does them.
    recipe : Recipe
        What they have in common.
    token : str
        Of the lock of this run, see `store.held`.
    tasks : sequence of Task
        In the order in which they are begun.
    progress : callable
        Told the number of new rows.

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
    if not store.is_remote(recipe.folder):
        recipe = replace(recipe, folder=recipe.folder.absolute())
    under_way: dict[Any, AnyTask] = {}
    finished = as_completed(loop=client.loop)
    start = _starter()

    def give_out() -> None:
        while waiting and len(under_way) < TASKS_PER_THREAD * max(1, n_threads):
            task = waiting.popleft()
            payload = pickle.dumps((recipe, task, token))
            key = f"retrystorm-{uuid.uuid4().hex}"
            future = client.submit(start, code_name(), payload, key=key, pure=False)
            under_way[future] = task
            finished.add(future)

    n_threads, counted = cluster.n_threads, time.monotonic()
    try:
        give_out()
        for future in finished:
            n_rows, rest = _outcome(cluster, future)
            del under_way[future]
            progress(n_rows)
            waiting.extendleft(reversed(rest))
            if time.monotonic() > counted + COUNT_SECONDS:
                n_threads, counted = cluster.n_threads, time.monotonic()
            give_out()
    except BaseException:
        client.cancel(list(under_way))
        raise


def _outcome(cluster: Cluster, future: Any) -> tuple[int, list[AnyTask]]:
    """What a worker gave back, or the error that says what is wrong."""
    from distributed import KilledWorker

    if future.status not in ("finished", "error"):
        raise OSError(f"scheduler {cluster.address}: the connection to it is lost")
    error = future.exception()
    if error is None:
        n_rows, rest = pickle.loads(future.result())
        return n_rows, rest
    if isinstance(error, ImportError):
        raise ClusterError(
            f"scheduler {cluster.address}: a worker has another retrystorm, or none ({error}): "
            f"install {code_name().partition(' (')[0]} there"
        ) from error
    if isinstance(error, KilledWorker):
        raise OSError(
            f"scheduler {cluster.address}: workers died again and again at the same task"
        ) from error
    raise error


def _starter() -> Callable[[str, bytes], bytes]:
    """What a worker is sent to do.

    A function inside another is sent as code: so a worker, or the scheduler, that has another
    retrystorm, or none, can still say so.
    """

    def start(expected: str, payload: bytes) -> bytes:
        from mc.runner import worker

        return worker.make_here(expected, payload)

    return start
