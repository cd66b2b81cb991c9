"""`verify`: whether a results folder is what it says: hashes, rows and tables made again.

Nothing but the folder is needed: the table of cells has the parameters, the manifest the seed.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, ExperimentError
from mc.model import Cell
from mc.runner.resume import cell_names, continued, sorted_out
from mc.runner.running import Job, grow
from mc.runner.shards import storage_from, storage_of
from mc.runner.simulation import n_threads
from mc.runner.tables import make_tables, table_columns
from mc.store import FolderError, Results, Shard

SAMPLE_SECONDS: Final = 3.0
"""How long a sample of rows is simulated again."""

ROUNDING: Final = 1e-9
"""Two floats this close, relative to their size, are equal: the last digits of a logarithm differ
between machines."""

MOST_FAULTS: Final = 3
"""Of one table no more columns are named."""


@dataclass(frozen=True)
class Verification:
    """What a check of a results folder has shown.

    Attributes
    ----------
    folder : Path
        The folder.
    complete : bool
        Whether its run came to its end.
    n_files : int
        Files whose hash is right.
    n_rows, n_checked : int
        Rows that are in whole shards, or were counted for them, and those that were simulated
        again.
    seed : int or None
        With it the same sample is drawn again; None where all rows were simulated.
    faults : tuple of str
        What is wrong with files, a line each.
    differences : polars.DataFrame
        Counters that are not what they should be: `file`, `cell`, `replication`, `counter`,
        `stored` and `recomputed` (NULL where undefined), in the order of the rows. Of histograms
        counts and sums: `file`, `cell`, `metric`, `what`, `stored` and `recomputed`, as text.
    """

    folder: Path
    complete: bool
    n_files: int
    n_rows: int
    n_checked: int
    seed: int | None
    faults: tuple[str, ...]
    differences: pl.DataFrame

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and self.differences.height == 0


def verify(
    folder: str | Path,
    *,
    all_rows: bool = False,
    seconds: float = SAMPLE_SECONDS,
    seed: int | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Check every file of a results folder, and compare rows with rows simulated again.

    Parameters
    ----------
    folder : path
        A results folder; of a run that is not finished, the rows that exist are checked.
    all_rows : bool
        Simulate every row again, and make the tables of a finished run again from its rows: it
        takes as long as the run did.
    seconds : float
        How long to go on with a random sample. At least one draw is made; a small folder is done
        as a whole. Histograms are counted again shard by shard, as many as that is enough for.
    seed : int, optional
        Of the sample; default a fresh one each time, so that many checks see many rows.
    jobs : int, optional
        Threads; default all cores.
    progress : callable
        With `all_rows`: called with (rows that are done, rows in all) from time to time.

    Returns
    -------
    Verification

    Raises
    ------
    FolderError
        There is no results folder.
    TypeError, ValueError
        `jobs` is no whole number, or below 1.

    Examples
    --------
    >>> import mc
    >>> found = mc.verify("results/lesson")
    >>> found.ok, found.faults, found.differences.height
    (True, (), 0)
    """
    results = store.load(folder)
    faults, n_files = _check_tables(results)
    cells, table = _read_cells(results, faults)
    n_faults = len(faults)
    shards = _check_shards(results, faults)
    if len(faults) == n_faults:  # else rows are missing for a reason that is known
        faults += _wrong_ranges(results, shards, table)
    if results.complete:
        faults += store.page_faults(results.folder)
    whole = [shard for shard in shards if cells.keys() >= set(shard.cells)]
    total = sum(shard.n_rows for shard in whole)
    if all_rows:
        seed, seconds = None, math.inf
    elif seed is None:
        seed = random.randrange(2**32)
    checked = storage_from(results.manifest["experiment"], cells, table).check(
        whole,
        n_threads(jobs),
        seconds,
        None if seed is None else random.Random(seed),
        lambda n_rows: progress(n_rows, total) if all_rows else None,
    )
    faults += checked.faults
    if all_rows and results.complete and not faults and checked.differences.height == 0:
        faults += _derived_again(results, whole, jobs)
    return Verification(
        folder=results.folder,
        complete=results.complete,
        n_files=n_files + len(shards),
        n_rows=sum(shard.n_rows for shard in shards),
        n_checked=checked.n_rows,
        seed=seed,
        faults=tuple(faults),
        differences=checked.differences,
    )


# --- files ---------------------------------------------------------------------------------------


def _check_tables(results: Results) -> tuple[list[str], int]:
    """Compare tables with their hashes; return faults, and how many files are right.

    The manifest was checked when it was read.
    """
    faults: list[str] = []
    if results.complete:
        for name in store.TABLES:
            try:
                store.read_table_file(results.folder, name, results.manifest)
            except FolderError as error:
                faults.append(str(error))
        return faults, 1 + len(store.TABLES) - len(faults)
    return faults, 1 - len(faults)


def _read_cells(results: Results, faults: list[str]) -> tuple[dict[int, Cell], pl.DataFrame]:
    """Read the table of cells; return it, and the cells that are as the manifest has them."""
    path = results.folder / store.table_file("cells")
    try:
        table = pl.read_parquet(io.BytesIO(store.content_of(path)))
        cells = experiments.cells_of(table)
    except FileNotFoundError:
        if results.complete:  # a run that was stopped at its very start has none
            faults.append(f"{path}: missing; no row can be checked")
        return {}, pl.DataFrame(schema={"cell": pl.Int32})
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        faults.append(f"{path}: cannot be read ({store.first_line(error)}); no row of it")
        return {}, pl.DataFrame(schema={"cell": pl.Int32})
    names = dict(enumerate(results.manifest["cells"]))
    wrong = [n for n, cell in cells.items() if not names.get(n, "").startswith(cell.identity)]
    if wrong or len(cells) != len(names):
        which = f"cell {wrong[0]} is" if wrong else f"{len(names) - len(cells)} cells are"
        faults.append(f"{path}: {which} not as the manifest has it")
    return {number: cell for number, cell in cells.items() if number not in set(wrong)}, table


def _wrong_ranges(results: Results, shards: Sequence[Shard], cells: pl.DataFrame) -> Iterator[str]:
    """Name rows that are there twice, and those of a finished run that are not there."""
    stock = sorted_out(shards)
    yield from stock.faults.values()
    if results.complete and "replications" in cells.columns:
        wanted: dict[tuple[int, int], list[int]] = {}
        for number, n in (
            cells.select(pl.col("cell", "replications").cast(pl.Int64, strict=False))
            .drop_nulls()
            .iter_rows()
        ):
            wanted.setdefault((0, n), []).append(number)
        for (start, stop), numbers in sorted(stock.missing(wanted).items()):
            more = f" and of {len(numbers) - 1} more" if len(numbers) > 1 else ""
            yield (
                f"{results.shard_folder}: replications {start} to {stop - 1} of cell {numbers[0]}"
                f"{more} are missing"
            )


def _check_shards(results: Results, faults: list[str]) -> list[Shard]:
    """Hash every shard and read its footer; return those that are as they should be."""
    listed = set(results.manifest["shards"]) if results.complete else None
    paths = store.shard_paths(results.folder)
    shards = []
    for path, shard in zip(paths, store.read_shards(paths), strict=True):
        if listed is not None and path.name not in listed:
            faults.append(f"{path}: is not in the manifest")
        elif isinstance(shard, FolderError):
            faults.append(str(shard))
        elif store.is_of_run(shard, results.manifest):
            shards.append(shard)
        else:
            faults.append(f"{path}: belongs to another experiment")
    missing = sorted((listed or set()) - {path.name for path in paths})
    faults += [f"{results.shard_folder / name}: missing" for name in missing]
    return shards


# --- tables --------------------------------------------------------------------------------------


def _derived_again(results: Results, shards: Sequence[Shard], jobs: int | None) -> Iterator[str]:
    """Make everything but the rows again from these, and name what is not the same.

    The experiment is read again from the manifest, so what the tables say is compared with nothing
    that they say themselves.
    """
    manifest, folder = results.manifest, results.folder
    where = folder / store.MANIFEST
    try:
        counts = experiments.counts_of(results.cells)
        experiment = experiments.of_source(manifest["experiment"], f"{where}: experiment", counts)
        experiment = continued(experiment, manifest, folder)
        storage = storage_of(experiment)
        grown = grow(Job(experiment, storage, folder, jobs=0), sorted_out(shards))
    except (ExperimentError, FolderError) as error:
        yield str(error)
        return
    assert grown is not None, "no part was asked for"
    stops, stock = grown
    yield from _other_facts(where, manifest, experiment, sum(stop.n for stop in stops.values()))
    cells = ("cells", [experiments.cell_table(experiment, stops)])
    for name, parts in (cells, *make_tables(experiment, storage, stops, stock.shards, jobs)):
        stored = pl.read_parquet(io.BytesIO(store.read_table_file(folder, name, manifest)))
        yield from _other_values(folder / store.table_file(name), stored, pl.concat(parts))


def _other_facts(
    where: Path, manifest: Mapping[str, Any], experiment: Experiment, n_rows: int
) -> Iterator[str]:
    """Name what the manifest says of an experiment and is not so."""
    made = store.new_manifest(experiment, cell_names(experiment.points), table_columns(experiment))
    made |= {"n_rows": n_rows, "complete": True}
    # what a run alone knows: when and how it was made, and how far a precision has let it go
    of_the_run = {"file", "options", "versions", "started", "replications"}
    for name in made.keys() - of_the_run:
        if manifest[name] != made[name]:
            yield f"{where}: {name} is not what follows from the experiment"


def _other_values(where: Path, stored: pl.DataFrame, made: pl.DataFrame) -> Iterator[str]:
    """Name columns of a table that are not what the rows give."""
    if stored.schema != made.schema:
        for column in dict.fromkeys((*made.columns, *stored.columns)):
            is_now, should = stored.schema.get(column), made.schema.get(column)
            if is_now != should:
                rule = f"be {should}" if should else "not be there"
                yield f"{where}: column {column} is {is_now or 'missing'}, should {rule}"
                return
        yield f"{where}: its columns are in another order"
        return
    if stored.height != made.height:
        yield f"{where}: has {stored.height:,} lines, its rows give {made.height:,}"
        return
    wrong = [column for column in made.columns if _differs(stored[column], made[column]).any()]
    for column in wrong[:MOST_FAULTS]:
        differs = _differs(stored[column], made[column])
        k = differs.arg_max() or 0
        yield (
            f"{where}: {column} differs in {differs.sum():,} lines from what the rows give: line "
            f"{k + 1} has {stored[column][k]}, made once more {made[column][k]}"
        )
    if len(wrong) > MOST_FAULTS:
        yield f"{where}: and {len(wrong) - MOST_FAULTS} columns more"


def _differs(stored: pl.Series, made: pl.Series) -> pl.Series:
    """Where two columns are not the same, see `ROUNDING`."""
    differs = stored.ne_missing(made)
    if made.dtype.is_float():
        size = pl.DataFrame([stored.abs(), made.abs().alias("made")]).max_horizontal()
        differs &= ~((stored - made).abs() <= ROUNDING * size).fill_null(False)
    return differs
