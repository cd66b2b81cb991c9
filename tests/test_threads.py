"""Work on threads: in order, a few at once, and stopped by signals at any moment without a hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import mc
from mc.model import Generator
from mc.runner.simulation import plan_blocks, prepare, simulate_range
from mc.store.threads import StopFlag, deferred_signals, do_all, on_threads

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

N_INTERRUPTS: Final = 500

INTERRUPTED: Final = f"""
import os, signal, subprocess, sys
from mc.store.threads import do_all

inside = False

def interrupt(signum, frame):
    if inside:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
signal.signal(signal.SIGTERM, interrupt)
shooter = subprocess.Popen([sys.executable, "-c", '''
import os, random, signal, time
generator = random.Random(1)
while os.getppid() == %d:
    time.sleep(generator.uniform(0.0002, 0.006))
    os.kill(%d, generator.choice([signal.SIGINT, signal.SIGTERM]))
''' % (os.getpid(), os.getpid())])
n = 0
while n < {N_INTERRUPTS}:
    try:
        inside = True
        while True:
            do_all(range(1000), 4, lambda task, stop: (task, ()))
    except KeyboardInterrupt:
        inside = False
        n += 1
shooter.kill()
print(n)
"""


def test_hundreds_of_interrupts_of_tiny_tasks_hang_no_run() -> None:
    """A handler that raises amid `concurrent.futures` hung before 200, three times out of three."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == (f"{N_INTERRUPTS}\n", "")


# --- signals -------------------------------------------------------------------------------------


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals that came to a handler which does not raise."""
    received: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    yield received
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_handled_after_the_block_and_what_was_stopped_is_an_interrupt(
    handled: list[int], number: int
) -> None:
    def block() -> None:
        with deferred_signals() as stop:
            assert not stop.is_set()
            os.kill(os.getpid(), number)
            while not stop.is_set():
                time.sleep(0.001)
            assert handled == []

    with pytest.raises(KeyboardInterrupt):
        block()
    assert handled == [number]
    os.kill(os.getpid(), number)  # the handler of before is back
    while len(handled) < 2:
        time.sleep(0.001)
    assert handled == [number, number]


def test_an_ignored_signal_stays_ignored() -> None:
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            assert not stop.is_set()
    finally:
        signal.signal(signal.SIGINT, previous)


def test_another_thread_handles_no_signals() -> None:
    seen: list[bool] = []

    def work() -> None:
        with deferred_signals() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_after_an_interrupt_what_was_made_is_taken_and_nothing_is_begun(
    handled: list[int],
) -> None:
    taken: list[int] = []

    def make(task: int, stop: StopFlag) -> tuple[int, list[int]]:
        if task == 0:
            os.kill(os.getpid(), signal.SIGINT)
        while not stop.is_set():
            time.sleep(0.001)
        return task, [task]

    with pytest.raises(KeyboardInterrupt):
        do_all(range(100), 2, make, taken.append)
    assert {0} <= set(taken) <= {0, 1, 2, 3}


# --- tasks ---------------------------------------------------------------------------------------


def test_what_is_left_of_a_task_is_done_next() -> None:
    begun: list[tuple[str, int]] = []

    def make(task: tuple[str, int], stop: StopFlag) -> tuple[None, list[tuple[str, int]]]:
        begun.append(task)
        name, n = task
        return None, [(name, n - 1)] if n else []

    do_all([("a", 2), ("b", 0), ("c", 0), ("d", 1)], 1, make)
    assert [begun.index(("a", n)) for n in (2, 1, 0)] == sorted(
        begun.index(("a", n)) for n in (2, 1, 0)
    )
    assert begun.index(("a", 0)) < begun.index(("d", 1))
    assert len(begun) == 7


def test_an_error_ends_the_other_threads() -> None:
    ended = threading.Event()

    def make(task: int, stop: StopFlag) -> tuple[None, list[int]]:
        if task == 1:
            raise ValueError("wrong")
        while not stop.is_set():
            time.sleep(0.001)
        ended.set()
        return None, []

    with pytest.raises(ValueError, match="wrong"):
        do_all(range(10), 2, make)
    assert ended.is_set()


def test_results_come_in_the_order_of_the_items() -> None:
    def late(k: int) -> int:
        time.sleep(0.01 * (k % 3 == 0))
        return k * k

    assert on_threads(late, range(20), 4) == [k * k for k in range(20)]


LONG: Final[dict[str, Any]] = {"rounds": 400_000, "fault_rounds": 400_000, "fault_capacity": 0}

CROWDED: Final[dict[str, Any]] = {
    **{"rounds": 1_000, "fault_rounds": 1_000, "fault_capacity": 0, "fault_start": 0},
    **{"arrivals_per_second": 60_000, "backoff_base": 1, "backoff_cap": 1},
}

ENDLESS: Final[dict[str, list[mc.Cell]]] = {
    "rounds": [mc.Cell(**LONG, tries=(1900,), jitter="decorrelated")],
    "single": [mc.Cell(**LONG, tries=(1900,))],
    "fast": [mc.Cell(**LONG, tries=(1900,), backoff_cap=8192)],
    "masks": [mc.Cell(**CROWDED, tries=(n,)) for n in range(1880, 1896)],
    "lesson": [mc.Cell(**LONG, tries=(1900,))],
}
"""By the loop that they go through, cells of which a replication takes long."""


@pytest.mark.parametrize("loop", ENDLESS)
def test_one_long_replication_does_not_delay_a_stop(loop: str) -> None:
    generator: Generator = "lesson" if loop == "lesson" else "philox"
    cells = ENDLESS[loop]
    prepare(cells, generator)
    (block,) = plan_blocks(dict(enumerate(cells)), generator)
    flag = StopFlag()
    threading.Timer(0.3, flag.set).start()
    started = time.thread_time()  # of the processor: it may be given to others
    rows = simulate_range(block, np.array([1]), 1, flag)
    assert time.thread_time() - started < 10
    assert len(rows) == 0


def test_threads_find_numpy_imported_in_polars() -> None:
    """Polars has a proxy in its place until it is used, and two threads may race to replace it."""
    code = "import mc.runner, polars._dependencies as d; print(type(d.numpy).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "module\n"
