"""An environment that breaks for good after a while; its factory is a run's --env."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

FAILS_AT = 150


class Faulty(dm_env.Environment):
    """Twenty steps an episode; every step from FAILS_AT of its life on raises."""

    def __init__(self) -> None:
        self._episode = self._life = 0

    def reset(self) -> dm_env.TimeStep:
        self._episode = 0
        return dm_env.restart(np.zeros(3, np.float32))

    def step(self, action: Any) -> dm_env.TimeStep:
        self._episode += 1
        self._life += 1
        if self._life >= FAILS_AT:
            raise RuntimeError("the robot fell off the table")
        observation = np.full(3, self._episode, np.float32)
        if self._episode == 20:
            return dm_env.termination(1.0, observation)
        return dm_env.transition(1.0, observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((3,), np.float32, "state")

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((2,), np.float32, -1.0, 1.0, "force")


def make(seed: int = 0) -> Faulty:
    del seed
    return Faulty()
