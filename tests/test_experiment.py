"""An experiment file is read whole: its cells in order, or all of its faults with their places."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mc.experiment import (
    Experiment,
    ExperimentError,
    Published,
    cell_table,
    cells_of,
    completed,
    of_source,
    read,
)
from mc.experiment.remarks import effect_of, overflow, ties
from mc.model import PARAMETERS, Cell
from mc.model.faults import Fault
from mc.model.traffic import Traffic
from mc.runner import simulate

EXPERIMENTS = Path(__file__).parent.parent / "experiments"

# two scenarios x two policies x (2 x 1) grid points
SMALL = """
title = "small"
replications = 5
[fixed]
rounds = 600
[[scenario]]
name = "calm"
[[scenario]]
name = "outage"
fault_rounds = 100
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
[grid]
backoff_cap = [8, 16]
capacity = [6]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(tmp_path: Path, text: str, **options: Any) -> Experiment:
    return read(write(tmp_path, text), **options)


def faults(tmp_path: Path, text: str, **options: Any) -> list[str]:
    """Faults of a file without its path; the path itself is checked for each."""
    path = write(tmp_path, text)
    with pytest.raises(ExperimentError) as caught:
        read(path, **options)
    assert all(fault.startswith(f"{path}: ") for fault in caught.value.faults)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


# ---- A file without faults -------------------------------------------------------------------


def test_cells_are_ordered_by_scenario_then_policy_then_grid(tmp_path: Path) -> None:
    experiment = load(tmp_path, SMALL)
    got = [(p.cell, p.scenario, p.policy, p.at) for p in experiment.points]
    expected = [
        (0, "calm", "none", {"backoff_cap": 8.0, "capacity": 6}),
        (1, "calm", "none", {"backoff_cap": 16.0, "capacity": 6}),
        (2, "calm", "three", {"backoff_cap": 8.0, "capacity": 6}),
        (3, "calm", "three", {"backoff_cap": 16.0, "capacity": 6}),
        (4, "outage", "none", {"backoff_cap": 8.0, "capacity": 6}),
        (5, "outage", "none", {"backoff_cap": 16.0, "capacity": 6}),
        (6, "outage", "three", {"backoff_cap": 8.0, "capacity": 6}),
        (7, "outage", "three", {"backoff_cap": 16.0, "capacity": 6}),
    ]
    assert got == expected
    expected_cell = Cell(rounds=600, fault_rounds=100, tries=(3,), backoff_cap=16)
    assert experiment.points[7].parameters == expected_cell


def test_the_last_axis_of_the_grid_varies_fastest(tmp_path: Path) -> None:
    text = 'title = "t"\n[grid]\ncapacity = [1, 2]\ntries = [[1], [3, 3]]'
    got = [p.at for p in load(tmp_path, text).points]
    expected = [
        {"capacity": 1, "tries": (1,)},
        {"capacity": 1, "tries": (3, 3)},
        {"capacity": 2, "tries": (1,)},
        {"capacity": 2, "tries": (3, 3)},
    ]
    assert got == expected


def test_an_absent_axis_has_one_point_named_default(tmp_path: Path) -> None:
    experiment = load(tmp_path, 'title = "t"')
    got = [(p.scenario, p.policy, p.at, p.parameters) for p in experiment.points]
    assert got == [("default", "default", {}, Cell())]
    assert (experiment.seed, experiment.replications, experiment.generator) == (
        20260802,
        10_000,
        "philox",
    )
    assert experiment.seeds is None
    assert experiment.name == "small"


def test_each_cell_is_compared_with_the_first_policy_at_its_own_place(tmp_path: Path) -> None:
    got = load(tmp_path, SMALL).baselines
    assert got == (0, 1, 0, 1, 4, 5, 4, 5)


def test_the_file_can_name_another_baseline(tmp_path: Path) -> None:
    got = load(tmp_path, 'baseline = "three"\n' + SMALL).baselines
    assert got == (2, 3, 2, 3, 6, 7, 6, 7)


def test_a_scenario_or_a_policy_overrides_fixed(tmp_path: Path) -> None:
    text = """
title = "t"
[fixed]
capacity = 9
budget = 0.5
[[scenario]]
name = "a"
capacity = 3
[[scenario]]
name = "b"
[[policy]]
name = "p"
budget = "none"
"""
    got = [(p.parameters.capacity, p.parameters.budget) for p in load(tmp_path, text).points]
    assert got == [(3, None), (9, None)]


def test_a_claim_finds_its_cells(tmp_path: Path) -> None:
    claim = """
[[claim]]
text = "more tries, more calls"
scenario = "outage"
metric = ["calls", "peak"]
policies = ["none", "three"]
relation = "<"
at = {backoff_cap = 16}
[[claim]]
text = "in a range"
scenario = "calm"
metric = "multiplier"
policies = ["three"]
relation = "between"
value = [1, 1.5]
at = {backoff_cap = 8, capacity = 6}
"""
    got = load(tmp_path, SMALL + claim).claims
    assert [c.cells for c in got] == [(5, 7), (2,)]
    assert [c.labels for c in got] == [
        ("none, backoff_cap 16", "three, backoff_cap 16"),
        ("three, backoff_cap 8, capacity 6",),
    ]
    assert [c.metrics for c in got] == [("calls", "peak"), ("multiplier",)]
    assert [c.value for c in got] == [None, (1.0, 1.5)]
    assert [c.relation for c in got] == ["<", "between"]


def test_a_claim_may_have_a_factor_and_a_margin(tmp_path: Path) -> None:
    given = 'metric = "calls"\nrelation = "="\ntimes = 2.5\nmargin = 3\n'
    other = 'metric = "calls"\nrelation = "="\nvalue = 9\nmargin = 0.5\n'
    plain = 'metric = "calls"\nrelation = "<"\n'
    claims = "".join(CLAIM + AT + keys for keys in (given, other, plain))
    got = [(c.times, c.margin, c.value) for c in load(tmp_path, SMALL + claims).claims]
    expected = [(2.5, 3.0, None), (1.0, 0.5, 9.0), (1.0, None, None)]
    assert got == expected


def test_a_claim_may_leave_out_what_there_is_only_one_of(tmp_path: Path) -> None:
    text = 'title = "t"\n[[claim]]\ntext = "c"\nmetric = "calls"\nrelation = ">"\nvalue = 3'
    got = load(tmp_path, text).claims[0]
    assert (got.scenario, got.cells, got.labels, got.value) == ("default", (0,), ("default",), 3.0)


def test_published_figures_keep_the_digits_they_were_printed_with(tmp_path: Path) -> None:
    text = SMALL + (
        '[[published]]\nscenario = "calm"\npolicy = "three"\nat = {backoff_cap = 16}\n'
        "calls = 3_855\nmultiplier = 1.00\ntimes_usual = 2.5\nwindow_rate = 1e1\n"
    )
    got = load(tmp_path, text).published
    expected = (
        Published(3, "calls", 3855.0, 0),
        Published(3, "multiplier", 1.0, 2),
        Published(3, "times_usual", 2.5, 1),
        Published(3, "window_rate", 10.0, None),
    )
    assert got == expected
    assert all(type(figure.value) is float for figure in got)


def test_the_cell_table_has_every_parameter_and_no_nan(tmp_path: Path) -> None:
    table = cell_table(load(tmp_path, SMALL))
    derived = [
        "budget_text",
        "max_attempts",
        "longest_wait",
        "mean_requests",
        "mean_window_requests",
    ]
    derived += ["traffic_counts", "baseline", "identity"]
    derived += ["replications", "stopped_by"]
    assert table.columns == ["cell", "scenario", "policy", *PARAMETERS, *derived]
    types = {name: str(dtype) for name, dtype in table.schema.items()}
    got = [types[c] for c in ("cell", "scenario", "rounds", "tries", "budget", *derived)]
    counts = ["String", "Int32", "Int64", "Float64", "Float64"]
    counts += ["String", "Int32", "String", "Int64", "String"]
    assert got == ["Int32", "String", "Int32", "String", "Float64", *counts]
    assert table["tries"].to_list() == ["1", "1", "3", "3"] * 2
    assert table["budget"].null_count() == 8
    assert table["max_attempts"].to_list() == [1, 1, 3, 3] * 2


def test_layers_stand_in_the_cell_table_as_3x3x3(tmp_path: Path) -> None:
    table = cell_table(
        load(tmp_path, 'title = "t"\n[fixed]\ntries = [3, 3, 3]\nchain = "flattened"\nbudget = 0.3')
    )
    assert table.select("tries", "budget", "max_attempts", "longest_wait").row(0) == (
        "3x3x3",
        0.3,
        27,
        734,
    )


def test_the_source_is_canonical_and_survives_json(tmp_path: Path) -> None:
    got = load(tmp_path, SMALL).source
    assert json.loads(json.dumps(got)) == got
    same = SMALL.replace("[8, 16]", "[8.0, 0x10]").replace("rounds = 600", "rounds=6_00 # s")
    assert load(tmp_path, same).source == got
    assert load(tmp_path, SMALL, overrides={"rounds": "600"}).source == got


def test_the_source_tells_the_order_of_the_grid(tmp_path: Path) -> None:
    one = load(tmp_path, 'title = "t"\n[grid]\ncapacity = [1]\nrounds = [2]').source
    other = load(tmp_path, 'title = "t"\n[grid]\nrounds = [2]\ncapacity = [1]').source
    assert json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_bytes(b'\xef\xbb\xbftitle = "t"')
    assert read(path).title == "t"


def test_reading_does_not_import_polars() -> None:
    code = "import sys, mc.experiment; print('polars' in sys.modules)"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "False"


# ---- Replications, seeds and overrides -------------------------------------------------------


def test_the_lesson_generator_takes_a_list_of_seeds(tmp_path: Path) -> None:
    got = load(tmp_path, 'title = "t"\ngenerator = "lesson"\nseeds = [3, 5]')
    assert (got.seeds, got.replications) == ((3, 5), 2)


def test_asking_for_replications_replaces_the_list_of_seeds(tmp_path: Path) -> None:
    text = 'title = "t"\ngenerator = "lesson"\nseeds = [3, 5]'
    got = load(tmp_path, text, replications=7)
    assert (got.seeds, got.replications, got.seed) == (None, 7, 20260802)


def test_asking_for_a_seed_replaces_the_list_of_seeds(tmp_path: Path) -> None:
    text = 'title = "t"\ngenerator = "lesson"\nseeds = [3, 5]'
    got = load(tmp_path, text, seed=9)
    assert (got.seeds, got.replications, got.seed) == (None, 1, 9)
    got = load(tmp_path, text, seed=9, replications=4)
    assert (got.seeds, got.replications, got.seed) == (None, 4, 9)


def test_replications_and_seed_can_be_replaced(tmp_path: Path) -> None:
    got = load(tmp_path, SMALL, replications=2**32 - 1, seed=2**64 - 1)
    assert (got.replications, got.seed) == (2**32 - 1, 2**64 - 1)
    assert (got.source["replications"], got.source["seed"]) == (2**32 - 1, 2**64 - 1)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("rounds", "700", 700),
        ("budget", "0.3", 0.3),
        ("budget", "none", None),
        ("budget", '"none"', None),
        ("backoff_base", "4", 4.0),
    ],
)
def test_an_override_replaces_a_parameter_of_every_cell(
    tmp_path: Path, name: str, text: str, expected: object
) -> None:
    experiment = load(tmp_path, SMALL, overrides={name: text})
    got = {getattr(point.parameters, name) for point in experiment.points}
    assert got == {expected}
    assert experiment.source["fixed"][name] == expected


def test_an_override_may_be_a_list(tmp_path: Path) -> None:
    experiment = load(tmp_path, 'title = "t"', overrides={"tries": "[3,3]"})
    assert experiment.points[0].parameters.tries == (3, 3)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ({"tries": "[2]"}, '--set: tries is set by policy "three": change it in the file'),
        ({"fault_rounds": "9"}, '--set: fault_rounds is set by scenario "outage": change it'),
        ({"capacity": "9"}, "--set: capacity is set by [grid]: change it in the file"),
        ({"rouns": "9"}, '--set: unknown parameter "rouns"; did you mean "rounds"?'),
        ({"budget": "-1"}, "--set: budget must be none or a number >= 0 and <= 1000000, got -1"),
        (
            {"budget": "lots"},
            "--set: budget must be none or a number >= 0 and <= 1000000, got",
        ),
        ({"rounds": "1\nseed = 2"}, "--set: rounds must be a whole number >= 1 and <= 4000000"),
        ({"rounds": ""}, "--set: rounds must be a whole number >= 1 and <= 4000000, got ''"),
    ],
)
def test_an_override_that_cannot_be_is_refused(
    tmp_path: Path, override: dict[str, str], expected: str
) -> None:
    got = faults(tmp_path, SMALL, overrides=override)
    assert len(got) == 1
    assert got[0].startswith(expected)


# ---- Faults ----------------------------------------------------------------------------------

CLAIM = '[[claim]]\ntext = "c"\nscenario = "calm"\npolicies = ["none", "three"]\n'
AT = "at = {backoff_cap = 8}\n"
PUBLISHED = '[[published]]\nscenario = "calm"\npolicy = "none"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the top of the file
        ("", "title is missing, it must be a text"),
        ('title = ""', "title must be a text of printable characters, got ''"),
        ("title = 3", "title must be a text of printable characters, got 3"),
        ('title = "t"\nseed = true', "seed must be a whole number, got True"),
        ('title = "t"\nseed = 1.0', "seed must be a whole number, got 1.0"),
        (
            'title = "t"\nseed = -1',
            "seed must be a whole number >= 0 and <= 18446744073709551615 "
            'for generator "philox", got -1',
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseed = 0',
            'seed must be a whole number >= 1 and <= 2147483646 for generator "lesson", got 0',
        ),
        (
            'title = "t"\nreplications = 0',
            "replications must be a whole number >= 1 and <= 4294967295, got 0",
        ),
        (
            'title = "t"\nreplications = 4294967296',
            "replications must be a whole number >= 1 and <= 4294967295, got 4294967296",
        ),
        (
            'title = "t"\nreplicatons = 5',
            'unknown key "replicatons"; did you mean "replications"?',
        ),
        ('title = "t"\nbudget = 0.3', 'unknown key "budget": write it under [fixed]'),
        ('title = "t"\ngenerator = "mt"', 'generator must be "philox" or "lesson", got \'mt\''),
        ('title = "t"\nbaseline = "x"', 'baseline "x" is not a policy; there are "default"'),
        ('title = "t"\nfixed = 3', "fixed must be a table: [fixed], got 3"),
        (
            'title = "t"\n[policy]\nname = "a"',
            "policy must be tables: [[policy]], got {'name': 'a'}",
        ),
        # seeds
        (
            'title = "t"\nseeds = [1]',
            'seeds need generator = "lesson": replace them by seed and replications',
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseeds = [1]\nreplications = 1',
            "seeds and replications are both given: keep one of them",
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseeds = [1, 2147483647]',
            "seeds must each be a whole number >= 1 and <= 2147483646 "
            'for generator "lesson", got 2147483647',
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseeds = [1, 4, 4]',
            "seeds must differ, got 4 2 times",
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseeds = []',
            "seeds must be a list of one or more whole numbers, got []",
        ),
        (
            'title = "t"\ngenerator = "lesson"\nseeds = [1, "2"]',
            "seeds must be a list of one or more whole numbers, got '2'",
        ),
        # parameters
        (
            'title = "t"\n[fixed]\ntries = [0]',
            "[fixed]: tries must be a list of whole numbers, each >= 1 and <= 65536, got [0]",
        ),
        (
            'title = "t"\n[fixed]\ncapacity = -2.5',
            "[fixed]: capacity must be a number >= 0 and <= 2147483647, got -2.5",
        ),
        (
            'title = "t"\n[fixed]\ncapacity = 1979-05-27',
            "[fixed]: capacity must be a number >= 0 and <= 2147483647, "
            "got datetime.date(1979, 5, 27)",
        ),
        (
            'title = "t"\n[fixed]\nroundes = 5',
            '[fixed]: unknown parameter "roundes"; did you mean "rounds"?',
        ),
        (
            'title = "t"\n[[policy]]\nname = "two layers"\nbudget = -0.3',
            'policy "two layers": budget must be none or a number >= 0 and <= 1000000, got -0.3',
        ),
        (
            'title = "t"\n[[scenario]]\nname = "a"\nfailure_rate = nan',
            'scenario "a": failure_rate must be a number >= 0 and <= 1, got nan',
        ),
        ('title = "t"\n[[scenario]]\nrounds = 5', "scenario 1: name is missing, it must be a text"),
        (
            'title = "t"\n[[policy]]\nname = 5',
            "policy 1: name must be a text of printable characters, got 5",
        ),
        (
            'title = "t"\n[[policy]]\nname = "a"\n[[policy]]\nname = "a"',
            'policy "a": this name is used twice',
        ),
        # the grid
        (
            'title = "t"\n[grid]\nbackof_cap = [1]',
            '[grid]: unknown parameter "backof_cap"; did you mean "backoff_cap"?',
        ),
        (
            'title = "t"\n[grid]\ncapacity = 8',
            "[grid]: capacity must be a list of one or more values or a range {from, to, steps}, "
            "got 8",
        ),
        (
            'title = "t"\n[grid]\ncapacity = []',
            "[grid]: capacity must be a list of one or more values or a range {from, to, steps}, "
            "got []",
        ),
        (
            'title = "t"\n[grid]\nbackoff_cap = [8, 8.0]',
            "[grid]: backoff_cap has the value 8 twice",
        ),
        (
            'title = "t"\n[grid]\ncapacity = [1, -1]',
            "[grid]: capacity must be a number >= 0 and <= 2147483647, got -1",
        ),
        # a parameter set twice
        (
            'title = "t"\n[[scenario]]\nname = "a"\nbudget = 1\n[[policy]]\nname = "b"\nbudget = 2',
            'budget is set by scenario "a" and by policy "b": keep it in one of them',
        ),
        (
            'title = "t"\n[[scenario]]\nname = "a"\nbudget = 1\n[grid]\nbudget = [1]',
            'budget is set by scenario "a" and by [grid]: keep it in one of them',
        ),
        (
            'title = "t"\n[[policy]]\nname = "b"\nbudget = 1\n[grid]\nbudget = [1]',
            'budget is set by policy "b" and by [grid]: keep it in one of them',
        ),
        (
            'title = "t"\n[fixed]\nbudget = 1\n[grid]\nbudget = [1]',
            "budget is set by [fixed] and by [grid]: keep it in one of them",
        ),
        # claims
        (
            SMALL + CLAIM + AT + 'relation = "<"',
            'claim "c": metric is missing, it must be the name',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "windowcalls"\nrelation = "<"',
            'claim "c": metric "windowcalls" does not exist; did you mean "window_calls"?',
        ),
        (
            SMALL + CLAIM + AT + 'metric = ["calls", "calls"]\nrelation = "<"',
            'claim "c": metric "calls" is named 2 times',
        ),
        (
            SMALL + CLAIM + AT + 'metric = []\nrelation = "<"',
            'claim "c": metric must be the name of a metric or a list of such names, got []',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "=="',
            "claim \"c\": relation must be one of < <= = >= > between, got '=='",
        ),
        (
            SMALL + CLAIM.replace('"calm"', '"clam"') + AT + 'metric = "calls"\nrelation = "<"',
            'claim "c": scenario "clam" does not exist; did you mean "calm"?',
        ),
        (
            SMALL
            + CLAIM.replace('scenario = "calm"', "")
            + AT
            + 'metric = "calls"\nrelation = "<"',
            'claim "c": scenario is missing, it must be one of "calm", "outage"',
        ),
        (
            SMALL + CLAIM.replace('"three"', '"tree"') + AT + 'metric = "calls"\nrelation = "<"',
            'claim "c": policy "tree" does not exist; did you mean "three"?',
        ),
        (
            SMALL + CLAIM.replace('"three"', '"none"') + AT + 'metric = "calls"\nrelation = "<"',
            'claim "c": policy "none" is named 2 times',
        ),
        (
            SMALL + CLAIM.replace(', "three"', "") + AT + 'metric = "calls"\nrelation = "<"',
            'claim "c": policies must name two or more, or a value must be given',
        ),
        (
            SMALL
            + CLAIM.replace('["none", "three"]', "[]")
            + AT
            + 'metric = "calls"\nrelation = "<"',
            'claim "c": policies must be a list of one or more names of policies, got []',
        ),
        (
            SMALL + CLAIM.replace("policies", "policy") + AT + 'metric = "calls"\nrelation = "<"',
            'claim "c": unknown key "policy"; did you mean "policies"?',
        ),
        (
            SMALL + CLAIM + 'metric = "calls"\nrelation = "<"',
            'claim "c": at: backoff_cap is missing, it must be one of 8 16',
        ),
        (
            SMALL + CLAIM + 'at = {backoff_cap = 9}\nmetric = "calls"\nrelation = "<"',
            'claim "c": at: backoff_cap must be one of 8 16, got 9',
        ),
        (
            SMALL + CLAIM + 'at = {backoff_cap = 8, capcity = 9}\nmetric = "calls"\nrelation = "<"',
            'claim "c": at: "capcity" is not on the grid; did you mean "capacity"?',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "between"',
            'claim "c": value must be [low, high] with low <= high for relation between, got None',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "between"\nvalue = [2, 1]',
            'claim "c": value must be [low, high] with low <= high for relation between, got [2.0',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\nvalue = [1, 2]',
            'claim "c": value must be a number for relation <, got [1.0, 2.0]',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\nvalue = inf',
            'claim "c": value must be a number for relation <, got inf',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\nvalue = "6"',
            "claim \"c\": value must be a number or [low, high], got '6'",
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\ntimes = 0',
            'claim "c": times must be a number > 0 and <= 1e9, got 0',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\ntimes = 1e10',
            'claim "c": times must be a number > 0 and <= 1e9, got 10000000000.0',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\ntimes = nan',
            'claim "c": times must be a number > 0 and <= 1e9, got nan',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\ntimes = "two"',
            "claim \"c\": times must be a number > 0 and <= 1e9, got 'two'",
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\nvalue = 9\ntimes = 2',
            'claim "c": times is for claims that compare policies, not with a value',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "="\nmargin = 0',
            'claim "c": margin must be a number > 0, got 0',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "="\nmargin = -1.5',
            'claim "c": margin must be a number > 0, got -1.5',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "="\nmargin = inf',
            'claim "c": margin must be a number > 0, got inf',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<="\nmargin = 2',
            'claim "c": margin goes with relation =, got <=',
        ),
        (
            SMALL + CLAIM + AT + 'metric = "calls"\nrelation = "<"\ntime = 2',
            'claim "c": unknown key "time"; did you mean "times"?',
        ),
        # published figures
        (SMALL + PUBLISHED + AT, "published 1: one or more metrics must be given a number"),
        (
            SMALL + PUBLISHED + AT + "call = 5",
            'published 1: metric "call" does not exist; did you mean "calls"?',
        ),
        (SMALL + PUBLISHED + AT + 'calls = "5"', "published 1: calls must be a number, got '5'"),
        (SMALL + PUBLISHED + AT + "calls = true", "published 1: calls must be a number, got True"),
        (SMALL + PUBLISHED + AT + "calls = nan", "published 1: calls must be a number, got nan"),
        (
            SMALL + PUBLISHED.replace("calm", "storm") + AT + "calls = 5",
            'published 1: scenario "storm" does not exist; there are "calm", "outage"',
        ),
        (
            SMALL + PUBLISHED.replace('policy = "none"', "") + AT + "calls = 5",
            'published 1: policy is missing, it must be one of "none", "three"',
        ),
        (
            SMALL + PUBLISHED + "calls = 5",
            "published 1: at: backoff_cap is missing, it must be one of 8 16",
        ),
        (
            SMALL + (PUBLISHED + AT + "calls = 5\n") * 2,
            "published 2: calls was published before for this cell",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    got = faults(tmp_path, text)
    assert any(fault.startswith(expected) for fault in got), got


def test_a_fault_that_pydantic_finds_is_reported_in_our_words(tmp_path: Path) -> None:
    """Tables within tables, lists, unions: each with its place, none with pydantic's own words."""
    text = """
title = "t"
scenario = [{name = "a", rounds = [1]}, 3]
design = {kind = 3, points = "8", budget = {from = "x"}, "list" = 1}
[[policy]]
fault_start = {from = 1}
[grid]
range = 1
threshold = [1, {a = 2}, "x"]
capacity = {from = 1, to = 2, steps = [2], scale = 1}
[[exclude]]
rounds = {above = [1]}
tries = [[0], "x"]
[[published]]
at = 3
"""
    expected = [
        "scenario must be tables: [[scenario]], got 3",
        'scenario "a": rounds must be a whole number >= 1 and <= 4000000, got [1]',
        "policy 1: name is missing, it must be a text of printable characters",
        "policy 1: fault_start must be a whole number >= 0 and <= 2147483647, got {'from': 1}",
        '[grid]: capacity: scale must be "linear" or "log", got 1',
        "[grid]: capacity: steps must be a whole number >= 2, got [2]",
        "[grid]: threshold must be a whole number >= 0 and <= 2147483647, got {'a': 2}",
        "[grid]: threshold must be a whole number >= 0 and <= 2147483647, got 'x'",
        '[grid]: unknown parameter "range"; there are "rounds", ',
        '[design]: kind must be "latin-hypercube" or "sobol", got 3',
        "[design]: points must be a whole number >= 1, got '8'",
        "[design]: budget: from must be a number, got 'x'",
        "[design]: budget: to is missing, it must be a number",
        '[design]: unknown parameter "list"; there are "kind", "points", "seed", "rounds", ',
        "exclude 1: rounds: above must be a number, got [1]",
        "exclude 1: tries must be a list of whole numbers, each >= 1 and <= 65536, got [0]",
        "exclude 1: tries must be a list of whole numbers, each >= 1 and <= 65536, got 'x'",
        "published 1: at must be a table {axis = value}, got 3",
        "published 1: one or more metrics must be given a number",
    ]
    got = faults(tmp_path, text)
    missing = [start for start in expected if not any(fault.startswith(start) for fault in got)]
    assert missing == []
    assert len(got) == len(expected), got


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    text = """
replications = -1
colour = "red"
[fixed]
rounds = 0
[[scenario]]
name = "a"
capacty = 3
[[policy]]
name = "p"
tries = [3, 0]
budget = -1
[[policy]]
name = "p"
[grid]
capacity = [1, 1]
[[claim]]
text = "c"
metric = "cals"
policies = ["p", "q"]
relation = "~"
at = {capacity = 1}
[[published]]
policy = "r"
at = {capacity = 2}
peak = "high"
"""
    got = faults(tmp_path, text)
    expected = [
        "replications must be a whole number",
        "title is missing",
        'unknown key "colour"',
        'scenario "a": unknown parameter "capacty"',
        'policy "p": tries must be',
        'policy "p": budget must be',
        'policy "p": this name is used twice',
        "[grid]: capacity has the value 1 twice",
        "[fixed]: rounds must be",
        'claim "c": relation must be',
        'claim "c": metric "cals" does not exist',
        'claim "c": policy "q" does not exist',
        'published 1: policy "r" does not exist',
        "published 1: at: capacity must be one of 1 1, got 2",
        "published 1: peak must be a number",
    ]
    missing = [start for start in expected if not any(f.startswith(start) for f in got)]
    assert missing == []
    assert len(got) == len(expected), got


def test_the_error_prints_one_fault_a_line_with_the_path(tmp_path: Path) -> None:
    path = write(tmp_path, "title = 3\n[fixed]\ntries = [0]\n")
    with pytest.raises(ValueError, match="title") as caught:
        read(path)
    got = str(caught.value).splitlines()
    assert len(got) == 2
    assert all(line.startswith(f"{path}: ") for line in got)


def test_an_axis_with_a_fault_causes_no_further_faults(tmp_path: Path) -> None:
    text = 'title = "t"\npolicy = 3\n' + CLAIM.replace("calm", "default") + 'metric = "calls"\n'
    got = faults(tmp_path, text + 'relation = "<"')
    assert got == ["policy must be tables: [[policy]], got 3"]


def test_a_faulty_value_causes_no_further_faults(tmp_path: Path) -> None:
    text = 'title = "t"\n[fixed]\nrounds_per_second = 0\narrivals_per_second = 1e6'
    got = faults(tmp_path, text)
    assert got == ["[fixed]: rounds_per_second must be a number > 0, got 0"]


def test_a_fault_of_many_cells_is_reported_once(tmp_path: Path) -> None:
    text = """
title = "t"
[fixed]
tries = [300, 300]
[[scenario]]
name = "a"
[grid]
arrivals_per_second = [1, 2, 1_000_000, 2_000_000]
capacity = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
"""
    got = faults(tmp_path, text)
    place = 'scenario "a", policy "default", arrivals_per_second'
    assert got[0].startswith(f"{place} 1, capacity 1: the product of tries must be <= 65536")
    assert got[0].endswith("got 90000 (and 39 more cells)")
    assert got[1].startswith(f"{place} 1000000, capacity 1: rounds * arrivals per round must be")
    assert got[1].endswith("(and 19 more cells)")
    assert len(got) == 2


def test_the_lesson_generator_refuses_a_fault_window_with_a_failure_rate(tmp_path: Path) -> None:
    text = """
title = "t"
generator = "GENERATOR"
[fixed]
failure_rate = 0.025
[[scenario]]
name = "calm"
[[scenario]]
name = "outage"
fault_rounds = 100
[[policy]]
name = "a"
[[policy]]
name = "b"
tries = [2]
"""
    got = faults(tmp_path, text.replace("GENERATOR", "lesson"))
    expected = (
        'scenario "outage", policy "a": failure_rate must be 0 in a cell with a fault window '
        'for generator "lesson", got 0.025 (and 1 more cells)'
    )
    assert got == [expected]
    assert len(load(tmp_path, text.replace("GENERATOR", "philox")).points) == 4


def test_a_grid_too_large_to_be_meant_is_refused_at_once(tmp_path: Path) -> None:
    values = list(range(1, 1001))
    text = f'title = "t"\n[grid]\ncapacity = {values}\nrounds = {values}\nthreshold = {values}'
    got = faults(tmp_path, text)
    assert got == ["the axes must span <= 1000000 cells, got 1000000000"]


@pytest.mark.parametrize("name", ["a\\nb", "a\\u001b[31mb", "\\u202eb", "  "])
def test_a_name_that_would_disturb_the_terminal_is_refused_without_disturbing_it(
    tmp_path: Path, name: str
) -> None:
    got = faults(tmp_path, f'title = "t"\n[[policy]]\nname = "{name}"\n')
    assert len(got) == 1
    assert "name must be a text of printable characters, got '" in got[0]
    assert got[0].isprintable()


@pytest.mark.parametrize("figure", ["9" * 400, "-" + "9" * 400])
def test_a_number_beyond_every_double_is_a_fault(tmp_path: Path, figure: str) -> None:
    text = f'title = "t"\n[fixed]\nbudget = {figure}\n[[published]]\ncalls = {figure}\n'
    claim = f'[[claim]]\ntext = "c"\nmetric = "calls"\nrelation = "<"\nvalue = {figure}\n'
    got = faults(tmp_path, text + claim)
    assert [fault.partition(" must be")[0] for fault in got] == [
        "[fixed]: budget",
        'claim "c": value',
        "published 1: calls",
    ]


# ---- What is no experiment file at all -------------------------------------------------------


def test_bad_toml_is_one_fault_with_its_line(tmp_path: Path) -> None:
    got = faults(tmp_path, 'title = "t"\nrounds 5\n')
    assert len(got) == 1
    assert got[0].startswith("not a TOML file: ")
    assert "line 2" in got[0]


def test_deeply_nested_toml_is_one_fault(tmp_path: Path) -> None:
    got = faults(tmp_path, "a = " + "[" * 5000)
    assert len(got) == 1
    assert got[0].startswith("not a TOML file: ")


def test_a_missing_file_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path / "no.toml")
    path = tmp_path / "no.toml"
    assert caught.value.faults == [f"{path}: cannot be read: No such file or directory"]


def test_a_missing_file_is_taken_for_one_with_a_near_name_only(tmp_path: Path) -> None:
    (tmp_path / "x_failrate5.toml").touch()
    (tmp_path / "brownout.toml").touch()
    for name, hint in (("nofile", ""), ("brownut", f'; did you mean "{tmp_path}/brownout.toml"?')):
        with pytest.raises(ExperimentError) as caught:
            read(tmp_path / f"{name}.toml")
        assert caught.value.faults == [
            f"{tmp_path}/{name}.toml: cannot be read: No such file or directory{hint}"
        ]


def test_a_folder_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        read(tmp_path)
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(f"{tmp_path}: cannot be read: ")


def test_a_file_that_is_not_utf8_is_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'title = "caf\xe9"')
    with pytest.raises(ExperimentError) as caught:
        read(path)
    assert caught.value.faults == [f"{path}: not a TOML file: byte 12 is not UTF-8"]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device of POSIX")
def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(ExperimentError, match="/dev/zero: longer than 100000000 characters"):
        read("/dev/zero")


# ---- The files that come with the project ----------------------------------------------------

SCENARIOS = ["healthy", "outage (1 s)", "degradation (10 s)"]
POLICIES = {
    "no retries": (1, None),
    "gateway only (3)": (3, None),
    "two layers (3x3)": (9, None),
    "three layers (3x3x3)": (27, None),
    "three layers + budget 0.30": (27, 0.3),
    "three layers + budget 0.10": (27, 0.1),
}
NESTED = "three layers, nested"
"""Stands beside the lesson's in one of the files."""


@pytest.mark.parametrize("name", ["published", "lesson"])
def test_both_shipped_files_have_the_cells_of_the_lesson(name: str) -> None:
    experiment = read(EXPERIMENTS / f"{name}.toml")
    points = [point for point in experiment.points if point.policy != NESTED]
    names = [(p.scenario, p.policy) for p in points]
    assert names == [(scenario, policy) for scenario in SCENARIOS for policy in POLICIES]
    faults_of = {
        "healthy": (0, 0, 0.025),
        "outage (1 s)": (100, 0, 0.0),
        "degradation (10 s)": (1000, 1, 0.0),
    }
    for point in points:
        cell = point.parameters
        got: Any = (cell.fault_rounds, cell.fault_capacity, cell.failure_rate)
        assert got == faults_of[point.scenario]
        assert (cell.max_attempts, cell.budget) == POLICIES[point.policy]
        common = Cell(
            fault_rounds=cell.fault_rounds,
            fault_capacity=cell.fault_capacity,
            failure_rate=cell.failure_rate,
            tries=cell.tries,
            budget=cell.budget,
            chain="flattened",
        )
        assert cell == common  # every other parameter has the lesson's value
    n = len(experiment.points) // 3
    assert experiment.baselines == (0,) * n + (n,) * n + (2 * n,) * n


def test_nested_layers_are_the_lessons_but_for_their_chain() -> None:
    points = {
        (p.scenario, p.policy): p.parameters for p in read(EXPERIMENTS / "lesson.toml").points
    }
    for scenario in SCENARIOS:
        flattened = points[scenario, "three layers (3x3x3)"]
        assert points[scenario, NESTED] == replace(flattened, chain="nested")


def test_both_shipped_files_have_the_same_published_figures() -> None:
    figures = {}
    for name in ("published", "lesson"):
        experiment = read(EXPERIMENTS / f"{name}.toml")
        cells = {point.cell: (point.scenario, point.policy) for point in experiment.points}
        figures[name] = [(cells[p.cell], p.metric, p.value) for p in experiment.published]
    assert figures["lesson"] == figures["published"]
    published = read(EXPERIMENTS / "published.toml").published
    # 5 rows of 5 figures, 10 rows of 7, and 3 in the sensitivity row
    assert len(published) == 5 * 5 + 10 * 7 + 3
    got = {(p.cell, p.metric): (p.value, p.decimals) for p in published}
    expected = {
        (0, "dropped"): (96.0, 0),
        (6, "multiplier"): (1.0, 2),
        (9, "times_usual"): (6.4, 1),
        (11, "window_rate"): (1.54, 2),
        (16, "calls"): (4288.0, 0),
    }
    assert {key: got[key] for key in expected} == expected


def test_the_published_run_has_the_seed_and_generator_of_the_lesson() -> None:
    got = read(EXPERIMENTS / "published.toml")
    assert (got.generator, got.seeds, got.replications) == ("lesson", (20260802,), 1)


def test_the_lesson_is_run_for_many_seeds_and_its_claims_fit_a_terminal() -> None:
    got = read(EXPERIMENTS / "lesson.toml")
    assert (got.generator, got.seed, got.replications) == ("philox", 20260802, 10_000)
    texts = [claim.text for claim in got.claims]
    assert len(texts) > 60
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) <= 60


def test_the_claims_of_the_lesson_cover_its_headlines() -> None:
    claims = read(EXPERIMENTS / "lesson.toml").claims
    got = {(claim.metrics, claim.relation, claim.cells, claim.value) for claim in claims}
    expected = {
        (("window_rate",), "<", (7, 8, 9, 10), None),
        (("calls",), "=", (0, 1, 2, 3), None),
        (("dropped",), "=", (10,), 0.0),
        (("dropped",), "<", (7, 8), None),
        (("times_usual",), "<", (10,), 27.0),
        (("calls",), "=", (16, 17), None),
        (("window_rate",), ">", (10, 11), None),
        (("dropped",), "<", (17, 18), None),
        (("window_rate", "dropped"), ">", (11, 12), None),
    }
    assert expected - got == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[fixed]\nfault_rounds = 10\nrounds = 500", "the fault begins after the last round"),
        (
            "[fixed]\nfault_rounds = 100\nrounds = 600",
            "the fault lasts until the last round, so no recovery is seen",
        ),
        (
            "[fixed]\narrivals_per_second = 601",
            "more requests arrive than the capacity serves, fault or not",
        ),
        (
            '[[policy]]\nname = "a"\n[[policy]]\nname = "b"\ntries = [2]\n'
            '[grid]\nbudget = ["none", 0.5]\n[[exclude]]\npolicy = "a"\nbudget = 0.5',
            "1 cell is compared with nothing: exclude leaves the baseline out",
        ),
        (
            '[[policy]]\nname = "a"\n[[policy]]\nname = "b"\ntries = 5\n'
            '[grid]\nbudget = ["none", 1]\nbackoff_cap = [8, 16]',
            "3 cells repeat others: without retries, budget and backoff change nothing",
        ),
        (
            "[fixed]\nfault_rounds = 100\nrounds = 1300\ntries = 27\nbackoff_cap = 32",
            "a request may wait longer than the run goes on after the fault",
        ),
        ("[fixed]\nfault_rounds = 100\nrounds = 1400\ntries = 27\nbackoff_cap = 32", None),
        (
            "[fixed]\nfault_rounds = 2000\nrounds = 2700\ntries = 9\nbackoff_cap = 16\n"
            "arrivals_per_second = 50000\ncapacity = 600",
            "what the fault leaves behind cannot be served in the rest of the run",
        ),
        (
            "[fixed]\nfault_rounds = 300\ntries = 27\nbackoff_cap = 32\nbudget = 0.3",
            "a budget that never forgets saves up in the calm before the fault: of the retries "
            "that it allows until the fault ends 62 % in default",
        ),
        ("[fixed]\nfault_rounds = 300\nfault_start = 33\ntries = 3\nbudget = 0.3", None),
        (
            "[fixed]\nfault_rounds = 300\ntries = 3\n"
            'budget = {kind = "ratio", ratio = 0.3, window = "10 s"}',
            None,
        ),
        ("[fixed]\nfault_rounds = 10", None),
        (
            "[fixed]\nfaults = [{start = 9, length = 1}, {start = 3990, length = 20}]",
            "the fault lasts until the last round, so no recovery is seen",
        ),
        ("[fixed]\ntimeout = 5", "timeout and cancel are about calls that wait"),
        ("[fixed]\ncancel = true", "timeout and cancel are about calls that wait"),
        (
            '[fixed]\nqueue = 9\ntimeout = "1 s"\ndeadline = "990 ms"',
            "timeout is not shorter than a deadline, so no time is left to retry",
        ),
        ("[fixed]\nqueue = 9\ntimeout = 5\ndeadline = 5", None),
        (
            "[fixed]\nqueue = 9\ntimeout = 5\ndeadline = 5\ntries = 2\nbackoff_base = 32",
            "timeout is not shorter than a deadline, so no time is left to retry",
        ),
        (
            "[fixed]\nqueue = 9\ntimeout = 5\ndeadline = 6\ntries = 2",
            "rounds of 10 ms decide whether calls are served and retried in time",
        ),
        ("[fixed]\nqueue = 9\ntimeout = 5\ndeadline = 7\ntries = 2", None),
        (
            "[fixed]\nqueue = 9\ncancel = true",
            "cancel changes nothing: without timeout and deadline",
        ),
        ("[fixed]\nqueue = 9\ncancel = true\ndeadline = 9", None),
        ('[fixed]\narrivals_per_second = "400/s"', "without a queue what arrives in a round"),
        ('[fixed]\narrivals_per_second = "400/s"\nqueue = 6', None),
        (
            '[fixed]\nfault_rounds = 9\ntries = 2\nfailure_rate = "20 %"\nbackoff_base = 32',
            "served calls fail and are retried in the calm, too",
        ),
        (
            '[fixed]\nbreaker = {kind = "resilience4j"}\ncapacity = 5\ntries = [3, 4]',
            "the calls that a half-open breaker permits may come in one round",
        ),
        ('[fixed]\nbreaker = {kind = "resilience4j"}\ncapacity = 5', None),
        (
            '[fixed]\nqueue = 9\nrounds = "75 s"\nfault_rounds = "6 s"\n'
            'breaker = {kind = "resilience4j"}\n',
            "the run ends while a breaker or a budget may still act on the fault, so a service "
            "that would come back counts as lost: a breaker stays open for 60 s, and 64 s are left "
            "after the fault. Raise rounds",
        ),
        (
            '[fixed]\nqueue = 9\nrounds = "76 s"\nfault_rounds = "6 s"\n'
            'breaker = {kind = "consecutive"}\n',
            None,
        ),
        (
            '[fixed]\nqueue = 9\nfault_rounds = 9\nbudget = {kind = "sre", k = 2}\n',
            "the run ends while a breaker or a budget may still act on the fault",
        ),
        ('[fixed]\nqueue = 9\nfault_rounds = 9\nbudget = {kind = "sre"}\ntries = 2', None),
        (
            '[fixed]\nqueue = 99\nround = "1 ms"\narrivals_per_second = "1200/s"\n'
            'capacity = "5000/s"',
            "peak is the most calls in one round, and chance alone brings more than the capacity",
        ),
        ('[fixed]\nqueue = 99\narrivals_per_second = "1200/s"\ncapacity = "5000/s"', None),
        (
            "[fixed]\nqueue = 9\nfault_rounds = 9\nfailure_rate = 0.01\ntries = 2\n"
            'clients = 500\nbudget = {kind = "grpc"}\n',
            "the run ends while a breaker or a budget may still act on the fault",
        ),
        ("[fixed]\nqueue = 4000\ntimeout = 9", "the queue has room for every call of the run"),
        ("[fixed]\nqueue = 4000\ntimeout = 9\ntries = 2", None),
        (
            "[fixed]\nbudget = 10\ntries = 3",
            "a budget allows as many retries as the tries can make",
        ),
        (
            '[fixed]\nbudget = {kind = "ratio", ratio = "1000 %"}\ntries = 4',
            "a budget allows as many",
        ),
        ("[fixed]\nbudget = 2\ntries = 4", None),
        ("[fixed]\nbudget = 3\ntries = [3, 3]", None),
        ('[fixed]\nbudget = 3\ntries = [3, 3]\nbudget_scope = "layer"', "a budget allows as many"),
        ("[fixed]\nbudget = 10", None),
    ],
)
def test_what_is_allowed_but_hardly_meant_is_remarked(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(f'title = "t"\n{text}\n')
    experiment = read(path)
    got = (*experiment.remarks, *experiment.hints)
    assert len(got) == (expected is not None)
    assert all(str(remark).startswith(str(expected)) for remark in got)


def test_a_value_that_is_nowhere_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "at.toml"
    axis = '[grid]\nbackoff_base = ["20 ms", "50 ms"]\n'
    claim = '[[claim]]\ntext = "c"\nmetric = "calls"\nrelation = "<"\nvalue = 3\n'
    at = 'claim "c": at: backoff_base'
    for text, expected in (
        (claim, f"{at} is missing, it must be one of 20 ms, 50 ms"),
        (claim + 'at = {backoff_base = "30 ms"}', f"{at} must be one of 20 ms, 50 ms, got 30 ms"),
        ('[[exclude]]\nbackoff_base = "30 ms"', "backoff_base is nowhere 30 ms; there are 20 ms"),
        (
            'capacity = {from = "90/s", to = "70/s", steps = 3}',
            "capacity: from must be < to, got 90/s and 70/s",
        ),
    ):
        path.write_text(f'title = "t"\n[fixed]\ntries = [3]\n{axis}{text}\n')
        with pytest.raises(ExperimentError, match=expected):
            read(path)


def test_durations_within_a_round_of_each_other_are_named_with_their_policies(
    tmp_path: Path,
) -> None:
    """A retry follows a time-out of 250 ms before a deadline of 250 ms only by rounding."""
    path = tmp_path / "ties.toml"
    path.write_text("""title = "t"
[fixed]
capacity = "5000/s"
fault_rounds = "9 s"
fault_capacity = "750/s"
queue = 3000
timeout = "250 ms"
backoff_base = "50 ms"
tries = [3, 3]
[[policy]]
name = "safe"
[[policy]]
name = "tie"
deadline = ["1 s", "250 ms"]
[[policy]]
name = "less"
deadline = ["1 s", "240 ms"]
[[policy]]
name = "more"
deadline = ["1 s", "300 ms"]
[[policy]]
name = "full"
queue = 187
[[policy]]
name = "not full"
queue = 180
[[policy]]
name = "in the calm"
queue = 1250
""")
    no_time, tied = read(path).remarks
    assert no_time.endswith("so no time is left to retry a call that timed out, in less")
    named = re.split(": |; |[.] ", tied)[1:4]
    assert named == [
        "timeout 250 ms and deadline 250 ms in policy tie",
        "timeout 250 ms and 249 ms for a full queue of 187 calls in the fault in policy full",
        "timeout 250 ms and 250 ms for a full queue of 1,250 calls in the calm in policy "
        "in the calm",
    ]
    cells = [point.parameters for point in read(path, overrides={"round": "1 ms"}).points]
    got = [bool(list(ties(cell))) for cell in cells]
    assert got == [False, False, False, False, True, False, True]


@pytest.mark.parametrize("capacity", [6, 6.5, 3, 12])
def test_chance_makes_calls_fail_in_the_calm_as_the_poisson_sum_says(capacity: float) -> None:
    """Of 400/s in rounds of 10 ms and a capacity of 600/s, 4.9 %; beyond what the load does."""
    chance = [math.exp(-4) * 4**n / math.factorial(n) for n in range(100)]
    rooms = [int(capacity), math.ceil(capacity)]
    beyond = [
        math.fsum(p * max(0, n - room) for n, p in enumerate(chance)) - max(0, 4 - room)
        for room in rooms
    ]
    got = overflow(Cell(arrivals_per_second=400, capacity=capacity))
    assert got == pytest.approx(sum(beyond) / 2 / 4, rel=1e-6)  # of 6.5, every second room


def test_traffic_that_varies_overflows_by_the_mean_of_each_round() -> None:
    rates = Cell(rounds=100, traffic=Traffic.of({"rates": [[0, 4.0], [50, 4.0], [50, 2.0]]}))
    four, two = (overflow(Cell(arrivals_per_second=100 * x)) for x in (4, 2))
    assert overflow(rates) == pytest.approx((4 * four + 2 * two) / 6)
    known = Cell(rounds=100, traffic=Traffic.of({"counts": [700], "per": 100}))
    assert overflow(known) == 0, "7 in every round exceed 6 for certain, not by chance"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            'backoff_base = "100 ms"\n[grid]\nbackoff_cap = ["100 ms", "1 s", "4 s"]',
            "backoff_cap 1 s, 4 s: the same rows in some cells or all, in three: the waits",
        ),
        (
            "[grid]\nclients = [1, 50]",
            "clients 1, 50: the same rows in",
        ),
        ("budget = 0.1\n[grid]\nclients = [1, 50]", None),
        (
            '[grid]\ndeadline = ["60 ms", "70 ms"]',
            "deadline 60 ms, 70 ms: the same rows in",
        ),
        ('queue = 9\n[grid]\ndeadline = ["60 ms", "70 ms"]', None),
        ('jitter = "none"\n[grid]\njitter_share = [0.1, 0.2]', "jitter_share 10 %, 20 %: the same"),
    ],
)
def test_values_that_change_nothing_are_remarked_and_have_the_same_rows(
    tmp_path: Path, values: str, expected: str | None
) -> None:
    policies = '[[policy]]\nname = "three"\ntries = [3]\n[[policy]]\nname = "nine"\ntries = [9]\n'
    path = tmp_path / "idle.toml"
    text = f'title = "t"\n[fixed]\nfault_rounds = 30\nrounds = 600\n{values}\n{policies}'
    path.write_text(text)
    experiment = read(path)
    told = [remark for remark in experiment.remarks if "the same rows" in remark]
    assert len(told) == (expected is not None)
    assert all(remark.startswith(str(expected)) for remark in told)
    cells = [point.parameters for point in experiment.points]
    rows = simulate(cells, replications=5, seed=1)
    alike: dict[object, list[pl.DataFrame]] = {}
    for number, cell in enumerate(cells):
        of_cell = rows.filter(cell=number).drop("cell", "expired", strict=False)
        alike.setdefault(effect_of(cell), []).append(of_cell)
    assert (len(alike) < len(cells)) == (expected is not None)
    for first, *others in alike.values():
        assert all(other.equals(first) for other in others)


EVERYTHING = """
title = "everything"
baseline = "b"
layer_names = ["x", "y"]
[precision]
metric = "calls"
relative = 0.01
min = 100
max = 400
[thresholds]
holds = 0.9
[fixed]
rounds = 500
tries = [2, 2]
round = "20 ms"
arrivals_per_second = "30/s"
fault_start = "2 s"
[[scenario]]
name = "s1"
[[scenario]]
name = "s2"
fault_rounds = "1 s"
[[policy]]
name = "a"
budget = {kind = "grpc", max_tokens = 20}
[[policy]]
name = "b"
budget = [{kind = "grpc"}, "none"]
budget_scope = "layer"
[grid]
backoff_cap = ["1 s", "2 s"]
[design]
kind = "sobol"
points = 2
capacity = {from = 3, to = 4}
[[exclude]]
policy = "a"
backoff_cap = {above = "1.5 s"}
[[claim]]
text = "t"
scenario = "s1"
metric = "calls"
policies = ["b"]
relation = "<"
value = 3.50
at = {backoff_cap = "1 s", capacity = 3}
[[published]]
scenario = "s1"
policy = "b"
at = {backoff_cap = "1 s", capacity = 4}
multiplier = 1.20
"""


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        'title = "g"\ngrid.budget = {kind = "grpc", max_tokens = [10, 20]}\n'
        '[[exclude]]\nbudget = [{kind = "grpc", max_tokens = 20}]\n',
        'title = "f"\nfixed.faults = [{start = "1 s", length = 9}, {start = 900, length = 9}]\n',
        *(path.read_text("utf-8") for path in sorted(Path("experiments").glob("*.toml"))),
    ],
)
def test_an_experiment_is_read_again_from_its_source(tmp_path: Path, text: str) -> None:
    shutil.copy("experiments/replay.csv", tmp_path)
    (tmp_path / "file.toml").write_text(text, "utf-8")
    expected = read(tmp_path / "file.toml")
    got = of_source(json.loads(json.dumps(expected.source)), expected.path)
    assert got == expected


def test_faults_are_a_list_of_tables_with_units(tmp_path: Path) -> None:
    text = """title = "t"
[fixed]
rounds = "60 s"
[[scenario]]
name = "flapping"
faults = [
    {start = "5 s", length = "1 s"},
    {start = "8 s", length = 50, capacity = "100/s", failure_rate = "30 %", capacity_end = 6},
]
[[scenario]]
name = "none"
[grid]
queue = [0, 100]
cancel = [true, false]
[[exclude]]
queue = 0
cancel = true
"""
    path = tmp_path / "faults.toml"
    path.write_text(text)
    cells = [point.parameters for point in read(path).points]
    assert len(cells) == 6
    expected = (Fault(500, 100), Fault(800, 50, 1, 0.3, 6))
    assert [cell.faults for cell in cells] == [expected] * 3 + [()] * 3
    assert [cell.cancel for cell in cells] == [False, True, False] * 2
    assert cells[0].window == (500, 850)
    for wrong, message in [
        (text.replace("length = 50", 'length = "505 ms"'), "faults.length must be a whole number"),
        (text.replace("8 s", "5.5 s"), "faults must follow one another, got number 2 that begins"),
        (text.replace("length = 50", "lenght = 50"), "number 2: fault has no 'lenght'"),
        (text.replace("rounds =", "fault_rounds = 9\nrounds ="), "beside faults, which say it all"),
    ]:
        path.write_text(wrong)
        with pytest.raises(ExperimentError) as caught:
            read(path)
        assert any(message in fault for fault in caught.value.faults), caught.value.faults


def test_a_table_of_cells_that_is_older_than_a_parameter_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text('title = "t"\n[fixed]\ntries = [3, 3]\nchain = "flattened"\n')
    experiment = read(path)
    table = cell_table(experiment)
    older = table.drop("chain", "queue", "timeout", "cancel", "faults", "fault_failure_rate")
    assert completed(older).select(table.columns).equals(table)
    assert cells_of(older) == {0: experiment.points[0].parameters}
