"""Running a policy takes NumPy alone, on every CPython that it promises."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from typing import Any, Iterator

import numpy as np
import pytest
from small_policies import flat, policy

import acme_quant
from acme_quant.policy.quantized_policy import QuantizedPolicy

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import sys, time
start = time.perf_counter()
import numpy as np
with_numpy = time.perf_counter()
import acme_quant
from acme_quant.policy import quantized_policy
print("import", time.perf_counter() - with_numpy)
ours = acme_quant.QuantizedPolicy.load(sys.argv[1])
rows = np.load(sys.argv[2])
assert np.array_equal(ours.batch(rows), np.load(sys.argv[3]))
assert np.array_equal(np.stack([ours(row) for row in rows]), np.load(sys.argv[3]))
heavy = {"tensorflow", "acme", "sonnet", "launchpad", "reverb", "jax", "tree"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def run_elsewhere(python: str, folder: pathlib.Path, cwd: pathlib.Path) -> str:
    """Loads and runs an int8 policy in another process; returns what it prints."""
    ours = policy("int8")
    ours.save(folder / "policy.aq")
    np.save(folder / "rows.npy", flat(9))
    np.save(folder / "actions.npy", ours.batch(flat(9)))
    files = [str(folder / name) for name in ("policy.aq", "rows.npy", "actions.npy")]
    done = subprocess.run(
        [python, "-c", SCRIPT, *files],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_running_a_policy_imports_numpy_alone(
    tmp_path: pathlib.Path,
) -> None:
    printed = run_elsewhere(sys.executable, tmp_path, ROOT)
    seconds = float(printed.split()[1])
    assert seconds < 0.5  # 20 ms on an idle machine


def test_public_names_are_found_and_others_are_not() -> None:
    assert acme_quant.QuantizedPolicy is QuantizedPolicy
    assert "quantize_policy" in dir(acme_quant)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = acme_quant.no_such_name


def interpreters(version: str) -> Iterator[str]:
    """Yields working interpreters of a version, on the path or from pyenv."""
    candidates = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True)
        versions = pathlib.Path(root.stdout.strip(), "versions")
        candidates += map(str, sorted(versions.glob(f"{version}.*/bin/python")))
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            yield candidate


def attempt(*command: Any) -> None:
    """Runs a step that needs the network; skips the test if it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        pytest.skip(f"{command[0]} failed: {done.stderr.strip().splitlines()[-1]}")


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_policy_runs_on_other_pythons(version: str, tmp_path: pathlib.Path) -> None:
    python = next(interpreters(version), None)
    if python is None:
        pytest.skip(f"no CPython {version} on this machine")
    inner = tmp_path / "venv" / "bin" / "python"
    if shutil.which("uv"):
        attempt("uv", "venv", "-q", "--python", python, tmp_path / "venv")
        install = ("uv", "pip", "install", "-q", "--python", inner)
    else:
        attempt(python, "-m", "venv", tmp_path / "venv")
        install = (inner, "-m", "pip", "-q", "install")
    attempt(*install, "numpy", "setuptools<81")
    copy = tmp_path / "acme_quant_source"
    patterns = shutil.ignore_patterns(".*", "*.so", "__pycache__", "build", "runs")
    shutil.copytree(ROOT, copy, ignore=patterns)
    built = subprocess.run(
        [inner, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    run_elsewhere(str(inner), tmp_path, copy)
