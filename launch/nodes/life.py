"""What an actor's process leaves to the one that is started after it."""

from __future__ import annotations

from typing import Any

from acme_quant.launch.checkpoints.deposits import Drawer
from acme_quant.launch.nodes import step_timeout
from acme_quant.launch.settings.config import Run
from acme_quant.peers import calls

# What a process that ends because its environment hangs gives the counter to answer.
GIVE_UP_S = 1.0


class Life:
    """What an actor's process inherits from the one before, and leaves to the next.

    The exploration goes on where it was, in its random numbers and its schedule; an
    environment's random numbers cannot be taken along, so each process seeds it
    differently.

    Attributes:
      steps_before: environment steps of this actor in earlier processes.
    """

    def __init__(self, counter: Any, name: str) -> None:
        """Takes what the last process of this actor left with the RunCounter."""
        self._drawer = Drawer(counter, name)
        before = self._drawer.take()
        self._starts = before.get("starts", 0) + 1
        self.steps_before = before.get("steps", 0)
        self._exploration = before.get("random")
        self._environment: step_timeout.WatchedEnvironment | None = None
        self._actor: Any = None
        self._counter = calls.bounded(counter, GIVE_UP_S)
        # Of the first process: the node's name alone.
        self.seed_name = name if self._starts == 1 else f"{name} start {self._starts}"

    def watch(self, environment: Any, run: Run) -> step_timeout.WatchedEnvironment:
        """Returns an environment, or a vector of them, whose steps are timed."""
        vector = hasattr(environment, "num_envs")
        watch = (
            step_timeout.WatchedVectorEnvironment
            if vector
            else step_timeout.WatchedEnvironment
        )
        self._environment = watch(environment, run.config.step_timeout_s, self._give_up)
        return self._environment

    def adopt(self, actor: Any) -> None:
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
