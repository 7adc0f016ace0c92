"""The coordinator's node: it knows when the run has had its steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import launchpad as lp

from acme_quant import roles
from acme_quant.launch.nodes.context import Context


def make(context: Context) -> Coordinator:
    """Returns the node that knows when the steps are done."""
    return Coordinator(context.counter, context.run.config.max_actor_steps)


class Coordinator:
    """Watches the counter and says when the actors' steps are done.

    The launcher asks it and then stops every node in order; a coordinator that stopped
    the program by itself would leave the learner blocked in its dataset.
    """

    POLL_S = 0.2

    def __init__(self, counter: roles.Counter, max_actor_steps: int) -> None:
        """Watches `counter` for `max_actor_steps` environment steps."""
        self._counter = counter
        self._max_actor_steps = max_actor_steps
        self._counts: Mapping[str, float] = {}

    def get_status(self) -> dict[str, Any]:
        """Returns the counts of all nodes and whether the steps are done."""
        done = self._counts.get("actor_steps", 0) >= self._max_actor_steps
        return {"counts": dict(self._counts), "done": done, "time": time.time()}

    def run(self) -> None:
        """Polls the counter until the program ends."""
        while not lp.wait_for_stop(self.POLL_S):
            self._counts = self._counter.get_counts()
