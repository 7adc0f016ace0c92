"""DQN: what it refuses, its networks in the engine, its learner and priorities."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import acme
import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf
import tree
from acme import specs

import acme_quant
from acme_quant import environments
from acme_quant.agents import dqn
from acme_quant.agents.dqn import networks as q_networks
from acme_quant.environments import EdgeEnvironment
from acme_quant.launch.checkpoints import learner_state

IMAGE = specs.Array((84, 84, 4), np.uint8, name="observation")
ROW = specs.Array((4,), np.float32, name="observation")
NEST = {
    "picture": specs.Array((2, 3), np.uint8),
    "a": specs.Array((), np.float32),
    "z": (specs.Array((2,), np.float32),),
}


def make_spec(observations: Any, num_actions: int = 3) -> specs.EnvironmentSpec:
    return specs.EnvironmentSpec(
        observations=observations,
        actions=specs.DiscreteArray(num_actions, dtype=np.int32),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def draw(spec: Any, rows: int) -> Any:
    rng = np.random.default_rng(0)

    def one(leaf: specs.Array) -> np.ndarray:
        if leaf.dtype == np.uint8:
            return rng.integers(0, 256, (rows, *leaf.shape)).astype(np.uint8)
        return rng.normal(size=(rows, *leaf.shape)).astype(np.float32)

    return tree.map_structure(one, spec)


class Chain(dm_env.Environment):
    """Walks 0..3, reward 1 a step, ends at 3."""

    def __init__(self) -> None:
        self._place = 0

    def reset(self) -> dm_env.TimeStep:
        self._place = 0
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        self._place += 1
        end = dm_env.termination if self._place == 3 else dm_env.transition
        return end(1.0, self._observe())

    def _observe(self) -> np.ndarray:
        return np.eye(4)[self._place]

    def observation_spec(self) -> specs.Array:
        return specs.Array((4,), np.float64, name="observation")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(3)


# An episode of Chain gives 4 transitions. Without a learner the rate limiter takes a
# tenth more than min_replay_size; the samples per insert leave room to sample freely.
EPISODES = 10
SMALL = dqn.Config(
    q_layers=(16,),
    batch_size=8,
    samples_per_insert=1000.0,
    min_replay_size=4 * EPISODES,
    max_replay_size=100,
    n_step=2,
)


def test_importing_the_agent_imports_no_tensorflow() -> None:
    program = (
        "import sys; from acme_quant.agents import dqn\n"
        "dqn.AGENT.exploration(None, dqn.Config(), 0, 1)\n"
        "sys.exit('tensorflow' in sys.modules or 'acme' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    "observations, settings, words",
    [
        (ROW, dict(network="atari"), "expects one image"),
        (IMAGE, dict(network="mlp"), "mlp expects rows, got images"),
        (IMAGE, dict(q_layers=(8,)), "q_layers=8 would change nothing"),
        (ROW, dict(network="cnn"), "expected --network out of auto, mlp"),
        (
            ROW,
            dict(epsilon=1.5),
            "expected --epsilon of at least 0 and at most 1, got 1.5",
        ),
        (ROW, dict(n_step=0), "expected --n_step of at least 1, got 0"),
        (ROW, dict(min_replay_size=2_000_000), "expected min_replay_size <="),
    ],
)
def test_settings_that_cannot_work_are_refused(
    observations: Any, settings: dict, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        dqn.AGENT.check(make_spec(observations), dqn.Config(**settings))


def test_continuous_actions_are_refused_in_one_sentence() -> None:
    spec = environments.environment_spec("dm_control:cartpole:swingup")
    with pytest.raises(ValueError, match="dqn expects discrete actions, got contin"):
        dqn.AGENT.check(spec, dqn.Config())


@pytest.mark.parametrize("observations", [ROW, IMAGE, NEST])
def test_the_defaults_suit_rows_images_and_nests(observations: Any) -> None:
    dqn.AGENT.check(make_spec(observations), dqn.Config())


def test_bytes_are_scaled_once_and_fields_stand_in_sorted_order() -> None:
    row = q_networks.Row()(tree.map_structure(tf.constant, draw(NEST, 2))).numpy()
    drawn = draw(NEST, 2)
    expected = np.concatenate(
        [drawn["a"][:, None], drawn["picture"].reshape(2, 6) / 255, drawn["z"][0]], 1
    )
    # One rounding in the factor 1/255 and one in the product.
    assert np.allclose(row, expected, rtol=2**-22, atol=0)


@pytest.mark.parametrize(
    "observations, settings",
    [
        (ROW, dict(network="mlp", q_layers=(32, 32))),
        (ROW, dict(network="duelling", q_layers=(32,))),
        (NEST, dict(q_layers=(32,))),
        (IMAGE, dict()),
    ],
)
def test_every_network_runs_in_the_engine(observations: Any, settings: dict) -> None:
    spec = make_spec(observations)
    network = dqn.AGENT.make_networks(spec, dqn.Config(**settings))
    batch = draw(observations, 3)
    values = network(tree.map_structure(tf.constant, batch)).numpy()
    # float32 sums of K = 3136 terms at most: K ulps of the largest value, generously.
    bounds = {"float32": 3136 * 2**-24, "int8": 0.05}
    for quantizer, bound in bounds.items():
        policy = acme_quant.quantize_policy(network, observations, quantizer)
        error = np.abs(policy.batch(batch) - values).max()
        assert error <= bound * np.abs(values).max(), quantizer


def test_convolutions_are_quantized_too() -> None:
    network = dqn.AGENT.make_networks(make_spec(IMAGE), dqn.Config())
    size = acme_quant.quantize_policy(network, IMAGE, "int8").nbytes
    weights = sum(v.shape.num_elements() for v in network.variables if len(v.shape) > 1)
    assert size < 1.1 * weights


def test_each_actor_has_its_own_epsilon() -> None:
    config = dqn.Config(epsilon=0.4, epsilon_exponent=7.0)
    levels = [dqn.AGENT.exploration(None, config, i, 4).epsilon for i in range(4)]
    assert levels == pytest.approx([0.4 ** (1 + 7 * i / 3) for i in range(4)])
    assert dqn.AGENT.greedy(make_spec(ROW)).epsilon == 0.0


def test_epsilon_falls_from_one_when_a_decay_is_asked_for() -> None:
    explore = dqn.AGENT.exploration(None, dqn.Config(epsilon_decay_steps=10), 0, 1)
    assert explore.epsilon == 1.0


def test_acmes_actor_explores_by_the_same_rule_from_the_same_step() -> None:
    spec, config = make_spec(ROW), dqn.Config(epsilon=0.1, epsilon_decay_steps=10)
    ours, theirs = (dqn.AGENT.exploration(spec, config, 1, 2) for _ in range(2))
    for explore in (ours, theirs):
        explore.set_state({"steps": 4})
    network = dqn.AGENT.make_networks(spec, config)
    policy = dqn.AGENT.make_acme_policy(network, spec, theirs)
    levels, rng = tf.function(policy._layers[-1]._epsilon), np.random.default_rng(0)
    for _ in range(10):
        # Acme's are float32.
        assert float(levels()) == pytest.approx(ours.epsilon, abs=1e-6)
        ours(np.zeros(3, np.float32), rng)
    # What the actor asks the learner for are the network's variables alone.
    assert len(policy.variables) == len(network.variables)


@pytest.fixture(scope="module")
def replay() -> Any:
    """Yields builder, server and client, replay filled by Acme's actor and adder."""
    spec = acme.make_environment_spec(EdgeEnvironment(Chain()))
    builder = dqn.AGENT.make_acme_builder(SMALL)
    server = reverb.Server(builder.make_replay_tables(spec), port=None)
    client = reverb.Client(f"localhost:{server.port}")
    network = dqn.AGENT.make_networks(spec, SMALL)
    actor = builder.make_actor(
        dqn.AGENT.make_acme_policy(
            network, spec, dqn.AGENT.exploration(spec, SMALL, 0, 1)
        ),
        builder.make_adder(client),
    )
    environment = EdgeEnvironment(Chain())
    for _ in range(EPISODES):
        timestep = environment.reset()
        actor.observe_first(timestep)
        while not timestep.last():
            action = actor.select_action(timestep.observation)
            assert action.dtype == np.int32 and 0 <= action < 3
            timestep = environment.step(action)
            actor.observe(action, timestep)
    yield builder, client, spec
    server.stop()


def priorities(builder: Any, client: reverb.Client) -> set[float]:
    batches = builder.make_dataset_iterator(client)
    return {float(p) for _ in range(6) for p in next(batches).info.priority.numpy()}


def test_the_learner_updates_the_priorities_of_what_it_sampled(replay: Any) -> None:
    builder, client, spec = replay
    assert priorities(builder, client) == {1.0}
    networks = dqn.AGENT.make_learner_networks(spec, SMALL)
    learner = dqn.AGENT.make_learner(builder, networks, client, None, None)
    for _ in range(3):
        learner.step()
    assert len(priorities(builder, client)) > 3


def test_online_and_target_network_start_alike(replay: Any) -> None:
    builder, client, spec = replay
    online, target = dqn.AGENT.make_learner_networks(spec, SMALL)
    dqn.AGENT.make_learner(builder, (online, target), client, None, None)
    for a, b in zip(online.variables, target.variables):
        assert np.array_equal(a.numpy(), b.numpy())


def test_a_checkpoint_finds_the_policy_among_the_learners_variables(
    replay: Any,
) -> None:
    builder, client, spec = replay
    networks = dqn.AGENT.make_learner_networks(spec, SMALL)
    learner = dqn.AGENT.make_learner(builder, networks, client, None, None)
    found = dqn.AGENT.policy_variables(learner)
    published = learner.get_variables(["policy"])[0]
    assert all(map(np.array_equal, (v.numpy() for v in found), published))
    names = learner_state.LearnerState(learner).names_of(found)
    assert names == [f"learner/network/{i:03d}" for i in range(len(published))]


def test_adder_and_learner_share_one_discount(replay: Any) -> None:
    builder, client, spec = replay
    networks = dqn.AGENT.make_learner_networks(spec, SMALL)
    learner = dqn.AGENT.make_learner(builder, networks, client, None, None)
    assert learner._discount == SMALL.discount
    batch = next(builder.make_dataset_iterator(client)).data
    # An n-step transition carries g**(n-1), or 0 at the end; the learner adds one g.
    expected = {1.0, np.float32(SMALL.discount), 0.0}
    assert set(batch.discount.numpy()) <= expected
    assert batch.action.dtype == tf.int32


def test_a_learner_without_replay_client_is_refused() -> None:
    spec = make_spec(ROW)
    builder = dqn.AGENT.make_acme_builder(SMALL)
    with pytest.raises(ValueError, match="priorities would never be updated"):
        builder.make_learner(dqn.AGENT.make_learner_networks(spec, SMALL), iter(()))


def test_replay_samples_by_the_priority_exponent() -> None:
    table = dqn.AGENT.make_acme_builder(SMALL).make_replay_tables(make_spec(ROW))[0]
    assert table.info.sampler_options.prioritized.priority_exponent == 0.6
    assert table.info.max_size == SMALL.max_replay_size


def test_a_wrapped_dqn_builder_reads_epsilon_off_the_behaviour_network() -> None:
    spec = make_spec(ROW)
    builder = acme_quant.QuantizedBuilder(dqn.AGENT.make_acme_builder(SMALL))
    builder.make_replay_tables(spec)
    network = dqn.AGENT.make_networks(spec, SMALL)
    greedy = dqn.AGENT.make_acme_policy(network, spec, dqn.AGENT.greedy(spec))
    action = builder.make_actor(greedy).select_action(np.ones(4, np.float32))
    values = network(tf.ones((1, 4))).numpy()[0]
    assert action.dtype == np.int32 and values[action] >= values.max() - 0.05


def test_the_quantized_builder_trains_with_int8_actors() -> None:
    environment = EdgeEnvironment(Chain())
    spec = acme.make_environment_spec(environment)
    builder = dqn.make_builder(SMALL, quantizer="int8")
    server = reverb.Server(builder.make_replay_tables(spec), port=None)
    client = reverb.Client(f"localhost:{server.port}")
    networks = dqn.AGENT.make_learner_networks(spec, SMALL)
    learner = builder.make_learner(networks, builder.make_dataset_iterator(client))
    actor = builder.make_actor(
        dqn.AGENT.policy_module(networks[0]), builder.make_adder(client), learner
    )
    loop = acme.EnvironmentLoop(environment, actor)
    loop.run(num_episodes=EPISODES)
    learner.step()
    loop.run(num_episodes=1)
    assert learner.get_steps() == 1
    server.stop()
