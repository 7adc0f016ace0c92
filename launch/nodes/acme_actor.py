"""Acme's own actor, variable client and adder: the outside baseline of a comparison.

Only the loop's end is ours: Acme's knows no stop between two episodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import acme
import reverb
import tensorflow as tf
from acme import core
from acme.agents.tf import actors
from acme.tf import variable_utils
from acme.utils import counting, loggers

from acme_quant.acting.timing import (
    ADDER,
    ENVIRONMENT,
    INFERENCE,
    LOOP,
    UPDATE,
    StageClock,
)
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.evaluator import AcmePolicies
from acme_quant.launch.nodes.life import Life
from acme_quant.launch.settings.config import Run


def make_loop(
    context: Context, life: Life, environment: Any, logger: loggers.Logger
) -> Loop:
    """Returns the loop of one actor; arguments as of `engine_actor.make_loop`."""
    run = context.run
    # TensorFlow's generator cannot go on where another process left it.
    tf.random.set_seed(run.node_seed(f"noise_{context.index} of {life.seed_name}"))
    builder = run.agent.make_acme_builder(run.agent_config)
    adder = builder.make_adder(reverb.Client(context.replay))
    exploration = run.agent.exploration(
        context.spec, run.agent_config, context.index, run.config.num_actors
    )
    if hasattr(exploration, "set_state"):
        exploration.set_state({"steps": life.steps_before})
    actor = make_actor(run, context.spec, context.policies, adder, exploration)
    counter = counting.Counter(
        context.counter, "actor", time_delta=context.count_every_s
    )
    return Loop(environment, actor, counter, logger)


def make_policies(context: Context) -> AcmePolicies:
    """Returns what the evaluator evaluates: the learner's policy in Acme's actor."""
    run = context.run
    actor = make_actor(run, context.spec, context.policies, None)
    return AcmePolicies(actor, context.policies, run.agent.greedy(context.spec))


def make_actor(
    run: Run, spec: Any, learner: Any, adder: Any, exploration: Any = None
) -> actors.FeedForwardActor:
    """Returns the actor of Acme's TensorFlow agents.

    Args:
      run: the run's configuration.
      spec: the environment's specs.
      learner: a Courier client of the learner.
      adder: Acme's adder; None for an evaluator.
      exploration: the agent's rule for this actor; None for an evaluator.
    """
    networks = run.agent.make_networks(spec, run.agent_config)
    client = variable_utils.VariableClient(
        learner,
        {"policy": run.agent.policy_module(networks).variables},
        update_period=run.config.update_period if exploration else 1,
    )
    client.update_and_wait()
    policy = (
        run.agent.make_acme_policy(networks, spec, exploration)
        if exploration
        else run.agent.policy_module(networks)
    )
    return actors.FeedForwardActor(policy, adder, client)


class _Stopped(Exception):
    """Leaves Acme's loop in the middle of an episode."""


class Loop:
    """Acme's environment loop, left between two steps when the program ends."""

    def __init__(self, environment: Any, actor: Any, counter: Any, logger: Any) -> None:
        """Makes Acme's loop of these parts, and tells where its time goes.

        What Acme's actor does as one, counts as one: exploration is in `inference`, the
        wait for replay in `adder`.
        """
        self._stop = threading.Event()
        self.clock = StageClock()
        self._loop = acme.EnvironmentLoop(
            _Stoppable(environment, self),
            _TimedActor(actor, self.clock),
            counter,
            _TimedLogger(logger, self.clock),
        )

    def run(self, stop: threading.Event) -> None:
        """Runs episodes until `stop` is set."""
        self._stop = stop
        self.clock.restart()
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

    def reset(self) -> Any:
        return self._timed(self._environment.reset)

    def step(self, action: Any) -> Any:
        self._loop.check()
        return self._timed(self._environment.step, action)

    def _timed(self, function: Callable[..., Any], *args: Any) -> Any:
        self._loop.clock.lap(LOOP)
        result = function(*args)
        self._loop.clock.lap(ENVIRONMENT)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


class _TimedActor(core.Actor):
    """An actor whose calls are told to a clock."""

    def __init__(self, actor: core.Actor, clock: StageClock) -> None:
        self._actor = actor
        self._clock = clock

    def select_action(self, observation: Any) -> Any:
        return self._timed(INFERENCE, self._actor.select_action, observation)

    def observe_first(self, timestep: Any) -> None:
        self._timed(ADDER, self._actor.observe_first, timestep)

    def observe(self, action: Any, next_timestep: Any) -> None:
        self._timed(ADDER, self._actor.observe, action, next_timestep)

    def update(self, wait: bool = False) -> None:
        self._timed(UPDATE, self._actor.update, wait)

    def _timed(self, stage: int, function: Callable[..., Any], *args: Any) -> Any:
        self._clock.lap(LOOP)
        result = function(*args)
        self._clock.lap(stage)
        return result


class _TimedLogger(loggers.Logger):
    """Adds an episode's microseconds per step and stage to its row."""

    def __init__(self, to: loggers.Logger, clock: StageClock) -> None:
        self._to = to
        self._clock = clock
        self._seconds = list(clock.seconds)

    def write(self, data: Mapping[str, Any]) -> None:
        times = self._clock.per_step(int(data["episode_length"]), self._seconds)
        self._seconds = list(self._clock.seconds)
        self._to.write({**data, **times})

    def close(self) -> None:
        self._to.close()
