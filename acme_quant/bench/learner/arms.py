"""The learners that are compared: the same networks and batch, another Adam."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import acme
    import reverb
    import tensorflow as tf
    from acme import specs
    from acme.utils import loggers

# Arm -> the agents' setting that makes it.
ARMS = {"acme": "sonnet", "ours": "fused"}
AGENTS = ("d4pg", "dqn")
OBSERVATIONS, ACTIONS = 17, 6
# The arms round differently. Their variables' distance, as a share of the way that the
# variables went: a wrong step, or one left out, is far beyond it.
AGREEMENT = 0.02


class Arm(NamedTuple):
    """A learner, the variables that it trains, and their values at the start."""

    learner: acme.Learner
    policy: Sequence[tf.Variable]
    critic: Sequence[tf.Variable]
    start: Sequence[np.ndarray]


class NoPriorities:
    """Stands in for the replay server that DQN tells priorities to."""

    def mutate_priorities(self, table: str, updates: Mapping[int, float]) -> None:
        """Forgets them."""


def make(agent: str, name: str, hidden: int, batch: int) -> Arm:
    """Returns the learner of an agent as an arm, with networks from one seed.

    Args:
      agent: the agent's name.
      name: the arm's.
      hidden: units of each of three hidden layers.
      batch: transitions of a step.
    """
    import tensorflow as tf

    tf.random.set_seed(0)
    return MAKERS[agent](ARMS[name], hidden, batch)


def make_d4pg(adam: str, hidden: int, batch: int) -> Arm:
    """Returns D4PG's learner; policy and critic have the same width."""
    from acme import specs

    from acme_quant.agents import d4pg

    layers = (hidden,) * 3
    config = d4pg.Config(
        policy_layers=layers, critic_layers=layers, batch_size=batch, adam=adam
    )
    action = specs.BoundedArray((ACTIONS,), np.float32, -1.0, 1.0)
    spec = _spec(action)
    networks = d4pg.AGENT.make_learner_networks(spec, config)
    learner = d4pg.AGENT.make_acme_builder(config).make_learner(
        networks, _batches(spec, batch), logger=_silence(), checkpoint=False
    )
    policy, critic = networks[0].policy_network, networks[0].critic_network
    return _arm(learner, policy.trainable_variables, critic.trainable_variables)


def make_dqn(adam: str, hidden: int, batch: int) -> Arm:
    """Returns DQN's learner."""
    from acme import specs

    from acme_quant.agents import dqn

    config = dqn.Config(q_layers=(hidden,) * 3, batch_size=batch, adam=adam)
    spec = _spec(specs.DiscreteArray(ACTIONS))
    networks = dqn.AGENT.make_learner_networks(spec, config)
    learner = dqn.AGENT.make_acme_builder(config).make_learner(
        networks,
        _batches(spec, batch),
        logger=_silence(),
        replay_client=NoPriorities(),
    )
    return _arm(learner, networks[0].trainable_variables, ())


MAKERS = {"d4pg": make_d4pg, "dqn": make_dqn}


def check(expected: Arm, found: Arm) -> None:
    """Compares two arms after the same number of steps.

    Raises:
      RuntimeError: if their variables have gone different ways.
    """
    variables = zip(_values(expected), _values(found), expected.start)
    pairs = [(np.sum((a - b) ** 2), np.sum((a - s) ** 2)) for a, b, s in variables]
    distance, way = np.sqrt(np.sum(pairs, axis=0))
    if not distance <= AGREEMENT * way:
        raise RuntimeError(
            f"expected learners that agree within {AGREEMENT:.0%} of the way that "
            f"their variables went, got {distance:.3g} of {way:.3g}."
        )


def size(variables: Sequence[tf.Variable]) -> int:
    """Returns the numbers that variables hold."""
    return sum(int(np.prod(variable.shape)) for variable in variables)


def _arm(
    learner: acme.Learner,
    policy: Sequence[tf.Variable],
    critic: Sequence[tf.Variable],
) -> Arm:
    arm = Arm(learner, policy, critic, ())
    return arm._replace(start=_values(arm))


def _values(arm: Arm) -> list[np.ndarray]:
    return [variable.numpy() for variable in (*arm.policy, *arm.critic)]


def _spec(actions: specs.Array) -> specs.EnvironmentSpec:
    from acme import specs

    return specs.EnvironmentSpec(
        specs.Array((OBSERVATIONS,), np.float32),
        actions,
        specs.Array((), np.float32),
        specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


def _batches(
    spec: specs.EnvironmentSpec, batch: int
) -> itertools.repeat[reverb.ReplaySample]:
    """Returns one batch of random transitions again and again, ready in memory."""
    import reverb
    import tensorflow as tf
    from acme import types

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, batch, OBSERVATIONS)).astype(np.float32)
    shape = (batch, *spec.actions.shape)
    actions = rng.integers(0, 2, shape).astype(spec.actions.dtype)
    reward, ones = rng.normal(size=batch).astype(np.float32), np.ones(batch, np.float32)
    data = types.Transition(rows[0], actions, reward, ones, rows[1], ())
    info = reverb.SampleInfo(
        key=np.arange(batch, dtype=np.uint64),
        probability=np.ones(batch),
        table_size=np.full(batch, batch),
        priority=np.ones(batch),
    )
    sample = reverb.ReplaySample(info, data)
    ready = tf.nest.map_structure(tf.constant, sample)
    return itertools.repeat(ready)


def _silence() -> loggers.Logger:
    from acme.utils import loggers

    return loggers.NoOpLogger()
