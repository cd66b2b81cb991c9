"""What spans the cells: ranges, designs, and which combinations are left out."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import mc.experiment
from mc.experiment import Experiment, ExperimentError, read
from mc.model import Cell
from mc.runner.tracing import choose

TITLE = 'title = "t"\n'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(TITLE + text, encoding="utf-8")
    return path


def load(tmp_path: Path, text: str, **options: Any) -> Experiment:
    return read(write(tmp_path, text), **options)


def faults(tmp_path: Path, text: str, **options: Any) -> list[str]:
    """Faults of a file without its path."""
    path = write(tmp_path, text)
    with pytest.raises(ExperimentError) as caught:
        read(path, **options)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def values(experiment: Experiment, name: str) -> list[Any]:
    return [point.at[name] for point in experiment.points]


# ---- Ranges ----------------------------------------------------------------------------------


def test_a_linear_range_is_the_list_that_one_would_write(tmp_path: Path) -> None:
    got = load(tmp_path, "[grid]\nbudget = {from = 0.05, to = 0.5, steps = 10}")
    expected = load(
        tmp_path, "[grid]\nbudget = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]"
    )
    assert got.points == expected.points
    assert got.source == expected.source
    assert [p.parameters.identity for p in got.points] == [
        p.parameters.identity for p in expected.points
    ]


@pytest.mark.parametrize(
    ("range_", "expected"),
    [
        ("{from = 1, to = 4, steps = 4}", [1.0, 2.0, 3.0, 4.0]),
        ("{from = 0, to = 1, steps = 4}", [0.0, 1 / 3, 2 / 3, 1.0]),
        ("{from = 0.1, to = 0.7, steps = 2}", [0.1, 0.7]),
        ('{from = 0.001, to = 1000, steps = 7, scale = "log"}', [10.0**n for n in range(-3, 4)]),
        ('{from = 1, to = 2, steps = 3, scale = "log"}', [1.0, math.sqrt(2), 2.0]),
        ('{from = 0.3, to = 0.7, steps = 2, scale = "log"}', [0.3, 0.7]),
    ],
)
def test_a_range_has_the_double_nearest_to_each_value(
    tmp_path: Path, range_: str, expected: list[float]
) -> None:
    # no tolerance: every value is rounded once, and so are the ones expected
    got = values(load(tmp_path, f"[grid]\nbackoff_cap = {range_}"), "backoff_cap")
    assert got == expected


def test_halving_the_steps_of_a_range_keeps_every_cell(tmp_path: Path) -> None:
    text = '[grid]\nbudget = {from = 0.05, to = 0.5, steps = STEPS, scale = "log"}'
    few = values(load(tmp_path, text.replace("STEPS", "10")), "budget")
    many = values(load(tmp_path, text.replace("STEPS", "19")), "budget")
    assert many[::2] == few


def test_a_range_of_a_whole_number_is_rounded(tmp_path: Path) -> None:
    text = """
[grid]
capacity = {from = 1, to = 10, steps = 5}
threshold = {from = 1, to = 1000, steps = 6, scale = "log"}
"""
    experiment = load(tmp_path, text)
    got = [list(dict.fromkeys(values(experiment, name))) for name in ("capacity", "threshold")]
    expected = [[1, 3, 6, 8, 10], [1, 4, 16, 63, 251, 1000]]
    assert got == expected
    assert all(type(value) is int for value in got[0] + got[1])


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (
            "capacity = {from = 1, to = 5, steps = 9}",
            "[grid]: capacity: 9 steps from 1 to 5 give only 5 different values; use fewer steps "
            "or a list of these: 1 2 3 4 5",
        ),
        (
            'capacity = {from = 1, to = 30, steps = 9, scale = "log"}',
            "[grid]: capacity: 9 steps from 1 to 30 give only 8 different values; use fewer steps "
            "or a list of these: 1 2 4 5 8 13 20 30",
        ),
        (
            'budget = {from = 0, to = 1, steps = 5, scale = "log"}',
            '[grid]: budget: from must be > 0 for scale "log", got 0',
        ),
        (
            "budget = {from = 0.5, to = 0.05, steps = 5}",
            "[grid]: budget: from must be < to, got 0.5 and 0.05",
        ),
        (
            "budget = {from = 0.5, to = 0.5, steps = 5}",
            "[grid]: budget: from must be < to, got 0.5 and 0.5",
        ),
        (
            "budget = {from = -1, to = 0.5, steps = 5}",
            "[grid]: budget: from must be a number >= 0 and <= 1000000, got -1.0",
        ),
        (
            "failure_rate = {from = 0.5, to = inf, steps = 5}",
            "[grid]: failure_rate: to must be a number >= 0 and <= 1, got inf",
        ),
        (
            "threshold = {from = 0.5, to = 5, steps = 2}",
            "[grid]: threshold: from must be a whole number >= 0 and <= 2147483647, got 0.5",
        ),
        (
            'budget = {from = "none", to = 0.5, steps = 5}',
            "[grid]: budget: from must be a number, got 'none'",
        ),
        (
            "budget = {to = 0.5, steps = 5}",
            "[grid]: budget: from is missing, it must be a number",
        ),
        (
            "budget = {from = 0, to = 0.5}",
            "[grid]: budget: steps is missing, it must be a whole number >= 2",
        ),
        (
            "budget = {from = 0, to = 0.5, steps = 1}",
            "[grid]: budget: steps must be a whole number >= 2, got 1",
        ),
        (
            'budget = {from = 0, to = 0.5, steps = 2, scale = "ln"}',
            '[grid]: budget: scale must be "linear" or "log", got \'ln\'',
        ),
        (
            "budget = {from = 0, to = 0.5, step = 0.1, steps = 2}",
            '[grid]: budget: unknown key "step"; did you mean "steps"?',
        ),
        (
            "tries = {from = 1, to = 3, steps = 3}",
            "[grid]: tries: this is no number: write a list of values in [grid]",
        ),
    ],
)
def test_a_range_that_cannot_be_is_refused(tmp_path: Path, grid: str, expected: str) -> None:
    got = faults(tmp_path, f"[grid]\n{grid}")
    assert got == [expected]


@pytest.mark.parametrize("steps", [3000, 10**30])
def test_ranges_too_large_to_be_meant_are_not_written_out(tmp_path: Path, steps: int) -> None:
    axes = "\n".join(
        f'{name} = {{from = 1, to = 1e6, steps = {steps}, scale = "log"}}'
        for name in ("backoff_cap", "backoff_base")
    )
    design = '[design]\nkind = "sobol"\npoints = 1_048_576\nbudget = {from = 0, to = 1}'
    got = faults(tmp_path, f"[grid]\n{axes}\n{design}")  # written out, they would fill the memory
    assert got == [f"the axes must span <= 1000000 cells, got {steps**2 * 2**20}"]


def test_every_range_of_a_message_about_values_is_short(tmp_path: Path) -> None:
    text = """
[grid]
budget = {from = 0, to = 1, steps = 101}
[[claim]]
text = "c"
metric = "calls"
relation = "<"
value = 1
at = {budget = 0.005}
"""
    got = faults(tmp_path, text)
    some = " ".join(f"{n / 100:g}" for n in range(10))
    rule = f"at: budget must be one of {some} ... 1 (101 values)"
    assert got == [f'claim "c": {rule}, got 0.005']


def test_a_claim_names_a_value_of_a_range_by_its_first_six_digits(tmp_path: Path) -> None:
    text = """
[grid]
budget = {from = 0.05, to = 0.5, steps = 10, scale = "log"}
[[published]]
at = {budget = 0.0645775}
calls = 5
"""
    experiment = load(tmp_path, text)
    assert experiment.published[0].cell == 1
    got = experiment.points[1].parameters.budget
    assert got == experiment.points[1].at["budget"] == 0.0645774832507442


def test_of_values_that_look_alike_a_claim_means_the_one_it_writes(tmp_path: Path) -> None:
    text = """
[grid]
arrivals_per_second = [97.2200001, 97.22, 97.2199999]
[[published]]
at = {arrivals_per_second = 97.22}
calls = 5
"""
    assert load(tmp_path, text).published[0].cell == 1


# ---- Designs ---------------------------------------------------------------------------------

DESIGN = """
[design]
kind = "KIND"
points = 8
seed = 1
backoff_cap = {from = 1, to = 100, scale = "log"}
budget = {from = 0.05, to = 0.5}
fault_start = {from = 100, to = 103}
"""
SOBOL = DESIGN.replace("KIND", "sobol")
HYPERCUBE = DESIGN.replace("KIND", "latin-hypercube")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            SOBOL,
            [
                {
                    "backoff_cap": 3.7354104038010063,
                    "budget": 0.12318588681519031,
                    "fault_start": 102,
                },
                {
                    "backoff_cap": 77.87394916633967,
                    "budget": 0.32220213995315133,
                    "fault_start": 100,
                },
            ],
        ),
        (
            HYPERCUBE,
            [
                {
                    "backoff_cap": 2.1146639572065062,
                    "budget": 0.43394362692276334,
                    "fault_start": 103,
                },
                {
                    "backoff_cap": 14.789360775052966,
                    "budget": 0.325801561833267,
                    "fault_start": 103,
                },
            ],
        ),
    ],
)
def test_the_points_of_a_design_never_change_silently(
    tmp_path: Path, text: str, expected: list[dict[str, Any]]
) -> None:
    """Known answers, made with scipy 1.13 and 1.17: rows are kept under these parameters."""
    got = [point.at for point in load(tmp_path, text).points[:2]]
    assert got == expected


@pytest.mark.parametrize("text", [SOBOL, HYPERCUBE])
def test_each_parameter_of_a_design_is_spread_evenly(tmp_path: Path, text: str) -> None:
    experiment = load(tmp_path, text)
    assert len(experiment.points) == 8
    eighths = [int((value - 0.05) / 0.45 * 8) for value in values(experiment, "budget")]
    assert sorted(eighths) == list(range(8))
    eighths = [int(math.log(value, 100) * 8) for value in values(experiment, "backoff_cap")]
    assert sorted(eighths) == list(range(8))
    got = Counter(values(experiment, "fault_start"))
    expected = {100: 2, 101: 2, 102: 2, 103: 2}  # the ends have their full share
    assert got == expected


def test_the_points_of_a_design_are_the_parameters_of_the_cells(tmp_path: Path) -> None:
    points = load(tmp_path, SOBOL).points
    got = [point.parameters for point in points]
    expected = [Cell(**point.at) for point in points]
    assert got == expected


def test_more_points_extend_a_sobol_design(tmp_path: Path) -> None:
    few = load(tmp_path, SOBOL)
    many = load(tmp_path, SOBOL.replace("points = 8", "points = 64"))
    assert many.points[:8] == few.points
    assert len(many.points) == 64


def test_a_design_depends_on_its_seed_and_not_on_the_command_line(tmp_path: Path) -> None:
    first = load(tmp_path, SOBOL)
    assert load(tmp_path, SOBOL, seed=7, replications=3).points == first.points
    assert load(tmp_path, SOBOL.replace("seed = 1", "seed = 2")).points != first.points


def test_the_seed_of_a_design_is_that_of_the_file_if_it_gives_none(tmp_path: Path) -> None:
    seedless = SOBOL.replace("seed = 1\n", "")
    got = load(tmp_path, "seed = 1\n" + seedless)
    expected = load(tmp_path, "seed = 1\n" + SOBOL)
    assert (got.points, got.source) == (expected.points, expected.source)
    assert load(tmp_path, "seed = 1\n" + seedless, seed=5).points == expected.points
    assert load(tmp_path, seedless).source["design"]["seed"] == 20260802


def test_a_design_is_one_axis_crossed_with_all_others(tmp_path: Path) -> None:
    text = """
[[scenario]]
name = "a"
[[scenario]]
name = "b"
fault_rounds = 100
[[policy]]
name = "p"
[[policy]]
name = "q"
tries = [3]
[grid]
capacity = [5, 6]
"""
    experiment = load(tmp_path, text + SOBOL)
    assert len(experiment.points) == 2 * 2 * 2 * 8
    alone = [point.at for point in load(tmp_path, SOBOL).points]
    got = [(p.scenario, p.policy, p.at) for p in experiment.points]
    expected = [
        (scenario, policy, {"capacity": capacity} | at)
        for scenario in ("a", "b")
        for policy in ("p", "q")
        for capacity in (5, 6)
        for at in alone
    ]
    assert got == expected
    assert experiment.baselines == (*range(16), *range(16), *range(32, 48), *range(32, 48))


def test_the_source_holds_the_definition_of_a_design(tmp_path: Path) -> None:
    source = load(tmp_path, SOBOL).source
    assert source["design"] == {
        "kind": "sobol",
        "points": 8,
        "seed": 1,
        "ranges": [
            {"name": "backoff_cap", "from": 1.0, "to": 100.0, "scale": "log"},
            {"name": "budget", "from": 0.05, "to": 0.5, "scale": "linear"},
            {"name": "fault_start", "from": 100, "to": 103, "scale": "linear"},
        ],
    }
    assert json.loads(json.dumps(source)) == source
    assert load(tmp_path, "").source["design"] is None


def test_a_claim_finds_a_point_of_a_design_by_what_it_has_alone(tmp_path: Path) -> None:
    value = load(tmp_path, SOBOL).points[5].at["backoff_cap"]
    text = '[[claim]]\ntext = "c"\nmetric = "calls"\nrelation = "<"\nvalue = 1\nat = {AT}\n'
    for at in (f"backoff_cap = {value}", f"backoff_cap = {value:.6g}"):
        got = load(tmp_path, SOBOL + text.replace("AT", at)).claims[0].cells
        assert got == (5,)
    rule = "at must give one point of [design] by its backoff_cap, budget, fault_start"
    got_faults = faults(tmp_path, SOBOL + text.replace("AT", "fault_start = 101"))
    assert got_faults == [f'claim "c": {rule}; 2 have these values']
    got_faults = faults(tmp_path, SOBOL + text.replace("AT", "fault_start = 105"))
    assert len(got_faults) == 1
    assert got_faults[0].startswith('claim "c": at: fault_start must be one of 10')


def test_only_a_file_with_a_design_imports_scipy(tmp_path: Path) -> None:
    code = "import sys, mc.experiment as e; e.read(sys.argv[1]); print('scipy' in sys.modules)"
    for text, expected in (("", "False"), (SOBOL, "True")):
        command = [sys.executable, "-c", code, str(write(tmp_path, text))]
        got = subprocess.run(command, capture_output=True, text=True, check=True)
        assert got.stdout.strip() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            SOBOL.replace("points = 8", "points = 100"),
            '[design]: points must be a power of two for kind "sobol" (only then is it '
            "balanced), got 100: take 64 or 128",
        ),
        (SOBOL.replace("points = 8", ""), "[design]: points is missing, it must be a whole number"),
        (
            SOBOL.replace("points = 8", "points = 0"),
            "[design]: points must be a whole number >= 1, got 0",
        ),
        (
            SOBOL.replace("sobol", "halton"),
            '[design]: kind must be "latin-hypercube" or "sobol", got \'halton\'',
        ),
        (
            SOBOL.replace("seed = 1", "seed = -1"),
            "[design]: seed must be a whole number >= 0, got -1",
        ),
        (
            SOBOL.replace("budget", "buget"),
            '[design]: unknown parameter "buget"; did you mean "budget"?',
        ),
        (
            SOBOL.replace("seed = 1", "steps = 1"),
            '[design]: unknown parameter "steps"',
        ),
        (
            SOBOL + "capacity = [1, 2]",
            "[design]: capacity must be a range {from, to}, got [1, 2]",
        ),
        (
            SOBOL.replace("to = 103", "to = 103, steps = 4"),
            '[design]: fault_start: unknown key "steps"; there are "from", "to", "scale"',
        ),
        (
            SOBOL.replace("from = 1,", "from = 0,"),
            '[design]: backoff_cap: from must be > 0 for scale "log", got 0',
        ),
        (
            SOBOL + "tries = {from = 1, to = 3}",
            "[design]: tries: this is no number: write a list of values in [grid]",
        ),
        (
            '[design]\nkind = "sobol"\npoints = 8',
            "[design]: one or more parameters must be given a range {from, to}",
        ),
        (
            '[design]\nkind = "sobol"\npoints = 8\ncapacity = {from = 1, to = 3}',
            "[design]: 8 points give only 3 different; use fewer points or wider ranges",
        ),
        ("design = 3", "design must be a table: [design], got 3"),
        (
            "[fixed]\nbudget = 1\n" + SOBOL,
            "budget is set by [fixed] and by [design]: keep it in one of them",
        ),
        (
            "[grid]\nbudget = [1, 2]\n" + SOBOL,
            "budget is set by [grid] and by [design]: keep it in one of them",
        ),
    ],
)
def test_a_design_that_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    got = faults(tmp_path, text)
    assert len(got) == 1, got
    assert got[0].startswith(expected)


def test_a_parameter_of_a_design_cannot_be_overridden(tmp_path: Path) -> None:
    got = faults(tmp_path, SOBOL, overrides={"budget": "0.3"})
    assert got == ["--set: budget is set by [design]: change it in the file"]


def test_a_faulty_design_causes_no_further_faults(tmp_path: Path) -> None:
    text = """
[[exclude]]
budget = 0.1
[[claim]]
text = "c"
metric = "calls"
relation = "<"
value = 1
at = {budget = 0.1}
"""
    got = faults(tmp_path, SOBOL.replace("points = 8", "points = 9") + text)
    assert len(got) == 1
    assert got[0].startswith("[design]: points must be a power of two")


# ---- Excluded combinations -------------------------------------------------------------------

# 2 scenarios x 3 policies x 4 budgets
CROSSED = """
[[scenario]]
name = "calm"
[[scenario]]
name = "outage"
fault_rounds = 100
[[policy]]
name = "none"
[[policy]]
name = "two"
tries = [3, 3]
[[policy]]
name = "three"
tries = [3, 3, 3]
[grid]
budget = ["none", 0.1, 0.2, 0.3]
"""


def left_out(tmp_path: Path, text: str) -> set[tuple[str, str, Any]]:
    """Combinations that the exclude tables of a file leave out."""
    cells = [
        {(p.scenario, p.policy, p.parameters.budget) for p in load(tmp_path, file).points}
        for file in (CROSSED, CROSSED + text)
    ]
    assert cells[1] <= cells[0]
    return cells[0] - cells[1]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ('policy = "two"\nbudget = 0.1', {(s, "two", 0.1) for s in ("calm", "outage")}),
        (
            'scenario = "calm"\npolicy = ["two", "three"]\nbudget = {at_least = 0.2}',
            {("calm", p, b) for p in ("two", "three") for b in (0.2, 0.3)},
        ),
        (
            'fault_rounds = 0\ntries = [1]\nbudget = ["none", 0.3]',
            {("calm", "none", None), ("calm", "none", 0.3)},
        ),
        (
            'scenario = "calm"\ntries = [[1], [3, 3]]\nbudget = {above = 0.1, below = 0.3}',
            {("calm", "none", 0.2), ("calm", "two", 0.2)},
        ),
        # no budget is no number
        ('scenario = "calm"\ntries = [1]\nbudget = {at_most = 0.1}', {("calm", "none", 0.1)}),
        (
            'scenario = "calm"\ntries = [1]\nbudget = {above = -1}',
            {("calm", "none", b) for b in (0.1, 0.2, 0.3)},
        ),
    ],
)
def test_a_cell_that_meets_all_conditions_of_a_table_is_left_out(
    tmp_path: Path, conditions: str, expected: set[tuple[str, str, float | None]]
) -> None:
    got = left_out(tmp_path, f"[[exclude]]\n{conditions}")
    assert got == expected


def test_it_is_enough_to_meet_one_of_several_tables(tmp_path: Path) -> None:
    one, other = "budget = 0.1\nfault_rounds = 100", 'policy = "two"\nscenario = "outage"'
    got = left_out(tmp_path, f"[[exclude]]\n{one}\n[[exclude]]\n{other}")
    expected = left_out(tmp_path, f"[[exclude]]\n{one}") | left_out(
        tmp_path, f"[[exclude]]\n{other}"
    )
    assert got == expected


def test_remaining_cells_are_numbered_without_holes_in_their_order(tmp_path: Path) -> None:
    text = CROSSED + '[[exclude]]\nscenario = "calm"\nbudget = [0.1, 0.3]\n'
    whole, part = load(tmp_path, CROSSED), load(tmp_path, text)
    gone = [p.scenario == "calm" and p.at["budget"] in (0.1, 0.3) for p in whole.points]
    assert [p.cell for p in part.points] == list(range(24 - 6))
    kept = [p for p, out in zip(whole.points, gone, strict=True) if not out]
    got = [(p.scenario, p.policy, p.at, p.parameters) for p in part.points]
    expected = [(p.scenario, p.policy, p.at, p.parameters) for p in kept]
    assert got == expected
    assert part.baselines == (0, 1) * 3 + (6, 7, 8, 9) * 3


def test_a_cell_without_its_baseline_is_its_own(tmp_path: Path) -> None:
    text = CROSSED + '[[exclude]]\npolicy = "none"\nbudget = {above = 0.1}\n'
    experiment = load(tmp_path, text)
    for point, baseline in zip(experiment.points, experiment.baselines, strict=True):
        with_it = [
            other.cell
            for other in experiment.points
            if (other.scenario, other.policy, other.at) == (point.scenario, "none", point.at)
        ]
        assert baseline == (with_it or [point.cell])[0]
    assert sum(b == c for c, b in enumerate(experiment.baselines)) == 2 * (2 + 2 * 2)


def test_claims_and_figures_follow_the_new_numbers(tmp_path: Path) -> None:
    text = """
[[claim]]
text = "c"
scenario = "outage"
metric = "calls"
policies = ["none", "three"]
relation = "<"
at = {budget = 0.2}
[[published]]
scenario = "outage"
policy = "three"
at = {budget = 0.2}
calls = 5
"""
    exclude = '[[exclude]]\nbudget = 0.1\n[[exclude]]\npolicy = "two"\n'
    experiment = load(tmp_path, CROSSED + text + exclude)
    cells = [experiment.points[cell] for cell in experiment.claims[0].cells]
    got = [(p.scenario, p.policy, p.at) for p in cells]
    assert got == [("outage", policy, {"budget": 0.2}) for policy in ("none", "three")]
    assert experiment.published[0].cell == experiment.claims[0].cells[1]


def test_what_is_left_out_need_not_be_possible(tmp_path: Path) -> None:
    grid = "[grid]\ntries = [[1], [300, 300]]\narrivals_per_second = [1, 1e6]\n"
    assert len(faults(tmp_path, grid)) == 2
    exclude = "[[exclude]]\ntries = [300, 300]\n[[exclude]]\narrivals_per_second = {above = 7e4}\n"
    assert len(load(tmp_path, grid + exclude).points) == 1


TABLES = """[fixed]
fault_rounds = 100
tries = [3]
budget = {kind = "ratio", window = "10 s"}
[[policy]]
name = "as the grid has it"
[grid]
budget.ratio = {from = 0.1, to = 0.3, steps = 3}
backoff_base = [1, 2]
"""


CLAIM = '[[claim]]\ntext = "a"\nmetric = "dropped"\nrelation = ">"\nvalue = 3\n'


@pytest.mark.parametrize("named", ["0.2", '"20 %"', "[0.2]"])
def test_an_entry_names_the_tables_that_have_it(named: str, tmp_path: Path) -> None:
    at = "at = {backoff_base = 1, budget.ratio = 0.3}\n"
    exclude = f"[[exclude]]\nbackoff_base = 2\nbudget.ratio = {named}\n"
    got = load(tmp_path, f"{TABLES}{CLAIM}{at}{exclude}")
    table = 'budget = {kind = "ratio", ratio = 0.2, window = "10 s"}'
    at = f"at = {{backoff_base = 1, {table.replace('0.2', '0.3')}}}\n"
    exclude = f"[[exclude]]\nbackoff_base = 2\n{table}\n"
    expected = load(tmp_path, f"{TABLES}{CLAIM}{at}{exclude}")
    assert len(got.points) == 5
    assert got.points == expected.points
    assert got.claims == expected.claims


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("ratio = 0.25", "no value of budget has budget.ratio = 0.25"),
        ('window = "10 s"', "at: several values of budget have budget.window = 1000"),
        ('window = "soon"', "no value of budget has budget.window = 'soon'"),
        ("ratio = {above = 0.1}", "no value of budget has budget.ratio = {'above': 0.1}"),
    ],
)
def test_an_entry_that_names_no_table_is_refused(entry: str, told: str, tmp_path: Path) -> None:
    at = f"at = {{backoff_base = 1, budget.{entry}}}\n"
    [fault] = faults(tmp_path, f"{TABLES}{CLAIM}{at}")
    assert fault.startswith('claim "a": at: ')
    assert told in fault


def test_a_replication_is_chosen_by_an_entry(tmp_path: Path) -> None:
    got = choose(load(tmp_path, TABLES), at={"budget.ratio": "20 %", "backoff_base": "2"})
    assert [point.cell for point in got] == [3]
    with pytest.raises(ExperimentError, match=r'--at: budget\.ratio "25 %" does not exist'):
        choose(load(tmp_path, TABLES), at={"budget.ratio": "25 %"})


def test_a_faulty_exclude_causes_no_further_faults(tmp_path: Path) -> None:
    grid = "[grid]\ntries = [[1], [300, 300]]\n"
    got = faults(tmp_path, grid + "[[exclude]]\ntires = [300, 300]\n")
    assert got == ['exclude 1: unknown parameter "tires"; did you mean "tries"?']


def test_a_condition_may_hold_for_points_of_ranges_and_designs(tmp_path: Path) -> None:
    grid = "[grid]\ncapacity = {from = 1, to = 9, steps = 9}\n"
    exclude = "[[exclude]]\nbudget = {below = 0.2}\ncapacity = {at_most = 3}\n"
    got = load(tmp_path, grid + SOBOL + exclude).points
    expected = [
        point.at
        for point in load(tmp_path, grid + SOBOL).points
        if not (point.at["budget"] < 0.2 and point.at["capacity"] <= 3)
    ]
    assert [point.at for point in got] == expected
    assert len(got) < 72


def test_the_source_holds_what_is_left_out(tmp_path: Path) -> None:
    exclude = '[[exclude]]\npolicy = "two"\nbudget = [0.1, "none"]\ntries = [3, 3]\nrounds = BOUND'
    source = load(tmp_path, CROSSED + exclude.replace("BOUND", "{above = 3}")).source
    expected = [
        {
            "policy": ["two"],
            "budget": [0.1, None],
            "tries": [[3, 3]],
            "rounds": {"above": 3.0},
        }
    ]
    assert source["exclude"] == expected
    assert json.loads(json.dumps(source)) == source
    assert load(tmp_path, CROSSED).source["exclude"] == []


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ("", "exclude 1: one or more conditions must be given, such as budget = 0.3"),
        ("buget = 1", 'exclude 1: unknown parameter "buget"; did you mean "budget"?'),
        ('policy = "tow"', 'exclude 1: policy "tow" does not exist; did you mean "two"?'),
        ('policy = ["two", "two"]', 'exclude 1: policy "two" is named 2 times'),
        ("policy = 3", "exclude 1: policy must be a name or a list of names, got 3"),
        ("scenario = []", "exclude 1: scenario must be a name or a list of names, got []"),
        ("budget = 0.15", "exclude 1: budget is nowhere 0.15; there are none 0.1 0.2 0.3"),
        ("tries = [3]", "exclude 1: tries is nowhere [3]; there are [1] [3, 3] [3, 3, 3]"),
        ("budget = -1", "exclude 1: budget must be none or a number >= 0 and <= 1000000, got -1"),
        (
            "budget = []",
            "exclude 1: budget must be none or a number >= 0 and <= 1000000, or a list with one "
            "for each layer, got []",
        ),
        ("tries = []", "exclude 1: tries must be a list of whole numbers, each >= 1 and <= 65536"),
        ("tries = {above = 1}", "exclude 1: tries: this is no number: give a value or a list"),
        (
            "budget = {}",
            "exclude 1: budget: one or more of above, below, at_least, at_most must be given",
        ),
        ("budget = {over = 1}", 'exclude 1: budget: unknown key "over"'),
        (
            'budget = {above = "1"}',
            "exclude 1: budget must be none or a number >= 0 and <= 1000000, or a list with one "
            "for each layer, got '1'; write a number",
        ),
        ("budget = {above = 0.3}", "exclude 1: no cell meets all of it"),
        ('scenario = "calm"\nfault_rounds = 100', "exclude 1: no cell meets all of it"),
        (
            "budget = {at_least = 0}\n[[exclude]]\nbudget = 'none'",
            "no cell remains: the [[exclude]] tables leave out all of them",
        ),
        ('policy = "none"', 'baseline "none" is left out everywhere: name a policy that remains'),
    ],
)
def test_an_exclude_that_cannot_be_meant_is_refused(
    tmp_path: Path, exclude: str, expected: str
) -> None:
    got = faults(tmp_path, CROSSED + f"[[exclude]]\n{exclude}")
    assert len(got) == 1, got
    assert got[0].startswith(expected)


def test_a_claim_or_a_figure_about_a_cell_left_out_is_refused(tmp_path: Path) -> None:
    text = """
[[exclude]]
scenario = "outage"
policy = "two"
[[exclude]]
policy = "three"
budget = 0.1
[[claim]]
text = "c"
scenario = "outage"
metric = "calls"
policies = ["none", "two", "three"]
relation = "<"
at = {budget = 0.1}
[[published]]
scenario = "outage"
policy = "two"
at = {budget = "none"}
calls = 5
"""
    got = faults(tmp_path, CROSSED + text)
    assert got == [
        'claim "c": the cell of policy "two" is left out by exclude 1',
        'claim "c": the cell of policy "three" is left out by exclude 2',
        'published 1: the cell of policy "two" is left out by exclude 1',
    ]


def test_the_named_baseline_may_remain_where_the_first_policy_does_not(tmp_path: Path) -> None:
    text = 'baseline = "two"\n' + CROSSED + '[[exclude]]\npolicy = "none"\n'
    got = load(tmp_path, text).baselines
    assert got == (0, 1, 2, 3) * 2 + (8, 9, 10, 11) * 2


# ---- All of it -------------------------------------------------------------------------------


def test_every_fault_of_grid_design_and_exclude_is_reported_at_once(tmp_path: Path) -> None:
    text = """
[grid]
capacity = {from = 1, to = 5, steps = 9}
rounds = {from = 0, to = 5, steps = 2}
[design]
kind = "sobol"
points = 3
budget = {from = 1, to = 0}
[[exclude]]
policy = "p"
thresold = 4
"""
    got = [fault.partition(" ")[0] + fault.partition(":")[2] for fault in faults(tmp_path, text)]
    assert len(got) == 6, got


def test_the_example_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    doc = ast.get_docstring(ast.parse(Path(mc.experiment.__file__).read_text("utf-8"))) or ""
    example = re.search(r"::\n\n((?:    .*\n|\n)+)", doc)
    assert example is not None
    experiment = load(tmp_path, textwrap.dedent(example[1]))
    # of 4 caps, 10 budgets, 4 thresholds, 2 timeouts and 64 points: two caps with two thresholds
    # are left out
    assert len(experiment.points) == (4 * 4 - 2 * 2) * 10 * 2 * 64


# ---- Many cells ------------------------------------------------------------------------------

MANY = """
[[policy]]
name = "one"
[[policy]]
name = "two"
tries = [2]
[grid]
budget = {from = 0, to = 1, steps = 101}
capacity = {from = 1, to = 100, steps = 100}
[[exclude]]
policy = "one"
budget = {above = 0.5}
"""


def test_reading_many_cells_tells_how_far_it_is(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    load(tmp_path, MANY, progress=lambda done, total: calls.append((done, total)))
    got = [done for done, _ in calls]
    assert got == [0, 10_000, 20_000, 20_200]
    assert {total for _, total in calls} == {20_200}


def test_no_cell_is_built_or_checked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = Counter[str]()
    make, check = Cell.from_checked, Cell.__post_init__

    def count_made(parameters: dict[str, Any]) -> Cell:
        built["made"] += 1
        return make(parameters)

    def count_checked(cell: Cell) -> None:
        built["checked again"] += 1
        check(cell)

    monkeypatch.setattr(Cell, "from_checked", count_made)
    monkeypatch.setattr(Cell, "__post_init__", count_checked)
    n_cells = len(load(tmp_path, MANY).points)
    assert n_cells == 101 * 100 + 51 * 100
    assert built == {"made": n_cells}
