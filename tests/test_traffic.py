"""Traffic: rows against the oracle, arrivals against whole numbers, files, and what is made of it.

Random cells come from fixed seeds; every comparison of rows is an equality of integers, so a fresh
seed would never fail by luck. Tests of distributions say how often one would.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import jsonschema
import numpy as np
import polars as pl
import pytest
from oracle_draws import arrivals_word, poisson_table
from oracle_world import Open, World, open_traffic
from polars.testing import assert_frame_equal
from scipy import stats
from worlds import cell_of, differences, random_worlds

import mc
from mc import experiment, kernel
from mc.experiment import ExperimentError
from mc.kernel.choice import choose
from mc.model import Cell, chain_kind, tables
from mc.runner.shorter import with_shorter_rounds
from mc.runner.simulation import plan_blocks, simulate_block


def make(**parameters: Any) -> Cell:
    """Give a cell of values as a file has them."""
    return Cell(**parameters)


def arrivals_of(cell: Cell, replications: list[int], seed: int = 1) -> list[list[int]]:
    """Give the requests of each round."""
    rounds = mc.trace(cell, replications=replications, seed=seed)
    return [part["primary"].to_list() for part in rounds.partition_by("replication")]


# The oracle ---------------------------------------------------------------------------------------


def in_few_loops(worlds: list[World]) -> list[World]:
    """Leave out kinds of budgets, each of which is a loop of its own."""
    return [world for world in worlds if world.budget is None or isinstance(world.budget, float)]


@pytest.mark.parametrize("seed", range(2))
def test_random_traffic_is_the_oracles_rows(seed: int) -> None:
    worlds = in_few_loops(random_worlds(seed, 120, "traffic"))
    assert differences(worlds, [0, 2**32 - 1 - seed], seed=seed << 40) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_much_random_traffic_is_the_oracles_rows(seed: int) -> None:
    assert differences(random_worlds(seed, 300, "traffic"), [0, seed], seed=seed << 40) == []


TRAFFIC: Final[dict[str, dict[str, Any]]] = {
    "ramp": {"rates": [[0, "50/s"], ["20 s", "200/s"], ["20 s", "10/s"]]},
    "counts": {"counts": [97, 12, 300, 0] * 10, "per": "1 s"},
    "means": {"counts": [97.5, 12, 300, 0] * 10, "per": "1 s", "noise": "poisson"},
    "burst": {"bursts": [{"at": "5.1 s", "count": 200}, {"at": "30 s", "count": 40}]},
}


@pytest.mark.parametrize("traffic", TRAFFIC.values(), ids=TRAFFIC)
def test_the_loops_by_tables_and_the_general_loop_have_the_same_rows(
    traffic: dict[str, Any],
) -> None:
    shared: dict[str, Any] = {"traffic": traffic, "fault_rounds": 100, "capacity": 3}
    ways: list[dict[str, Any]] = [
        {"tries": (5,)}, {"tries": (3, 3), "chain": "flattened", "budget": 0.2}, {"tries": (1,)},
        {"tries": (3, 3)}, {"tries": (4,), "failure_rate": 0.1}, {"tries": (4,), "deadline": 9},
        {"tries": (4,), "deadline": 9, "budget": 0.3}, {"tries": (4,), "jitter": "none"},
    ]  # fmt: skip
    cells = [make(**(shared | way)) for way in ways]
    (block,) = plan_blocks(dict(enumerate(cells)), "philox")
    chosen = choose(block.tables, list(range(len(cells))))
    assert chosen.groups
    assert chosen.single or chosen.fast
    indices = np.arange(40)
    record = np.empty((40, len(cells), kernel.N_RECORDED, cells[0].rounds), np.int32)
    got, expected = simulate_block(block, indices, 3), simulate_block(block, indices, 3, record)
    np.testing.assert_array_equal(got, expected)


# Arrivals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points",
    [
        ((0, 0.01), (3000, 6.0)),  # thresholds of 256 rates, and a search between them
        ((0, 0.0), (9, 2.0), (9, 0.5), (40, 0.5), (41, 31.0)),  # of each rate
        ((0, 20.0), (2000, 60.0)),
        pytest.param(((0, 3000.0), (400, 6000.0)), marks=pytest.mark.slow),
        ((0, 99_000.5), (3, 100_000.0)),
    ],
)
def test_arrivals_of_a_ramp_are_exact(points: tuple[tuple[int, float], ...]) -> None:
    rounds = points[-1][0] + 3
    cell = make(rounds=rounds, traffic={"rates": points}, capacity=0)
    assert cell.arrivals is not None
    (got,) = arrivals_of(cell, [7], seed=2**63)
    means = cell.arrivals.means.tolist()
    words = [arrivals_word(2**63, 7, t) for t in range(rounds)]
    expected = [bisect_right(poisson_table(m), u) for m, u in zip(means, words, strict=True)]
    assert got == expected


def test_the_means_of_a_ramp_are_the_nearest_doubles() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        times = np.sort(rng.integers(0, 300, 4)).tolist()
        points = tuple(zip(times, rng.choice([0.0, 0.1, 0.3333, 97.22, 2e-7], 4), strict=True))
        points = tuple((t, float(rate)) for t, rate in points)
        cell = make(rounds=250, traffic={"rates": points})
        world = replace(World(rounds=250), traffic=world_traffic(rates=points))
        assert cell.arrivals is not None
        got = [Open(*line) for line in zip(*(x.tolist() for x in cell.arrivals), strict=True)]
        assert got == open_traffic(world)


def world_traffic(**entries: Any) -> Any:
    from oracle_world import Traffic

    return Traffic(**entries)


@pytest.mark.parametrize("rate", [5000.3, 41.7, 33.0])
def test_where_doubles_cannot_decide_whole_numbers_do(rate: float) -> None:
    # a rate whose threshold meets the uniform of round 1: the neighbours of it have other arrivals
    uniform, k = arrivals_word(1, 0, 1), bisect_right(poisson_table(rate), arrivals_word(1, 0, 1))
    low, high = rate * 0.8, rate * 1.25
    while np.nextafter(low, high) < high:
        middle = (low + high) / 2
        low, high = (low, middle) if poisson_count(middle, uniform) > k else (middle, high)
    found = []
    for near in (low, high):
        points = ((0, near), (2, near), (2, 99.0))
        cell = make(rounds=3, traffic={"rates": points})
        assert (0, 1, uniform) in kernel.undecided_arrivals(
            tables([cell], "philox"), np.arange(1), 1
        )
        found.append(arrivals_of(cell, [0])[0][1])
    assert found == [k, k + 1]


def poisson_count(rate: float, uniform: int) -> int:
    return bisect_right(poisson_table(rate), uniform)


def test_more_arrive_at_a_higher_rate_and_never_fewer() -> None:
    rates = [[[0, x], [100, 3 * x]] for x in (0.3, 0.30001, 0.5, 2.0, 30.0, 31.0, 500.0)]
    cells = [make(rounds=100, traffic={"rates": points}) for points in rates]
    got = np.array([arrivals_of(cell, [3])[0] for cell in cells])
    assert (np.diff(got, axis=0) >= 0).all()


@pytest.mark.parametrize(
    "traffic",
    [
        {"arrivals_per_second": 500_000},
        {"traffic": {"rates": [[0, 5000], [1, 5000], [1, 4000], [2, 4000]]}},
        {"traffic": {"counts": [5000, 4000], "per": 1, "noise": "poisson"}},
        {"arrivals_per_second": 5},
    ],
)
def test_the_arrivals_of_a_round_are_poisson_numbers(traffic: dict[str, Any]) -> None:
    # a fresh seed would fail once in 10,000
    cell = make(rounds=2, fault_start=1, fault_rounds=1, capacity=10**6, **traffic)
    rows = mc.simulate([cell], 20_000, seed=11)
    for numbers, (start, stop) in (
        (rows["requests"] - rows["window_requests"], (0, 1)),
        (rows["window_requests"], (1, 2)),
    ):
        mean = cell.requests_in(start, stop)
        edges = np.unique(stats.poisson.ppf(np.arange(1, 40) / 40, mean))
        expected = np.diff(stats.poisson.cdf(edges, mean), prepend=0, append=1) * len(numbers)
        got = np.bincount(np.searchsorted(edges, numbers.to_numpy()), minlength=len(expected))
        assert stats.chisquare(got, expected).pvalue > 1e-4


# One traffic in several forms -----------------------------------------------------------------


def rows_of(*cells: Cell, replications: Any = 30, seed: int = 7) -> list[pl.DataFrame]:
    rows = mc.simulate(cells, replications=replications, seed=seed, jobs=1)
    return [rows.filter(pl.col("cell") == i).drop("cell") for i in range(len(cells))]


def test_a_constant_rate_is_the_plain_traffic() -> None:
    plain = make(fault_rounds=100, tries=(3, 3))
    flat = make(fault_rounds=100, tries=(3, 3), traffic={"rates": [[0, "97.22/s"]]})
    got, expected = rows_of(flat, plain)
    assert_frame_equal(got, expected)


@pytest.mark.parametrize("way", [{}, {"budget": 0.2}, {"failure_rate": 0.05, "deadline": 30}])
def test_the_counts_of_a_replication_give_its_row_again(way: dict[str, Any]) -> None:
    ramp: Any = {"rates": [[0, "50/s"], ["20 s", "150/s"]]}
    cell = make(rounds=3000, fault_rounds=200, tries=(3, 3), traffic=ramp, **way)
    (counts,) = arrivals_of(cell, [5], seed=7)
    replay: Any = {"counts": counts, "per": 1}
    again = replace(cell, traffic=replay)
    got, expected = rows_of(again, cell, replications=[5])
    assert_frame_equal(got, expected)


def test_counts_are_spread_evenly_over_their_step() -> None:
    cell = make(rounds=10, traffic={"counts": [7, 0, 2], "per": 4})
    assert arrivals_of(cell, [0]) == [[1, 2, 2, 2, 0, 0, 0, 0, 0, 1]]


def test_a_burst_comes_beside_the_others() -> None:
    plain = make(rounds=50)
    both = make(rounds=50, traffic={"bursts": [[3, 2], {"at": 9, "count": 5}, [3, 1], [50, 8]]})
    alone = replace(both, arrivals_per_second=0.0)
    ((usual,), (got,), (only,)) = (arrivals_of(cell, [4]) for cell in (plain, both, alone))
    expected = Counter({3: 3, 9: 5})
    assert [b - a for a, b in zip(usual, got, strict=True)] == only
    assert {t: n for t, n in enumerate(only) if n} == expected
    assert both.arrivals_per_second == 97.22


def test_equal_traffic_is_one_cell_however_it_is_written() -> None:
    ways: list[dict[str, Any]] = [
        {"bursts": [[30, 2], [5, 1], [30, 1]]},
        {"bursts": [{"at": "50 ms", "count": 1}, {"at": "0.3 s", "count": 3}]},
    ]
    assert len({make(traffic=way) for way in ways}) == 1
    assert len({make(traffic=way).identity for way in ways}) == 1
    counts = [{"counts": [1, 2], "per": 2000}, {"counts": (1.0, 2.0), "per": "20 s"}]
    assert len({make(traffic=way).identity for way in counts}) == 1
    other = make(traffic={"counts": [1, 3], "per": 2000})
    assert other.identity != make(traffic=counts[0]).identity


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"traffic": {}}, "traffic must have one or more of rates, counts"),
        ({"traffic": {"kind": "grpc"}}, "traffic: traffic has no 'kind'; it has rates"),
        ({"traffic": {"rate": 3}}, "traffic: traffic has no 'rate'; it has rates"),
        ({"traffic": {"rates": []}}, "traffic.rates must be none or a list of one or more"),
        ({"traffic": {"rates": [[0]]}}, "traffic.rates, row 1 must be [at, rate], got [0]"),
        (
            {"traffic": {"rates": [[0, 1], [5, -1]]}},
            "traffic.rates, row 2: rate must be a number >= 0 and <= 2147483647, got -1",
        ),
        (
            {"traffic": {"rates": [[5, 1], [4, 1]]}},
            "traffic.rates, row 2 must not be earlier than the row before it",
        ),
        (
            {"traffic": {"rates": [["15 ms", 1]]}},
            "traffic.rates, row 1: at must be a whole number of rounds of 10 ms, got '15 ms'; "
            "10 ms (1 round) or 20 ms (2 rounds) would be",
        ),
        (
            {"traffic": {"rates": [[0, 1]], "counts": [1], "per": 4000}},
            "traffic must have rates or counts, got both",
        ),
        (
            {"traffic": {"rates": [[0, 1]]}, "arrivals_per_second": 5},
            "arrivals_per_second must be 0 beside traffic.rates, got 5",
        ),
        (
            {"traffic": {"bursts": [{"at": 4, "count": 1.5}]}},
            "traffic.bursts, row 1: count must be a whole number >= 0",
        ),
        ({"traffic": {"counts": [1, 2]}}, "traffic.per is missing: it must be the length"),
        (
            {"traffic": {"counts": [1, -2], "per": 2000}},
            "traffic.counts, step 2 must be a number >= 0",
        ),
        (
            {"traffic": {"counts": [1, 2.5], "per": 2000}},
            'traffic.counts, step 2 must be a whole number, or a mean with noise = "poisson", '
            "got 2.5",
        ),
        (
            {"traffic": {"counts": [1, 2], "per": "10 s"}},
            "traffic.counts must cover the run of 40 s (4000 rounds), they end after 20 s "
            "(2000 rounds): lower rounds",
        ),
        (
            {"traffic": {"rates": [[0, 3000]]}},
            "rounds * arrivals per round must be <= 10000000 requests, got 12000000",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_place(
    parameters: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=r"^Cell: ") as caught:
        make(**parameters)
    assert str(caught.value).startswith(f"Cell: {expected}")


def test_the_lessons_generator_draws_the_lessons_traffic_alone() -> None:
    for cell in (
        make(traffic={"bursts": [[1, 1]]}),
        make(arrivals_per_second=70_001),
    ):
        with pytest.raises(ValueError, match='for generator "lesson"'):
            mc.simulate([cell], 1, generator="lesson")


# Experiments ------------------------------------------------------------------------------------

RAMP: Final = """
title = "t"
replications = 300
[fixed]
round = "10 ms"
rounds = "10 s"
traffic = {rates = [[0, "50/s"], ["5 s", "50/s"], ["5 s", "200/s"]]}
fault_start = "6 s"
fault_rounds = "2 s"
fault_capacity = 1
"""


def load(tmp_path: Path, text: str) -> experiment.Experiment:
    (tmp_path / "traffic.toml").write_text(text, encoding="utf-8")
    return experiment.read(tmp_path / "traffic.toml")


def test_a_file_says_traffic_in_units(tmp_path: Path) -> None:
    (point,) = load(tmp_path, RAMP).points
    assert point.parameters.traffic is not None
    assert point.parameters.traffic.rates == ((0, 0.5), (500, 0.5), (500, 2.0))
    assert point.parameters.arrivals_per_second == 0
    assert point.parameters.mean_requests == 250 + 1000
    is_valid = jsonschema.Draft7Validator(experiment.json_schema()).is_valid
    for traffic in ({"rates": [[0, "50/s"]]}, {"bursts": [{"at": "1 s", "count": 4}]}):
        assert is_valid({"title": "t", "fixed": {"traffic": traffic}})
    assert not is_valid({"title": "t", "fixed": {"traffic": {"rates": [[0]]}}})


def test_a_grid_varies_an_entry_of_the_traffic(tmp_path: Path) -> None:
    bursts = 'traffic.bursts = [[{at = "5 s", count = 10}], [{at = "5 s", count = 1000}]]'
    got = load(tmp_path, f"{RAMP}[grid]\n{bursts}").points
    assert [point.parameters.traffic.bursts for point in got if point.parameters.traffic] == [
        ((500, 10),),
        ((500, 1000),),
    ]
    assert all((point.parameters.mean_requests or 0) > 1250 for point in got)
    with pytest.raises(ExperimentError, match="one or more entries must be lists of values"):
        load(tmp_path, f"{RAMP}[grid]\ntraffic.bursts = [[3, 10]]")


def test_cells_come_back_from_their_table(tmp_path: Path) -> None:
    read = load(tmp_path, RAMP)
    table = experiment.cell_table(read)
    assert experiment.cells_of(table) == {0: read.points[0].parameters}
    assert table.select("mean_requests", "mean_window_requests").row(0) == (1250, 400)


def test_times_usual_divides_by_what_arrives_in_the_window(tmp_path: Path) -> None:
    load(tmp_path, RAMP)
    results = mc.run(tmp_path / "traffic.toml", out=tmp_path / "results", jobs=1)
    means = dict(results.summary.select("metric", "mean").iter_rows())
    # nothing is retried: what is called in the window is what arrives there
    assert means["times_usual"] == pytest.approx(means["window_calls"] / 400)
    assert means["window_rate"] == pytest.approx(means["window_calls"] / 200)
    adjusted = results.summary.filter(metric="successful")["adjusted_mean"].item()
    assert adjusted is None or abs(adjusted - means["successful"]) < 20


def test_half_rounds_are_the_same_traffic() -> None:
    for traffic in TRAFFIC.values():
        cell = make(traffic=traffic)
        half = with_shorter_rounds(cell, times=2)
        assert half.rounds == 2 * cell.rounds
        assert half.mean_requests == pytest.approx(cell.mean_requests)
        for start, stop in ((0, 100), (1990, 2010), (3000, 4000)):
            expected = cell.requests_in(start, stop)
            assert half.requests_in(2 * start, 2 * stop) == pytest.approx(expected)


def test_cells_with_other_traffic_stand_in_other_blocks() -> None:
    cells = [make(), *(make(traffic=traffic) for traffic in TRAFFIC.values()), make(tries=(3,))]
    blocks = plan_blocks(dict(enumerate(cells)), "philox")
    assert [block.ids for block in blocks] == [(0, 5), (1,), (2,), (3,), (4,)]
    assert {kernel.loop_of(chain_kind(cell)) for cell in cells} == {None}
    assert cell_of(World()) == make()


# Files ------------------------------------------------------------------------------------------


def of_file(tmp_path: Path, entries: str, fixed: str = 'rounds = "4 s"') -> Cell:
    """Read an experiment whose traffic is a file beside it."""
    text = f'title = "t"\n[fixed]\n{fixed}\ntraffic = {{{entries}}}\n'
    (point,) = load(tmp_path, text).points
    return point.parameters


def fault_of(tmp_path: Path, entries: str, fixed: str = 'rounds = "4 s"') -> str:
    """Give the one fault of such an experiment, without the place."""
    with pytest.raises(ExperimentError) as caught:
        of_file(tmp_path, entries, fixed)
    (fault,) = caught.value.faults
    return fault.split(": ", 2)[2]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_is_its_counts(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame({"second": [0, 1, 2, 3], "requests": [120, 0, 7, 30]})
    getattr(frame, f"write_{kind}")(tmp_path / f"trace.{kind}")
    cell = of_file(tmp_path, f'file = "trace.{kind}", column = "requests", per = "1 s"')
    assert cell == make(rounds=400, traffic={"counts": [120, 0, 7, 30], "per": 100})
    assert cell.identity == make(rounds=400, traffic=cell.traffic).identity
    (got,) = arrivals_of(cell, [0])
    assert [sum(got[t : t + 100]) for t in range(0, 400, 100)] == [120, 0, 7, 30]


def test_means_may_be_fractions(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("requests\n120.5\n1e2\n0.25\n7\n")
    cell = of_file(tmp_path, 'file = "trace.csv", per = "1 s", noise = "poisson"')
    assert cell.mean_requests == pytest.approx(227.75)
    fault = fault_of(tmp_path, 'file = "trace.csv", per = "1 s"')
    expected = 'line 2: requests must be a whole number >= 0 (or a mean, with noise = "poisson")'
    assert fault == f'traffic.file "trace.csv" {expected}, got 120.5'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("n\n1\n-2\n3\n4\n", "line 3: n must be a whole number >= 0, got -2"),
        ("n\n1\n2\nNaN\n4\n", "line 4: n must be a number >= 0, got 'NaN'"),
        ("n\n1\n2\ninf\n4\n", "line 4: n must be a number >= 0, got 'inf'"),
        ("n,m\n1,1\n,1\n3,1\n4,1\n", "line 3: n must be a number >= 0, got nothing"),
        ('n\n1\n"1,000"\n3\n4\n', "line 3: n must be a number >= 0, got '1,000'"),
        ("n\n1\ntwo\n3\n4\n", "line 3: n must be a number >= 0, got 'two'"),
        ("m,o\n1,1\n", 'has no column "n"; there are "m", "o"'),
        ("n;m\n1;1\n", 'has no column "n"; there are "n;m"'),
        ("n\n", "has no rows"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("n\n1,2,3\n", "is no CSV file: "),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "trace.csv").write_text(content)
    fault = fault_of(tmp_path, 'file = "trace.csv", column = "n", per = "1 s"')
    assert fault.startswith(f'traffic.file "trace.csv" {expected}')


def test_a_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    fault = fault_of(tmp_path, 'file = "none.csv", per = "1 s"')
    assert fault == (
        'traffic.file "none.csv" cannot be read: No such file or directory '
        f"({tmp_path / 'none.csv'})"
    )
    assert "must end in .csv or .parquet" in fault_of(tmp_path, 'file = "a.xlsx", per = "1 s"')
    (tmp_path / "a.parquet").write_text("n\n1\n")
    assert "is no Parquet file: " in fault_of(tmp_path, 'file = "a.parquet", per = "1 s"')
    pl.DataFrame({"n": ["1", "2"]}).write_parquet(tmp_path / "a.parquet")
    got = fault_of(tmp_path, 'file = "a.parquet", per = "1 s"')
    assert got.endswith('column "n" must be of numbers, it is String')
    pl.DataFrame({"n": [1, None]}).write_parquet(tmp_path / "a.parquet")
    got = fault_of(tmp_path, 'file = "a.parquet", per = "1 s"')
    assert got.endswith("row 2: n must be a number >= 0, got nothing")


def test_a_file_that_is_shorter_than_the_run_is_refused_and_a_longer_one_is_cut(
    tmp_path: Path,
) -> None:
    (tmp_path / "trace.csv").write_text("n\n1\n2\n3\n4\n")
    entries = 'file = "trace.csv", per = "1 s"'
    fault = fault_of(tmp_path, entries, 'rounds = "5 s"')
    assert fault.endswith(
        "counts must cover the run of 5 s (500 rounds), they end after 4 s (400 rounds): "
        "lower rounds"
    )
    text = f'title = "t"\n[fixed]\nrounds = "3 s"\ntraffic = {{{entries}}}\n'
    (remark,) = load(tmp_path, text).remarks
    assert remark.startswith("the recorded traffic goes on when the run ends")


def test_ten_million_rows_are_too_many_counts(tmp_path: Path) -> None:
    counts = pl.DataFrame({"n": np.zeros(10_000_000, np.uint8)})
    counts.write_parquet(tmp_path / "long.parquet")
    fault = fault_of(tmp_path, 'file = "long.parquet", per = 1')
    assert fault.endswith("has 10000000 rows, a run has <= 4000000 rounds: add steps up")
    counts.write_parquet(tmp_path / "long.parquet")
    cell = of_file(tmp_path, 'file = "long.parquet", timestamps = "n"', "rounds = 1")
    assert cell.mean_requests == 10_000_000


def test_steps_that_are_missing_are_a_fault_where_times_are_given(tmp_path: Path) -> None:
    lines = ["at,n", *(f"2026-12-01T00:00:0{s}Z,5" for s in (0, 1, 2, 4, 5))]
    entries = 'file = "trace.csv", column = "n", per = "1 s", times = "at"'
    (tmp_path / "trace.csv").write_text("\n".join(lines))
    fault = fault_of(tmp_path, entries)
    expected = "line 5: at must be 1 s after the row before it, got '2026-12-01T00:00:04Z'"
    assert fault.endswith(expected)
    (tmp_path / "trace.csv").write_text("at,n\n0,5\n1,5\n2,5\n3,5\n")
    assert of_file(tmp_path, entries).mean_requests == 20


ZONES: Final = "at\n2026-03-29T01:59:59.5+01:00\n2026-03-29T03:00:00+02:00\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("at\n7.0\n7.3\n7.3\n7.309999\n7.31\n", [0, 30, 30, 30, 31]),
        ("at\n1764547200.0\n1764547200.3\n", [0, 30]),
        ("at\n2026-12-01 23:59:59.99\n2026-12-02 00:00:00.48\n", [0, 49]),
        (ZONES, [0, 50]),  # a clock that is put forward
    ],
)
def test_times_are_put_into_their_rounds(tmp_path: Path, content: str, expected: list[int]) -> None:
    (tmp_path / "trace.csv").write_text(content)
    rounds = f"rounds = {expected[-1] + 1}"
    cell = of_file(tmp_path, 'file = "trace.csv", timestamps = "at"', rounds)
    (got,) = arrivals_of(cell, [0])
    assert got == np.bincount(expected).tolist()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("at\n1\n3\n2\n", "line 4: at must not be earlier than before it, got '2'"),
        ("at\n1\n-\n2\n", "line 3: at must be a time in seconds, or a date with time, got '-'"),
        (f"{ZONES}2026-03-29T03:00:01\n", "line 4: at must have a time zone as before it"),
        ("at\n2026-03-29T03:00:01\n2026-02-30\n", "line 3: at must be a time in seconds, or"),
        ("at\n0\n4e9\n", "goes on for 1 111 111 h, a run has <= 4000000 rounds"),
    ],
)
def test_bad_times_are_refused_with_their_line(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "trace.csv").write_text(content)
    fault = fault_of(tmp_path, 'file = "trace.csv", timestamps = "at"')
    assert fault.startswith(f'traffic.file "trace.csv" {expected}')


def test_times_of_parquet_files_may_have_zones(tmp_path: Path) -> None:
    times = pl.datetime_range(
        pl.datetime(2026, 3, 29), pl.datetime(2026, 3, 29, 0, 0, 3), "500ms", eager=True
    )
    for column in (times, times.dt.replace_time_zone("UTC"), times.dt.cast_time_unit("ns")):
        pl.DataFrame({"at": column}).write_parquet(tmp_path / "trace.parquet")
        cell = of_file(tmp_path, 'file = "trace.parquet", timestamps = "at"', "rounds = 301")
        assert np.flatnonzero(arrivals_of(cell, [0])[0]).tolist() == [*range(0, 301, 50)]


def test_a_file_of_a_replications_arrivals_gives_its_row_again(tmp_path: Path) -> None:
    way: dict[str, Any] = {"rounds": 1000, "fault_rounds": 100, "tries": (3, 3), "budget": 0.3}
    cell = make(**way)
    (counts,) = arrivals_of(cell, [5], seed=7)
    pl.DataFrame({"n": counts}).write_csv(tmp_path / "trace.csv")
    fixed = "rounds = 1000\nfault_rounds = 100\ntries = [3, 3]\nbudget = 0.3"
    again = of_file(tmp_path, 'file = "trace.csv", per = 1', fixed)
    got, expected = rows_of(again, cell, replications=[5])
    assert_frame_equal(got, expected)


def test_a_results_folder_needs_the_file_no_more(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("n\n120\n80\n")
    text = """
title = "t"
replications = 20
[fixed]
rounds = "2 s"
traffic = {file = "trace.csv", per = "1 s"}
[grid]
capacity = [1, 2]
"""
    read = load(tmp_path, text)
    results = mc.run(tmp_path / "traffic.toml", out=tmp_path / "results", jobs=1)
    assert "trace.csv" in str(results.manifest["experiment"]["fixed"])
    (tmp_path / "trace.csv").unlink()
    again = experiment.cells_of(results.cells)
    assert again == {point.cell: point.parameters for point in read.points}
    checked = mc.verify(tmp_path / "results", all_rows=True)
    assert checked.ok, checked.faults
    # the same file goes on; another is another experiment
    (tmp_path / "trace.csv").write_text("n\n120\n80\n")
    assert mc.run(tmp_path / "traffic.toml", out=tmp_path / "results", jobs=1).complete
    (tmp_path / "trace.csv").write_text("n\n120\n81\n")
    with pytest.raises(Exception, match="another experiment"):
        mc.run(tmp_path / "traffic.toml", out=tmp_path / "results", jobs=1)


# Closed loops and herds -------------------------------------------------------------------------


def test_a_worker_starts_over_after_it_has_thought() -> None:
    loop = {"workers": 2, "think": "30 ms"}
    assert arrivals_of(make(rounds=12, traffic=loop), [0]) == [[2, 0, 0, 0] * 3]
    # one of two is served; the other retries in round 2 and goes on from there: 2 + 1 + 3
    one = make(rounds=11, traffic=loop, capacity=1, tries=(2,), jitter="none")
    assert arrivals_of(one, [0]) == [[2, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1]]


def test_a_loop_has_no_other_traffic_unless_it_is_given() -> None:
    assert make(traffic={"workers": 3}).arrivals_per_second == 0
    both = make(traffic={"workers": 3}, arrivals_per_second=5)
    assert (both.arrivals_per_second, both.mean_requests) == (5, None)
    assert both.requests_in(0, both.rounds) == 200


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"think": 3}, "traffic.think needs traffic.workers"),
        ({"workers": 10_000_001}, "traffic.workers must be none or a whole number >= 1 and <="),
        (
            {"workers": 1_000_000},
            "traffic.workers * rounds must be <= 2000000000 calls, got 4000000000",
        ),
    ],
)
def test_too_many_workers_are_refused(parameters: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=r"^Cell: ") as caught:
        make(traffic=parameters)
    assert str(caught.value).startswith(f"Cell: {expected}")


def test_the_memory_of_a_loop_does_not_grow_with_the_run() -> None:
    short, long = (
        tables([make(rounds=n, traffic={"workers": 50}, budget=0.1)], "philox")
        for n in (100, 4_000_000)
    )
    assert short.n_requests == long.n_requests
    assert short.limits.size == long.limits.size


def test_256_workers_do_what_a_separate_program_does() -> None:
    # means of 600 seeds and their standard errors; a fresh seed would fail once in 5,000
    cell = make(
        traffic={"workers": 256, "think": 10}, capacity=40, fault_rounds=1000, tries=(3,),
        backoff_base=5, backoff_cap=100,
    )  # fmt: skip
    rows = mc.simulate([cell], 1000, seed=3, jobs=2)
    rows = rows.with_columns(window_rate=pl.col("window_calls") / 1000)
    measured = {
        "window_rate": (39.3545, 0.0023), "calls": (109536.2, 2.3), "dropped": (13060.09, 0.79),
    }  # fmt: skip
    for name, (mean, error) in measured.items():
        both = np.hypot(error, rows[name].std() / 1000**0.5)
        assert abs(rows[name].mean() - mean) <= 4 * both, name  # type: ignore[operator]
    assert rows["late"].to_list() == [0] * 1000


def test_a_herd_with_jitter_is_served_in_two_seconds_and_one_without_it_never() -> None:
    shared: dict[str, Any] = {
        "rounds": 3000, "traffic": {"bursts": [[500, 3000]]}, "arrivals_per_second": 0,
        "capacity": 30, "tries": (30,), "backoff_base": 100, "backoff_factor": 1,
        "backoff_cap": 100,
    }  # fmt: skip
    fixed, full = rows_of(make(jitter="none", **shared), make(**shared), replications=1000)
    assert set(fixed.select("calls", "successful").rows()) == {(66000, 750)}
    # the last of 750 that are served comes in round 2900
    assert set(fixed["wait_max"]) == {2900 - 500}
    last = 500 + full["wait_max"]
    assert set(full["successful"]) == {3000}
    for got, (mean, error) in ((full["calls"], (6238.26, 0.96)), (last, (693.86, 0.16))):
        both = np.hypot(error, got.std() / 1000**0.5)
        assert abs(got.mean() - mean) <= 4 * both  # type: ignore[operator]
