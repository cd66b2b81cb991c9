"""How folders and files are named on the command line and in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from test_cli import SMALL, files, invoke, write

import mc
from mc import store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's home, which is not the folder they are in."""
    place, here = tmp_path / "home", tmp_path / "here"
    place.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(here)
    return place


def test_a_tilde_is_the_home_folder_for_every_command(home: Path) -> None:
    write(SMALL, str(home / "small.toml"))
    assert invoke("run", "~/small.toml", "--out=~/results")[0] == 0
    for command in ("status", "show", "verify", "report"):
        code, _, err = invoke(command, "~/results")
        assert code == 0, err
    for arguments in (
        ("check", "~/small.toml"),
        ("plan", "~/small.toml", "--out=~/results"),
        ("new", "~/new.toml"),
        ("trace", "~/small.toml", "--out=~/trace.parquet"),
    ):
        code, _, err = invoke(*arguments)
        assert code == 0, err
    assert mc.load("~/results").complete
    assert mc.run("~/small.toml", "~/results").complete
    caches = {".cache", ".config"}  # of matplotlib
    assert {path.name for path in home.iterdir()} - caches == {
        *("small.toml", "results", "new.toml", "retrystorm.schema.json"),
        *("trace.parquet", "trace.svg", "trace.png"),
    }
    assert files() == set()


NOT_FOLDERS: Final = {
    "": "names no folder",
    " ": "names no folder",
    "://": "neither a path nor a URL",
    "://x": "neither a path nor a URL",
    "x://y": "neither a path nor a URL",
    "~nobody-at-all/x": "no such home folder",
}


@pytest.mark.parametrize("name", NOT_FOLDERS)
def test_what_names_no_folder_is_refused_and_nothing_is_written(name: str) -> None:
    file = write(SMALL)
    before = files()
    for arguments in (
        ("run", file, f"--out={name}"),
        ("plan", file, f"--out={name}"),
        ("status", name),
        ("show", name),
        ("report", name),
    ):
        code, out, err = invoke(*arguments)
        assert (code, out) == (2, ""), arguments
        assert NOT_FOLDERS[name] in err
    with pytest.raises(store.FolderError, match=NOT_FOLDERS[name]):
        mc.load(name)
    assert files() == before


@pytest.mark.parametrize("name", ["..toml", "...toml"])
def test_a_file_without_a_name_does_not_name_the_folder_of_its_results(name: str) -> None:
    write(SMALL, name)
    code, out, err = invoke("run", name)
    assert (code, out) == (2, "")
    assert err == f"{name}: names no results folder; give one with --out\n"
    assert files() == {name}


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(store.FolderError, match="no NUL"):
        store.path_of("x\0y")
