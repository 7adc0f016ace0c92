"""The episodes of `acme-quant evaluate`, in a process that is ended after them.

Each policy meets the same initial states: episode i has an environment of its own, made
with the seed i of the evaluation's. One that takes no seed starts as it likes.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from acme_quant.launch.settings.config import Run
from acme_quant.launch.settings.spec_child import MAKE_S
from acme_quant.launch.settings.user_process import Send, UserProcess, give_up, serve

if TYPE_CHECKING:
    import dm_env

    from acme_quant import roles
    from acme_quant.launch.nodes.evaluator import Episode


class Score(NamedTuple):
    """Returns of some episodes of one policy, and how many of them were cut short."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int


class EpisodesProcess(UserProcess):
    """A process that runs episodes of policies, one policy after the other."""

    def __init__(
        self, run: Run, policies: Mapping[str, str], episodes: int, seed: int
    ) -> None:
        """Starts it.

        Args:
          run: whose environment and agent are meant.
          policies: files of policies by name.
          episodes: how many each policy gets.
          seed: of the evaluation.
        """
        request = {
            "settings": json.loads(run.to_json()),
            "policies": dict(policies),
            "episodes": episodes,
            "seed": seed,
        }
        super().__init__(__name__, request)

    def score(self) -> Score:
        """Returns what the next policy reached.

        Raises:
          Refused: if there is no such environment.
          Failed: if it failed, or took too long to be made or to take a step.
        """
        return Score(*self.answer(math.inf))


def main() -> None:
    """Runs the episodes that are asked for, and sends a score for each policy."""
    serve(_run)


def _run(request: dict[str, Any], send: Send) -> None:
    from acme_quant.policy.quantized_policy import QuantizedPolicy

    run = Run.from_settings(request["settings"])
    for path in request["policies"].values():
        policy = QuantizedPolicy.load(path)
        done = [
            _episode(run, policy, [request["seed"], index])
            for index in range(request["episodes"])
        ]
        returns = np.array([episode.episode_return for episode in done])
        lengths = np.array([episode.length for episode in done])
        send((returns, lengths, sum(episode.cut for episode in done)))


def _episode(run: Run, policy: roles.Policy, seeds: list[int]) -> Episode:
    from acme import specs

    from acme_quant.acting.behaviour import Behaviour, FixedPolicy
    from acme_quant.environments.seeds import derived_seed
    from acme_quant.launch.nodes.evaluator import run_episodes

    with _environment(run, derived_seed(*seeds)) as environment:
        greedy = run.agent.greedy(specs.make_environment_spec(environment))
        rng = np.random.default_rng(seeds)
        act = Behaviour(FixedPolicy(policy), greedy, rng)
        (episode,) = run_episodes(
            environment,
            act,
            1,
            max_steps=run.config.evaluation_max_steps,
        )
    return episode


@contextlib.contextmanager
def _environment(run: Run, seed: int) -> Iterator[dm_env.Environment]:
    """Yields an environment that is watched: none of its calls may take for ever."""
    from acme_quant import environments
    from acme_quant.launch.nodes import step_timeout

    timer = threading.Timer(
        MAKE_S,
        give_up,
        [f"{run.config.env} was not made within {MAKE_S:g} seconds."],
    )
    timer.daemon = True
    timer.start()
    made = environments.make_environment(
        run.config.env, seed=seed, **run.environment_options
    )
    timer.cancel()
    environment = step_timeout.WatchedEnvironment(
        made, run.config.step_timeout_s, give_up
    )
    try:
        yield environment
    finally:
        environment.close()
