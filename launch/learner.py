"""The learner's node: Acme's own learner, and the few calls its peers need."""

from __future__ import annotations

import queue
import threading
from concurrent import futures
from typing import Any

import launchpad as lp
import numpy as np

from acme_quant.launch import stopping
from acme_quant.launch.config import Run
from acme_quant.launch.loggers import make_logger


class LearnerNode:
    """Steps Acme's learner and hands out its variables between two steps.

    Acme's learner updates its variables one after another while it steps; variables
    read meanwhile may stem from two steps. So a request waits for the end of the step
    that runs, except while the learner waits for data, when nothing changes.
    """

    # Longer than a step, shorter than what a peer takes for a dead learner.
    STEP_TIMEOUT_S = 2.0

    def __init__(
        self, run: Run, spec: Any, replay: Any, counter: Any, started: float
    ) -> None:
        """Builds the networks, the dataset and Acme's learner."""
        import tensorflow as tf
        from acme.utils import counting

        tf.random.set_seed(run.node_seed("learner"))
        self._logger = make_logger(
            run.workdir, "learner", "learner_steps", started, run.config.log_every_s
        )
        builder = run.agent.make_acme_builder(run.agent_config)
        self._learner = run.agent.make_learner(
            builder,
            run.agent.make_learner_networks(spec, run.agent_config),
            replay,
            counting.Counter(counter, "learner", time_delta=0.5),
            self._logger,
        )
        self._steps = 0
        self._requests: queue.SimpleQueue = queue.SimpleQueue()

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        """Returns the variables of one moment, as Acme's learner names them."""
        if not self._steps:
            return self._learner.get_variables(names)
        request: futures.Future = futures.Future()
        self._requests.put((names, request))
        try:
            return request.result(self.STEP_TIMEOUT_S)
        except futures.TimeoutError:
            if not request.cancel():
                return request.result()
            return self._learner.get_variables(names)

    def get_steps(self) -> int:
        """Returns the number of learner steps done."""
        return self._steps

    def set_courier_server(self, server: Any) -> None:
        """Serves peers, and exposes nothing but what they call."""
        server.Unbind("run")
        server.Start()

    def run(self) -> None:
        """Learns until the program ends."""
        stopping.serve_until_stopped(
            lambda: self._learn(lp.stop_event()), self._logger.close
        )

    def _learn(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._learner.step()
            self._steps += 1
            self._answer()

    def _answer(self) -> None:
        while not self._requests.empty():
            names, request = self._requests.get()
            if request.set_running_or_notify_cancel():
                request.set_result(self._learner.get_variables(names))
