"""Options and arguments that several commands share, and what their values must look like."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mc.cli.stderr import fail

FORMATS: Final = ("table", "json", "csv", "markdown")


def one_of(names: Callable[[], Sequence[str]], metavar: str = "") -> dict[str, Any]:
    """Keywords of an option that takes one of some names: a message for others, completion."""

    def parse(text: str) -> str:
        if text not in (known := names()):
            from mc.experiment.messages import quote, suggestion

            raise typer.BadParameter(
                f"must be one of {', '.join(known)}, got {quote(text)}{suggestion(text, known)}"
            )
        return text

    return {
        "parser": parse,
        "autocompletion": lambda incomplete: [n for n in names() if n.startswith(incomplete)],
        "metavar": metavar or "|".join(names()),
    }


def whole(least: int | None = None, most: int | None = None) -> dict[str, Any]:
    """Keywords of an option that takes a whole number: a message for others."""
    rule = "a whole number"
    if least is not None:
        rule += f" >= {least}" if most is None else f" from {least} to {most}"

    def parse(text: str | int) -> int:
        # a default comes as a number
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", str(text)) else None
        if number is None or not (
            (least is None or number >= least) and (most is None or number <= most)
        ):
            from mc.experiment.messages import quote

            digits = re.sub(r"[,_ '](?=[0-9]{3})", "", str(text))
            cure = f"; write {digits}" if digits != text and digits.isdecimal() else ""
            raise typer.BadParameter(f"must be {rule}, got {quote(str(text))}{cure}")
        return number

    return {"parser": parse, "metavar": "NUMBER"}


def _complete_setting(incomplete: str) -> list[str]:
    from mc.model import PARAMETERS

    return [f"{name}=" for name in PARAMETERS if name.startswith(incomplete)]


def name_values(settings: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """Split every NAME=VALUE of an option that may be repeated; each name may come once."""
    values = {}
    for setting in settings or ():
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            fail(f"{option}: must be name=value, got {setting!r}", 2)
        if name in values:
            fail(f"{option}: {name} is given twice", 2)
        values[name] = value
    return values


def home_expanded(path: Path | None) -> Path | None:
    """Replace ``~``, which a shell leaves as it is in quotes and after ``--out=``."""
    return path and Path(os.path.expanduser(path))  # unlike Path's it leaves an unknown ~name


File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The experiment: a TOML file.", callback=home_expanded),
]
Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="A results folder, or the URL of one.")
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Results folder, or a URL: s3://bucket/folder.  [default: results/<name of FILE>]",
    ),
]
Replications = Annotated[
    int | None,
    typer.Option(help="Replications of every cell, in place of the file's.", **whole(1)),
]
Seed = Annotated[int | None, typer.Option(help="Seed, in place of the file's.", **whole())]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Threads; results do not depend on it.  [default: all cores]", **whole(1, 1024)
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=_complete_setting,
        help="A parameter of every cell, or an entry of its table (budget.ratio=0.2), in place of "
        "the file's; may be repeated.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Start afresh in a folder that holds other results.")
]
NoReport = Annotated[
    bool,
    typer.Option(
        "--no-report", help="Draw no figures and write no page.", envvar="RETRYSTORM_NO_REPORT"
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress, and no messages but errors and what the results must be read with.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="A table to look at, JSON or CSV for programs, or Markdown for a page.",
        **one_of(lambda: FORMATS),
    ),
]
