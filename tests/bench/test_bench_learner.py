"""Our learners take Acme's steps, and the benchmark of them checks that."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from acme_quant.bench.learner import arms, command, limits
from acme_quant.launch.checkpoints.learner_state import LearnerState

STEPS = 200
ULP = 2.0**-23
# A step of Adam is at most so many learning rates long: 1 / sqrt(1 - beta2).
LONGEST_STEP = 32


@pytest.mark.parametrize("agent,rate", [("d4pg", 1e-4), ("dqn", 1e-3)])
def test_ours_takes_every_step_of_acmes_learner(agent: str, rate: float) -> None:
    """From the same state on the same batch, 200 times; names and shapes are equal.

    Gradients are the same, so a variable differs by the roundings of one step of Adam:
    fewer than 16 of a step's units, and one of its own. Gradients of two runs of one
    TensorFlow program may be summed in another order, which moments show in their
    last digits; where a moment is near zero a step may then differ by more, so a
    hundredth of the longest step is allowed to one variable in a thousand.
    """
    acme, ours = (arms.make(agent, name, 16, 8) for name in arms.ARMS)
    expected, found = LearnerState(acme.learner), LearnerState(ours.learner)
    for step in range(STEPS):
        found.restore(expected.copy())
        acme.learner.step()
        ours.learner.step()
        left, right = expected.copy(), found.copy()
        assert left.keys() == right.keys()
        for name in (name for name in left if "optimizer" not in name):
            distance = np.abs(left[name] - right[name])
            bound = 16 * ULP * LONGEST_STEP * rate + ULP * np.abs(left[name])
            assert np.mean(distance > bound) <= 1e-3, (step, name)
            assert np.all(distance <= bound + 0.01 * LONGEST_STEP * rate), (step, name)


def test_rows_are_printed_after_a_check(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "rows.json"
    flags = ["--hidden=16", "--batch=8", "--rounds=1", f"--json={path}"]
    assert command.main(["bench learner", *flags]) == 0
    rows = json.loads(path.read_text())
    assert [(row["agent"], row["arm"]) for row in rows] == [
        (agent, arm) for agent in arms.AGENTS for arm in arms.ARMS
    ]
    assert all(0 < row["arithmetic_share"] < 1 < row["ms"] * 1e9 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


def test_a_learner_that_goes_another_way_is_an_error() -> None:
    acme, ours = (arms.make("dqn", name, 16, 8) for name in arms.ARMS)
    for arm in (acme, ours, ours):
        arm.learner.step()
    with pytest.raises(RuntimeError, match="expected learners that agree"):
        arms.check(acme, ours)


@pytest.mark.parametrize("flag", ["--hidden=0", "--agents=ppo", "--rounds=0", "x"])
def test_wrong_flags_are_refused(flag: str, capsys: pytest.CaptureFixture) -> None:
    assert command.main(["bench learner", flag]) == 2
    assert "expected" in capsys.readouterr().out


def test_the_least_work_is_that_of_the_products_and_of_adam() -> None:
    least = limits.seconds("dqn", 100, 0, 8)
    assert least.arithmetic == pytest.approx(10 * 100 * 8 / limits.flops_per_s())
    assert least.memory == pytest.approx(100 * 36 / limits.bytes_per_s())
