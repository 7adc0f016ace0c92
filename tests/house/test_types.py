"""What a part is can be read off its signature: how much of the library is `Any`."""

from __future__ import annotations

import ast
import pathlib

import pytest

import acme_quant

ROOT = pathlib.Path(__file__).parents[2]

# Share of annotated parameters that say `Any`, to be lowered as roles get names.
MOST_ANY = {"acme_quant": 0.10, "agents": 0.12, "launch": 0.02}


def annotations(folder: str) -> list[str]:
    """Returns the annotation of every parameter in a folder, `self` apart."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            given = node.args
            rest = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
            parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]
            found += [ast.unparse(p.annotation) for p in parameters if p.annotation]
    return found


@pytest.mark.parametrize("folder", MOST_ANY)
def test_few_parameters_are_any(folder: str) -> None:
    found = annotations(folder)
    share = sum(text == "Any" for text in found) / len(found)
    assert share <= MOST_ANY[folder], f"{share:.3f}"


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((ROOT / "acme_quant" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen == set(acme_quant.__all__)
    assert (ROOT / "acme_quant" / "py.typed").exists()
