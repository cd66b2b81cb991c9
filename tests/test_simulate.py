"""`mc.simulate` and `mc.run` from Python: what is given to them is checked before anything is done.

What the rows hold is tested elsewhere; here only what may be asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pytest

import mc

CELL: Final = mc.Cell(rounds=50)

NO_CELLS: Final = r"cells must be a list of Cell, got "

WRONG_TYPES: Final[list[tuple[dict[str, Any], str]]] = [
    ({"cells": CELL}, NO_CELLS),
    ({"cells": "cell"}, NO_CELLS),
    ({"cells": [{"rounds": 50}]}, NO_CELLS),
    ({"cells": None}, NO_CELLS),
    ({"replications": 2.0}, r"replications must be a whole number, got 2\.0"),
    ({"replications": True}, "replications must be a whole number, got True"),
    ({"replications": [0.5]}, r"replications must be a whole number, got 0\.5"),
    ({"replications": [True]}, "replications must be a whole number, got True"),
    ({"replications": np.array([0.5])}, r"replications must be a whole number, got .*0\.5"),
    ({"replications": "3"}, "replications must be a whole number, got '3'"),
    ({"seed": 1.5}, r"seed must be a whole number, got 1\.5"),
    ({"seed": True}, "seed must be a whole number, got True"),
    ({"seed": "1"}, "seed must be a whole number, got '1'"),
    ({"seed": None}, "seed must be a whole number, got None"),
    ({"seeds": [1.0], "generator": "lesson"}, r"seed must be a whole number, got 1\.0"),
    ({"jobs": 1.5}, r"jobs must be a whole number, got 1\.5"),
    ({"jobs": True}, "jobs must be a whole number, got True"),
]

WRONG_VALUES: Final[list[tuple[dict[str, Any], str]]] = [
    ({"replications": 0}, "replications must be >= 1"),
    ({"replications": -1}, "replications must be >= 1"),
    ({"replications": []}, "replications must be >= 1"),
    ({"replications": [0, -1]}, "indices in 0 .. 4294967295"),
    ({"replications": [2**32]}, "indices in 0 .. 4294967295"),
    ({"replications": [1, 1]}, "must not repeat"),
    ({"seed": -1}, "seed must be in 0 .. 18446744073709551615, got -1"),
    ({"seed": 2**64}, "seed must be in 0 .. 18446744073709551615"),
    ({"seed": 0, "generator": "lesson"}, "seed must be in 1 .. 2147483646, got 0"),
    ({"seeds": [1, 1], "generator": "lesson"}, "must not repeat"),
    ({"seeds": [2**31 - 1], "generator": "lesson"}, "seed must be in 1 .. 2147483646"),
    ({"seeds": [1]}, 'seeds go with generator = "lesson"'),
    ({"seeds": [1], "replications": 1, "generator": "lesson"}, "without replications"),
    ({"generator": "minstd"}, 'generator must be "philox" or "lesson", got \'minstd\''),
    ({"jobs": 0}, "jobs must be >= 1 and <= 1024, got 0"),
    (
        {"cells": [CELL, mc.Cell(fault_rounds=1, failure_rate=0.5)], "generator": "lesson"},
        "cell 1: failure_rate must be 0 in a cell with a fault window",
    ),
    (
        {"cells": [mc.Cell(tries=(3, 3))], "generator": "lesson"},
        'cell 0: chain must be flattened for generator "lesson", got nested',
    ),
    (
        {"cells": [mc.Cell(jitter="equal")], "generator": "lesson"},
        'cell 0: jitter must be full for generator "lesson", got equal',
    ),
    (
        {"cells": [mc.Cell(deadline=20)], "generator": "lesson"},
        'cell 0: deadline must be none for generator "lesson", got 20',
    ),
]


def simulate(**arguments: Any) -> pl.DataFrame:
    usual: dict[str, Any] = {"cells": [CELL], "jobs": 1}
    return mc.simulate(**(usual | arguments))


@pytest.mark.parametrize(("arguments", "message"), WRONG_TYPES)
def test_what_is_of_a_wrong_type_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        simulate(**arguments)


@pytest.mark.parametrize(("arguments", "message"), WRONG_VALUES)
def test_what_is_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)


@pytest.mark.parametrize(
    "replications",
    [3, np.int64(3), [0, 1, 2], (0, 1, 2), range(3), np.arange(3), np.arange(3, dtype=np.uint8)],
)
def test_replications_may_be_a_number_or_indices_of_any_kind(replications: Any) -> None:
    got = simulate(replications=replications, seed=np.int64(7))
    expected = simulate(replications=3, seed=7)
    assert got.equals(expected)


def test_without_cells_there_are_no_rows() -> None:
    got = simulate(cells=[], replications=3)
    expected = simulate(replications=3)
    assert got.is_empty()
    assert got.schema == expected.schema


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"jobs": 1.5}, TypeError, r"jobs must be a whole number, got 1\.5"),
        ({"jobs": 0}, ValueError, "jobs must be >= 1 and <= 1024, got 0"),
        ({"replications": 0.5}, ValueError, r"replications must be a whole number .*, got 0\.5"),
        ({"replications": True}, ValueError, "replications must be a whole number .*, got True"),
        ({"replications": [1]}, ValueError, r"replications must be a whole number .*, got \[1\]"),
        ({"seed": 1.5}, ValueError, r"seed must be a whole number, got 1\.5"),
    ],
)
def test_a_run_refuses_what_is_no_number_and_writes_nothing(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    file = tmp_path / "small.toml"
    file.write_text('title = "small"\n')
    with pytest.raises(error, match=message):
        mc.run(file, tmp_path / "out", **arguments)
    assert list(tmp_path.iterdir()) == [file]


def test_no_cells_have_no_rows() -> None:
    assert mc.simulate([], 3).height == 0
