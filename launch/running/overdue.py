"""Evaluations that are due and do not come: an evaluator may hang, or be slow."""

from __future__ import annotations

import time
from collections.abc import Callable


class Overdue:
    """Compares what the learner has done with what the evaluator has told."""

    def __init__(
        self,
        every: int,
        patience_s: float,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Awaits the first.

        Args:
          every: learner steps from one evaluation to the next, 0 for none.
          patience_s: seconds that an evaluation may take from when it is due.
          start: learner steps at which the run went on.
          clock: returns seconds.
        """
        self._every = every
        self._patience_s = patience_s
        self._clock = clock
        self._newest = start
        self._since: float | None = None
        self._told = False
        self.missing = 0

    def look(self, learned: int, evaluated: int) -> str | None:
        """Takes in how far both are.

        Args:
          learned: learner steps done.
          evaluated: those of the newest evaluation.

        Returns:
          A sentence, once, when an evaluation has been missing for too long.
        """
        if evaluated > self._newest:
            self._newest, self._since, self._told = evaluated, None, False
        due = (
            (learned // self._every - self._newest // self._every) if self._every else 0
        )
        if due <= 0:
            self.missing = 0
            return None
        self._since = self._clock() if self._since is None else self._since
        waited_s = self._clock() - self._since
        self.missing = due if waited_s > self._patience_s else 0
        if not self.missing or self._told:
            return None
        self._told = True
        return (
            f"no evaluation for {waited_s:.0f} s, the last one was at learner step "
            f"{self._newest}, {due} are due"
        )
