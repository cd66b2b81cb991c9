"""The folder as a whole: its manifest, making it ready, reading it back."""

from __future__ import annotations

import html
import io
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mc.model import HEADLINE, METRICS, PARAMETERS, Column, metrics_of, units
from mc.model.columns import BUDGET_TEXT, OF_METRIC, about
from mc.model.digits import (
    MIN_REPLICATIONS,
    axis_text,
    counted,
    format_estimate,
    half_width,
    readers_second,
)
from mc.store.files import (
    FOLDERS,
    LOCK,
    MANIFEST,
    PARTIAL,
    TABLES,
    check_guard,
    content_of,
    sha256,
    table_file,
)
from mc.store.manifest import FORMAT, PROGRAM, DamagedError, read_manifest
from mc.store.paths import FolderError, ObjectPath, is_remote, of_each, path_of
from mc.store.shards import Shard, are_ours, check_bytes, draws_name, shard_paths

if TYPE_CHECKING:
    from typing import TypeVar

    import polars as pl

    from mc.experiment import Experiment

    Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

_KEYS: Final = ("cell", "replication", "seed")
"""Columns of rows that are no counters."""

_INSTEAD: Final = {
    "rows": "all tables, figures and comparisons with the baseline policy are there; what needs "
    'rows (best, frontier, other pairs) takes a run with keep = "rows" into another folder',
    "histograms": "they can be counted from its rows",
}
"""What helps where something else is kept."""

HTML_CELLS: Final = 20
"""A notebook shows no more cells."""

_MAKE_ANEW: Final = "the command that made the folder makes it anew"


# --- the manifest --------------------------------------------------------------------------------


def new_manifest(
    experiment: Experiment, cells: Sequence[str], columns: Mapping[str, Mapping[str, Column]]
) -> dict[str, Any]:
    """What a manifest says at the start of a run.

    Parameters
    ----------
    experiment : Experiment
        What is run.
    cells : sequence of str
        A name of each cell, by its number.
    columns : mapping of str to mapping of str to Column
        Of each table.

    Returns
    -------
    dict
    """
    from importlib.metadata import version

    return {
        "program": PROGRAM,
        "format": FORMAT,
        "complete": False,
        "title": experiment.title,
        # a file may be called anything, a text in a manifest not
        "file": "".join(c if c.isprintable() else "?" for c in Path(experiment.path).name),
        "options": list(experiment.options),
        "experiment": experiment.source,
        "experiment_sha256": _experiment_hash(experiment.source),
        "generator": experiment.generator,
        "seed": experiment.seed,
        "replications": experiment.replications,
        "n_cells": len(experiment.points),
        "n_rows": len(experiment.points) * experiment.replications,
        "versions": {"python": platform.python_version()}
        | {
            name: version(name)
            for name in (PROGRAM, "numpy", "numba", "polars", "pyarrow", "scipy")
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "cells": list(cells),
        "columns": {table: about(named) for table, named in columns.items()},
        "metrics": about(metrics_of(point.parameters for point in experiment.points)),
    }


def is_of_run(shard: Shard, manifest: Mapping[str, Any]) -> bool:
    """Whether the rows of a shard are some that a folder with this manifest should hold."""
    source, names = manifest["experiment"], manifest["cells"]
    draws = draws_name(source["generator"], source["seed"], source["seeds"], source["keep"])
    return shard.draws == draws and all(
        number < len(names) and names[number].startswith(f"{identity} ")
        for number, identity in zip(shard.cells, shard.identities, strict=True)
    )


def axis_names(manifest: Mapping[str, Any]) -> list[str]:
    """Parameters that [grid] and [design] vary, in the order of the file."""
    source = manifest["experiment"]
    design = source["design"] or {"ranges": []}
    return [axis["name"] for axis in (*source["grid"], *design["ranges"])]


def name_columns(source: Mapping[str, Any]) -> list[str]:
    """Columns by which people name cells, in the tables of estimates, too.

    They are scenario, policy, the axes, and the budget as a text where it is one of these.
    """
    names = ["scenario", "policy", *axis_names({"experiment": source})]
    return [*names, BUDGET_TEXT] if "budget" in names else names


def with_names(table: Frame, names: pl.DataFrame) -> Frame:
    """Put the names of cells behind their numbers.

    Parameters
    ----------
    table : polars.DataFrame or LazyFrame
        With a column `cell`.
    names : polars.DataFrame
        `cell`, and the columns of `name_columns`.

    Returns
    -------
    polars.DataFrame or LazyFrame
    """
    import polars as pl

    if isinstance(table, pl.LazyFrame):
        others = [n for n in table.collect_schema().names() if n not in names.columns]
        numbered = table.select("cell", *others)
        joined = numbered.join(names.lazy(), on="cell", how="left", maintain_order="left")
        return joined.select(*names.columns, *others)
    named = table.select("cell").join(names, on="cell", how="left", maintain_order="left")
    return named.hstack(table.drop("cell", *names.columns, strict=False))


def _experiment_hash(source: Mapping[str, Any]) -> str:
    return sha256(json.dumps(source, sort_keys=True).encode())


# --- before a run --------------------------------------------------------------------------------


def look(folder: Path, *, any_version: bool = False) -> dict[str, Any] | None:
    """Find out whether a run may use a folder, without changing anything.

    Parameters
    ----------
    folder : Path
        Where the results shall be.
    any_version : bool
        Whether a folder of another version of this program will do.

    Returns
    -------
    dict or None
        The manifest; None where the folder is empty or missing, or holds only what a run leaves
        that is killed at its very start, or shards whose manifest is lost or damaged.

    Raises
    ------
    FolderError
        It is something else than a results folder, or cannot be read.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise FolderError(
            f"{folder}: the name of a results folder must be UTF-8; give another with --out"
        ) from None
    try:
        manifest = read_manifest(folder, any_version=any_version, to_run=True)
    except DamagedError:  # the shards say of themselves what they are
        manifest = None
    try:
        if manifest is None and not are_ours(shard_paths(folder)) and not _is_begun(folder):
            what = (
                "the manifest of something else"
                if (folder / MANIFEST).exists()
                else "something else"
            )
            raise FolderError(
                f"{folder}: holds {what} than results; give another folder with --out"
            )
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise FolderError(f"{folder}: not a folder; give another with --out") from error
    except OSError as error:
        raise FolderError(f"{folder}: cannot be read ({error.strerror})") from error
    return manifest


def _is_begun(folder: Path) -> bool:
    """Whether a folder holds only what a run writes before it has made any rows."""
    paths = list(folder.iterdir())
    empty = [p for p in paths if p.name in FOLDERS.values() and p.is_dir() and not any(p.iterdir())]
    # alone they may be anybody's
    names = {MANIFEST, *map(table_file, TABLES)} if empty else set()
    return all(
        path in empty or path.name in names or path.match(f"{LOCK}*") or path.match(PARTIAL)
        for path in paths
    )


def clear(folder: Path) -> None:
    """Remove the tables and the shards, and nothing else."""
    check_guard(folder)
    tables = [folder / table_file(name) for name in TABLES]
    of_each(lambda path: path.unlink(missing_ok=True), tables + shard_paths(folder))
    for name in FOLDERS.values() if not is_remote(folder) else ():
        with suppress(OSError):  # it does not exist, or someone put something into it
            (folder / name).rmdir()


def make_ready(folder: Path, keep: str, *, alone: bool = True) -> None:
    """Make the folder of the shards, and remove what a killed run was writing.

    Parameters
    ----------
    folder : Path
        The results folder.
    keep : {"rows", "histograms"}
        What its shards hold.
    alone : bool
        Whether no other process writes there: else nothing is removed.
    """
    check_guard(folder)
    if not is_remote(folder):
        (folder / FOLDERS[keep]).mkdir(exist_ok=True)
    for path in folder.glob(PARTIAL) if alone else ():
        path.unlink(missing_ok=True)


# --- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """A results folder, read when asked.

    Attributes
    ----------
    folder : Path
        Where it is.
    answers : dict
        What was found out from its rows and may be asked again, by what was asked.
    """

    folder: Path
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """How the results were made."""
        content = read_manifest(self.folder)
        if content is None and shard_paths(self.folder):
            raise FolderError(
                f"{self.folder / MANIFEST}: missing; retrystorm run with the experiment's file "
                "makes it anew"
            )
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
        table = self._table("cells")
        if {*PARAMETERS, BUDGET_TEXT} <= set(table.columns):
            return table
        from mc.experiment import completed

        return completed(table)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row for each (cell, metric): estimate, intervals, published figure."""
        return self._table("summary")

    def scan_summary(self) -> pl.LazyFrame:
        """The lines of `summary` as a lazy frame: of 100,000 cells all of them take 2 GB."""
        import polars as pl

        if "summary" in self.__dict__:
            return self.summary.lazy()
        return pl.scan_parquet(io.BytesIO(self._content("summary")))

    @cached_property
    def comparisons(self) -> pl.DataFrame:
        """One row for each (cell, metric): paired difference against the baseline policy."""
        return self._table("comparisons")

    @cached_property
    def claims(self) -> pl.DataFrame:
        """One row for each claim: share of replications, mean difference, verdict."""
        return self._table("claims")

    @property
    def keeps_rows(self) -> bool:
        """Whether it keeps rows, not histograms."""
        return self._keep == "rows"

    @property
    def shard_folder(self) -> Path:
        """Where its shards are."""
        return self.folder / FOLDERS[self._keep]

    @property
    def _keep(self) -> str:
        return str(self.manifest["experiment"]["keep"])

    @property
    def replications(self) -> pl.DataFrame:
        """Every row, sorted by (cell, replication). For what does not fit in memory use `scan`."""
        self._must_keep("rows")
        of_each(check_bytes, self._shards())
        return self.scan().sort("cell", "replication").collect()

    @property
    def histograms(self) -> pl.DataFrame:
        """With ``keep = "histograms"``: in how many replications each value occurs.

        Columns `cell`, `metric`, `value` (of `window_rate` and `times_usual` the `window_calls`,
        which are to be divided; of a ratio of counters `quotient`; both NULL where the metric is
        undefined), `count`; sorted.
        """
        import polars as pl

        self._must_keep("histograms")
        of_each(check_bytes, self._shards())
        keys = ("cell", "metric", "value", "quotient")
        counted = scan(self._shards()).group_by(keys).agg(pl.col("count").sum())
        return counted.sort(keys).collect()

    def scan(self) -> pl.LazyFrame:
        """The rows as a lazy frame, read as far as a query needs them, and not checked."""
        self._must_keep("rows")
        columns = self.manifest["columns"]["replications"]
        return scan(self._shards(), [name for name in columns if name not in _KEYS])

    def _must_keep(self, wanted: str) -> None:
        if self._keep != wanted:
            raise FolderError(
                f"{self.folder}: keeps {self._keep}, not {wanted}; {_INSTEAD[wanted]}"
            )

    def _shards(self) -> list[Path]:
        """The shards of a finished run, or those that exist of another."""
        paths = shard_paths(self.folder)
        if self.complete:
            by_name = {path.name: path for path in paths}
            for name, n_bytes in self.manifest["shards"].items():
                if name not in by_name:
                    raise FolderError(f"{self.shard_folder / name}: missing; {_MAKE_ANEW}")
                path = by_name[name]
                if not is_remote(path) and path.stat().st_size != n_bytes:
                    raise FolderError(f"{path}: damaged (not as long as it was); {_MAKE_ANEW}")
            return [by_name[name] for name in self.manifest["shards"]]
        if not paths:
            raise FolderError(f"{self.folder}: no rows yet; run the same command again")
        return paths

    def _table(self, name: str) -> pl.DataFrame:
        import polars as pl

        table = pl.read_parquet(io.BytesIO(self._content(name)))
        if name in ("summary", "comparisons") and not table["cell"].is_sorted():
            # as the file has the cells of a baseline together; column by column takes least memory
            places = table.select(pl.arg_sort_by("cell", maintain_order=True)).to_series()
            names = table.columns
            table = pl.DataFrame([table.drop_in_place(name)[places] for name in names])
        if name in ("summary", "comparisons") and "scenario" not in table.columns:
            # a folder of an older version
            return self.named(table)
        return table

    def must_be_complete(self) -> None:
        """Raise a `FolderError` where the run is not finished."""
        if not self.complete:
            raise FolderError(f"{self.folder}: the run is not finished; run the same command again")

    def _content(self, name: str) -> bytes:
        self.must_be_complete()
        return read_table_file(self.folder, name, self.manifest)

    def named(self, table: Frame) -> Frame:
        """Put scenario, policy and place of every cell into a table that has its number.

        Parameters
        ----------
        table : polars.DataFrame or LazyFrame
            With a column `cell`, for example `replications`, or what `scan()` gives.

        Returns
        -------
        polars.DataFrame or LazyFrame
        """
        names = name_columns(self.manifest["experiment"])
        return with_names(table, self.cells.select("cell", *names))

    def _repr_html_(self) -> str:
        """What a notebook shows: the title, and means with the half-widths of their intervals."""
        if not self.complete:
            return f"<p>{html.escape(str(self.folder))}: the run is not finished</p>"
        shown = self.cells.head(HTML_CELLS)
        named = for_reader(self.summary, "summary", self.manifest).filter(
            self.summary["metric"].is_in(HEADLINE)
        )
        estimates = {(e["cell"], e["metric"]): e for e in named.iter_rows(named=True)}
        metrics = [m for m in HEADLINE if any(estimates[c, m]["n"] for c in shown["cell"])]
        names = ["scenario", "policy", *axis_names(self.manifest)]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (*names, *metrics))
        lines = []
        for cell in shown.iter_rows(named=True):
            source = self.manifest["experiment"]
            texts = [
                str(cell[n]) if n in names[:2] else axis_text(source, n, cell[n]) for n in names
            ]
            for metric in metrics:
                estimate = estimates[cell["cell"], metric]
                mean, error = format_estimate(estimate["mean"], half_width(estimate))
                rough = "~" if estimate["n"] < MIN_REPLICATIONS else ""
                texts.append(f"{mean} ± {rough}{error}" if error else mean)
            lines.append("".join(f"<td>{html.escape(text)}</td>" for text in texts))
        n_more = self.cells.height - shown.height
        more = f"<p>{n_more:,} more cells are in .cells and .summary</p>" if n_more else ""
        return (
            f"<p><b>{html.escape(self.manifest['title'])}</b>: "
            f"{counted(self.cells.height, 'cell')}, "
            f"{counted(self.manifest['n_rows'], 'row')}, in {html.escape(str(self.folder))}; "
            "means ± half of their 95 % intervals, "
            f"~ of fewer than {MIN_REPLICATIONS} replications: rough</p>"
            f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{more}"
        )


def read_table_file(folder: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    """Read one of `TABLES`, and compare it with the hash in the manifest of the finished run.

    Raises
    ------
    FolderError
        It is missing, or is not what was written.
    OSError
        It cannot be read.
    """
    path = folder / table_file(name)
    try:
        content = content_of(path)
    except FileNotFoundError as error:
        raise FolderError(f"{path}: missing; {_MAKE_ANEW}") from error
    if sha256(content) != manifest["tables"][name]:
        raise FolderError(f"{path}: damaged; {_MAKE_ANEW}")
    return content


def tables_are_whole(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether all of `TABLES` are as a finished run wrote them."""
    try:
        for name in TABLES:
            read_table_file(folder, name, manifest)
    except FolderError:
        return False
    return True


def scan(paths: Iterable[Path], counters: Sequence[str] = ()) -> pl.LazyFrame:
    """A lazy frame over some shards; of rows it has these counters, of histograms all columns.

    A counter is NULL in a shard that does not have it: it is older than the cell, or the version,
    that has such a thing.
    """
    import polars as pl

    shards: list[Any] = list(paths)
    if shards and isinstance(shards[0], ObjectPath):
        import pyarrow as pa
        from pyarrow import dataset

        # polars' own access to object stores would need our credentials a second time
        keys, files = [str(path.key) for path in shards], shards[0].files
        found = dataset.dataset(keys, filesystem=files, format="parquet")
        if counters:
            kept = [field for field in found.schema if field.name in _KEYS]
            schema = pa.schema([*kept, *(pa.field(name, pa.int64()) for name in counters)])
            found = found.replace_schema(schema)
        return pl.scan_pyarrow_dataset(found)
    names = [str(path) for path in shards]
    # brackets, asterisks and question marks are part of a folder's name
    if not counters or not names:
        return pl.scan_parquet(names, glob=False)
    first = pl.scan_parquet(names[0], glob=False).collect_schema()
    return pl.scan_parquet(
        names,
        glob=False,
        schema={name: kind for name, kind in first.items() if name in _KEYS}
        | {name: pl.Int64() for name in counters},
        missing_columns="insert",
        extra_columns="ignore",
    )


def for_reader(
    table: pl.DataFrame, name: str, manifest: Mapping[str, Any], metric: str = "metric"
) -> pl.DataFrame:
    """Give a table of estimates with times in seconds and rates per second.

    Parameters
    ----------
    table : polars.DataFrame
        With columns like one of `TABLES`.
    name : str
        Which.
    manifest : mapping
        Of the folder. Where a reader is given rounds (see `readers_second`) nothing changes.
    metric : str
        The column that names the metric of a line.

    Returns
    -------
    polars.DataFrame
    """
    import polars as pl

    per_second = readers_second(manifest["experiment"])
    if per_second is None:
        return table
    columns = manifest["columns"][name]
    of_metric = [one for one in table.columns if columns.get(one, {}).get("unit") == OF_METRIC]
    factors = {one: units.for_reader(METRICS[one].unit, per_second)[1] for one in METRICS}
    factor = pl.col(metric).replace_strict(factors, default=1.0, return_dtype=pl.Float64)
    return table.with_columns(pl.col(of_metric) * factor)


def load(folder: str | Path | Results) -> Results:
    """Open a results folder.

    Parameters
    ----------
    folder : path or Results
        For example ``results/lesson``, or a URL. One that is open already is returned as it is:
        its manifest and tables are not read again.

    Returns
    -------
    Results
        With `.cells`, `.summary`, `.comparisons`, `.claims` as polars frames; so are the rows,
        `.replications`, which `.scan()` gives lazily, or `.histograms` where these are kept in
        their place; `.manifest` as a dict.

    Raises
    ------
    FolderError
        There is no results folder. Later, by what is read of it: the run is not finished, or a
        file is missing or damaged.

    Examples
    --------
    >>> import mc
    >>> results = mc.load("results/lesson")
    >>> line = results.summary.filter(cell=8, metric="dropped")
    >>> [round(x, 2) for x in line.select("mean", "ci_low", "ci_high").row(0)]
    [93.33, 93.14, 93.52]
    >>> results.scan().filter(cell=8).select("dropped").max().collect().item()
    133
    """
    if isinstance(folder, Results):
        return folder
    results = Results(path_of(folder))
    _ = results.manifest
    return results
