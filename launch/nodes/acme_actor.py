"""Acme's own actor, variable client and adder: the outside baseline of a comparison.

Only the loop's end is ours: Acme's knows no stop between two episodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import acme
import dm_env
import numpy as np
import reverb
import tensorflow as tf
from acme import adders, core, specs, types
from acme.agents.tf import actors
from acme.tf import variable_utils
from acme.utils import counting, loggers

from acme_quant import roles
from acme_quant.acting.timing import (
    ADDER,
    ENVIRONMENT,
    INFERENCE,
    LOOP,
    UPDATE,
    StageClock,
)
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.environment import make_environment
from acme_quant.launch.nodes.evaluator import AcmePolicies
from acme_quant.launch.nodes.life import Life
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    from acme_quant.publishing.learner import ConsistentLearner

R = TypeVar("R")


def make_loop(context: Context, life: Life, logger: loggers.Logger) -> Loop:
    """Returns the loop of one actor; arguments as of `engine_actor.make_loop`."""
    run = context.run
    environment = life.watch(make_environment(run, life.seed_name), run)
    # TensorFlow's generator cannot go on where another process left it.
    tf.random.set_seed(run.node_seed(f"noise_{context.index} of {life.seed_name}"))
    builder = run.agent.make_acme_builder(run.agent_config)
    adder = builder.make_adder(reverb.Client(context.replay))
    exploration = run.agent.exploration(
        context.spec, run.agent_config, context.index, run.config.num_actors
    )
    exploration.set_state({"steps": life.steps_before})
    actor = make_actor(run, context.spec, _learner(context), adder, exploration)
    counter = counting.Counter(
        context.counter, "actor", time_delta=context.count_every_s
    )
    return Loop(environment, actor, counter, logger)


def make_policies(context: Context) -> AcmePolicies:
    """Returns what the evaluator evaluates: the learner's policy in Acme's actor."""
    run, learner = context.run, _learner(context)
    actor = make_actor(run, context.spec, learner, None)
    return AcmePolicies(actor, learner, run.agent.greedy(context.spec))


def _learner(context: Context) -> ConsistentLearner:
    """Returns whom actors of this kind ask, as its entry in `ACTORS` says."""
    return cast("ConsistentLearner", context.policies)


def make_actor(
    run: Run,
    spec: specs.EnvironmentSpec,
    learner: core.VariableSource,
    adder: adders.Adder | None,
    exploration: roles.Exploration | None = None,
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

    def __init__(
        self,
        environment: dm_env.Environment,
        actor: core.Actor,
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> None:
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


class _Stoppable(dm_env.Environment):
    """An environment whose step looks at the loop's stop."""

    def __init__(self, environment: dm_env.Environment, loop: Loop) -> None:
        self._environment = environment
        self._loop = loop

    def reset(self) -> dm_env.TimeStep:
        return _timed(self._loop.clock, ENVIRONMENT, self._environment.reset)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        self._loop.check()
        return _timed(self._loop.clock, ENVIRONMENT, self._environment.step, action)

    def observation_spec(self) -> types.NestedSpec:
        return self._environment.observation_spec()

    def action_spec(self) -> types.NestedSpec:
        return self._environment.action_spec()

    def reward_spec(self) -> types.NestedSpec:
        return self._environment.reward_spec()

    def discount_spec(self) -> types.NestedSpec:
        return self._environment.discount_spec()


class _TimedActor(core.Actor):
    """An actor whose calls are told to a clock."""

    def __init__(self, actor: core.Actor, clock: StageClock) -> None:
        self._actor = actor
        self._clock = clock

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        return _timed(self._clock, INFERENCE, self._actor.select_action, observation)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        _timed(self._clock, ADDER, self._actor.observe_first, timestep)

    def observe(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep
    ) -> None:
        _timed(self._clock, ADDER, self._actor.observe, action, next_timestep)

    def update(self, wait: bool = False) -> None:
        _timed(self._clock, UPDATE, self._actor.update, wait)


def _timed(
    clock: StageClock, stage: int, function: Callable[..., R], *args: object
) -> R:
    clock.lap(LOOP)
    result = function(*args)
    clock.lap(stage)
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
