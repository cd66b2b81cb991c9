"""How messages write names and values, and which known one they suggest for an unknown one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from mc.model.digits import value_text

SHOWN: Final = 12
"""A message lists no more values than this."""

N_NAMED: Final = 3
"""A sentence names no more cells, policies or scenarios than this."""


# ---- Names -----------------------------------------------------------------------------------


def quote(name: str) -> str:
    """Put a name in quotation marks; what would disturb the terminal is written as its code."""
    return json.dumps(name, ensure_ascii=not name.isprintable())


def listed(names: Collection[str]) -> str:
    """Quote each of several names."""
    return ", ".join(quote(name) for name in names)


def first_of(names: Sequence[str]) -> str:
    """List a few names, and say how many more there are."""
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return ", ".join(names[:N_NAMED]) + more


LIKE: Final = 0.65
"""A name is suggested if it is at least as similar, by the ratio of `difflib`: "four" to "three" is
not."""


def suggestion(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name, if one is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=LIKE)
    return f"; did you mean {quote(near[0])}?" if near else ""


def hint(name: str, known: Collection[str]) -> str:
    """Suggest the nearest known name; where none is near, list all of them."""
    listing = f"; there are {listed(known)}" if known else ""
    return suggestion(name, known) or listing


class Caution(str):
    """A message that must be heard for the results to be understood, even by who wants none."""

    __slots__ = ()


def table_label(kind: str, number: int, name: object = None) -> str:
    """Name a table of the file: by its own name, or by its number if it has none."""
    return f"{kind} {quote(name)}" if isinstance(name, str) and name else f"{kind} {number}"


def cell_label(scenario: str, policy: str, at: dict[str, Any]) -> str:
    """Name a cell by where it stands on every axis."""
    names = [f"scenario {quote(scenario)}", f"policy {quote(policy)}"]
    return ", ".join(names + [f"{name} {value_text(value)}" for name, value in at.items()])


# ---- Values ----------------------------------------------------------------------------------


def show(value: object) -> str:
    """Write what stands in the file, cut where it is long."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """Cut a text where it is long."""
    return text if len(text) <= 60 else text[:57] + "..."


Write = Callable[[str, Any], str]
"""Writes a value of a parameter as the file has it, with a unit or without."""


def values_text(values: Collection[Any], write: Callable[[Any], str] = value_text) -> str:
    """Write several values; of many the first ones, the last and their number."""
    texts = [write(value) for value in values]
    are_apart = all(" " not in text or text.startswith("[") for text in texts)
    between = " " if are_apart else ", "
    if len(texts) <= SHOWN:
        return between.join(texts)
    return f"{between.join([*texts[: SHOWN - 2], '...', texts[-1]])} ({len(texts)} values)"


def tries_text(text: str) -> str:
    """Write attempts as tables have them: [3, 3] is 3x3."""
    inner = text.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        return text
    return "x".join(entry.strip() for entry in inner[1:-1].split(","))


def same_values(value: object, known: Collection[Any]) -> list[Any]:
    """Find the known values that a value means.

    That is itself; where it is not among them, those that are written alike: a value made by a
    range or a design has up to 17 digits, of which a message shows six.
    """
    if value in known:
        return [value]
    text = value_text(value)
    return [entry for entry in known if value_text(entry) == text]
