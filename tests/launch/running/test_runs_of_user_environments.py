"""Whole small runs of environments that do what environments do."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"
COMMAND = pathlib.Path(sys.executable).parent / "acme-quant"
FLAGS = (
    "--num_actors=0",
    "--policy_layers=8",
    "--critic_layers=8",
    "--batch_size=8",
    "--samples_per_insert=8",
    "--min_replay_size=20",
    "--max_actor_steps=100",
    "--evaluate_every=20",
    "--publish_period=5",
    "--evaluation_max_steps=30",
    "--workdir=run",
)


def train(
    folder: pathlib.Path, kind: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    """Trains in `folder`, which is where the run's own folder is meant to be."""
    return subprocess.run(
        [str(COMMAND), "train", f"--env=unruly_environments:{kind}", *FLAGS, *flags],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(FIXTURES),
            "UNRULY_DIARY": str(folder / "diary"),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )


def words(folder: pathlib.Path) -> list[str]:
    return [line.split()[0] for line in (folder / "diary").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["stays", "wanders", "endless", "filmed"])
def test_a_run_in_one_process_ends_whatever_its_environment_does(
    tmp_path: pathlib.Path, kind: str
) -> None:
    done = train(tmp_path, kind)
    assert done.returncode == 0, done.stdout + done.stderr
    made = words(tmp_path).count("made")
    # The specs', the actor's and the evaluator's.
    assert made == words(tmp_path).count("closed") == 3
    assert (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "csv" / "evaluator.csv").exists()
