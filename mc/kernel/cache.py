"""How compiled code is made, where it is kept, and how one function has a form for each type."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import uuid
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from platformdirs import user_cache_path

__all__ = ["CACHE_FOLDER", "CacheWarning", "compiled", "form_for"]


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

_OPTIONS: Final[Any] = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""How everything is compiled.

`_nrt`: no function here allocates, and without numba's reference counts a call costs nothing
beside its work (with them, 84 instead of 11 ns for a retry).
"""


_LINKED: Final = tuple(map(int, version("numba").split(".")[:2])) <= (0, 68)
"""Whether `linking` is used: the versions of numba that were tried with it, 0.61 to 0.68. It uses
what numba does not promise to keep; a later one compiles without, in half as much time again."""


def _part(*, forceinline: bool) -> dict[str, Any]:
    """How is compiled beside what Python does not call.

    Numba hands `forceinline` on to whatever is compiled meanwhile, if that does not say otherwise.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "forceinline": forceinline}
    if _LINKED:
        from mc.kernel.linking import PartCompiler

        options["pipeline_class"] = PartCompiler
    return options


class CacheWarning(RuntimeWarning):
    """Compiled code cannot be kept, so that every start compiles anew."""


class SealedCache:
    """Compiled code of one function: a file for each signature, with its hash in front.

    It takes the place of numba's own cache, which trusts what it finds: a file that was cut short
    or damaged there ends the process in `pickle` or in LLVM. Here a file whose content is not what
    was written counts as none, and is written again. Files are moved into place whole, and no
    index has to agree with them.

    Parameters
    ----------
    function : callable
        What is compiled.
    """

    _HASH_BYTES = 32

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._constants = _constants(function)

    @property
    def cache_path(self) -> str | None:
        """The folder, if files can be written there."""
        return CACHE_FOLDER if _writable(CACHE_FOLDER) else None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Read what was compiled for a signature; None: there is nothing of use."""
        from numba.core.compiler import CompileResult

        # numba's own refreshes the target here, which imports what compiling needs: 0.3 s of 0.33.
        # Machine code needs none of it, and the compiler does it itself before it compiles.
        key = self._key(signature, target.codegen())
        path = self._path(key)
        try:
            content = path.read_bytes() if path.is_file() else b""  # a pipe would be waited for
        except OSError:
            return None
        seal, payload = content[: self._HASH_BYTES], content[self._HASH_BYTES :]
        if hashlib.sha256(payload).digest() != seal:
            return None
        kept_key, reduced = pickle.loads(payload)
        return CompileResult._rebuild(target, *reduced) if kept_key == key else None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write what was compiled, or warn that it cannot be."""
        from numba.core.serialize import dumps

        key = self._key(signature, result.codegen)
        payload = dumps((key, result._reduce()))
        path = self._path(key)
        partial = path.with_suffix(f".{uuid.uuid4().hex[:8]}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                partial.write_bytes(hashlib.sha256(payload).digest() + payload)
                partial.replace(path)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
        except OSError as error:
            _warn_once(error)

    def _key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        # the machine's instructions are in it: a home folder may be shared by several kinds
        return (self._name, self._constants, str(signature), codegen.magic_tuple())

    def _path(self, key: tuple[Any, ...]) -> Path:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return Path(CACHE_FOLDER) / f"{self._name}-{digest[:16]}.code"


def _constants(function: Any) -> tuple[Any, ...]:
    """What a function has from the one that made it: all else is in the hash of the sources."""
    inner = getattr(function, "py_func", function)
    cells = (cell.cell_contents for cell in inner.__closure__ or ())
    return tuple(_constants(value) if callable(value) else value for value in cells)


_warned: Final[set[str]] = set()


def _warn_once(error: OSError) -> None:
    if CACHE_FOLDER in _warned:
        return
    _warned.add(CACHE_FOLDER)
    warnings.warn(
        f"{CACHE_FOLDER}: {error.strerror}; the compiled kernel cannot be kept there, and every "
        "start compiles it anew; set NUMBA_CACHE_DIR to a folder that has room and can be "
        "written to",
        CacheWarning,
        stacklevel=2,
    )


def _writable(folder: str) -> bool:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def compiled(*, entry: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for the types it is called with, when it is first called with them.

    An `entry` can be called from Python, and lets other threads run meanwhile. The others are parts
    of entries, see `linking`.

    Without a place for the cache every start compiles anew; better slow than not at all.

    Raises
    ------
    RuntimeError
        Numba was told not to compile.
    """
    import numba

    # made when numba is imported, unseen by type checkers
    config: Any = numba.config
    if config.DISABLE_JIT:
        raise RuntimeError("NUMBA_DISABLE_JIT is set: the kernel runs compiled only; unset it")
    kind: Any = {"nogil": True} if entry else _part(forceinline=False)
    if entry and _LINKED:
        from mc.kernel.linking import EntryCompiler

        kind["pipeline_class"] = EntryCompiler

    def make(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**_OPTIONS, **kind)(function)
        if entry:
            dispatcher._cache = SealedCache(function)
        return dispatcher

    return make


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into each function that calls it.

    Numba makes it once; LLVM puts it into its callers, however large it is: to pass the hundreds of
    words of some tables takes longer than most of what is done with them.
    """
    import numba

    return numba.njit(**_OPTIONS, **_part(forceinline=True))(function)


def form_for(kinds: type | tuple[type | None, ...] | None, function: Any) -> Callable[[Any], Any]:
    """Register the form that a function has if its first argument is of some classes, or None.

    The form is chosen when the caller is compiled, so nobody pays for those that are not chosen.
    """
    from numba import types
    from numba.extending import overload

    listed = kinds if isinstance(kinds, tuple) else (kinds,)

    def fits(argument: Any) -> bool:
        if isinstance(argument, types.NoneType):
            return None in listed
        return getattr(argument, "instance_class", ...) in listed

    def register(make: Any) -> Any:
        @overload(function, jit_options=_OPTIONS | _part(forceinline=True), strict=False)
        def choose(first, *others):
            return make if fits(first) else None

        return make

    return register
