"""Work on threads that Ctrl-C and SIGTERM can stop at any moment."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOOK_SECONDS: Final = 0.1
"""How often the main thread looks whether a signal has come while it waits for the others."""

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class StopFlag:
    """Tells all threads that they should end soon.

    Not a `threading.Event`: a signal handler that sets an event waits for ever if it has
    interrupted the main thread inside the lock of that event.
    """

    def __init__(self) -> None:
        self._byte = bytearray(1)

    @property
    def array(self) -> NDArray[np.int8]:
        """The flag for compiled code to look at, of shape (1,): not 0 once it is set."""
        import numpy as np  # not for commands that simulate nothing

        return np.frombuffer(self._byte, np.int8)

    def set(self) -> None:
        """Ask all who look at the flag to end."""
        self._byte[0] = 1

    def is_set(self) -> bool:
        """Whether to end."""
        return bool(self._byte[0])

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if it is set."""
        if self.is_set():
            raise KeyboardInterrupt


@contextmanager
def deferred_signals() -> Iterator[StopFlag]:
    """Let Ctrl-C and SIGTERM set a flag, and handle them as before when the block has ended.

    A handler that raises does so between any two instructions of the main thread. Inside one of
    the locks of `concurrent.futures` that leaves the lock taken, and the program waits for ever.

    Yields
    ------
    StopFlag
        For the block and its threads to look at. Signals that are ignored, or that end the process
        at once, still do; outside the main thread, which alone is interrupted, nothing sets it.

    Raises
    ------
    KeyboardInterrupt
        At the end of a block in which a signal came, unless its own handler raises.
    """
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    received: list[int] = []

    def receive(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        flag.set()

    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    try:
        for number in handlers:
            signal.signal(number, receive)
        yield flag
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[signal.Signals(received[0])](received[0], None)
            raise KeyboardInterrupt(received[0])


def do_all(
    tasks: Sequence[_Item],
    n_threads: int,
    make: Callable[[_Item, StopFlag], tuple[_Made, Sequence[_Item]]],
    take: Callable[[_Made], None] = lambda made: None,
) -> None:
    """Do tasks on threads, in their order, a few at once: memory does not grow with their number.

    Parameters
    ----------
    tasks : sequence
        Of any kind.
    n_threads : int
        How many threads.
    make : callable
        Does a task in one of the threads, or as much of it as there is before the flag is set;
        returns what it made, and what is left of the task, which is done next.
    take : callable
        Takes what was made, in this thread.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C and SIGTERM, see `deferred_signals`, after the threads have ended and what they
        made was taken.
    """
    waiting = deque(tasks)
    under_way: set[Future[tuple[_Made, Sequence[_Item]]]] = set()
    with deferred_signals() as stop, ThreadPoolExecutor(n_threads) as pool:
        try:
            while under_way or (waiting and not stop.is_set()):
                while waiting and len(under_way) < 2 * n_threads and not stop.is_set():
                    under_way.add(pool.submit(make, waiting.popleft(), stop))
                for future in wait(under_way, _LOOK_SECONDS, FIRST_COMPLETED).done:
                    under_way.remove(future)
                    made, rest = future.result()
                    waiting.extendleft(reversed(rest))
                    take(made)
        finally:
            stop.set()  # after an error, too, the threads end soon


def on_threads(
    function: Callable[[_Item], _Made], items: Sequence[_Item], n_threads: int
) -> list[_Made]:
    """Call a function with each item on threads, and return the results in the order of the items.

    Signals are met as in `do_all`.
    """
    results: dict[int, _Made] = {}

    def make(k: int, stop: StopFlag) -> tuple[tuple[int, _Made], list[int]]:
        return (k, function(items[k])), []

    do_all(range(len(items)), n_threads, make, lambda made: results.update([made]))
    return [results[k] for k in range(len(items))]
