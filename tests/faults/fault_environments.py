"""Environments that fail in all the ways there are; their factories are --env."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Any, Callable

import dm_env
import numpy as np
from dm_env import specs

EPISODE_STEPS = 20
# Names the file whose presence says that a fault that happens once has happened.
ONCE = "FAULT_ONCE"


class PhysicsError(RuntimeError):
    """Stands for dm_control's error of a diverged simulation."""


class Environment(dm_env.Environment):
    """Twenty steps an episode; `fault(life)` is called in each step of its life.

    What the fault returns, if anything, takes the place of the observation.
    """

    def __init__(self, fault: Callable[[int], Any], seed: int) -> None:
        self._fault = fault
        self._rng = np.random.default_rng(seed)
        self._episode = self._life = 0

    def reset(self) -> dm_env.TimeStep:
        self._episode = 0
        return dm_env.restart(self._rng.standard_normal(3).astype(np.float32))

    def step(self, action: Any) -> dm_env.TimeStep:
        self._episode += 1
        self._life += 1
        time.sleep(0.001)
        observation = self._fault(self._life)
        if observation is None:
            observation = self._rng.standard_normal(3).astype(np.float32)
        reward = 1.0 - float(np.square(action).mean())
        if self._episode == EPISODE_STEPS:
            return dm_env.termination(reward, observation)
        return dm_env.transition(reward, observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((3,), np.float32, "state")

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((2,), np.float32, -1.0, 1.0, "force")


def steady(seed: int = 0) -> Environment:
    """Never fails."""
    return Environment(lambda life: None, seed)


def raises_from_500(seed: int = 0) -> Environment:
    """Raises from step 500 of its life on."""

    def fault(life: int) -> None:
        if life >= 500:
            raise RuntimeError("the robot fell off the table")

    return Environment(fault, seed)


def diverges_at_random(seed: int = 0) -> Environment:
    """Raises a physics error now and then."""
    rng = np.random.default_rng(seed)

    def fault(life: int) -> None:
        if rng.random() < 0.02:
            raise PhysicsError("the simulation is unstable: mjWARN_BADQACC")

    return Environment(fault, seed)


def nan_at_random(seed: int = 0) -> Environment:
    """Observes NaN now and then."""
    rng = np.random.default_rng(seed)
    nan = np.full(3, np.nan, np.float32)
    return Environment(lambda life: nan if rng.random() < 0.02 else None, seed)


def nan_from_200(seed: int = 0) -> Environment:
    """Observes nothing but NaN from step 200 of its life on."""
    nan = np.full(3, np.nan, np.float32)
    return Environment(lambda life: nan if life >= 200 else None, seed)


def hangs_once(seed: int = 0) -> Environment:
    """Sleeps for an hour at step 100, in one process of all."""

    def fault(life: int) -> None:
        file = pathlib.Path(os.environ[ONCE])
        if life == 100 and not file.exists():
            file.touch()
            time.sleep(3600)

    return Environment(fault, seed)


def hangs_with_a_child(seed: int = 0) -> Environment:
    """As `hangs_once`, with a process of its own that it never ends."""
    child = subprocess.Popen(["sleep", "600"])
    with open(os.environ["FAULT_CHILDREN"], "a") as file:
        file.write(f"{child.pid}\n")
    return hangs_once(seed)


def kills_its_process(seed: int = 0) -> Environment:
    """Ends its process, as a segmentation fault does, at step 50 of its life."""

    def fault(life: int) -> None:
        if life == 50:
            os.kill(os.getpid(), 11)

    return Environment(fault, seed)
