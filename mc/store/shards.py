"""Shards: some cells for a range of replications, in a file that vouches for itself.

A shard is sorted by (cell, replication) and says in its own footer which cells, which range,
which draws. Its name ends with the hash of its bytes, so damage of any kind is noticed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mc.model.columns import About
from mc.store.files import (
    FOLDERS,
    REJECTED,
    check_file,
    check_guard,
    content_of,
    parquet,
    sha256,
    told,
    units_footer,
    write,
)
from mc.store.paths import FolderError, first_line, is_remote, of_each, patiently

if TYPE_CHECKING:
    import polars as pl

_FOOTER_KEY: Final = b"retrystorm"
_SUMS_KEY: Final = b"retrystorm.sums"
_ROWS_PER_GROUP: Final = 10_000
_N_HASH_DIGITS: Final = 16


_MAX_LINES: Final = 1 << 25
"""Tasks are cut so that no shard comes near."""

_NAME: Final = re.compile(r"\d{6,}-\d{6,}-[0-9a-f]{6}-\d{10}-\d{10}-[0-9a-f]{16}\.parquet")
"""What a shard is called, see `write_shard`."""

_Number = Annotated[int, Field(ge=0, lt=1 << 31)]
_Text = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]


class _Footer(BaseModel):
    """What a shard says of itself, checked: a file may come from anybody."""

    model_config = ConfigDict(strict=True)

    cells: Annotated[list[_Number], Field(min_length=1)]
    identities: list[_Text]
    start: _Number
    stop: _Number
    draws: _Text
    n_lines: _Number | None = None
    baselines: list[_Number] = []
    claims: list[_Text] = []
    counting: _Number = 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sorted(set(self.cells)) != self.cells or len(self.cells) != len(self.identities):
            raise ValueError("its cells are not numbered as cells are")
        if self.start >= self.stop:
            raise ValueError("it has no replications")
        return self


@dataclass(frozen=True)
class Shard:
    """What a shard's footer says of it.

    Attributes
    ----------
    path : Path
        The file.
    n_bytes, changed_ns : int
        Its size, and when it was last changed.
    cells : tuple of int
        Its cells, in order.
    identities : tuple of str
        `Cell.identity` of each: a shard of other parameters is not taken for these.
    start, stop : int
        First replication, and the one after the last.
    draws : str
        Generator and seed, see `draws_name`.
    n_lines : int
        Lines of its table: the rows, or those of the histograms.
    baselines : tuple of int
        With histograms: the cell that each was compared with.
    claims : tuple of str
        With histograms: the claims that were counted.
    counting : int
        With histograms: what is counted, and how; see `mc.statistics.tallies.COUNTING`.
    """

    path: Path
    n_bytes: int
    changed_ns: int
    cells: tuple[int, ...]
    identities: tuple[str, ...]
    start: int
    stop: int
    draws: str
    n_lines: int
    baselines: tuple[int, ...] = ()
    claims: tuple[str, ...] = ()
    counting: int = 1

    @property
    def n_rows(self) -> int:
        """Rows that the shard has, or has counted."""
        return len(self.cells) * (self.stop - self.start)


def draws_name(generator: str, seed: int, seeds: Sequence[int] | None, keep: str = "rows") -> str:
    """Name what fixes the content of a shard: generator, seed or listed seeds, what is kept."""
    suffix = "" if keep == "rows" else f" {keep}"
    if seeds is None:
        return f"{generator} seed {seed}{suffix}"
    return f"{generator} seeds {sha256(repr(list(seeds)).encode())[:16]}{suffix}"


def write_shard(
    folder: Path,
    table: pl.DataFrame,
    cells: Sequence[int],
    identities: Sequence[str],
    start: int,
    stop: int,
    draws: str,
    sums: Mapping[str, Any] | None = None,
    about: About | None = None,
) -> None:
    """Write what is kept of some cells for replications `start` .. `stop` - 1.

    Parameters
    ----------
    folder : Path
        The results folder.
    table : polars.DataFrame
        Rows sorted by (cell, replication), or with `sums` histograms.
    cells, identities : sequence
        The cells of the rows, ascending, and `Cell.identity` of each.
    start, stop : int
        Range of the replications.
    draws : str
        See `draws_name`.
    sums : mapping, optional
        What is kept beside histograms, `baselines` and `claims` among it; whole numbers of any
        size.
    about : mapping, optional
        Unit and meaning of the columns.
    """
    footer = {
        "cells": list(cells),
        "identities": list(identities),
        "start": start,
        "stop": stop,
        "draws": draws,
    }
    if sums is not None:
        footer["n_lines"] = table.height
        footer |= {"baselines": sums["baselines"], "claims": list(sums["claims"])}
        footer["counting"] = sums["counting"]
    content = shard_bytes(table, footer, sums, about)
    cells_id = sha256("".join(identities).encode())[:6]
    name = (
        f"{cells[0]:06d}-{cells[-1]:06d}-{cells_id}-{start:010d}-{stop:010d}"
        f"-{sha256(content)[:_N_HASH_DIGITS]}.parquet"
    )
    kept = "rows" if sums is None else "histograms"
    write(folder, f"{FOLDERS[kept]}/{name}", content)


def shard_bytes(
    table: pl.DataFrame,
    footer: Mapping[str, Any],
    sums: Mapping[str, Any] | None = None,
    about: About | None = None,
) -> bytes:
    """Encode rows or histograms of the cells and the replications that the footer names."""
    # beside the schema and not in it, of which pyarrow keeps two: with many cells the footer is
    # as long as the rows
    known = {name: one for name, one in (about or {}).items() if name in table.columns}
    metadata = {_FOOTER_KEY: json.dumps(footer).encode()} | units_footer(known)
    if sums is None:
        n = footer["stop"] - footer["start"]
        # whole cells in a row group, so that a reader of one cell skips the others
        size = n * max(1, _ROWS_PER_GROUP // n)
    else:
        metadata[_SUMS_KEY] = json.dumps(sums).encode()
        size = 100 * _ROWS_PER_GROUP
    return parquet(
        [told(table.to_arrow(), known)],
        row_group_size=size,
        # Numbers of neighbouring rows are alike: delta coding and zstd take 8 to 10 bytes a row
        # where dictionaries and snappy take 15.
        column_encoding={
            name: "DELTA_BINARY_PACKED" for name, kind in table.schema.items() if kind.is_integer()
        },
        # A name of a metric stands in hundreds of lines that follow one another.
        use_dictionary=[name for name, kind in table.schema.items() if not kind.is_integer()],
        footer=metadata,
    )


def read_sums(path: Path) -> dict[str, Any]:
    """What a shard keeps beside its histograms."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(pa.BufferReader(check_bytes(path))).metadata
    sums: dict[str, Any] = json.loads(metadata[_SUMS_KEY])
    return sums


def check_bytes(path: Path) -> bytes:
    """Read a shard, and compare its bytes with the hash in its name.

    Raises
    ------
    FolderError
        It is not what was written.
    OSError
        It cannot be read, which says nothing of what is in it.
    """
    content = _read_listed(path)
    if path.stem.rpartition("-")[2] != sha256(content)[:_N_HASH_DIGITS]:
        raise FolderError(f"{path}: damaged (its content is not what was written)")
    return content


def _read_listed(path: Path) -> bytes:
    """Read a file that was in a list just before."""
    if is_remote(path):
        return patiently(path.read_bytes, on_missing=True)
    return content_of(path)


def read_shard(path: Path) -> Shard:
    """Check a shard, and read what it says of itself.

    Raises
    ------
    FolderError
        The file is no whole shard of this program.
    OSError
        It cannot be read.
    """
    import pyarrow as pa

    size_and_time = _size_and_time(path)  # before the content, which may change meanwhile
    content = check_bytes(path)
    return _from_footer(path, pa.BufferReader(content), size_and_time)


def read_shards(paths: Sequence[Path], known: Iterable[Shard] = ()) -> list[Shard | FolderError]:
    """Read shards as `read_shard` does; where a file is no whole shard, what is wrong with it.

    Those that were read before, and whose files have the same size and time of change, are not
    read again.

    Raises
    ------
    OSError
        One cannot be read: it may be as good as the others.
    """
    by_path = {shard.path: shard for shard in known}

    def read(path: Path) -> Shard | FolderError:
        shard = by_path.get(path)
        if shard and (shard.n_bytes, shard.changed_ns) == _size_and_time(path):
            return shard
        try:
            return read_shard(path)
        except FolderError as error:
            return error

    return of_each(read, paths)


def _size_and_time(path: Path) -> tuple[int, int] | None:
    """Bytes of a file, and when it was last changed; None where that cannot be found out."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def read_footer(path: Path) -> Shard:
    """Read what a shard says of itself, without checking the rest of it.

    Raises
    ------
    FolderError
        The file is no shard of this program, or too much of it is missing to tell.
    OSError
        It cannot be read; a `FileNotFoundError` if it is not there any more.
    """
    size_and_time = _size_and_time(path)
    check_file(path)
    with path.open("rb") as file:
        return _from_footer(path, file, size_and_time)


def _from_footer(path: Path, source: Any, size_and_time: tuple[int, int] | None) -> Shard:
    """What the footer of a file or a buffer says; `path` is for the messages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(source)
        footer = _Footer.model_validate_json((metadata.metadata or {})[_FOOTER_KEY])
    except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of what is on it
        raise FolderError(f"{path}: not a shard ({first_line(error)})") from error
    shard = Shard(
        path,
        *(size_and_time or (0, 0)),
        tuple(footer.cells),
        tuple(footer.identities),
        footer.start,
        footer.stop,
        footer.draws,
        metadata.num_rows,
        tuple(footer.baselines),
        tuple(footer.claims),
        footer.counting,
    )
    n_lines = shard.n_rows if footer.n_lines is None else footer.n_lines
    if shard.n_lines != n_lines:
        raise FolderError(f"{path}: {shard.n_lines} rows instead of {n_lines}")
    if max(n_lines, shard.n_rows) > _MAX_LINES:  # which a small file can hold, if they are alike
        raise FolderError(f"{path}: {n_lines} rows, more than a shard ever has")
    return shard


def shard_paths(folder: Path) -> list[Path]:
    """All shards, by name."""
    return [path for name in FOLDERS.values() for path in sorted((folder / name).glob("*.parquet"))]


def are_ours(paths: Iterable[Path]) -> bool:
    """Whether files are named as shards are, and there is one: the names of others differ."""
    names = [path.name for path in paths]
    return bool(names) and all(map(_NAME.fullmatch, names))


def put_aside(folder: Path, path: Path) -> Path:
    """Move a file that is no shard of this run out of the folder of the shards; return where to."""
    check_guard(folder)
    aside = folder / REJECTED
    if is_remote(path):
        path.rename(aside / path.name)
    else:
        aside.mkdir(exist_ok=True)
        os.replace(path, aside / path.name)
    return aside
