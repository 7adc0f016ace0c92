"""Once a run has said what it came to, nothing keeps it or changes its exit code."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import whole_run

# Stands for what libraries and users leave for the interpreter's end.
LATE = """
import atexit, time
atexit.register(time.sleep, 600)
from acme_quant.launch import cli
cli.main()
"""


def test_a_run_that_is_done_leaves_at_once(tmp_path: pathlib.Path) -> None:
    flags = (*whole_run.SMALL, "--env=gym:Pendulum-v1", "--max_actor_steps=1")
    command = [sys.executable, "-c", LATE, "train", f"--workdir={tmp_path}", *flags]
    done = subprocess.run(
        [*command, "--num_actors=1"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("done | ")
