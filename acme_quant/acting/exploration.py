"""Exploration on top of a policy's output, in NumPy alone.

An exploration is any callable `exploration(output, rng) -> action`: `output` is what
the policy's engine returned (float32 [W] or [M, W]), `rng` the actor's own generator.
The actors of one run differ in their generator and in their noise level; the greedy
evaluator uses the same classes with the level 0.

An exploration that changes from call to call leaves where it is by `state() -> dict` of
JSON values and takes it up by `set_state(dict)`: a restarted actor goes on where the
last one was. One that does not is `Stateless`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


class Stateless:
    """An exploration whose every call is like the first."""

    def state(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Has nothing to go on from."""


class Unchanged(Stateless):
    """Takes the policy's output for the action."""

    def __call__(self, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns `output`."""
        del rng
        return output


@dataclasses.dataclass(frozen=True)
class GaussianNoise(Stateless):
    """Adds independent Gaussian noise to a continuous action, then clips to its box.

    The same rule as Acme's D4PG behaviour network (ClippedGaussian, ClipToSpec).

    Attributes:
      sigma: standard deviation of the noise, in units of the action; 0 is greedy.
      low: smallest action, a float or float32 [W].
      high: largest action, a float or float32 [W].
    """

    sigma: float
    low: float | np.ndarray
    high: float | np.ndarray
    _scale: np.float32 = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuses a negative or non-finite level."""
        if not 0.0 <= self.sigma < float("inf"):
            raise ValueError(
                f"sigma must be a finite number of at least 0, got {self.sigma}."
            )
        # Once, not at each action.
        object.__setattr__(self, "_scale", np.float32(self.sigma))

    def __call__(self, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the noisy action, float32, of `output`'s shape."""
        if self.sigma:
            noise = rng.standard_normal(output.shape, dtype=np.float32)
            output = output + self._scale * noise
        return np.minimum(np.maximum(output, self.low), self.high, dtype=np.float32)


class EpsilonGreedy:
    """Takes the action of largest value, or with probability epsilon any action.

    A random action is drawn from all of them, the best one included, as in Mnih et
    al. 2015. Among equal values the first wins.

    Attributes:
      decay_steps: calls over which the probability falls to its final value.
    """

    def __init__(
        self,
        epsilon: float,
        *,
        initial_epsilon: float | None = None,
        decay_steps: int = 0,
    ) -> None:
        """Initializes the schedule.

        Args:
          epsilon: final probability of a random action.
          initial_epsilon: probability at the first call; `epsilon` when None.
          decay_steps: calls over which the probability falls linearly from
            `initial_epsilon` to `epsilon`; 0 means `epsilon` from the start.

        Raises:
          ValueError: if a probability lies outside [0, 1] or a count is negative.
        """
        self._start = epsilon if initial_epsilon is None else initial_epsilon
        for value in (epsilon, self._start):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"epsilon must lie in [0, 1], got {value}.")
        if decay_steps < 0:
            raise ValueError(f"decay_steps must be at least 0, got {decay_steps}.")
        self._final = epsilon
        self.decay_steps = decay_steps
        self._steps = 0

    @property
    def epsilon(self) -> float:
        """Probability of a random action at the next call."""
        if self._steps >= self.decay_steps:
            return self._final
        return self.epsilon_after(self._steps / self.decay_steps)

    def epsilon_after(self, done: Any) -> Any:
        """Returns the probability after the share `done` of the decay, in [0, 1].

        A tensor gives a tensor: Acme's actor follows the same line.
        """
        return self._start + done * (self._final - self._start)

    def state(self) -> dict[str, int]:
        """Returns where in its schedule the exploration is."""
        return {"steps": self._steps}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on in the schedule where `state` was taken."""
        self._steps = int(state["steps"])

    def __call__(self, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the action index, int32 [...], for values float32 [..., actions]."""
        steps, self._steps = self._steps, self._steps + 1
        # The schedule is over for nearly all of a run.
        epsilon = self._final
        if steps < self.decay_steps:
            epsilon = self.epsilon_after(steps / self.decay_steps)
        if output.ndim == 1:
            return np.asarray(self._one(output, epsilon, rng), np.int32)
        greedy = output.argmax(axis=-1)
        if epsilon:
            explore = rng.random(greedy.shape) < epsilon
            anything = rng.integers(output.shape[-1], size=greedy.shape)
            greedy = np.where(explore, anything, greedy)
        return greedy.astype(np.int32)

    def _one(
        self, values: np.ndarray, epsilon: float, rng: np.random.Generator
    ) -> np.integer | int:
        """Chooses for one row: no temporary arrays on an actor's path."""
        if epsilon and rng.random() < epsilon:
            return rng.integers(values.size)
        return values.argmax()


def spread(low: float, high: float, index: int, count: int) -> float:
    """Returns actor `index`'s level of `count` levels spaced evenly in [low, high].

    The paper gives every actor its own sigma; one actor alone gets the middle.
    """
    if count <= 1:
        return 0.5 * (low + high)
    return low + (high - low) * index / (count - 1)


def apex_epsilon(base: float, exponent: float, index: int, count: int) -> float:
    """Returns actor `index`'s epsilon, base ** (1 + exponent * index / (count - 1)).

    Source: Horgan et al. 2018, "Distributed Prioritized Experience Replay", section
    4.1 (base 0.4, exponent 7). One actor alone gets `base`.
    """
    if count <= 1:
        return base
    return base ** (1.0 + exponent * index / (count - 1))
