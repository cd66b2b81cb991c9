"""experiments/README.md: it lists what is shipped, and its walk-through prints what it shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from shown import WALKTHROUGH, fences, make_home, missing, walk_through

from mc import experiment as experiments

FOLDER: Final = WALKTHROUGH.parent


def test_every_shipped_question_is_listed_with_its_size() -> None:
    text = WALKTHROUGH.read_text("utf-8")
    rows = re.findall(r"^\| `(.*?)` \| .*? \| ([\d,]+) \|", text, re.MULTILINE)
    got = {name: int(n_cells.replace(",", "")) for name, n_cells in rows}
    paths = FOLDER.glob("*.toml")
    expected = {path.name: len(experiments.read(path).points) for path in paths}
    assert got == expected
    assert all(tomllib.loads((FOLDER / name).read_text("utf-8"))["title"] for name in got)


def test_the_walk_through_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_home(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)
    shown = [text for language, text in fences(WALKTHROUGH) if language == "text"]
    printed = list(walk_through())
    assert [missing(*pair) for pair in zip(shown, printed, strict=True)] == [None] * len(shown)
