"""The rule of the house: which folder may import which."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# Along the data path, lowest first: a folder may import those above its own line.
ROWS = (
    "roles",
    "kernels",
    "policy",
    "lowering",
    "peers",
    "publishing",
    "export",
    "environments",
    "acting",
    "replay",
    "records",
    "settings",
    "agents",
    "launch.settings",
    "launch.checkpoints",
    "launch.nodes",
    "launch.running",
    "launch.reports",
    "launch.commands",
    "launch.cli",
    "bench.turns",
    "bench.learner",
    "bench.policy",
    "bench.publish",
    "bench.actor",
    "bench.adder",
    "bench.cli",
)
NESTED = ("bench", "launch")
RUNTIME = ("roles", "kernels", "policy", "export")
ALONE = {
    "codecarbon": ("records/energy.py",),
    "tensorstore": ("records/checkpoint.py",),
    "launchpad": ("launch/",),
}
MOST_MODULES = 20
MOST_LINES = 400
MOST_FUNCTION_LINES = 60


def sources() -> dict[str, pathlib.Path]:
    """Returns module name, without `acme_quant.`, -> source file of the library."""
    found = {}
    for folder in ("acme_quant", "agents", "launch"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[1:] if folder == "acme_quant" else parts
            found[".".join(parts).removesuffix("__init__").rstrip(".")] = path
    return found


SOURCES = sources()


def row(module: str) -> str:
    """Returns the name of the row that a module stands in."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in NESTED else parts[0]


def imports(path: pathlib.Path, running: bool = False) -> set[str]:
    """Returns every name that a file imports; `running`: not for type checks alone."""
    found = set()
    tree = ast.parse(path.read_text())
    skipped = set()
    if running:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                skipped |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: pathlib.Path, running: bool = False) -> set[str]:
    """Returns the library's modules that a file imports."""
    found = set()
    for name in imports(path, running):
        parts = name.split(".")[1:] if name.startswith("acme_quant.") else []
        while parts and ".".join(parts) not in SOURCES:
            parts.pop()
        if parts:
            found.add(".".join(parts))
    return found


def modules() -> list[str]:
    """Returns the modules that stand in a row; doors open what is behind them."""
    return [name for name in SOURCES if name and name not in NESTED]


def test_every_module_stands_in_a_row_and_every_row_has_one() -> None:
    assert {row(name) for name in modules()} == set(ROWS)


@pytest.mark.parametrize("module", modules())
def test_imports_point_to_lower_rows_only(module: str) -> None:
    # Protocols name types of any row, but import none of them.
    running = module == "roles"
    for name in own_imports(SOURCES[module], running) - {"", *NESTED}:
        assert ROWS.index(row(name)) <= ROWS.index(row(module)), name


def test_no_modules_import_each_other_in_a_circle() -> None:
    # The door of a folder imports its rooms, which are then found through the door.
    arrows = {
        module: {
            name
            for name in own_imports(SOURCES[module], running=True) - {module}
            if not module.startswith(f"{name}.")
        }
        for module in modules()
    }
    tuple(graphlib.TopologicalSorter(arrows).static_order())


@pytest.mark.parametrize("package,owners", ALONE.items())
def test_only_its_owner_imports_a_package(package: str, owners: tuple) -> None:
    users = {
        str(path.relative_to(ROOT)).removeprefix("acme_quant/")
        for path in SOURCES.values()
        if any(name.split(".")[0] == package for name in imports(path))
    }
    assert all(user.startswith(owners) for user in users), users


def folders() -> list[pathlib.Path]:
    """Returns every folder of the library."""
    return sorted({path.parent for path in SOURCES.values()})


@pytest.mark.parametrize("folder", folders(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_says_what_it_is_and_holds_few_modules(folder: pathlib.Path) -> None:
    rooms = [path for path in folder.iterdir() if path.suffix in (".py", ".c")]
    assert len(rooms) - 1 <= MOST_MODULES
    first = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert first and first.splitlines()[0].endswith(".")


@pytest.mark.parametrize("module", SOURCES)
def test_files_and_functions_stay_small(module: str) -> None:
    text = SOURCES[module].read_text()
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MOST_FUNCTION_LINES, f"{node.name}: {lines} lines"


def test_the_policy_runtime_imports_numpy_alone() -> None:
    modules = ", ".join(f"acme_quant.{name}" for name in RUNTIME)
    code = (
        f"import sys, {modules}; "
        "heavy = {'tensorflow', 'acme', 'sonnet', 'reverb', 'launchpad', 'courier',"
        " 'tree', 'dm_env', 'absl', 'jax'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "module",
    [
        "acting.actor",
        "acting.async_counter",
        "acting.environment_loop",
        "environments",
        "publishing.client",
        "publishing.publisher",
        "replay.adder",
        "agents.d4pg",
        "agents.dqn",
        "launch.nodes.coordinator",
        "launch.nodes.engine_actor",
        "launch.nodes.evaluator",
        "launch.nodes.actor",
        "launch.nodes.counter",
        "launch.nodes.program",
        "launch.nodes.quantizer",
        "launch.running.processes",
    ],
)
def test_an_actors_process_imports_no_tensorflow(module: str) -> None:
    code = f"import sys, acme_quant.{module}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_two_test_files_have_one_name() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
