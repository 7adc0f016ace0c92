"""The learner's node: Acme's learner, stepped until the program ends."""

from __future__ import annotations

import functools
import threading

import reverb
import tensorflow as tf
from acme import core
from acme.utils import counting, loggers

from acme_quant.launch.checkpoints import learner_state, saving
from acme_quant.launch.checkpoints.replay_saver import ReplaySaver
from acme_quant.launch.nodes import quantizer, stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.learner_times import LearnerTimes
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.publishing.learner import ConsistentLearner, PublishingLearner
from acme_quant.replay.clipped import ClippedShare, CountingBuilder
from acme_quant.replay.data_wait import TimedBuilder
from acme_quant.replay.local import LocalReplay
from acme_quant.replay.local_batches import LocalBuilder


def make(context: Context) -> LearnerNode:
    """Returns Acme's learner on the replay server; it may publish by itself."""
    run = context.run
    builder = TimedBuilder(run.agent.make_acme_builder(run.agent_config))
    colocated = run.config.colocate_quantizer
    kind = PublishingLearner if colocated else ConsistentLearner
    return make_of(context, builder, reverb.Client(context.replay), kind)


def make_of(
    context: Context,
    builder: TimedBuilder | LocalBuilder,
    replay: reverb.Client | LocalReplay,
    kind: type[ConsistentLearner],
) -> LearnerNode:
    """Returns Acme's learner of these parts.

    Args:
      context: of the learner's node.
      builder: the agent's, its dataset timed.
      replay: where the batches come from.
      kind: one of the learners of `publishing.learner`.
    """
    run, counter = context.run, context.counter
    tf.random.set_seed(run.node_seed(context.name))
    rows = make_logger(run.workdir, context.name, "learner_steps", context.started)
    builder = CountingBuilder(
        builder, functools.partial(run.agent.clipped, run.agent_config)
    )
    rows = ClippedShare(rows, builder, run.agent.clipping)
    logger = LearnerTimes(rows, builder, run.config.log_every_s)
    acme_learner = run.agent.make_learner(
        builder,
        run.agent.make_learner_networks(context.spec, run.agent_config),
        replay,
        counting.Counter(counter, "learner", time_delta=context.count_every_s),
        logger,
    )
    saver = _make_saver(context, acme_learner, replay)
    steps = run.start.learner_steps
    if not issubclass(kind, PublishingLearner):
        learner = logger.learner = kind(acme_learner, steps)
        return LearnerNode(learner, logger, saver)
    make_publisher = functools.partial(quantizer.make_publisher, context)
    learner = logger.learner = kind(acme_learner, make_publisher, steps)
    saver.policy_version = lambda: int(learner.get_status()["policy_version"])
    publication = quantizer.make_publication(context, learner)
    return LearnerNode(learner, logger, saver, publication)


def _make_saver(
    context: Context, learner: core.Learner, replay: reverb.Client | LocalReplay
) -> saving.LearnerSaver:
    """Gives a resumed learner its state; returns who saves it from now on."""
    run = context.run
    state = learner_state.LearnerState(learner)
    saving.restore(run, state)
    policy = state.names_of(run.agent.policy_variables(learner))
    replay_saver = ReplaySaver(run, context.spec, replay)
    return saving.LearnerSaver(
        run, context.spec, state, policy, context.counter, replay_saver, context.started
    )


class LearnerNode:
    """Steps a learner until the program ends.

    Attributes:
      served: the learner, which the quantizer asks, or actors if it publishes.
    """

    def __init__(
        self,
        learner: ConsistentLearner,
        logger: loggers.Logger,
        saver: saving.LearnerSaver,
        publication: quantizer.Publication | None = None,
    ) -> None:
        """Initializes the node.

        Args:
          learner: is stepped.
          logger: of the learner, to be closed at the end.
          saver: saves the learner.
          publication: of a learner that publishes by itself.
        """
        self.served = learner
        self._logger = logger
        self._saver = saver
        self._publication = publication

    def run(self) -> None:
        """Learns until the program ends."""
        works = [self._learn]
        if self._publication is not None:
            works.append(self._publication.log)
        if isinstance(self.served, PublishingLearner):
            works.append(self.served.watch)
        stopping.serve_until_stopped(*works, close=self.close)

    def step(self) -> None:
        """Takes one learner step, and saves if it is time to."""
        self.served.step()
        self._saver.after_step(self.served.get_steps())

    def log(self, stop: threading.Event) -> None:
        """Writes rows of what it publishes until `stop` is set, if it publishes."""
        if self._publication is not None:
            self._publication.log(stop)

    def close(self) -> None:
        """Saves, and ends what the node writes."""
        self._saver.at_the_end(self.served.get_steps())
        self._logger.close()
        if self._publication is not None:
            self._publication.close()

    def _learn(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.step()
