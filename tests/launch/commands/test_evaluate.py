"""`acme-quant evaluate` on checkpoints that a test has written."""

from __future__ import annotations

import json
import pathlib

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
    module = d4pg.policy_module(d4pg.make_networks(spec, CONFIG))
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
    module = d4pg.policy_module(d4pg.make_networks(spec, CONFIG))
    policy = quantize_policy(module, spec.observations)
    answer = video.record(run, policy, 0, tmp_path / "video.mp4")
    assert answer.startswith("no video: ") and "nonsense" in answer
    assert not (tmp_path / "video.mp4").exists()
