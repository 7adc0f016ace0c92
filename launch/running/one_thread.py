"""Everything that a run does in one thread, so that its seed repeats it to the bit.

    act, observe --> the learner's steps that the replay's rate allows, with
    publications and evaluations between them --> swap the policy --> act ...

That is the order of `acme.agents.agent.Agent`. The parts are those of a run of many
processes, only that nobody runs ahead: a batch is drawn when the learner takes it, a
publication is made at its step, every answer is waited for. What is left to the clock
is when rows are logged and checkpoints saved, which changes nothing of the run.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import cast

import dm_env
import tensorflow as tf
from acme import core, types

from acme_quant.acting import actor, environment_loop
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.timing import WAITING, StageClock
from acme_quant.launch.nodes import evaluator as evaluators
from acme_quant.launch.nodes import learner as learners
from acme_quant.launch.nodes import stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.engine_actor import make_client
from acme_quant.launch.nodes.environment import make_environment
from acme_quant.launch.nodes.evaluator import EvaluatorNode
from acme_quant.launch.nodes.learner import LearnerNode
from acme_quant.launch.nodes.life import Life
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.launch.nodes.replay import make_tables
from acme_quant.launch.settings.config import Run
from acme_quant.publishing.learner import SequentialLearner
from acme_quant.replay import local
from acme_quant.replay.local_batches import LocalBuilder

NODE = "actor_0"


class LearningActor(core.Actor):
    """An actor that lets others learn before it is updated.

    Attributes:
      client: the actor's variable client.
    """

    def __init__(self, actor: actor.QuantizedActor, learn: Callable[[], None]) -> None:
        """Calls `learn` after each step of `actor`."""
        self.client = actor.client
        self._actor = actor
        self._learn = learn
        self._clock = StageClock()

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells a loop's `clock` of the stages; the actor waits while others learn."""
        self._clock = clock
        self._actor.bind(clock, stop)

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        """Returns the actor's action."""
        return self._actor.select_action(observation)

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        """Records the first timestep of an episode."""
        self._actor.observe_first(timestep)

    def observe(
        self, action: types.NestedArray, next_timestep: dm_env.TimeStep
    ) -> None:
        """Records an action and the timestep that followed."""
        self._actor.observe(action, next_timestep)

    def update(self, wait: bool = False) -> None:
        """Lets others learn, then swaps a newer policy in if it is time to."""
        self._learn()
        self._clock.lap(WAITING)
        self._actor.update(wait)


class Training:
    """The nodes of a run, and whose turn it is."""

    def __init__(
        self,
        run: Run,
        replay: local.LocalReplay,
        learner: LearnerNode,
        evaluator: EvaluatorNode | None,
        life: Life,
    ) -> None:
        """Initializes the training; `make_loop` gives it somebody who acts."""
        self._run = run
        self._replay = replay
        self._learner = learner
        self._evaluator = evaluator
        self._life = life
        self._steps = run.start.actor_steps
        self._stop = threading.Event()
        self._over = threading.Event()
        self.loop: environment_loop.EnvironmentLoop
        self.close_loop: Callable[[], None] = lambda: None

    def run(self, stop: threading.Event) -> None:
        """Runs to the last step or to `stop`, and leaves all that it wrote closed."""
        self._stop = stop
        log = threading.Thread(
            target=self._learner.log, args=(self._over,), daemon=True
        )
        log.start()
        try:
            self.loop.run(stop=self._over)
            if self._evaluator is not None and not stop.is_set():
                self._evaluator.evaluate_last(stop)
        finally:
            self._over.set()
            log.join(stopping.GRACE_S)
            self._close()

    def learn(self) -> None:
        """Takes the learner's steps that are due after one of the environment's."""
        self._steps += 1
        batch_size = self._run.agent_config.batch_size
        while self._replay.can_sample(batch_size) and not self._stop.is_set():
            self._life.leave()
            self._learner.step()
            if self._evaluator is not None:
                self._evaluator.evaluate_if_due(self._stop)
        if self._steps >= self._run.config.max_actor_steps or self._stop.is_set():
            self._over.set()

    def _close(self) -> None:
        self._life.leave()
        self._life.close()
        self.close_loop()
        if self._evaluator is not None:
            self._evaluator.close()
        self._learner.close()


def make(context: Context) -> Training:
    """Returns a run that is ready to start; its `context` has no peers but a counter.

    Args:
      context: of the run.
    """
    # Sums over several threads then keep their order.
    tf.config.experimental.enable_op_determinism()
    run = context.run
    (table,) = make_tables(context)
    replay = local.LocalReplay(table, run.node_seed("replay"))
    learner = _make_learner(dataclasses.replace(context, name="learner"), replay)
    context = dataclasses.replace(
        context, policies=cast(SequentialLearner, learner.served)
    )
    evaluator = None
    if run.config.evaluate_every:
        named = dataclasses.replace(context, name="evaluator")
        evaluator = evaluators.make(named)
    life = Life(context.counter, NODE)
    training = Training(run, replay, learner, evaluator, life)
    _make_loop(context, replay, training, life)
    return training


def _make_learner(context: Context, replay: local.LocalReplay) -> LearnerNode:
    """Returns a learner that draws each batch when it takes it."""
    run = context.run
    acme_builder = run.agent.make_acme_builder(run.agent_config)
    builder = LocalBuilder(acme_builder, run.agent_config.batch_size)
    return learners.make_of(context, builder, replay, SequentialLearner)


def _make_loop(
    context: Context, replay: local.LocalReplay, training: Training, life: Life
) -> None:
    """Gives `training` its loop, whose actor lets the others learn."""
    run = context.run
    logger = make_logger(
        run.workdir, NODE, "actor_steps", context.started, run.config.log_every_s
    )
    quantized = actor.QuantizedActor(
        make_client(context),
        run.agent.exploration(context.spec, run.agent_config, 0, 1),
        adder=run.agent.make_adders(replay, run.agent_config)[0],
        seed=run.node_seed("noise_0"),
    )
    life.adopt(quantized)
    training.close_loop = logger.close
    training.loop = environment_loop.EnvironmentLoop(
        life.watch(make_environment(run, life.seed_name), run),
        LearningActor(quantized, training.learn),
        AsyncCounter(context.counter, "actor", context.count_every_s),
        logger,
        count_period_s=0.0,
    )
