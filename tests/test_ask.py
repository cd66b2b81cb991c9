"""`retrystorm ask`: answers are read, an experiment is written and run; what is said is true."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import mc
from mc import experiment
from mc.cli import app
from mc.decisions.alternatives import Change, alternatives, verdict_of, worth
from mc.experiment import question
from mc.experiment.question import AskError, Fault, Question, experiment_text, policies

ASKED = {
    "--rate": "20/s",
    "--capacity": "30/s",
    "--fault": "5 s at 20 %",
    "--layers": "2x2",
    "--deadline": "2 s",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mc.experiment.question._MOST_REPLICATIONS", 30)


def ask(changes: dict[str, str] | None = None, typed: str | None = None) -> tuple[int, str, str]:
    given = ASKED | (changes or {})
    options = [part for option in given.items() if option[1] for part in option]
    result = CliRunner().invoke(
        app, ["ask", *options, "--no-report"], input=typed, catch_exceptions=False
    )
    return result.exit_code, result.stdout, result.stderr


# Reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45 s", Fault(45, 0, 0)),
        ("45s at 20 %", Fault(45, 80, 0)),
        ("45 s at 20%", Fault(45, 80, 0)),
        ("2 min at 100/s", Fault(120, 100, 0)),
        ("8 s failing 30 %", Fault(8, 400, 0.3)),
        ("30 s from 20 % to 100%", Fault(30, 80, 0, 400)),
        ("30 s from 400/s to 0 %", Fault(30, 400, 0, 0)),
    ],
)
def test_a_fault_is_read_as_people_say_it(text: str, expected: Fault) -> None:
    [got] = question.read_faults(text, 400)
    assert got == expected


def test_several_faults_follow_one_another(tmp_path: Path) -> None:
    faults = question.read_faults("45 s at 20 %, 8 s failing 30%, 4 s from 20 % to 100 %", 400)
    assert faults == (Fault(45, 80, 0), Fault(8, 400, 0.3), Fault(4, 80, 0, 400))
    [cell, *_] = cells_of(replace(SERVICE, faults=faults), tmp_path).values()
    second = cell.rounds_per_second
    got = [
        (fault.start / second, fault.length / second, fault.capacity * second, fault.failure_rate)
        for fault in cell.faults
    ]
    assert got == [
        pytest.approx(expected) for expected in ((10, 45, 80, 0), (55, 8, 400, 0.3), (63, 4, 80, 0))
    ]
    ends = [fault.capacity_end for fault in cell.faults]
    assert ends == [None, None, pytest.approx(400 / second)]


def test_one_fault_may_be_a_ramp(tmp_path: Path) -> None:
    asked = replace(SERVICE, faults=question.read_faults("30 s from 100 % to 20 %", 400))
    [cell, *_] = cells_of(asked, tmp_path).values()
    [fault] = cell.faults
    second = cell.rounds_per_second
    assert fault.capacity == pytest.approx(400 / second)
    assert fault.capacity_end == pytest.approx(80 / second)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20 ms", 8), ("21 ms", 9), ("1 us", 1), ("8", 8), ("12 calls", 12), ("none", 0), ("0", 0)],
)
def test_a_queue_is_a_time_at_the_usual_capacity_or_a_number_of_calls(
    text: str, expected: int
) -> None:
    assert question.read_queue(text, 400) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "45", "0 s", "45 s at", "45 s at 500/s", "45 s at 120 %", "x at 3/s"),
        *("45 s failing 3/s", "45 s, 30", "45 s at 20 % to 50 %"),
        *("9 s from 20 %", "9 s from to 20 %", "9 s from 2/s to 500/s", "9 s failing 1 % to 3 %"),
    ],
)
def test_a_fault_that_is_none_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(AskError, match=r'"45 s at 20 %" \(of the capacity\).*from 20 %'):
        question.read_faults(text, 400)


@pytest.mark.parametrize(
    ("text", "expected"), [("3", (3,)), ("2x3x2", (2, 3, 2)), ("2 x 3", (2, 3)), ("2, 3", (2, 3))]
)
def test_layers_are_read(text: str, expected: tuple[int, ...]) -> None:
    assert question.read_layers(text) == expected


@pytest.mark.parametrize("text", ["", "x", "2x", "0x2", "2xx3", "2y3", "-1", "x".join("2" * 9)])
def test_layers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(AskError, match="must be"):
        question.read_layers(text)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--rate", "250", '--rate: must be a rate above 0 such as "250/s"'),
        ("--rate", "0/s", "--rate: must be a rate above 0"),
        ("--capacity", "lots", "--capacity: must be a rate"),
        ("--deadline", "300", '--deadline: must be a time above 0 such as "300 ms"'),
        ("--layers", "2x3y", "--layers: must be the attempts of each layer"),
        ("--backoff", "soon", "--backoff: must be a time"),
        ("--timeout", "1", "--timeout: must be a time"),
        ("--queue", "long", '--queue: must be a time at the usual capacity such as "20 ms"'),
        ("--queue", "99999999", "a number of calls up to 10,000,000 or none"),
        ("--clients", "0", "--clients: must be a whole number from 1 to 10,000"),
        ("--file", "here", "--file: the name must end in .toml"),
        ("--fault", "600 h", "give a shorter fault"),
        ("--deadline", "0.333333 ms", "are no whole numbers of rounds"),
    ],
)
def test_a_wrong_answer_gets_one_line_and_writes_nothing(
    option: str, value: str, told: str, tmp_path: Path
) -> None:
    code, out, err = ask({option: value})
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_who_times_out_must_be_able_to_wait(tmp_path: Path) -> None:
    code, out, err = ask({"--timeout": "1 s", "--queue": "none"})
    assert (code, out) == (2, "")
    assert err == "--queue: with --timeout some calls must be able to wait\n"


def test_without_a_terminal_every_answer_is_needed() -> None:
    code, out, err = ask({"--deadline": "", "--layers": ""})
    assert (code, out) == (2, "")
    assert err == "--layers, --deadline: are needed where there is no terminal to ask at\n"


def test_at_a_terminal_what_is_missing_is_asked_for_until_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mc.cli.ask._has_terminal", lambda: True)
    code, out, err = ask({"--layers": ""}, typed="two\n2x2\n\n2 calls\n")
    assert code == 0
    assert err.count("Attempts of each layer") == 2
    assert "must be the attempts of each layer" in err
    assert "does a caller give up a call that waits, to retry (1 s, or none) [none]" in err
    assert "as time at its usual capacity (20 ms, or none) [9 calls]" in err
    assert "2 calls can wait there (66.67 ms of its work)" in " ".join(out.split())
    assert "layers 2x2, up to 4 attempts" in " ".join(out.split())


# The experiment -----------------------------------------------------------------------------------

BROWNOUT = (Fault(45, 80, 0),)
SERVICE = Question(250.0, 400.0, BROWNOUT, (2, 3, 2), 0.3, (0.05, 0.5))


def cells_of(asked: Question, folder: Path) -> dict[str, mc.Cell]:
    """By policy what the experiment of a question simulates."""
    file = folder / "question.toml"
    file.write_text(experiment_text(asked, file.name), "utf-8")
    return {point.policy: point.parameters for point in experiment.read(file).points}


def test_the_experiment_says_what_was_asked(tmp_path: Path) -> None:
    cells = cells_of(replace(SERVICE, clients=3), tmp_path)
    assert list(cells) == list(policies(SERVICE))
    for cell in cells.values():
        per_second = cell.rounds_per_second
        assert cell.arrivals_per_second == 250
        assert cell.capacity * per_second == pytest.approx(400)
        assert cell.fault_capacity * per_second == pytest.approx(80)
        assert cell.fault_rounds / per_second == pytest.approx(45)
        assert cell.deadline == pytest.approx(0.3 * per_second)
        assert (cell.queue, cell.clients) == (8, 3)  # 20 ms at 400/s
    first = cells[question.PRESENT]
    assert (first.tries, first.chain, first.budget) == ((2, 3, 2), "nested", None)


def test_with_a_time_out_calls_wait_in_a_queue(tmp_path: Path) -> None:
    asked = Question(280.0, 300.0, (Fault(10, 0, 0),), (2,), None, (1.0, 10.0), timeout=1.0)
    cells = cells_of(asked, tmp_path)
    first = cells[question.PRESENT]
    assert first.timeout == first.rounds_per_second
    assert first.queue == 900  # it holds what nobody waits for any more
    assert not first.cancel
    assert cells["short queue, 150 calls"].queue == 150  # half a second of work
    assert cells["calls given up are cancelled"].cancel
    both = cells["cancelled, budget 10 %"]
    assert both.cancel
    assert both.budget is not None
    assert {cell.threshold for cell in cells.values()} == {first.rounds_per_second}  # a second


def test_a_short_queue_is_served_within_the_time_out_in_the_fault_too(tmp_path: Path) -> None:
    asked = Question(
        1200.0, 5000.0, (Fault(90, 1500, 0),), (3, 3, 3), None, (0.05, 0.5), timeout=0.25
    )
    cells = cells_of(asked, tmp_path)
    both = cells["short queue, innermost layer retries"]
    assert (both.queue, both.tries) == (187, (1, 1, 3))
    assert both.queue / both.fault_capacity < 0.25 * both.rounds_per_second
    assert "short queue, 187 calls" in cells
    assert cells["cancelled, innermost layer retries"].cancel
    for deadline, late in ((0.3, 0.3), (None, 1.0)):
        assert replace(asked, deadline=deadline).late_s == late
    assert replace(asked, timeout=5.0).late_s == 5.0
    assert replace(asked, room=100).short_queue is None


@pytest.mark.parametrize(("load", "room"), [(0.625, 1), (0.8, 2), (0.9, 4)])
def test_the_calm_loses_what_is_computed(load: float, room: int) -> None:
    """Within 5 %: in one round of 20 there is room for one more; the standard error is some 1 %."""
    cell = mc.Cell(rounds=100_000, arrivals_per_second=5 * load, capacity=1 / 20, queue=room)
    rows = mc.simulate([cell], 30, seed=1)
    got = rows.select(pl.col("refused").sum() / pl.col("calls").sum()).item()
    [*_, expected] = islice(question._calm_losses(load), room)
    assert got == pytest.approx(expected, rel=0.05)


def test_by_default_the_calm_loses_less_than_one_in_a_thousand() -> None:
    for rate in (1, 100, 250, 350, 372):
        asked = replace(SERVICE, rate=float(rate))
        losses = list(islice(question._calm_losses(rate / 400), asked.queue))
        assert losses[-1] < question.CALM_LOSS
        assert asked.queue == 8 or losses[-2] > question.CALM_LOSS / 2
    assert replace(SERVICE, rate=500.0).queue == 50


@pytest.mark.parametrize(
    ("rate", "capacity", "deadline", "runs"),
    [(250.0, 400.0, 0.3, 60), (50.0, 60.0, 2.0, 300), (2000.0, 2500.0, None, 8)],
)
def test_the_answer_is_that_of_rounds_twice_as_long(
    rate: float,
    capacity: float,
    deadline: float | None,
    runs: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a point of the requests of the fault; two standard errors of a difference are 0.6."""
    asked = replace(SERVICE, rate=rate, capacity=capacity, deadline=deadline)
    asked = replace(asked, faults=(Fault(4, capacity / 5, 0),))

    def failed(rounds_a_request: int) -> list[float]:
        """As it is, without retries, and that without a queue."""
        monkeypatch.setattr(question, "_ROUNDS_A_REQUEST", rounds_a_request)
        every = cells_of(asked, tmp_path)
        first, once = (every[name] for name in (question.PRESENT, "no retries"))
        second = round(first.rounds_per_second)
        cells = [
            replace(cell, rounds=6 * second, fault_start=second)
            for cell in (first, once, replace(once, queue=0))
        ]
        rows = mc.simulate(cells, runs, seed=1).group_by("cell", maintain_order=True).sum()
        return (rows["window_dropped"] / rows["window_requests"]).to_list()

    short, long = failed(4), failed(2)
    assert short[:2] == pytest.approx(long[:2], abs=0.01)
    assert short[2] - long[2] > 0.03  # so it would be seen


@pytest.mark.parametrize("layers", [(1,), (2,), (3,), (1, 1), (1, 3), (3, 1), (4, 4, 4, 4)])
@pytest.mark.parametrize("deadline", [None, 0.025, 30.0])
def test_every_question_makes_an_experiment_that_is_right(
    layers: tuple[int, ...], deadline: float | None, tmp_path: Path
) -> None:
    asked = Question(250.0, 400.0, (Fault(0.7, 400, 0.3),), layers, deadline, (0.05, 0.5))
    names = list(cells_of(asked, tmp_path))
    assert len(names) >= 3
    assert names[0] == question.PRESENT


def test_the_same_question_again_says_the_same_and_another_needs_another_file() -> None:
    first = ask()
    before = Path("question.toml").read_bytes()
    again = ask()
    assert again[:2] == first[:2]
    assert "nothing to do" in again[2]
    code, out, err = ask({"--rate": "21/s"})
    assert (code, out) == (2, "")
    assert err.startswith("question.toml: is there already, with another question")
    assert Path("question.toml").read_bytes() == before
    code, _, _ = ask({"--rate": "21/s", "--file": "other.toml"})
    assert code == 0
    assert mc.load("results/other").complete


# The answer ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, mc.Results]:
    """The words of the answer to `ASKED`, and the results behind them."""
    folder = tmp_path_factory.mktemp("asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("mc.experiment.question._MOST_REPLICATIONS", 200)
        _, out, _ = ask()
    assert len(out.splitlines()) <= 55
    return " ".join(out.split()), mc.load(folder / "results/question")


def test_what_is_surely_better_is_so_by_a_paired_test(answer: tuple[str, mc.Results]) -> None:
    """By Bonferroni at 95 % for all; checked with scipy on the rows themselves."""
    told, results = answer
    found = alternatives(results)
    assert {one.policy for one in found} == set(results.cells["policy"]) - {question.PRESENT}
    rows = results.replications

    def values(policy: str, load: bool) -> np.ndarray:
        [cell] = results.cells.filter(policy=policy)["cell"].to_list()
        of_cell = rows.filter(pl.col("cell") == cell).sort("replication")
        if load:
            return of_cell["window_calls"].to_numpy() / (20 * 5)
        return of_cell["dropped"].to_numpy().astype(float)

    requests = rows.filter(cell=0)["requests"].mean()
    assert isinstance(requests, float)
    level = 0.05 / (3 * len(found))
    for one in found:
        for change, load in ((one.failures, False), (one.load, True)):
            other, present = values(one.policy, load), values(question.PRESENT, load)
            differences = other - present
            if differences.std() == 0:
                assert not change.is_sure
                continue
            half = stats.t.ppf(1 - level / 2, len(differences) - 1) * stats.sem(differences)
            assert change.difference == pytest.approx(differences.mean(), abs=1e-6)
            least = min(other.mean(), present.mean())
            matters = 0.05 * least if load else 0.001 * requests
            if change.half_width is not None:
                apart = abs(differences.mean())
                assert change.is_sure == (apart > half and apart >= matters)
                assert change.is_alike == (not change.is_sure and apart + half < matters)
        changes = (one.failures, one.load, one.late)
        gains = [c for c in changes if c.is_sure and c.difference < 0]
        costs = [c for c in changes if c.is_sure and c.difference > 0]
        known = all(change.is_sure or change.is_alike for change in changes)
        expected_verdict = (
            ("better" if known and not costs else "trade")
            if gains
            else ("worse" if costs else "alike")
        )
        assert one.verdict == expected_verdict
    for one in found:
        assert one.policy in told


def test_less_load_at_a_price_that_is_not_known_is_not_surely_better() -> None:
    """Of few runs: failures may have grown by 2 in a hundred, or not at all."""
    load = Change("times_usual", 8.0, 2.0, -6.0, 0.1, is_sure=True, is_alike=False)
    unknown = Change("failed_share", 0.30, 0.31, 0.01, 0.02, is_sure=False, is_alike=False)
    alike = Change("failed_share", 0.30, 0.30, 0.0, 0.0005, is_sure=False, is_alike=True)
    got = [verdict_of(changes) for changes in ((alike, load), (unknown, load), (unknown, alike))]
    assert got == ["better", "trade", "alike"]


def test_the_sentence_about_the_present_policy_has_the_numbers_of_the_summary(
    answer: tuple[str, mc.Results],
) -> None:
    told, results = answer
    means = results.summary.filter(cell=0)
    load = means.filter(metric="times_usual")["mean"].item()
    found = re.search(r"the dependency gets ([0-9.]+) \(", told)
    assert found is not None
    assert float(found[1]) == pytest.approx(load, rel=0.05)
    failed, of, share = (
        means.filter(metric=name)["mean"].item()
        for name in ("window_dropped", "window_requests", "window_failed_share")
    )
    found = re.search(r"As it is, ([0-9.]+) % .* of the requests of the fault fail: (.*) of", told)
    assert found is not None
    assert float(found[1]) == pytest.approx(100 * share, rel=0.05)
    assert f"fail: {failed:,.0f} of {of:,.0f}. In the whole run of 75 s" in told
    assert "First of all" not in told


def test_the_advice_follows_its_rule(answer: tuple[str, mc.Results]) -> None:
    told, results = answer
    means = {
        policy: results.summary.filter(cell=cell)
        for policy, cell in results.cells.select("policy", "cell").iter_rows()
    }

    def mean(policy: str, metric: str) -> float:
        return float(means[policy].filter(metric=metric)["mean"].item())

    verdicts = {one.policy: one.verdict for one in alternatives(results)}
    able = [name for name, verdict in verdicts.items() if verdict in ("better", "trade")]
    able = [question.PRESENT, *(name for name in able if name != "no retries")]
    fewest = min(able, key=lambda name: (mean(name, "dropped"), mean(name, "times_usual")))

    def is_worth_it(name: str) -> bool:
        more = mean(name, "dropped") - mean(fewest, "dropped")
        more /= mean(question.PRESENT, "window_requests")
        half = mean(name, "times_usual") <= mean(fewest, "times_usual") / 2
        return more <= (0.05 if half else 0.01)

    expected = min(filter(is_worth_it, able), key=lambda name: mean(name, "times_usual"))
    assert expected != question.PRESENT
    assert f"Best here: {expected}: " in told


def test_half_of_the_load_is_worth_a_few_more_failures_but_a_little_less_is_not() -> None:
    """Of 100 requests of the fault; the first is the present policy."""
    assert worth([(99, 26.7), (33, 17.1), (36.5, 2.7)], 100) == 2  # 3.5 % for a sixth
    assert worth([(99, 26.7), (33, 17.1), (36.5, 9.0)], 100) == 1  # for more than half
    assert worth([(99, 26.7), (33, 17.1), (38.5, 1.1)], 100) == 1  # 5.5 %
    assert worth([(99, 26.7), (33, 17.1), (33.5, 16.0)], 100) == 2  # as good
    assert worth([(33.0, 2.0), (33, 17.1), (33.9, 2.1)], 100) == 0


def test_lateness_is_said_and_is_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled calls are tried until they succeed, which takes longer than a second."""
    monkeypatch.setattr("mc.experiment.question._MOST_REPLICATIONS", 30)
    monkeypatch.setattr("mc.experiment.question._AFTER_S", 12.0)
    options = {"--rate": "24/s", "--capacity": "100/s", "--fault": "6 s at 15 %"}
    options |= {"--layers": "9", "--timeout": "500 ms", "--deadline": "none"}
    _, out, _ = ask(options)
    told = " ".join(out.split())
    assert re.search(r"more late successes[.] ", told)
    assert re.search(
        "cancelled: [0-9]+ fail; load [0-9.]+ x usual, worst second [^;]*; [0-9]+ late", told
    )
    assert "late, %" in told
    assert "x capacity" not in told[told.index("storm, ") :]  # what comes in a round is chance


def test_nothing_is_advised_where_nothing_is_surely_better() -> None:
    _, out, _ = ask({"--fault": "2 s failing 5 %", "--layers": "3"})
    assert "Keep the present policy: nothing here is surely better." in " ".join(out.split())


def test_what_fails_before_the_fault_is_said_first() -> None:
    _, out, _ = ask({"--queue": "1"})
    told = " ".join(out.split())
    found = re.search(
        r"First of all: (.*) % .* as it is and (.*) % of .* without retries fail", told
    )
    assert found is not None
    one, two = (100 * lost for lost in islice(question._calm_losses(20 / 30), 2))
    assert two < float(found[2]) < one  # there is room for one more in three rounds of ten
    assert float(found[1]) < float(found[2]) / 2
    assert told.index("First of all") < told.index("As it is")


def test_the_worst_second_is_that_of_single_runs(answer: tuple[str, mc.Results]) -> None:
    told, results = answer
    [(_, cell), *_] = experiment.cells_of(results.cells).items()
    rounds = mc.trace(cell, 200, seed=1)
    seconds = rounds.group_by("replication", pl.col("round") // cell.rounds_per_second)
    worst = seconds.agg(pl.col("calls").sum()).group_by("replication").agg(pl.col("calls").max())
    calls = worst["calls"].mean()
    assert isinstance(calls, float)
    assert f"in the worst second {calls / 30:.3g} times its capacity" in told
