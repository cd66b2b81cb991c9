"""Whatever an experiment file holds: exit 0 or 2, a message, no traceback, nothing written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from mutants import mutant
from typer.testing import CliRunner

from mc.cli import app

resource = pytest.importorskip("resource", reason="limits of POSIX")

MOST_SECONDS: Final = 10.0
MOST_BYTES: Final = 2_000_000_000


def check_law(folder: Path, numbers: range) -> list[str]:
    """Let `check` read mutants; a line for each that breaks the law."""
    broken = []
    for number in numbers:
        path = folder / "file.toml"
        path.write_bytes(mutant(number))
        started = time.process_time()
        result = CliRunner().invoke(app, ["check", str(path)])
        seconds = time.process_time() - started
        if result.exit_code not in (0, 2) or not isinstance(result.exception, None | SystemExit):
            broken.append(f"mutant {number}: exit {result.exit_code}, {result.exception!r}")
        if (result.exit_code == 2) != (not result.stdout) or "Traceback" in result.stderr:
            broken.append(f"mutant {number}: {result.stdout[:80]!r}, {result.stderr[:80]!r}")
        if result.exit_code == 2 and not all(
            line.isprintable() for line in result.stderr.splitlines()
        ):
            broken.append(f"mutant {number}: control characters in {result.stderr!r}")
        if seconds > MOST_SECONDS:
            broken.append(f"mutant {number}: {seconds:.0f} s")
        if [*folder.iterdir()] != [path]:
            broken.append(f"mutant {number}: something was written")
    return broken


def test_a_changed_experiment_is_read_or_refused(tmp_path: Path) -> None:
    assert check_law(tmp_path, range(150)) == []


@pytest.mark.slow
def test_thousands_of_changed_experiments_are_read_or_refused(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert check_law(tmp_path, range(150, 5000)) == []
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after < max(before, MOST_BYTES // 1024)


@pytest.mark.parametrize("number", [1, 5])
def test_a_command_of_its_own_keeps_to_the_law_in_little_memory(
    tmp_path: Path, number: int
) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(mutant(number))
    done = subprocess.run(
        [sys.executable, "-m", "mc", "check", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES)),
    )
    assert done.returncode in (0, 2)
    assert (done.returncode == 2) == (done.stdout == "")
    assert "Traceback" not in done.stderr
    assert [*tmp_path.iterdir()] == [path]
