"""The README's lines that run a policy, typed in a fresh clone."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from small_policies import policy

ROOT = pathlib.Path(__file__).parents[2]
VERSIONS = ("3.13", "3.12", "3.11", "3.9", "3.10")


def interpreters() -> Iterator[str]:
    """Yields working interpreters, those of other versions first."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    for version in VERSIONS:
        found = sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))
        for python in filter(None, (shutil.which(f"python{version}"), *found)):
            if not subprocess.run([python, "-c", ""], capture_output=True).returncode:
                yield python


def readme_lines() -> str:
    """Returns the shell block after the sentence on running a policy."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"NumPy is enough:\n\n```sh\n(.*?)```", text, re.DOTALL)[0]


def say(*command: str | pathlib.Path, cwd: pathlib.Path, **env: str) -> tuple[int, str]:
    """Runs a command; returns its exit code and all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_lines_of_the_readme_run_a_policy_in_a_fresh_clone(
    tmp_path: pathlib.Path,
) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no git tree to clone")
    python = next(interpreters(), None)
    if python is None:
        pytest.skip(f"no CPython out of {', '.join(VERSIONS)} on this machine")
    clone, venv = tmp_path / "clone", tmp_path / "venv"
    assert say("git", "clone", "-q", ROOT, clone, cwd=tmp_path)[0] == 0
    assert say(python, "-m", "venv", venv, cwd=tmp_path)[0] == 0
    path = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}
    code, said = say("pip", "download", "numpy", "-q", "-d", "..", cwd=venv, **path)
    if code:
        pytest.skip(f"NumPy cannot be installed here: {said.strip().splitlines()[-1]}")
    (clone / "runs/first").mkdir(parents=True)
    policy("int8").save(clone / "runs/first/policy.aq")
    code, said = say("bash", "-ec", readme_lines(), cwd=clone, **path)
    assert code == 0, said
    assert "LayerReport(name='torso', kind='linear', format='int8'" in said
