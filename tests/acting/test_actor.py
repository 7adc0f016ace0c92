"""The actors: policy, then exploration, then adder, each from its own seed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import dm_env
import loop_parts
import numpy as np
import pytest
from acme import core

from acme_quant.acting.actor import QuantizedActor, QuantizedVectorActor
from acme_quant.acting.behaviour import FixedPolicy
from acme_quant.acting.exploration import EpsilonGreedy

OBSERVATION = np.array([1, 2, 3], np.float32)


def test_actor_is_an_acme_actor_and_explores_from_its_seed() -> None:
    actor = QuantizedActor(loop_parts.LinearPolicy(), loop_parts.noise, seed=5)
    assert isinstance(actor, core.Actor)
    rng = np.random.default_rng((5, 0))
    for _ in range(3):
        expected = loop_parts.noise(loop_parts.LinearPolicy()(OBSERVATION), rng)
        np.testing.assert_array_equal(actor.select_action(OBSERVATION), expected)


def test_actor_without_exploration_returns_the_policys_output() -> None:
    actor = QuantizedActor(loop_parts.LinearPolicy())
    np.testing.assert_array_equal(
        actor.select_action(OBSERVATION), loop_parts.LinearPolicy()(OBSERVATION)
    )


def test_experience_reaches_the_adder_and_needs_none() -> None:
    adder = loop_parts.RecordingAdder()
    first = dm_env.restart(OBSERVATION)
    step = dm_env.transition(np.float32(1), OBSERVATION, np.float32(1))
    for actor in (
        QuantizedActor(loop_parts.LinearPolicy(), adder=adder),
        QuantizedActor(loop_parts.LinearPolicy()),
    ):
        actor.observe_first(first)
        actor.observe(OBSERVATION[:2], step)
        actor.update()
        actor.close()
    assert [event[0] for event in adder.events] == ["first", "add"]


def test_update_asks_the_client_once_per_environment_step() -> None:
    client = loop_parts.PolicyClient()
    QuantizedActor(client).update()
    assert client.updates == 1
    QuantizedVectorActor(client, [loop_parts.noise] * 4).update(steps=4)
    assert client.updates == 5


def test_fixed_policy_looks_like_a_client() -> None:
    fixed = FixedPolicy(loop_parts.LinearPolicy())
    fixed.update()
    assert (fixed.version, fixed.staleness()) == (3, {})


def test_vector_actor_draws_nothing_for_ended_episodes() -> None:
    batch = np.stack([OBSERVATION, 2 * OBSERVATION])
    actor = QuantizedVectorActor(loop_parts.LinearPolicy(), [loop_parts.noise] * 2)
    live = np.array([True, True])
    actions = actor.select_actions(batch, live)
    assert actions.shape == (2, 2) and actions.dtype == np.float32
    held = actor.select_actions(batch, np.array([False, True]))
    np.testing.assert_array_equal(held[0], actions[0])
    after = actor.select_actions(batch, live)
    rng = np.random.default_rng((0, 0))
    outputs = loop_parts.LinearPolicy().batch(batch)
    np.testing.assert_array_equal(actions[0], loop_parts.noise(outputs[0], rng))
    np.testing.assert_array_equal(after[0], loop_parts.noise(outputs[0], rng))


def test_vector_actor_goes_on_with_the_random_numbers_it_left() -> None:
    batch, live = np.stack([OBSERVATION, OBSERVATION]), np.array([True, True])
    explorations = [loop_parts.noise] * 2
    actor = QuantizedVectorActor(loop_parts.LinearPolicy(), explorations, seed=1)
    states = actor.exploration_states()
    first = actor.select_actions(batch, live)
    later = QuantizedVectorActor(loop_parts.LinearPolicy(), explorations, seed=2)
    later.set_exploration_states(json.loads(json.dumps(states)))
    np.testing.assert_array_equal(later.select_actions(batch, live), first)
    assert not np.array_equal(first[0], first[1])


def decaying() -> EpsilonGreedy:
    return EpsilonGreedy(0.1, initial_epsilon=1.0, decay_steps=9)


def acting(steps: int, *explorations: EpsilonGreedy, seed: int) -> Any:
    """Returns an actor of one environment, or of several, after steps in the first."""
    policy = loop_parts.LinearPolicy()
    if len(explorations) == 1:
        actor = QuantizedActor(policy, explorations[0], seed=seed)
        for _ in range(steps):
            actor.select_action(OBSERVATION)
        return actor
    actor = QuantizedVectorActor(policy, explorations, seed=seed)
    live = np.arange(len(explorations)) < 1
    for _ in range(steps):
        actor.select_actions(np.stack([OBSERVATION] * len(live)), live)
    return actor


@pytest.mark.parametrize("count", [1, 3])
def test_epsilon_goes_on_where_it_was_left(count: int) -> None:
    before, after = ([decaying() for _ in range(count)] for _ in range(2))
    states = acting(4, *before, seed=1).exploration_states()
    later = acting(0, *after, seed=2)
    later.set_exploration_states(json.loads(json.dumps(states)))
    levels = [e.epsilon for e in after]
    assert levels == [e.epsilon for e in before]
    assert levels[0] == pytest.approx(0.6) and levels[1:] == [1.0] * (count - 1)
    assert later.exploration_states() == states


def test_environments_that_both_actors_have_go_on() -> None:
    one, three = [decaying()], [decaying() for _ in range(3)]
    states = acting(4, *one, seed=1).exploration_states()
    acting(0, *three, seed=2).set_exploration_states(states)
    assert [e.epsilon for e in three] == [one[0].epsilon, 1.0, 1.0]


def test_states_of_older_checkpoints_hold_generators_alone() -> None:
    actor = acting(4, decaying(), seed=1)
    (new,) = actor.exploration_states()
    for old in (new["generator"], [new["generator"]]):
        explore = decaying()
        later = acting(0, explore, seed=2)
        later.set_exploration_states(json.loads(json.dumps(old)))
        assert later.exploration_states()[0]["generator"] == new["generator"]
        assert explore.epsilon == 1.0


def test_vector_actor_wants_an_adder_per_environment() -> None:
    with pytest.raises(ValueError, match="2 explorations expect as many adders"):
        QuantizedVectorActor(
            loop_parts.LinearPolicy(),
            [loop_parts.noise] * 2,
            [loop_parts.RecordingAdder()],
        )


def test_importing_all_an_actor_needs_does_not_import_tensorflow() -> None:
    code = (
        "import sys; from acme_quant.acting import actor, environment_loop;"
        "from acme_quant.environments import vector;"
        "from acme_quant.replay import adder, client; client.load_binding();"
        "bad = {'tensorflow', 'jax', 'reverb'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
