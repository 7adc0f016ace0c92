"""Has the arms of a setting act in turns, so that a slow moment falls on all of them.

All arms' processes are started first, one after the other, and warm up. Then, round by
round, each arm acts for a short while, and the others' processes wait.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Sequence

from acme_quant.bench.actor.host import START_TIMEOUT_S, Child, Host
from acme_quant.bench.actor.plan import STAGES, Measured, Plan

ROUNDS = 5
WARM_UP_S = 2.0


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one turn of an arm gave.

    Attributes:
      measured: by each of its actors.
      us_replay: the replay server's processor time per item.
    """

    measured: Sequence[Measured]
    us_replay: float

    def numbers(self) -> dict[str, float]:
        """Returns the sum of the actors' speeds, and the means of their times."""
        all_ = self.measured
        times = {
            f"us_{stage}": sum(one.microseconds[stage] for one in all_) / len(all_)
            for stage in STAGES
        }
        steps_us = [1e6 * one.seconds / max(one.steps, 1) for one in all_]
        return {
            "steps_per_s": sum(one.steps / one.seconds for one in all_),
            "us_step": sum(steps_us) / len(all_),
            **times,
            "us_replay": self.us_replay,
        }


class Arm:
    """The actor processes of one plan, which act when it is their turn."""

    def __init__(self, plan: Plan, host: Host) -> None:
        """Starts nothing yet."""
        self._plan = plan
        self._host = host
        self._actors: list[Child] = []

    def start(self, seconds: float) -> None:
        """Starts the actors, one alone at a time; each warms up for `seconds`.

        Raises:
          RuntimeError: as `act`.
        """
        for index in range(self._plan.actors):
            before = self._host.count(self._plan.table)
            self._actors.append(self._host.start_actor(self._plan, index, seconds))
            self._finish(self._actors[-1:], before, seconds)

    def act(self, seconds: float) -> Turn:
        """Has all actors act for `seconds`.

        Raises:
          RuntimeError: if replay did not receive exactly what the environments made,
            or a process died.
        """
        before = self._host.count(self._plan.table)
        for actor in self._actors:
            actor.send(seconds)
        return self._finish(self._actors, before, seconds)

    def _finish(
        self, actors: Sequence[Child], before: tuple[int, float], seconds: float
    ) -> Turn:
        """Waits for the end of a turn of `actors`, and compares items."""
        timeout_s = START_TIMEOUT_S + seconds
        measured = [actor.receive(timeout_s) for actor in actors]
        items, cpu_s = self._host.count(self._plan.table)
        received, expected = items - before[0], sum(one.items for one in measured)
        if received != expected:
            raise RuntimeError(
                f"{self._plan}: expected {expected} items in replay, got {received}."
            )
        return Turn(measured, 1e6 * (cpu_s - before[1]) / max(received, 1))

    def kill(self) -> None:
        """Ends the actors."""
        for actor in self._actors:
            actor.kill()


def measure(plans: Sequence[Plan], host: Host, seconds: float) -> list[list[Turn]]:
    """Returns ROUNDS turns of each plan, of `seconds` together.

    Raises:
      RuntimeError: as `Arm.act`.
    """
    arms = [Arm(plan, host) for plan in plans]
    with contextlib.ExitStack() as stack:
        for arm in arms:
            stack.callback(arm.kill)
            arm.start(min(WARM_UP_S, seconds))
        return take_turns(arms, seconds / ROUNDS)


def take_turns(arms: Sequence[Arm], seconds: float) -> list[list[Turn]]:
    """Returns ROUNDS turns of each arm, each of `seconds`.

    Every other round goes backwards. So nobody is always first, and whatever lasts as
    long as two rounds meets each arm twice, wherever it begins.
    """
    turns: list[list[Turn]] = [[] for _ in arms]
    order = list(range(len(arms)))
    for _ in range(ROUNDS):
        for i in order:
            turns[i].append(arms[i].act(seconds))
        order.reverse()
    return turns
