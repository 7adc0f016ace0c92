"""A run in one process is repeated by its seed, to the bit: the real command, twice."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest
import whole_run

from acme_quant.policy.payload import HEADER
from acme_quant.records.checkpoint import Checkpoint
from acme_quant.records.checkpoints import Checkpoints

# What goes by the clock; all else of a run must be equal.
TIMES = ("wall_s", "seconds", "steps_per_second", "staleness_seconds", "walltime")
SMALL = (
    "--num_actors=0",
    "--batch_size=16",
    "--samples_per_insert=4",
    "--min_replay_size=100",
    "--publish_period=10",
    # What D4PG publishes are its target networks.
    "--target_update_period=10",
    "--update_period=20",
    "--evaluate_every=40",
    "--max_actor_steps=450",
    "--log_every_s=0",
)
DECAY_STEPS = 200
AGENTS = {
    "d4pg": (
        "--agent=d4pg",
        "--env=gym:Pendulum-v1",
        "--policy_layers=16,16",
        "--critic_layers=16,16",
    ),
    "dqn": ("--agent=dqn", "--env=gym:CartPole-v1", "--q_layers=16,16"),
}


def start(workdir: pathlib.Path, agent: str, *flags: str) -> subprocess.Popen[str]:
    return whole_run.start(workdir, *SMALL, *AGENTS[agent], *flags)


def train(workdir: pathlib.Path, agent: str, *flags: str) -> pathlib.Path:
    """Trains in one process to the end and returns the run's folder."""
    done = whole_run.finish(start(workdir, agent, *flags))
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir


def last_checkpoint(workdir: pathlib.Path) -> tuple[Checkpoint, dict[str, np.ndarray]]:
    found, arrays, damaged = Checkpoints(workdir / "checkpoints").newest_whole()
    assert not damaged
    return found, arrays


def timeless(row: dict) -> dict:
    """Returns what a row says that is not a time."""
    return {
        name: value
        for name, value in row.items()
        if not name.endswith((*TIMES, "_ms")) and not name.startswith("us_")
    }


def rows(workdir: pathlib.Path, node: str) -> list[dict]:
    return [timeless(row) for row in whole_run.rows(workdir, node)]


@pytest.fixture(scope="module", params=AGENTS)
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[pathlib.Path]:
    """Two runs of one seed."""
    folder = tmp_path_factory.mktemp(request.param)
    return [train(folder / name, request.param, "--seed=3") for name in ("a", "b")]


def test_a_learners_rows_tell_what_it_clips(runs: list[pathlib.Path]) -> None:
    shares = [float(row["clipped_share"]) for row in rows(runs[0], "learner")]
    # Nearly all returns of five steps are beyond what these defaults can hold.
    assert all(0.5 < share <= 1.0 for share in shares)


def test_a_seed_repeats_every_variable_and_count(runs: list[pathlib.Path]) -> None:
    (one, arrays), (two, again) = map(last_checkpoint, runs)
    assert arrays.keys() == again.keys()
    for name, array in arrays.items():
        assert array.dtype == again[name].dtype
        assert array.tobytes() == again[name].tobytes(), name
    assert timeless(one.facts["counts"]) == timeless(two.facts["counts"])
    # With them the state of the exploration's random numbers, and the last return.
    assert one.facts["deposits"] == two.facts["deposits"]
    assert one.facts["policy_version"] == two.facts["policy_version"] > 3
    assert one.facts["counts"]["actor_steps"] == 450
    assert one.facts["counts"]["learner_steps"] > 80


@pytest.mark.parametrize("node", ["actor_0", "learner", "evaluator"])
def test_a_seed_repeats_every_row(runs: list[pathlib.Path], node: str) -> None:
    expected, found = (rows(run, node) for run in runs)
    assert len(expected) >= 2 and found == expected
    # Not only because nothing had been learnt when the rows were written.
    last = expected[-1]
    assert int(float(last.get("policy_version", last.get("learner_steps")))) > 3


def test_a_seed_repeats_the_policy_that_acts(runs: list[pathlib.Path]) -> None:
    one, two = ((run / "policy.aq").read_bytes() for run in runs)
    assert one[HEADER.size :] == two[HEADER.size :]


@pytest.mark.parametrize("runs", ["dqn"], indirect=True)
def test_another_seed_differs_and_an_interrupted_run_goes_on(
    runs: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    process = start(tmp_path, "dqn", "--seed=4", "--max_actor_steps=1000000")
    wait_for_rows(tmp_path, "evaluator", process)
    process.send_signal(signal.SIGINT)
    done = whole_run.finish(process, timeout_s=60.0)
    assert done.returncode == 130 and "ended by SIGINT" in done.stderr
    theirs = rows(runs[0], "learner")
    assert rows(tmp_path, "learner")[: len(theirs)] != theirs
    before = last_checkpoint(tmp_path)[0].facts["counts"]["actor_steps"]
    # Every step was one call of the exploration.
    assert before == explored(tmp_path) > 100
    train(tmp_path, "dqn", "--seed=4", f"--max_actor_steps={before + 10}")
    assert last_checkpoint(tmp_path)[0].facts["counts"]["actor_steps"] == before + 10
    assert explored(tmp_path) == before + 10


def explored(workdir: pathlib.Path) -> int:
    """Returns how far the actor's epsilon has come, in steps, in a checkpoint."""
    deposits = last_checkpoint(workdir)[0].facts["deposits"]
    (state,) = json.loads(deposits["actor_0"])["random"]
    return state["exploration"]["steps"]


def wait_for_rows(
    workdir: pathlib.Path, node: str, process: subprocess.Popen[str]
) -> None:
    """Waits for the first row of a node's file."""
    path = workdir / "csv" / f"{node}.csv"
    while not path.exists() or path.read_text().count("\n") < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def test_an_environment_that_breaks_ends_the_run_with_its_words(
    tmp_path: pathlib.Path,
) -> None:
    process = start(tmp_path, "d4pg", "--env=faulty_environment:make")
    done = whole_run.finish(process)
    assert done.returncode == 1
    assert "RuntimeError: the robot fell off the table" in done.stderr
    assert "run.log" in done.stderr
