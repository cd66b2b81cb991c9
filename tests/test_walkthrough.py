"""experiments/README.md: it lists what is shipped, and its walk-through prints what it shows."""

from __future__ import annotations

import contextlib
import io
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from mc import experiment as experiments
from mc.cli import app

FOLDER: Final = Path(__file__).parents[1] / "experiments"
README: Final = (FOLDER / "README.md").read_text("utf-8")
FENCES: Final = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_every_shipped_question_is_listed_with_its_size() -> None:
    rows = re.findall(r"^\| `(.*?)` \| .*? \| ([\d,]+) \|", README, re.MULTILINE)
    got = {name: int(n_cells.replace(",", "")) for name, n_cells in rows}
    paths = FOLDER.glob("*.toml")
    expected = {path.name: len(experiments.read(path).points) for path in paths}
    assert got == expected
    assert all(tomllib.loads((FOLDER / name).read_text("utf-8"))["title"] for name in got)


def without_blanks_at_the_end(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def test_the_walk_through_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    for language, text in FENCES:
        if language == "sh":
            for command in text.splitlines():
                arguments = command.removeprefix("retrystorm ").split()
                result = CliRunner().invoke(app, arguments, catch_exceptions=False)
                assert result.exit_code == 0, result.stderr
                if arguments[0] == "check":
                    printed.append(result.stdout)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(text, namespace)  # as someone would who goes through it
            printed.append(out.getvalue())
    shown = [text for language, text in FENCES if language == "text"]
    got = list(map(without_blanks_at_the_end, printed))
    expected = list(map(without_blanks_at_the_end, shown))
    assert got == expected
    assert len(got) == 5
