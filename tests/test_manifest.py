"""A manifest that is lost, damaged or forged: one message, and the rows stand."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from folders import assert_same_results, run, snapshot
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.store import DamagedError, FolderError, shard_paths, write_manifest

TEXT: Final = """
title = "small"
replications = 40
[fixed]
rounds = 200
fault_start = 50
fault_rounds = 40
[[policy]]
name = "none"
[[policy]]
name = "one"
[[policy]]
name = "three"
tries = [3]
[grid]
backoff_cap = [8, 16]
[[claim]]
text = "three tries make more calls"
metric = "calls"
policies = ["none", "three"]
at = {backoff_cap = 8}
relation = "<"
"""

OF_HISTOGRAMS: Final = TEXT.replace("replications = 40", 'replications = 40\nkeep = "histograms"')


@pytest.fixture(scope="module", params=[TEXT, OF_HISTOGRAMS], ids=["rows", "histograms"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifest") / "finished"
    run(request.param, folder)
    return folder


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    shutil.copy(finished.parent / "small.toml", tmp_path)
    return Path(shutil.copytree(finished, tmp_path / "out"))


def again(out: Path, **options: Any) -> list[str]:
    told: list[str] = []
    mc.run(out.parent / "small.toml", out, say=told.append, **options)
    return told


LOSSES: Final[dict[str, Callable[[Path], object]]] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "a byte of it": lambda path: path.write_bytes(path.read_bytes().replace(b"small", b"smell", 1)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_manifest_that_is_lost_or_damaged_is_made_anew_from_the_rows(
    loss: str, out: Path, finished: Path
) -> None:
    before = {path: path.read_bytes() for path in shard_paths(out)}
    LOSSES[loss](out / "manifest.json")
    with pytest.raises(FolderError, match="retrystorm run with the experiment's file makes it"):
        mc.load(out)
    assert any("lost or damaged; it is made anew" in line for line in again(out))
    assert {path: path.read_bytes() for path in shard_paths(out)} == before
    assert not (out / "rejected").exists()
    assert mc.load(out).summary.equals(mc.load(finished).summary)
    assert mc.verify(out).ok


def test_cells_that_were_added_keep_their_numbers_without_the_manifest(tmp_path: Path) -> None:
    """The policy in the middle of the file has the last numbers in the folder."""
    less = TEXT.replace('[[policy]]\nname = "one"\n', "")
    out, whole = tmp_path / "out", tmp_path / "whole"
    run(less, out)
    run(TEXT, out)
    shutil.copytree(out, whole)
    (out / "manifest.json").unlink()
    run(TEXT, out)
    assert_same_results(out, whole)
    assert shard_paths(out) == [out / path.relative_to(whole) for path in shard_paths(whole)]


def test_rows_of_another_experiment_are_not_taken_for_its_own(out: Path) -> None:
    (out / "manifest.json").unlink()
    before = snapshot(out)
    for overrides in ({"rounds": "300"}, {"capacity": "5"}):
        with pytest.raises(FolderError, match="another experiment, and its manifest is lost"):
            again(out, overrides=overrides)
    with pytest.raises(FolderError, match="another experiment"):
        again(out, seed=5)
    assert snapshot(out) == before


@pytest.mark.parametrize("loss", ["removed", "cut"])
def test_force_starts_afresh_without_a_manifest(loss: str, out: Path) -> None:
    LOSSES[loss](out / "manifest.json")
    again(out, force=True, seed=5)
    assert mc.load(out).manifest["seed"] == 5
    assert mc.verify(out).ok


# --- what somebody else wrote --------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value of a manifest stands."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))


def mutate(manifest: Any, generator: random.Random) -> None:
    """Change a manifest somewhere: of another type, absurd, removed, hostile."""
    *path, key = generator.choice(list(places(manifest)))
    for step in path:
        manifest = manifest[step]
    values: list[Any] = [
        None,
        -1,
        2**70,
        1e308,
        "",
        "\x1b[31m\x00",
        "../../x",
        [],
        {},
        [[]],
        True,
        "x" * 99,
    ]
    if generator.random() < 0.2:
        del manifest[key]
    else:
        manifest[key] = generator.choice(values)


COMMANDS: Final = (
    ["status"],
    ["show"],
    ["show", "--format", "json"],
    ["best", "--metric", "dropped", "--per", "all"],
    ["verify", "--seconds", "0"],
)


def assert_met_with_one_message(out: Path) -> None:
    for command, *options in COMMANDS:
        done = CliRunner().invoke(app, [command, str(out), *options])
        text = done.output
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, text)
        assert done.exit_code in (0, 1, 2), (command, text)
        assert "\x1b" not in text, command
        assert "\x00" not in text, command
        if done.exit_code == 2:
            assert len(done.stderr.splitlines()) <= 3, (command, text)


def forge(out: Path, n: int, seed: int) -> None:
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    generator = random.Random(seed)
    for _ in range(n):
        changed = json.loads(json.dumps(manifest))
        mutate(changed, generator)
        write_manifest(out, changed)  # with its hash: what anybody can make
        assert_met_with_one_message(out)


def test_a_forged_manifest_is_met_with_one_message(out: Path) -> None:
    forge(out, n=6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_hundreds_of_forged_manifests_are_met_with_one_message(out: Path, seed: int) -> None:
    forge(out, n=60, seed=100 + seed)


def test_every_byte_of_a_manifest_counts(out: Path) -> None:
    path = out / "manifest.json"
    content = path.read_bytes()
    generator = random.Random(3)
    for _ in range(300):
        place = generator.randrange(len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << generator.randrange(7)
        try:
            is_same = json.loads(changed) == json.loads(content)
        except ValueError:
            is_same = False
        path.write_bytes(changed)
        if not is_same:
            with pytest.raises((DamagedError, FolderError)):
                mc.load(out)
