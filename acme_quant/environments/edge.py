"""The edge of an environment: one thin wrapper that casts, checks and bounds."""

from __future__ import annotations

import logging
import math
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_quant.environments import actions, observations
from acme_quant.environments.errors import (
    EpisodeFailed,
    OutOfSpec,
    UnsupportedEnvironment,
    in_one_line,
)

# The least double that float32 rounds to infinity.
_TOO_LARGE = (2.0 - 2.0**-24) * 2.0**127
_DISCOUNTS = {0.0: np.float32(0.0), 1.0: np.float32(1.0)}


class EdgeEnvironment(dm_env.Environment):
    """Serves any dm_env environment with float32 numbers and canonical actions.

    Rewards and discounts are float32 scalars, observations as in `observations`,
    actions as in `actions`. After an EpisodeFailed the next step or reset starts a new
    episode. `environment` is the wrapped one.
    """

    def __init__(
        self, environment: dm_env.Environment, *, action_limit: float | None = None
    ) -> None:
        """Initializes the edge.

        Args:
          environment: the environment to serve.
          action_limit: bound of actions that have none; None refuses those.

        Raises:
          UnsupportedEnvironment: naming the field that we cannot serve.
        """
        self.environment = environment
        spec = _declared(environment, "action_spec")
        self._actions = actions.adapt(spec, action_limit)
        spec = _declared(environment, "observation_spec")
        self._observation_spec, self._read = observations.make_reader(spec)
        observations.check_size(self._observation_spec)
        _check_reward_spec(_declared(environment, "reward_spec"))
        self._resets = True

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode; reward and discount of its first time step are None.

        Raises:
          EpisodeFailed: if the environment raises, whatever it is (a diverged
            physics is the usual one), or the observation is not finite.
          OutOfSpec: if the observation does not fit the environment's spec.
        """
        self._resets = True
        try:
            timestep = self.environment.reset()
        except (OutOfSpec, EpisodeFailed):  # It tells what it is itself.
            raise
        except Exception as error:
            raise EpisodeFailed(in_one_line(error)) from error
        observation = self._read(timestep.observation)
        self._resets = False
        return dm_env.TimeStep(dm_env.StepType.FIRST, None, None, observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes one action; after an episode's end it starts the next one instead.

        Args:
          action: float [n] within [-1, 1] (clipped), or an index.

        Raises:
          EpisodeFailed: if the action is NaN, the environment raises, or what comes
            back is not finite.
          OutOfSpec: if what comes back does not fit the environment's spec.
        """
        if self._resets:
            return self.reset()
        self._resets = True  # Stays so if anything below raises.
        written = self._actions.write(action)
        try:
            timestep = self.environment.step(written)
        except (OutOfSpec, EpisodeFailed):
            raise
        except Exception as error:  # Whatever it is, another episode may go well.
            raise EpisodeFailed(in_one_line(error)) from error
        step_type, reward, discount, observation = timestep
        observation = self._read(observation)
        self._resets = step_type is dm_env.StepType.LAST
        if step_type is dm_env.StepType.FIRST:
            return dm_env.TimeStep(step_type, None, None, observation)
        reward = _read_reward(reward)
        return dm_env.TimeStep(step_type, reward, _read_discount(discount), observation)

    def observation_spec(self) -> Any:
        """Returns the nest of specs, leaves float32 or uint8."""
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray | specs.DiscreteArray:
        """Returns float32 [n] in [-1, 1], or int32 () in 0..n-1."""
        return self._actions.spec

    def reward_spec(self) -> specs.Array:
        """Returns float32 ()."""
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self) -> specs.BoundedArray:
        """Returns float32 () in [0, 1]."""
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")

    def close(self) -> None:
        """Closes the environment; one that fails to is a warning."""
        try:
            self.environment.close()
        except Exception as error:
            logging.warning("close() of the environment failed: %s", in_one_line(error))


def _declared(environment: dm_env.Environment, field: str) -> Any:
    """Returns a spec of the environment.

    Raises:
      UnsupportedEnvironment: if it fails to tell.
    """
    try:
        return getattr(environment, field)()
    except Exception as error:
        raise UnsupportedEnvironment(
            f"{field}() failed: {in_one_line(error)}"
        ) from error


def _check_reward_spec(spec: Any) -> None:
    if not isinstance(spec, specs.Array) or math.prod(spec.shape) != 1:
        raise UnsupportedEnvironment(f"reward must be one number, got {spec!r}.")


def _read_reward(reward: Any) -> np.float32:
    value = _number(reward, "reward")
    # Asked after the cast: a double of 1e39 is finite, and infinite for all others.
    if not abs(value) < _TOO_LARGE:
        raise EpisodeFailed(f"reward is {value}, not finite as float32.")
    return np.float32(value)


def _read_discount(discount: Any) -> np.float32:
    value = _number(discount, "discount")
    if value in _DISCOUNTS:
        return _DISCOUNTS[value]
    if not 0.0 < value < 1.0:
        raise OutOfSpec(f"discount must lie in [0, 1], got {value}.")
    return np.float32(value)


def _number(value: Any, path: str) -> float:
    """Returns a Python float of a number in any dress, an array of one included."""
    try:
        return float(value.item() if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError) as error:
        got = getattr(value, "shape", type(value).__name__)
        raise OutOfSpec(f"{path} must be one number, got {got}.") from error
