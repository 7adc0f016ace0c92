"""Small parts for tests of actors and loops: an environment, a policy, an adder."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_quant import environments


class CountingEnvironment(dm_env.Environment):
    """Counts its steps; its observation is (seed, episode, step).

    Attributes:
      actions: every action it was given.
    """

    def __init__(self, length: int = 5, seed: int = 0, fails_at: Any = ()) -> None:
        self._length = length
        self._seed = seed
        self._fails_at = set(fails_at)
        self._episode = self._t = 0
        self._ended = True
        self.actions: list[np.ndarray] = []

    def _observation(self) -> np.ndarray:
        return np.array([self._seed, self._episode, self._t], np.float32)

    def reset(self) -> dm_env.TimeStep:
        self._episode += 1
        self._t = 0
        self._ended = False
        return dm_env.restart(self._observation())

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        self._t += 1
        self.actions.append(action)
        if (self._episode, self._t) in self._fails_at:
            self._ended = True
            raise environments.EpisodeFailed("the cart flew away")
        self._ended = self._t == self._length
        step_type = dm_env.StepType.LAST if self._ended else dm_env.StepType.MID
        return dm_env.TimeStep(
            step_type, np.float32(self._t), np.float32(1), self._observation()
        )

    def observation_spec(self) -> specs.Array:
        return specs.Array((3,), np.float32)

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((2,), np.float32, -1, 1)


class LinearPolicy:
    """Stands for a QuantizedPolicy."""

    version = 3
    learner_step = 300

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        return self.batch(observation[None])[0]

    def batch(self, observations: np.ndarray) -> np.ndarray:
        weights = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
        return np.tanh(observations @ weights / 100)


class PolicyClient:
    """Stands for a QuantizedVariableClient; counts its updates."""

    def __init__(self) -> None:
        self.policy = LinearPolicy()
        self.version = self.policy.version
        self.updates = 0

    def update(self, wait: bool = False) -> None:
        self.updates += 1

    def staleness(self) -> dict[str, float]:
        return {"versions": 1, "learner_steps": 50, "seconds": 0.5}


class RecordingAdder:
    """Keeps what it is told.

    Attributes:
      events: ("first", timestep) and ("add", action, timestep).
    """

    def __init__(self) -> None:
        self.events: list[tuple] = []

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        self.events.append(("first", timestep))

    def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        self.events.append(("add", action, next_timestep))


class ListLogger:
    """Keeps what is written.

    Attributes:
      results: the results.
    """

    def __init__(self) -> None:
        self.results: list[dict] = []

    def write(self, result: dict) -> None:
        self.results.append(result)


def noise(output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Is an exploration that shows which generator it was given."""
    return (output + rng.standard_normal(output.shape)).astype(np.float32)


def assert_same_events(found: list[tuple], expected: list[tuple]) -> None:
    """Asserts that two adders were told the same, to the bit."""
    assert [event[0] for event in found] == [event[0] for event in expected]
    for event, other in zip(found, expected):
        timestep, want = event[-1], other[-1]
        assert timestep.step_type == want.step_type
        np.testing.assert_array_equal(timestep.observation, want.observation)
        if event[0] == "add":
            np.testing.assert_array_equal(event[1], other[1])
            assert event[1].dtype == other[1].dtype
            assert (timestep.reward, timestep.discount) == (want.reward, want.discount)
            assert np.asarray(timestep.reward).dtype == np.float32
