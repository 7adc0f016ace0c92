"""The learner's node: Acme's learner, stepped until the program ends."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from acme.utils import loggers

from acme_quant.launch.checkpoints.saving import LearnerSaver
from acme_quant.launch.nodes import stopping
from acme_quant.launch.nodes.quantizer import Publication
from acme_quant.peers import loopback
from acme_quant.publishing.learner import ConsistentLearner, PublishingLearner


class LearnerNode:
    """Serves what the quantizer asks of a learner, and nothing else."""

    def __init__(
        self,
        learner: ConsistentLearner,
        logger: loggers.Logger,
        saver: LearnerSaver,
        publication: Publication | None = None,
    ) -> None:
        """Initializes the node.

        Args:
          learner: is stepped.
          logger: of the learner, to be closed at the end.
          saver: saves the learner.
          publication: of a learner that publishes by itself; an attribute of the node.
        """
        self._learner = learner
        self._logger = logger
        self._saver = saver
        self.publication = publication
        if isinstance(learner, PublishingLearner):
            self.get_policy = learner.get_policy
            self.get_status = learner.get_status
            self.get_float32 = learner.get_float32

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        """See `ConsistentLearner.get_variables`."""
        return self._learner.get_variables(names)

    def get_steps(self) -> int:
        """Returns the number of learner steps done."""
        return self._learner.get_steps()

    def set_courier_server(self, server: Any) -> None:
        """Serves peers, and exposes nothing but what they call."""
        for method in ("close", "run", "step"):
            server.Unbind(method)
        loopback.start(server)

    def run(self) -> None:
        """Learns until the program ends."""
        works = [self._learn]
        if self.publication is not None:
            works.append(self.publication.log)
        stopping.serve_until_stopped(*works, close=self.close)

    def step(self) -> None:
        """Takes one learner step, and saves if it is time to."""
        self._learner.step()
        self._saver.after_step(self._learner.get_steps())

    def close(self) -> None:
        """Saves, and ends what the node writes."""
        self._saver.at_the_end(self._learner.get_steps())
        self._logger.close()
        if self.publication is not None:
            self.publication.close()

    def _learn(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.step()
