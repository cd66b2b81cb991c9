"""A cell is checked, immutable and named; the tables that the kernel reads are exact."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pickle
import random
import shutil
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

import mc
from mc.model import (
    COUNTERS,
    METRICS,
    PARAMETERS,
    RATIOS,
    Cell,
    arrival_thresholds,
    parse_parameter,
    tables,
    traffic_key,
    units,
)
from mc.model.breakers import Consecutive
from mc.model.faults import Fault
from mc.model.traffic import Traffic
from mc.model.waits import ceilings

INT32: Final = 2**31 - 1

LESSON: Final[dict[str, Any]] = {
    "rounds": 4000,
    "rounds_per_second": 100.0,
    "arrivals_per_second": 97.22,
    "traffic": None,
    "capacity": 6,
    "fault_start": 500,
    "fault_rounds": 0,
    "fault_capacity": 0,
    "failure_rate": 0.0,
    "fault_failure_rate": None,
    "faults": (),
    "queue": 0,
    "timeout": None,
    "cancel": False,
    "tries": (1,),
    "chain": "nested",
    "backoff_base": 2.0,
    "backoff_factor": 2.0,
    "backoff_cap": 32.0,
    "jitter": "full",
    "jitter_share": 0.2,
    "first_wait": None,
    "deadline": None,
    "budget": None,
    "budget_scope": "chain",
    "breaker": None,
    "clients": 1,
    "threshold": 20,
}

# smallest and largest value of each parameter; the other parameters must be chosen to fit
ENDS: Final[dict[str, tuple[Any, Any]]] = {
    "rounds": (1, 4_000_000),
    "rounds_per_second": (5e-324, 1e308),
    "arrivals_per_second": (0.0, 10_000_000.0 * 100),
    "traffic": (None, Traffic(rates=((0, 0.5), (8, 2.0)), bursts=((3, 9),))),
    "capacity": (0, INT32),
    "fault_start": (0, INT32),
    "fault_rounds": (0, INT32),
    "fault_capacity": (0, INT32),
    "failure_rate": (0.0, 1.0),
    "fault_failure_rate": (0.0, 1.0),
    "faults": ((), (Fault(0, 1), Fault(1, INT32, 2.5, 1.0, INT32))),
    "queue": (0, 10_000_000),
    "timeout": (1, INT32),
    "cancel": (False, True),
    "tries": ((1,), (65_536,)),
    "chain": ("nested", "flattened"),
    "backoff_base": (0.0, float(INT32)),
    "backoff_factor": (1.0, 1e308),
    "backoff_cap": (0.0, float(INT32)),
    "jitter": ("equal", "polly"),
    "jitter_share": (0.0, 1.0),
    "first_wait": (0.0, float(INT32)),
    "deadline": (0, (INT32,)),
    "budget": (0.0, 1e6),
    "budget_scope": ("chain", "layer"),
    "breaker": (None, Consecutive(0, 1, 1)),
    "clients": (1, 10_000),
    "threshold": (0, INT32),
}

COUNT: Final = "a whole number >= 0 and <= 2147483647"
NUMBER: Final = "a number >= 0 and <= 2147483647"
EACH: Final = ", or a list with one for each layer"
PER_LAYER: Final = {"backoff_base", "backoff_factor", "backoff_cap", "deadline", "budget"}

RULES: Final[dict[str, str]] = {
    "rounds": "a whole number >= 1 and <= 4000000",
    "rounds_per_second": "a number > 0",
    "arrivals_per_second": "a number >= 0",
    "traffic": 'none or a table such as {rates = [[0, "50/s"], ["30 s", "200/s"]]}',
    "capacity": NUMBER,
    "fault_start": COUNT,
    "fault_rounds": COUNT,
    "fault_capacity": NUMBER,
    "failure_rate": "a number >= 0 and <= 1",
    "fault_failure_rate": "none or a number >= 0 and <= 1",
    "faults": "a list of tables {start, length, capacity, failure_rate, capacity_end}",
    "queue": "a whole number >= 0 and <= 10000000",
    "timeout": "none or a whole number >= 1 and <= 2147483647",
    "cancel": "true or false",
    "tries": "a list of whole numbers, each >= 1 and <= 65536",
    "chain": "one of nested, flattened",
    "backoff_base": NUMBER,
    "backoff_factor": "a number >= 1",
    "backoff_cap": NUMBER,
    "jitter": "one of full, equal, none, plus_minus, decorrelated, polly",
    "jitter_share": "a number >= 0 and <= 1",
    "first_wait": "none or " + NUMBER,
    "deadline": "none or " + COUNT,
    "budget": "none or a number >= 0 and <= 1000000",
    "budget_scope": "one of chain, layer",
    "breaker": 'none or a table such as {kind = "resilience4j"}',
    "clients": "a whole number >= 1 and <= 10000",
    "threshold": COUNT,
}

NOT_A_NUMBER: Final[list[Any]] = [
    "6",
    None,
    True,
    [6],
    {},
    1j,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
]

OUTSIDE: Final[dict[str, list[Any]]] = {
    "rounds": [0, -1, 4_000_001, 0.5],
    "rounds_per_second": [0, 0.0, -0.0, -1e-9],
    "traffic": ["poisson", 1],
    "arrivals_per_second": [-1e-9],
    "capacity": [-1, -0.1, 2**31],
    "fault_start": [-1, 0.5, 2**31],
    "fault_rounds": [-1, 99.9, 2**31],
    "fault_capacity": [-1, 2**31],
    "failure_rate": [-1e-9, 1.000001],
    "fault_failure_rate": [-1e-9, 1.5],
    "faults": ["outage", [{"kind": "outage"}]],
    "queue": [-1, 0.5, 10_000_001],
    "timeout": [0, 0.5, 2**31],
    "cancel": [0, 1, "true"],
    "tries": [[], (), [0], [3, 0], [-1], [2.5], [65_537], [True], [None], ["3"], "3x3", [[3]]],
    "chain": ["nest", "Nested"],
    "backoff_base": [-0.5, 2.0**31, [2, -1], [2, [2]], (None, 2)],
    "backoff_factor": [0.5, [2, 0]],
    "backoff_cap": [-0.5, 2.0**31],
    "jitter": ["half", "FULL"],
    "jitter_share": [-0.1, 1.5],
    "first_wait": [-1, [2]],
    "deadline": [-1, 0.5, 2**31, [20, 0.5], [], ()],
    "budget": [-1, -0.3, 1_000_001],
    "budget_scope": ["chains", "layers"],
    "breaker": ["resilience4j", 1],
    "clients": [0, 10_001, 1.5],
    "threshold": [-1, 0.5, 2**31],
}


def faults(**parameters: Any) -> list[str]:
    with pytest.raises(ValueError, match=r"^Cell: ") as caught:
        Cell(**parameters)
    return str(caught.value).splitlines()


# Parameters ---------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_lesson() -> None:
    got = Cell().parameters
    assert got == LESSON
    assert {name: parameter.default for name, parameter in PARAMETERS.items()} == LESSON


@pytest.mark.parametrize("name", PARAMETERS)
def test_both_ends_of_a_range_are_allowed(name: str) -> None:
    # no traffic, so that neither the number of calls nor the rate stands in the way
    room = {"arrivals_per_second": 0.0} if name != "arrivals_per_second" else {"rounds": 1}
    got = [getattr(Cell(**(room | {name: end})), name) for end in ENDS[name]]
    expected = list(ENDS[name])
    assert got == expected


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUTSIDE.items() for value in values]
)
def test_a_value_out_of_range_is_refused_with_the_rule(name: str, value: Any) -> None:
    got = faults(**{name: value})
    each = EACH if name in PER_LAYER and isinstance(value, list | tuple) else ""
    expected = f"Cell: {name} must be {RULES[name]}{each}, got {value!r}"
    assert got == [expected]


def test_a_single_number_of_tries_is_one_layer() -> None:
    got = Cell(tries=3).tries  # type: ignore[arg-type]
    expected = (3,)
    assert got == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in PARAMETERS
        for value in NOT_A_NUMBER
        if name != "tries"
        and not (value is None and PARAMETERS[name].default is None)
        and not (value is True and name == "cancel")
        and not (value == {} and PARAMETERS[name].kind.tables)  # a table that lacks its entries
        and not (value == [6] and name in PER_LAYER)
    ],
)
def test_what_is_no_finite_number_is_refused(name: str, value: Any) -> None:
    dimension = PARAMETERS[name].dimension
    if value == "6" and dimension:  # as of a text that lacks its unit
        rule = PARAMETERS[name].kind.rule
        cure = f"; write a number, or a text such as {units.FORMS[dimension]}"
    else:
        rule, cure = RULES[name], ""
    got = faults(**{name: value})
    expected = [f"Cell: {name} must be {rule}, got {value!r}{cure}"]
    assert got == expected


def test_the_truth_values_of_numpy_are_no_numbers_either() -> None:
    with pytest.raises(ValueError, match="capacity") as caught:
        parse_parameter("capacity", np.True_)
    got = str(caught.value)
    expected = f"capacity must be {NUMBER}, got {np.True_!r}"
    assert got == expected


def test_all_faults_are_told_at_once() -> None:
    got = faults(capacity=-2.5, tries=[0], budget=-1)
    expected = [
        f"Cell: capacity must be {NUMBER}, got -2.5",
        f"Cell: tries must be {RULES['tries']}, got [0]",
        f"Cell: budget must be {RULES['budget']}, got -1",
    ]
    assert got == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"arrivals_per_second": 1000, "rounds": 2_000_000},
            "rounds * arrivals per round must be <= 10000000 requests, got 20000000",
        ),
        ({"tries": [257, 256]}, "the product of tries must be <= 65536, got 65792"),
        (
            {"arrivals_per_second": 100, "rounds": 1_000_000, "tries": [50, 50]},
            "rounds * arrivals per round * product of tries must be <= 2000000000 calls, "
            "got 2500000000",
        ),
        (
            {"tries": [2] * 9},
            'tries must have <= 8 layers with chain = "nested", got 9',
        ),
        (
            {"tries": [2, 3, 4], "backoff_base": [1, 2]},
            "backoff_base must have one value for each layer of tries (3), got 2",
        ),
        (
            {"tries": [2, 3], "chain": "flattened", "backoff_cap": [8, 8]},
            'backoff_cap must be one value with chain = "flattened" (one layer), got a list',
        ),
        (
            {"tries": [2, 3], "budget": [0.1, "none"]},
            'budget must be one value with budget_scope = "chain", got a list',
        ),
        (
            {"tries": [3, 3], "jitter": "decorrelated", "backoff_base": [1, 2**29 + 1]},
            'backoff_base must be <= 536870912 with jitter = "decorrelated", got 5.36871e+08',
        ),
        (
            {"tries": [28], "jitter": "polly", "backoff_base": 8},
            'backoff_base * 2**tries must be <= 1073741824 with jitter = "polly", got 2**31',
        ),
    ],
)
def test_parameters_that_cannot_stand_together_are_refused(
    parameters: dict[str, Any], expected: str
) -> None:
    got = faults(**parameters)
    assert got == [f"Cell: {expected}"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, ": length is missing, it must be a whole number >= 1 and <= 2147483647"),
        ({"length": 0}, ": length must be a whole number >= 1 and <= 2147483647, got 0"),
        ({"length": 9, "capacity": -1}, f": capacity must be {NUMBER}, got -1"),
        (
            {"length": 9, "rate": 0.3},
            ": fault has no 'rate'; it has start, length, capacity, failure_rate, capacity_end",
        ),
    ],
)
def test_a_fault_with_a_fault_names_its_number(entry: dict[str, Any], expected: str) -> None:
    got = faults(faults=[{"start": 0, "length": 5}, {"start": 5} | entry])
    assert got == [f"Cell: faults, number 2{expected}"]


def test_faults_follow_one_another_and_stand_alone() -> None:
    got = faults(faults=[{"start": "2 s", "length": "1 s"}, {"start": 250, "length": 9}])
    assert got == [
        "Cell: faults must follow one another, got number 2 that begins at 2.5 s (round 250) and "
        "number 1 until 3 s (round 300)"
    ]
    got = faults(faults=[{"start": 0, "length": 5}], fault_rounds=9, fault_start=5)
    assert got == [
        f"Cell: {name} must not be given beside faults, which say it all, got {value}"
        for name, value in (("fault_start", 5), ("fault_rounds", 9))
    ]


def test_extreme_values_together_give_a_message_and_no_other_error() -> None:
    got = faults(arrivals_per_second=1e308, rounds_per_second=1e-308, tries=[65_536] * 8)
    assert len(got) == 2
    assert all("must be <=" in fault for fault in got)


def test_values_are_brought_to_their_own_types() -> None:
    cell = Cell(
        rounds=np.int64(600),  # type: ignore[arg-type]
        capacity=8.0,
        backoff_cap=8,
        failure_rate=np.float32(0.5),  # type: ignore[arg-type]
        tries=[3.0, 1],  # type: ignore[arg-type]
        budget="none",  # type: ignore[arg-type]
    )
    got = [cell.rounds, cell.capacity, cell.backoff_cap, cell.failure_rate, cell.tries, cell.budget]
    expected = [600, 8, 8.0, 0.5, (3, 1), None]
    assert got == expected
    got_types = [type(value) for value in (*got[:4], *cell.tries)]
    expected_types = [int, int, float, float, int, int]
    assert got_types == expected_types


def test_every_parameter_and_every_metric_says_its_unit_and_meaning() -> None:
    assert all(parameter.meaning for parameter in PARAMETERS.values())
    without = {name for name, parameter in PARAMETERS.items() if not parameter.unit}
    kinds = {"chain", "jitter", "budget_scope", "breaker", "cancel", "faults", "traffic"}
    assert without == {"backoff_factor", *kinds}
    assert all(metric.meaning for metric in METRICS.values())
    got = [name for name, metric in METRICS.items() if not metric.unit]
    expected = ["times_usual"]  # a pure number
    assert got == expected
    assert (*COUNTERS, *RATIOS) == tuple(METRICS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_value_survives_its_column_and_its_default_is_canonical(name: str) -> None:
    kind, default = PARAMETERS[name].kind, PARAMETERS[name].default
    for value in (default, *(kind.parse(end) for end in ENDS[name])):
        assert kind.from_column(kind.to_column(value)) == value
        assert kind.parse(value) == value
    got = kind.parse(PARAMETERS[name].toml_default)
    assert got == default
    assert type(got) is type(default)


ADDED: Final = """
    patience: float = declare(real(0, 90), 30.0, "s", "how long a client waits")
    threshold: int ="""

USES: Final = """
import json, sys
import jsonschema, mc
from mc import experiment
from mc.model import PARAMETERS
text = 'title = "t"\\n[grid]\\npatience = [10, 20]\\n[[exclude]]\\npatience = {above = 15}'
open("a.toml", "w").write(text)
open("b.toml", "w").write(text.replace("10", "100"))
read = experiment.read("a.toml")
try:
    experiment.read("b.toml")
except experiment.ExperimentError as error:
    fault = str(error)
schema = experiment.json_schema()
is_valid = jsonschema.Draft7Validator(schema).is_valid
json.dump({
    "cells": experiment.cell_table(read)["patience"].to_list(),
    "unit": experiment.CELL_COLUMNS["patience"].unit,
    "fault": fault,
    "schema": [is_valid({"title": "t", "fixed": {"patience": x}}) for x in (10, 100)],
    "described": schema["definitions"]["patience"]["description"],
    "template": "#     patience = 30" in experiment.template("a.toml"),
    "doc": "patience : float" in mc.Cell.__doc__,
    "identity": mc.Cell(patience=30).identity == mc.Cell().identity != mc.Cell(patience=3).identity,
}, sys.stdout)
"""


def test_a_parameter_is_declared_in_one_place(tmp_path: Path) -> None:
    """One line more in `Cell`, and files, messages, schema, columns and help know it."""
    package = Path(mc.__file__).parent
    shutil.copytree(package, tmp_path / "mc", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "mc" / "model" / "cell.py"
    text = source.read_text("utf-8")
    assert text.count("\n    threshold: int =") == 1
    source.write_text(text.replace("\n    threshold: int =", ADDED), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", USES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    got = json.loads(run.stdout)
    expected = {
        "cells": [10.0],
        "unit": "s",
        "fault": "b.toml: [grid]: patience must be a number >= 0 and <= 90, got 100",
        "schema": [True, False],
        "described": "how long a client waits (s): a number >= 0 and <= 90",
        "template": True,
        "doc": True,
        "identity": True,
    }
    assert got == expected


# Immutable, equal, named --------------------------------------------------------------------------


def test_a_cell_made_of_checked_parameters_is_the_same_cell() -> None:
    cell = Cell(tries=(3, 3), budget=0.3, fault_rounds=100)
    got = Cell.from_checked(cell.parameters)
    assert got == cell
    assert (hash(got), got.identity, repr(got)) == (hash(cell), cell.identity, repr(cell))
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.capacity = 7  # type: ignore[misc]


def test_a_cell_cannot_be_changed() -> None:
    cell = Cell(tries=[3, 3])  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        cell.capacity = 7  # type: ignore[misc]
    assert isinstance(cell.tries, tuple)


def test_changing_the_list_that_was_given_changes_no_cell() -> None:
    given = [3, 3]
    cell = Cell(tries=given)  # type: ignore[arg-type]
    given.append(3)
    assert cell.tries == (3, 3)


def test_cells_with_equal_parameters_are_one_cell() -> None:
    ways = [
        Cell(backoff_cap=8, tries=(3, 3), budget=0.0),
        Cell(backoff_cap=8.0, tries=[3, 3], budget=-0.0),  # type: ignore[arg-type]
        dataclasses.replace(Cell(backoff_cap=8, budget=0), tries=(3, 3)),
        pickle.loads(pickle.dumps(Cell(backoff_cap=8, tries=(3, 3), budget=0))),
    ]
    assert len(set(ways)) == 1
    assert len({cell.identity for cell in ways}) == 1


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_changes_the_identity(name: str) -> None:
    values: dict[str, Any] = {
        **{"tries": (3,), "budget": 0.3, "failure_rate": 0.5, "jitter_share": 0.5},
        **{"chain": "flattened", "jitter": "none", "budget_scope": "layer"},
        **{"fault_failure_rate": 0.5, "faults": [{"start": 1, "length": 2}], "cancel": True},
        "breaker": {"kind": "consecutive"},
        "traffic": {"bursts": [[500, 3]]},
    }
    one = Cell(tries=(2, 2))
    other = dataclasses.replace(one, **{name: values.get(name, 7)})
    assert other.identity != one.identity
    assert other != one


def test_the_identity_sees_the_last_bit_of_a_float() -> None:
    got = {Cell(budget=0.3).identity, Cell(budget=math.nextafter(0.3, 1)).identity}
    assert len(got) == 2


def test_layers_are_part_of_the_identity_even_where_they_are_flattened() -> None:
    tries = [(9,), (3, 3), (3, 3, 1)]
    got = {Cell(tries=t, chain="flattened").identity for t in tries}
    assert len(got) == 3


def test_a_cell_that_says_nothing_of_its_chain_was_flattened_and_is_nested() -> None:
    """So shards that were made before there were nested layers are not taken for theirs."""
    flattened, nested = (Cell(tries=(3, 3), chain=kind) for kind in ("flattened", "nested"))
    before = {"tries": [3, 3]}
    text = json.dumps(before, sort_keys=True)
    assert flattened.identity == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert nested == Cell(tries=(3, 3))
    assert nested.identity != flattened.identity
    one_layer = {Cell(tries=(3,), chain=kind).identity for kind in ("flattened", "nested")}
    assert len(one_layer) == 1


def test_identities_are_pinned() -> None:
    """Shards on disk carry these names: a change would orphan every results folder."""
    cell = Cell(fault_rounds=100, tries=(3, 3, 3), chain="flattened", budget=0.3)
    got = [Cell().identity, cell.identity]
    expected = ["44136fa355b3678a", "58eb5628443d4b95"]
    assert got == expected


def test_another_process_gives_the_same_identity() -> None:
    code = "import mc; print(mc.Cell(tries=(3, 3), budget=0.3).identity)"
    got = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    expected = {Cell(tries=(3, 3), budget=0.3).identity}
    assert got == expected


# Bounds -------------------------------------------------------------------------------------------


def brute_longest_wait(cell: Cell) -> int:
    """Sum the longest draw after every attempt of flattened layers but the last, exactly."""
    total = 0
    given = cell.backoff_base, cell.backoff_cap
    base, cap = (Fraction(rounds) for rounds in given if not isinstance(rounds, tuple))
    for n in range(cell.max_attempts - 1):
        ceiling = min(cap, base * 2**n)
        # wait = 1 + floor(u * ceiling) with u < 1: the largest whole number below the ceiling
        total += 1 + max(0, math.ceil(ceiling) - 1)
    return total


def test_the_longest_wait_of_27_attempts_is_734_rounds() -> None:
    got = Cell(tries=(3, 3, 3), chain="flattened").longest_wait
    expected = 2 + 4 + 8 + 16 + 22 * 32
    assert got == expected == 734


@pytest.mark.parametrize(
    ("tries", "base", "cap"),
    [
        ((1,), 2, 32),
        ((2,), 2, 32),
        ((3, 3), 2, 32),
        ((3, 3, 3), 0, 32),
        ((3, 3, 3), 2, 0),
        ((3, 3, 3), 0.3, 32),
        ((3, 3, 3), 2.5, 7.75),
        ((3, 3, 3), 64, 32),
        ((3, 3, 3), 1, 1),
        ((200, 6), 1e-3, 12.5),
        ((5000,), 1.5, INT32),
    ],
)
def test_the_longest_wait_equals_the_sum_over_attempts(
    tries: tuple[int, ...], base: float, cap: float
) -> None:
    cell = Cell(
        tries=tries,
        chain="flattened",
        backoff_base=base,
        backoff_cap=cap,
        arrivals_per_second=0,
    )
    got = cell.longest_wait
    expected = brute_longest_wait(cell)
    assert got == expected


def test_the_longest_wait_is_right_for_random_cells() -> None:
    choice = random.Random(1)
    for _ in range(300):
        cell = Cell(
            tries=tuple(choice.randint(1, 5) for _ in range(choice.randint(1, 4))),
            backoff_base=choice.choice([0, 0.1, 1, 2, choice.uniform(0, 50)]),
            backoff_cap=choice.choice([0, 0.5, 1, 32, choice.uniform(0, 500)]),
            rounds=10,
            chain="flattened",
        )
        got = cell.longest_wait
        expected = brute_longest_wait(cell)
        assert got == expected, cell


@pytest.mark.parametrize("base", [5e-324, 1e-300, 1e-9, 0.3, 2.0, 1e9])
def test_the_ceiling_doubles_up_to_the_cap(base: float) -> None:
    """Bases below 1e-292 too: 2**1000 alone does not lift them to the cap."""
    backoff = Cell(backoff_base=base, backoff_cap=1000).layers[0].backoff
    found = ceilings(backoff, 65_536)
    for attempt in (0, 1, 30, 900, 1023, 1050, 1100, 65_535):
        got = found[attempt]
        expected = min(Fraction(1000), Fraction(base) * 2**attempt)
        assert Fraction(got) == expected, attempt


# Tables -------------------------------------------------------------------------------------------


def exact_thresholds(rate: float, bits: int = 400) -> list[int]:
    """Give floor(2**64 * P(N <= k)) up to 2**64 - 1, in whole numbers of 2**-bits.

    The sum of mean**k / k! over its own total: no exponential function is needed, and every
    step is cut off by less than one unit in the last of 400 bits.
    """
    mean = Fraction(rate)
    terms = [1 << bits]
    while terms[-1]:
        terms.append(terms[-1] * mean.numerator // (mean.denominator * len(terms)))
    total = sum(terms)
    top = 2**64 - 1
    thresholds, so_far = [], 0
    for term in terms:
        so_far += term
        thresholds.append(min((so_far << 64) // total, top))
        if thresholds[-1] == top:
            return thresholds
    raise AssertionError("the tail never came below 2**-64")


@pytest.mark.parametrize("rate", [1e-12, 0.1, 0.9722, 1.0, 6.0, 47.3, 699.99, 5000.1])
def test_the_thresholds_of_arrivals_are_exact(rate: float) -> None:
    # exp(700) has 1010 bits, exp(5000) 7214, which the terms need beside those of the result
    fewest, thresholds, _ = arrival_thresholds(rate)
    got = [0] * fewest + [int(threshold) for threshold in thresholds]
    expected = exact_thresholds(rate, bits=400 if rate < 100 else 1500 if rate < 700 else 7700)
    assert got == expected
    assert got[fewest] > 0


@pytest.mark.parametrize("rate", [0.1, 0.9722, 6.0, 47.3])
def test_the_thresholds_of_arrivals_are_those_of_scipy(rate: float) -> None:
    fewest, thresholds, _ = arrival_thresholds(rate)
    got = thresholds.astype(np.float64) / 2.0**64
    expected = stats.poisson.cdf(fewest + np.arange(thresholds.size), rate)
    # scipy's cdf (an incomplete gamma function) is good to some units in the last place
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("rate", [0.001, 0.9722, 6.0, 699.99, 100_000.0])
def test_the_guide_of_arrivals_never_skips_a_threshold(rate: float) -> None:
    _, thresholds, guide = arrival_thresholds(rate)
    whole = [int(threshold) for threshold in thresholds]
    assert guide.shape == (4096,)
    for index, start in enumerate(guide):
        # counts for the smallest uniform with these 12 high bits
        expected = sum(threshold <= index << 52 for threshold in whole)
        assert int(start) == expected


def test_without_arrivals_there_is_no_threshold() -> None:
    fewest, thresholds, guide = arrival_thresholds(0.0)
    assert (fewest, thresholds.size) == (0, 0)
    assert not guide.any()


def test_the_capacity_drops_inside_the_window_and_the_window_ends_with_the_run() -> None:
    cells = [
        Cell(rounds=10, fault_start=3, fault_rounds=4, fault_capacity=1),
        Cell(rounds=10, fault_start=8, fault_rounds=INT32, capacity=5),
        Cell(rounds=10, fault_start=INT32, fault_rounds=INT32, failure_rate=0.25),
    ]
    made = tables(cells, "philox")
    rows = made.scalars[:, 0]
    got = made.capacities[rows].tolist()
    expected = [[6, 6, 6, 1, 1, 1, 1, 6, 6, 6], [5] * 8 + [0, 0], [6] * 10]
    assert got == expected
    got_profiles = made.profiles[rows].tolist()
    expected_profiles = [[3, 7, 0], [8, 10, 0], [10, 10, 1]]
    got_failures = np.unique(made.failures[rows[2]]).tolist()
    assert got_failures == [2**30]
    assert got_profiles == expected_profiles


def test_the_ceilings_are_exact_multiples_under_philox_and_doubles_under_the_lesson() -> None:
    cell = Cell(tries=(7,), backoff_base=0.3, backoff_cap=5)
    doubles = [0.3, 0.6, 1.2, 2.4, 4.8, 5.0]
    got_doubles = tables([cell], "lesson").widths[0, :6].tolist()
    assert got_doubles == doubles
    got = tables([cell], "philox").widths[0, :6].tolist()
    expected = [round(Fraction(ceiling) * 2**32) for ceiling in doubles]
    assert got == expected


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.29, 0.3, 0.35, 0.7, 1.0, 2.5, 1e-7, 1e6])
def test_a_budget_allows_the_floor_of_its_decimal_share(budget: float) -> None:
    made = tables([Cell(tries=(3,), budget=budget)], "philox")
    row = made.limits[made.scalars[0, 3]]
    got = row.tolist()
    share = Fraction(repr(budget))
    expected = [min(math.floor(share * primary), INT32) for primary in range(row.size)]
    assert got == expected


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.29, 0.3, 0.35, 0.7, 1.0, 2.5])
def test_a_budget_of_the_lesson_compares_doubles(budget: float) -> None:
    made = tables([Cell(tries=(3,), budget=budget)], "lesson")
    row = made.limits[made.scalars[0, 3]].tolist()
    for primary, limit in enumerate(row):
        assert limit <= budget * primary < limit + 1


def test_without_a_budget_the_limit_is_never_reached() -> None:
    made = tables([Cell(tries=(3,)), Cell(tries=(3,), budget=0.0)], "philox")
    free, held = made.scalars[0], made.scalars[1]
    got = [made.limits[row[3]][5 & row[4]] for row in (free, held)]
    expected = [INT32, 0]
    assert got == expected


@pytest.mark.parametrize("generator", ["philox", "lesson"])
def test_the_wheel_has_a_slot_for_every_wait(generator: Any) -> None:
    for cap, tries in [(1, (2,)), (31.5, (27,)), (32, (27,)), (33, (27,)), (1e9, (2,)), (0, (3,))]:
        cell = Cell(rounds=500, tries=tries, backoff_cap=cap)
        size = tables([cell], generator).wheel_size
        # the slot of the running round is read while others are written
        longest = max(1, math.ceil(min(cap, 2.0**25 if tries == (27,) else 2.0)))
        assert size > min(longest, cell.rounds)
        assert size & (size - 1) == 0, "slots are found by masking"


def test_cells_share_traffic_when_their_arrivals_are_the_same() -> None:
    one, other = Cell(), Cell(arrivals_per_second=194.44, rounds_per_second=200, tries=(3,))
    assert traffic_key(one, "philox") == traffic_key(other, "philox")
    different = [Cell(rounds=3999), Cell(arrivals_per_second=97.23)]
    assert all(traffic_key(one, "philox") != traffic_key(cell, "philox") for cell in different)
    # the lesson's stream also feeds the failures of served calls, outside fault windows only
    apart = [Cell(), Cell(failure_rate=0.5), Cell(fault_rounds=1)]
    keys = [traffic_key(cell, "lesson") for cell in apart]
    assert all(left != right for left, right in pairwise(keys))
