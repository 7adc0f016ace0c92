"""An environment whose steps are counted and may not take for ever."""

from __future__ import annotations

import abc
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import dm_env
import numpy as np

from acme_quant.environments.vector import VectorEnvironment

E = TypeVar("E", dm_env.Environment, VectorEnvironment)


class Watched(abc.ABC, Generic[E]):
    """Passes everything on; gives up a step or reset that takes too long.

    A step that hangs does so in C, where nothing can interrupt it: so its process ends,
    and whoever looks after it starts another.

    Attributes:
      steps: steps taken since the start.
    """

    def __init__(
        self,
        environment: E,
        timeout_s: float,
        give_up: Callable[[str], None],
    ) -> None:
        """Watches `environment`.

        Args:
          environment: is stepped.
          timeout_s: seconds that a step may take; 0 for any time.
          give_up: called in another thread, with the reason, when one takes longer.
        """
        self._environment = environment
        self._timeout_s = timeout_s
        self._give_up = give_up
        self._calls = 0
        self._inside = False
        self._closed = False
        self.steps = 0
        if timeout_s:
            threading.Thread(target=self._watch, daemon=True, name="watch").start()

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode."""
        self._inside = True
        try:
            return self._environment.reset()
        finally:
            self._calls += 1
            self._inside = False

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        """Takes one action."""
        self._inside = True
        try:
            timestep = self._environment.step(action)
            self.steps += self._steps_of(timestep)
            return timestep
        finally:
            self._calls += 1
            self._inside = False

    def observation_spec(self) -> Any:
        """Returns the environment's."""
        return self._environment.observation_spec()

    def action_spec(self) -> Any:
        """Returns the environment's."""
        return self._environment.action_spec()

    def reward_spec(self) -> Any:
        """Returns the environment's."""
        return self._environment.reward_spec()

    def discount_spec(self) -> Any:
        """Returns the environment's."""
        return self._environment.discount_spec()

    def close(self) -> None:
        """Closes the environment, which may not take for ever either."""
        self._inside = True
        try:
            self._environment.close()
        finally:
            self._calls += 1
            self._inside = False
            self._closed = True

    @abc.abstractmethod
    def _steps_of(self, timestep: dm_env.TimeStep) -> int:
        """Returns how many environment steps led to `timestep`."""

    def _watch(self) -> None:
        # Time is counted in ticks: a process that was stopped for a minute, and its
        # step with it, has not used that minute.
        tick_s = self._timeout_s / 10
        call, ticks = -1, 0
        while ticks < 10:
            time.sleep(tick_s)
            if self._closed:
                return
            same = self._inside and call == self._calls
            ticks = ticks + 1 if same else 0
            call = self._calls
        self._give_up(
            f"EnvironmentHangs: expected a step within --step_timeout_s="
            f"{self._timeout_s:g} seconds, got none."
        )


class WatchedEnvironment(Watched[dm_env.Environment], dm_env.Environment):
    """One environment."""

    def _steps_of(self, timestep: dm_env.TimeStep) -> int:
        return 1


class WatchedVectorEnvironment(Watched[VectorEnvironment]):
    """Environments that are stepped together, with one limit for all."""

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return self._environment.num_envs

    def take_failures(self) -> Sequence[Exception]:
        """Returns the environments'."""
        return self._environment.take_failures()

    def _steps_of(self, timestep: dm_env.TimeStep) -> int:
        return int((timestep.step_type != dm_env.StepType.FIRST).sum())


def leave(reason: str) -> None:
    """Ends this process with `reason` as its last words."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)
