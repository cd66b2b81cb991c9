"""Paths of results folders: on a disk, or in an object store that a URL names.

`ObjectPath` has those parts of `pathlib.Path` that the store uses, over fsspec, which knows S3,
Google Storage, Azure and many more. It hides how an object store differs from a disk: an object
appears whole when it is put, folders are only names, a listing must not come from a cache, and
every library raises errors of its own.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from mc.store.threads import on_threads

REQUESTS_AT_ONCE: Final = 16
"""An object store is slow to answer one request, and answers many at once."""

PATIENCE_SECONDS: Final = (0.2, 1.0, 3.0)
"""Waits before an object store is asked again what it did not answer."""

_T = TypeVar("_T")


class FolderError(ValueError):
    """A results folder that cannot be used as asked; the message says what would be right."""


def first_line(error: BaseException) -> str:
    """The first line of what an error of a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def path_of(folder: str | Path) -> Path:
    """The path of a results folder.

    Parameters
    ----------
    folder : str or path
        A path, of which ``~`` is the home folder, or a URL as fsspec knows it:
        ``s3://bucket/sweep``, ``gs://bucket/sweep``.

    Returns
    -------
    Path
        For a URL an `ObjectPath`, which has the same methods as far as they are used here.

    Raises
    ------
    FolderError
        The path is empty, or the home of nobody; no library that is installed knows the URL.
    """
    url = str(folder)
    if "\0" in url:
        raise FolderError(f"{folder}: a path has no NUL in it")
    if not url.strip():
        raise FolderError('"": names no folder; "." is the one you are in')
    if "://" not in url:
        return home_expanded(folder)
    if len(url.partition("://")[0]) < 2:  # fsspec takes one letter for a drive
        raise FolderError(f'{url}: neither a path nor a URL, which is "s3://bucket/folder"')
    try:
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem
    except ImportError as error:
        raise FolderError(
            f"{folder}: a URL needs fsspec and what it needs for this storage: "
            "pip install 'retrystorm[cloud]' and, for S3, s3fs; for Google Storage, gcsfs; for "
            "Azure, adlfs"
        ) from error
    try:
        files, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise FolderError(f"{folder}: {first_line(error)}") from error
    except Exception as error:  # each kind of storage has errors of its own
        raise FolderError(f"{folder}: not the URL of a folder ({first_line(error)})") from error
    if isinstance(files, LocalFileSystem):
        return Path(path)
    if not path.strip("/"):
        raise FolderError(f"{folder}: not the URL of a folder (it names none)")
    return cast(Path, ObjectPath(url.rstrip("/"), PurePosixPath(path), files))


def patiently(ask: Callable[[], _T], *, on_missing: bool = False) -> _T:
    """Ask an object store, and ask again if it has trouble: only what stays is an error.

    Parameters
    ----------
    ask : callable
        May raise an `OSError`.
    on_missing : bool
        Which trouble: that an object is missing which was in a list just before, or any other but
        that and a missing permission, which asking again does not bring.

    Returns
    -------
    object
        What `ask` returns.

    Raises
    ------
    OSError
        The last.
    """
    for seconds in PATIENCE_SECONDS:
        try:
            return ask()
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            if is_missing is not on_missing or isinstance(error, PermissionError | FileExistsError):
                raise
        time.sleep(seconds)
    return ask()


def home_expanded(path: str | Path) -> Path:
    """A path in which ``~`` is the home folder: no shell replaces it after ``--out=``.

    Raises
    ------
    FolderError
        The home of somebody who has none here.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise FolderError(
            f'{path}: no such home folder; "./{path}" is one named like that'
        ) from error


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A file or a folder in an object store.

    Attributes
    ----------
    url : str
        As the user knows it.
    key : PurePosixPath
        As `files` knows it.
    files : fsspec.AbstractFileSystem
        The store.

    Raises
    ------
    OSError
        By all methods that ask the store, whatever its library raises, with `strerror`.
    """

    url: str
    key: PurePosixPath = field(compare=False)
    files: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the URL to another process, which has its own connection and permissions."""
        return path_of, (self.url,)

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}", self.key / name, self.files)

    @property
    def parent(self) -> ObjectPath:
        """The folder it is in."""
        return ObjectPath(self.url.rpartition("/")[0], self.key.parent, self.files)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.key.name

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.key.stem

    def match(self, pattern: str) -> bool:
        """Whether the name matches a pattern."""
        return self.key.match(pattern)

    def iterdir(self) -> Iterator[ObjectPath]:
        """All files and folders in it."""
        listed = self._ask(lambda: self.files.ls(str(self.key), detail=False))
        names = [PurePosixPath(name) for name in listed]
        with self._errors():
            # an object is listed as if it were in itself; so is a folder that is an empty object
            if names == [self.key] and not self.files.isdir(str(self.key)):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", self.url)
        return iter([self / name.name for name in names if name != self.key])

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Files and folders in it that match a pattern without a "/"; none if it does not exist."""
        try:
            return (path for path in self.iterdir() if path.match(pattern))
        except FileNotFoundError:
            return iter(())

    def exists(self) -> bool:
        """Whether it exists."""
        return self._ask(lambda: bool(self.files.exists(str(self.key))))

    def is_dir(self) -> bool:
        """Whether it is a folder, which is only the name of what is in it."""
        return self._ask(lambda: bool(self.files.isdir(str(self.key))))

    def stat(self) -> Any:
        """Its `st_size` in bytes, and its `st_mtime_ns`."""
        key = str(self.key)
        size, changed = self._ask(lambda: (self.files.size(key), self.files.modified(key)))
        return SimpleNamespace(st_size=size, st_mtime_ns=int(changed.timestamp() * 1e9))

    def read_bytes(self) -> bytes:
        """All of it."""
        return cast(bytes, self._ask(lambda: self.files.cat_file(str(self.key))))

    @contextmanager
    def open(self, mode: str = "rb") -> Iterator[Any]:
        """Open it to read parts of it; each part is a request."""
        with self._errors(), self.files.open(str(self.key), mode) as file:
            yield file

    def write_bytes(self, content: bytes) -> None:
        """Write it, in one request unless it is very large: it appears whole or not at all."""
        self._ask(lambda: self.files.pipe_file(str(self.key), content))

    def create(self, content: bytes) -> bool:
        """Write it unless it exists, if possible in one step; return whether it was written.

        If the store cannot, what another process creates at this moment may be overwritten.
        """
        if self.exists():
            return False
        with self._errors():
            try:
                self.files.pipe_file(str(self.key), content, mode="create")
            except FileExistsError:
                return False
            except Exception:  # it has no such step; any other error comes again
                self.files.pipe_file(str(self.key), content)
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove it."""
        try:
            self._ask(lambda: self.files.rm_file(str(self.key)))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: ObjectPath) -> None:
        """Copy it, then remove it: there is no moment without it."""
        with self._errors():
            self.files.mv(str(self.key), str(target.key))

    def _ask(self, ask: Callable[[], _T]) -> _T:
        """Ask the store, patiently."""

        def with_our_errors() -> _T:
            with self._errors():
                return ask()

        return patiently(with_our_errors)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the errors of a storage's library into those that a disk would raise."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _gist(error, "not there"), self.url) from error
        except (FolderError, FileExistsError, NotADirectoryError):
            raise
        except Exception as error:  # no two libraries have the same
            code = errno.EACCES if isinstance(error, PermissionError) else errno.EIO
            raise OSError(code, _gist(error, "no permission"), self.url) from error


def _gist(error: Exception, otherwise: str) -> str:
    """What an error says, or `otherwise`: fsspec's often say nothing but the path."""
    gist = getattr(error, "strerror", None) or first_line(error)
    return gist if " " in gist else otherwise


def is_remote(path: Path) -> bool:
    """Whether a path that `path_of` returned is in an object store."""
    return isinstance(cast(Any, path), ObjectPath)


def of_each(function: Callable[[Path], _T], paths: Sequence[Path]) -> list[_T]:
    """Call a function with each path; in an object store with many at once."""
    if not paths or not is_remote(paths[0]):
        return [function(path) for path in paths]
    return on_threads(function, paths, REQUESTS_AT_ONCE)
