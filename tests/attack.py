"""Attacks of every kind, at random: whatever is wrong with a file, a folder or the surroundings.

    python tests/attack.py            all kinds; prints the table of tests/README.md
    python tests/attack.py interrupts 1000

A trial fails where the program ends in a traceback, with an exit code other than 0, 1 or 2 (130 and
143 after a signal), prints a control character, believes something that is wrong, or loses a row.
Trials are numbered, and the same each time but for the moments of signals. Linux: some need
namespaces (`unshare`) for processes and disks of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import fsspec
import polars as pl
import pyarrow.parquet as pq
from mutants import mutant
from test_locks import HOLD
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app
from mc.store import FolderError, lock, memory, paths

EXPERIMENT: Final = """
title = "attacked"
KEEP
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

KEPT: Final = {
    "rows": "replications = 40",
    "histograms": 'replications = 40\nkeep = "histograms"',
    "precise": '[precision]\nmetric = ["calls"]\nrelative = 0.01\nmin = 20\nmax = 80',
}
"""What is kept of the experiment, or how its replications are chosen."""

TABLES: Final = ("cells", "summary", "comparisons", "claims")

NASTY: Final = ("=1+1", "+x", "@x", "<b>x", "|x|", "'", "x\u202ey", "../x", "$(x)", "&amp;", "\\")

ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 1 << 80, 1e308, "", "\x1b[31mx", "x" * 20_000, [], [None], {}, {"a": {}}),
    *([[]] * 9, "\u202e", float("nan"), ["=x"], {"name": 3}, "nul\x00"),
)


class Attack:
    """A folder to work in, with a finished run of each kind that is copied for each trial."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = {keep: self.file(place / f"{keep}.toml", keep) for keep in KEPT}
        self.whole = {keep: place / f"whole-{keep}" for keep in KEPT}
        for keep, folder in self.whole.items():
            mc.run(self.files[keep], folder)
            mc.report(folder)

    def file(self, path: Path, keep: str = "rows", name: str = "three") -> Path:
        text = EXPERIMENT.replace("KEEP", KEPT[keep]).replace('"NAME"', json.dumps(name))
        path.write_text(text, "utf-8")
        return path

    def copy(self, generator: random.Random) -> Path:
        folder = self.place / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.whole[generator.choice(tuple(KEPT))], folder)
        return folder

    @contextmanager
    def room(self) -> Iterator[Path]:
        """A folder for one trial alone: others may be under way."""
        with tempfile.TemporaryDirectory(dir=self.place) as room:
            yield Path(room)

    def check_whole(self, keep: str, folder: Any) -> None:
        """The same command ends the run, with the tables of one that was never disturbed."""
        got, expected = mc.run(self.files[keep], folder), mc.load(self.whole[keep])
        assert got.complete
        assert not list(folder.glob(".*")), list(folder.glob(".*"))
        for name in (*TABLES, *(["replications"] if keep != "histograms" else [])):
            assert getattr(got, name).equals(getattr(expected, name)), (keep, name)


def files_of(folder: Path) -> list[Path]:
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
    path = generator.choice([p for p in files_of(folder) if p.name != store.PAGE])
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
    title = mc.load(folder).manifest["experiment"]
    keep = "precise" if title["precision"] else title["keep"]
    for path in generator.sample(files_of(folder), generator.randint(1, 3)):
        damage = generator.randrange(3)
        if damage == 0:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: 0 if damage == 1 else path.stat().st_size // 2])
    code, printed = told("run", str(a.files[keep]), "--out", str(folder), "--no-report")
    assert code == 0, printed[-300:]
    a.check_whole(keep, folder)


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
        code, printed = told("run", str(a.files["rows"]), "--out", str(folder), "--no-report")
    assert code == 1, (code, printed[-300:])
    assert bad.name in printed
    assert not (folder / "rejected").exists()
    assert bad.exists()


ODD_FILES: Final[dict[str, Callable[[Path], object]]] = {
    "a pipe": os.mkfifo,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a hole of a terabyte": lambda path: os.truncate(
        os.open(path, os.O_CREAT | os.O_RDWR), 1 << 40
    ),
}


def odd_files(a: Attack, generator: random.Random) -> None:
    """Something that is no file, or has no end, where a file of the folder was."""
    folder = a.copy(generator)
    path = generator.choice(files_of(folder))
    what = generator.choice(tuple(ODD_FILES))
    path.unlink()
    ODD_FILES[what](path)
    file = str(a.files["rows"])
    name, *options = generator.choice((
        ("verify", str(folder)), ("show", str(folder)), ("status", str(folder)),
        ("report", str(folder)), ("best", str(folder), "--metric", "calls"),
        ("run", file, "--out", str(folder)), ("plan", file, "--out", str(folder)),
    ))  # fmt: skip
    with _limited_to(6_000_000_000, 60):
        code, printed = told(name, *options)
    assert name != "verify" or code, (what, path.name)
    assert not code or path.name in printed or str(folder) in printed, (what, path.name, printed)


@contextmanager
def _limited_to(n_bytes: int, seconds: int) -> Iterator[None]:
    """Let nothing here take more memory, or longer: in this process, on its main thread."""

    def end(signum: int, frame: object) -> None:
        raise AssertionError(f"took longer than {seconds} s")

    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, before[1]))
    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


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
        record: dict[str, Any] = {"pid": 1 << 22, "host": "x", "machine": "x", "token": "x"}
        record |= {"beat": "0", "started": "2026-12-01T00:00:00+00:00"}
        for key in generator.sample(tuple(record), generator.randint(1, 3)):
            record[key] = generator.choice(ODD)
        text = json.dumps(record)
        lock.write_text(text[: generator.choice((len(text), len(text) // 2))], "utf-8")
    told("status", str(folder))
    told("show", str(folder))


def odd_places(a: Attack, generator: random.Random) -> None:
    outs = (
        *("", "://", "x://y", "~nobody/x", "\x00", "a" * 300, "/dev/null", "/proc/x", "\udcff"),
        *("/", ".", "..", str(a.place), "/dev/fd/0", "\x1b[31m", "file:///proc/x", "file://", "-"),
    )
    out = generator.choice(outs)
    name = generator.choice(("plan", "run"))
    file = generator.choice(
        (str(a.files["rows"]), "..toml", "", str(a.place), "/dev/null", "/dev/zero", "x\x1b.toml")
    )
    try:
        told(name, file, "--out", out, "--replications", "2")
    finally:
        (a.place / "..toml").unlink(missing_ok=True)


def hostile_names(a: Attack, generator: random.Random) -> None:
    """Names that spreadsheets, pages and terminals would run."""
    name = "".join(generator.choices(NASTY, k=2))
    odd = generator.choice(("x", "\x1b[31m", "\u202e", "\n", "=1+1", "*?[", "--help"))
    path, out = a.file(a.place / f"{odd}.toml", name=name), a.place / "named"
    shutil.rmtree(out, ignore_errors=True)
    code, _ = told("run", "--out", str(out), "--no-report", "--", str(path))
    path.unlink()
    if code:
        return
    assert told("status", str(out))[0] == 0
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
        code, printed = told(name, str(a.files["rows"]), *out)
    assert (code, "GB of memory" in printed) == (2, True), printed
    assert not (a.place / "none").exists()


def odd_arguments(a: Attack, generator: random.Random) -> None:
    folder = str(a.whole["rows"])
    odd = generator.choice(("0", "-1", "inf", "nan", "1e400", "x", "", "9" * 5000, "1/0", "\x1b"))
    file = str(a.files["rows"])
    choices = (
        ("verify", folder, "--seconds", generator.choice(("0", "-1", "nan", "x", "1e-9"))),
        ("run", file, "--shard", odd), ("run", file, "--replications", odd),
        ("plan", file, "--jobs", odd), ("check", file, "--seed", odd),
        ("check", file, "--set", f"tries={odd}"), ("show", folder, "--table", odd),
        ("best", folder, "--metric", odd), ("trace", file, "--policy", odd),
        ("trace", file, "--replication", odd), ("trace", file, "--at", odd),
    )  # fmt: skip
    os.chdir(a.place)
    told(*generator.choice(choices))


MODES: Final[tuple[tuple[str, ...], ...]] = (
    *(("run",), ("run", "--jobs", "1"), ("run", "--no-report"), ("run", "--shard", "1/2")),
    *(("run", "--force"), ("run", "--dry-run"), ("plan",), ("check",), ("trace",), ("merge",)),
    *(("report",), ("verify", "--all"), ("show",), ("best", "--metric", "calls"), ("status",)),
)
"""Commands that are stopped, with their options."""

_OF_FILES: Final = ("check", "trace", "sensitivity")
_OF_FOLDERS: Final = ("report", "verify", "show", "best", "status")

# a parent that ignores Ctrl-C hands that down
BEGIN: Final = (
    "import signal; signal.signal(2, signal.SIG_DFL); from mc.__main__ import main; main()"
)


def interrupts(a: Attack, generator: random.Random) -> None:
    """Ctrl-C or SIGTERM at a random moment, half of them during the imports, some twice."""
    signum = generator.choice((signal.SIGINT, signal.SIGTERM))
    code, err, ended_alone = _stop(a, generator, signum)
    # before the program's first instruction, and after its last, Python itself ends, by the signal
    assert code in (128 + signum, -signum) or ended_alone, (code, err[-300:])
    assert "Traceback" not in err, err[-300:]
    if code == 128 + signum:
        stopped = [line for line in err.splitlines() if line.startswith("stopped")]
        assert stopped == err.splitlines()[-1:], err[-300:]


def kills(a: Attack, generator: random.Random) -> None:
    """`kill -9` at a random moment."""
    _stop(a, generator, signal.SIGKILL)


def _stop(a: Attack, generator: random.Random, signum: int) -> tuple[int, str, bool]:
    """Stop a command and let it go on; give code, errors, and whether it had ended before."""
    keep, (name, *options) = generator.choice(tuple(KEPT)), generator.choice(MODES)
    cpu_seconds = generator.uniform(*generator.choice(((0, 0.5), (0.3, 2.5))))
    again = generator.uniform(0, 0.3) if generator.random() < 0.2 else None
    with a.room() as room:
        out, file = room / "out", a.files[keep]
        if name in ("merge", *_OF_FOLDERS) or generator.random() < 0.5:
            shutil.copytree(a.whole[keep], out)
            if name not in _OF_FOLDERS and generator.random() < 0.7:
                for table in TABLES:
                    (out / f"{table}.parquet").unlink()
                for shard in store.shard_paths(out)[:: generator.randint(1, 3)]:
                    shard.unlink(missing_ok=name != "merge")
        where = [str(out)] if name in _OF_FOLDERS else [str(file)]
        if name not in (*_OF_FILES, *_OF_FOLDERS):
            where += ["--out", str(out)]
        before = sorted(out.rglob("*"))
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, name, *where, *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=room,
        )  # fmt: skip
        # moments of its own time: the machine may have others to serve
        while process.poll() is None and _cpu_seconds(process.pid) < cpu_seconds:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.01))
        ended_alone = process.poll() is not None
        process.send_signal(signum)
        if again is not None:
            time.sleep(again)
            process.send_signal(signum)
        _, err = process.communicate(timeout=120)
        ended_alone |= process.returncode in (0, 1, 2) and name in ("merge", "status")
        assert process.returncode in (0, 1, 2, -signum, 128 + signum), process.returncode
        if process.returncode == -signum != -signal.SIGKILL:
            # by the signal itself only before anything was begun, or when all was done
            is_done = all((out / f"{table}.parquet").exists() for table in TABLES)
            assert is_done or sorted(out.rglob("*")) == before, f"signal {signum} in the middle"
        if out.exists() and signum != signal.SIGKILL:
            assert not list(out.glob(".*")), list(out.glob(".*"))
        if out.exists() or name == "run":
            a.check_whole(keep, out)
    return process.returncode, err, ended_alone or process.returncode == 0


def _cpu_seconds(pid: int) -> float:
    """Time of the processor that a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


VARIABLES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS"), ("1", "x", "-1")),
    **dict.fromkeys(("COLUMNS", "LINES"), ("0", "1", "-1", "x", "99999999999")),
    **dict.fromkeys(("LANG", "LC_ALL"), ("C", "x", "tr_TR.UTF-8")),
    **dict.fromkeys(("TERM", "NO_COLOR", "FORCE_COLOR", "TZ"), ("", "dumb", "x", "\x7f")),
    "PYTHONIOENCODING": ("ascii", "latin-1", "utf-16"),
    "PYTHONOPTIMIZE": ("1", "2"),
    "PYTHONWARNINGS": ("error", "x"),
    "PYTHONUTF8": ("0", "1"),
    **dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), ("", "/nonexistent", "/dev/null", "x")),
    **dict.fromkeys(("NUMBA_OPT", "NUMBA_CPU_NAME", "NUMBA_THREADING_LAYER"), ("x",)),
    **dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), ("0", "x")),
    **dict.fromkeys(("MPLBACKEND", "MPLCONFIGDIR"), ("x", "/dev/null")),
}
"""Of the environment: what disturbs libraries."""


def surroundings(a: Attack, generator: random.Random) -> None:
    """Variables, streams, limits and a current folder that are not as usual."""
    with a.room() as room:
        folder = str(a.whole["rows"])
        some = generator.choice((
            ("check", str(a.files["rows"])), ("show", folder), ("status", folder),
            ("best", folder, "--metric", "calls"), ("--version",),
            ("run", str(a.files["rows"]), "--out", str(room / "out"), "--no-report"),
            ("report", str(shutil.copytree(folder, room / "whole"))),
        ))  # fmt: skip
        kind = generator.choice(("variable", "variable", "full", "pipe", "closed", "limit", "gone"))
        options: dict[str, Any] = {"stdout": subprocess.DEVNULL}
        codes: tuple[int, ...] = (0,)
        if kind == "variable":
            name = generator.choice(tuple(VARIABLES))
            options["env"] = os.environ | {name: generator.choice(VARIABLES[name])}
        elif kind == "full":
            options["stdout"] = os.open("/dev/full", os.O_WRONLY)
            codes = (0, 1) if some[0] in ("run", "report") else (1,)
        elif kind == "pipe":  # as before `| head`, which has ended
            end, options["stdout"] = os.pipe()
            os.close(end)
            codes = (0, 1, -signal.SIGPIPE, 128 + signal.SIGPIPE)
        elif kind == "closed":
            number = generator.randrange(3)
            options |= {"preexec_fn": lambda: os.close(number), "close_fds": False}
            options |= {"stdout": None} if number == 1 else {}
        elif kind == "limit":
            which, limit = generator.choice((
                (resource.RLIMIT_AS, 1_000_000_000), (resource.RLIMIT_AS, 1_500_000_000),
                (resource.RLIMIT_NOFILE, 30), (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_STACK, 1 << 20),
            ))  # fmt: skip
            options["preexec_fn"] = lambda: resource.setrlimit(which, (limit, limit))
            codes = (0, 1)
        else:
            gone = room / "gone"
            gone.mkdir()
            options |= {"cwd": gone, "preexec_fn": gone.rmdir}
        env = options.pop("env", dict(os.environ)) | {
            "PYTHONPATH": str(Path(mc.__file__).parents[1])
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mc", *some],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env, errors="replace",
            **options,
        )  # fmt: skip
        if kind in ("full", "pipe"):
            os.close(options["stdout"])
        _, err = process.communicate(timeout=300)
        what = (kind, options, some, process.returncode, err[-300:])
        assert "Traceback" not in err, what
        assert process.returncode in codes, what
        assert process.returncode != 1 or kind == "pipe" or len(err.splitlines()) == 1, what


def _answer_nonsense(listener: socket.socket, nonsense: bytes) -> None:
    """Send something to everyone who connects, again and again."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with contextlib.suppress(OSError), connection:
                for _ in range(1000):
                    connection.sendall(nonsense)


def schedulers(a: Attack, generator: random.Random) -> None:
    """An address of a scheduler where something else listens, or nothing, or that is none."""
    with socket.socket() as listener, a.room() as room:
        listener.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        kind = generator.choice(("silent", "closed", "HTTP", "nonsense", "none", "none"))
        if kind != "closed":
            listener.listen()
        answers = {
            "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "nonsense": generator.choice((b"\xff" * 4096, b"\x00" * 4096, generator.randbytes(99))),
        }
        if kind in answers:
            arguments = listener, answers[kind]
            threading.Thread(target=_answer_nonsense, args=arguments, daemon=True).start()
        if kind == "none":
            address = generator.choice((
                "tcp://no.such.host.invalid:8786", "", "x", "tcp://", "tcp://127.0.0.1:99999",
                "http://127.0.0.1", "tls://127.0.0.1:1", "inproc://x", "\x1b[31m", "tcp://[::1",
            ))  # fmt: skip
        out = room / "cluster"
        started = time.monotonic()
        done = command(
            "run", str(a.files["rows"]), "--out", str(out), "--scheduler", address,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**31, 2**31)),
        )  # fmt: skip
        remark = f"{a.files['rows']}: "
        said = [line for line in done.stderr.splitlines() if not line.startswith(remark)]
        assert (done.returncode, len(said)) == (2, 1), (kind, address, done)
        assert not out.exists()
        assert time.monotonic() - started < 60, (kind, address)


CACHE: Final = """
import sys
from mc.kernel import cache
from mc.cli.stderr import warnings_as_lines
cache.CACHE_FOLDER = sys.argv[1]
def double(n): return 2 * n
with warnings_as_lines():
    print(cache.compiled(entry=True)(double)(21))
"""

CACHES: Final[dict[str, str]] = {
    "whole": "true",
    "emptied": ': > "$file"',
    "cut": 'truncate -s $((RANDOM % 2000)) "$file"',
    "longer": 'echo >> "$file"',
    "one bit": 'python3 "$flip" "$file"',
    "another's": 'head -c 9000 /dev/urandom > "$file"',
    "a folder": 'rm "$file"; mkdir "$file"',
    "a pipe": 'rm "$file"; mkfifo "$file"',
    "a dangling link": 'ln -sf nowhere "$file"',
    "a link to itself": 'ln -sf "$file" "$file"',
    "a device": 'ln -sf /dev/full "$file"',
    "read-only": ': > "$file"; mount -o remount,ro "$cache"',
    "full": 'rm "$file"; head -c 9999999 /dev/zero > "$cache/zeros" 2> /dev/null',
    "no folder": 'umount "$cache"; rmdir "$cache"; : > "$cache"',
    "a folder that leads nowhere": 'umount "$cache"; rmdir "$cache"; ln -s nowhere/x "$cache"',
}
"""What is done to compiled code and its folder, a disk of its own."""


def caches(a: Attack, generator: random.Random) -> None:
    """Compiled code is damaged, or its folder: it is made anew, and said at most once."""
    with a.room() as room:
        (room / "compile.py").write_text(CACHE)
        (room / "flip.py").write_text(
            "import random, sys; from pathlib import Path; p = Path(sys.argv[1])\n"
            "b = bytearray(p.read_bytes()); b[random.randrange(len(b))] ^= 1; p.write_bytes(b)\n"
        )
        kind = generator.choice(tuple(CACHES))
        script = (
            f'cache={room}/cache; flip={room}/flip.py; mkdir "$cache"\n'
            'mount -t tmpfs -o size=100k none "$cache" || exit 3\n'
            f'compile="{sys.executable} {room}/compile.py"\n'
            '$compile "$cache" || exit 4; file=$(echo "$cache"/*)\n'
            f'{CACHES[kind]}\n$compile "$cache"\n'
        )
        done = _in_namespace(["bash", "-c", script])
        assert (done.returncode, done.stdout) == (0, "42\n42\n"), (kind, done)
        assert len(done.stderr.splitlines()) <= 1, (kind, done.stderr)


def _in_namespace(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """A process that may mount disks which nobody else sees."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *arguments],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def full_disks(a: Attack, generator: random.Random) -> None:
    """The disk of the folder is full at some moment: exit 1, then the same command goes on."""
    keep, n_kilobytes = generator.choice(tuple(KEPT)), 4 * generator.randint(1, 60)
    more = generator.choice(("", "--no-report"))
    with a.room() as room:
        run = f'{sys.executable} -m mc run {a.files[keep]} --out "$disk/out" {more}'
        script = (
            f"disk={room}/disk; mkdir $disk\n"
            f"mount -t tmpfs -o size={n_kilobytes}k none $disk || exit 3\n"
            f"{run} > {room}/first 2> {room}/error; echo $?\n"
            f"mount -o remount,size=20m $disk || exit 3; {run} > {room}/second || exit 4\n"
            f"cp -r $disk/out {room}/copy\n"
        )
        done = _in_namespace(["bash", "-c", script])
        assert (done.returncode, done.stdout) in ((0, "0\n"), (0, "1\n")), done
        error = (room / "error").read_text()
        assert "Traceback" not in error, error
        if done.stdout == "1\n":
            assert str(room / "disk") in error.splitlines()[-1], error
            assert "the same command goes on" in error.splitlines()[-1], error
        a.check_whole(keep, room / "copy")


def two_runs(a: Attack, generator: random.Random) -> None:
    """A run in a folder of another: living, stopped or killed; here, in a container, elsewhere."""
    keep = generator.choice(tuple(KEPT))
    where = generator.choice(("here", "container", "another host"))
    state = generator.choice(("alive", "stopped", "killed"))
    with a.room() as room, _impatient():
        out = shutil.copytree(a.whole[keep], room / "out")
        (out / "claims.parquet").unlink()
        before = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        process = subprocess.Popen(
            [*(before if where == "container" else []), sys.executable, "-c", HOLD, str(out)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            if state != "alive":
                signum = signal.SIGKILL if state == "killed" else signal.SIGSTOP
                os.killpg(process.pid, signum)
            if state == "killed":
                process.wait()
            time.sleep(generator.uniform(0, 2 * lock.SILENT_SECONDS))
            with _elsewhere() if where == "another host" else contextlib.nullcontext():
                refusal = ""
                try:
                    a.check_whole(keep, out)
                except FolderError as error:
                    refusal = str(error)
            expected = state == "killed" or (state == "stopped" and where == "another host")
            got_in = not refusal
            assert got_in is expected, (where, state, refusal)
            assert got_in or "in use by process" in refusal, refusal
            if state != "killed":
                os.killpg(process.pid, signal.SIGCONT)
                _, err = process.communicate("\n", timeout=60)
                # one whose folder was taken ends before it writes
                assert (out / "note").exists() is not got_in, (where, state)
                assert ("its lock is gone" in err) is got_in, err[-300:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        (out / "note").unlink(missing_ok=True)
        a.check_whole(keep, out)


@contextmanager
def _impatient() -> Iterator[None]:
    """Locks with a heartbeat that is not waited for as long."""
    with patch.object(lock, "BEAT_SECONDS", 0.05), patch.object(lock, "SILENT_SECONDS", 0.5):
        yield


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Make this process one of another machine, which does not see the locks of files."""
    with (
        patch.object(lock, "_machine", lambda: "another machine"),
        patch.object(lock, "_flock", lambda descriptor, path: True),
    ):
        yield


REQUESTS: Final = ("cat_file", "pipe_file", "ls", "exists", "isdir", "size", "modified", "rm_file")

TROUBLES: Final = (
    FileNotFoundError("404"),
    RuntimeError("An error occurred (InternalError) when calling GetObject"),
    TimeoutError("the store did not answer"),
    PermissionError("Forbidden"),
    ConnectionResetError(104, "Connection reset by peer"),
)


def stores(a: Attack, generator: random.Random) -> None:
    """An object store has trouble, for a moment or for good: nothing is lost or put aside."""
    keep, request = generator.choice(tuple(KEPT)), generator.choice(REQUESTS)
    trouble, first = generator.choice(TROUBLES), generator.randrange(40)
    n = generator.choice((1, 3, 10**6))
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    url = "memory://bucket/sweep"
    if generator.random() < 0.5:
        for path in files_of(a.whole[keep]):
            if generator.random() < 0.8:
                name = path.relative_to(a.whole[keep]).as_posix()
                files.pipe_file(f"/bucket/sweep/{name}", path.read_bytes())
    plain, n_asked = getattr(type(files), request), 0

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal n_asked
        n_asked += 1
        if first < n_asked <= first + n:
            raise trouble
        return plain(*arguments, **options)

    patient = patch.object(paths, "PATIENCE_SECONDS", (0.0, 0.0, 0.0))
    with _impatient(), patient:
        with patch.object(type(files), request, fail):
            code, printed = told("run", str(a.files[keep]), "--out", url, "--no-report")
        assert code in (0, 1, 2), printed[-300:]
        assert code == 0 or url in printed, printed[-300:]
        assert not [name for name in files.store if "rejected" in name]
        files.store.pop("/bucket/sweep/.lock", None)  # which could not be removed
        a.check_whole(keep, store.path_of(url))


KINDS: Final[dict[Callable[[Attack, random.Random], None], int]] = {
    changed_experiments: 300,
    odd_places: 60,
    odd_arguments: 80,
    odd_locks: 60,
    odd_files: 80,
    forged_manifests: 200,
    forged_footers: 60,
    forged_tables: 40,
    flipped_bits: 150,
    lost_files: 40,
    unreadable_shards: 20,
    stores: 60,
    two_runs: 30,
    hostile_names: 30,
    too_large_grids: 30,
    caches: 30,
    full_disks: 12,
    schedulers: 16,
    surroundings: 50,
    kills: 30,
    interrupts: 60,
}
"""What is tried, and how often."""

SIDE_BY_SIDE: Final = (caches, full_disks, schedulers, surroundings, kills, interrupts)
"""Kinds whose trials are processes of their own: two at once."""


def say(line: str, stream: TextIO = sys.stdout) -> None:
    stream.write(line + "\n")
    stream.flush()


def main(chosen: str = "", n: str = "") -> None:
    """Try, and print the table of kinds, trials and failures."""
    say("| kind | trials | failures | seconds |\n|---|---:|---:|---:|")
    n_all = n_failed = 0
    with tempfile.TemporaryDirectory() as place:
        attack = Attack(Path(place))
        for kind, usual in KINDS.items():
            if chosen and kind.__name__ != chosen:
                continue

            def fails(trial: int, kind: Callable[[Attack, random.Random], None] = kind) -> bool:
                try:
                    kind(attack, random.Random(f"{kind.__name__} {trial}"))
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"[:800]
                    say(f"{kind.__name__} {trial}: {text}", sys.stderr)
                    return True
                return False

            started, trials = time.monotonic(), range(int(n or usual))
            if kind in SIDE_BY_SIDE:
                with ThreadPoolExecutor(2) as pool:
                    failures = sum(pool.map(fails, trials))
            else:
                failures = sum(map(fails, trials))
            seconds = time.monotonic() - started
            name = kind.__name__.replace("_", " ")
            say(f"| {name} | {len(trials)} | {failures} | {seconds:.0f} |")
            n_all, n_failed = n_all + len(trials), n_failed + failures
    say(f"| all | {n_all} | {n_failed} | |")
    sys.exit(n_failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
