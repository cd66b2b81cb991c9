"""The rooms of the package: who imports whom, who prints, and what no room names."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

ROOMS: Final = {
    "kernel": 0,
    "model": 1,
    "experiment": 2,
    "statistics": 3,
    "store": 3,
    "decisions": 4,
    "runner": 4,
    "reports": 5,
    "cli": 6,
}

# the face of the package and `python -m mc` are no rooms
DOORS: Final = {"__init__", "__main__"}


def sources() -> dict[str, Path]:
    """Every source file of the package by its room; a room may be a folder."""
    package = ROOT / "mc"
    return {str(path.relative_to(package).with_suffix("")): path for path in package.rglob("*.py")}


def room_of(name: str) -> str:
    return Path(name).parts[0]


def modules(path: Path, package: str) -> Iterator[str]:
    """Full names of all that a file imports, wherever in the file, `TYPE_CHECKING` included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            start = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            # `from mc import store` names a room only in its last word
            yield from (f"{base}.{alias.name}" for alias in node.names)


def rooms_imported(name: str, path: Path) -> set[str]:
    package = ".".join(["mc", *Path(name).parts[:-1]])
    parts = [module.split(".") for module in modules(path, package)]
    return {module[1] for module in parts if module[0] == "mc" and len(module) > 1}


def test_every_file_of_the_package_stands_in_a_known_room() -> None:
    got = {room_of(name) for name in sources()}
    expected = {*ROOMS, *DOORS}
    assert got == expected


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_with_a_smaller_number(room: str) -> None:
    for name, path in sources().items():
        if room_of(name) != room:
            continue
        imported = rooms_imported(name, path) - {room}
        assert imported <= set(ROOMS), "a room goes to other rooms, not through the front door"
        got = {other for other in imported if ROOMS[other] >= ROOMS[room]}
        expected: set[str] = set()
        assert got == expected, path


def test_the_map_in_the_package_docstring_is_the_one_that_is_tested() -> None:
    text = (ROOT / "mc" / "__init__.py").read_text("utf-8")
    lines = re.findall(r"^    (\d)  (\w+) ", ast.get_docstring(ast.parse(text), False) or "", re.M)
    got = {room: int(number) for number, room in lines}
    expected = ROOMS
    assert got == expected


NAMES_THAT_SAY_NOTHING: Final = (
    *("base", "common", "core", "helpers", "misc", "printing", "tables", "tracing"),
    *("utils", "words"),
)


@pytest.mark.parametrize("name", NAMES_THAT_SAY_NOTHING)
def test_no_two_files_share_a_name_that_says_nothing_without_its_room(name: str) -> None:
    got = [source for source in sources() if Path(source).name == name]
    assert len(got) <= 1


def test_the_readme_of_the_package_names_every_file() -> None:
    text = (ROOT / "mc" / "README.md").read_text("utf-8")
    files = text.partition("## The files")[2].partition("## Where a change goes")[0]
    got = {}
    for room, section in re.findall(r"^\*\*(\w+)\*\*(.*?)(?=^\*\*|\Z)", files, re.M | re.S):
        first_columns = re.findall(r"^\| (.*?) \|", section, re.M)
        got[room] = {name for names in first_columns for name in re.findall(r"`(\w+)`", names)}
    expected: dict[str, set[str]] = {}
    for name in sources():
        if room_of(name) not in DOORS:
            expected.setdefault(room_of(name), set()).add(Path(name).name)
    commands = set(re.findall(r"^    (\w+),$", sources()["cli/__init__"].read_text("utf-8"), re.M))
    expected["cli"] -= commands  # each stands in the file of its name
    for room in ROOMS:
        assert got[room] | {"__init__"} == expected[room] | {"__init__"}, room


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_only_the_command_line_prints(room: str) -> None:
    for name, path in sources().items():
        if room_of(name) != room:
            continue
        printing = {"rich", "typer", "logging", "warnings"}
        if path.name in ("style.py", "cache.py"):
            # one silences those of glyphs; the other's reach whoever calls `mc.simulate`
            printing -= {"warnings"}
        got = {module.split(".")[0] for module in modules(path, "mc")} & printing
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Name) and node.id in ("print", "input"):
                got.add(node.id)
            if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr", "exit"):
                got.add(node.attr)
        expected: set[str] = set()
        assert got == expected, path


TOUCHES_FILES: Final = {
    *("open", "read_text", "write_text", "write_bytes", "savetxt", "tofile", "unlink", "rename"),
    *("read_parquet", "scan_parquet", "write_parquet", "read_csv", "write_csv", "write_table"),
}
"""Calls by which a room would touch a file."""


@pytest.mark.parametrize("room", ["kernel", "model", "statistics"])
def test_the_middle_touches_no_file(room: str) -> None:
    """But for the kernel's cache of compiled code."""
    for name, path in sources().items():
        if room_of(name) != room or name == "kernel/cache":
            continue
        got = {
            node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        } & TOUCHES_FILES
        expected: set[str] = set()
        assert got == expected, path


def test_the_kernel_imports_only_numpy_numba_and_where_caches_belong() -> None:
    got = {
        module.split(".")[0]
        for name, path in sources().items()
        if room_of(name) == "kernel"
        for module in modules(path, "mc.kernel")
    }
    expected = {"mc", "numpy", "numba", "llvmlite", "platformdirs"}  # llvmlite: numba's back end
    assert got - sys.stdlib_module_names == expected


def test_the_oracle_imports_nothing_from_the_package() -> None:
    got = {module.split(".")[0] for module in modules(ROOT / "tests" / "oracle.py", "tests")}
    assert not got & {"mc", "numba", "polars"}


def test_the_package_names_no_test_and_no_path_outside_itself() -> None:
    files = [*(ROOT / "mc").rglob("*.py"), *(ROOT / "experiments").glob("*.toml")]
    outside = re.compile(
        r"\.\./shared|shared/|/work\b|\btest_\w+\.py|\btests?/\w|\boracle\b|golden_"
    )
    got = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in files
        for match in outside.finditer(path.read_text("utf-8"))
    ]
    expected: list[str] = []
    assert got == expected


def test_no_experiment_needs_python() -> None:
    files = {path for path in (ROOT / "experiments").rglob("*") if path.is_file()}
    got = {path.suffix for path in files - {ROOT / "experiments" / "README.md"}}
    expected = {".toml", ".csv"}  # traffic to replay
    assert got == expected
