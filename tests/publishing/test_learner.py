from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from acme import core

from acme_quant.publishing.learner import ConsistentLearner, PublishingLearner


class TornLearner(core.Learner):
    """Changes its two variables one after the other, slowly."""

    def __init__(self) -> None:
        self.variables = [np.zeros(1), np.zeros(1)]

    def step(self) -> None:
        for variable in self.variables:
            variable += 1
            time.sleep(0.01)

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        return [[v.copy() for v in self.variables] for _ in names]


def test_variables_are_those_of_one_step() -> None:
    learner = ConsistentLearner(TornLearner())
    learner.step()
    stop = threading.Event()

    def learn() -> None:
        while not stop.is_set():
            learner.step()

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        for _ in range(20):
            [[first, second]] = learner.get_variables(["policy"])
            assert first == second
    finally:
        stop.set()
        thread.join()


def test_learner_that_waits_for_data_still_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ConsistentLearner, "STEP_TIMEOUT_S", 0.1)
    learner = ConsistentLearner(TornLearner())
    learner.step()
    assert learner.get_steps() == 1
    [[first, _]] = learner.get_variables(["policy"])
    assert first == 1


def test_failure_of_the_publisher_ends_a_learner_that_waits_for_data() -> None:
    class Publisher:
        def run(self) -> None:
            raise ArithmeticError("no policy is fit")

    learner = PublishingLearner(TornLearner(), lambda source: Publisher())
    with pytest.raises(ArithmeticError, match="no policy is fit"):
        learner.watch(threading.Event())


def test_failure_of_the_publisher_ends_the_learner() -> None:
    class Publisher:
        def run(self) -> None:
            raise RuntimeError("too many bad policies")

    learner = PublishingLearner(TornLearner(), lambda source: Publisher())
    deadline = time.monotonic() + 5
    with pytest.raises(RuntimeError, match="too many bad policies"):
        while time.monotonic() < deadline:
            learner.step()
