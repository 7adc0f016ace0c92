"""Episodes without exploration, and the node that runs them now and then."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import dm_env
import numpy as np
from acme import core
from acme.utils import counting

from acme_quant import roles
from acme_quant.acting.behaviour import Behaviour, FixedPolicy
from acme_quant.acting.environment_loop import MAX_FAILURES_IN_A_ROW
from acme_quant.environments import EpisodeFailed
from acme_quant.launch.checkpoints.deposits import EVALUATOR, Drawer
from acme_quant.launch.nodes import step_timeout, stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.environment import make_environment
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.launch.settings.actors import ACTORS
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    from acme_quant.policy.quantized_policy import QuantizedPolicy
    from acme_quant.publishing.client import QuantizedVariableClient


def make(context: Context) -> EvaluatorNode:
    """Returns the evaluator of the actors' policy."""
    run, counter = context.run, context.counter
    environment = make_environment(run, context.name)
    kind = importlib.import_module(ACTORS[run.config.actor].module)
    return EvaluatorNode(
        run,
        environment,
        kind.make_policies(context),
        counting.Counter(counter, "evaluator", time_delta=context.count_every_s),
        Drawer(counter, EVALUATOR),
        context.started,
    )


class Episode(NamedTuple):
    """Sum of rewards and number of environment steps of one episode.

    `cut` says that it had not ended when it met its bound.
    """

    episode_return: float
    length: int
    cut: bool = False


def run_episode(
    environment: dm_env.Environment,
    act: Behaviour,
    stop: threading.Event | None = None,
    max_steps: int = 0,
) -> Episode | None:
    """Runs one episode.

    Args:
      environment: the environment; it is reset first.
      act: who acts, from the episode's beginning.
      stop: ends the episode early when it is set.
      max_steps: steps after which it is cut; 0 for any number.

    Returns:
      The episode, or None when it was stopped.
    """
    act.begin()
    timestep = environment.reset()
    total, length = 0.0, 0
    while not timestep.last():
        if stop is not None and stop.is_set():
            return None
        timestep = environment.step(act(timestep.observation))
        if timestep.first():  # The environment has given the episode up.
            raise EpisodeFailed("the environment started anew within an episode.")
        total += float(timestep.reward)
        length += 1
        if length == max_steps and not timestep.last():
            logging.warning("An episode had not ended after %d steps.", length)
            return Episode(total, length, cut=True)
    return Episode(total, length)


def run_episodes(
    environment: dm_env.Environment,
    act: Behaviour,
    count: int,
    stop: threading.Event | None = None,
    max_steps: int = 0,
) -> list[Episode]:
    """Runs `count` episodes, fewer when stopped; a failed one is run again.

    Raises:
      EpisodeFailed: if MAX_FAILURES_IN_A_ROW failed.
    """
    episodes: list[Episode] = []
    failures = 0
    while len(episodes) < count:
        try:
            episode = run_episode(environment, act, stop, max_steps)
        except EpisodeFailed as error:
            failures += 1
            logging.warning("An episode failed and is run again: %s", error)
            if failures == MAX_FAILURES_IN_A_ROW:
                raise
            continue
        if episode is None:
            break
        failures = 0
        episodes.append(episode)
    return episodes


class Policies(Protocol):
    """What is evaluated: `EnginePolicies` or `AcmePolicies`."""

    def update(self) -> int:
        """Fetches the newest; returns the learner's step that it is of."""
        ...

    def describe(self) -> Mapping[str, float]:
        """Returns columns of an evaluation's row that tell of it."""
        ...

    def behaviours(self) -> Iterator[tuple[str, Behaviour]]:
        """Yields a column prefix and a greedy behaviour for each thing to evaluate."""
        ...


class EvaluatorNode:
    """Evaluates the policy greedily, each time it has learnt for long enough.

    Between two evaluations it sleeps: an evaluator without pause takes a third of a
    small machine from the actors.
    """

    POLL_S = 0.25
    FINAL_S = 5.0

    def __init__(
        self,
        run: Run,
        environment: dm_env.Environment,
        policies: Policies,
        counter: roles.Counter,
        drawer: Drawer,
        started: float,
    ) -> None:
        """Initializes the node.

        Args:
          run: the run's configuration.
          environment: an environment of its own.
          policies: what is to be evaluated now.
          counter: the run's counter.
          drawer: where the last return is left, so that the best checkpoint is known.
          started: time.time() at launch.
        """
        self._run = run
        # One that hangs ends this process, which is started again.
        self._environment = step_timeout.WatchedEnvironment(
            environment, run.config.step_timeout_s, step_timeout.leave
        )
        self._policies = policies
        self._counter = counter
        self._logger = make_logger(run.workdir, EVALUATOR, "learner_steps", started)
        self._drawer = drawer
        self._evaluated = run.start.learner_steps
        self._due = self._next(self._evaluated)

    def run(self) -> None:
        """Evaluates until the program ends."""
        stopping.serve_until_stopped(
            self._work, close=self._logger.close, grace_s=self.FINAL_S + 1.0
        )

    def evaluate_if_due(self, stop: threading.Event) -> None:
        """Evaluates the newest policy if it has learnt for long enough."""
        steps = self._policies.update()
        if steps >= self._due:
            self._evaluate(steps, stop)
            self._due = self._next(steps)

    def evaluate_last(self, stop: threading.Event) -> None:
        """Evaluates what has been learnt since the last evaluation."""
        steps = self._policies.update()
        if steps > self._evaluated:
            self._evaluate(steps, stop)

    def close(self) -> None:
        """Closes log and environment, in one thread."""
        self._environment.close()
        self._logger.close()

    def _work(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(self.POLL_S):
                self.evaluate_if_due(stop)
            if self._actor_steps() >= self._run.config.max_actor_steps:
                # As far as FINAL_S seconds suffice.
                over = threading.Event()
                timer = threading.Timer(self.FINAL_S, over.set)
                timer.start()
                self.evaluate_last(over)
                timer.cancel()
        finally:
            self._environment.close()

    def _actor_steps(self) -> int:
        return int(self._counter.get_counts().get("actor_steps", 0))

    def _next(self, steps: int) -> int:
        """Returns when to evaluate after `steps`; late ones are not made up for."""
        every = self._run.config.evaluate_every
        return steps - steps % every + every

    def _evaluate(self, steps: int, stop: threading.Event) -> None:
        count = self._run.config.evaluation_episodes
        began = time.monotonic()
        row: dict[str, Any] = {"learner_steps": steps, **self._policies.describe()}
        row["actor_steps"] = self._actor_steps()
        for prefix, act in self._policies.behaviours():
            episodes = run_episodes(
                self._environment,
                act,
                count,
                stop,
                self._run.config.evaluation_max_steps,
            )
            if len(episodes) < count:
                return
            row.update(_statistics(prefix, episodes))
        row["seconds"] = round(time.monotonic() - began, 3)
        self._logger.write(row)
        self._drawer.put({"episode_return": row["episode_return"]})
        self._evaluated = steps


def _statistics(prefix: str, episodes: list[Episode]) -> dict[str, float]:
    """Returns the columns of some episodes."""
    returns = np.array([e.episode_return for e in episodes])
    return {
        f"{prefix}episode_return": float(returns.mean()),
        f"{prefix}episode_return_std": float(returns.std()),
        f"{prefix}episode_length": float(np.mean([e.length for e in episodes])),
        f"{prefix}cut_episodes": sum(e.cut for e in episodes),
    }


class EnginePolicies:
    """The payload that the actors run."""

    def __init__(
        self,
        client: QuantizedVariableClient,
        greedy: roles.Exploration,
        float32: Callable[[], QuantizedPolicy] | None = None,
    ) -> None:
        """Evaluates what `client` holds, with the agent's greedy exploration.

        Args:
          client: holds what actors run.
          greedy: the agent's exploration at its lowest level.
          float32: returns the learner's policy in float32, to be evaluated as well;
            None leaves it out.
        """
        self._client = client
        self._greedy = greedy
        self._float32 = float32
        self._rng = np.random.default_rng(0)

    def update(self) -> int:
        """Fetches the newest policy and returns its learner step."""
        self._client.update_and_wait()
        return self._client.policy.learner_step

    def describe(self) -> dict[str, float]:
        """Returns version and staleness, for the row of an evaluation."""
        staleness = {f"staleness_{k}": v for k, v in self._client.staleness().items()}
        return {"policy_version": self._client.version, **staleness}

    def behaviours(self) -> Iterator[tuple[str, Behaviour]]:
        """Yields a column prefix and a greedy behaviour for each thing to evaluate."""
        yield "", self._greedily(self._client.policy)
        if self._float32 is not None:
            yield "float32_", self._greedily(self._float32())

    def _greedily(self, policy: roles.Policy) -> Behaviour:
        return Behaviour(FixedPolicy(policy), self._greedy, self._rng)


class AcmePolicies:
    """The learner's policy in Acme's own actor: the outside baseline."""

    def __init__(
        self,
        actor: core.Actor,
        learner: roles.CountingSource,
        greedy: roles.Exploration,
    ) -> None:
        """Initializes the policies.

        Args:
          actor: Acme's actor of the policy without exploration.
          learner: where its variables come from.
          greedy: makes the action of the policy's output, such as the best of values.
        """
        self._actor = actor
        self._learner = learner
        self._greedy = greedy
        self._rng = np.random.default_rng(0)

    def update(self) -> int:
        """Fetches the newest variables and returns the learner's step."""
        steps = self._learner.get_steps()
        self._actor.update(wait=True)
        return steps

    def describe(self) -> dict[str, float]:
        """Returns nothing: Acme's actor does not know what version it runs."""
        return {}

    def behaviours(self) -> Iterator[tuple[str, Behaviour]]:
        """Yields Acme's actor alone."""
        policy = FixedPolicy(self._actor.select_action)
        yield "", Behaviour(policy, self._greedy, self._rng)
