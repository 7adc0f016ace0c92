"""The steps that an actor may take before it must know what the others have taken.

Far from a run's limit an actor hears of the others now and then, and never waits. Near
it, each takes its share of what remains and then asks: a fast environment would go
through many times a small limit between two answers.
"""

from __future__ import annotations

import threading

from acme_quant.acting.async_counter import AsyncCounter

# Into how many leases an actor's part of what remains is split. An actor that others
# do not hear of may go past the limit by one.
_ASKS = 4


class StepLimit:
    """A limit on the steps that several actors take together."""

    def __init__(self, counter: AsyncCounter, most: int, actors: int) -> None:
        """Initializes the limit.

        Args:
          counter: of this actor; knows the `actor_steps` of all.
          most: steps of all actors.
          actors: who share what remains.
        """
        self._counter = counter
        self._most = most
        self._actors = actors

    def share(self) -> int:
        """Returns the steps that this actor may take now, 0 when all are taken."""
        remaining = self._most - int(self._counter.known("actor_steps"))
        if remaining <= 0:
            return 0
        return max(1, remaining // (_ASKS * self._actors))

    def ask(self, stop: threading.Event) -> int:
        """Returns the same by a fresh answer; waits for `stop` when all are taken.

        Raises:
          CountsLost: if the counter does not answer.
        """
        self._counter.settle(stop)
        share = self.share()
        if not share:
            stop.wait()
        return share
