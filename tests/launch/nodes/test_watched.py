from __future__ import annotations

import threading
import time
from typing import Any

import dm_env
import loop_parts
import numpy as np
from dm_env import specs

from acme_quant.environments import vector as vector_environment
from acme_quant.launch.nodes.step_timeout import (
    WatchedEnvironment,
    WatchedVectorEnvironment,
)


class Slow(dm_env.Environment):
    """Takes as long for a step as the action says."""

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(0.0)

    def step(self, action: Any) -> dm_env.TimeStep:
        time.sleep(action)
        return dm_env.transition(1.0, 0.0)

    def observation_spec(self) -> specs.Array:
        return specs.Array((), float)

    def action_spec(self) -> specs.Array:
        return specs.Array((), float)


def watch(timeout_s: float) -> tuple[WatchedEnvironment, list[str], threading.Event]:
    reasons, given_up = [], threading.Event()

    def give_up(reason: str) -> None:
        reasons.append(reason)
        given_up.set()

    return WatchedEnvironment(Slow(), timeout_s, give_up), reasons, given_up


def test_steps_are_passed_on_and_counted() -> None:
    environment, reasons, _ = watch(0.3)
    environment.reset()
    for _ in range(100):
        assert environment.step(0.005).reward == 1.0
    assert environment.steps == 100 and not reasons


def test_a_step_that_takes_too_long_is_given_up() -> None:
    environment, reasons, given_up = watch(0.3)
    environment.reset()
    threading.Thread(target=environment.step, args=[30.0], daemon=True).start()
    assert given_up.wait(10.0)
    assert "--step_timeout_s=0.3" in reasons[0]


def test_time_between_two_steps_does_not_count() -> None:
    environment, reasons, _ = watch(0.1)
    environment.reset()
    time.sleep(0.5)
    environment.step(0.0)
    assert not reasons


def test_without_a_limit_a_step_may_take_any_time() -> None:
    environment, reasons, _ = watch(0.0)
    environment.step(0.3)
    assert not reasons


def test_vector_counts_a_step_per_environment_and_none_per_reset() -> None:
    members = [loop_parts.CountingEnvironment(2 + i) for i in range(3)]
    vector = vector_environment.ListEnvironment(members)
    environment = WatchedVectorEnvironment(vector, 10.0, print)
    environment.reset()
    for _ in range(4):
        environment.step(np.zeros((3, 2), np.float32))
    # 2, reset, 1; 3, reset; 4.
    assert environment.steps == 3 + 3 + 4
    assert environment.num_envs == 3 and environment.take_failures() == []
