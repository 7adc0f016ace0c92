"""`envpool_dm:TASK`: EnvPool's DM Control, classic, Box2D and Atari tasks.

`Pool` speaks dm_env in batches, see `acme_quant.environments.vector`; `make` returns a
pool of one as a plain environment.

EnvPool's time steps do not say whether an episode met its step limit, where the
discount must stay 1, so that the learner still bootstraps there: `Pool` counts steps.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_quant.environments import actions, nearest
from acme_quant.environments.actions import NAN_ACTION
from acme_quant.environments.errors import (
    MAX_FAILURES_IN_A_ROW,
    EpisodeFailed,
    UnknownEnvironment,
    UnsupportedEnvironment,
)

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
        self._failures: list[EpisodeFailed] = []

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode in every environment.

        Raises:
          EpisodeFailed: if one failed at as many starts as MAX_FAILURES_IN_A_ROW.
        """
        return self._bound(self._restart(self._read(self._pool.reset()), {}))

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Steps environment i with `actions[i]`.

        An environment whose action is NaN, or whose observation or reward is not
        finite, starts a new episode: its time step is a FIRST.

        Raises:
          EpisodeFailed: if one failed at as many starts as MAX_FAILURES_IN_A_ROW.
        """
        if actions.dtype.kind != "f" or _is_finite(actions):
            timestep, failed = self._read(self._pool.step(self._scale(actions))), {}
        else:
            nan = np.isnan(actions)
            # The others must go on, so that the pool gets a number in its place.
            numbers = self._scale(np.where(nan, np.float32(0), actions))
            timestep = self._read(self._pool.step(numbers))
            nan = nan.any(axis=1) & (timestep.step_type != _FIRST)  # Was not needed.
            failed = dict.fromkeys(np.flatnonzero(nan), NAN_ACTION)
        return self._bound(self._restart(timestep, failed))

    def take_failures(self) -> list[EpisodeFailed]:
        """Returns why episodes failed since the last call."""
        failures, self._failures = self._failures, []
        return failures

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
        """Casts what the pool returned."""
        state = timestep.observation
        if self._fields:
            observation: Any = {
                field: getattr(state, field).astype(np.float32)
                for field in self._fields
            }
        else:
            observation = _channels_last(state.obs)
        return dm_env.TimeStep(
            timestep.step_type, timestep.reward, timestep.discount, observation
        )

    def _restart(
        self, timestep: dm_env.TimeStep, failed: dict[int, str]
    ) -> dm_env.TimeStep:
        """Starts the environments anew that failed: {index: why}, or not finite."""
        failed = {**_not_finite(timestep), **failed}
        for _ in range(MAX_FAILURES_IN_A_ROW):
            if not failed:
                return timestep
            self._failures += map(EpisodeFailed, failed.values())
            rows = np.array(list(failed), np.int32)
            fresh = self._read(self._pool.reset(rows))
            timestep = tree.map_structure(
                lambda old, new, rows=rows: _replaced(old, rows, new), timestep, fresh
            )
            failed = _not_finite(timestep)
        raise self._failures[-1]

    def _bound(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        """Counts a step, and mends the discount where an episode met its limit.

        An episode that terminates in the very step of its limit counts as cut short:
        EnvPool cannot tell the two apart.
        """
        step_type = timestep.step_type
        self._steps += 1
        self._steps[step_type == _FIRST] = 0
        cut = (step_type == _LAST) & (self._steps >= self._max_steps)
        if not cut.any():
            return timestep
        discount = np.where(cut, np.float32(1), timestep.discount)
        return timestep._replace(discount=discount)


class PoolOfOne(dm_env.Environment):
    """The only environment of a pool."""

    def __init__(self, pool: Pool) -> None:
        """Takes a pool of one environment."""
        self._pool = pool

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode.

        Raises:
          EpisodeFailed: if what comes back is not finite.
        """
        batch = self._pool.reset()
        self._tell_failure()
        return dm_env.restart(_first(batch.observation))

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes one action; after an episode's end it starts the next one instead.

        Raises:
          EpisodeFailed: if the action is NaN or what comes back is not finite.
        """
        batch = self._pool.step(np.asarray(action)[None])
        self._tell_failure()
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

    def _tell_failure(self) -> None:
        for error in self._pool.take_failures():
            raise error


def _is_finite(rows: np.ndarray) -> bool:
    """Returns whether no number's square overflows, far faster than np.isfinite."""
    flat = rows.ravel()
    return math.isfinite(flat.dot(flat))


def _not_finite(timestep: dm_env.TimeStep) -> dict[int, str]:
    """Returns {index: what} of the environments with a number that is not finite."""
    observation, found = timestep.observation, {}
    if not isinstance(observation, dict):
        fields = {"observation": observation}
    else:
        fields = {f"observation.{key}": rows for key, rows in observation.items()}
    # EnvPool leaves the reward of a FIRST as the memory was.
    reward = np.where(timestep.step_type == _FIRST, 0, timestep.reward)
    for path, rows in (*fields.items(), ("reward", reward)):
        if rows.dtype != np.uint8 and not _is_finite(rows):
            whole = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
            found.update(
                dict.fromkeys(np.flatnonzero(~whole), f"{path} is not finite.")
            )
    return found


def _replaced(batch: np.ndarray, rows: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Returns a copy of `batch` that has `fresh` at `rows`."""
    batch = batch.copy()
    batch[rows] = fresh
    return batch


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
