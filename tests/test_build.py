"""BUILD mirrors the tree; Bazel itself is not needed to read it."""

from __future__ import annotations

import ast
import pathlib

ROOT = pathlib.Path(__file__).parent.parent


def targets() -> list[tuple[str, dict[str, list[str]]]]:
    """Returns (rule, keyword arguments) of every call in BUILD."""
    calls = []
    for node in ast.parse((ROOT / "BUILD").read_text()).body:
        assert isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if node.value.func.id == "load":
            continue
        arguments = {k.arg: ast.literal_eval(k.value) for k in node.value.keywords}
        calls.append((node.value.func.id, arguments))
    return calls


def in_build(*rules: str) -> set[str]:
    """Returns the files that targets of these rules name."""
    return {
        name
        for rule, arguments in targets()
        if rule in rules
        for key in ("srcs", "hdrs")
        for name in arguments.get(key, [])
    }


def in_tree(pattern: str, *folders: str) -> set[str]:
    """Returns the files of the folders that match the pattern."""
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob(pattern)
    }


def test_python_sources_of_build_equal_the_tree() -> None:
    sources = in_tree("*.py", "acme_quant", "agents", "launch", "tests")
    assert in_build("py_library", "py_test") == sources


def test_kernel_sources_of_build_equal_the_tree() -> None:
    kernels = in_tree("*.c", "acme_quant") | in_tree("*.h", "acme_quant")
    assert in_build("cc_library") == kernels


def test_every_test_file_is_a_test_of_build() -> None:
    assert in_build("py_test") == in_tree("test_*.py", "tests")


def test_dependencies_of_build_are_targets_of_build() -> None:
    names = {arguments["name"] for _, arguments in targets() if "name" in arguments}
    for _, arguments in targets():
        for dependency in arguments.get("deps", []):
            assert dependency.lstrip(":") in names
