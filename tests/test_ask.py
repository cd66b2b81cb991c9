"""`retrystorm ask`: answers are read, an experiment is written and run; what is said is true."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

import mc
from mc import experiment
from mc.cli import app
from mc.decisions.alternatives import Change, alternatives, verdict_of
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
    monkeypatch.setattr("mc.cli.stderr.PROGRESS_SECONDS", math.inf)
    monkeypatch.setattr("mc.experiment.question._MOST_REPLICATIONS", 200)


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
    ],
)
def test_a_fault_is_read_as_people_say_it(text: str, expected: Fault) -> None:
    got = question.read_fault(text, 400)
    assert got == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    ["", "45", "0 s", "45 s at", "45 s at 500/s", "45 s at 120 %", "x at 3/s", "45 s failing 3/s"],
)
def test_a_fault_that_is_none_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(AskError, match=r'"45 s at 20 %" \(of the capacity\)'):
        question.read_fault(text, 400)


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


def test_without_a_terminal_every_answer_is_needed() -> None:
    code, out, err = ask({"--deadline": "", "--layers": ""})
    assert (code, out) == (2, "")
    assert err == "--layers, --deadline: are needed where there is no terminal to ask at\n"


def test_at_a_terminal_what_is_missing_is_asked_for_until_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mc.cli.ask._has_terminal", lambda: True)
    code, out, err = ask({"--layers": ""}, typed="two\n2x2\n")
    assert code == 0
    assert err.count("Attempts of each layer") == 2
    assert "must be the attempts of each layer" in err
    assert "layers 2x2, up to 4 attempts" in out


# The experiment -----------------------------------------------------------------------------------

SERVICE = Question(250.0, 400.0, Fault(45, 80, 0), (2, 3, 2), 0.3, (0.05, 0.5))


def test_the_experiment_says_what_was_asked(tmp_path: Path) -> None:
    file = tmp_path / "question.toml"
    file.write_text(experiment_text(SERVICE, file.name), "utf-8")
    read = experiment.read(file)
    points = read.points
    assert [point.policy for point in points] == list(policies(SERVICE))
    for cell in (point.parameters for point in points):
        per_second = cell.rounds_per_second
        assert cell.arrivals_per_second == 250
        assert cell.capacity * per_second == pytest.approx(400)
        assert cell.fault_capacity * per_second == pytest.approx(80)
        assert cell.fault_rounds / per_second == pytest.approx(45)
        assert cell.deadline == pytest.approx(0.3 * per_second)
    first = points[0].parameters
    assert (first.tries, first.chain, first.budget) == ((2, 3, 2), "nested", None)


def test_with_a_time_out_calls_wait_in_a_queue(tmp_path: Path) -> None:
    asked = Question(280.0, 300.0, Fault(10, 0, 0), (2,), None, (1.0, 10.0), timeout=1.0)
    file = tmp_path / "question.toml"
    file.write_text(experiment_text(asked, file.name), "utf-8")
    cells = {point.policy: point.parameters for point in experiment.read(file).points}
    first = cells[question.PRESENT]
    assert first.timeout == first.rounds_per_second == 100
    assert first.queue >= 300  # it holds what nobody waits for any more
    assert not first.cancel
    assert cells["queue of half the time-out"].queue == 150
    assert cells["calls given up are cancelled"].cancel


@pytest.mark.parametrize("layers", [(1,), (2,), (3,), (1, 1), (1, 3), (3, 1), (4, 4, 4, 4)])
@pytest.mark.parametrize("deadline", [None, 0.025, 30.0])
def test_every_question_makes_an_experiment_that_is_right(
    layers: tuple[int, ...], deadline: float | None, tmp_path: Path
) -> None:
    asked = Question(250.0, 400.0, Fault(0.7, 400, 0.3), layers, deadline, (0.05, 0.5))
    file = tmp_path / "question.toml"
    file.write_text(experiment_text(asked, file.name), "utf-8")
    names = [point.policy for point in experiment.read(file).points]
    assert len(set(names)) == len(names) >= 3
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


def test_what_is_surely_better_is_so_by_a_paired_test(tmp_path: Path) -> None:
    """By Bonferroni at 95 % for all; checked with scipy on the rows themselves."""
    code, out, _ = ask()
    assert code == 0
    results = mc.load("results/question")
    found = alternatives(results)
    assert {one.policy for one in found} == set(results.cells["policy"]) - {question.PRESENT}
    rows = results.replications
    failed = found[0].failures.metric
    numerator = {"window_failed_share": "window_dropped", "failed_share": "dropped"}[failed]
    per = {"window_failed_share": "window_requests", "failed_share": "requests"}[failed]

    def values(policy: str, load: bool) -> np.ndarray:
        [cell] = results.cells.filter(policy=policy)["cell"].to_list()
        of_cell = rows.filter(pl.col("cell") == cell).sort("replication")
        if load:
            return of_cell["window_calls"].to_numpy() / (20 * 5)
        return (of_cell[numerator] / of_cell[per]).to_numpy()

    level = 0.05 / (2 * len(found))
    for one in found:
        for change, load, least in ((one.failures, False, 0.001), (one.load, True, 0.05)):
            other, present = values(one.policy, load), values(question.PRESENT, load)
            differences = other - present
            if differences.std() == 0:
                assert not change.is_sure
                continue
            half = stats.t.ppf(1 - level / 2, len(differences) - 1) * stats.sem(differences)
            assert change.difference == pytest.approx(differences.mean(), abs=1e-6)
            matters = least * (min(other.mean(), present.mean()) if load else 1)
            if change.half_width is not None:
                apart = abs(differences.mean())
                assert change.is_sure == (apart > half and apart >= matters)
                assert change.is_alike == (not change.is_sure and apart + half < matters)
        changes = (one.failures, one.load)
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
        assert one.policy in out


def test_less_load_at_a_price_that_is_not_known_is_not_surely_better() -> None:
    """Of few runs: failures may have grown by 2 in a hundred, or not at all."""
    load = Change("times_usual", 8.0, 2.0, -6.0, 0.1, is_sure=True, is_alike=False)
    unknown = Change("failed_share", 0.30, 0.31, 0.01, 0.02, is_sure=False, is_alike=False)
    alike = Change("failed_share", 0.30, 0.30, 0.0, 0.0005, is_sure=False, is_alike=True)
    got = [verdict_of(changes) for changes in ((alike, load), (unknown, load), (unknown, alike))]
    assert got == ["better", "trade", "alike"]


def test_the_sentence_about_the_present_policy_has_the_numbers_of_the_summary() -> None:
    _, out, _ = ask()
    results = mc.load("results/question")
    means = results.summary.filter(cell=0)
    told = " ".join(out.split())
    load = means.filter(metric="times_usual")["mean"].item()
    found = re.search(r"Meanwhile the dependency gets ([0-9.]+) \(", told)
    assert found is not None
    assert float(found[1]) == pytest.approx(load, rel=0.05)
    assert len(out.splitlines()) <= 50
