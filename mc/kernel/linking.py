"""How the functions of an entry become one piece of machine code.

Numba makes each function ready to run by itself, and again as a part of each function that calls
it, and of those that call these: all is optimised and turned into machine code as often as calls
are deep. Here only an entry, which Python calls, becomes machine code, with all its parts. A *part*
is a function that only compiled code calls; it stays what LLVM begins with, until it is linked into
an entry. That takes two thirds of the time of compiling, and the code is as fast.

Only entries are kept on disk: numba's names of functions are unique in one process only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["EntryCompiler", "PartCompiler"]

# compiled itself, unseen by type checkers
_dynfunc: Final[Any] = import_module("numba._dynfunc")

_NEEDLESS: Final = {"inline_closure_likes", "nopython_rewrites"}
"""Passes for functions in functions and for arithmetic with whole arrays, of which there is none
here: a sixteenth of the time."""


class _EntryCode(JITCodeLibrary):
    """The code of an entry and of all its parts."""

    def add_linking_library(self, library: Any) -> None:
        """Take what a function is made of that is called, and what its parts are made of.

        Each stands behind all that call it: LLVM leaves out what nobody has called so far.
        """
        for code in (library, *(library._linking_libraries if _is_part(library) else ())):
            if code in self._linking_libraries:
                self._linking_libraries.remove(code)
            super().add_linking_library(code)


class _PartCode(_EntryCode):
    """The code of a part, which nobody runs but in an entry."""

    def finalize(self) -> None:
        """Leave all to the entry."""
        self._finalized = True


def _is_part(library: Any) -> bool:
    return isinstance(library, _PartCode)


def _handle(description: Any, environment: Any, code: _PartCode) -> Any:
    """What numba knows a part by: a function of Python without a body."""
    name = description.qualname.rpartition(".")[2]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (code,))


class EntryCompiler(Compiler):
    """Compiles an entry."""

    code: type[JITCodeLibrary] = _EntryCode

    def define_pipelines(self) -> Any:
        """Name the passes of numba that are needed, and where the code goes."""
        state = self.state
        state.library = self.code(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        (passes,) = super().define_pipelines()
        passes.passes = [one for one in passes.passes if one[0]._name not in _NEEDLESS]
        passes.finalize()
        return [passes]


class PartCompiler(EntryCompiler):
    """Compiles a part."""

    code = _PartCode

    def _compile_core(self) -> Any:
        self.state.flags.no_compile = True
        result = super()._compile_core()
        handle = _handle(result.fndesc, result.environment, result.library)
        self.state.targetctx.insert_user_function(handle, result.fndesc, [result.library])
        return result._replace(entry_point=handle)
