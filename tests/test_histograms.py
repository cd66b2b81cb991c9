"""With histograms in place of rows every table is the same to the last bit, however it was made."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from folders import TABLES, run, snapshot, write
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import mc
from mc import kernel, statistics, store
from mc.cli import app
from mc.experiment import Claim, cell_table, read
from mc.model import METRICS
from mc.runner import histograms, simulation
from mc.runner import rows as row_storage
from mc.runner.histograms import Histograms
from mc.runner.simulation import Draws
from mc.runner.storage import CELLS_AT_ONCE
from mc.statistics import tallies
from mc.statistics.tallies import Tally, claim_key, claim_of
from mc.store import FolderError

# "light" has other traffic than its baseline, and each value of the grid has other traffic, too;
# without a fault some metrics are NULL everywhere, `drain` here and there.
ROWS: Final = """
title = "small"
replications = 24
[fixed]
rounds = 200
arrivals_per_second = 120
capacity = 2
fault_start = 50
[[scenario]]
name = "healthy"
[[scenario]]
name = "outage"
fault_rounds = 60
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
budget = 0.3
[[policy]]
name = "light"
arrivals_per_second = 80
[grid]
failure_rate = [0, 0.25]
[[claim]]
text = "three tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["none", "three"]
at = {failure_rate = 0}
relation = "<"
[[claim]]
text = "some are dropped"
scenario = "outage"
metric = ["dropped", "window_rate"]
policies = ["light"]
at = {failure_rate = 0.25}
relation = "between"
value = [1, 100.5]
[[published]]
scenario = "outage"
policy = "three"
at = {failure_rate = 0}
multiplier = 1.25
"""

HISTOGRAMS: Final = ROWS.replace("24", '24\nkeep = "histograms"', 1)
N_CELLS: Final = 12
N_ROWS: Final = N_CELLS * 24


@pytest.fixture(autouse=True)
def _few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a task takes 30 ms, however small it is."""
    monkeypatch.setattr(histograms, "MIN_TASKS", 4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a finished run that keeps rows, not to be changed."""
    out = tmp_path_factory.mktemp("rows") / "out"
    run(ROWS, out)
    return out


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Give a finished run that keeps histograms."""
    run(HISTOGRAMS, tmp_path / "out")
    return tmp_path / "out"


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "histograms").iterdir())


def assert_same_tables(folder: Path, expected_folder: Path) -> None:
    for name in TABLES:
        got = (folder / f"{name}.parquet").read_bytes()
        expected = (expected_folder / f"{name}.parquet").read_bytes()
        assert got == expected, name


# --- the same tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_tables_are_those_of_the_rows_on_any_number_of_threads(
    tmp_path: Path, rows: Path, jobs: int
) -> None:
    run(HISTOGRAMS, tmp_path / "out", jobs=jobs)
    assert_same_tables(tmp_path / "out", rows)


@pytest.mark.parametrize("text", [ROWS, HISTOGRAMS], ids=["rows", "histograms"])
def test_tables_do_not_depend_on_the_size_of_blocks(
    tmp_path: Path, rows: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of few rows, each of few cells; few cells in memory together, for the tables, too."""
    for module, name, value in (
        (simulation, "CELLS_PER_BLOCK", 1),
        (simulation, "ROWS_PER_TASK", 5),
        (simulation, "MIN_TASKS", 1),
        (histograms, "MIN_TASKS", 1),
        (histograms, "CELLS_PER_TASK", (1, 1)),
        (histograms, "ROWS_AT_ONCE", 30),
        (histograms, "LINES_AT_ONCE", 1),
        (row_storage, "ROWS_AT_ONCE", 1),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)
    run(text, tmp_path / "out", jobs=2)
    assert_same_tables(tmp_path / "out", rows)


def test_cells_that_can_share_a_wheel_are_counted_together() -> None:
    """In the file cells of different waits take turns."""
    caps, tries = range(2, 34), (2, 3, 4, 5)
    cells = [mc.Cell(tries=(n,), backoff_cap=float(cap)) for n in tries for cap in caps]
    table = pl.DataFrame({"cell": range(len(cells)), "baseline": range(len(cells))})
    storage = Histograms(Draws("philox", 1), dict(enumerate(cells)), table, {}, ("calls",))
    tasks = storage.tasks({(0, 100): range(len(cells))})
    for ids in {task.ids for task in tasks}:
        assert len(ids) == histograms.CELLS_PER_TASK[0]
        assert len({cells[i].backoff_cap for i in ids}) == len(ids) / len(tries)


def test_parts_that_are_merged_give_the_same_tables(tmp_path: Path, rows: Path) -> None:
    file, out = write(tmp_path, HISTOGRAMS), tmp_path / "out"
    for part in (3, 1, 2):
        mc.run(file, out, shard=(part, 3))
    mc.merge(file, out)
    assert_same_tables(out, rows)
    assert len(shards(out)) > 3


def test_a_run_that_fails_halfway_and_loses_files_goes_on_to_the_same_tables(
    tmp_path: Path, rows: Path
) -> None:
    file, out = write(tmp_path, HISTOGRAMS), tmp_path / "out"

    def die(done: int, total: int) -> None:
        if done > total / 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        mc.run(file, out, jobs=1, progress=die)
    assert 0 < mc.status(out).n_done < N_ROWS
    mc.run(file, out)
    assert_same_tables(out, rows)
    lost, damaged = shards(out)[:2]
    lost.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-100])
    told = run(HISTOGRAMS, out)
    assert any("put aside" in line for line in told)
    assert_same_tables(out, rows)


def test_more_replications_and_more_cells_give_the_tables_of_one_run(
    tmp_path: Path, rows: Path
) -> None:
    fewer = HISTOGRAMS.replace("[0, 0.25]", "[0]").replace(
        "failure_rate = 0.25", "failure_rate = 0"
    )
    run(fewer.partition("[[claim]]")[0], tmp_path / "out", replications=7)
    without_claims = HISTOGRAMS.partition("[[claim]]")[0]
    run(fewer.partition("[[claim]]")[0], tmp_path / "out")
    told = run(without_claims, tmp_path / "out")
    assert any("144 of 288 rows are there" in line for line in told)
    by_name = ["scenario", "policy", "failure_rate"]
    frames = []
    for folder in (tmp_path / "out", rows):
        results = mc.load(folder)
        named = results.cells.select("cell", *by_name).join(results.summary, on="cell").drop("cell")
        frames.append(named.select(pl.exclude("^published.*$")).sort(*by_name, "metric"))
    assert_frame_equal(*frames)


STAGES: Final = """
[precision]
metric = ["window_rate", "calls"]
relative = 0.05
min = 10
max = 60
"""


def test_cells_stop_at_the_same_stage_and_have_the_same_tables(tmp_path: Path) -> None:
    rows = ROWS.replace("replications = 24", "") + STAGES
    run(rows, tmp_path / "rows")
    run('keep = "histograms"\n' + rows, tmp_path / "histograms")
    assert_same_tables(tmp_path / "histograms", tmp_path / "rows")
    stages = set(mc.load(tmp_path / "rows").cells["replications"])
    assert len(stages) > 1, "of no use otherwise"


@pytest.mark.parametrize("drawn", ["replications = 9", "seeds = [20260802, 5, 7, 6, 1, 3]"])
def test_tables_are_the_same_with_the_lessons_generator(tmp_path: Path, drawn: str) -> None:
    rows = ROWS.replace("replications = 24", f'generator = "lesson"\n{drawn}')
    rows = rows.replace("failure_rate = [0, 0.25]", "backoff_cap = [8, 16]")
    rows = rows.replace("failure_rate = 0.25", "backoff_cap = 16")
    rows = rows.replace("failure_rate = 0", "backoff_cap = 8")
    run(rows, tmp_path / "rows")
    run('keep = "histograms"\n' + rows, tmp_path / "histograms")
    assert_same_tables(tmp_path / "histograms", tmp_path / "rows")
    assert mc.verify(tmp_path / "histograms", all_rows=True).ok


def test_a_single_replication_gives_the_same_tables(tmp_path: Path) -> None:
    run(ROWS, tmp_path / "rows", replications=1)
    run(HISTOGRAMS, tmp_path / "histograms", replications=1)
    assert_same_tables(tmp_path / "histograms", tmp_path / "rows")


# --- counts are added -----------------------------------------------------------------------------

N: Final = 40


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, pl.DataFrame, Any]:
    """Rows of three cells, the table of them, and a claim."""
    text = ROWS.partition("[grid]")[0].replace('[[scenario]]\nname = "healthy"\n', "")
    experiment = read(write(tmp_path_factory.mktemp("simulated"), text))
    frame = mc.simulate([point.parameters for point in experiment.points], N, seed=1)
    claim = Claim("", "", ("dropped",), "<", (2, 1, 0), ("",) * 3, None, 1.5)
    return frame, cell_table(experiment), {claim_key(claim): claim}


def counted(rows: pl.DataFrame, cells: pl.DataFrame, claims: Any) -> Tally:
    (stack,) = statistics.stacks(rows, cells)
    return tallies.count(stack, claims=claims)


def made_again(tally: Tally, cells: pl.DataFrame) -> Tally:
    """What is read of a file that a tally was written to."""
    kept = json.loads(json.dumps(tallies.sums(tally)))
    assert kept == tallies.sums(tally)
    return tallies.restored(
        tallies.histograms(tally),
        kept,
        cells,
        cells[cells["baseline"].to_list()],
        list(tally.metrics),
    )


@given(
    ends=st.sets(st.integers(1, N - 1), max_size=6),
    order=st.randoms(use_true_random=False),
    factor=st.sampled_from([1, 2**20, 2**33]),
)
@settings(max_examples=12)
def test_tables_of_parts_added_in_any_order_are_those_of_the_rows(
    simulated: Any, ends: set[int], order: Any, factor: int
) -> None:
    """With the largest factor sums of squares and cubes need far more than 64 bits."""
    rows, cells, claims = simulated
    rows = rows.with_columns(pl.col("calls", "dropped") * factor)
    at = [0, *sorted(ends), N]
    parts = [
        made_again(
            counted(rows.filter(pl.col("replication").is_between(start, stop - 1)), cells, claims),
            cells,
        )
        for start, stop in pairwise(at)
    ]
    order.shuffle(parts)
    while len(parts) > 1:
        k = order.randrange(len(parts) - 1)
        parts[k : k + 2] = [made_again(tallies.added(parts[k : k + 2]), cells)]
    (whole,) = parts
    assert_frame_equal(
        tallies.summary_of(whole), statistics.summarise(rows, cells), check_exact=True
    )
    assert_frame_equal(
        tallies.comparisons_of(whole), statistics.compare(rows, cells), check_exact=True
    )
    (got,) = whole.claims.values()
    (expected,) = statistics.count_claims(rows, cells, list(claims.values()))
    assert (got.n, got.n_holds, got.links.tolist()) == (
        expected.n,
        expected.n_holds,
        expected.links.tolist(),
    )
    if factor == 2**33:
        assert max(abs(number) for number in got.links.ravel().tolist()) > 2**64


def test_a_claim_is_known_by_all_but_its_words(simulated: Any) -> None:
    claim = Claim("text", "here", ("calls",), "between", (3, 4), ("a", "b"), (1.0, 2.5), 1.0, 0.1)
    got = claim_of(claim_key(claim))
    expected = Claim("", "", ("calls",), "between", (3, 4), ("", ""), (1.0, 2.5), 1.0, 0.1)
    assert got == expected


# --- the folder -----------------------------------------------------------------------------------


def test_polars_and_duckdb_read_the_means_off_the_histograms(out: Path, rows: Path) -> None:
    expected = (
        mc.load(rows)
        .replications.group_by("cell")
        .agg(pl.col("dropped").sum() / pl.len(), pl.col("drain").count())
        .sort("cell")
        .rows()
    )
    query = f"""
        SELECT cell, sum(value * count) FILTER (metric = 'dropped')
                   / sum(count) FILTER (metric = 'dropped'),
               coalesce(sum(count) FILTER (metric = 'drain' AND value IS NOT NULL), 0)
        FROM '{out}/histograms/*.parquet' GROUP BY cell ORDER BY cell
    """
    got = duckdb.execute(query).fetchall()
    assert got == expected
    counted = pl.scan_parquet(out / "histograms/*.parquet").filter(metric="dropped")
    mean = (pl.col("value") * pl.col("count")).sum() / pl.col("count").sum()
    got = counted.group_by("cell").agg(mean).sort("cell").collect().rows()
    assert got == [(cell, dropped) for cell, dropped, _ in expected]


def test_every_histogram_is_that_of_the_rows(out: Path, rows: Path) -> None:
    results = mc.load(out)
    for metric in ("calls", "drain"):
        got = results.histograms.filter(metric=metric).select("cell", "value", "count")
        counted = mc.load(rows).replications.group_by("cell", value=metric).len("count")
        expected = counted.with_columns(pl.col("count").cast(pl.Int64)).sort("cell", "value")
        assert_frame_equal(got.sort("cell", "value"), expected)
    always = {name for name, metric in METRICS.items() if metric.exists is None}
    assert set(results.histograms["metric"]) == always | {"denied"}
    with pytest.raises(FolderError, match="keeps histograms, not rows"):
        _ = results.replications
    with pytest.raises(FolderError, match="keeps rows, not histograms"):
        _ = mc.load(rows).histograms


def test_the_folder_says_what_it_holds_and_how_far_it_is(out: Path) -> None:
    status = mc.status(out)
    assert (status.complete, status.n_done, status.n_rows) == (True, N_ROWS, N_ROWS)
    manifest = mc.load(out).manifest
    assert set(manifest["columns"]["histograms"]) == set(pl.read_parquet(shards(out)[0]).columns)
    assert not (out / "replications").exists()
    expected = snapshot(out)
    assert run(HISTOGRAMS, out)[-1] == f"{out} is finished: nothing to do (--force starts afresh)"
    assert snapshot(out) == expected


def test_force_makes_rows_of_histograms_and_leaves_nothing_of_them(out: Path, rows: Path) -> None:
    run(ROWS, out, force=True)
    assert_same_tables(out, rows)
    assert not (out / "histograms").exists()


# --- what cannot be made of them ------------------------------------------------------------------

OTHER_CLAIM: Final = HISTOGRAMS.replace('relation = "<"', 'relation = ">"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROWS, "keep was histograms, is rows"),
        (OTHER_CLAIM, 'claim "three tries make more calls" was not counted'),
        (
            HISTOGRAMS.replace("[fixed]", 'baseline = "three"\n[fixed]'),
            'policy "none" was compared with policy "none", is now with policy "three"',
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "merge"])
def test_what_was_not_counted_is_refused_and_nothing_is_changed(
    out: Path, command: str, text: str, message: str
) -> None:
    expected = snapshot(out)
    file = write(out.parent, text, "other.toml")
    done = CliRunner().invoke(app, [command, str(file), "--out", str(out)], catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "--force" in done.stderr
    assert snapshot(out) == expected


def test_a_claim_may_be_reworded_or_removed(out: Path) -> None:
    before = mc.load(out).claims
    run(HISTOGRAMS.replace("three tries make more calls", "as is to be expected"), out)
    got = mc.load(out).claims
    assert got["text"][0] == "as is to be expected"
    assert_frame_equal(got.drop("text"), before.drop("text"))
    first, last = HISTOGRAMS.index("[[claim]]"), HISTOGRAMS.rindex("[[claim]]")
    run(HISTOGRAMS[:first] + HISTOGRAMS[last:], out)
    assert set(mc.load(out).claims["text"]) == {"some are dropped"}
    assert mc.verify(out, all_rows=True).ok


def test_chunks_of_a_hundred_thousand_cells_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell was added up anew for every cell after it: 16,000 cells took 4 s."""
    n = 100_000
    numbers = pl.Series(range(n), dtype=pl.Int32)
    cells = pl.DataFrame({"cell": numbers, "baseline": numbers})
    storage = Histograms(Draws("philox", 1), {}, cells, {}, ())
    shard = store.Shard(Path(), 1, 1, tuple(range(n)), ("",) * n, 0, 10, "", 4 * n)
    started = time.process_time()
    chunks = list(storage.chunks([shard, shard]))
    assert time.process_time() - started < 5
    assert list(itertools.chain(*chunks)) == list(range(n))
    assert max(map(len, chunks)) == CELLS_AT_ONCE
    monkeypatch.setattr(histograms, "CELLS_AT_ONCE", n)
    monkeypatch.setattr(histograms, "LINES_AT_ONCE", 8 * 30_000)
    got = [len(chunk) for chunk in storage.chunks([shard, shard])]
    assert got == [30_000, 30_000, 30_000, 10_000]


# --- what it will cost ----------------------------------------------------------------------------


@pytest.mark.parametrize("replications", [24, 2000])
def test_a_plan_counts_files_and_rows_and_estimates_their_size(
    tmp_path: Path, replications: int
) -> None:
    """No seed fails: the sample has fixed places."""
    file, out = write(tmp_path, HISTOGRAMS), tmp_path / "out"
    plan = mc.plan(file, out, replications=replications)
    assert not out.exists()
    mc.run(file, out, replications=replications)
    assert (plan.n_rows, plan.n_shards) == (N_CELLS * replications, len(shards(out)))
    got = plan.n_bytes
    expected = sum(path.stat().st_size for path in out.rglob("*.parquet"))
    assert expected / 2 <= got <= 2 * expected
    assert mc.plan(file, out, replications=replications).finished


# --- verification ---------------------------------------------------------------------------------


def test_an_untouched_folder_is_found_right(out: Path) -> None:
    expected = snapshot(out)
    found = mc.verify(out, all_rows=True)
    assert (found.ok, found.n_rows, found.n_checked) == (True, N_ROWS, N_ROWS)
    assert mc.verify(out, seconds=1000, seed=3).n_checked == N_ROWS
    assert snapshot(out) == expected


def test_without_time_nothing_is_counted_and_the_message_says_so(out: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(out), "--seconds", "0"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "0 of 288 counted once more" in done.stdout
    assert "no shard was done in the time" in done.stdout


def rewritten(
    path: Path,
    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda table: table,
    change_sums: Callable[[dict[str, Any]], object] = lambda sums: None,
) -> Path:
    """Change a shard as someone would who also makes its hash and the manifest right."""
    footer = json.loads(pq.read_metadata(path).metadata[b"retrystorm"])
    sums = store.read_sums(path)
    change_sums(sums)
    table = change(pl.read_parquet(path))
    content = store.shard_bytes(table, footer | {"n_lines": table.height}, sums)
    stem = path.stem.rpartition("-")[0]
    new = path.with_name(f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.parquet")
    path.unlink()
    new.write_bytes(content)
    manifest = mc.load(path.parents[1]).manifest
    del manifest["shards"][path.name]
    manifest["shards"][new.name] = len(content)
    store.write_manifest(path.parents[1], manifest)
    return new


def test_a_count_that_was_changed_is_named_and_contradicts_the_sums(out: Path) -> None:
    here = (pl.col("cell") == 7) & (pl.col("metric") == "calls")
    line = pl.read_parquet(shards(out)[0]).filter(here).row(0, named=True)
    changed = (here & (pl.col("value") == line["value"])).cast(pl.Int64)
    new = rewritten(
        shards(out)[0], lambda table: table.with_columns(count=pl.col("count") + changed)
    )
    found = mc.verify(out, all_rows=True)
    what, count = f"count of {line['value']}", line["count"]
    got = found.differences.rows()
    expected = [(str(new), 7, "calls", what, str(count + 1), str(count))]
    assert got == expected
    n = footer_n(new)
    assert found.faults[0] == f"{new}: cell 7, calls: the counts add up to {n + 1}, not to {n}"
    done = CliRunner().invoke(app, ["verify", str(out), "--all"], catch_exceptions=False)
    assert done.exit_code == 1
    assert f"cell 7, calls: {what} is {count + 1}, made once more {count}" in done.stdout
    assert "288 of 288 counted once more: 1 numbers differ" in done.stdout


def footer_n(path: Path) -> int:
    shard = store.read_shard(path)
    return shard.stop - shard.start


def one_count_moved(table: pl.DataFrame) -> pl.DataFrame:
    """A value of another replication, as many replications as before."""
    first = table.with_row_index().filter(metric="requests")["index"][0]
    moved = pl.int_range(pl.len()) == first
    return table.with_columns(value=pl.col("value") + 1000 * moved.cast(pl.Int64)).sort(
        "cell", maintain_order=True
    )


def one_more(part: str, metric: str, column: int) -> Callable[[dict[str, Any]], None]:
    def change(sums: dict[str, Any]) -> None:
        sums[part][metric][4][column] += 1

    return change


def one_claim_more(sums: dict[str, Any]) -> None:
    for counts in sums["claims"].values():
        counts[1] = counts[0] + 1


def no_sums(sums: dict[str, Any]) -> None:
    del sums["pairs"]["calls"]


@pytest.mark.parametrize(
    ("change", "change_sums", "fault"),
    [
        (one_count_moved, no_sums, "not what histograms look like"),
        (one_count_moved, len, "its histogram and its sums with traffic are not of the same"),
        (None, one_more("traffic", "calls", 4), "sums with traffic are not of the same values"),
        (None, one_more("pairs", "calls", 7), "more replications in the comparison than there are"),
        (None, one_more("ratio", "multiplier", 0), "denominators are of another number"),
        (None, one_claim_more, "holds in"),
        (lambda table: pl.concat([table, table[:1]]), len, "a value stands twice"),
    ],
)
def test_a_shard_that_contradicts_itself_is_found_without_counting(
    out: Path, change: Any, change_sums: Any, fault: str
) -> None:
    new = rewritten(shards(out)[0], change or (lambda table: table), change_sums)
    found = mc.verify(out, seconds=0)
    assert (found.ok, found.n_checked) == (False, 0)
    assert found.faults[0].startswith(f"{new}: ")
    assert fault in found.faults[0]


def test_sums_that_nothing_else_knows_are_found_by_counting(out: Path) -> None:
    rewritten(shards(out)[0], change_sums=one_more("pairs", "drain", 10))
    assert mc.verify(out, seconds=0).ok
    found = mc.verify(out, all_rows=True)
    got = found.differences.select("cell", "metric", "what").rows()
    expected = [(4, "drain", "pairs cubes")]
    assert got == expected


def test_another_kernel_would_be_found(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = kernel.simulate_philox

    def other(*arguments: Any) -> Any:
        done = true(*arguments)
        arguments[3][..., 0] += 1
        return done

    monkeypatch.setattr(kernel, "simulate_philox", other)
    found = mc.verify(out, all_rows=True)
    assert not found.ok
    assert {"requests", "multiplier"} <= set(found.differences["metric"])
    assert "window_calls" not in set(
        found.differences.filter(pl.col("what").str.starts_with("count"))["metric"]
    )
