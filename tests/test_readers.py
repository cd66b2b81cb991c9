"""Other programs read the folder while a run writes it, and after: no error, no warning, no NaN.

They look all the time, so they see it in many of its states: without a row, with some, while
tables are made anew. Warnings are errors in all tests of this project.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import pandas as pd
import polars as pl
import pytest
from folders import TABLES, assert_same_results, run, write
from processes import Running

import mc
from mc import store

# with one thread some seconds, in three stages, of which the last is not needed everywhere
EXPERIMENT: Final = """
title = "watched"
[precision]
metric = ["window_rate", "dropped"]
relative = 0.02
absolute = 2
min = 50
max = 200
[fixed]
rounds = 400
arrivals_per_second = 120
capacity = 2
fault_start = 50
fault_rounds = 60
[[scenario]]
name = "outage"
[[scenario]]
name = "degradation"
fault_capacity = 1
[[policy]]
name = "none"
[[policy]]
name = "nine"
tries = [3, 3]
[grid]
budget = [0.1, 0.3]
backoff_cap = [8, 32]
"""


def rows_of_polars(out: Path) -> int:
    """Count the rows, and look at a column of each."""
    frame = pl.scan_parquet(out / "replications/*.parquet").select("calls", "drain").collect()
    assert frame["calls"].null_count() == 0
    return frame.height


def rows_of_pandas(out: Path) -> int:
    frame = pd.read_parquet(out / "replications", columns=["calls", "drain"])
    assert frame["calls"].notna().all()
    return len(frame)


def rows_of_duckdb(out: Path) -> int:
    with duckdb.connect() as connection:
        connection.execute(
            "SELECT count(*), count(calls), sum(drain) FROM read_parquet(?)",
            [str(out / "replications/*.parquet")],
        )
        n_rows, n_calls, _ = connection.fetchall()[0]
    assert n_calls == n_rows
    return int(n_rows)


def table_of_polars(path: Path) -> int:
    return read_again(path, lambda: pl.read_parquet(path).height, pl.exceptions.ComputeError)


def table_of_pandas(path: Path) -> int:
    return len(pd.read_parquet(path))


def table_of_duckdb(path: Path) -> int:
    def read() -> int:
        with duckdb.connect() as connection:
            query = "SELECT * FROM read_parquet(?)"
            return len(connection.execute(query, [str(path)]).fetchall())

    return read_again(path, read, duckdb.Error)


def read_again(path: Path, read: Callable[[], int], error: type[Exception]) -> int:
    """Read a file by a reader that opens it twice, again if it was replaced in between."""
    while True:
        before = path.stat().st_ino
        try:
            return read()
        except error:
            if path.stat().st_ino == before:
                raise


READERS: Final[dict[str, tuple[Callable[[Path], int], Callable[[Path], int]]]] = {
    "polars": (rows_of_polars, table_of_polars),
    "pandas": (rows_of_pandas, table_of_pandas),
    "duckdb": (rows_of_duckdb, table_of_duckdb),
}


@pytest.mark.skipif(os.name != "posix", reason="Windows moves no file over one that is read")
def test_polars_pandas_and_duckdb_read_the_folder_while_it_is_written_and_after(
    tmp_path: Path,
) -> None:
    """Each sees ever more rows and whole tables only; the run does not mind being watched."""
    out, file = tmp_path / "out", str(write(tmp_path, EXPERIMENT))
    running = Running(out, "run", file, "--jobs", "1")
    seen: dict[str, list[int]] = {name: [0] for name in READERS}
    n_tables = dict.fromkeys(READERS, 0)
    try:
        running.wait_for_shards(1)
        while running.is_alive:
            running.go_on(4)
            for name, (read_rows, read_table) in READERS.items():
                seen[name].append(read_rows(out))
                for table in TABLES:
                    if (out / f"{table}.parquet").exists():
                        n_tables[name] += read_table(out / f"{table}.parquet") > 0
    finally:
        code, _, err = running.stop(signal.SIGKILL) if running.is_alive else running.end()
    assert code == 0, err
    run(EXPERIMENT, tmp_path / "unwatched")
    assert_same_results(out, tmp_path / "unwatched")
    results = mc.load(out)
    for name, (read_rows, read_table) in READERS.items():
        assert seen[name] == sorted(seen[name])
        assert len(set(seen[name])) > 3, "it was read in several states"
        assert n_tables[name] > 0
        got = read_rows(out)
        expected = results.replications.height
        assert got == expected
        for table in TABLES:
            got = read_table(out / f"{table}.parquet")
            expected = getattr(results, table).height
            assert got == expected
    assert len(store.shard_paths(out)) > 3
