"""Nothing temporary stays, however a command and its processes end."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

from acme_quant.launch.running import temporary

LEAVES = """
import os, subprocess, sys, tempfile
from acme_quant.launch.running import temporary
with temporary.own_folder():
    tempfile.mkdtemp()
    child = "import os, tempfile; tempfile.mkstemp(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", child])
    assert len(os.listdir(tempfile.gettempdir())) == 3
    if sys.argv[1] == "leave":
        temporary.leave(7)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), 9)
    if sys.argv[1] == "raise":
        raise SystemExit(7)
"""


def run(folder: pathlib.Path, how: str) -> int:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", LEAVES, how], env=environment
    ).returncode


@pytest.mark.parametrize("how,code", [("end", 0), ("leave", 7), ("raise", 7)])
def test_what_killed_children_left_goes_with_the_command(
    tmp_path: pathlib.Path, how: str, code: int
) -> None:
    assert run(tmp_path, how) == code
    assert not list(tmp_path.iterdir())


def test_what_a_killed_command_left_goes_with_the_next(
    tmp_path: pathlib.Path,
) -> None:
    assert run(tmp_path, "kill") == -9
    (left,) = tmp_path.iterdir()
    past = time.time() - 2 * temporary._YOUNG_S
    os.utime(left / "lock", (past, past))
    (tmp_path / "acme-quant-of-somebody").mkdir()
    assert run(tmp_path, "end") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["acme-quant-of-somebody"]


def test_a_command_that_runs_keeps_its_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with temporary.own_folder():
        (own,) = tmp_path.iterdir()
        past = time.time() - 2 * temporary._YOUNG_S
        os.utime(own / "lock", (past, past))
        assert run(tmp_path, "end") == 0
        assert list(tmp_path.iterdir()) == [own]
    assert not list(tmp_path.iterdir())
