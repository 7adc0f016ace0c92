"""`acme-quant evaluate` on checkpoints that a test has written."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from acme_quant.agents import d4pg
from acme_quant.launch.commands import evaluate
from acme_quant.launch.settings.config import Run, RunConfig
from acme_quant.records.checkpoints import Checkpoints

CONFIG = d4pg.Config(policy_layers=(8,), critic_layers=(8,))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a run's folder with two checkpoints of a policy."""
    from acme_quant import environments

    workdir = tmp_path_factory.mktemp("run")
    run = Run(RunConfig(workdir=str(workdir), env="gym:Pendulum-v1"), CONFIG)
    spec = environments.environment_spec(run.config.env)
    module = d4pg.AGENT.policy_module(d4pg.AGENT.make_networks(spec, CONFIG))
    arrays = {f"learner/p/{i}": v.numpy() for i, v in enumerate(module.variables)}
    facts = {
        "policy": list(arrays),
        "settings": json.loads(run.to_json()),
        "counts": {"actor_steps": 700, "learner_steps": 70},
    }
    store = Checkpoints(workdir / "checkpoints")
    for _ in range(2):
        store.save({**arrays, "learner/o/0": np.ones(3)}, facts)
    return workdir


def test_both_number_formats_are_evaluated_side_by_side(
    workdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(["evaluate", f"--workdir={workdir}", "--episodes=2"]) == 0
    first, header, int8, float32 = capsys.readouterr().out.strip().splitlines()
    assert first == "checkpoint 2 of gym:Pendulum-v1: 700 actor steps, 70 learner steps"
    assert header.split() == list(evaluate.HEADER)
    rows = [dict(zip(evaluate.HEADER, r.split())) for r in (int8, float32)]
    assert [row["policy"] for row in rows] == ["int8", "float32"]
    for row in rows:
        assert float(row["least"]) <= float(row["return"]) <= float(row["most"]) < 0
        assert float(row["steps"]) == 200
    assert int(rows[0]["bytes"]) != int(rows[1]["bytes"])


def test_a_damaged_newest_checkpoint_is_told_and_passed_over(
    workdir: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workdir / "checkpoints/000002/arrays/learner/p/0/0.0"
    if not file.exists():
        file = file.with_name("0")
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    found, _ = evaluate.load_policy(workdir, None)
    assert found.number == 1
    assert "checkpoint 2" in capsys.readouterr().err
    file.write_bytes(content)


@pytest.mark.parametrize(
    "flags,words",
    [
        (["--checkpoint=9"], r"(1, 2), got 9"),
        (["--episodes=0"], "--episodes"),
        (["--checkpoint=0"], "--checkpoint of at least 1, got 0"),
        (["--seed=-1"], "--seed of at least 0"),
        (["--no_such_flag"], "no_such_flag"),
        (["left_over"], "left_over"),
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(
    workdir: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    words: str,
) -> None:
    assert evaluate.main(["evaluate", f"--workdir={workdir}", *flags]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error


def save(workdir: pathlib.Path, run: Run, module: Any, **facts: Any) -> None:
    arrays = {f"learner/p/{i}": v.numpy() for i, v in enumerate(module.variables)}
    told = {
        "policy": list(arrays),
        "settings": json.loads(run.to_json()),
        "counts": {"actor_steps": 700, "learner_steps": 70},
    }
    Checkpoints(workdir / "checkpoints").save(arrays, told | facts)


def test_an_environment_that_changed_is_one_sentence(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from acme_quant import environments

    spec = environments.environment_spec("gym:Pendulum-v1")
    module = d4pg.AGENT.policy_module(d4pg.AGENT.make_networks(spec, CONFIG))
    other = RunConfig(workdir=str(tmp_path), env="gym:MountainCarContinuous-v0")
    save(tmp_path, Run(other, CONFIG), module)
    assert evaluate.main(["evaluate", f"--workdir={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert "(3, 8)" in error and "(2, 8)" in error and error.count("\n") == 1


def test_a_run_of_ones_own_environment_is_found_from_another_folder(
    tmp_path: pathlib.Path,
) -> None:
    from acme_quant import environments

    (tmp_path / "own_task.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('Pendulum-v1')\n"
    )
    spec = environments.environment_spec("gym:Pendulum-v1")
    module = d4pg.AGENT.policy_module(d4pg.AGENT.make_networks(spec, CONFIG))
    config = RunConfig(workdir=str(tmp_path / "run"), env="own_task:make")
    save(tmp_path / "run", Run(config, CONFIG), module, folder=str(tmp_path))
    code = "from acme_quant.launch import cli; cli.main()"
    command = [sys.executable, "-c", code, "evaluate", "--episodes=1"]
    done = subprocess.run(
        [*command, f"--workdir={tmp_path / 'run'}"],
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "own_task:make" in done.stdout and "float32" in done.stdout


def test_any_other_error_is_one_sentence(
    workdir: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: object) -> None:
        raise KeyError("facts")

    monkeypatch.setattr(evaluate, "load_policy", fail)
    assert evaluate.main(["evaluate", f"--workdir={workdir}"]) == 1
    error = capsys.readouterr().err
    assert error == "evaluate: the evaluation failed: KeyError: 'facts'\n"


def test_a_folder_without_a_run_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(["evaluate", f"--workdir={tmp_path}"]) == 2
    assert "expected a whole checkpoint" in capsys.readouterr().err
    assert evaluate.main(["evaluate", f"--workdir={tmp_path}/none"]) == 2


def test_a_video_without_opengl_fails_softly(
    workdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    from acme_quant import quantize_policy
    from acme_quant.launch.commands import video

    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    monkeypatch.setenv("DISPLAY", ":99")
    run = Run(RunConfig(workdir=str(workdir)), CONFIG)
    from acme_quant import environments

    spec = environments.environment_spec(run.config.env)
    module = d4pg.AGENT.policy_module(d4pg.AGENT.make_networks(spec, CONFIG))
    policy = quantize_policy(module, spec.observations)
    answer = video.record(run, policy, 0, tmp_path / "video.mp4")
    assert answer.startswith("no video: ") and "nonsense" in answer
    assert not (tmp_path / "video.mp4").exists()
