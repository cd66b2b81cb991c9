"""One run at a time in a folder: on this machine, between containers, between hosts."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from folders import assert_same_results, run, snapshot
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app
from mc.store import FolderError, lock

TEXT: Final = """
title = "small"
replications = 400
[fixed]
rounds = 300
fault_start = 50
fault_rounds = 60
[grid]
tries = [[1], [3]]
"""

WHO_DIED: Final = 4_194_305
"""A process that cannot exist: Linux has no such number."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(lock, "SILENT_SECONDS", 0.5)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    run(TEXT, folder, replications=100)
    return folder


def leave(folder: Path, **changes: Any) -> Path:
    """Leave the lock of a run that was killed, but for the changes."""
    path = folder / ".lock"
    with store.held(folder, print):
        record = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(record | {"pid": WHO_DIED} | changes), "utf-8")
    return path


def from_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of a machine whose locks of files the other does not see."""
    monkeypatch.setattr(lock, "_machine", lambda: "another machine")
    monkeypatch.setattr(lock, "_flock", lambda descriptor, path: True)


# A living run ------------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused_and_not_touched(out: Path) -> None:
    with store.held(out, print):
        before = snapshot(out)
        del before[".lock"]
        for options in ({"replications": 200}, {"force": True}):
            with pytest.raises(
                FolderError, match=rf"in use by process {os.getpid()} on .* since 2"
            ):
                run(TEXT, out, **options)
        after = snapshot(out)
        del after[".lock"]
        assert after == before
    run(TEXT, out, replications=200)


def test_a_finished_folder_can_be_read_and_asked_for_while_it_is_locked(out: Path) -> None:
    with store.held(out, print):
        told = run(TEXT, out, replications=100)
        assert told == [f"{out} is finished: nothing to do (--force starts afresh)"]
        assert mc.load(out).complete


def test_a_run_of_another_host_is_known_by_its_signs_of_life(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(lock, "SILENT_SECONDS", 60.0)  # it ends with the first sign
    with store.held(out, print):
        from_another_host(monkeypatch)
        with pytest.raises(FolderError, match=f"in use by process {os.getpid()}"):
            mc.run(out.parent / "small.toml", out, replications=200, say=told.append)
    assert "for a sign of life of process" in told[0]


HOLD: Final = """
import sys, time
from pathlib import Path
from mc import store
from mc.store import lock
lock.BEAT_SECONDS = 0.05
out = Path(sys.argv[1])
with store.held(out, print):
    print("held", flush=True)
    sys.stdin.readline()
    store.write(out, "note", b"written")
"""


@contextmanager
def holding(out: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a folder, and writes into it when it is told to go on."""
    command = [*before, sys.executable, "-c", HOLD, str(out)]
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()  # or the end of its stdin would tell it to go on before it is dead


def test_a_run_that_stands_still_on_this_machine_keeps_its_folder(out: Path) -> None:
    with holding(out) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(2 * lock.SILENT_SECONDS)
        with pytest.raises(FolderError, match=f"in use by process {process.pid} "):
            run(TEXT, out, replications=200)
        process.send_signal(signal.SIGCONT)
        assert process.communicate("\n")[1] == ""
        assert process.returncode == 0


def test_a_run_that_stood_still_sees_that_another_host_has_taken_its_folder(
    out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with holding(out) as process:
        process.send_signal(signal.SIGSTOP)
        from_another_host(monkeypatch)
        told = run(TEXT, out, replications=400)
        assert any(f"process {process.pid} on" in line and "is gone" in line for line in told)
        before = snapshot(out)
        with store.held(out, print):
            process.send_signal(signal.SIGCONT)
            error = process.communicate("\n")[1]
        assert process.returncode == 1
        assert f"process {os.getpid()} on" in error
        assert "has taken it over" in error
        assert snapshot(out) == before
    run(TEXT, tmp_path / "whole", replications=400)
    assert_same_results(out, tmp_path / "whole")


def test_a_run_whose_lock_was_removed_ends_at_its_next_file(out: Path) -> None:
    before = snapshot(out)
    with store.held(out, print):
        (out / ".lock").unlink()
        with pytest.raises(FolderError, match="its lock is gone"):
            store.write(out, "manifest.json", b"{}")
    assert snapshot(out) == before


def unshared() -> list[str]:
    """How to start a process that has numbers of processes of its own, as in a container."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    command += ["--mount-proc", "--kill-child"]
    tool = shutil.which("unshare")
    if tool is None or subprocess.call([*command, "true"], stderr=subprocess.DEVNULL):
        pytest.skip("needs unshare, and the permission to use it")
    return command


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")
def test_a_run_in_a_container_with_the_same_host_name_is_seen(out: Path) -> None:
    with holding(out, *unshared()):
        assert json.loads((out / ".lock").read_text())["pid"] < 10
        with pytest.raises(FolderError, match="in use by process"):
            run(TEXT, out, replications=200)
    while (holder := lock.holder(out)) and holder.alive:
        time.sleep(0.01)
    told = run(TEXT, out, force=True)
    assert "which was at work here, is gone" in told[0]


# A run that is gone ------------------------------------------------------------------------------


def test_the_lock_of_a_run_that_is_gone_is_taken_over_at_once(out: Path, tmp_path: Path) -> None:
    path = leave(out)
    told = run(TEXT, out, replications=200)
    assert told[0] == f"{out}: process {WHO_DIED}, which was at work here, is gone"
    assert not path.exists()
    run(TEXT, tmp_path / "whole", replications=200)
    assert_same_results(out, tmp_path / "whole")


def test_the_number_of_a_run_that_is_gone_may_be_that_of_another_process(out: Path) -> None:
    leave(out, pid=os.getpid())
    assert "is gone" in run(TEXT, out, replications=200)[0]


def test_a_run_killed_on_another_host_is_waited_out(out: Path) -> None:
    leave(out, machine="another", host="elsewhere")
    told = run(TEXT, out, replications=200)
    assert told[:2] == [
        f"{out}: waiting 0 s for a sign of life of process {WHO_DIED} on elsewhere",
        f"{out}: process {WHO_DIED} on elsewhere, which was at work here, is gone",
    ]


def test_a_run_of_another_host_that_ends_while_it_is_waited_for_lets_the_next_in(out: Path) -> None:
    path = leave(out, machine="another", host="elsewhere")
    told: list[str] = []

    def end(message: str) -> None:
        told.append(message)
        if len(told) == 1:
            path.unlink()

    mc.run(out.parent / "small.toml", out, replications=200, say=end)
    assert "for a sign of life of process" in told[0]
    assert not any("is gone" in line for line in told)


def test_a_wait_that_stood_still_with_the_other_looks_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As both do when the disk that they share does not answer."""
    path = leave(out, machine="another", host="elsewhere")
    sleep = time.sleep
    looks: list[float] = []

    def stand_still(seconds: float) -> None:
        looks.append(seconds)
        sleep(lock.SILENT_SECONDS if len(looks) == 1 else seconds)
        if len(looks) == 2:
            path.write_bytes(path.read_bytes().replace(b'"00000000"', b'"00000001"'))

    monkeypatch.setattr(time, "sleep", stand_still)
    with pytest.raises(FolderError, match=f"in use by process {WHO_DIED} on elsewhere"):
        run(TEXT, out, replications=200)


def test_a_lock_is_whole_while_it_is_taken_over_from_one_with_a_longer_name(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(out, host="a" * 100)
    write = os.write
    seen: list[object] = []

    def look(descriptor: int, content: bytes) -> int:
        n = write(descriptor, content)
        seen.append(lock.holder(out))
        return n

    monkeypatch.setattr(os, "write", look)
    with store.held(out, print):
        assert isinstance(seen[0], lock.Holder)
        assert seen[0].alive


def test_an_empty_lock_was_left_by_a_kill(out: Path) -> None:
    (out / ".lock").touch()
    run(TEXT, out, replications=200)
    assert not (out / ".lock").exists()


def test_of_many_runs_that_find_a_dead_lock_one_gets_in(out: Path) -> None:
    leave(out)
    inside: list[int] = []
    refused: list[int] = []
    together = threading.Barrier(8)

    def enter(k: int) -> None:
        together.wait()
        try:
            with store.held(out, lambda message: None):
                inside.append(k)
                while len(refused) < 7:
                    time.sleep(0.001)
        except FolderError:
            refused.append(k)

    threads = [threading.Thread(target=enter, args=(k,), daemon=True) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert (len(inside), len(refused)) == (1, 7)


# What is no lock ---------------------------------------------------------------------------------

NO_LOCKS: Final[dict[str, Callable[[Path], object]]] = {
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link": lambda path: path.symlink_to("manifest.json"),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "no JSON": lambda path: path.write_text("{"),
    "a list": lambda path: path.write_text("[]"),
    "half a record": lambda path: path.write_text('{"pid": 1}'),
    "an endless number": lambda path: path.write_text('{"pid": 1e999, "host": "", "machine": ""}'),
    "no moment": lambda path: path.write_text(
        '{"pid": 1, "host": "", "machine": "", "started": "x"}'
    ),
    "nested": lambda path: path.write_text("[" * 9_000),
}


@pytest.mark.parametrize("what", NO_LOCKS)
def test_what_is_no_lock_is_named_and_not_waited_for(what: str, out: Path) -> None:
    NO_LOCKS[what](out / ".lock")
    message = f"{out / '.lock'}: is no lock that a run wrote; remove it"
    with pytest.raises(FolderError, match=message):
        run(TEXT, out, replications=200)
    with pytest.raises(FolderError, match=message):
        mc.status(out)


def test_names_in_a_lock_do_not_reach_the_terminal_as_they_are(out: Path) -> None:
    leave(out, host="\x1b[31mred\nline", machine="another")
    told = run(TEXT, out, replications=200)
    assert "process 4194305 on [31mredline" in told[0]


# The end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, FolderError])
def test_a_run_that_ends_early_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(*arguments: Any) -> None:
        assert (tmp_path / "out" / ".lock").exists()
        raise error

    monkeypatch.setattr(store, "write_shard", fail)
    with pytest.raises(error):
        run(TEXT, tmp_path / "out")
    assert not (tmp_path / "out" / ".lock").exists()


def test_a_disk_that_is_full_to_the_last_byte_ends_the_run_and_leaves_no_lock(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    monkeypatch.chdir(out.parent)
    done = CliRunner().invoke(app, ["run", "small.toml", "--out", "out", "--replications", "200"])
    assert done.exit_code == 1
    assert done.stderr.startswith("out/.lock: No space left on device; ")
    assert not (out / ".lock").exists()


def test_a_run_that_has_lost_its_lock_leaves_that_of_another(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 3600.0)  # or a beat could be under way
    path = out / ".lock"
    with store.held(out, print) as token:
        of_another = path.read_bytes().replace(token.encode(), b"another")
        path.write_bytes(of_another)
        assert not store.is_held(out, token)
    assert path.read_bytes() == of_another
