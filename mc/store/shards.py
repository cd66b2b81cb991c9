"""Shards: some cells for a range of replications, in a file that vouches for itself.

A shard is sorted by (cell, replication) and says in its own footer which cells, which range, of
which draws. Its name ends with the hash of its bytes, so damage of any kind is noticed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from mc.store.files import REJECTED, SHARDS, FolderError, first_line, parquet, sha256, write

_FOOTER_KEY: Final = b"retrystorm"
_ROWS_PER_GROUP: Final = 10_000
_N_HASH_DIGITS: Final = 16


@dataclass(frozen=True)
class Shard:
    """What a shard's footer says of it.

    Attributes
    ----------
    path : Path
        The file.
    n_bytes : int
        Its size.
    cells : tuple of int
        Its cells, in order.
    identities : tuple of str
        `Cell.identity` of each: a shard of other parameters is not taken for these.
    start, stop : int
        First replication, and the one after the last.
    draws : str
        Generator and seed, see `draws_name`.
    """

    path: Path
    n_bytes: int
    cells: tuple[int, ...]
    identities: tuple[str, ...]
    start: int
    stop: int
    draws: str

    @property
    def n_rows(self) -> int:
        """Rows that the shard must have."""
        return len(self.cells) * (self.stop - self.start)


def draws_name(generator: str, seed: int, seeds: Sequence[int] | None) -> str:
    """Name what fixes the draws of every replication: generator and seed, or listed seeds."""
    if seeds is None:
        return f"{generator} seed {seed}"
    return f"{generator} seeds {sha256(repr(list(seeds)).encode())[:16]}"


def write_shard(
    folder: Path,
    rows: pl.DataFrame,
    cells: Sequence[int],
    identities: Sequence[str],
    start: int,
    stop: int,
    draws: str,
) -> None:
    """Write the rows of some cells for replications `start` .. `stop` - 1.

    Parameters
    ----------
    folder : Path
        The results folder.
    rows : polars.DataFrame
        Sorted by (cell, replication).
    cells, identities : sequence
        The cells of the rows, ascending, and `Cell.identity` of each.
    start, stop : int
        Range of the replications.
    draws : str
        See `draws_name`.
    """
    footer = {
        "cells": list(cells),
        "identities": list(identities),
        "start": start,
        "stop": stop,
        "draws": draws,
    }
    content = shard_bytes(rows, footer)
    cells_id = sha256("".join(identities).encode())[:6]
    name = (
        f"{cells[0]:06d}-{cells[-1]:06d}-{cells_id}-{start:010d}-{stop:010d}"
        f"-{sha256(content)[:_N_HASH_DIGITS]}.parquet"
    )
    write(folder, f"{SHARDS}/{name}", content)


def shard_bytes(rows: pl.DataFrame, footer: Mapping[str, Any]) -> bytes:
    """Code the rows of some cells for the replications `start` .. `stop` - 1 of the footer."""
    table = rows.to_arrow()
    n = footer["stop"] - footer["start"]
    return parquet(
        table,
        # whole cells in a row group, so that a reader of one cell skips the others
        row_group_size=n * max(1, _ROWS_PER_GROUP // n),
        # Counters of neighbouring rows are alike: delta coding and zstd take 8 to 10 bytes a row
        # where dictionaries and snappy take 15.
        column_encoding=dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED"),
        # beside the schema and not in it, of which pyarrow keeps two: with many cells the footer
        # is as long as the rows
        footer={_FOOTER_KEY: json.dumps(footer).encode()},
    )


def check_bytes(path: Path) -> bytes:
    """Read a shard, and compare its bytes with the hash in its name.

    Raises
    ------
    FolderError
        It is missing, cannot be read, or is not what was written.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from error
    if path.stem.rpartition("-")[2] != sha256(content)[:_N_HASH_DIGITS]:
        raise FolderError(f"{path}: damaged (its content is not what was written)")
    return content


def read_shard(path: Path) -> Shard:
    """Check a shard, and read what it says of itself.

    Raises
    ------
    FolderError
        The file is no whole shard of this program.
    """
    content = check_bytes(path)
    return _from_footer(path, pa.BufferReader(content), len(content))


def read_footer(path: Path) -> Shard:
    """Read what a shard says of itself, without checking the rest of it.

    Raises
    ------
    FolderError
        The file is no shard of this program, or too much of it is missing to tell.
    FileNotFoundError
        There is none.
    """
    try:
        return _from_footer(path, path, path.stat().st_size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({first_line(error)})") from error


def _from_footer(path: Path, source: Any, n_bytes: int) -> Shard:
    """What the footer of a file or a buffer says; `path` is for the messages."""
    try:
        metadata = pq.read_metadata(source)
        footer = json.loads((metadata.metadata or {})[_FOOTER_KEY])
        shard = Shard(
            path,
            n_bytes,
            tuple(footer["cells"]),
            tuple(footer["identities"]),
            footer["start"],
            footer["stop"],
            footer["draws"],
        )
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise FolderError(f"{path}: not a shard ({first_line(error)})") from error
    if metadata.num_rows != shard.n_rows:
        raise FolderError(f"{path}: {metadata.num_rows} rows instead of {shard.n_rows}")
    return shard


def shard_paths(folder: Path) -> list[Path]:
    """All shards, by name."""
    return sorted((folder / SHARDS).glob("*.parquet"))


def put_aside(folder: Path, path: Path) -> Path:
    """Move a file that is no shard of this run out of the folder of the shards; where to."""
    aside = folder / REJECTED
    aside.mkdir(exist_ok=True)
    os.replace(path, aside / path.name)
    return aside
