"""The quantizer's node: the publisher, its log, and the last policy as a file."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import numpy as np
from acme.utils import loggers

from acme_quant import loopback
from acme_quant.launch import stopping
from acme_quant.launch.counter import Drawer
from acme_quant.policy import QuantizedPolicy
from acme_quant.publisher import Answer, PolicyPublisher

MIN_LOG_S = 0.1
POLICY_FILE = "policy.aq"


class QuantizerNode:
    """Serves what clients and the launcher ask of the publisher, and nothing else."""

    def __init__(
        self,
        publisher: PolicyPublisher,
        logger: loggers.Logger,
        workdir: pathlib.Path,
        log_every_s: float,
        drawer: Drawer,
    ) -> None:
        """Runs `publisher` and writes a row of its status every `log_every_s`.

        The policy's version goes into `drawer` as often: a resumed run counts on.
        """
        self._publisher = publisher
        self._logger = logger
        self._workdir = workdir
        self._log_every_s = max(log_every_s, MIN_LOG_S)
        self._drawer = drawer

    def get_policy(self, newer_than: int, host: str) -> Answer:
        """See `PolicyPublisher.get_policy`."""
        return self._publisher.get_policy(newer_than, host)

    def get_status(self) -> dict[str, float]:
        """See `PolicyPublisher.get_status`."""
        return self._publisher.get_status()

    def get_float32(self) -> tuple[int, list[np.ndarray]]:
        """See `PolicyPublisher.get_float32`."""
        return self._publisher.get_float32()

    def set_courier_server(self, server: Any) -> None:
        """Serves peers, and exposes nothing but what they call."""
        server.Unbind("run")
        loopback.start(server)

    def run(self) -> None:
        """Publishes until the program ends, then leaves the last policy as a file."""
        stopping.serve_until_stopped(self._publish, self._log, close=self._close)

    def _publish(self, stop: threading.Event) -> None:
        del stop  # The publisher was made with it.
        self._publisher.run()

    def _log(self, stop: threading.Event) -> None:
        while not stop.wait(self._log_every_s):
            status = self._publisher.get_status()
            # Before the first publication there is nothing to tell, except a refusal.
            if status["version"] or status["refused_policies"]:
                self._logger.write(status)
                self._drawer.put({"policy_version": int(status["version"])})

    def _close(self) -> None:
        self._logger.write(self._publisher.get_status())
        self._logger.close()
        save_policy(self._publisher, self._workdir)


def save_policy(publisher: PolicyPublisher, workdir: pathlib.Path) -> None:
    """Writes the published policy to `workdir`, if there is one."""
    _, _, _, body = publisher.get_policy(0, "")
    if body is not None:
        QuantizedPolicy.from_bytes(body).save(workdir / POLICY_FILE)
