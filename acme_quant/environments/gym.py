"""`gym:ID`: gymnasium environments behind dm_env's interface.

Gymnasium tells two ends apart and so do we: `terminated` gives discount 0, `truncated`
alone (a time limit) keeps discount 1, so that the learner still bootstraps there.
"""

from __future__ import annotations

import collections.abc
from typing import Any, Callable

import dm_env
import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces

from acme_quant.environments import modules, nearest
from acme_quant.environments.errors import (
    OutOfSpec,
    UnknownEnvironment,
    UnsupportedEnvironment,
    in_one_line,
)
from acme_quant.environments.seeds import derived_seed

# A one-hot row of more numbers is no observation: its first layer alone would take a
# hundred megabytes.
MOST_VALUES = 100_000


class GymEnvironment(dm_env.Environment):
    """A gymnasium environment as a dm_env one, its values not yet cast."""

    def __init__(self, environment: gymnasium.Env, seed: int) -> None:
        """Initializes the wrapper; the first reset seeds the environment.

        Raises:
          UnsupportedEnvironment: naming the space that we cannot serve.
        """
        self.environment = environment
        self._seed: int | None = seed % 2**31
        self._failures = 0  # Of resets with a seed.
        self._resets = True
        self._action_spec = _action_spec(_space(environment, "action_space"))
        space = _space(environment, "observation_space")
        self._observation_spec, self._encode = _observation(space, "observation")

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode."""
        observation, _ = self._seeded_reset()
        self._seed, self._resets = None, False
        return dm_env.restart(self._encode(observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes one action, or starts an episode if the last one has ended."""
        if self._resets:
            return self.reset()
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        self._resets = bool(terminated or truncated)
        step_type = dm_env.StepType.LAST if self._resets else dm_env.StepType.MID
        discount = 0.0 if terminated else 1.0
        return dm_env.TimeStep(step_type, reward, discount, self._encode(observation))

    def _seeded_reset(self) -> tuple[Any, dict[str, Any]]:
        """Resets; a seed with which it fails once would always fail, so it is left."""
        try:
            return self.environment.reset(seed=self._seed)
        except Exception:
            if self._seed is not None:
                self._failures += 1
                self._seed = derived_seed(self._seed, self._failures)
            raise

    def observation_spec(self) -> Any:
        """Returns the observation space as dm_env specs."""
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
        """Returns the action space as a dm_env spec."""
        return self._action_spec

    def close(self) -> None:
        """Closes the environment."""
        self.environment.close()


def make(name: str, seed: int) -> GymEnvironment:
    """Returns the registered environment `name` (`module:ID` imports `module` first).

    Raises:
      UnknownEnvironment: naming the nearest registered ones.
      UnsupportedEnvironment: if it cannot be made or has a space we cannot serve.
    """
    if ":" in name:
        modules.look_here_first()
    try:
        # The checker's assertions cost a third of a small environment's step, and the
        # edge checks what we rely on.
        environment = gymnasium.make(name, disable_env_checker=True)
    except (Exception, SystemExit) as error:
        # A malformed ID raises the bare base class.
        malformed = type(error) is gymnasium.error.Error
        unknown = isinstance(error, gymnasium.error.UnregisteredEnv)
        if malformed or unknown or _is_missing(error, name):
            raise UnknownEnvironment(
                f"gymnasium has no environment {name!r}: expected gym:ID"
                f"{nearest.suggest('gym:' + name, names())}."
            ) from error
        raise UnsupportedEnvironment(
            f"gym:{name} cannot be made: {in_one_line(error)}"
        ) from error
    return adapt(environment, f"gym:{name}", seed)


def _is_missing(error: BaseException, name: str) -> bool:
    """Returns whether the module of `module:ID` is not there."""
    cause = error.__cause__ or error  # Gymnasium wraps it.
    return modules.is_missing(cause, name.partition(":")[0])


def adapt(environment: gymnasium.Env, name: str, seed: int) -> GymEnvironment:
    """Returns the wrapped `environment`, which is called `name`.

    Raises:
      UnsupportedEnvironment: naming it and the space that we cannot serve.
    """
    try:
        return GymEnvironment(environment, seed)
    except UnsupportedEnvironment as error:
        environment.close()
        raise UnsupportedEnvironment(f"{name}: {error}") from error


def names() -> list[str]:
    """Returns the names of all registered environments."""
    return [f"gym:{name}" for name in gymnasium.registry]


def _space(environment: gymnasium.Env, field: str) -> gymnasium.Space:
    """Returns a space of the environment.

    Raises:
      UnsupportedEnvironment: if it has none, or fails to tell.
    """
    try:
        return getattr(environment, field)
    except Exception as error:
        raise UnsupportedEnvironment(
            f"{field} cannot be read: {in_one_line(error)}"
        ) from error


def _action_spec(space: gymnasium.Space) -> specs.BoundedArray:
    """Returns the spec of an action space.

    Raises:
      UnsupportedEnvironment: if the space is neither Discrete nor Box.
    """
    if isinstance(space, spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n - 1)
        return specs.BoundedArray((), space.dtype, low, high, name="action")
    if isinstance(space, spaces.Box):
        return specs.BoundedArray(
            space.shape, space.dtype, space.low, space.high, name="action"
        )
    raise UnsupportedEnvironment(f"action must be Discrete or Box, got {space}.")


def _observation(space: gymnasium.Space, path: str) -> tuple[Any, Callable]:
    """Returns an observation space's spec and the function that encodes a value.

    A Discrete field becomes one-hot, float32 [n]; Dict and Tuple nest; the numeric
    spaces stay as they are.

    Raises:
      UnsupportedEnvironment: naming the field of any other space.
    """
    if isinstance(space, spaces.Discrete):
        return _one_hot_spec(space, path), _one_hot(space, path)
    if isinstance(space, (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)):
        return specs.Array(space.shape, space.dtype, name=path), _identity
    if isinstance(space, spaces.Dict):
        parts = {k: _observation(s, f"{path}.{k}") for k, s in space.spaces.items()}
        encoders = {key: encode for key, (_, encode) in parts.items()}
        return {k: spec for k, (spec, _) in parts.items()}, _in_mapping(encoders)
    if isinstance(space, spaces.Tuple):
        parts = [_observation(s, f"{path}[{i}]") for i, s in enumerate(space.spaces)]
        return tuple(spec for spec, _ in parts), _in_tuple([e for _, e in parts])
    raise UnsupportedEnvironment(
        f"{path} must be a Box, Discrete, MultiBinary, MultiDiscrete, Dict or Tuple "
        f"space, got {space}."
    )


def _identity(value: Any) -> Any:
    return value


def _one_hot_spec(space: spaces.Discrete, path: str) -> specs.Array:
    """Returns float32 [n].

    Raises:
      UnsupportedEnvironment: if there are more than MOST_VALUES.
    """
    if space.n > MOST_VALUES:
        raise UnsupportedEnvironment(
            f"{path} must have at most {MOST_VALUES} values, each a number of a "
            f"one-hot row, got {space}."
        )
    return specs.Array((int(space.n),), np.float32, name=path)


def _one_hot(space: spaces.Discrete, path: str) -> Callable[[Any], np.ndarray]:
    start, stop = int(space.start), int(space.start + space.n)

    def encode(value: Any) -> np.ndarray:
        try:
            index = int(value)
        except (TypeError, ValueError):
            index = stop
        if not start <= index < stop:
            raise OutOfSpec(f"{path} must lie in {start}..{stop - 1}, got {value!r}.")
        row = np.zeros(stop - start, np.float32)
        row[index - start] = 1.0
        return row

    return encode


def _in_mapping(encoders: dict[str, Callable]) -> Callable[[Any], Any]:
    if all(encode is _identity for encode in encoders.values()):
        return _identity

    def encode(value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            return value  # The edge names what is wrong with it.
        return {k: encoders.get(k, _identity)(v) for k, v in value.items()}

    return encode


def _in_tuple(encoders: list[Callable]) -> Callable[[Any], Any]:
    if all(encode is _identity for encode in encoders):
        return _identity

    def encode(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(encoders):
            return value
        return tuple(one(part) for one, part in zip(encoders, value))

    return encode
