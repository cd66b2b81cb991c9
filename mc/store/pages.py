"""Files that are drawn: the last line of a page has the hashes of the others and of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mc.store.files import content_of, sha256

PAGE: Final = "report.html"

_SEAL: Final = re.compile(rb"\A(.*\n)<!-- (\{[^{}]*\}) ([0-9a-f]{64}) -->\n\Z", re.DOTALL)


def sealed(page: bytes, others: Mapping[str, bytes]) -> bytes:
    """A page with its last line.

    Parameters
    ----------
    page : bytes
        All but that line.
    others : mapping of str to bytes
        The files that go with it, by their place in the folder.

    Returns
    -------
    bytes
    """
    named = json.dumps({name: sha256(content) for name, content in others.items()}).encode()
    return b"%s\n<!-- %s %s -->\n" % (page, named, sha256(page + b"\n" + named).encode())


def page_faults(folder: Path) -> list[str]:
    """What is wrong with the page of a folder and the files that go with it; no page is no fault.

    Raises
    ------
    OSError
        The page is there and cannot be read.
    """
    path = folder / PAGE
    try:
        content = content_of(path)
    except FileNotFoundError:
        return []
    match = _SEAL.match(content)
    if match is None or sha256(match[1] + match[2]) != match[3].decode():
        return [f"{path}: damaged; retrystorm report makes it anew"]
    hashes: dict[str, str] = json.loads(match[2])
    faults = []
    for name, expected in hashes.items():
        try:
            if sha256(content_of(folder / name)) != expected:
                faults.append(f"{folder / name}: damaged; retrystorm report makes it anew")
        except OSError as error:
            faults.append(f"{folder / name}: {error.strerror}; retrystorm report makes it anew")
    return faults
