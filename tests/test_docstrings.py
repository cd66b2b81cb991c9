"""Docstrings: complete for the public API, and true wherever they list something."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import mc

PACKAGE: Final = Path(__file__).parent.parent / "mc"

FUNCTIONS: Final = [name for name in mc.__all__ if inspect.isfunction(getattr(mc, name))]
CLASSES: Final = [name for name in mc.__all__ if inspect.isclass(getattr(mc, name))]


def sections(docstring: str | None) -> dict[str, str]:
    """The sections of a docstring in numpy's style, by their titles."""
    parts = re.split(r"^(\w[\w ]*)\n-+$", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def listed(section: str) -> list[str]:
    """Names of the entries of a section: lines that are not set in."""
    heads = re.findall(r"^(\S.*)$", section, re.MULTILINE)
    return [name.strip("* ") for head in heads for name in head.partition(" : ")[0].split(",")]


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [entry for entry in (arguments.vararg, arguments.kwarg) if entry]
    return [entry.arg for entry in (*named, *extra) if entry.arg not in ("self", "cls")]


@cache
def definitions(kind: type[ast.AST]) -> list[tuple[str, Any]]:
    """All functions and methods, or classes, but those inside a function."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"))
        outers: list[ast.Module | ast.ClassDef] = [module]
        outers += [node for node in module.body if isinstance(node, ast.ClassDef)]
        for outer in outers:
            found += [
                (f"{path.relative_to(PACKAGE.parent)}: {node.name}", node)
                for node in outer.body
                if isinstance(node, kind) and isinstance(node, ast.FunctionDef | ast.ClassDef)
            ]
    return found


def test_the_public_api_is_functions_and_classes() -> None:
    assert sorted([*FUNCTIONS, *CLASSES]) == sorted(mc.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_gives_and_raises(name: str) -> None:
    function = getattr(mc, name)
    found = sections(function.__doc__)
    assert {"Parameters", "Returns", "Raises"} <= set(found)
    got = listed(found["Parameters"])
    expected = list(inspect.signature(function).parameters)
    assert got == expected
    assert all(found[title].strip() for title in found)


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_says_what_it_has(name: str) -> None:
    cls = getattr(mc, name)
    if issubclass(cls, Exception):
        assert cls.__doc__
        return
    got = listed(sections(cls.__doc__)["Attributes"])
    expected = [field.name for field in dataclasses.fields(cls)]
    assert got == expected
    for member, value in vars(cls).items():
        if not member.startswith("_") and (callable(value) or hasattr(value, "__get__")):
            assert inspect.getdoc(value), member


def test_a_list_of_parameters_is_that_of_the_function() -> None:
    got, expected = {}, {}
    for name, function in definitions(ast.FunctionDef):
        found = sections(ast.get_docstring(function))
        if "Parameters" in found:
            got[name] = listed(found["Parameters"])
            expected[name] = parameters(function)
    assert got == expected
    assert len(got) > 20


def test_a_list_of_attributes_is_that_of_the_class() -> None:
    got, expected = {}, {}
    for name, cls in definitions(ast.ClassDef):
        found = sections(ast.get_docstring(cls))
        fields = [node.target.id for node in cls.body if is_field(node)]
        if "Attributes" in found and fields:
            got[name] = listed(found["Attributes"])
            expected[name] = fields
    assert got == expected
    assert len(got) > 10


def is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def test_every_function_and_class_that_others_may_use_has_a_docstring() -> None:
    got = [
        name
        for kind in (ast.FunctionDef, ast.ClassDef)
        for name, node in definitions(kind)
        if not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    expected: list[str] = []
    assert got == expected


def test_a_docstring_that_promises_sections_has_those_that_belong_to_it() -> None:
    """What lists its parameters says what it returns, and which errors of its own it raises."""
    got = []
    for name, function in definitions(ast.FunctionDef):
        found = sections(ast.get_docstring(function))
        if function.name.startswith("_") or "Parameters" not in found:
            continue
        returned = "" if function.returns is None else ast.unparse(function.returns)
        raises = any(isinstance(node, ast.Raise) and node.exc for node in ast.walk(function))
        if returned not in ("", "None", "NoReturn") and not {"Returns", "Yields"} & set(found):
            got.append(f"{name}: Returns")
        if raises and "Raises" not in found:
            got.append(f"{name}: Raises")
    expected: list[str] = []
    assert got == expected
