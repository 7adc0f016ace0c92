"""How often, and after what pause, a dead node is started again."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable

WINDOW_S = 600.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class Restarts:
    """Counts deaths: a node that always dies must not be started for ever."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Allows each node `most` restarts within WINDOW_S seconds."""
        self._most = most
        self._clock = clock
        self._deaths: dict[str, list[float]] = collections.defaultdict(list)

    def after_death(self, node: str) -> float | None:
        """Notes a death.

        Returns:
          Seconds to wait before the restart, twice as long each time; None when it was
          one death too many.
        """
        now = self._clock()
        recent = [t for t in self._deaths[node] if now - t < WINDOW_S]
        self._deaths[node] = [*recent, now]
        if len(recent) >= self._most:
            return None
        return min(FIRST_PAUSE_S * 2 ** len(recent), LONGEST_PAUSE_S)

    def history(self, node: str) -> str:
        """Returns a clause that says how often a node has died; empty for once."""
        deaths = len(self._deaths[node])
        if deaths < 2:
            return ""
        return f"; it died {deaths} times within {WINDOW_S / 60:.0f} minutes"
