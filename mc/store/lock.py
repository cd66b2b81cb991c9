"""One run at a time in a folder, or the parts of one: a lock file says who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mc.store.files import LOCK, partial
from mc.store.paths import FolderError, ObjectPath, is_remote

_WRITE_SECONDS: Final = 1.0
"""A lock that is still empty after this was left by a kill between making and writing it. In an
object store that cannot create an object only if it does not exist, of two runs that create it
within this time the second has it."""


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
        Called with a message if the lock is taken over from a process that is gone.
    part : (int, int), optional
        This run does part K of N: others of the N may be at work, too.

    Yields
    ------
    str
        A token by which others can see that this run is still at work, see `is_held`.

    Raises
    ------
    FolderError
        Another run holds it, or the folder cannot be written to. Nothing was changed.

    Notes
    -----
    On a disk two runs never get in together, nor on S3 and Google Storage, which can create an
    object only if it does not exist, if their library asks for it. Elsewhere two runs can get in
    together if one of them is halted for a second at the wrong moment. Then nothing is lost or
    wrong: both make the same rows, and the next run puts aside shards that overlap.
    """
    path = folder / _name(part)
    token = uuid.uuid4().hex
    own = {
        "pid": os.getpid(),
        "host": platform.node(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "process_start": _process_start(os.getpid()),
        "token": token,
    }
    content = json.dumps(own).encode()
    try:
        if not is_remote(folder):
            folder.mkdir(parents=True, exist_ok=True)
        while not _create(path, content):
            _remove_if_dead(path, say)
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written to ({error.strerror})") from error
    try:
        # Only now, when others can see this lock: of two that begin at once, one or both give way.
        for other in sorted(folder.glob(f"{LOCK}*")):
            if other != path and not (part and other.match(_name(("*", part[1])))):
                _remove_if_dead(other, say)
        yield token
    finally:
        with contextlib.suppress(OSError):
            if _read(path) == content:
                path.unlink()


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
        Whether it still runs; None where that cannot be known from here.
    """

    pid: int
    host: str
    started: str
    alive: bool | None


def holder(folder: Path) -> Holder | None:
    """Who holds the lock of a folder; None where nobody does, or it was never written."""
    try:
        known = _holder(_read(folder / LOCK))
    except OSError as error:
        raise FolderError(f"{folder / LOCK}: cannot be read ({error.strerror})") from error
    if known is None:
        return None
    return Holder(known["pid"], str(known["host"]), str(known["started"]), _is_alive(known))


def _name(part: tuple[int | str, int] | None) -> str:
    """Name the lock of a run, or of a part of one."""
    return LOCK if part is None else f"{LOCK}-{part[0]}-of-{part[1]}"


def _create(path: Path, content: bytes) -> bool:
    """Create the file; False if it exists."""
    where: Any = path
    if isinstance(where, ObjectPath):
        if where.create(content):
            time.sleep(_WRITE_SECONDS)
        # it is ours, too, if the answer to a first try was lost and the second found it
        return _read(path) == content
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return True


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _holder(content: bytes | None) -> dict[str, Any] | None:
    """Who holds a lock; None where its content does not say so."""
    try:
        holder = json.loads(content or b"")
        return {"pid": int(holder["pid"])} | {
            key: holder[key] for key in ("host", "started", "process_start")
        }
    except (ValueError, TypeError, KeyError):
        return None


def _remove_if_dead(path: Path, say: Callable[[str], None]) -> None:
    """Remove a lock that nobody holds any more; refuse any other."""
    content = _read(path)
    if _holder(content) is None:
        time.sleep(_WRITE_SECONDS)
        content = _read(path)
    if content is None:
        return
    holder = _holder(content)
    if holder is not None:
        _refuse_if_alive(path, holder)
    if is_remote(path):
        if _read(path) == content:
            path.unlink(missing_ok=True)
            _say_gone(path, holder, say)
        return
    # Two runs may find the same dead lock. One moves it away; the other then moves the lock that
    # the first has made, and must put it back.
    aside = partial(path.parent)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    if aside.read_bytes() != content:
        os.rename(aside, path)
        return
    aside.unlink()
    _say_gone(path, holder, say)


def _say_gone(path: Path, holder: dict[str, Any] | None, say: Callable[[str], None]) -> None:
    if holder is not None:
        say(f"{path.parent}: process {holder['pid']}, which was at work here, is gone")


def _refuse_if_alive(path: Path, holder: dict[str, Any]) -> None:
    alive = _is_alive(holder)
    if alive is False:
        return
    message = (
        f"{path.parent}: in use by process {holder['pid']} on {holder['host']} since "
        f"{holder['started']}: wait until it has ended"
    )
    if alive is None:
        message += f", or remove {path} if it is gone"
    raise FolderError(message)


def _is_alive(holder: dict[str, Any]) -> bool | None:
    """Whether the process still runs; None where that cannot be known."""
    # On Windows signal 0 is Ctrl-C: there is no harmless way to ask.
    if holder["host"] != platform.node() or os.name == "nt":
        return None
    try:
        os.kill(holder["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs, and is another user's
    # the number may have been given to another process since
    return bool(_process_start(holder["pid"]) == holder["process_start"])


def _process_start(pid: int) -> str | None:
    """When a process began, in ticks since the machine did; None if it has ended, or unknown.

    Notes
    -----
    Linux, proc(5): in ``/proc/<pid>/stat`` the state is field 3 and the start field 22; field 2,
    the name in parentheses, may hold anything.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
