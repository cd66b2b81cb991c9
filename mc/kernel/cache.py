"""How compiled code is made, where it is kept, and how one function has a form for each type."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from platformdirs import user_cache_path

__all__ = ["CACHE_FOLDER", "compiled", "form_for"]


def _cache_folder() -> str:
    """Name a folder after all sources of the kernel and the versions, so it is never stale.

    Numba looks for edits only in the file of the function itself, not in those it calls.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + source.read_bytes())
    versions = (sys.version, *(version(name) for name in ("numba", "llvmlite", "numpy")))
    digest.update(repr(versions).encode())
    root = os.environ.get("NUMBA_CACHE_DIR") or user_cache_path("retrystorm")
    return str(Path(root) / f"kernel-{digest.hexdigest()[:16]}")


CACHE_FOLDER: Final = _cache_folder()
"""Where the compiled code of this room is kept."""

_OPTIONS: Final[Any] = {"error_model": "numpy", "_nrt": False}
"""How everything is compiled.

`_nrt`: no function here allocates, and without numba's reference counts a call costs nothing
beside its work (with them, 84 instead of 11 ns for a retry).
"""


def _writable(folder: str) -> bool:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def compiled(*, entry: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for the types it is called with, when it is first called with them.

    An `entry` can be called from Python, and lets other threads run meanwhile. The others do
    without what that takes: a quarter of the time of compiling.

    Without a place for the cache every start compiles anew; better slow than not at all.
    """
    import numba

    # its attributes are made at import, unseen by type checkers
    config: Any = numba.config
    kind: Any = {"nogil": True} if entry else {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def make(function: Callable[..., Any]) -> Any:
        before, config.CACHE_DIR = config.CACHE_DIR, CACHE_FOLDER  # read by `njit`
        try:
            return numba.njit(cache=_writable(CACHE_FOLDER), **_OPTIONS, **kind)(function)
        finally:
            config.CACHE_DIR = before

    return make


def form_for(kind: type | None, function: Any) -> Callable[[Any], Any]:
    """Register the form that a function has if its first argument is of a class, or None.

    The form is chosen when the caller is compiled, so nobody pays for those that are not chosen.
    """
    from numba import types
    from numba.extending import overload

    def fits(argument: Any) -> bool:
        if kind is None:
            return isinstance(argument, types.NoneType)
        return getattr(argument, "instance_class", None) is kind

    def register(make: Any) -> Any:
        @overload(function, jit_options=_OPTIONS, strict=False)
        def choose(first, *others):
            return make if fits(first) else None

        return make

    return register
