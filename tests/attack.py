"""Attacks of every kind, at random: whatever is wrong with a file, a folder or the surroundings.

    python tests/attack.py            all kinds; prints the table of tests/README.md
    python tests/attack.py interrupts 1000

A trial fails where the program ends in a traceback, with an exit code other than 0, 1 or 2 (130 and
143 after a signal), prints a control character, believes something that is wrong, or loses a row.
Trials are numbered, and the same each time but for the moments of signals.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import polars as pl
import pyarrow.parquet as pq
from mutants import mutant
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app
from mc.store import memory

EXPERIMENT: Final = """
title = "attacked"
replications = 40
keep = "KEEP"
[fixed]
rounds = 300
arrivals_per_second = 120
capacity = 2
fault_start = 50
fault_rounds = 60
[[policy]]
name = "none"
[[policy]]
name = "NAME"
tries = [3]
[[claim]]
text = "retries make more calls"
metric = "calls"
policies = ["none", "NAME"]
relation = "<"
"""

NASTY: Final = ("=1+1", "+x", "@x", "<b>x", "|x|", "'", "x\u202ey", "../x", "$(x)", "&amp;", "\\")

ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 1 << 80, 1e308, "", "\x1b[31mx", "x" * 20_000, [], [None], {}, {"a": {}}),
    *([[]] * 9, "\u202e", float("nan"), ["=x"], {"name": 3}, "nul\x00"),
)


class Attack:
    """A folder to work in, with a finished run of each kind that is copied for each trial."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.whole = {keep: self.run(keep, "three") for keep in ("rows", "histograms")}
        self.rows = mc.load(self.whole["rows"]).replications

    def file(self, keep: str = "rows", name: str = "three") -> Path:
        path = self.place / "attacked.toml"
        text = EXPERIMENT.replace("KEEP", keep).replace('"NAME"', json.dumps(name))
        path.write_text(text, "utf-8")
        return path

    def run(self, keep: str, name: str) -> Path:
        folder = mc.run(self.file(keep, name), self.place / f"whole-{keep}").folder
        mc.report(folder)
        return folder

    def copy(self, generator: random.Random) -> Path:
        folder = self.place / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.whole[generator.choice(("rows", "histograms"))], folder)
        return folder

    def files(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.rglob("*") if path.is_file())


def told(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command in this process; what it must never do is raised."""
    result = CliRunner().invoke(app, arguments)
    if not isinstance(result.exception, None | SystemExit):
        raise AssertionError(f"{arguments}: {result.exception!r}")
    assert result.exit_code in (0, 1, 2), (arguments, result.exit_code)
    printed = result.stdout + result.stderr
    odd = [c for c in printed if not c.isprintable() and c not in "\n\t"]
    assert not odd, (arguments, odd[:3])
    if result.exit_code == 2:
        assert result.stderr.strip(), arguments
    return result.exit_code, printed


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "mc", *arguments],
        capture_output=True, text=True, check=False, timeout=300, **options,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr[-300:]
    assert done.returncode in (0, 1, 2), (arguments, done.returncode, done.stderr[-300:])
    return done


# --- kinds ---------------------------------------------------------------------------------------


def changed_experiments(a: Attack, generator: random.Random) -> None:
    path = a.place / "mutant.toml"
    path.write_bytes(mutant(generator.randrange(10**6)))
    before = sorted(a.place.iterdir())
    told("check", str(path))
    assert sorted(a.place.iterdir()) == before


def flipped_bits(a: Attack, generator: random.Random) -> None:
    """Every file of a folder: `verify` must see it, and name it."""
    folder = a.copy(generator)
    path = generator.choice([p for p in a.files(folder) if p.name != store.PAGE])
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)
    code, printed = told("verify", str(folder), "--seconds", "0")
    assert code in (1, 2), (path.name, code)
    assert path.name in printed.replace("\n", ""), (path.name, printed[:300])


def forged_tables(a: Attack, generator: random.Random) -> None:
    """A number of a table is another, and its hash is right: `verify --all` must see it."""
    folder = a.copy(generator)
    name = generator.choice(("cells", "summary", "comparisons", "claims"))
    table = pl.read_parquet(folder / f"{name}.parquet")
    numbers = [
        c for c in table.columns
        if table[c].dtype.is_numeric() and table[c].null_count() < table.height and c != "cell"
    ]  # fmt: skip
    column = generator.choice(numbers)
    k = generator.choice([k for k, x in enumerate(table[column].to_list()) if x is not None])
    changed = pl.when(pl.int_range(pl.len()) == k).then(pl.col(column) * 2 + 1)
    forged = table.with_columns(changed.otherwise(pl.col(column)).cast(table[column].dtype))
    manifest = mc.load(folder).manifest
    manifest["tables"][name] = store.write_table(folder, name, forged)
    store.write_manifest(folder, manifest)
    assert told("verify", str(folder), "--all")[0] in (1, 2), (name, column)


def _somewhere(value: Any, generator: random.Random) -> tuple[Any, Any]:
    """A container within a value, and a key of it."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = generator.choice(keys)
        if not (isinstance(value[key], dict | list) and value[key]) or generator.random() < 0.3:
            return value, key
        value = value[key]


def forged_manifests(a: Attack, generator: random.Random) -> None:
    folder = a.copy(generator)
    manifest = mc.load(folder).manifest
    for _ in range(generator.randint(1, 2)):
        container, key = _somewhere(manifest, generator)
        if generator.random() < 0.2:
            del container[key]
        else:
            container[key] = generator.choice(ODD)
    store.write_manifest(folder, manifest)
    commands = (("show",), ("status",), ("verify", "--seconds", "0"), ("best", "--metric", "calls"))
    name, *options = generator.choice(commands)
    told(name, str(folder), *options)


def forged_footers(a: Attack, generator: random.Random) -> None:
    """A shard says something odd of itself; its name and the manifest agree with it."""
    folder = a.copy(generator)
    path = generator.choice(store.shard_paths(folder))
    table = pq.read_table(path)
    metadata = dict(pq.read_metadata(path).metadata)
    footer = json.loads(metadata[b"retrystorm"])
    container, key = _somewhere(footer, generator)
    container[key] = generator.choice(ODD)
    metadata[b"retrystorm"] = json.dumps(footer).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    new = path.rename(path.with_name(f"{path.stem.rpartition('-')[0]}-{digest}.parquet"))
    manifest = mc.load(folder).manifest
    del manifest["shards"][path.name]
    manifest["shards"][new.name] = len(content)
    store.write_manifest(folder, manifest)
    assert told("verify", str(folder), "--seconds", "0")[0] in (1, 2)
    told("status", str(folder))


def lost_files(a: Attack, generator: random.Random) -> None:
    """Files are gone, emptied or cut: the same command makes the same rows again."""
    folder = a.copy(generator)
    keep = mc.load(folder).manifest["experiment"]["keep"]
    for path in generator.sample(a.files(folder), generator.randint(1, 3)):
        damage = generator.randrange(3)
        if damage == 0:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: 0 if damage == 1 else path.stat().st_size // 2])
    code, printed = told("run", str(a.file(keep)), "--out", str(folder), "--no-report")
    assert code == 0, printed[-300:]
    results = mc.load(folder)
    assert results.complete
    if keep == "rows":
        assert results.replications.equals(a.rows)


def unreadable_shards(a: Attack, generator: random.Random) -> None:
    """The disk gives errors: exit 1, and nothing is put aside."""
    folder = a.place / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(a.whole["rows"], folder)
    (folder / "claims.parquet").unlink()
    bad, true = generator.choice(store.shard_paths(folder)), Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == bad.name:
            raise OSError(generator.choice((5, 13, 116)), "not now", str(path))
        return true(path)

    with patch.object(Path, "read_bytes", read_bytes):
        code, printed = told("run", str(a.file()), "--out", str(folder), "--no-report")
    assert code == 1, (code, printed[-300:])
    assert bad.name in printed
    assert not (folder / "rejected").exists()
    assert bad.exists()


def odd_locks(a: Attack, generator: random.Random) -> None:
    folder = a.copy(generator)
    lock = folder / ".lock"
    kind = generator.randrange(5)
    if kind == 0:
        lock.symlink_to("nowhere")
    elif kind == 1:
        os.mkfifo(lock)
    elif kind == 2:
        lock.mkdir()
    else:
        odd = generator.choice(ODD)
        text = json.dumps({"host": odd, "pid": generator.choice(ODD), "token": odd, "beat": odd})
        lock.write_text(text[: generator.randint(0, len(text))], "utf-8")
    told("status", str(folder))
    told("show", str(folder))


def odd_places(a: Attack, generator: random.Random) -> None:
    outs = ("", "://", "x://y", "~nobody/x", "\x00", "a" * 300, "/dev/null", "/proc/x", "\udcff")
    out = generator.choice(outs)
    name = generator.choice(("plan", "run"))
    file = generator.choice((str(a.file()), "..toml", "", str(a.place), "/dev/null", "x\x1b.toml"))
    try:
        told(name, file, "--out", out, "--replications", "2")
    finally:
        (a.place / "..toml").unlink(missing_ok=True)


def hostile_names(a: Attack, generator: random.Random) -> None:
    """Names that spreadsheets, pages and terminals would run."""
    name = "".join(generator.choices(NASTY, k=2))
    path, out = a.file(name=name), a.place / "named"
    code, _ = told("run", str(path), "--out", str(out), "--force", "--no-report")
    if code:
        return
    csv = told("show", str(out), "--format", "csv", "--table", "cells")[1]
    cells = [cell.strip('"') for line in csv.splitlines()[1:] for cell in line.split(",")[1:3]]
    assert not any(cell[:1] in "=+@\t" for cell in cells if cell), cells
    assert "<b>" not in told("show", str(out), "--format", "markdown")[1]


def too_large_grids(a: Attack, generator: random.Random) -> None:
    """A machine with too little memory for the grid: refused before anything is made."""
    there = generator.randint(10**8, store.of_run(1) - 1)
    name = generator.choice(("check", "plan", "run"))
    out = [] if name == "check" else ["--out", str(a.place / "none")]
    with patch.object(memory, "of_machine", lambda: there):
        code, printed = told(name, str(a.file()), *out)
    assert (code, "GB of memory" in printed) == (2, True), printed
    assert not (a.place / "none").exists()


def odd_arguments(a: Attack, generator: random.Random) -> None:
    folder = str(a.whole["rows"])
    odd = generator.choice(("0", "-1", "inf", "nan", "1e400", "x", "", "9" * 5000, "1/0", "\x1b"))
    choices = (
        ("verify", folder, "--seconds", generator.choice(("0", "-1", "nan", "x", "1e-9"))),
        ("run", str(a.file()), "--shard", odd), ("run", str(a.file()), "--replications", odd),
        ("plan", str(a.file()), "--jobs", odd), ("check", str(a.file()), "--seed", odd),
        ("check", str(a.file()), "--set", f"tries={odd}"), ("show", folder, "--table", odd),
        ("best", folder, "--metric", odd), ("trace", str(a.file()), "--cell", odd),
    )  # fmt: skip
    os.chdir(a.place)
    told(*generator.choice(choices))


def interrupts(a: Attack, generator: random.Random) -> None:
    """A signal at a random moment: 130 or 143, one line, and the same command ends the run."""
    out = a.place / "interrupted"
    shutil.rmtree(out, ignore_errors=True)
    modes = (("run",), ("run", "--jobs", "1"), ("plan",), ("check",), ("run", "--shard", "1/2"))
    name, *options = generator.choice(modes)
    where = [] if name == "check" else ["--out", str(out)]
    more = ["--no-report"] if name == "run" else []
    # a parent that ignores Ctrl-C hands that down
    begin = "import signal; signal.signal(2, signal.SIG_DFL); from mc.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", begin, name, str(a.file()), *where, *options, *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    number = generator.choice((signal.SIGINT, signal.SIGTERM))
    time.sleep(random.uniform(0.1, 4.0))
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    # before the program's first instruction Python itself ends, by the signal
    assert process.returncode in (0, 128 + number, -number), (process.returncode, err[-300:])
    assert "Traceback" not in err, err[-300:]
    if out.exists() and generator.random() < 0.3:
        code, printed = told("run", str(a.file()), "--out", str(out), "--no-report")
        assert code == 0, printed[-300:]
        assert mc.load(out).replications.equals(a.rows)


def surroundings(a: Attack, generator: random.Random) -> None:
    """Variables that disturb libraries, a full disk as output, an address space with a limit."""
    check, show = ("check", str(a.file())), ("show", str(a.whole["rows"]))
    kind = generator.randrange(4)
    if kind == 0:
        name = generator.choice(("NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS", "COLUMNS", "LANG"))
        variables = os.environ | {name: generator.choice(("1", "x", "-1"))}
        assert command(*generator.choice((check, show)), env=variables).returncode == 0
    elif kind == 1:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mc", *generator.choice((check, show))],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300,
            )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr[-300:]
    elif kind == 2:
        limit = generator.choice((1.0, 1.2, 1.5)) * 1e9
        done = _limited(int(limit), *show)
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done.stderr[-300:]
    else:
        assert command(*generator.choice((check, show)), stdin=None, cwd="/").returncode == 0


def _limited(n_bytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    import resource

    return command(
        *arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes)),
    )


def silent_schedulers(a: Attack, generator: random.Random) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        out = str(a.place / "cluster")
        done = command("run", str(a.file()), "--out", out, "--scheduler", address)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr[-300:]


def damaged_caches(a: Attack, generator: random.Random) -> None:
    """A file of compiled code is damaged: it is made anew, and the rows are the same."""
    from mc.kernel import CACHE_FOLDER

    copied = a.place / "home"
    if not copied.exists():
        shutil.copytree(CACHE_FOLDER, copied)
    files = [path for path in copied.rglob("*") if path.is_file()]
    path = generator.choice(files)
    content = path.read_bytes()
    path.write_bytes(generator.choice((b"", content[: len(content) // 2], content[::-1])))
    code = (
        f"from mc.kernel import cache; cache.CACHE_FOLDER = {str(copied)!r}\n"
        "import mc; print(mc.simulate([mc.Cell(tries=(3,))], 3)['calls'].to_list())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-300:]


KINDS: Final[dict[Callable[[Attack, random.Random], None], int]] = {
    changed_experiments: 350,
    flipped_bits: 200,
    forged_tables: 40,
    forged_manifests: 250,
    forged_footers: 60,
    lost_files: 40,
    unreadable_shards: 20,
    odd_locks: 60,
    odd_places: 60,
    hostile_names: 30,
    too_large_grids: 30,
    odd_arguments: 80,
    interrupts: 15,
    surroundings: 12,
    silent_schedulers: 1,
    damaged_caches: 1,
}
"""What is tried, and how often."""


def say(line: str, stream: TextIO = sys.stdout) -> None:
    stream.write(line + "\n")
    stream.flush()


def main(chosen: str = "", n: str = "") -> None:
    """Try, and print the table of kinds, trials and failures."""
    os.environ["RETRYSTORM_NO_REPORT"] = "1"
    say("| kind | trials | failures | seconds |\n|---|---:|---:|---:|")
    n_all = n_failed = 0
    with tempfile.TemporaryDirectory() as place:
        attack = Attack(Path(place))
        for kind, usual in KINDS.items():
            if chosen and kind.__name__ != chosen:
                continue
            failures, started = 0, time.monotonic()
            for trial in range(int(n or usual)):
                try:
                    kind(attack, random.Random(f"{kind.__name__} {trial}"))
                except Exception as error:
                    failures += 1
                    text = f"{type(error).__name__}: {error}"[:400]
                    say(f"{kind.__name__} {trial}: {text}", sys.stderr)
            seconds = time.monotonic() - started
            name = kind.__name__.replace("_", " ")
            say(f"| {name} | {int(n or usual)} | {failures} | {seconds:.0f} |")
            n_all, n_failed = n_all + int(n or usual), n_failed + failures
    say(f"| all | {n_all} | {n_failed} | |")
    sys.exit(n_failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
