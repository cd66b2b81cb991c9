"""The manifest of a results folder: how it is sealed, and what it must look like to be read.

A folder may come from anybody. Its manifest ends with a hash of all that stands before it, so
damage is noticed; and because a hash can be made by anyone, everything that the program takes out
of it is checked as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mc.store.files import FOLDERS, MANIFEST, TABLES, content_of, sha256, write
from mc.store.paths import FolderError

PROGRAM: Final = "retrystorm"
"""By this word a manifest is known as ours: many programs have a file of that name."""

FORMAT: Final = 5
"""Version of the folder's layout."""

OTHER_TABLES: Final = 4
"""A format whose shards are as they are now, with other tables: `run` makes these anew."""

_SINCE: Final = {3: ' (layers were flattened then; now they are nested unless chain = "flattened")'}
"""Why the numbers of a format that can no longer be read would be others today."""

_SEAL: Final = "sha256"
"""The key of the hash; it comes last."""

_Line = Annotated[str, Field(pattern=r"^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$")]
_Printable = Annotated[_Line, Field(max_length=10_000)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_FileName = Annotated[str, Field(max_length=255, pattern=r"^[\w.-]+\.parquet$")]
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Column(_Model):
    unit: _Printable
    meaning: _Printable


class _Named(_Model):
    name: _Printable


class _Axis(_Named):
    values: list[Any]


class _Design(_Model):
    ranges: list[_Named]


class _Experiment(_Model):
    title: _Printable
    generator: Literal["philox", "lesson"]
    seed: _Count
    replications: _Count | None
    precision: dict[str, Any] | None
    seeds: list[_Count] | None
    keep: Literal["rows", "histograms"]
    baseline: _Printable | None
    fixed: dict[_Printable, Any]
    scenario: list[_Named]
    policy: list[_Named]
    grid: list[_Axis]
    design: _Design | None
    exclude: list[Any]
    claim: list[dict[str, Any]]
    published: list[dict[str, Any]]


class _Manifest(_Model):
    title: _Printable
    file: _Printable
    options: list[_Line] = []
    complete: bool
    experiment: _Experiment
    experiment_sha256: _Hash
    generator: _Printable
    seed: _Count
    replications: _Count
    n_cells: _Count
    n_rows: _Count
    versions: dict[_Printable, _Printable]
    started: _Printable
    cells: list[_Printable]
    columns: dict[_Printable, dict[_Printable, _Column]]
    metrics: dict[_Printable, _Column]


class _Finished(_Manifest):
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    jobs: _Count
    tables: dict[Literal["cells", "summary", "comparisons", "claims"], _Hash]
    shards: dict[_FileName, _Count]


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with its hash, whole or not at all."""
    sealed = {key: value for key, value in manifest.items() if key != _SEAL}
    sealed[_SEAL] = _hash_of(sealed)
    text = json.dumps(sealed, indent=2, ensure_ascii=False) + "\n"
    write(folder, MANIFEST, text.encode(errors="replace"))  # a file's name need not be UTF-8


def read_manifest(
    folder: Path, *, any_version: bool = False, to_run: bool = False
) -> dict[str, Any] | None:
    """Read the manifest.

    Parameters
    ----------
    folder : Path
        The results folder.
    any_version : bool
        Whether one of another version of this program will do.
    to_run : bool
        Whether one will do that has other tables.

    Returns
    -------
    dict or None
        None where there is none.

    Raises
    ------
    FolderError
        It is that of another program or version, or cannot be read; a `DamagedError` if it is
        ours, and not as it was written.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(content_of(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FolderError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError):
        raise DamagedError(path, "no JSON") from None
    if not isinstance(content, dict) or content.get("program") != PROGRAM:
        raise FolderError(
            f"{path}: not the manifest of a results folder; give another folder with --out"
        )
    number = content.get("format")
    if number == OTHER_TABLES and not any_version and not to_run:
        raise FolderError(
            f"{folder}: its tables are those of an earlier version of this program; the command "
            "that made the folder makes them anew, from the replications that it has"
        )
    if number == OTHER_TABLES:
        number = FORMAT
    if number != FORMAT and not any_version and isinstance(number, int):
        raise FolderError(
            f"{path}: format {number}, of another version of this program, which reads format "
            f"{FORMAT}{_SINCE.get(number, '')}; run the experiment anew, with --force or into "
            "another folder with --out"
        )
    if not any_version:
        _check(path, content)
    return content


class DamagedError(FolderError):
    """A manifest that is not as it was written."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(
            f"{path}: damaged ({what}); retrystorm run with the experiment's file makes it anew"
        )


def _check(path: Path, content: dict[str, Any]) -> None:
    """Refuse a manifest that was changed, or that no run wrote."""
    if content.get(_SEAL) != _hash_of({k: v for k, v in content.items() if k != _SEAL}):
        raise DamagedError(path, "its content is not what was written")
    try:
        model = _Finished if content.get("complete") is True else _Manifest
        known = model.model_validate(content)
        if isinstance(known, _Finished) and known.tables.keys() != set(TABLES):
            raise DamagedError(path, "tables: not those of a finished run")
        if not known.columns.keys() >= {*TABLES, FOLDERS[known.experiment.keep]}:
            raise DamagedError(path, "columns: not those of every table")
    except (ValidationError, RecursionError) as error:
        what = "too deep"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            what = f"{''.join(filter(str.isprintable, where))[:80]}: {first['msg']}"
        raise DamagedError(path, what) from None


def _hash_of(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
