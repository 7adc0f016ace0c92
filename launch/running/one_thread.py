"""Everything that a run does in one thread, so that its seed repeats it to the bit.

    act, observe --> the learner's steps that the replay's rate allows, with
    publications and evaluations between them --> swap the policy --> act ...

That is the order of `acme.agents.agent.Agent`. The parts are those of a run of many
processes, only that nobody runs ahead: a batch is drawn when the learner takes it, a
publication is made at its step, every answer is waited for. What is left to the clock
is when rows are logged and checkpoints saved, which changes nothing of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dm_env
from acme import core, types

from acme_quant.acting import actor, environment_loop
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.timing import WAITING, StageClock
from acme_quant.launch.nodes import makers, stopping
from acme_quant.launch.nodes.engine_actor import Life
from acme_quant.launch.nodes.evaluator import EvaluatorNode
from acme_quant.launch.nodes.learner import LearnerNode
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.launch.settings.config import Run
from acme_quant.replay import local

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
        self.loop: environment_loop.EnvironmentLoop | None = None
        self.close_loop: Callable[[], None] = lambda: None

    def run(self, stop: threading.Event) -> None:
        """Runs to the last step or to `stop`, and leaves all that it wrote closed."""
        self._stop = stop
        publication = self._learner.publication
        log = threading.Thread(target=publication.log, args=(self._over,), daemon=True)
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


def make(run: Run, spec: Any, graph: Any, counter: Any, started: float) -> Training:
    """Returns a run that is ready to start.

    Args:
      run: the run's configuration.
      spec: acme.specs.EnvironmentSpec of its environment.
      graph: the lowered policy.
      counter: the run's RunCounter.
      started: time.time() at launch.
    """
    import tensorflow as tf

    # Sums over several threads then keep their order.
    tf.config.experimental.enable_op_determinism()
    (table,) = makers.make_tables(run, spec)
    replay = local.LocalReplay(table, run.node_seed("replay"))
    learner = makers.make_learner(run, spec, graph, replay, counter, started)
    evaluator = None
    if run.config.evaluate_every:
        evaluator = makers.make_evaluator(run, spec, graph, learner, counter, started)
    life = Life(counter, NODE)
    training = Training(run, replay, learner, evaluator, life)
    _make_loop(run, spec, training, learner, replay, life, counter, started)
    return training


def _make_loop(
    run: Run,
    spec: Any,
    training: Training,
    learner: LearnerNode,
    replay: local.LocalReplay,
    life: Life,
    counter: Any,
    started: float,
) -> None:
    """Gives `training` its loop, whose actor lets the others learn."""
    config = run.config
    logger = make_logger(run.workdir, NODE, "actor_steps", started, config.log_every_s)
    quantized = actor.QuantizedActor(
        makers.make_client(run, learner),
        run.agent.exploration(spec, run.agent_config, 0, 1),
        adder=run.agent.make_adders(replay, run.agent_config)[0],
        seed=run.node_seed("noise_0"),
    )
    life.adopt(quantized)
    training.close_loop = logger.close
    training.loop = environment_loop.EnvironmentLoop(
        life.watch(makers.make_environment(run, life.seed_name), run),
        LearningActor(quantized, training.learn),
        AsyncCounter(counter, "actor", makers.counter_period_s(run)),
        logger,
        count_period_s=0.0,
    )
