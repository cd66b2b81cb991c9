"""Units in experiment files, on the command line and in Python: what they mean, what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

import mc
from mc.experiment import Experiment, ExperimentError, json_schema, read

IN_UNITS = """
title = "units"
[fixed]
round = "10 ms"
rounds = "40 s"
arrivals_per_second = "97.22/s"
capacity = "450/s"
fault_start = "5 s"
fault_rounds = "1 s"
fault_capacity = "30/min"
failure_rate = "0.5 %"
tries = [3, 3]
backoff_base = ["20 ms", "10 ms"]
budget = "30 %"
[grid]
backoff_cap = ["80 ms", "320 ms"]
deadline = ["none", "1 s"]
[[exclude]]
backoff_cap = "0.08 s"
deadline = "none"
[[claim]]
text = "few calls"
metric = "calls"
relation = "<"
value = 5000
policies = ["default"]
at = {backoff_cap = "0.32 s", deadline = "1000 ms"}
"""

IN_NUMBERS = """
title = "units"
[fixed]
rounds_per_second = 100
rounds = 4000
arrivals_per_second = 97.22
capacity = 4.5
fault_start = 500
fault_rounds = 100
fault_capacity = 0.005
failure_rate = 0.005
tries = [3, 3]
backoff_base = [2, 1]
budget = 0.3
[grid]
backoff_cap = [8, 32]
deadline = ["none", 100]
[[exclude]]
backoff_cap = 8
deadline = "none"
[[claim]]
text = "few calls"
metric = "calls"
relation = "<"
value = 5000
policies = ["default"]
at = {backoff_cap = 32, deadline = 100}
"""


def experiment(tmp_path: Path, text: str, **settings: Any) -> Experiment:
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    return read(file, **settings)


def faults(tmp_path: Path, text: str, **settings: Any) -> list[str]:
    with pytest.raises(ExperimentError) as error:
        experiment(tmp_path, text, **settings)
    return [fault.removeprefix(f"{tmp_path / 'experiment.toml'}: ") for fault in error.value.faults]


def test_a_file_in_units_is_the_file_in_numbers(tmp_path: Path) -> None:
    got = experiment(tmp_path, IN_UNITS)
    expected = experiment(tmp_path, IN_NUMBERS)
    assert got.points == expected.points
    assert [claim.cells for claim in got.claims] == [claim.cells for claim in expected.claims]
    assert got.source.pop("in_units") == ["backoff_cap", "deadline"]
    assert "in_units" not in expected.source


def test_a_cell_takes_units() -> None:
    texts: dict[str, Any] = {"backoff_cap": "250 ms", "budget": "30 %", "capacity": "500/s"}
    got = mc.Cell(rounds_per_second=200, **texts)
    expected = mc.Cell(backoff_cap=50, rounds_per_second=200, budget=0.3, capacity=2.5)
    assert got == expected


def test_a_range_takes_units(tmp_path: Path) -> None:
    axis = '{from = "20 ms", to = "2.56 s", steps = 8, scale = "log"}'
    got = experiment(tmp_path, f'title = "x"\n[grid]\nbackoff_cap = {axis}')
    assert [point.at["backoff_cap"] for point in got.points] == [2.0 * 2**k for k in range(8)]


def test_the_command_line_takes_units(tmp_path: Path) -> None:
    got = experiment(tmp_path, 'title = "x"', overrides={"round": '"20 ms"', "rounds": '"1 min"'})
    assert got.points[0].parameters == mc.Cell(rounds_per_second=50, rounds=3000)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'fault_start = "25 ms"',
            "[fixed]: fault_start must be a whole number of rounds of 10 ms, got '25 ms'; "
            "20 ms (2 rounds) or 30 ms (3 rounds) would be",
        ),
        (
            'budget = "30%"',
            "[fixed]: budget must be none or a number >= 0 and <= 1000000, or a list with one for "
            "each layer, got '30%'; write \"30 %\" or 0.3",
        ),
        (
            'failure_rate = "0,5"',
            "[fixed]: failure_rate must be a number >= 0 and <= 1, got '0,5'; "
            "write 0.5 with a decimal point",
        ),
        (
            'rounds = "1,000"',
            "[fixed]: rounds must be a whole number >= 1 and <= 4000000, got '1,000'; "
            "write 1.000 with a decimal point, or 1000 without a comma",
        ),
        (
            'round = "10 ms"\nrounds_per_second = 100',
            "[fixed]: round and rounds_per_second say the same: keep one of them",
        ),
        ("round = 10", '[fixed]: round must be a time > 0 such as "10 ms", got 10'),
        (
            'failure_rate = "150 %"',
            "[fixed]: failure_rate must be >= 0 % and <= 100 %, got '150 %'",
        ),
        ('rounds = "20 h"', "[fixed]: rounds must be >= 10 ms and <= 11.11 h, got '20 h'"),
        (
            'fault_rounds = "-1 s"',
            "[fixed]: fault_rounds must be a whole number >= 0 and <= 2147483647, got '-1 s'; "
            'write a number, or a text such as "250 ms", "45 s", "2 min" or "1 h"',
        ),
        (
            'threshold = "15 ms"',
            "[fixed]: threshold must be a whole number of rounds of 10 ms, got '15 ms'; "
            "10 ms (1 round) or 20 ms (2 rounds) would be",
        ),
        (
            'tries = [3, 3]\nbackoff_base = ["20 ms"]',
            'scenario "default", policy "default": backoff_base must have one value for each layer '
            "of tries (2), got 1",
        ),
        (
            'threshold = "1 h"\n[grid]\nrounds_per_second = [50, 100]',
            "[fixed]: threshold must be a number where [grid] sets rounds_per_second, got '1 h'; "
            "write numbers of rounds, or keep one length of a round in [fixed]",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_the_users_unit(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, f'title = "x"\n[fixed]\n{text}\n') == [fault]


@pytest.mark.parametrize(
    ("line", "cure"),
    [
        ("rounds = 1,000", "write 1.000 with a decimal point, or 1000 without a comma"),
        ("rounds = 1,000,000  # many", "write 1000000 without commas"),
        ("budget = 30%", 'write "30 %" or 0.3'),
        ("budget = 0,5", "write 0.5 with a decimal point"),
        ("backoff_cap = 250 ms", 'write "250 ms" in quotation marks'),
        ("capacity = 450/s", 'write "450/s" in quotation marks'),
    ],
)
def test_a_value_without_quotation_marks_is_told_what_is_right(
    tmp_path: Path, line: str, cure: str
) -> None:
    (fault,) = faults(tmp_path, f'title = "x"\n[fixed]\n{line}\n')
    assert fault.startswith("not a TOML file: ")
    assert fault.endswith(f"; {cure}")


def test_other_faults_of_toml_have_no_cure(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, 'title = "x"\n[fixed\n')
    assert ";" not in fault


def test_the_command_line_takes_lists_with_units(tmp_path: Path) -> None:
    text = 'title = "x"\n[fixed]\ntries = [3, 3]'
    got = experiment(tmp_path, text, overrides={"backoff_base": "[20 ms, 40 ms]"})
    assert got.points[0].parameters.backoff_base == (2.0, 4.0)


def test_a_round_is_the_same_in_all_cells(tmp_path: Path) -> None:
    text = 'title = "x"\n[[scenario]]\nname = "a"\nround = "1 ms"\n'
    assert faults(tmp_path, text) == ['scenario "a": round must be set in [fixed], for all cells']


def test_waits_that_are_cut_are_remarked(tmp_path: Path) -> None:
    got = experiment(tmp_path, 'title = "x"\n[fixed]\ntries = [3]\nbackoff_base = "1 h"\n')
    assert got.remarks == (
        "backoff_base, 1 h, is cut to backoff_cap, 320 ms by default, in default",
    )
    got = experiment(tmp_path, 'title = "x"\n[fixed]\ntries = [9]\n')
    assert got.remarks == (
        "waits grow to backoff_cap, 320 ms by default, and no further: set backoff_cap, in default",
    )
    got = experiment(tmp_path, 'title = "x"\n[fixed]\ntries = [9]\nbackoff_cap = 32\n')
    assert got.remarks == ()
    got = experiment(tmp_path, 'title = "x"\n[fixed]\ntries = [3, 3, 3]\n')
    assert got.remarks == ()


OF_METRICS: Final = """
title = "x"
[fixed]
round = "20 ms"
fault_rounds = "1 s"
[precision]
metric = ["drain", "wait_max"]
absolute = "30 ms"
[[policy]]
name = "p"
[[claim]]
text = "slow storm"
metric = "window_rate"
relation = "between"
value = ["40/s", 3]
[[claim]]
text = "short waits"
metric = ["wait_max", "drain"]
relation = "<"
value = "1 s"
"""


def test_what_metrics_are_compared_with_takes_units(tmp_path: Path) -> None:
    got = experiment(tmp_path, OF_METRICS)
    assert [claim.value for claim in got.claims] == [(0.8, 3.0), 50.0]
    assert got.precision is not None
    assert got.precision.absolute == 1.5


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            '"1 s"\n',
            '"1/s"\n',
            "claim \"short waits\": value: wait_max must be a number (rounds), got '1/s'; write a "
            'number, or a text such as "250 ms", "45 s", "2 min" or "1 h"',
        ),
        (
            '["wait_max", "drain"]',
            '["wait_max", "calls"]',
            'claim "short waits": value: must be a number for metrics of several units, '
            "got '1 s'",
        ),
    ],
)
def test_a_unit_that_a_metric_does_not_have_is_refused(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    head, _, tail = OF_METRICS.rpartition(old)
    assert faults(tmp_path, f"{head}{new}{tail}") == [fault]


def test_the_schema_takes_the_units_that_the_program_takes() -> None:
    is_valid = jsonschema.Draft7Validator(json_schema()).is_valid
    for text in (IN_UNITS, OF_METRICS):
        assert is_valid(tomllib.loads(text))
    for wrong in ("450/s", "30%", "0,5 s"):
        assert not is_valid({"title": "x", "fixed": {"backoff_cap": wrong}})
