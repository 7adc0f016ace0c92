"""Actors that run a quantized policy: one engine call per action, no TensorFlow.

`QuantizedActor` is an `acme.Actor` for one environment, `QuantizedVectorActor` the
same for N environments stepped together: one batched engine call, and per environment
its own adder, exploration and random numbers. With N = 1 both act alike to the bit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import dm_env
import numpy as np
from acme import core, types
from acme.adders import base

from acme_quant import roles
from acme_quant.acting.behaviour import (
    BatchBehaviour,
    Behaviour,
    FixedPolicy,
    make_generator,
)
from acme_quant.acting.timing import StageClock

P = TypeVar("P", bound=roles.Policy)


def as_client(client_or_policy: roles.PolicyClient[P] | P) -> roles.PolicyClient[P]:
    """Returns a client as it is, and a policy, which can be called, as a fixed one."""
    if callable(client_or_policy):
        return FixedPolicy(client_or_policy)
    return client_or_policy


class QuantizedActor(core.Actor):
    """Acts in one environment by a quantized policy.

    Attributes:
      behaviour: what acts.
    """

    def __init__(
        self,
        client_or_policy: roles.PolicyClient[roles.Policy] | roles.Policy,
        exploration: roles.Exploration | None = None,
        adder: base.Adder | None = None,
        *,
        seed: int | None = 0,
    ) -> None:
        """Initializes the actor.

        Args:
          client_or_policy: a QuantizedVariableClient, or a policy that stays.
          exploration: makes the action from the policy's output; None takes the
            output for the action.
          adder: where experience goes; None for an evaluator.
          seed: of the exploration's random numbers; None for any.
        """
        client = as_client(client_or_policy)
        self.behaviour = Behaviour(client, exploration, make_generator(seed))
        self._adder = adder

    @property
    def client(self) -> roles.PolicyClient[roles.Policy]:
        """The variable client whose `policy` acts."""
        return self.behaviour.client

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages, and ends waits when `stop` is set."""
        self.behaviour.bind(clock, stop)
        if isinstance(self._adder, roles.Timed):
            self._adder.bind(clock, stop)

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        """Returns the explored action for one observation without batch dimension."""
        return self.behaviour(observation)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Records the first timestep of an episode."""
        self.behaviour.begin()
        if self._adder is not None:
            self._adder.add_first(timestep)

    def observe(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep
    ) -> None:
        """Records an action and the timestep that followed."""
        if self._adder is not None:
            self._adder.add(action, next_timestep)

    def update(self, wait: bool = False) -> None:
        """Swaps a newer policy in if there is one; `wait` blocks until there is."""
        self.behaviour.client.update(wait)

    def close(self) -> None:
        """Ends the adder's stream."""
        if isinstance(self._adder, roles.Closable):
            self._adder.close()

    def exploration_states(self) -> list[dict[str, Any]]:
        """Returns where the exploration is, in a list of one; JSON values."""
        return self.behaviour.state()

    def set_exploration_states(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on exploring where `exploration_states` was taken."""
        self.behaviour.set_state(states)


class QuantizedVectorActor:
    """Acts in N environments by one quantized policy, one engine call for all.

    Attributes:
      behaviour: what acts.
    """

    def __init__(
        self,
        client_or_policy: roles.PolicyClient[roles.BatchPolicy] | roles.BatchPolicy,
        explorations: Sequence[roles.Exploration],
        adders: Sequence[base.Adder] = (),
        *,
        seed: int | None = 0,
    ) -> None:
        """Initializes the actor.

        Args:
          client_or_policy: a QuantizedVariableClient, or a policy that stays.
          explorations: one per environment; stateful ones must not be shared.
          adders: one per environment, or none for an evaluator.
          seed: environment i draws from `make_generator(seed, i)`.

        Raises:
          ValueError: if there are adders, but not one per exploration.
        """
        if adders and len(adders) != len(explorations):
            raise ValueError(
                f"{len(explorations)} explorations expect as many adders, got "
                f"{len(adders)}."
            )
        rngs = [make_generator(seed, i) for i in range(len(explorations))]
        self.behaviour = BatchBehaviour(as_client(client_or_policy), explorations, rngs)
        self._adders = list(adders)

    @property
    def client(self) -> roles.PolicyClient[roles.BatchPolicy]:
        """The variable client whose `policy` acts."""
        return self.behaviour.client

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages, and ends waits when `stop` is set."""
        self.behaviour.bind(clock, stop)
        for adder in self._adders:
            if isinstance(adder, roles.Timed):
                adder.bind(clock, stop)

    def select_actions(
        self, observations: types.NestedArray, live: np.ndarray
    ) -> np.ndarray:
        """Returns the explored actions [N, ...]; see `BatchBehaviour`."""
        return self.behaviour(observations, live)

    def observe(
        self, actions: np.ndarray | None, timesteps: Sequence[dm_env.TimeStep]
    ) -> None:
        """Records what environment i did after action i, or its first timestep.

        Args:
          actions: the actions [N, ...] taken; None when all timesteps are first.
          timesteps: N timesteps.
        """
        first = dm_env.StepType.FIRST
        starts = [timestep.step_type == first for timestep in timesteps]
        for i, start in enumerate(starts):
            if start:
                self.behaviour.begin(i)
        for i, adder in enumerate(self._adders):
            if starts[i] or actions is None:
                adder.add_first(timesteps[i])
            else:
                adder.add(actions[i], timesteps[i])

    def update(self, wait: bool = False, steps: int = 1) -> None:
        """Swaps a newer policy in if there is one, after `steps` environment steps.

        A client counts its calls as steps, so that it asks as often per step as for
        one environment.
        """
        for _ in range(steps):
            self.behaviour.client.update(wait)

    def close(self) -> None:
        """Ends the adders' streams."""
        for adder in self._adders:
            if isinstance(adder, roles.Closable):
                adder.close()

    def exploration_states(self) -> list[dict[str, Any]]:
        """Returns where each environment's exploration is; JSON values."""
        return self.behaviour.state()

    def set_exploration_states(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on exploring where `exploration_states` was taken."""
        self.behaviour.set_state(states)
