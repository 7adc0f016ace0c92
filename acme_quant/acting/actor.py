"""Actors that run a quantized policy: one engine call per action, no TensorFlow.

`QuantizedActor` is an `acme.Actor` for one environment, `QuantizedVectorActor` the
same for N environments stepped together: one batched engine call, and per environment
its own adder, exploration and random numbers. With N = 1 both act alike to the bit.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Sequence

import dm_env
import numpy as np
from acme import core, types
from acme.adders import base

from acme_quant.acting.timing import EXPLORATION, INFERENCE, StageClock

# Makes the action from the policy's output (float32 [W]) and the actor's generator.
Exploration = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class FixedPolicy:
    """Stands where a variable client stands, for a policy that never changes.

    Attributes:
      policy: the policy.
    """

    def __init__(self, policy: Any) -> None:
        """Initializes with a QuantizedPolicy."""
        self.policy = policy

    @property
    def version(self) -> int:
        """The policy's version."""
        return self.policy.version

    def update(self, wait: bool = False) -> None:
        """Does nothing."""

    def staleness(self) -> dict[str, float]:
        """Returns nothing to report."""
        return {}


def as_client(client_or_policy: Any) -> Any:
    """Returns a variable client as it is, and a policy as one that never changes."""
    if hasattr(client_or_policy, "staleness"):
        return client_or_policy
    return FixedPolicy(client_or_policy)


def make_generator(seed: int | None, index: int = 0) -> np.random.Generator:
    """Returns the random numbers of environment `index` of an actor with `seed`."""
    return np.random.default_rng(None if seed is None else (seed, index))


def exploration_states(
    explorations: Sequence[Exploration], rngs: Sequence[np.random.Generator]
) -> list[dict[str, Any]]:
    """Returns, per environment, where its random numbers and its schedule are.

    JSON values; an exploration without `state` has none.
    """
    return [
        {
            "generator": rng.bit_generator.state,
            **({"exploration": e.state()} if hasattr(e, "state") else {}),
        }
        for e, rng in zip(explorations, rngs, strict=True)
    ]


def set_exploration_states(
    explorations: Sequence[Exploration],
    rngs: Sequence[np.random.Generator],
    states: list[dict[str, Any]] | dict[str, Any],
) -> None:
    """Goes on where `exploration_states` was taken.

    With another number of environments than then, those that both have go on. Older
    checkpoints hold generators alone, and of an actor of one environment no list.
    """
    if isinstance(states, dict):
        states = [states]
    for exploration, rng, state in zip(explorations, rngs, states):
        rng.bit_generator.state = state.get("generator", state)
        if "exploration" in state and hasattr(exploration, "set_state"):
            exploration.set_state(state["exploration"])


def _unchanged(output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Is the exploration of an actor that has none."""
    del rng
    return output


class QuantizedActor(core.Actor):
    """Acts in one environment by a quantized policy.

    Attributes:
      client: the variable client whose `policy` acts.
      clock: told which part of an action's time was inference, which exploration.
    """

    def __init__(
        self,
        client_or_policy: Any,
        exploration: Exploration | None = None,
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
        self.client = as_client(client_or_policy)
        self.clock = StageClock()
        self._exploration = exploration or _unchanged
        self._adder = adder
        self._rng = make_generator(seed)

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages, and ends waits when `stop` is set."""
        self.clock = clock
        if hasattr(self._adder, "bind"):
            self._adder.bind(clock, stop)

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        """Returns the explored action for one observation without batch dimension."""
        output = self.client.policy(observation)
        self.clock.lap(INFERENCE)
        action = self._exploration(output, self._rng)
        self.clock.lap(EXPLORATION)
        return action

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Records the first timestep of an episode."""
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
        self.client.update(wait)

    def close(self) -> None:
        """Ends the adder's stream."""
        if hasattr(self._adder, "close"):
            self._adder.close()

    def exploration_states(self) -> list[dict[str, Any]]:
        """Returns where the exploration is, in a list of one; JSON values."""
        return exploration_states([self._exploration], [self._rng])

    def set_exploration_states(self, states: Any) -> None:
        """Goes on exploring where `exploration_states` was taken."""
        set_exploration_states([self._exploration], [self._rng], states)


class QuantizedVectorActor:
    """Acts in N environments by one quantized policy, one engine call for all.

    Attributes:
      client: the variable client whose `policy` acts.
      clock: told which part of an action's time was inference, which exploration.
    """

    def __init__(
        self,
        client_or_policy: Any,
        explorations: Sequence[Exploration],
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
        self.client = as_client(client_or_policy)
        self.clock = StageClock()
        self._explorations = list(explorations)
        self._adders = list(adders)
        self._rngs = [make_generator(seed, i) for i in range(len(explorations))]
        self._actions: np.ndarray | None = None

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages, and ends waits when `stop` is set."""
        self.clock = clock
        for adder in self._adders:
            if hasattr(adder, "bind"):
                adder.bind(clock, stop)

    def select_actions(
        self, observations: types.NestedArray, live: np.ndarray
    ) -> np.ndarray:
        """Returns the explored actions [N, ...].

        Args:
          observations: nest of [N, ...].
          live: bool [N]; where False the environment will ignore its action, and no
            random number is drawn for it.
        """
        outputs = self.client.policy.batch(observations)
        self.clock.lap(INFERENCE)
        for i in np.flatnonzero(live):
            action = self._explorations[i](outputs[i], self._rngs[i])
            if self._actions is None:
                self._actions = np.zeros((len(outputs), *action.shape), action.dtype)
            self._actions[i] = action
        self.clock.lap(EXPLORATION)
        return self._actions.copy()

    def observe(
        self, actions: np.ndarray | None, timesteps: Sequence[dm_env.TimeStep]
    ) -> None:
        """Records what environment i did after action i, or its first timestep.

        Args:
          actions: the actions [N, ...] taken; None when all timesteps are first.
          timesteps: N timesteps.
        """
        for i, adder in enumerate(self._adders):
            timestep = timesteps[i]
            if timestep.step_type == dm_env.StepType.FIRST:
                adder.add_first(timestep)
            else:
                adder.add(actions[i], timestep)

    def update(self, wait: bool = False, steps: int = 1) -> None:
        """Swaps a newer policy in if there is one, after `steps` environment steps.

        A client counts its calls as steps, so that it asks as often per step as for
        one environment.
        """
        for _ in range(steps):
            self.client.update(wait)

    def close(self) -> None:
        """Ends the adders' streams."""
        for adder in self._adders:
            if hasattr(adder, "close"):
                adder.close()

    def exploration_states(self) -> list[dict[str, Any]]:
        """Returns where each environment's exploration is; JSON values."""
        return exploration_states(self._explorations, self._rngs)

    def set_exploration_states(self, states: Any) -> None:
        """Goes on exploring where `exploration_states` was taken."""
        set_exploration_states(self._explorations, self._rngs, states)
