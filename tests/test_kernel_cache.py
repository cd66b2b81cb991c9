"""Compiled code on disk: what is damaged there, or cannot be written, stops nobody."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mc.kernel import cache


def _double_all(n: int) -> int:
    return 2 * n


def _adder(constant: int) -> Any:
    def add(n: int) -> int:
        return n + constant

    return cache.compiled(entry=True)(add)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setattr(cache, "CACHE_FOLDER", str(place))
    monkeypatch.setattr(cache, "_warned", set())
    return place


def compile_anew() -> Any:
    """Return a function as a new process has it: nothing compiled, whatever is on disk."""
    return cache.compiled(entry=True)(_double_all)


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "emptied": lambda content: b"",
    "cut in the hash": lambda content: content[:20],
    "cut in half": lambda content: content[: len(content) // 2],
    "one bit of the hash": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "one bit of the code": lambda content: (
        content[:-200] + bytes([content[-200] ^ 8]) + content[-199:]
    ),
    "another's": lambda content: b"not compiled code" * 100,
}


def test_compiled_code_is_read_again(folder: Path) -> None:
    assert compile_anew()(21) == 42
    again = compile_anew()
    assert again(21) == 42
    assert hits(again) == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_again(damage: str, folder: Path) -> None:
    compile_anew()(1)
    (path,) = folder.iterdir()
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = compile_anew()
    assert again(21) == 42
    assert hits(again) == 0
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    mended = compile_anew()
    assert mended(21) == 42
    assert hits(mended) == 1


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    compile_anew()(1)
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert compile_anew()(21) == 42
    assert path.is_file()


def test_functions_that_differ_in_a_constant_are_kept_apart(folder: Path) -> None:
    assert [_adder(constant)(1) for constant in (1, 2, 1)] == [2, 3, 2]
    assert len(list(folder.iterdir())) == 2


def test_code_of_a_file_with_another_name_is_not_taken(folder: Path) -> None:
    _adder(1)(1)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    path.unlink()
    _adder(2)(1)
    (path,) = folder.iterdir()
    path.write_bytes(content)
    assert _adder(2)(1) == 3


@pytest.mark.parametrize(
    ("method", "code"), [("write_bytes", errno.ENOSPC), ("replace", errno.EACCES)]
)
def test_a_cache_that_cannot_be_written_is_said_once(
    method: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(code, "no room", str(path))

    monkeypatch.setattr(Path, method, refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [compile_anew()(21), compile_anew()(20), _adder(1)(1)] == [42, 40, 2]
    (warning,) = caught
    assert warning.category is cache.CacheWarning
    assert "set NUMBA_CACHE_DIR" in str(warning.message)
    assert list(folder.iterdir()) == []


def program() -> Any:
    """Make an entry that has parts, as a new process has it."""

    @cache.compiled()
    def one_more(n: int) -> Any:
        return n + 1

    @cache.compiled()
    def never(n: int) -> Any:
        return n if n & 1 < 2 else one_more(n)  # LLVM sees that nothing is called here

    @cache.compiled()
    def always(n: int) -> Any:
        return one_more(n)

    @cache.compiled(entry=True)
    def twice(n: int) -> Any:
        return never(n) + always(n)

    return twice


def test_a_part_is_linked_though_the_first_that_names_it_does_not_call_it(folder: Path) -> None:
    for _ in range(2):  # compiled, then read
        assert program()(20) == 41


def alone(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run a program in a process with these variables of the environment."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_place_that_is_no_folder_is_said_once_on_one_line(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    (tmp_path / "program.py").write_text(
        "from mc.cli.stderr import warnings_as_lines\n"
        "from mc.kernel import cache\n"
        "def add(n): return n + 1\n"
        "with warnings_as_lines():\n"
        "    print([cache.compiled(entry=True)(add)(n) for n in range(3)])\n"
    )
    code, out, err = alone(str(tmp_path / "program.py"), NUMBA_CACHE_DIR=str(place))
    assert (code, out) == (0, "[1, 2, 3]\n")
    assert re.fullmatch(rf"{place}/kernel-\S+: Not a directory; .* set NUMBA_CACHE_DIR .*\n", err)


def test_variables_that_break_numba_do_not_reach_a_command() -> None:
    code, _, err = alone(
        *("-m", "mc", "trace", "experiments/lesson.toml"),
        NUMBA_DISABLE_JIT="1",
        NUMBA_NUM_THREADS="many",
    )
    assert code == 2
    assert re.search(r"(?m)\A(compiling .*\n)?.*: \d+ cells are meant", err)
    code, _, err = alone(
        "-c", "import mc; mc.simulate([mc.Cell()], replications=1)", NUMBA_DISABLE_JIT="1"
    )
    assert code == 1
    assert "NUMBA_DISABLE_JIT is set" in err


ROWS: Final = """
import importlib.metadata as metadata
import sys
real = metadata.version
metadata.version = lambda name: sys.argv[1] if name == "numba" and sys.argv[1] else real(name)
import mc
chain = dict(fault_rounds=100, tries=(3, 3, 3), budget=0.3)
cells = [mc.Cell(**chain), mc.Cell(**chain, chain="flattened"), mc.Cell(**chain, queue=30)]
rows = mc.simulate(cells, replications=50, seed=1).hash_rows().sum()
print("mc.kernel.linking" in sys.modules, rows)
"""


@pytest.mark.slow
def test_a_numba_that_was_not_tried_compiles_the_same_without_linking(tmp_path: Path) -> None:
    _, linked, _ = alone("-c", ROWS, "")
    for _ in range(2):  # compiled, then read
        code, plain, _ = alone("-c", ROWS, "0.99.0", NUMBA_CACHE_DIR=str(tmp_path))
        assert code == 0
        assert plain == linked.replace("True", "False")
    assert linked.startswith("True ")
