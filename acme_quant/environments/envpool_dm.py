"""`envpool_dm:TASK`: EnvPool's DM Control, classic, Box2D and Atari tasks.

`Pool` speaks dm_env in batches, see `acme_quant.vector_environment`; `make` returns a
pool of one as a plain environment.

EnvPool's time steps do not say whether an episode met its step limit, where the
discount must stay 1, so that the learner still bootstraps there: `Pool` counts steps.
"""

from __future__ import annotations

from typing import Any, Callable

import dm_env
import numpy as np
from dm_env import specs

from acme_quant.environments import actions, nearest
from acme_quant.environments.errors import UnknownEnvironment, UnsupportedEnvironment

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


def make(task: str, seed: int) -> PoolOfOne:
    """Returns EnvPool's `task`, such as "CheetahRun-v1" or "Pong-v5".

    Raises:
      UnsupportedEnvironment: if EnvPool is not installed.
      UnknownEnvironment: if it has no such task.
    """
    return PoolOfOne(Pool(task, 1, seed=seed))


def names() -> list[str]:
    """Returns the names of all tasks, none if EnvPool is not installed."""
    try:
        import envpool
    except ModuleNotFoundError:
        return []
    return [f"envpool_dm:{task}" for task in envpool.list_all_envs()]


class Pool:
    """Environments of one task that EnvPool steps together."""

    def __init__(
        self, task: str, num_envs: int, *, seed: int, num_threads: int = 1
    ) -> None:
        """Makes the pool.

        Args:
          task: EnvPool's task id.
          num_envs: how many environments.
          seed: environment i gets `seed + i`.
          num_threads: the pool's own threads.

        Raises:
          UnsupportedEnvironment: if EnvPool is not installed, or the task has actions
            that we cannot serve.
          UnknownEnvironment: if it has no such task.
        """
        try:
            import envpool
        except ModuleNotFoundError as error:
            raise UnsupportedEnvironment(
                f"envpool_dm:{task} needs the package envpool, which is not installed."
            ) from error
        tasks = envpool.list_all_envs()
        if task not in tasks:
            raise UnknownEnvironment(
                f"EnvPool has no task {task!r}: expected an id such as CheetahRun-v1, "
                f"CartPole-v1 or Pong-v5{nearest.suggest(task, tasks)}."
            )
        self.num_envs = num_envs
        self._pool = envpool.make_dm(
            task, num_envs=num_envs, seed=seed, num_threads=num_threads
        )
        keys = self._pool.spec._state_keys
        self._fields = [key[4:] for key in keys if key.startswith("obs:")]
        self._scale, self._action_spec = _actions(task, self._pool.action_spec())
        self._max_steps = self._pool.config["max_episode_steps"]
        self._steps = np.zeros(num_envs, np.int64)  # Of the running episodes.

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode in every environment."""
        return self._read(self._pool.reset())

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Steps environment i with `actions[i]`."""
        return self._read(self._pool.step(self._scale(actions)))

    def take_failures(self) -> list[Exception]:
        """Returns none: EnvPool does not tell of episodes that failed."""
        return []

    def observation_spec(self) -> Any:
        """Returns a dict of specs by field; an array's spec if it is the only one."""
        declared = self._pool.observation_spec()
        if not self._fields:
            return _spec(declared.obs)
        return {field: _spec(getattr(declared, field)) for field in self._fields}

    def action_spec(self) -> specs.BoundedArray | specs.DiscreteArray:
        """Returns float32 [n] in [-1, 1], or int32 () in 0..n-1."""
        return self._action_spec

    def reward_spec(self) -> specs.Array:
        """Returns float32 ()."""
        return specs.Array((), np.float32, "reward")

    def discount_spec(self) -> specs.BoundedArray:
        """Returns float32 () in [0, 1]."""
        return specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")

    def close(self) -> None:
        """Closes the pool."""
        self._pool.close()

    def _read(self, timestep: Any) -> dm_env.TimeStep:
        """Casts what the pool returned, and mends the discount at a step limit.

        An episode that terminates in the very step of its limit counts as cut short:
        EnvPool cannot tell the two apart.
        """
        state = timestep.observation
        if self._fields:
            observation: Any = {
                field: getattr(state, field).astype(np.float32)
                for field in self._fields
            }
        else:
            observation = _channels_last(state.obs)
        step_type = timestep.step_type
        self._steps = np.where(step_type == _FIRST, 0, self._steps + 1)
        cut = (step_type == _LAST) & (self._steps >= self._max_steps)
        discount = np.where(cut, np.float32(1), timestep.discount)
        return dm_env.TimeStep(step_type, timestep.reward, discount, observation)


class PoolOfOne(dm_env.Environment):
    """The only environment of a pool."""

    def __init__(self, pool: Pool) -> None:
        """Takes a pool of one environment."""
        self._pool = pool

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode."""
        return dm_env.restart(_first(self._pool.reset().observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes one action; after an episode's end it starts the next one instead."""
        batch = self._pool.step(np.asarray(action)[None])
        return dm_env.TimeStep(
            dm_env.StepType(batch.step_type[0]),
            batch.reward[0],
            batch.discount[0],
            _first(batch.observation),
        )

    def observation_spec(self) -> Any:
        """Returns the pool's."""
        return self._pool.observation_spec()

    def action_spec(self) -> specs.BoundedArray | specs.DiscreteArray:
        """Returns the pool's."""
        return self._pool.action_spec()

    def close(self) -> None:
        """Closes the pool."""
        self._pool.close()


def _actions(
    task: str, declared: specs.Array
) -> tuple[Callable[[np.ndarray], np.ndarray], specs.Array]:
    """Returns what maps rows of actions to EnvPool's, and the spec of one of them.

    Raises:
      UnsupportedEnvironment: if the task has actions that we cannot serve.
    """
    if isinstance(declared, specs.DiscreteArray):
        spec = specs.DiscreteArray(declared.num_values, np.int32, "action")
        return lambda rows: rows.astype(declared.dtype), spec
    try:
        box = actions.adapt(declared, limit=1.0)
    except UnsupportedEnvironment as error:
        raise UnsupportedEnvironment(f"envpool_dm:{task}: {error}") from None
    return box.scale, box.spec


def _first(observation: Any) -> Any:
    """Returns row 0 of every field."""
    if isinstance(observation, dict):
        return {field: rows[0] for field, rows in observation.items()}
    return observation[0]


def _spec(declared: specs.Array) -> specs.Array:
    """Returns the spec of a field as we serve it."""
    if declared.dtype != np.uint8:
        return specs.Array(declared.shape, np.float32, declared.name)
    channels, height, width = declared.shape
    return specs.BoundedArray((height, width, channels), np.uint8, 0, 255)


def _channels_last(batch: np.ndarray) -> np.ndarray:
    """Returns [N, c, h, w] images as [N, h, w, c], anything else as float32."""
    if batch.dtype != np.uint8:
        return batch.astype(np.float32)
    return np.ascontiguousarray(batch.transpose(0, 2, 3, 1))
