"""What the tests of the results folder share: making one, and comparing two."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from polars.testing import assert_frame_equal

import mc

TABLES: Final = ("cells", "summary", "comparisons", "claims")

Snapshot = dict[str, tuple[bytes, int]]
"""Bytes and time of change of every file, by its path in the folder."""


def write(folder: Path, text: str, name: str = "small.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run(text: str, out: Path, **options: Any) -> list[str]:
    """Run an experiment into a folder; give what the user is told, a line each.

    Remarks on the file are not among it.
    """
    told: list[str] = []
    file = write(out.parent, text)
    mc.run(file, out, say=told.append, **options)
    return [line for line in told if not line.startswith(f"{file}: ")]


def snapshot(folder: Path) -> Snapshot:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def assert_same_results(folder: Path, expected: Path) -> None:
    """Every table equal row for row, whatever the shards are cut like."""
    got_results, expected_results = mc.load(folder), mc.load(expected)
    assert got_results.complete
    for table in ("replications", *TABLES):
        assert_frame_equal(getattr(got_results, table), getattr(expected_results, table))
