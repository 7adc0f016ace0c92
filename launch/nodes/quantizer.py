"""The quantizer's node, and what a publisher leaves in the run's folder."""

from __future__ import annotations

import logging
import pathlib
import threading

from acme import specs
from acme.utils import loggers

from acme_quant import roles
from acme_quant.launch.checkpoints.deposits import QUANTIZER, Drawer
from acme_quant.launch.nodes import stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.publishing.action_changes import Changes
from acme_quant.publishing.learner import PublishingLearner
from acme_quant.publishing.publisher import PolicyPublisher
from acme_quant.records.whole_records import note_loss

MIN_LOG_S = 0.1
POLICY_FILE = "policy.aq"


def make(context: Context) -> QuantizerNode:
    """Returns the node that quantizes the learner's policy."""
    publisher = make_publisher(context, context.learner)
    drawer = Drawer(context.counter, QUANTIZER)
    return QuantizerNode(publisher, make_publication(context, publisher, drawer))


def make_publisher(context: Context, learner: roles.CountingSource) -> PolicyPublisher:
    """Returns the publisher of what `learner` learns."""
    run, config = context.run, context.run.config
    return PolicyPublisher(
        context.graph,
        learner,
        config.quantizer,
        activations=config.activations,
        communication=config.communication or None,
        publish_period=config.publish_period,
        publish_period_s=config.publish_period_s or None,
        first_version=run.start.policy_version + 1,
        max_bad_policies=config.max_bad_policies,
        changes=make_changes(context),
        stop=context.stop,
    )


def make_changes(context: Context) -> Changes:
    """Returns what tells, and bounds, how far a number format changes actions."""
    config = context.run.config
    return Changes(
        context.graph,
        config.quantizer,
        config.activations,
        config.communication or None,
        limit=config.max_action_change,
        discrete=isinstance(context.spec.actions, specs.DiscreteArray),
    )


def make_publication(
    context: Context,
    publisher: PolicyPublisher | PublishingLearner,
    drawer: Drawer | None = None,
) -> Publication:
    """Returns the trace of a publisher, or of a learner that publishes by itself."""
    run = context.run
    logger = make_logger(run.workdir, QUANTIZER, "learner_steps", context.started)
    return Publication(publisher, logger, run.workdir, run.config.log_every_s, drawer)


class Publication:
    """A publisher's trace in the run's folder: its log, its last policy as a file."""

    def __init__(
        self,
        publisher: PolicyPublisher | PublishingLearner,
        logger: loggers.Logger,
        workdir: pathlib.Path,
        log_every_s: float,
        drawer: Drawer | None = None,
    ) -> None:
        """Initializes the trace.

        Args:
          publisher: a PolicyPublisher, or a learner that publishes by itself.
          logger: gets a row of the publisher's status now and then.
          workdir: the run's folder.
          log_every_s: seconds between two rows.
          drawer: gets the policy's version as often: a resumed run counts on.
        """
        self._publisher = publisher
        self._logger = logger
        self._workdir = workdir
        self._log_every_s = max(log_every_s, MIN_LOG_S)
        self._drawer = drawer

    def log(self, stop: threading.Event) -> None:
        """Writes rows until `stop` is set."""
        while not stop.wait(self._log_every_s):
            status = self._publisher.get_status()
            # Before the first publication there is nothing to tell, except a refusal.
            if not status["policy_version"] and not status["refused_policies"]:
                continue
            self._logger.write(status)
            if self._drawer is not None:
                self._drawer.put({"policy_version": int(status["policy_version"])})

    def close(self) -> None:
        """Publishes once more; writes the last row, and the last policy as a file."""
        self._publisher.publish_last()
        self._logger.write(self._publisher.get_status())
        self._logger.close()
        _, _, _, body = self._publisher.get_policy(0, "")
        if body is not None:
            self._save(body)

    def _save(self, body: bytes | memoryview) -> None:
        path = self._workdir / POLICY_FILE
        try:
            QuantizedPolicy.from_bytes(body).save(path)
        except OSError as error:
            logging.warning("%s was not written: %s", path, error)
            note_loss(path, 1)


class QuantizerNode:
    """Runs a publisher until the program ends.

    Attributes:
      served: the publisher, which clients ask.
    """

    def __init__(self, publisher: PolicyPublisher, publication: Publication) -> None:
        """Runs `publisher` and leaves its `publication` in the run's folder."""
        self.served = publisher
        self._publication = publication

    def run(self) -> None:
        """Publishes until the program ends."""
        stopping.serve_until_stopped(
            self._publish, self._publication.log, close=self._publication.close
        )

    def _publish(self, stop: threading.Event) -> None:
        del stop  # The publisher was made with it.
        self.served.run()
