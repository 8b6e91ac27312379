"""The house is easy to enter: small rooms, names that are used once, classes and functions of one screen.

The limits say when to look for the parts that a thing consists of. They are no reason to cut in two what
belongs together: name it here then, and say why.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parents[2] / "stream_dp"

MODULES: Final = 16
METHODS: Final = 30
LINES: Final = 60
PARAMETERS: Final = 8

EXCEPTIONS: Final[dict[str, str]] = {}
"""What is beyond a limit -> why it stays."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{path} {node.name}", node


def too_many_methods(limit: int = METHODS) -> Iterator[str]:
    for name, node in classes():
        if sum(isinstance(each, Function) for each in node.body) > limit:
            yield name


def too_many_lines(limit: int = LINES) -> Iterator[str]:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, Function) and (node.end_lineno or 0) - node.lineno >= limit:
                yield f"{path} {node.name}"


def too_many_parameters(limit: int = PARAMETERS) -> Iterator[str]:
    for name, node in classes():
        for each in node.body:
            if isinstance(each, Function) and each.name == "__init__":
                asked = each.args
                if len([*asked.posonlyargs, *asked.args, *asked.kwonlyargs]) - 1 > limit:
                    yield name


@pytest.mark.parametrize("beyond", [too_many_methods, too_many_lines, too_many_parameters])
def test_what_is_beyond_a_limit_says_why(beyond: Callable[..., Iterator[str]]) -> None:
    assert [one for one in beyond() if one not in EXCEPTIONS] == []
    assert [*beyond(3)], "the limit is measured"


def test_no_exception_is_left_over() -> None:
    beyond = {*too_many_methods(), *too_many_lines(), *too_many_parameters()}
    assert EXCEPTIONS.keys() <= beyond
    assert len(EXCEPTIONS) <= 6


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(Path(path).parent for path, _ in trees() if not path.endswith("__init__.py"))
    assert {str(folder): n for folder, n in modules.items() if n > MODULES} == {}


def test_no_name_is_used_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, _ in trees():
        if not path.endswith(("__init__.py", "__main__.py")):
            places[Path(path).stem].append(path)
    for name, node in classes():
        if not node.name.startswith("_"):
            places[node.name].append(name)
    assert {name: of for name, of in places.items() if len(of) > 1} == {}
