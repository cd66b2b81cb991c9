"""The command doctor: whether this installation works, and how fast."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from mc.cli.common import INTERRUPTED, fail, import_all, interrupt, on_signals
from mc.cli.formats import Figures, Format, print_figures
from mc.cli.words import size

if TYPE_CHECKING:
    import polars as pl

    from mc.model import Cell

LIBRARIES: Final = ("numpy", "numba", "polars", "pyarrow", "scipy", "pydantic", "typer")

ENOUGH_BYTES: Final = 1_000_000_000
"""Less free disk is called wrong: ten million rows take about 120 MB, see `plan`."""

SPEED_REPLICATIONS: Final = 3000
"""Of each cell; their 240 million calls take about a second."""

PUBLISHED: Final = {
    "scenarios": (
        {"failure_rate": 0.025},
        {"fault_rounds": 100},
        {"fault_rounds": 1000, "fault_capacity": 1},
    ),
    "policies": (
        {"tries": (1, 1, 1)},
        {"tries": (3, 1, 1)},
        {"tries": (3, 3, 1)},
        {"tries": (3, 3, 3)},
        {"tries": (3, 3, 3), "budget": 0.3},
        {"tries": (3, 3, 3), "budget": 0.1},
    ),
}
"""Cells of the lesson: healthy, an outage, a degradation; no retries, one, two and three layers,
two budgets."""

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
    """What one look at the installation showed."""

    name: str
    text: str
    data: dict[str, Any]
    cure: str = ""
    """What to do; empty where nothing is wrong."""


def doctor(form: Format = "table") -> None:
    """Check this installation: versions, disk, golden numbers, speed.

    The lesson's published numbers are made again, and rows of the default generator, and compared
    digit by digit. Exit code 1 if something is wrong; it is said what to do.
    """
    try:
        with on_signals(interrupt):
            findings = list(_findings())
    except KeyboardInterrupt:
        fail("stopped before the end", INTERRUPTED)
    print_figures(_figures(findings), form)
    if any(finding.cure for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    yield (versions := look_at_versions())
    yield look_at_disk(Path.cwd())
    if versions.cure:  # nothing can be simulated
        return
    import_all()
    yield look_at_cores()
    from mc.kernel import CACHE_FOLDER

    yield look_at_cache(Path(CACHE_FOLDER))
    yield look_at_golden()
    yield look_at_speed()


def _figures(findings: list[Finding]) -> Figures:
    wrong = [f"{finding.name}: {finding.cure}" for finding in findings if finding.cure]
    return Figures(
        data={"ok": not wrong}
        | {key: value for finding in findings for key, value in finding.data.items()}
        | {"wrong": wrong},
        labels={finding.name: finding.text for finding in findings},
        wrap=True,
        after=tuple(f"Wrong: {line}" for line in wrong) or ("Nothing is wrong.",),
    )


def look_at_versions() -> Finding:
    """Whether all libraries can be imported, and which they are."""
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {}
    faults = []
    for name in ("retrystorm", *LIBRARIES):
        try:
            found[name] = version(name)
            import_module("mc" if name == "retrystorm" else name)
        except (ImportError, PackageNotFoundError) as error:
            found.setdefault(name, None)
            faults.append(f"{name} cannot be imported ({error})")
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    text = ", ".join([system, *(f"{name} {number or 'missing'}" for name, number in found.items())])
    cure = f"{'; '.join(faults)}: install retrystorm again with pip" if faults else ""
    return Finding("versions", text, {"python": platform.python_version()} | found, cure)


def look_at_cores() -> Finding:
    """How many threads a run has if it is not told."""
    from mc.runner.simulation import n_threads

    n = n_threads(None)
    return Finding("cores", f"{n}, of {os.cpu_count() or n} in this machine", {"n_cores": n})


def look_at_disk(folder: Path) -> Finding:
    """How much room there is for results."""
    n_bytes = shutil.disk_usage(folder).free
    cure = ""
    if n_bytes < ENOUGH_BYTES:
        cure = f"less than {size(ENOUGH_BYTES)} is free: make room, or give a folder with --out"
    return Finding("disk", f"{size(n_bytes)} free in {folder}", {"n_bytes_free": n_bytes}, cure)


def look_at_cache(folder: Path) -> Finding:
    """Whether compiled code can be kept."""
    cure = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        cure = (
            f"{folder} cannot be written to ({error.strerror}), so every start compiles the kernel "
            "anew; set NUMBA_CACHE_DIR to a folder that can"
        )
    return Finding("cache", str(folder), {"cache": str(folder)}, cure)


def cells() -> list[Cell]:
    """Make the cells of the lesson."""
    from mc.model import Cell

    return [
        Cell(**scenario, **policy)
        for scenario in PUBLISHED["scenarios"]
        for policy in PUBLISHED["policies"]
    ]


def rows_sha256(frame: pl.DataFrame) -> str:
    """Hash some rows, see `ROWS_SHA256`."""
    rows = frame.sort("cell", "replication").select(ROWS).fill_null(-1).to_numpy()
    return hashlib.sha256(rows.astype("<i8", order="C").tobytes()).hexdigest()


def look_at_golden() -> Finding:
    """Whether this machine counts what others count."""
    from mc.runner import simulate

    golden = simulate(cells(), generator="lesson", seeds=[SEED]).select(COLUMNS).rows()
    n = len(GOLDEN)
    n_right = sum(got == expected for got, expected in zip(golden, GOLDEN, strict=True))
    same_rows = rows_sha256(simulate(cells(), replications=N_ROWS, seed=SEED)) == ROWS_SHA256
    text = f"{n_right} of {n} cells of the lesson as it counted them; " + (
        f"{N_ROWS * n} rows of the default generator as elsewhere"
        if same_rows
        else "rows of the default generator differ from those elsewhere"
    )
    right = n_right == n and same_rows
    cure = "" if right else "do not trust results made here; delete the cache folder and try again"
    return Finding("golden", text, {"golden": right}, cure)


def look_at_speed() -> Finding:
    """How many calls one core simulates in a second, of the lesson's cells."""
    from mc.runner import simulate

    started = time.process_time()  # of this process alone, however busy the machine is
    frame = simulate(cells(), replications=SPEED_REPLICATIONS, seed=SEED, jobs=1)
    rate = int(frame["calls"].sum()) / (time.process_time() - started)
    text = f"{rate / 1e6:.0f} million calls per second on one core"
    return Finding("speed", text, {"calls_per_second": rate})
