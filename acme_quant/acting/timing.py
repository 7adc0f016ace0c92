"""Where an actor's time goes: a clock that is read once between two stages.

Every moment belongs to exactly one stage, so the stages sum to the loop's wall time.
A reading costs 0.2 to 0.5 us; who is called by a loop leaves the last one to it.
"""

from __future__ import annotations

from time import perf_counter

STAGES = (
    "environment",  # physics, rendering, observation wrappers
    "inference",  # the policy's forward pass
    "exploration",  # noise, clipping, random actions
    "adder",  # n-step sums and writing to replay
    "update",  # looking for a newer policy, swapping it in
    "waiting",  # blocked by the replay server
    "loop",  # returns, counters, logging, timing itself
)
(ENVIRONMENT, INFERENCE, EXPLORATION, ADDER, UPDATE, WAITING, LOOP) = range(len(STAGES))
_KEYS = tuple(f"us_{stage}" for stage in STAGES)


class StageClock:
    """Adds up the seconds spent in each stage.

    `lap(stage)` gives the time since the last reading to `stage`. One clock is shared
    by a loop, its actor and its adder; it belongs to one thread.

    Attributes:
      seconds: list of float, total per stage, in the order of STAGES.
    """

    __slots__ = ("seconds", "_last")

    def __init__(self) -> None:
        """Starts the clock."""
        self.seconds = [0.0] * len(STAGES)
        self._last = perf_counter()

    def restart(self) -> None:
        """Gives the time since the last reading to nobody."""
        self._last = perf_counter()

    def lap(self, stage: int) -> float:
        """Gives the time since the last reading to `stage`; returns the reading."""
        now = perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now
        return now

    def total(self) -> float:
        """Returns the seconds of all stages together."""
        return sum(self.seconds)

    def per_step(self, steps: int, since: list[float] | None = None) -> dict:
        """Returns {"us_<stage>": microseconds per step} for `steps` steps.

        Args:
          steps: environment steps taken.
          since: an earlier copy of `seconds`; the differences are reported.
        """
        before = since or [0.0] * len(STAGES)
        scale = 1e6 / max(steps, 1)
        return {
            key: (now - then) * scale
            for key, now, then in zip(_KEYS, self.seconds, before)
        }
