"""The results folder: schema, atomic shards, manifest, reading back.

A shard holds some cells for a range of replications, sorted by (cell, replication), and says so in
its own footer: which cells, which range, of which draws, and a digest of its content. What is done
is read off the shards that are there; nothing else has to be kept in step with them.

Every file is written beside the place where it belongs, flushed to disk and moved there whole, so
a kill at any moment leaves whole files. The folder of the shards never holds anything else: a
stray file there would break everyone who scans it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from mc.experiment import Experiment
from mc.model import MEANINGS, PARAMETERS

MANIFEST: Final = "manifest.json"
CELLS: Final = "cells.parquet"
SHARDS: Final = "replications"
TABLES: Final = ("summary", "comparisons", "claims")
FORMAT: Final = 1
"""Version of the folder's layout."""

_FOOTER_KEY: Final = b"retrystorm"
_ROWS_PER_GROUP: Final = 10_000


class FolderError(ValueError):
    """A results folder that cannot be used as asked; the message says what would be right."""


@dataclass(frozen=True)
class Shard:
    """What a shard's footer says of it.

    Attributes
    ----------
    path : Path
        The file.
    cells : tuple of int
        Its cells, in order.
    identities : tuple of str
        `Cell.identity` of each: a shard of other parameters is not taken for these.
    start, stop : int
        First replication, and the one after the last.
    draws : str
        Generator and seed, see `draws_name`.
    digest : str
        SHA-256 over the columns of the table.
    """

    path: Path
    cells: tuple[int, ...]
    identities: tuple[str, ...]
    start: int
    stop: int
    draws: str
    digest: str

    @property
    def n_rows(self) -> int:
        """Rows that the shard must have."""
        return len(self.cells) * (self.stop - self.start)


# --- writing -------------------------------------------------------------------------------------


def _sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) if path.is_dir() else os.O_RDWR
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder; its rename is journalled
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(temporary: Path, path: Path) -> None:
    _sync(temporary)
    os.replace(temporary, path)
    _sync(path.parent)


def _temporary(folder: Path) -> Path:
    """A name for a file in the making: on the same disk, outside the folder of the shards."""
    return folder / f".{uuid.uuid4().hex}.partial"


def write_json(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a JSON file of the folder, whole or not at all."""
    temporary = _temporary(folder)
    try:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        _move(temporary, folder / name)
    finally:
        temporary.unlink(missing_ok=True)


def write_table(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write a table of the folder, whole or not at all.

    Raises
    ------
    ValueError
        A float column holds NaN: NULL stands for what is undefined.
    """
    for column in table.select(pl.selectors.float()):
        if column.is_nan().any():
            raise ValueError(f"{name}: column {column.name} holds NaN")
    _write_parquet(folder, folder / name, table.to_arrow(), row_group_size=100_000)


def _write_parquet(
    folder: Path, path: Path, table: pa.Table, row_group_size: int, delta: bool = False
) -> None:
    temporary = _temporary(folder)
    # Counters of neighbouring rows are alike: delta coding and zstd take 8 to 10 bytes a row where
    # dictionaries and snappy take 15.
    encoding: dict[str, Any] = (
        {"column_encoding": dict.fromkeys(table.column_names, "DELTA_BINARY_PACKED")}
        if delta
        else {}
    )
    try:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=False,
            write_page_checksum=True,
            row_group_size=row_group_size,
            **encoding,
        )
        _move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def draws_name(generator: str, seed: int, seeds: Sequence[int] | None) -> str:
    """Name what fixes the draws of every replication: generator and seed, or listed seeds."""
    if seeds is None:
        return f"{generator} seed {seed}"
    return f"{generator} seeds {hashlib.sha256(repr(list(seeds)).encode()).hexdigest()[:16]}"


def digest(table: pa.Table) -> str:
    """SHA-256 over names, types and values; independent of how they are coded in a file."""
    state = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        state.update(f"{name} {column.type}\n".encode())
        # -1 never occurs in a counter, so it can stand for NULL here
        values = column.fill_null(-1) if column.null_count else column
        state.update(memoryview(values.to_numpy()))
    return state.hexdigest()


def write_shard(
    folder: Path,
    rows: pl.DataFrame,
    cells: Sequence[int],
    identities: Sequence[str],
    start: int,
    stop: int,
    draws: str,
) -> Path:
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

    Returns
    -------
    Path
        The file. The same cells and range have the same name: a task that is done twice
        replaces its own shard by the same rows.
    """
    table = rows.to_arrow()
    content = {
        "format": FORMAT,
        "cells": list(cells),
        "identities": list(identities),
        "start": start,
        "stop": stop,
        "draws": draws,
        "digest": digest(table),
    }
    table = table.replace_schema_metadata({_FOOTER_KEY: json.dumps(content).encode()})
    cells_id = hashlib.sha256("".join(identities).encode()).hexdigest()[:6]
    path = (
        folder
        / SHARDS
        / f"{cells[0]:06d}-{cells[-1]:06d}-{cells_id}-{start:010d}-{stop:010d}.parquet"
    )
    n = stop - start
    # whole cells in a row group, so that a reader of one cell skips the others
    _write_parquet(folder, path, table, n * max(1, _ROWS_PER_GROUP // n), delta=True)
    return path


# --- reading -------------------------------------------------------------------------------------


def read_footer(path: Path) -> Shard:
    """Read what a shard says of itself.

    Raises
    ------
    FolderError
        The file is no whole shard of this program.
    """
    try:
        metadata = pq.read_metadata(path)
        content = json.loads((metadata.metadata or {})[_FOOTER_KEY])
        shard = Shard(
            path,
            tuple(content["cells"]),
            tuple(content["identities"]),
            content["start"],
            content["stop"],
            content["draws"],
            content["digest"],
        )
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise FolderError(f"{path}: not a whole shard ({_first_line(error)})") from error
    if metadata.num_rows != shard.n_rows:
        raise FolderError(f"{path}: {metadata.num_rows} rows instead of {shard.n_rows}")
    return shard


def check_content(shard: Shard) -> None:
    """Compare the content of a shard with its digest.

    Raises
    ------
    FolderError
        It differs, or cannot be read.
    """
    try:
        table = pq.read_table(shard.path, page_checksum_verification=True, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise FolderError(f"{shard.path}: damaged ({_first_line(error)})") from error
    if digest(table) != shard.digest:
        raise FolderError(f"{shard.path}: its content is not what was written")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def shard_paths(folder: Path) -> list[Path]:
    """All shards, by name."""
    return sorted((folder / SHARDS).glob("*.parquet"))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None where there is none.

    Raises
    ------
    FolderError
        It is there and cannot be read.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FolderError(f"{path}: not readable ({_first_line(error)})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise FolderError(f"{path}: not the manifest of a results folder of this version")
    return content


def new_manifest(experiment: Experiment) -> dict[str, Any]:
    """What a manifest says at the start of a run: the experiment, the versions, the columns."""
    return {
        "format": FORMAT,
        "complete": False,
        "title": experiment.title,
        "file": Path(experiment.path).name,
        "experiment": experiment.source,
        "experiment_sha256": hashlib.sha256(
            json.dumps(experiment.source, sort_keys=True).encode()
        ).hexdigest(),
        "generator": experiment.generator,
        "seed": experiment.seed,
        "replications": experiment.replications,
        "n_cells": len(experiment.points),
        "n_rows": len(experiment.points) * experiment.replications,
        "versions": {"python": platform.python_version()}
        | {
            name: version(name)
            for name in ("retrystorm", "numpy", "numba", "polars", "pyarrow", "scipy")
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": {
            name: {"unit": parameter.unit, "meaning": parameter.meaning}
            for name, parameter in PARAMETERS.items()
        },
        "metrics": {
            name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in MEANINGS.items()
        },
    }


def read_cells(folder: Path) -> pl.DataFrame:
    """Read the table of cells; empty if the run ended before it was written."""
    path = folder / CELLS
    if not path.exists():
        schema = {
            "cell": pl.Int32,
            "scenario": pl.String,
            "policy": pl.String,
            "identity": pl.String,
        }
        return pl.DataFrame(schema=schema)
    return pl.read_parquet(path)


def put_aside(folder: Path, path: Path) -> None:
    """Move a file that is no shard of this run out of the folder of the shards."""
    aside = folder / "rejected"
    aside.mkdir(exist_ok=True)
    os.replace(path, aside / path.name)


def prepare(folder: Path, *, afresh: bool) -> None:
    """Make the folder ready to be written to, and empty it where it starts afresh.

    Raises
    ------
    FolderError
        It is something else than a results folder, or cannot be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder}: not a folder; give another with --out")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise FolderError(
            f"{folder}: holds something else than results; give another folder with --out"
        )
    try:
        if afresh and folder.is_dir():
            for old in [*TABLES, "cells"]:
                (folder / f"{old}.parquet").unlink(missing_ok=True)
            shutil.rmtree(folder / SHARDS, ignore_errors=True)
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob(".*.partial"):
            left_over.unlink(missing_ok=True)
        probe = _temporary(folder)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written to ({error.strerror})") from error


@dataclass(frozen=True)
class Results:
    """A results folder, read when asked.

    Attributes
    ----------
    folder : Path
        Where it is.
    """

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """How the results were made."""
        content = read_manifest(self.folder)
        if content is None:
            raise FolderError(f"{self.folder}: no results here (no {MANIFEST})")
        return content

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.manifest["complete"])

    @cached_property
    def cells(self) -> pl.DataFrame:
        """One row for each cell: names, parameters, bounds."""
        return self._table("cells")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row for each (cell, metric): estimate, intervals, published figure."""
        return self._table("summary")

    @cached_property
    def comparisons(self) -> pl.DataFrame:
        """One row for each (cell, metric): paired difference against the baseline policy."""
        return self._table("comparisons")

    @cached_property
    def claims(self) -> pl.DataFrame:
        """One row for each claim: share of replications, mean difference, verdict."""
        return self._table("claims")

    @property
    def replications(self) -> pl.DataFrame:
        """Every row, sorted by (cell, replication). For what does not fit in memory use `scan`."""
        return self.scan().sort("cell", "replication").collect()

    def scan(self) -> pl.LazyFrame:
        """The rows as a lazy frame, read as far as a query needs them."""
        return scan(shard_paths(self.folder))

    def _table(self, name: str) -> pl.DataFrame:
        if not self.complete:
            raise FolderError(
                f"{self.folder}: the run is not finished; start the same command again"
            )
        return pl.read_parquet(self.folder / f"{name}.parquet")


def scan(paths: Iterable[Path]) -> pl.LazyFrame:
    """A lazy frame over some shards."""
    return pl.scan_parquet([str(path) for path in paths])


def load(folder: str | Path) -> Results:
    """Open a results folder.

    Parameters
    ----------
    folder : path
        For example ``results/lesson``.

    Returns
    -------
    Results
        With `.cells`, `.replications`, `.summary`, `.comparisons`, `.claims` as polars frames,
        `.manifest` as a dict, and `.scan()`.

    Raises
    ------
    FolderError
        There is no results folder.
    """
    results = Results(Path(folder))
    _ = results.manifest
    return results
