"""The command doctor: whether this installation works, and how fast."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.readable import size
from mc.cli.signals import exit_code, import_all, interrupt, on_signals
from mc.cli.stderr import fail

if TYPE_CHECKING:
    import polars as pl

    from mc.model import Cell

LIBRARIES: Final = ("numpy", "numba", "polars", "pyarrow", "scipy", "pydantic", "typer")

ENOUGH_BYTES: Final = 1_000_000_000
"""Less free disk is called wrong: ten million rows take about 120 MB, see `plan`."""

SPEED_REPLICATIONS: Final = 3000
"""Of each cell; their 240 million calls take about a second."""

SCENARIOS: Final[tuple[dict[str, Any], ...]] = (
    {"failure_rate": 0.025},
    {"fault_rounds": 100},
    {"fault_rounds": 1000, "fault_capacity": 1},
)
"""The lesson's: healthy, an outage, a degradation."""

POLICIES: Final[tuple[dict[str, Any], ...]] = (
    {"tries": (1, 1, 1)},
    {"tries": (3, 1, 1)},
    {"tries": (3, 3, 1)},
    {"tries": (3, 3, 3)},
    {"tries": (3, 3, 3), "budget": 0.3},
    {"tries": (3, 3, 3), "budget": 0.1},
)
"""The lesson's: no retries; one, two and three layers; two budgets."""

SEED: Final = 20260802
"""The lesson's."""

COLUMNS: Final = ("calls", "successful", "dropped", "peak", "window_calls")

GOLDEN: Final = (
    (3832, 3736, 96, 6, 0),
    (3953, 3851, 0, 6, 0),
    (3953, 3851, 0, 6, 0),
    (3953, 3851, 0, 6, 0),
    (3953, 3851, 0, 6, 0),
    (3953, 3851, 0, 6, 0),
    (3855, 3775, 80, 5, 80),
    (4071, 3782, 94, 8, 289),
    (4435, 3850, 20, 13, 577),
    (4523, 3870, 0, 17, 624),
    (4065, 3777, 103, 10, 288),
    (3926, 3772, 90, 8, 154),
    (3855, 3534, 321, 5, 949),
    (4913, 3754, 94, 8, 2010),
    (5296, 3803, 0, 9, 2394),
    (5296, 3803, 0, 9, 2394),
    (4288, 3643, 220, 7, 1395),
    (4016, 3582, 292, 7, 1113),
)
"""`COLUMNS` of these cells, as the lesson's own program counts them under `SEED`."""

ROWS: Final = ("requests", *COLUMNS, "wait_total", "late", "drain")
N_ROWS: Final = 20
ROWS_SHA256: Final = "1a33aaab644924cd7e14345a6737a1328604a53c0e16bbf19f37bfcf4a62f4d6"
"""Hash of `ROWS` of the first `N_ROWS` replications of these cells from the default generator
under `SEED`, by (cell, replication), as little-endian int64, -1 where undefined."""


class Finding(NamedTuple):
    """What one check of the installation found."""

    name: str
    text: str
    data: dict[str, Any]
    remedy: str = ""
    """What to do; empty where nothing is wrong."""


def doctor(form: options.Format = "table") -> None:
    """Check this installation, and how fast it is.

    The lesson's published numbers and some rows of the default generator are computed anew and
    compared digit by digit. Exit code 1 if something is wrong; each fault comes with a remedy.
    """
    try:
        with on_signals(interrupt):
            findings = list(_findings())
    except KeyboardInterrupt as error:
        fail("stopped before the end", exit_code(error))
    wrong = [f"{finding.name}: {finding.remedy}" for finding in findings if finding.remedy]
    data = {key: value for finding in findings for key, value in finding.data.items()}
    facts = Facts(
        data={"ok": not wrong} | data | {"wrong": wrong},
        texts={finding.name: finding.text for finding in findings},
        wrap=True,
        after=tuple(f"Wrong: {line}" for line in wrong) or ("Nothing is wrong.",),
    )
    print_facts(facts, form)
    if wrong:
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    yield (versions := check_versions())
    yield check_disk(Path.cwd())
    if versions.remedy:  # nothing can be simulated
        return
    import_all()
    yield from (check_cores(), check_cache(), check_golden(), check_speed())


def check_versions() -> Finding:
    """Whether all libraries can be imported, and which they are."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {}
    faults = []
    for name in ("retrystorm", *LIBRARIES):
        try:
            versions[name] = version(name)
            import_module("mc" if name == "retrystorm" else name)
        except (ImportError, PackageNotFoundError) as error:
            versions.setdefault(name, None)
            faults.append(f"{name} cannot be imported ({error})")
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    texts = [f"{name} {number or 'missing'}" for name, number in versions.items()]
    remedy = f"{'; '.join(faults)}: install retrystorm again with pip" if faults else ""
    data = {"python": platform.python_version()} | versions
    return Finding("versions", ", ".join([system, *texts]), data, remedy)


def check_disk(folder: Path) -> Finding:
    """How much room there is for results."""
    import shutil

    n_bytes = shutil.disk_usage(folder).free
    remedy = ""
    if n_bytes < ENOUGH_BYTES:
        remedy = f"less than {size(ENOUGH_BYTES)} is free: make room, or give a folder with --out"
    return Finding("disk", f"{size(n_bytes)} free in {folder}", {"n_bytes_free": n_bytes}, remedy)


def check_cores() -> Finding:
    """How many threads a run has by default."""
    from mc.runner.simulation import n_threads

    n = n_threads(None)
    return Finding("cores", f"{n}, of {os.cpu_count() or n} in this machine", {"n_cores": n})


def check_cache() -> Finding:
    """Whether compiled code can be kept."""
    import tempfile

    from mc.kernel import CACHE_FOLDER

    folder = Path(CACHE_FOLDER)
    remedy = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        remedy = (
            f"{folder} cannot be written to ({error.strerror}), so every start compiles the kernel "
            "anew; set NUMBA_CACHE_DIR to a folder that can"
        )
    return Finding("cache", str(folder), {"cache": str(folder)}, remedy)


def check_golden() -> Finding:
    """Whether this machine computes the numbers that others do."""
    from mc.runner import simulate

    golden = simulate(cells(), generator="lesson", seeds=[SEED]).select(COLUMNS).rows()
    n = len(GOLDEN)
    n_right = sum(got == expected for got, expected in zip(golden, GOLDEN, strict=True))
    same_rows = rows_sha256(simulate(cells(), replications=N_ROWS, seed=SEED)) == ROWS_SHA256
    rows = "rows of the default generator"
    text = f"{n_right} of {n} cells of the lesson as it counted them; " + (
        f"{N_ROWS * n} {rows} as elsewhere" if same_rows else f"{rows} differ from those elsewhere"
    )
    right = n_right == n and same_rows
    remedy = "do not trust results made here; delete the cache folder and try again"
    return Finding("golden", text, {"golden": right}, "" if right else remedy)


def check_speed() -> Finding:
    """How many calls one core simulates in a second, of the lesson's cells."""
    from mc.runner import simulate

    started = time.process_time()  # of this process alone, however busy the machine is
    frame = simulate(cells(), replications=SPEED_REPLICATIONS, seed=SEED, jobs=1)
    rate = int(frame["calls"].sum()) / (time.process_time() - started)
    text = f"{rate / 1e6:.0f} million calls per second on one core"
    return Finding("speed", text, {"calls_per_second": rate})


def cells() -> list[Cell]:
    """Make the cells of `SCENARIOS` and `POLICIES`."""
    from mc.model import Cell

    return [
        Cell(chain="flattened", **scenario, **policy)
        for scenario in SCENARIOS
        for policy in POLICIES
    ]


def rows_sha256(frame: pl.DataFrame) -> str:
    """Hash rows as `ROWS_SHA256` says."""
    rows = frame.sort("cell", "replication").select(ROWS).fill_null(-1).to_numpy()
    return hashlib.sha256(rows.astype("<i8", order="C").tobytes()).hexdigest()
