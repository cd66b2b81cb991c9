"""Experiment files with something wrong in them: the shipped ones, changed at random."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

SHIPPED: Final = sorted((Path(__file__).parent.parent / "experiments").glob("*.toml"))

VALUES: Final = (
    *("0", "-1", "1e308", "-1e-320", "nan", "inf", "-inf", "9223372036854775808", "10" * 40),
    *("true", '""', '"none"', '"20 ms"', '"1e999 s"', '"-5 %"', '"\\u0000"', '"\\u202Ex"'),
    *("[]", "[[]]", "[1, [2, [3]]]", "{}", "{from = 1, to = 0, steps = 3}", "[nan, 1]"),
    *("{from = 0, to = 1, steps = 9223372036854775807}", "1979-05-27", "0x7fffffff"),
    *('{kind = "grpc"}', '{kind = "sre", k = 0}', '{kind = ["grpc"]}', '[{kind = "aws"}]'),
    "[" * 600 + "]" * 600,
)
"""In place of a value: of another type, out of range, without end."""

KEYS: Final = ("rounds", "budget", "policy", "x", '""', "a.b.c", "tries", "from", "Title", "\u00e9")

TABLES: Final = ("[fixed]", "[[policy]]", "[grid]", "[design]", "[precision]", "[[claim]]", "[x]")

Lines = list[str]


def _value(lines: Lines, generator: random.Random) -> None:
    k = _a_line(lines, generator, r"^[^#\[]+=")
    key = lines[k].partition("=")[0]
    lines[k] = f"{key}= {generator.choice(VALUES)}"


def _number(lines: Lines, generator: random.Random) -> None:
    k = _a_line(lines, generator, r"=.*\d")
    number = generator.choice(("0", "-3", "1e9", "0.5", "99999999999", "1_000", "007", "1.", "+-2"))
    lines[k] = re.sub(r"\d+", number, lines[k], count=1)


def _key(lines: Lines, generator: random.Random) -> None:
    k = _a_line(lines, generator, r"^[^#\[]+=")
    lines[k] = f"{generator.choice(KEYS)} ={lines[k].partition('=')[2]}"


def _table(lines: Lines, generator: random.Random) -> None:
    lines[_a_line(lines, generator, r"^\[")] = generator.choice(TABLES)


def _removed(lines: Lines, generator: random.Random) -> None:
    del lines[generator.randrange(len(lines))]


def _twice(lines: Lines, generator: random.Random) -> None:
    k = generator.randrange(len(lines))
    lines.insert(generator.randrange(len(lines)), lines[k])


def _moved(lines: Lines, generator: random.Random) -> None:
    lines.insert(generator.randrange(len(lines)), lines.pop(generator.randrange(len(lines))))


def _cut(lines: Lines, generator: random.Random) -> None:
    k = generator.randrange(len(lines))
    lines[k:] = [lines[k][: generator.randrange(len(lines[k]) + 1)]]


def _character(lines: Lines, generator: random.Random) -> None:
    k = generator.randrange(len(lines))
    at = generator.randrange(len(lines[k]) + 1)
    inserted = generator.choice("\x00\x07\x1b\x7f\"'[]{}=,.#\u202e\ufeff\u0660\U0001f4a9-")
    lines[k] = lines[k][:at] + inserted + lines[k][at:]


CHANGES: Final[Sequence[Callable[[Lines, random.Random], None]]] = (
    *(_value, _value, _value, _number, _number, _key, _table),
    *(_removed, _twice, _moved, _cut, _character),
)


def _a_line(lines: Lines, generator: random.Random, pattern: str) -> int:
    """One of the lines that match, or any line."""
    matching = [k for k, line in enumerate(lines) if re.search(pattern, line)]
    return generator.choice(matching or range(len(lines)))


def mutant(number: int) -> bytes:
    """A shipped experiment with one to three changes, some in bytes; the same for each number."""
    generator = random.Random(number)
    lines = generator.choice(SHIPPED).read_text("utf-8").splitlines()
    for _ in range(generator.randint(1, 3)):
        generator.choice(CHANGES)(lines, generator)
        lines = lines or [""]
    content = bytearray("\n".join(lines).encode())
    if generator.random() < 0.1 and content:
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return bytes(content)
