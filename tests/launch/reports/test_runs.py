"""Whole runs of the real command, a few hundred steps each."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
import whole_run

from acme_quant.policy.quantized_policy import QuantizedPolicy

BALANCE = "--env=dm_control:cartpole:balance"


def check_end(result: object, workdir: pathlib.Path, steps: int) -> None:
    """Asserts that a run ended as one that reached its steps."""
    assert result.returncode == 0, result.stderr
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("done | return") and str(workdir) in last
    assert "Kill" not in result.stdout + result.stderr
    assert not whole_run.processes_of(workdir)
    summary = json.loads((workdir / "summary.json").read_text())
    # The limit is looked at twice a second; an actor counts as often.
    assert steps <= summary["actor_steps"]
    assert summary["exit_code"] == 0


@pytest.fixture(scope="module")
def int8_run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns the folder of a finished run in processes of their own."""
    # A space and an accent: a path is never a word of a shell or a format.
    workdir = tmp_path_factory.mktemp("run") / "wörk dir"
    # Episodes of 200 steps: there is an evaluation however slow the machine is.
    result = whole_run.train(
        workdir, "--env=gym:Pendulum-v1", "--max_actor_steps=3000", "--evaluate_float32"
    )
    check_end(result, workdir, 3000)
    return workdir


def test_run_leaves_configuration_logs_rows_and_event_files(
    int8_run: pathlib.Path,
) -> None:
    assert json.loads((int8_run / "config.json").read_text())["quantizer"] == "int8"
    logs = {path.stem for path in (int8_run / "logs").glob("*.log")}
    nodes = {"replay", "counter", "coordinator", "learner", "quantizer"}
    assert logs == nodes | {"evaluator", "actor_0", "actor_1", "launcher"}
    for node in ("learner", "evaluator", "actor_0", "actor_1", "quantizer"):
        assert list((int8_run / "tensorboard" / node).glob("events*"))


def test_actors_run_newer_and_newer_versions(int8_run: pathlib.Path) -> None:
    newest = []
    for node in ("actor_0", "actor_1"):
        rows = whole_run.rows(int8_run, node)
        versions = [int(float(row["policy_version"])) for row in rows]
        assert versions == sorted(versions)
        assert all(float(row["staleness_learner_steps"]) >= 0 for row in rows)
        assert float(rows[-1]["us_inference"]) > 0
        newest.append(versions[-1])
    # Version 1 is what they start with.
    assert max(newest) > 1


def test_evaluator_reports_the_payload_and_float32_side_by_side(
    int8_run: pathlib.Path,
) -> None:
    rows = whole_run.rows(int8_run, "evaluator")
    assert rows
    for row in rows:
        # A step of Pendulum-v1 costs at most pi^2 + 0.1 * 8^2 + 0.001 * 2^2.
        assert -200 * 16.3 <= float(row["episode_return"]) <= 0
        assert -200 * 16.3 <= float(row["float32_episode_return"]) <= 0
        assert int(float(row["policy_version"])) >= 1


def test_evaluations_are_at_least_their_period_apart(int8_run: pathlib.Path) -> None:
    steps = [int(row["learner_steps"]) for row in whole_run.rows(int8_run, "evaluator")]
    assert all(later // 50 > sooner // 50 for sooner, later in zip(steps, steps[1:]))


def test_last_policy_is_a_file_that_numpy_runs(int8_run: pathlib.Path) -> None:
    policy = QuantizedPolicy.load(int8_run / "policy.aq")
    assert policy.quantizer == "int8"
    action = policy(np.zeros(3, np.float32))
    assert action.shape == (1,) and np.abs(action) <= 2


@pytest.mark.parametrize(
    "flags",
    [
        ("--quantizer=float32", "--colocate_quantizer", "--evaluate_float32"),
        ("--actor=acme",),
        ("--lp_launch_type=local_mt",),
        ("--quantizer=int8", "--communication=float16", "--activations=8bit"),
        ("--envs_per_actor=4",),
    ],
    ids=lambda flags: " ".join(flags),
)
def test_other_arms_run_to_their_end(
    tmp_path: pathlib.Path, flags: tuple[str, ...]
) -> None:
    result = whole_run.train(
        tmp_path, BALANCE, "--max_actor_steps=400", "--num_actors=1", *flags
    )
    check_end(result, tmp_path, 400)


def test_environments_of_a_pool_fill_the_replay_of_a_run(
    tmp_path: pathlib.Path,
) -> None:
    pytest.importorskip("envpool")
    result = whole_run.train(
        tmp_path,
        "--env=envpool_dm:CartpoleBalance-v1",
        "--max_actor_steps=9000",
        "--num_actors=1",
        "--envs_per_actor=4",
        "--samples_per_insert=1",
    )
    check_end(result, tmp_path, 9000)
    rows = whole_run.rows(tmp_path, "actor_0")
    assert {row["episode_length"] for row in rows} == {"1000"}
    # Four episodes end together; their rows follow one another.
    assert len(rows) >= 8


def test_failing_node_ends_the_run_and_is_named(tmp_path: pathlib.Path) -> None:
    result = whole_run.train(
        tmp_path, "--env=faulty_environment:make", "--actor_failures=stop"
    )
    assert result.returncode == 1
    assert "actor_" in result.stderr
    assert "the robot fell off the table" in result.stderr
    assert "logs/actor_" in result.stderr
    assert not whole_run.processes_of(tmp_path)
