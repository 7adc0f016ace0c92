"""What acts: a policy, the exploration on top of it, its random numbers, its memory.

    observation -> client.policy -> exploration -> action

Actors, evaluators and videos act by a `Behaviour`, and by nothing else. Who makes the
policy's output is the client's affair: the engine here, or a server that is asked. A
policy that remembers would keep its memory in the behaviour, and `begin` forgets it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from acme import types

from acme_quant import roles
from acme_quant.acting.exploration import Unchanged
from acme_quant.acting.timing import EXPLORATION, INFERENCE, StageClock

P = TypeVar("P", bound=roles.Policy)


class FixedPolicy(Generic[P]):
    """Stands where a variable client stands, for a policy that never changes.

    Attributes:
      policy: the policy.
      version: its version; 0 if it has none.
    """

    def __init__(self, policy: P) -> None:
        """Initializes with what acts."""
        self.policy = policy
        self.version = policy.version if isinstance(policy, roles.Versioned) else 0

    def update(self, wait: bool = False) -> None:
        """Does nothing."""

    def staleness(self) -> dict[str, float]:
        """Returns nothing to report."""
        return {}

    def close(self) -> None:
        """Holds nothing that could be closed."""


def make_generator(seed: int | None, index: int = 0) -> np.random.Generator:
    """Returns the random numbers of environment `index` of an actor with `seed`."""
    return np.random.default_rng(None if seed is None else (seed, index))


class Behaviour:
    """Acts in one environment.

    Attributes:
      client: the client whose `policy` acts.
      clock: told which part of an action's time was inference, which exploration.
    """

    def __init__(
        self,
        client: roles.PolicyClient[roles.Policy],
        exploration: roles.Exploration | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Initializes the behaviour.

        Args:
          client: a variable client, or a FixedPolicy.
          exploration: makes the action from the policy's output; None takes the
            output for the action.
          rng: the exploration's random numbers; None for those of seed 0.
        """
        self.client = client
        self.clock = StageClock()
        self._exploration = exploration or Unchanged()
        self._rng = rng or make_generator(0)

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages; nothing here waits."""
        del stop
        self.clock = clock

    def begin(self) -> None:
        """An episode starts; a feed-forward policy has nothing to forget."""

    def __call__(self, observation: types.NestedArray) -> np.ndarray:
        """Returns the action for one observation without batch dimension."""
        output = self.client.policy(observation)
        self.clock.lap(INFERENCE)
        action = self._exploration(output, self._rng)
        self.clock.lap(EXPLORATION)
        return action

    def state(self) -> list[dict[str, Any]]:
        """Returns where its exploration is, in a list of one; JSON values."""
        return [_state(self._exploration, self._rng)]

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Goes on exploring where `state` was taken."""
        _set_states([self._exploration], [self._rng], states)


class BatchBehaviour:
    """Acts in N environments: one call of the policy, and N explorations.

    Attributes:
      client: the client whose `policy` acts.
      clock: told which part of the actions' time was inference, which exploration.
    """

    def __init__(
        self,
        client: roles.PolicyClient[roles.BatchPolicy],
        explorations: Sequence[roles.Exploration],
        rngs: Sequence[np.random.Generator],
    ) -> None:
        """Initializes the behaviour.

        Args:
          client: a variable client, or a FixedPolicy.
          explorations: one per environment; stateful ones must not be shared.
          rngs: one per environment.
        """
        self.client = client
        self.clock = StageClock()
        self._explorations = list(explorations)
        self._rngs = list(rngs)
        self._actions: np.ndarray | None = None

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages; nothing here waits."""
        del stop
        self.clock = clock

    def begin(self, index: int) -> None:
        """An episode of environment `index` starts: nothing to forget, so far."""

    def __call__(self, observations: types.NestedArray, live: np.ndarray) -> np.ndarray:
        """Returns the actions [N, ...].

        Args:
          observations: nest of [N, ...].
          live: bool [N]; where False the environment will ignore its action, and no
            random number is drawn for it.
        """
        outputs = self.client.policy.batch(observations)
        self.clock.lap(INFERENCE)
        actions = self._actions
        for i in np.flatnonzero(live):
            action = self._explorations[i](outputs[i], self._rngs[i])
            if actions is None:
                actions = np.zeros((len(outputs), *action.shape), action.dtype)
            actions[i] = action
        if actions is None:
            raise ValueError("expected an environment that is live at first, got none.")
        self._actions = actions
        self.clock.lap(EXPLORATION)
        return actions.copy()

    def state(self) -> list[dict[str, Any]]:
        """Returns where each environment's exploration is; JSON values."""
        return [_state(e, r) for e, r in zip(self._explorations, self._rngs)]

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Goes on exploring where `state` was taken.

        With another number of environments than then, those that both have go on.
        """
        _set_states(self._explorations, self._rngs, states)


def _state(exploration: roles.Exploration, rng: np.random.Generator) -> dict[str, Any]:
    """Returns the random numbers' state, and the schedule's if there is one."""
    state = exploration.state()
    return {
        "generator": rng.bit_generator.state,
        **({"exploration": state} if state else {}),
    }


def _set_states(
    explorations: Sequence[roles.Exploration],
    rngs: Sequence[np.random.Generator],
    states: Sequence[Mapping[str, Any]] | Mapping[str, Any],
) -> None:
    """Sets as many as there are.

    Older checkpoints hold generators alone, and of one environment no list.
    """
    if isinstance(states, Mapping):
        states = [states]
    for exploration, rng, state in zip(explorations, rngs, states):
        rng.bit_generator.state = state.get("generator", state)
        if "exploration" in state:
            exploration.set_state(state["exploration"])
