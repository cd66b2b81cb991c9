"""Put the real output of every command into README.md and experiments/README.md.

    python tests/refresh_readme.py

Run it where what is printed has changed on purpose, and look at the difference. It also draws
results/storm.svg anew. Of an output that is shown in parts, a part is found again by its first and
its last line, whatever the numbers in them; one that cannot be found is named, and to be mended
by hand.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from shown import (
    LEFT_OUT,
    README,
    ROOT,
    WALKTHROUGH,
    make_home,
    output_of,
    parts_of,
    shown_runs,
    walk_through,
)

PICTURE: Final = ROOT / "results" / "storm.svg"
"""The storm of the lesson's outage."""


class NotFoundError(Exception):
    """A part of an output that is no longer there."""


def shape(line: str) -> str:
    """A line without its numbers and the width of its columns."""
    return " ".join(re.sub(r"[-+]?\d[\d.,]*|─+", "#", line).split())


def renewed(shown: str, output: str) -> str:
    """The parts that are shown, as they are in an output of today."""
    lines = [line.rstrip() for line in output.split("\n")]
    shapes = list(map(shape, lines))
    at, parts = 0, []
    for part in parts_of(shown):
        old = part.split("\n")
        first, last = shape(old[0]), shape(old[-1])
        starts = [i for i in range(at, len(lines)) if shapes[i] == first]
        if not starts:
            raise NotFoundError(old[0])
        ends = [i for i in range(starts[0], len(lines)) if shapes[i] == last]
        if not ends:
            raise NotFoundError(old[-1])
        end = min(ends, key=lambda i: abs(i - starts[0] - len(old) + 1))
        parts.append("\n".join(lines[starts[0] : end + 1]))
        at = end + 1
    return f"\n{LEFT_OUT}".join(parts) + "\n"


def replace_blocks(path: Path, outputs: list[str]) -> None:
    """Renew the blocks of a README that show an output, in their order."""
    rest = iter(outputs)

    def block(found: re.Match[str]) -> str:
        try:
            return f"```text\n{renewed(found[1], next(rest))}```"
        except NotFoundError as error:
            sys.stderr.write(f"{path.name}: no longer printed, to be mended by hand: {error}\n")
            return found[0]

    pattern = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    path.write_text(pattern.sub(block, path.read_text("utf-8")), "utf-8")


def refresh_readme(folder: Path) -> None:
    """Renew README.md and its picture."""
    home = make_home(folder)
    outputs: dict[str, str] = {}
    for command, _ in shown_runs():
        if command not in outputs:
            outputs[command] = output_of(["-m", "mc", *shlex.split(command)], home)
    replace_blocks(README, [outputs[command] for command, _ in shown_runs()])
    output_of(["-m", "mc", "report", "results/lesson"], home)
    shutil.copy(home / "results" / "lesson" / "figures" / "storm-2.svg", PICTURE)


def refresh_walkthrough(folder: Path) -> None:
    """Renew experiments/README.md."""
    home = make_home(folder)
    with contextlib.chdir(home):
        printed = list(walk_through())
    replace_blocks(WALKTHROUGH, printed)


def main() -> None:
    """Renew both."""
    os.environ["RETRYSTORM_NO_REPORT"] = "1"
    os.environ.pop("COLUMNS", None)
    for refresh in (refresh_readme, refresh_walkthrough):
        with tempfile.TemporaryDirectory() as folder:
            refresh(Path(folder))


if __name__ == "__main__":
    main()
