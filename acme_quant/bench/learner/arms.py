"""The learners that are compared: the same networks and batch, another Adam."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import acme
    import reverb
    import sonnet as snt
    import tensorflow as tf
    from acme import specs

ARMS = ("acme", "ours")
OBSERVATIONS, ACTIONS = 17, 6
LEARNING_RATE = 1e-4
# Both arms round differently; of the way that the variables went, their distance is at
# most this share.
AGREEMENT = 0.01


class Arm(NamedTuple):
    """A learner, the variables that it trains, and their values at the start."""

    learner: acme.Learner
    variables: Sequence[tf.Variable]
    start: Sequence[np.ndarray]


def make_d4pg(name: str, hidden: int, batch: int) -> Arm:
    """Returns Acme's D4PG learner with the Adam of this arm."""
    import sonnet as snt
    from acme import specs
    from acme.agents.tf.d4pg import learning
    from acme.tf import networks as acme_networks

    from acme_quant.agents import d4pg

    spec = _spec(specs.BoundedArray((ACTIONS,), np.float32, -1.0, 1.0))
    config = d4pg.Config(
        policy_layers=(hidden,) * 3, critic_layers=(hidden,) * 3, batch_size=batch
    )
    online, target = _twice(lambda: d4pg.make_networks(spec, config))
    parts = (online.policy_network, online.critic_network)
    learner = learning.D4PGLearner(
        *parts,
        target.policy_network,
        target.critic_network,
        discount=config.discount,
        target_update_period=config.target_update_period,
        dataset_iterator=_batches(spec, batch),
        policy_optimizer=_adam(name),
        critic_optimizer=_adam(name),
        logger=_silence(),
        checkpoint=False,
    )
    return _arm(learner, [v for part in parts for v in part.trainable_variables])
