"""Compare what two versions of the commands print and write, on all shipped experiments.

    python tests/compare_outputs.py OLD NEW [FOLDER]

OLD and NEW are git revisions, or folders that hold a checkout. Every command is run with the
interpreter that runs this script; its stdout and the files it writes are kept below FOLDER, and
what differs is named. The exit code is 1 if anything does. Times, versions and paths of the
machine are masked, pictures are left out: they are looked at.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

COMMANDS: Final = """
check experiments/lesson.toml
check experiments/published.toml
check experiments/budget_sweep.toml
check experiments/lesson.toml --format json
check experiments/budget_sweep.toml --format json --set rounds=8000
check experiments/lesson.toml --set backoff_cap=-1 --set tries=0
run experiments/lesson.toml --replications 2000 --out out/lesson
run experiments/published.toml --no-report --out out/published
run experiments/budget_sweep.toml --replications 40 --out out/sweep
run brownout.toml --replications 500 --out out/brownout
run counted.toml --out out/counted
run precise.toml --no-report --out out/precise
run brownout.toml --replications 500 --out out/brownout
run brownout.toml --replications 400 --out out/brownout
run counted.toml --out out/brownout
show out/lesson --adjusted
show out/sweep
show out/sweep --all
show out/lesson --format json
show out/lesson --format csv
show out/lesson --format csv --table comparisons
show out/lesson --format markdown --table claims
show out/sweep --format csv --table cells
show out/published --format markdown
show out/precise
show out/counted
compare out/lesson "three layers (3x3x3)" "no retries"
compare out/brownout budget=0.1 budget=none --format json
best out/lesson --metric dropped --subject-to "times_usual <= 4"
best out/sweep --metric dropped --subject-to "times_usual <= 3" --where budget=0.1
best out/brownout --metric window_rate --per all --format csv
frontier out/brownout dropped window_rate
frontier out/lesson dropped calls --format json
trace experiments/lesson.toml --scenario "outage (1 s)" --replication 7 --out out/trace.parquet
status out/lesson
verify out/brownout --all
verify out/counted --all
report out/brownout
schema
run missing.toml
run experiments/lesson.toml --shard 3/2
best out/counted --metric dropped
"""

EXPERIMENTS: Final = {
    "brownout.toml": """
title = "Brownout at checkout"
[fixed]
arrivals_per_second = 150
fault_rounds = 2000
fault_capacity = 1
tries = [3, 3]
[grid]
budget = ["none", 0.1, 0.3]
backoff_cap = [32, 256]
""",
    "counted.toml": """
title = "A budget against a short outage"
keep = "histograms"
replications = 3000
[fixed]
fault_rounds = 100
[[policy]]
name = "9 tries"
tries = [3, 3]
[[policy]]
name = "9 tries, budget 0.2"
tries = [3, 3]
budget = 0.2
[[claim]]
text = "the budget costs drops"
metric = "dropped"
policies = ["9 tries, budget 0.2", "9 tries"]
relation = ">"
""",
    "precise.toml": """
title = "Until it is known"
[fixed]
fault_rounds = 100
tries = [3, 3, 3]
[grid]
budget = ["none", 0.1, 0.3]
[precision]
metric = ["window_rate", "calls"]
relative = 0.005
absolute = 0.05
max = 16_000
""",
}

VOLATILE: Final = {"seconds", "started", "finished", "versions", "version", "code", "created"}
"""Keys of manifests whose values depend on the machine, the moment, or the version."""


def run_commands(checkout: Path, folder: Path) -> None:
    """Run every command with the package of a checkout, in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(checkout / "experiments", folder / "experiments")
    for name, text in EXPERIMENTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(checkout), "COLUMNS": "100", "NO_COLOR": "1"}
    lines = [line for line in COMMANDS.splitlines() if line]
    for number, line in enumerate(lines):
        sys.stderr.write(f"{checkout.name}: {line}\n")
        words = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', line)]
        done = subprocess.run(
            [sys.executable, "-m", "mc", *words],
            cwd=folder,
            env=env,
            check=False,
            capture_output=True,
            text=True,
        )
        text = f"$ {line}\nexit {done.returncode}\n{done.stdout}\n--- stderr\n{done.stderr}"
        (folder / f"printed-{number:02}.txt").write_text(masked(text), encoding="utf-8")


def masked(text: str) -> str:
    """Replace times and sizes that differ from run to run."""
    text = re.sub(r".*\r|compiling the kernel.*\n", "", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:+.]+", "<moment>", text)
    text = re.sub(r"\d+(\.\d+)? (s|ms|min|h)\b", "<time>", text)
    return re.sub(r"(?m)^.*(rows/s|ETA|%\|).*$\n", "", text)


def comparable(path: Path) -> list[str] | None:
    """The content of a file as lines, without what may differ; None for a picture."""
    if path.suffix == ".parquet":
        frame = pl.read_parquet(path)
        return [str(frame.schema), *frame.write_csv().splitlines()]
    if path.name == "manifest.json":
        return json.dumps(_stable(json.loads(path.read_text())), indent=1).splitlines()
    if path.suffix == ".html":
        text = re.sub(r"(?s)<svg.*?</svg>|data:image[^\"']*", "<picture>", path.read_text())
        return masked(re.sub(r"(<[a-z])", r"\n\1", text)).splitlines()
    if path.suffix == ".txt":
        return path.read_text().splitlines()
    return None


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stable(v) for k, v in value.items() if k not in VOLATILE and "hash" not in k}
    return [_stable(v) for v in value] if isinstance(value, list) else value


def files(folder: Path) -> dict[str, Path]:
    """The files of a run by name; shards, named after their bytes, by their place in order."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and comparable(path) is not None:
            found[str(path.relative_to(folder))] = path
    return found


def differences(old: Path, new: Path) -> Iterator[str]:
    """What differs between two folders, with the first lines of each difference."""
    one, other = files(old), files(new)
    for name in sorted(one.keys() ^ other.keys()):
        yield f"{name}: only in the {'old' if name in one else 'new'}"
    for name in sorted(one.keys() & other.keys()):
        left, right = comparable(one[name]), comparable(other[name])
        if left != right:
            lines = difflib.unified_diff(left or [], right or [], lineterm="", n=0)
            shown = [line[:300] for _, line in zip(range(14), lines, strict=False)][2:]
            yield "\n    ".join([f"{name}:", *shown])


def checkout(revision: str, folder: Path) -> Path:
    """The folder itself, or a revision of this repository put into a folder."""
    if Path(revision).is_dir():
        return Path(revision).resolve()
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def main() -> None:
    """Compare the two versions that the command line names."""
    root = Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp())
    for name, revision in (("old", sys.argv[1]), ("new", sys.argv[2])):
        if (root / name / "printed-00.txt").exists() and not Path(revision).is_dir():
            continue  # a revision does not change
        run_commands(checkout(revision, root / f"{name}-checkout"), root / name)
    found = list(differences(root / "old", root / "new"))
    sys.stdout.write("\n".join(found or ["no difference"]) + "\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
