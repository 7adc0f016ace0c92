"""The actor's loop: Acme's `EnvironmentLoop` without what costs and explains nothing.

It keeps Acme's contract (any `acme.Actor`, counter and logger; the same results) and
adds what a distributed actor needs: it ends at once when told to, counts its steps
while an episode runs, survives an episode whose physics fail, and says where its time
goes. `VectorEnvironmentLoop` steps N environments with one batched policy call.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, Callable

import dm_env
import numpy as np
from acme import core
from acme.utils import counting, loggers

from acme_quant import roles
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.step_limit import StepLimit
from acme_quant.acting.timing import (
    ADDER,
    ENVIRONMENT,
    INFERENCE,
    LOOP,
    UPDATE,
    StageClock,
)
from acme_quant.environments import EpisodeFailed
from acme_quant.environments.errors import MAX_FAILURES_IN_A_ROW
from acme_quant.environments.vector import split

# A limit on steps is kept to what an actor does in this time, not in an episode.
COUNT_PERIOD_S = 0.5

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class _Record:
    """Counts steps, episodes and failures, and logs what became of each episode.

    Attributes:
      steps: environment steps taken; a loop adds them up.
      next_count: reading of `time.perf_counter` at which they must be passed on.
      leased: steps from which on the limit must be asked.
    """

    def __init__(
        self,
        actor: Any,
        clock: StageClock,
        counter: Any,
        logger: loggers.Logger | None,
        label: str,
        count_period_s: float,
        limit: StepLimit | None,
    ) -> None:
        self._limit = limit
        self._client = actor.client if isinstance(actor, roles.TimedActor) else None
        self._clock = clock
        self._counter = counter or AsyncCounter()
        logger = logger or loggers.make_default_logger(label)
        self._logger = logger
        sparing = isinstance(logger, roles.SparingLogger)
        self._wants = logger.wants if sparing else _always
        self._count_period_s = count_period_s
        self.next_count = time.perf_counter() + count_period_s
        self.steps = self._counted_steps = self._ended_steps = 0
        self.leased: float = limit.share() if limit else math.inf
        self._episodes = 0  # Not counted yet.
        # What the clock stood at when the last episode ended.
        self._seconds = list(clock.seconds)
        self._failures = 0  # Since the last whole episode.

    def count(self, **counts: int) -> dict[str, Any]:
        """Passes on the pending episodes, steps and `counts`; returns all counts."""
        steps = self.steps - self._counted_steps
        if self._episodes:
            counts["episodes"] = self._episodes
        if steps or counts:
            counts["steps"] = steps
        self._counted_steps, self._episodes = self.steps, 0
        self.next_count = time.perf_counter() + self._count_period_s
        known = self._counter.increment(**counts) if counts else {}
        if self._limit is not None:
            # No more than before: what is known of the others may be old.
            self.leased = min(self.leased, self.steps + self._limit.share())
        return known

    def renew(self, stop: threading.Event) -> None:
        """Asks for more steps; at the limit, waits until the run ends."""
        self.count()
        if self._limit is not None:
            self.leased = self.steps + self._limit.ask(stop)

    def flush(self) -> None:
        """Passes on what is pending, and so does a counter of ours."""
        self.count()
        if isinstance(self._counter, AsyncCounter):
            self._counter.flush()

    def failure(self, error: EpisodeFailed) -> None:
        """Counts an episode that failed; raises `error` if too many did in a row."""
        self._failures += 1
        self.count(failed_episodes=1)
        logging.warning("An episode failed and is left: %s", error)
        if self._failures == MAX_FAILURES_IN_A_ROW:
            raise error

    def end(self, length: int, total: Any, start: float) -> None:
        """Counts an episode that began at `start`, and logs its results.

        A logger that has `wants` says whether it would keep them. If not, none are
        made and the episode is counted when it is time to: short ones end so often
        that an actor would notice.
        """
        if self._wants():
            self._logger.write(self.episode(length, total, start))
            return
        self._ended()
        if time.perf_counter() >= self.next_count:
            self.count()

    def episode(self, length: int, total: Any, start: float) -> dict[str, Any]:
        """Counts an episode that began at `start`; returns its results."""
        steps, seconds = self._ended()
        counts = self.count()
        result = {
            "episode_length": length,
            "episode_return": total,
            "steps_per_second": length / max(time.perf_counter() - start, 1e-9),
        }
        if self._client is not None:
            result["policy_version"] = self._client.version
            for key, value in self._client.staleness().items():
                result[f"staleness_{key}"] = value
        result.update(self._clock.per_step(steps, seconds))
        result.update(counts)
        return result

    def _ended(self) -> tuple[int, list[float]]:
        """Notes an episode's end; returns its steps, and the clock at its start."""
        self._failures = 0
        self._episodes += 1
        before = self.steps - self._ended_steps, self._seconds
        self._ended_steps, self._seconds = self.steps, list(self._clock.seconds)
        return before


class _Loop(core.Worker):
    """What the two loops have in common."""

    def __init__(
        self,
        environment: Any,
        actor: Any,
        counter: AsyncCounter | counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        should_update: bool = True,
        label: str = "environment_loop",
        count_period_s: float = COUNT_PERIOD_S,
        limit: StepLimit | None = None,
    ) -> None:
        """Initializes the loop.

        Args:
          environment: a dm_env environment, or a vector environment.
          actor: who acts in it.
          counter: counts `steps` and `episodes`; not a remote one itself: an
            AsyncCounter of it never blocks the loop.
          logger: gets one result per episode, but none when it has a method `wants`
            that returns False; Acme's default if None.
          should_update: whether the actor is updated after each step.
          label: of the default logger.
          count_period_s: seconds between two counts of steps; 0 counts each step.
          limit: on the steps of this actor and others, by `counter`; None for none.
        """
        self._environment = environment
        self._actor = actor
        self._should_update = should_update
        self._stop = threading.Event()
        self.clock = StageClock()
        self._bind()
        self._record = _Record(
            actor, self.clock, counter, logger, label, count_period_s, limit
        )

    def run(
        self,
        num_episodes: int | None = None,
        num_steps: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Runs episodes until there are enough, or until `stop` is set.

        Args:
          num_episodes: episodes to run; None for no limit.
          num_steps: least number of steps, whole episodes; None for no limit.
          stop: ends the run within a step, or within a wait for the replay server.

        Raises:
          ValueError: if both limits are given.
          ReplayUnavailable: if the replay server does not answer.
          EpisodeFailed: if as many episodes failed as MAX_FAILURES_IN_A_ROW.
        """
        if num_episodes is not None and num_steps is not None:
            raise ValueError("num_episodes or num_steps must be None, got both.")
        self._stop = stop or threading.Event()
        self._bind()
        self.clock.restart()
        try:
            self._run(_enough(num_episodes, num_steps))
        finally:
            self._record.flush()

    def _bind(self) -> None:
        """Gives an actor of ours the clock, and the event that ends its waits."""
        if isinstance(self._actor, roles.Timed):
            self._actor.bind(self.clock, self._stop)

    def _run(self, enough: Callable[[int, int], bool]) -> None:
        raise NotImplementedError


class EnvironmentLoop(_Loop):
    """One environment and one actor: takes the place of `acme.EnvironmentLoop`."""

    def run_episode(self) -> dict[str, Any]:
        """Runs one episode and returns its results; does not log them.

        Returns:
          Acme's results, the policy's version and staleness, and "us_<stage>" per step;
          of an episode that was stopped, its length alone.

        Raises:
          EpisodeFailed: if the environment could not go on.
        """
        length, total, start = self._episode()
        if total is None:
            return {"episode_length": length}
        return self._record.episode(length, total, start)

    def _episode(self) -> tuple[int, np.float64 | None, float]:
        """Runs one episode; returns length, return (None if stopped) and start."""
        environment, actor, clock = self._environment, self._actor, self.clock
        record, stop, update = self._record, self._stop, self._should_update
        start = time.perf_counter()
        length, total = 0, np.float64(0)  # To a Python float, adding a reward is slow.
        timestep = environment.reset()
        clock.lap(ENVIRONMENT)
        actor.observe_first(timestep)
        clock.lap(ADDER)
        # timestep.last() costs a look-up in an enum, as long as the rest of this.
        while timestep.step_type != _LAST and not stop.is_set():
            clock.lap(LOOP)
            action = actor.select_action(timestep.observation)
            clock.lap(INFERENCE)
            timestep = environment.step(action)
            clock.lap(ENVIRONMENT)
            actor.observe(action, next_timestep=timestep)
            now = clock.lap(ADDER)
            if update:
                actor.update()
                now = clock.lap(UPDATE)
            length += 1
            total = total + timestep.reward
            record.steps += 1
            if now >= record.next_count:
                record.count()
            if record.steps >= record.leased:
                record.renew(stop)
        return length, total if timestep.step_type == _LAST else None, start

    def _run(self, enough: Callable[[int, int], bool]) -> None:
        episodes = steps = 0
        while not enough(episodes, steps):
            try:
                length, total, start = self._episode()
            except EpisodeFailed as error:
                self._record.failure(error)
                continue
            if total is None:
                return
            episodes += 1
            steps += length
            self._record.end(length, total, start)
            self.clock.lap(LOOP)


class VectorEnvironmentLoop(_Loop):
    """N environments and one vector actor; with N = 1 it does as EnvironmentLoop."""

    def _run(self, enough: Callable[[int, int], bool]) -> None:
        environment, actor, clock = self._environment, self._actor, self.clock
        record = self._record
        episodes = _Episodes(environment.num_envs)
        batch = self._advance(environment.reset)
        self._observe(None, batch)
        live = batch.step_type != _LAST
        while not self._stop.is_set() and not enough(episodes.done, episodes.steps):
            actions = actor.select_actions(batch.observation, live)
            batch = self._advance(environment.step, actions)
            self._observe(actions, batch)
            stepped = batch.step_type != _FIRST
            steps = int(stepped.sum())
            clock.lap(LOOP)
            if self._should_update:
                actor.update(steps=steps)
            record.steps += steps
            if clock.lap(UPDATE) >= record.next_count:
                record.count()
            if record.steps >= record.leased:
                record.renew(self._stop)
            live = batch.step_type != _LAST
            for finished in episodes.advance(batch, stepped, live):
                record.end(*finished)
            clock.lap(LOOP)

    def _advance(
        self, move: Callable[..., dm_env.TimeStep], *actions: np.ndarray
    ) -> dm_env.TimeStep:
        """Moves all; counts the episodes that failed even if one cannot go on."""
        try:
            return move(*actions)
        finally:
            self.clock.lap(ENVIRONMENT)
            for error in self._environment.take_failures():
                self._record.failure(error)

    def _observe(self, actions: np.ndarray | None, batch: dm_env.TimeStep) -> None:
        """Tells the actor; taking the batch apart is the loop's time."""
        timesteps = split(batch)
        self.clock.lap(LOOP)
        self._actor.observe(actions, timesteps)
        self.clock.lap(ADDER)


class _Episodes:
    """The running episode of each of N environments, and what all have done.

    Attributes:
      done: episodes that ended.
      steps: their steps.
    """

    def __init__(self, num_envs: int) -> None:
        self.done = self.steps = 0
        self._lengths = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs, np.float64)
        self._starts = np.full(num_envs, time.perf_counter())

    def advance(
        self, batch: dm_env.TimeStep, stepped: np.ndarray, live: np.ndarray
    ) -> list[tuple[int, float, float]]:
        """Takes a step; returns (length, return, start) of episodes that ended."""
        self._lengths += stepped
        self._returns += np.where(stepped, batch.reward, 0.0)
        if stepped.all() and live.all():
            return []
        finished = []
        for i in np.flatnonzero(~live):
            length, total = int(self._lengths[i]), float(self._returns[i])
            finished.append((length, total, float(self._starts[i])))
            self.done += 1
            self.steps += length
        self._lengths[~stepped] = self._returns[~stepped] = 0
        self._starts[~live] = time.perf_counter()
        return finished


def _always() -> bool:
    """Is what a logger wants that does not say."""
    return True


def _enough(
    num_episodes: int | None, num_steps: int | None
) -> Callable[[int, int], bool]:
    """Returns whether so many episodes and steps are enough, as a function."""

    def enough(episodes: int, steps: int) -> bool:
        return (num_episodes is not None and episodes >= num_episodes) or (
            num_steps is not None and steps >= num_steps
        )

    return enough
