"""When a publisher publishes next, and how long it leaves the learner alone."""

from __future__ import annotations

import time

# A question for the learner's step costs it a fraction of a millisecond.
MIN_POLL_S = 0.005
MAX_POLL_S = 0.5


class Schedule:
    """Says when a publication is due: every so many learner steps, or seconds."""

    def __init__(self, period: int, period_s: float | None = None) -> None:
        """Takes both periods; `period_s`, if given, counts instead of steps."""
        self._period = period
        self._period_s = period_s
        self._step: int | None = None
        self._time_s = time.monotonic()

    def note(self, step: int) -> None:
        """Notes that the policy of a learner step was fetched now."""
        self._step, self._time_s = step, time.monotonic()

    def has(self, step: int) -> bool:
        """Returns whether it was this step's policy that was fetched last."""
        return step == self._step

    def is_due(self, step: int) -> bool:
        """Returns whether it is time to fetch; always before the first time."""
        if self._step is None:
            return True
        if self._period_s is not None:
            return time.monotonic() - self._time_s >= self._period_s
        return step - self._step >= self._period

    def wait_s(self, step: int) -> float:
        """Returns how long to leave the learner alone: half of what seems left."""
        elapsed_s = time.monotonic() - self._time_s
        if self._period_s is not None:
            left_s = self._period_s - elapsed_s
        else:
            done = step - (self._step or 0)
            left = self._period - done
            left_s = left * elapsed_s / done / 2 if done > 0 else elapsed_s
        return min(max(left_s, MIN_POLL_S), MAX_POLL_S)
