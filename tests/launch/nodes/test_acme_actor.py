from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from acme import core, specs
from acme.testing import fakes
from acme.utils import loggers

from acme_quant.acting import exploration, timing
from acme_quant.agents import builder, d4pg
from acme_quant.launch.nodes import acme_actor, evaluator

ACT_S = 0.004
EPISODE = 5


class SlowActor(core.Actor):
    """Takes ACT_S for an action and stops the loop after two episodes."""

    def __init__(self, spec: Any, stop: threading.Event) -> None:
        self._actor = fakes.Actor(spec)
        self._stop = stop
        self._actions = 0

    def select_action(self, observation: Any) -> Any:
        time.sleep(ACT_S)
        self._actions += 1
        if self._actions > 2 * EPISODE:
            self._stop.set()
        return self._actor.select_action(observation)

    def observe_first(self, timestep: Any) -> None:
        self._actor.observe_first(timestep)

    def observe(self, action: Any, next_timestep: Any) -> None:
        self._actor.observe(action, next_timestep)

    def update(self, wait: bool = False) -> None:
        self._actor.update(wait)


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    environment = fakes.ContinuousEnvironment(
        episode_length=EPISODE, bounded=True, action_dim=1, observation_dim=2
    )
    stop, logger = threading.Event(), loggers.InMemoryLogger()
    actor = SlowActor(specs.make_environment_spec(environment), stop)
    acme_actor.Loop(environment, actor, None, logger).run(stop)
    return list(logger.data)


def test_loop_ends_in_the_middle_of_an_episode(rows: list[dict[str, Any]]) -> None:
    assert [row["episode_length"] for row in rows] == [EPISODE, EPISODE]


def test_every_stage_of_acmes_loop_is_timed(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["us_inference"] >= 1e6 * ACT_S * 0.99
        stages = [row[f"us_{stage}"] for stage in timing.STAGES]
        assert all(us >= 0 for us in stages)
        # All of an episode belongs to some stage, so the speed follows from the sum.
        assert sum(stages) >= 0.9e6 / row["steps_per_second"]


def test_acmes_d4pg_actors_have_the_sigmas_of_ours() -> None:
    environment = fakes.ContinuousEnvironment(
        bounded=True, action_dim=1, observation_dim=2
    )
    spec = specs.make_environment_spec(environment)
    config = d4pg.Config((8,), (8,), sigma=0.2, sigma_spread=0.5)
    networks = d4pg.AGENT.make_networks(spec, config)
    for index, sigma in enumerate((0.1, 0.3)):
        ours = d4pg.AGENT.exploration(spec, config, index, 2)
        policy = d4pg.AGENT.make_acme_policy(networks, spec, ours)
        _, theirs = builder.split_exploration(policy)
        assert theirs.sigma == pytest.approx(sigma) == ours.sigma


def test_evaluator_acts_by_the_best_of_acmes_values() -> None:
    class ValueActor:
        def select_action(self, observation: Any) -> np.ndarray:
            del observation
            return np.array([0.1, 0.7, 0.2], np.float32)

    best = exploration.EpsilonGreedy(0.0)
    policies = evaluator.AcmePolicies(ValueActor(), None, best)
    ((_, act),) = policies.behaviours()
    assert act(None) == 1
