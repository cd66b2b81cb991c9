"""What the READMEs show of the output of commands: read by their tests, renewed by a script."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
WALKTHROUGH: Final = ROOT / "experiments" / "README.md"
RESULTS: Final = ROOT / "results" / "README.md"

LEFT_OUT: Final = "...\n"
"""Stands between the parts of an output of which not all is shown."""


def fences(path: Path) -> list[tuple[str, str]]:
    """Each fenced block of a README: its language and its text."""
    text = path.read_text("utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown_runs() -> list[tuple[str, str]]:
    """Each `retrystorm` command of the README, and the output shown for it."""
    runs, command = [], ""
    for language, text in fences(README):
        if language == "sh":
            found = re.search(r"retrystorm ((?:run|best|ask) .+)\n", text)
            command = found.group(1) if found else ""
        elif language == "text" and command:
            runs.append((command, text))
    return runs


def make_home(folder: Path) -> Path:
    """Fill a folder with the experiments, and those that READMEs show, named in a comment."""
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    for language, text in (*fences(README), *fences(WALKTHROUGH)):
        if language == "toml":
            (folder / text.split()[1]).write_text(text, "utf-8")
    return folder


def output_of(arguments: list[str], cwd: Path, code: int = 0) -> str:
    """Run Python where a line has 100 characters; stdout, then stderr."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def walk_through() -> Iterator[str]:
    """Do what experiments/README.md says, in the present folder; yield each output it shows."""
    from typer.testing import CliRunner

    from mc.cli import app

    namespace: dict[str, Any] = {}
    blocks = fences(WALKTHROUGH)
    for (language, text), (after, _) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        printed = {}
        if language == "sh":
            for command in text.splitlines():
                arguments = command.removeprefix("retrystorm ").split()
                result = CliRunner().invoke(app, arguments, catch_exceptions=False)
                assert result.exit_code == (2 if "mistakes" in command else 0), result.stderr
                printed[arguments[0]] = result.stdout or result.stderr
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(text, namespace)  # as someone would who goes through it
            printed["python"] = out.getvalue()
        if after == "text":  # of several commands it is the check whose output is shown
            yield printed.get("check") or printed.popitem()[1]


def parts_of(shown: str) -> list[str]:
    """The parts of an output that are shown, without blanks at the ends of lines."""
    parts = (part.strip("\n").split("\n") for part in shown.split(LEFT_OUT))
    return ["\n".join(map(str.rstrip, lines)) for lines in parts]


def missing(shown: str, output: str) -> str | None:
    """The first part that does not follow the others in an output; None if all do."""
    rest = "\n".join(map(str.rstrip, output.split("\n")))
    for part in parts_of(shown):
        _, found, rest = rest.partition(part)
        if not found:
            return part
    return None
