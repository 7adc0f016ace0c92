"""What an actor's process leaves to the one that is started after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import dm_env

from acme_quant.environments.vector import VectorEnvironment
from acme_quant.launch.checkpoints.deposits import Drawer, Keeper
from acme_quant.launch.nodes import step_timeout
from acme_quant.launch.nodes.step_timeout import (
    WatchedEnvironment,
    WatchedVectorEnvironment,
)
from acme_quant.launch.settings.config import Run
from acme_quant.peers import calls

# What a process that ends because its environment hangs gives the counter to answer.
GIVE_UP_S = 1.0


class Explorer(Protocol):
    """An actor whose exploration can be left and taken up."""

    def exploration_states(self) -> list[dict[str, Any]]:
        """Returns where each environment's exploration is; JSON values."""
        ...

    def set_exploration_states(self, states: Sequence[dict[str, Any]]) -> None:
        """Goes on exploring where `exploration_states` was taken."""
        ...


class Life:
    """What an actor's process inherits from the one before, and leaves to the next.

    The exploration goes on where it was, in its random numbers and its schedule; an
    environment's random numbers cannot be taken along, so each process seeds it
    differently.

    Attributes:
      steps_before: environment steps of this actor in earlier processes.
    """

    def __init__(self, counter: Keeper, name: str) -> None:
        """Takes what the last process of this actor left with the counter."""
        self._drawer = Drawer(counter, name)
        before = self._drawer.take()
        self._starts = before.get("starts", 0) + 1
        self.steps_before = before.get("steps", 0)
        self._exploration = before.get("random")
        self._environment: step_timeout.Watched | None = None
        self._actor: Explorer | None = None
        self._counter: Keeper = calls.bounded(counter, GIVE_UP_S)
        # Of the first process: the node's name alone.
        self.seed_name = name if self._starts == 1 else f"{name} start {self._starts}"

    def watch(self, environment: dm_env.Environment, run: Run) -> WatchedEnvironment:
        """Returns an environment whose steps are timed."""
        timeout_s = run.config.step_timeout_s
        watched = WatchedEnvironment(environment, timeout_s, self._give_up)
        self._environment = watched
        return watched

    def watch_vector(
        self, environment: VectorEnvironment, run: Run
    ) -> WatchedVectorEnvironment:
        """Returns environments whose common steps are timed."""
        timeout_s = run.config.step_timeout_s
        watched = WatchedVectorEnvironment(environment, timeout_s, self._give_up)
        self._environment = watched
        return watched

    def adopt(self, actor: Explorer) -> None:
        """Has `actor` explore on from what was left, and leaves its own state."""
        self._actor = actor
        if self._exploration is not None:
            actor.set_exploration_states(self._exploration)

    def close(self) -> None:
        """Closes the environment, in the thread that stepped it."""
        if self._environment is not None:
            self._environment.close()

    def leave(self) -> None:
        """Leaves the present state with the counter."""
        steps = self._environment.steps if self._environment else 0
        state = {"starts": self._starts, "steps": self.steps_before + steps}
        if self._actor is not None:
            state["random"] = self._actor.exploration_states()
        self._drawer.put(state)

    def _give_up(self, reason: str) -> None:
        """Counts the episode that hangs as failed, and ends this process."""
        try:
            self._counter.increment(actor_failed_episodes=1)
        finally:
            step_timeout.leave(reason)
