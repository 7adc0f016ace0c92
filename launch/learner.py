"""The learner's node: Acme's learner, stepped until the program ends."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from acme.utils import loggers

from acme_quant import loopback
from acme_quant.launch import stopping
from acme_quant.launch.saving import LearnerSaver
from acme_quant.learner import ConsistentLearner, PublishingLearner


class LearnerNode:
    """Serves what the quantizer asks of a learner, and nothing else."""

    PUBLISHER_LOG_S = 1.0

    def __init__(
        self,
        learner: ConsistentLearner,
        logger: loggers.Logger,
        saver: LearnerSaver,
        publisher_logger: loggers.Logger | None = None,
    ) -> None:
        """Initializes the node.

        Args:
          learner: is stepped.
          logger: of the learner, to be closed at the end.
          saver: saves the learner.
          publisher_logger: gets the status of a learner that publishes by itself.
        """
        self._learner = learner
        self._logger = logger
        self._saver = saver
        self._publisher_logger = publisher_logger
        if isinstance(learner, PublishingLearner):
            self.get_policy = learner.get_policy
            self.get_status = learner.get_status

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        """See `ConsistentLearner.get_variables`."""
        return self._learner.get_variables(names)

    def get_steps(self) -> int:
        """Returns the number of learner steps done."""
        return self._learner.get_steps()

    def set_courier_server(self, server: Any) -> None:
        """Serves peers, and exposes nothing but what they call."""
        server.Unbind("run")
        loopback.start(server)

    def run(self) -> None:
        """Learns until the program ends."""
        works = [self._learn]
        if self._publisher_logger is not None:
            works.append(self._log_publisher)
        stopping.serve_until_stopped(*works, close=self._close)

    def _close(self) -> None:
        self._saver.at_the_end(self._learner.get_steps())
        self._logger.close()
        if self._publisher_logger is not None:
            self._publisher_logger.write(self._learner.get_status())
            self._publisher_logger.close()

    def _log_publisher(self, stop: threading.Event) -> None:
        while not stop.wait(self.PUBLISHER_LOG_S):
            self._publisher_logger.write(self._learner.get_status())

    def _learn(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._learner.step()
            self._saver.after_step(self._learner.get_steps())
