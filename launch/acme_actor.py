"""Acme's own actor, variable client and adder: the outside baseline of a comparison.

Only the loop's end is ours: Acme's knows no stop between two episodes.
"""

from __future__ import annotations

import threading
from typing import Any

import acme
from acme.agents.tf import actors
from acme.tf import variable_utils

from acme_quant.launch.config import Run


def make(
    run: Run, spec: Any, learner: Any, adder: Any, *, exploring: bool
) -> actors.FeedForwardActor:
    """Returns the actor of Acme's TensorFlow agents.

    Args:
      run: the run's configuration.
      spec: the environment's specs.
      learner: a Courier client of the learner.
      adder: Acme's adder; None for an evaluator.
      exploring: whether the policy explores.
    """
    networks = run.agent.make_networks(spec, run.agent_config)
    client = variable_utils.VariableClient(
        learner,
        {"policy": run.agent.policy_module(networks).variables},
        update_period=run.config.update_period if exploring else 1,
    )
    client.update_and_wait()
    policy = (
        run.agent.make_acme_policy(networks, spec, run.agent_config)
        if exploring
        else run.agent.policy_module(networks)
    )
    return actors.FeedForwardActor(policy, adder, client)


class _Stopped(Exception):
    """Leaves Acme's loop in the middle of an episode."""


class Loop:
    """Acme's environment loop, left between two steps when the program ends."""

    def __init__(self, environment: Any, actor: Any, counter: Any, logger: Any) -> None:
        """Makes Acme's loop of these parts."""
        self._stop = threading.Event()
        self._loop = acme.EnvironmentLoop(
            _Stoppable(environment, self), actor, counter, logger
        )

    def run(self, stop: threading.Event) -> None:
        """Runs episodes until `stop` is set."""
        self._stop = stop
        try:
            self._loop.run()
        except _Stopped:
            return

    def check(self) -> None:
        """Raises when the program ends."""
        if self._stop.is_set():
            raise _Stopped


class _Stoppable:
    """An environment whose step looks at the loop's stop."""

    def __init__(self, environment: Any, loop: Loop) -> None:
        self._environment = environment
        self._loop = loop

    def step(self, action: Any) -> Any:
        self._loop.check()
        return self._environment.step(action)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)
