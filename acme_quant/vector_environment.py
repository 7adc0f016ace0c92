"""N environments stepped together: a list of our own, or one of EnvPool's pools.

    make_vector_environment("gym:CartPole-v1", 8, seed=0)         # a loop over eight
    make_vector_environment("envpool_dm:CheetahRun-v1", 32, seed=0)  # one C++ call

A vector environment speaks dm_env in batches: every field of its time steps carries a
leading N, and after an environment's LAST its next step is a FIRST, whatever action it
got; reward and discount of a FIRST mean nothing. Specs are those of one environment, as
`environments.make_environment` has them: float32 (images uint8 [height, width,
channels]), continuous actions in [-1, 1].
"""

from __future__ import annotations

from typing import Any, Sequence

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_quant import environments

# EnvPool serves its DM Control, classic, Box2D and Atari tasks through one interface.
ENVPOOL_PREFIX = "envpool_dm:"
_STEP_TYPES = tuple(dm_env.StepType)


def make_vector_environment(
    name: str, num_envs: int, *, seed: int, num_threads: int = 1, **options: Any
) -> ListEnvironment | EnvPoolEnvironment:
    """Returns `num_envs` environments called `name`.

    Args:
      name: as for `make_environment`, or "envpool_dm:" and an EnvPool task id.
      num_envs: how many.
      seed: environment i gets `seed + i`.
      num_threads: threads of an EnvPool pool.
      **options: of `make_environment`.

    Raises:
      UnknownEnvironment, UnsupportedEnvironment, ValueError: as `make_environment`.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}.")
    if name.startswith(ENVPOOL_PREFIX):
        task = name[len(ENVPOOL_PREFIX) :]
        return EnvPoolEnvironment(task, num_envs, seed=seed, num_threads=num_threads)
    return ListEnvironment(
        [
            environments.make_environment(name, seed=seed + i, **options)
            for i in range(num_envs)
        ]
    )


class ListEnvironment:
    """Steps a list of environments one after the other.

    An environment whose episode fails starts a new one, and the loop sees a FIRST.
    """

    def __init__(self, members: Sequence[dm_env.Environment]) -> None:
        """Takes environments of one and the same spec."""
        self._members = list(members)

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return len(self._members)

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode in every environment."""
        return _stack([member.reset() for member in self._members])

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Steps environment i with `actions[i]`."""
        return _stack(
            [_step(member, action) for member, action in zip(self._members, actions)]
        )

    def observation_spec(self) -> Any:
        """Returns one environment's spec."""
        return self._members[0].observation_spec()

    def action_spec(self) -> specs.BoundedArray | specs.DiscreteArray:
        """Returns one environment's spec."""
        return self._members[0].action_spec()

    def reward_spec(self) -> specs.Array:
        """Returns one environment's spec."""
        return self._members[0].reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        """Returns one environment's spec."""
        return self._members[0].discount_spec()

    def close(self) -> None:
        """Closes the environments."""
        for member in self._members:
            member.close()


class EnvPoolEnvironment:
    """One EnvPool pool."""

    def __init__(
        self, task: str, num_envs: int, *, seed: int, num_threads: int = 1
    ) -> None:
        """Makes the pool.

        Args:
          task: EnvPool's task id, such as "CheetahRun-v1" or "Pong-v5".
          num_envs: how many environments.
          seed: environment i gets `seed + i`.
          num_threads: the pool's own threads.

        Raises:
          UnsupportedEnvironment: if EnvPool is not installed.
          UnknownEnvironment: if it has no such task.
        """
        try:
            import envpool
        except ModuleNotFoundError as error:
            raise environments.UnsupportedEnvironment(
                f"{ENVPOOL_PREFIX}{task} needs the package envpool, not installed."
            ) from error
        if task not in envpool.list_all_envs():
            raise environments.UnknownEnvironment(
                f"EnvPool has no task {task!r}; expected an id such as CheetahRun-v1, "
                "CartPole-v1 or Pong-v5."
            )
        self.num_envs = num_envs
        self._pool = envpool.make_dm(
            task, num_envs=num_envs, seed=seed, num_threads=num_threads
        )
        keys = self._pool.spec._state_keys
        self._fields = [key[4:] for key in keys if key.startswith("obs:")]
        self._action_dtype = self._pool.action_spec().dtype

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode in every environment."""
        return self._read(self._pool.reset())

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Steps environment i with `actions[i]`."""
        return self._read(self._pool.step(actions.astype(self._action_dtype)))

    def observation_spec(self) -> Any:
        """Returns a dict of specs by field; an array's spec if it is the only one."""
        declared = self._pool.observation_spec()
        if not self._fields:
            return _spec(declared.obs)
        return {field: _spec(getattr(declared, field)) for field in self._fields}

    def action_spec(self) -> specs.BoundedArray | specs.DiscreteArray:
        """Returns float32 [n] in [-1, 1], or int32 () in 0..n-1."""
        declared = self._pool.action_spec()
        if isinstance(declared, specs.DiscreteArray):
            return specs.DiscreteArray(declared.num_values, np.int32, "action")
        return specs.BoundedArray(declared.shape, np.float32, -1.0, 1.0, "action")

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


def split(timesteps: dm_env.TimeStep) -> list[dm_env.TimeStep]:
    """Returns the N time steps in a batch of them."""
    observations = timesteps.observation
    if not isinstance(observations, np.ndarray):
        leaves = tree.flatten(observations)
        observations = [tree.unflatten_as(observations, row) for row in zip(*leaves)]
    return [
        dm_env.TimeStep(_STEP_TYPES[step_type], reward, discount, observation)
        for step_type, reward, discount, observation in zip(
            timesteps.step_type.tolist(),
            timesteps.reward,
            timesteps.discount,
            observations,
        )
    ]


def _step(member: dm_env.Environment, action: np.ndarray) -> dm_env.TimeStep:
    try:
        return member.step(action)
    except environments.EpisodeFailed:
        return member.reset()


def _stack(timesteps: list[dm_env.TimeStep]) -> dm_env.TimeStep:
    """Returns N time steps as a batch; a FIRST gets reward 0 and discount 1."""
    return dm_env.TimeStep(
        np.array([step.step_type for step in timesteps]),
        np.array([step.reward or 0.0 for step in timesteps], np.float32),
        np.array(
            [1.0 if step.first() else step.discount for step in timesteps], np.float32
        ),
        tree.map_structure(
            lambda *rows: np.stack(rows), *(step.observation for step in timesteps)
        ),
    )


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
