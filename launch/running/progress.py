"""What a person sees while a run goes on: one line, refreshed on a terminal."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import time
from typing import TextIO

PLAIN_EVERY_S = 10.0


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

    def line(self, steps_per_s: float) -> str:
        """Returns share done, speed, last evaluation, version and time left."""
        if not self.actor_steps:
            return f"starting, {self.wall_s:.0f} s"
        share = min(1.0, self.actor_steps / self.max_actor_steps)
        parts = [
            f"{share:4.0%}",
            f"{self.actor_steps} steps",
            f"{steps_per_s:.0f} steps/s",
            f"{self.learner_steps} learner steps",
            f"return {_number(self.evaluation_return)}",
        ]
        if self.policy_version is not None:
            parts.append(f"policy v{self.policy_version}")
        if self.failed_episodes:
            parts.append(f"{self.failed_episodes} episodes failed")
        left = max(0, self.max_actor_steps - self.actor_steps)
        parts.append(f"{_duration(left / steps_per_s if steps_per_s else None)} left")
        return " | ".join(parts)


class Progress:
    """Prints the status: in place on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO = sys.stdout, start_steps: int = 0) -> None:
        """Prints to `stream`; a resumed run had taken `start_steps` before."""
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
            self._stream.write("\r\x1b[K" + status.line(self.speed(status)))
            self._stream.flush()
        elif now - self._last_print >= PLAIN_EVERY_S:
            self._last_print = now
            print(status.line(self.speed(status)), file=self._stream, flush=True)

    def close(self) -> None:
        """Ends the line that was refreshed in place."""
        if self._in_place:
            self._stream.write("\n")

    def speed(self, status: Status) -> float:
        """Returns environment steps a second since the first step."""
        if self._first is None or status.wall_s <= self._first.wall_s:
            return 0.0
        steps = status.actor_steps - self._first.actor_steps
        return steps / (status.wall_s - self._first.wall_s)


def last_row(path: pathlib.Path) -> dict[str, str]:
    """Returns the last whole row of a CSV file, empty when there is none yet."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    if len(lines) < 2:
        return {}
    return dict(zip(lines[0].split(","), lines[-1].split(",")))


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
