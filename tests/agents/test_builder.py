"""A builder that a person already has, wrapped: its actors run int8."""

from __future__ import annotations

import threading
import time
from typing import Any

import dm_env
import numpy as np
import pytest
import reverb
import sonnet as snt
import tensorflow as tf
from acme import specs
from acme.agents.tf.d4pg import agent as acme_d4pg
from acme.agents.tf.d4pg import make_default_networks
from acme.utils import counting, loggers

import acme_quant
from acme_quant.acting.exploration import GaussianNoise
from acme_quant.agents import d4pg
from acme_quant.agents.builder import deterministic_policy, split_exploration

OBSERVATION = {"angle": (2,), "speed": ()}


def environment_spec() -> specs.EnvironmentSpec:
    return specs.EnvironmentSpec(
        observations={k: specs.Array(s, np.float32) for k, s in OBSERVATION.items()},
        actions=specs.BoundedArray((2,), np.float32, [-1, -2], [1, 2]),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def observation(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        k: rng.standard_normal(s).astype(np.float32) for k, s in OBSERVATION.items()
    }


def networks() -> acme_d4pg.D4PGNetworks:
    spec = environment_spec()
    parts = make_default_networks(
        spec.actions, policy_layer_sizes=(16, 16), critic_layer_sizes=(16,)
    )
    made = acme_d4pg.D4PGNetworks(
        parts["policy"], parts["critic"], parts["observation"]
    )
    made.init(spec)
    return made


class Silent(loggers.Logger):
    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(params=["wrapped", "made"])
def program(request: pytest.FixtureRequest) -> Any:
    """Returns builder and server: a person's own builder wrapped, or ours."""
    if request.param == "wrapped":
        config = acme_d4pg.D4PGConfig(
            batch_size=4, min_replay_size=10, samples_per_insert=4.0
        )
        # The one line that the README shows.
        builder = acme_quant.QuantizedBuilder(
            acme_d4pg.D4PGBuilder(config), quantizer="int8"
        )
    else:
        builder = d4pg.make_builder(
            d4pg.Config(batch_size=4, min_replay_size=10, samples_per_insert=4.0)
        )
    server = reverb.Server(builder.make_replay_tables(environment_spec()), port=None)
    yield builder, reverb.Client(f"localhost:{server.port}")
    server.stop()


def step(kind: dm_env.StepType, rng: np.random.Generator) -> dm_env.TimeStep:
    return dm_env.TimeStep(kind, np.float32(1), np.float32(1), observation(rng))


def feed(actor: Any, steps: int) -> None:
    """Lets an actor observe steps of a random environment."""
    rng = np.random.default_rng(0)
    actor.observe_first(dm_env.restart(observation(rng)))
    for _ in range(steps):
        seen = observation(rng)
        action = actor.select_action(seen)
        assert action.shape == (2,) and action.dtype == np.float32
        assert (np.abs(action) <= [1, 2]).all()
        actor.observe(action, step(dm_env.StepType.MID, rng))
    actor.observe(action, step(dm_env.StepType.LAST, rng))


def test_actor_learns_of_new_policies_from_the_learner(program: Any) -> None:
    builder, client = program
    online, target = networks(), networks()
    learner = builder.make_learner(
        (online, target),
        builder.make_dataset_iterator(client),
        counting.Counter(),
        Silent(),
    )
    actor = builder.make_actor(
        online.make_policy(environment_spec(), sigma=0.3),
        builder.make_adder(client),
        variable_source=learner,
    )
    before = actor.client.policy
    assert before.quantizer == "int8" and before.version == 1

    # The rate limiter lets neither run far ahead of the other.
    done = threading.Event()

    def learn() -> None:
        while not done.is_set():
            learner.step()

    threading.Thread(target=learn, daemon=True).start()
    # The target network, which D4PG's learner hands out, follows every 100 steps.
    feed(actor, 150)
    deadline = time.monotonic() + 60
    while actor.client.version == 1 and time.monotonic() < deadline:
        time.sleep(0.5)
        actor.update(wait=True)
    done.set()
    assert actor.client.version > 1
    rng = np.random.default_rng(1)
    seen = observation(rng)
    # The learner waits for data by now: networks and policy stand still.
    batched = tf.nest.map_structure(lambda x: tf.constant(x[None]), seen)
    expected = deterministic_policy((online, target))(batched)[0]
    # 8 bits of weight: a hundredth of an action's range of 4 is far above the error.
    np.testing.assert_allclose(actor.client.policy(seen), expected, atol=0.04)


def test_actor_without_a_source_follows_the_module(program: Any) -> None:
    builder, _ = program
    made = networks()
    actor = builder.make_actor(made.make_policy(environment_spec()))
    seen = observation(np.random.default_rng(0))
    first = actor.select_action(seen)
    last_layer = made.policy_network.trainable_variables[-2]
    last_layer.assign(tf.ones_like(last_layer))
    np.testing.assert_array_equal(actor.select_action(seen), first)
    actor.update()
    assert (actor.select_action(seen) != first).any()


def test_exploration_is_read_off_acmes_behaviour_network() -> None:
    behaviour = networks().make_policy(environment_spec(), sigma=0.25)
    module, exploration = split_exploration(behaviour)
    assert isinstance(exploration, GaussianNoise)
    assert exploration.sigma == 0.25
    np.testing.assert_array_equal(exploration.high, [1, 2])
    assert len(module.variables) == len(behaviour.variables)


def test_networks_without_a_policy_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="policy_module="):
        deterministic_policy({"policy": snt.Linear(1)})


def test_actor_without_specs_says_what_is_missing() -> None:
    builder = acme_quant.QuantizedBuilder(object())
    with pytest.raises(ValueError, match="make_replay_tables"):
        builder.make_actor(networks().make_policy(environment_spec()))
