"""One run at a time in a folder, or the parts of one: a lock file says who holds it.

Two things keep others out. The operating system locks the file (flock) for as long as the process
lives, whatever its number or the name of its host: on one machine that settles it, between
containers too, and nothing is left of a process that was killed. Where that lock cannot be had, or
may not be seen (an object store, another machine that sees the same disk), the content tells: a
run counts up in it every `BEAT_SECONDS`, and who finds a lock takes it over when it has not
changed for `SILENT_SECONDS`. A run that stood still for so long, and goes on, sees before it writes
anything that the lock is another's, see `files.guarded`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mc.store.files import LOCK, guarded
from mc.store.paths import FolderError, ObjectPath, is_remote

fcntl: Final[Any] = import_module("fcntl") if os.name == "posix" else None

BEAT_SECONDS: Final = 5.0
"""Between two signs of life of a run."""

SILENT_SECONDS: Final = 20.0
"""A run that gives no sign of life for so long is gone."""

_LOOKS: Final = 20
"""How often one who waits looks for a sign of life in that time."""

_MAX_BYTES: Final = 10_000
"""No lock is larger."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_NO_FLOCK: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
"""Errors by which a file system says that it has no such locks."""


@contextmanager
def held(
    folder: Path, say: Callable[[str], None], part: tuple[int, int] | None = None
) -> Iterator[str]:
    """Make the folder if it does not exist, and keep other runs out of it.

    Parameters
    ----------
    folder : Path
        The results folder.
    say : callable
        Called with a message if the lock is taken over from a run that is gone, or if it takes
        `SILENT_SECONDS` to see whether it is.
    part : (int, int), optional
        This run does part K of N: others of the N may be at work, too.

    Yields
    ------
    str
        A token by which others can see that this run is still at work, see `is_held`.

    Raises
    ------
    FolderError
        Another run holds it, or the folder cannot be written to: nothing was changed. Within the
        block, of whatever writes into the folder: this run stood still, and another has taken it.
    OSError
        The disk is full.

    Notes
    -----
    In an object store that cannot create an object only if it does not exist, two runs can get in
    together if they begin within the same moment. Then nothing is lost or wrong: one of them ends
    at its next file, both make the same rows, and the next run puts aside shards that overlap.
    """
    try:
        if not is_remote(folder):
            folder.mkdir(parents=True, exist_ok=True)
        lock = _take(folder / _name(part), say)
    except OSError as error:
        if error.errno in _FULL:  # which passes: the same command goes on
            raise OSError(error.errno, error.strerror, str(folder / _name(part))) from error
        raise FolderError(f"{folder}: cannot be written to ({error.strerror})") from error
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(lock, over), daemon=True)
    try:
        # Only now, when others can see this lock: of two that begin at once, one or both give way.
        for other in sorted(folder.glob(f"{LOCK}*")):
            if other != lock.path and not (part and other.match(_name(("*", part[1])))):
                _take(other, say).release()
        beating.start()
        with guarded(folder, partial(_check, lock)):
            yield lock.token
    finally:
        over.set()
        if beating.ident is not None:
            beating.join()  # or its last sign of life would lie where the lock was
        lock.release()


def is_held(folder: Path, token: str) -> bool:
    """Whether the run that has a token from `held` is at work in the folder.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    return token.encode() in (_read(folder / LOCK) or b"")


@dataclass(frozen=True)
class Holder:
    """Who is at work in a folder.

    Attributes
    ----------
    pid : int
        The process.
    host : str
        Its machine.
    started : str
        When it took the folder, ISO 8601.
    alive : bool or None
        Whether it still runs; None where that cannot be known from here at once.
    """

    pid: int
    host: str
    started: str
    alive: bool | None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def holder(folder: Path) -> Holder | None:
    """Who holds a lock of a folder, or of a part of its run; None where nobody does.

    Of several the first that is not known to be gone.

    Raises
    ------
    FolderError
        A lock cannot be read, or is none.
    """
    found = [who for path in sorted(folder.glob(f"{LOCK}*")) if (who := _holder_by(path))]
    return next((who for who in found if who.alive is not False), next(iter(found), None))


def _holder_by(path: Path) -> Holder | None:
    """Who holds a lock; None where nobody does, or it was never written."""
    try:
        content = _read(path)
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from error
    if not content:
        return None
    known = _record(path, content)
    alive = None if is_remote(path) else _locked_by_another(path)
    if alive is False and known["machine"] != _machine():
        alive = None
    return Holder(known["pid"], known["host"], known["started"], alive)


# --- one lock ------------------------------------------------------------------------------------


@dataclass
class _Lock:
    """A lock that this process holds.

    Attributes
    ----------
    path : Path
        Its file.
    descriptor : int or None
        The file, open and locked; None in an object store.
    record : dict
        Its content.
    """

    path: Path
    descriptor: int | None
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """By which it is known."""
        return str(self.record["token"])

    def read(self) -> bytes | None:
        """What is in the file; None if it is not there, or not the one that was locked."""
        if self.descriptor is not None and not _is_at(self.path, self.descriptor):
            return None
        return _read(self.path)

    def write(self) -> None:
        """Put the record into the file."""
        content = json.dumps(self.record).encode()
        if self.descriptor is None:
            self.path.write_bytes(content)
            return
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        os.write(self.descriptor, content)

    def is_ours(self) -> bool:
        """Whether no other run has taken it."""
        return self.token.encode() in (self.read() or b"")

    def release(self) -> None:
        """Remove the file, if it is still ours, and the lock."""
        with contextlib.suppress(OSError):
            if self.is_ours():
                self.path.unlink()
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _beat(lock: _Lock, over: threading.Event) -> None:
    """Give signs of life until the run is over, or another has taken the lock."""
    while not over.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):  # tried again at the next
            if not lock.is_ours():
                return
            # one width: a reader sees the old or the new number, and the rest as it was
            lock.record["beat"] = f"{int(lock.record['beat']) + 1:08}"
            lock.write()


def _check(lock: _Lock) -> None:
    """Refuse to write into a folder whose lock is no longer ours."""
    if lock.is_ours():
        return
    content = _read(lock.path)
    by = f"{_holder(lock.path, content)} has taken it over" if content else "its lock is gone"
    raise FolderError(
        f"{lock.path.parent}: {by}; this run stood still for {SILENT_SECONDS:.0f} seconds or more, "
        "or somebody removed its lock, and ends here"
    )


def _take(path: Path, say: Callable[[str], None]) -> _Lock:
    """Take a lock that nobody holds, or whose holder is gone; refuse any other."""
    own = {
        "pid": os.getpid(),
        "host": platform.node(),
        "machine": _machine(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "token": uuid.uuid4().hex,
        "beat": "00000000",
    }
    lock = _take_object(path, own, say) if is_remote(path) else _take_file(path, own, say)
    if not lock.is_ours():  # of two that put an object at once
        content = lock.read()
        raise FolderError(_in_use(path, content) if content else f"{path}: was removed at once")
    return lock


def _take_object(path: Any, own: dict[str, Any], say: Callable[[str], None]) -> _Lock:
    remote: ObjectPath = path
    lock = _Lock(path, None, own)
    if not remote.create(json.dumps(own).encode()):
        if content := _read(path):
            _wait_out(path, content, say)
        lock.write()
    return lock


def _take_file(path: Path, own: dict[str, Any], say: Callable[[str], None]) -> _Lock:
    while True:
        descriptor = _open(path)
        try:
            is_locked = _flock(descriptor, path)
            if _is_at(path, descriptor) and (content := os.read(descriptor, _MAX_BYTES)):
                known = _record(path, content)
                if is_locked and known["machine"] == _machine():
                    say(f"{path.parent}: process {known['pid']}, which was at work here, is gone")
                else:
                    _wait_out(path, content, say)
            if not _is_at(path, descriptor):  # whoever held it has removed it meanwhile
                os.close(descriptor)
                continue
            lock = _Lock(path, descriptor, own)
            try:
                os.ftruncate(descriptor, 0)  # or a longer one would show behind it for a moment
                lock.write()
            except OSError:
                path.unlink(missing_ok=True)
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            raise
        return lock


def _open(path: Path) -> int:
    """Open the file of a lock, which is made if it does not exist."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _no_lock(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_lock(path)
    return descriptor


def _flock(descriptor: int, path: Path) -> bool:
    """Lock a file; False where that is not possible. Refuse if another process has locked it."""
    if fcntl is None:
        return False
    # `status` of another process holds such a lock for a moment
    for attempt in range(10):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02 * attempt)
        except OSError as error:
            if error.errno in _NO_FLOCK:
                return False
            raise
        else:
            return True
    raise FolderError(_in_use(path, _read(path)))


def _locked_by_another(path: Path) -> bool | None:
    """Whether a process has locked a file; None where that cannot be known."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    else:
        return False if _is_at(path, descriptor) else None  # it may have ended in this moment
    finally:
        os.close(descriptor)


def _wait_out(path: Path, content: bytes, say: Callable[[str], None]) -> None:
    """Return when a run has given no sign of life for long enough; refuse if it gives one."""
    who = _holder(path, content)
    say(f"{path.parent}: waiting {SILENT_SECONDS:.0f} s for a sign of life of {who}")
    for _ in range(_LOOKS):  # no clock: where this side stood still, so did perhaps the other
        time.sleep(SILENT_SECONDS / _LOOKS)
        now = _read(path)
        if now is None:
            return
        if now != content:
            raise FolderError(_in_use(path, now))
    say(f"{path.parent}: {who}, which was at work here, is gone")


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read(path: Path) -> bytes | None:
    """What is in a lock; None if it does not exist."""
    try:
        if is_remote(path):
            return path.read_bytes()
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        if not is_remote(path) and path.is_symlink():
            raise _no_lock(path) from None
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_lock(path)
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def _record(path: Path, content: bytes) -> dict[str, Any]:
    """What a lock says; a `FolderError` if no run wrote it."""
    try:
        record = json.loads(content)
        datetime.fromisoformat(record["started"])
        return {"pid": int(record["pid"])} | {
            key: "".join(filter(str.isprintable, str(record[key])))[:200]
            for key in ("host", "machine", "started")
        }
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _no_lock(path) from error


def _holder(path: Path, content: bytes) -> Holder:
    known = _record(path, content)
    return Holder(known["pid"], known["host"], known["started"], None)


def _in_use(path: Path, content: bytes | None) -> str:
    if not content:
        return f"{path.parent}: in use by a run that has just begun: wait until it has ended"
    who = _holder(path, content)
    return f"{path.parent}: in use by {who} since {who.started}: wait until it has ended"


def _no_lock(path: Path) -> FolderError:
    return FolderError(f"{path}: is no lock that a run wrote; remove it if none is at work there")


def _machine() -> str:
    """What tells one running operating system from all others.

    Notes
    -----
    Linux, random(4): ``boot_id`` is made when the machine starts, and is the same in all of its
    containers. Elsewhere the name of the host must do.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return platform.node()


def _name(part: tuple[object, int] | None) -> str:
    """Name the lock of a run, or of part K of N of one; K may be ``*``."""
    return LOCK if part is None else f"{LOCK}-{part[0]}-of-{part[1]}"
