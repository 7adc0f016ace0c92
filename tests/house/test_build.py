"""BUILD is short, names folders by rule, and compiles with the flags of setup.py."""

from __future__ import annotations

import ast
import fnmatch
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def keyword(file: str, name: str) -> ast.expr:
    """Returns the value of a keyword argument that one call in the file has."""
    (value,) = (
        node.value
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.keyword) and node.arg == name
    )
    return value


def test_the_compilers_flags_are_those_of_setup() -> None:
    flags = ast.literal_eval(keyword("BUILD", "copts"))
    assert flags == ast.literal_eval(keyword("setup.py", "extra_compile_args"))


def patterns() -> list[str]:
    """Returns the patterns of every glob in BUILD."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "BUILD").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "glob"
    ]
    return [text for call in calls for text in ast.literal_eval(call.args[0])]


@pytest.mark.parametrize("folder", ["acme_quant", "agents", "launch", "tests"])
def test_every_source_is_found_by_a_glob(folder: str) -> None:
    wanted = [text.replace("/**/", "/*") for text in patterns()]
    for path in (ROOT / folder).rglob("*"):
        name = str(path.relative_to(ROOT))
        if path.suffix in (".py", ".c", ".h", ".flags"):
            assert any(fnmatch.fnmatch(name, text) for text in wanted), name


def test_build_is_short() -> None:
    assert len((ROOT / "BUILD").read_text().splitlines()) <= 50
