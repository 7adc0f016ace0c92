"""What a person sees while a run goes on: one line, refreshed on a terminal."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from acme_quant.records.say import say

PLAIN_EVERY_S = 10.0
# Of a terminal that does not tell its width.
DEFAULT_COLUMNS = 80
SEPARATOR = " | "
LEAST_FIRST = ("version", "learner", "speed", "steps", "failed", "return", "left")


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of a run at one moment."""

    wall_s: float
    actor_steps: int
    max_actor_steps: int
    learner_steps: int
    policy_version: int | None
    evaluation_return: float | None
    failed_episodes: int = 0
    overdue_evaluations: int = 0

    def line(self, steps_per_s: float, columns: int | None = None) -> str:
        """Returns share done, speed, last evaluation, version and time left.

        Args:
          steps_per_s: environment steps a second.
          columns: what tells least is left out until the line is no longer than this.
        """
        parts = self._parts(steps_per_s)
        for name in LEAST_FIRST:
            if columns is None or len(SEPARATOR.join(parts.values())) <= columns:
                break
            parts.pop(name, None)
        return SEPARATOR.join(parts.values())[:columns]

    def _parts(self, steps_per_s: float) -> dict[str, str]:
        """Returns what there is to tell, in its order on the line."""
        if not self.actor_steps:
            return {"share": f"starting, {self.wall_s:.0f} s"}
        share = min(1.0, self.actor_steps / self.max_actor_steps)
        left = max(0, self.max_actor_steps - self.actor_steps)
        seconds = left / steps_per_s if steps_per_s else None
        parts = {
            "share": f"{share:4.0%}",
            "steps": f"{self.actor_steps} steps",
            "speed": f"{steps_per_s:.0f} steps/s",
            "learner": f"{self.learner_steps} learner steps",
            "return": f"return {_number(self.evaluation_return)}",
        }
        if self.policy_version is not None:
            parts["version"] = f"policy v{self.policy_version}"
        if self.failed_episodes:
            parts["failed"] = f"{self.failed_episodes} episodes failed"
        return {**parts, "left": f"{_duration(seconds)} left"}


def terminal_columns(stream: TextIO) -> int:
    """Returns the width of the terminal behind `stream` at this moment."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except OSError:
        return DEFAULT_COLUMNS


class Progress:
    """Prints the status: in place on a terminal, else a line now and then."""

    def __init__(
        self,
        stream: TextIO = sys.stdout,
        start_steps: int = 0,
        columns: Callable[[TextIO], int] = terminal_columns,
    ) -> None:
        """Prints to `stream`.

        Args:
          stream: a terminal, a pipe or a file.
          start_steps: what a resumed run had taken before.
          columns: the width of the terminal, asked at each line.
        """
        self._columns = columns
        self._stream = stream
        self._start_steps = start_steps
        self._in_place = stream.isatty()
        self._last_print = 0.0
        self._first: Status | None = None

    def show(self, status: Status) -> None:
        """Shows the status, when it is due."""
        if self._first is None and status.actor_steps > self._start_steps:
            self._first = status
        now = time.monotonic()
        if self._in_place:
            # One column stays free: a full line makes some terminals begin the next.
            columns = self._columns(self._stream) - 1
            say("\r\x1b[K" + status.line(self.speed(status), columns), self._stream, "")
        elif now - self._last_print >= PLAIN_EVERY_S:
            self._last_print = now
            say(status.line(self.speed(status)), self._stream)

    def close(self) -> None:
        """Ends the line that was refreshed in place."""
        if self._in_place:
            say("", self._stream)

    def speed(self, status: Status) -> float:
        """Returns environment steps a second since the first step."""
        if self._first is None or status.wall_s <= self._first.wall_s:
            return 0.0
        steps = status.actor_steps - self._first.actor_steps
        return steps / (status.wall_s - self._first.wall_s)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    )
