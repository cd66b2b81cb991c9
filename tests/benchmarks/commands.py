"""What whole commands cost, beside another version of this program; not part of the test run.

    python tests/benchmarks/commands.py REVISION [SCALE]

The revision is checked out into a temporary folder. Each command runs in a process of its own, of
this version and of that one by turns: what shares the machine slows down both alike. A figure is
the least CPU time of `TURNS` runs, user and system, imports and all; what is claimed of it is the
ratio. With a SCALE below 1 there are so many fewer replications.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TURNS: Final = 3

SWEEP: Final = """
title = "sweep"
[fixed]
fault_rounds = 100
[grid]
tries = [3, 9, 27]
budget = ["none", 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6]
backoff_cap = [4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 32, 40, 48, 56, 64, 96, 128]
"""

CHEAP: Final = """
title = "cheap"
[fixed]
rounds = 100
fault_start = 20
fault_rounds = 10
[grid]
tries = [1, 2, 3, 4]
failure_rate = {from = 0.0, to = 0.4, steps = 50}
backoff_cap = {from = 2, to = 51, steps = 50}
"""

COUNTED: Final = 'keep = "histograms"\n'


class Case(NamedTuple):
    """A command: its name in the table, its file, replications, and what it is.

    A `run` starts afresh; another command reads what a run has made.
    """

    name: str
    text: str
    replications: int
    command: str = "run"


CASES: Final = (
    Case("600 cells x 10,000, as rows", SWEEP, 10_000),
    Case("the same as histograms", COUNTED + SWEEP, 10_000),
    Case("10,000 cheap cells x 100", CHEAP, 100),
    Case("report of these 600 cells", SWEEP, 1_000, "report"),
    Case("lesson.toml, 10,000 replications", "", 10_000),
    Case("its report", "", 10_000, "report"),
)


class Cost(NamedTuple):
    """CPU seconds, and the most memory of the process in megabytes."""

    seconds: float
    megabytes: float


def cost(version: Path, *arguments: str) -> Cost:
    """Run a command of a version and measure it."""
    command = [sys.executable, "-m", "mc", *arguments]
    environment = os.environ | {"PYTHONPATH": str(version), "RETRYSTORM_NO_REPORT": "1"}
    process = subprocess.Popen(
        command,
        cwd=version,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, " ".join(arguments)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def once(version: Path, case: Case, folder: Path, scale: float) -> Cost:
    """Cost of a case, once."""
    file, out = folder / "experiment.toml", folder / f"{version.name}-{CASES.index(case)}"
    lesson = folder / "before" / "experiments" / "lesson.toml"  # the same file for both
    file.write_text(case.text or lesson.read_text("utf-8"), "utf-8")
    n = str(max(1, round(scale * case.replications)))
    run = ("run", str(file), "--replications", n, "--out", str(out))
    if case.command == "run":
        return cost(version, *run, "--force")
    if not out.exists():
        cost(version, *run)
    return cost(version, case.command, str(out))


def main() -> None:
    """Measure all cases and print a table."""
    revision, scale = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = folder / "before"
        worktree = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*worktree, "add", "--detach", str(before), revision], check=True)
        try:
            print(f"| CPU seconds | {revision} | now | | memory, MB |\n|---|---|---|---|---|")
            for case in CASES:
                took = [
                    [once(version, case, folder, scale) for version in (before, ROOT)]
                    for _ in range(TURNS)
                ]
                old, new = (min(c.seconds for c in costs) for costs in zip(*took, strict=True))
                most = max(costs[1].megabytes for costs in took)
                print(
                    f"| {case.name} | {old:.1f} | {new:.1f} | {old / new:.1f} times | {most:.0f} |",
                    flush=True,
                )
        finally:
            subprocess.run([*worktree, "remove", "--force", str(before)], check=True)


if __name__ == "__main__":
    main()
