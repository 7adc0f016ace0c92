"""The summary tells what a run came to, and what of it is not on the disk."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from acme_quant.agents import d4pg
from acme_quant.launch.running import summary
from acme_quant.launch.running.progress import Status
from acme_quant.launch.settings.config import Run, RunConfig
from acme_quant.records.checkpoints import Checkpoints
from acme_quant.records.energy import Energy
from acme_quant.records.whole_records import LOSSES, note_loss


def write(
    workdir: pathlib.Path, steps: int = 1000, learner_steps: int = 0, code: int = 0
) -> dict:
    status = Status(10.0, steps, 1000, learner_steps, 3, 1.5)
    run = Run(RunConfig(workdir=str(workdir)), d4pg.Config())
    return summary.write(run, status, 50.0, Energy(), code)


def save(workdir: pathlib.Path, learner_steps: int) -> None:
    facts = {"counts": {"learner_steps": learner_steps}, "wall_s": 5.0}
    Checkpoints(workdir / "checkpoints").save({"a": np.zeros(2)}, facts)


def test_steps_far_past_the_limit_are_said(tmp_path: pathlib.Path) -> None:
    line = summary.line(write(tmp_path, steps=2370))
    assert "1370 steps past --max_actor_steps" in line
    assert "steps past" not in summary.line(write(tmp_path, steps=1010))


@pytest.mark.parametrize("code,expected", [(0, 1), (130, 130)])
def test_learning_that_is_on_no_disk_is_not_called_done(
    tmp_path: pathlib.Path, code: int, expected: int
) -> None:
    result = write(tmp_path, learner_steps=9, code=code)
    assert summary.line(result).startswith("not saved: all that was learnt | ")
    save(tmp_path, 7)
    result = write(tmp_path, learner_steps=9, code=code)
    assert result["not_saved"] == ["what was learnt after learner step 7"]
    assert result["exit_code"] == expected
    assert json.loads((tmp_path / "summary.json").read_text()) == result
    save(tmp_path, 9)
    assert write(tmp_path, learner_steps=9, code=code)["exit_code"] == code


def test_lost_rows_are_told_and_fail_nothing_but_a_lost_policy_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOSSES, str(tmp_path))
    note_loss(tmp_path / "csv" / "learner.csv", 4)
    for node in ("a", "b"):
        note_loss(tmp_path / node / "events.out.tfevents.1.host", 2)
    result = write(tmp_path)
    assert result["exit_code"] == 0
    assert "done | rows lost: 4 of TensorBoard, 4 of learner.csv" in summary.line(
        result
    )
    note_loss(tmp_path / "policy.aq", 1)
    assert summary.line(write(tmp_path)).startswith("not saved: policy.aq | ")
