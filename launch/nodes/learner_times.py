"""Where a learner's time goes: columns of its CSV file and curves of TensorBoard.

waiting_ms   for a batch of replay
step_ms      the rest of Acme's step: networks, gradients, priorities, counting
export_ms    handing its variables to who asked, between two steps
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from acme.utils import loggers

from acme_quant.publishing.learner import ConsistentLearner
from acme_quant.replay.data_wait import TimedBuilder
from acme_quant.replay.local_batches import LocalBuilder


class LearnerTimes(loggers.Logger):
    """Adds milliseconds per learner step, since the last row, to the rows it passes.

    Attributes:
      learner: the learner whose steps are timed; set when it is made, after its logger.
    """

    def __init__(
        self,
        to: loggers.Logger,
        builder: TimedBuilder | LocalBuilder,
        every_s: float,
    ) -> None:
        """Passes a row to `to` every `every_s` seconds and drops the others."""
        self.learner: ConsistentLearner | None = None
        self._to = to
        self._builder = builder
        self._every_s = every_s
        self._next = 0.0
        self._last = (0.0, 0.0, 0.0)
        self._steps = 0

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes the row of one learner step, if it is time to."""
        self._steps += 1
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_s
        self._to.write({**data, **self._per_step()})
        self._steps = 0

    def close(self) -> None:
        """Closes what rows are written to."""
        self._to.close()

    def _per_step(self) -> dict[str, float]:
        # Acme logs within its step: this step's own time is in the next row.
        now = self._seconds()
        waiting, step, export = (
            1e3 * (b - a) / self._steps for a, b in zip(self._last, now)
        )
        self._last = now
        return {
            "waiting_ms": round(waiting, 4),
            "step_ms": round(max(step - waiting, 0.0), 4),
            "export_ms": round(export, 4),
        }

    def _seconds(self) -> tuple[float, float, float]:
        iterator, learner = self._builder.iterator, self.learner
        if iterator is None or learner is None:
            return self._last
        return iterator.waited_s, learner.step_s, learner.export_s
