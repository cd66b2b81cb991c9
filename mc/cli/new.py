"""The commands new and schema: an experiment file to start from, and its JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mc.cli import options
from mc.cli.stderr import fail, write_message
from mc.cli.stdout import print_text


def new(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The file to write: a name.toml.", callback=options.home_expanded
        ),
    ],
) -> None:
    """Write an experiment file to start from. It runs as it is.

    Comments in it explain what it says. A JSON schema is written beside it, so that editors
    complete and check it without a network. A file that exists is never written over.
    """
    from mc.experiment import SCHEMA_FILE, template

    if file.suffix != ".toml":
        fail(f"{file}: the name must end in .toml", 2)
    try:
        _write_new(file, template(file.name))
    except FileExistsError:
        fail(f"{file}: is there already; give another name", 2)
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}", 2)
    beside = file.with_name(SCHEMA_FILE)
    try:
        _write_new(beside, _schema_text())
        write_message(f"{beside}: for editors")
    except FileExistsError:
        pass  # written with another experiment
    except OSError as error:  # the experiment runs without it
        write_message(
            f"{beside}: cannot be written: {error.strerror}; editors will not know the keys"
        )
    write_message(f"{file}: edit it, then: retrystorm check {file}; retrystorm run {file}")


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)


def schema() -> None:
    """Print the JSON schema of experiment files, for editors.

    With it an editor completes and checks what is written. Editors with taplo (Even Better TOML)
    find it by the first line of the file: #:schema ./retrystorm.schema.json
    """
    print_text(_schema_text())


def _schema_text() -> str:
    from mc.experiment import json_schema

    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
