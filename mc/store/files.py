"""Files of a results folder: their names, and how each is written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mc.model.columns import About
from mc.store.paths import is_remote

if TYPE_CHECKING:  # each takes a fifth of a second, which `check` and `status` do not need
    import polars as pl
    import pyarrow as pa

MANIFEST: Final = "manifest.json"
FOLDERS: Final = {"rows": "replications", "histograms": "histograms"}
"""The folder of the shards, by what an experiment keeps."""
REJECTED: Final = "rejected"
LOCK: Final = ".lock"
PARTIAL: Final = ".*.partial"
"""Files in the making: on the same disk as the finished ones, outside the folder of the shards."""

UNITS_KEY: Final = b"units"
"""In the metadata of a Parquet file."""

TABLES: Final = ("cells", "summary", "comparisons", "claims")
"""The tables beside the shards, each in a file of its own."""

_LINES_PER_GROUP: Final = 100_000
"""Of a table that are coded together."""


_checks: Final[list[tuple[Path, Callable[[], None]]]] = []
"""What is called before anything in a folder is changed."""


@contextmanager
def guarded(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call a function before each change of a folder; it may refuse it."""
    _checks.append((folder, check))
    try:
        yield
    finally:
        _checks.remove((folder, check))


def check_guard(folder: Path) -> None:
    """Make sure that nothing speaks against a change of a folder, see `guarded`."""
    for guarded_folder, check in tuple(_checks):  # another thread may end its own meanwhile
        if guarded_folder == folder:
            check()


def check_file(path: Path) -> None:
    """Refuse what is no file, before it is opened: a pipe would be waited for.

    Raises
    ------
    OSError
        Or it cannot be looked at.
    """
    if not is_remote(path) and not stat.S_ISREG(mode := path.stat().st_mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code) if stat.S_ISDIR(mode) else "is no file", str(path))


def content_of(path: Path) -> bytes:
    """Read all of a file of a folder, which others may have made.

    Raises
    ------
    OSError
        It cannot be read, or is no file, or has no end that memory could hold.
    """
    check_file(path)
    try:
        return path.read_bytes()
    except MemoryError as error:  # before any of it is read
        raise OSError(errno.ENOMEM, "larger than the memory", str(path)) from error


def write(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the folder, whole or not at all.

    Parameters
    ----------
    folder : Path
        The results folder.
    name : str
        Where the file belongs in it.
    content : bytes
        All of the file.

    Raises
    ------
    OSError
        The file, by its name, could not be written, and is as it was before.
    FolderError
        This run no longer holds the lock of the folder.
    """
    check_guard(folder)
    if is_remote(folder):
        (folder / name).write_bytes(content)  # an object appears whole
        return
    temporary = partial(folder)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(temporary, folder / name)
        _sync_names((folder / name).parent)
    except OSError as error:  # of a full disk it does not say where
        raise OSError(error.errno, error.strerror, str(folder / name)) from error
    finally:
        temporary.unlink(missing_ok=True)


def partial(folder: Path) -> Path:
    """A new name for a file in the making."""
    return folder / PARTIAL.replace("*", uuid.uuid4().hex)


def _sync_names(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    if os.name == "nt":
        return  # Windows cannot open a folder; its rename is journalled
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_table(
    folder: Path,
    name: str,
    table: pl.DataFrame | Iterable[pl.DataFrame],
    about: About | None = None,
) -> str:
    """Write one of `TABLES`, whole or not at all, and give the SHA-256 of the file.

    Parameters
    ----------
    folder : Path
        The results folder.
    name : str
        Which table.
    table : polars.DataFrame, or its parts
        Its content; the file does not depend on where it is cut.
    about : mapping of str to mapping, optional
        `unit` and `meaning` of its columns, for their metadata.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        A float column holds NaN: NULL stands for what is undefined.
    """
    content = table_bytes(table, about)
    write(folder, table_file(name), content)
    return sha256(content)


def table_bytes(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    about: About | None = None,
) -> bytes:
    """Code a table, see `write_table`.

    Unit and meaning of a column are metadata of its field in Arrow's schema; those of the file have
    all units together, for who reads Parquet without Arrow.
    """
    import polars as pl

    parts = [table] if isinstance(table, pl.DataFrame) else table
    known = about or {}
    groups = (told(group.to_arrow(), known) for group in _in_groups(parts, _LINES_PER_GROUP))
    return parquet(groups, _LINES_PER_GROUP, units_footer(known))


def told(table: pa.Table, about: About) -> pa.Table:
    """Give the fields of a table what is said of them."""
    import pyarrow as pa

    fields = [field.with_metadata(dict(about.get(field.name, {}))) for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def _in_groups(parts: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Cut and join the parts of a table so that each but the last has as many lines."""
    import polars as pl

    left: list[pl.DataFrame] = []
    for part in parts:
        for column in part.select(pl.selectors.float()):
            if column.is_nan().any():
                raise ValueError(f"column {column.name} holds NaN")
        left.append(part)
        while sum(one.height for one in left) > size:
            joined = pl.concat(left)
            yield joined[:size]
            left = [joined[size:]]
    yield pl.concat(left)


def units_footer(about: About) -> dict[bytes, bytes]:
    """What a file says of the units of its columns: JSON under the key `units`."""
    known = {name: one["unit"] for name, one in about.items() if one["unit"]}
    return {UNITS_KEY: json.dumps(known).encode()} if known else {}


def table_file(name: str) -> str:
    """Name the file of one of `TABLES`."""
    return f"{name}.parquet"


def parquet(
    tables: Iterable[pa.Table],
    row_group_size: int,
    footer: Mapping[bytes, bytes] | None = None,
    **options: Any,
) -> bytes:
    """Code the parts of a table as every reader of Parquet understands it.

    There must be one. The footer is what the file says of itself.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink, parts = pa.BufferOutputStream(), iter(tables)
    first = next(parts)
    with pq.ParquetWriter(
        sink,
        first.schema,
        compression="zstd",
        write_page_checksum=True,
        **({"use_dictionary": False} | options),
    ) as writer:
        for part in itertools.chain([first], parts):
            writer.write_table(part, row_group_size)
        writer.add_key_value_metadata(footer or {})
    content: bytes = sink.getvalue().to_pybytes()
    return content


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
