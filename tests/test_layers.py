"""The rule of the house: which module may import which."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

# A module may import modules of its own row and of rows above it.
ROWS = [
    {"kernels"},
    {"qtensor", "quantizers", "graph", "payload", "exploration"},
    {"policy", "policy_layout", "policy_rows", "policy_writer"},
    {
        "async_counter",
        "calls",
        "cpu_times",
        "local_batches",
        "local_replay",
        "sum_tree",
        "csv_rows",
        "data_wait",
        "durable",
        "loopback",
        "replay_client",
        "timing",
    },
    {"requantize", "shared_memory"},
    {"publisher", "variable_client", "adder", "environments", "vector_environment"},
    {"lowering", "actor", "environment_loop", "learner", "checkpoint", "energy"},
    {"checkpoints"},
    {"builder"},
    {"agents"},
    {"launch", "bench"},
]
ROOMS = {name for row in ROWS for name in row}
RUNTIME = ("kernels", "qtensor", "quantizers", "graph", "payload", "policy")
ALONE = {"codecarbon": "energy", "tensorstore": "checkpoint", "launchpad": "launch"}


def room(path: pathlib.Path) -> str:
    """Returns the name of the room that a source file belongs to."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] in ("agents", "launch") else pathlib.Path(parts[1]).stem


def imports(path: pathlib.Path) -> set[str]:
    """Returns every module that a source file imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources() -> list[pathlib.Path]:
    """Returns the library's source files."""
    return sorted(
        path
        for folder in ("acme_quant", "agents", "launch")
        for path in (ROOT / folder).rglob("*.py")
    )


def test_every_room_stands_in_a_row() -> None:
    assert {room(path) for path in sources()} - {"__init__"} == ROOMS


def height(name: str) -> int:
    """Returns the row of a room."""
    return next(i for i, row in enumerate(ROWS) if name in row)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_to_lower_rows_only(path: pathlib.Path) -> None:
    own = room(path)
    if own == "__init__":
        pytest.skip("the package's door opens every room")
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "acme_quant" and len(parts) > 1 and parts[1] in ROOMS:
            assert height(parts[1]) <= height(own), f"{own} imports {name}"


@pytest.mark.parametrize("package,owner", ALONE.items())
def test_only_one_room_imports_a_package(package: str, owner: str) -> None:
    users = {
        room(path)
        for path in sources()
        if any(name.split(".")[0] == package for name in imports(path))
    }
    assert users <= {owner}


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
        "acme_quant.actor",
        "acme_quant.adder",
        "acme_quant.async_counter",
        "acme_quant.environment_loop",
        "acme_quant.environments",
        "acme_quant.publisher",
        "acme_quant.variable_client",
        "acme_quant.agents.d4pg",
        "acme_quant.agents.dqn",
        "acme_quant.launch.nodes",
        "acme_quant.launch.actor",
        "acme_quant.launch.evaluation",
        "acme_quant.launch.coordinator",
    ],
)
def test_an_actors_process_imports_no_tensorflow(module: str) -> None:
    code = f"import sys, {module}; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
