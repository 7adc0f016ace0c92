"""Q-networks: what a DQN agent's observations go through, as Sonnet modules.

Each maps a nest of batched observations to action values, float32 [B, actions]. The
scaling of images stands in `agents.encoder` alone, so learner and actors share it.
"""

from __future__ import annotations

from typing import Any

import sonnet as snt
import tensorflow as tf
import tree
import trfl
from acme import specs
from acme.tf import networks as acme_networks
from acme.tf import utils as tf2_utils
from acme.tf.networks import duelling

from acme_quant.acting.exploration import EpsilonGreedy
from acme_quant.agents.encoder import row, scale


class Row(snt.Module):
    """Casts, flattens and concatenates a nest of observations: float32 [B, width]."""

    def __call__(self, observation: Any) -> tf.Tensor:
        """Returns the fields side by side in dm-tree's order."""
        rows = [row(field) for field in tree.flatten(observation)]
        return rows[0] if len(rows) == 1 else tf.concat(rows, axis=-1)


class Image(snt.Module):
    """Casts one image to float32 [B, height, width, channels]."""

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Returns the image, uint8 scaled to [0, 1]."""
        return scale(observation)


class EpsilonGreedyHead(snt.Module):
    """Draws actions of action values, for Acme's own actor.

    `exploration` is the same rule for ours.
    """

    # Where a schedule is, is no weight of the network: no learner could send it.
    _TF_MODULE_IGNORED_PROPERTIES = frozenset(
        ("_calls", *snt.Module._TF_MODULE_IGNORED_PROPERTIES)
    )

    def __init__(self, exploration: EpsilonGreedy) -> None:
        """Initializes the head with the rule that it follows, from where that is."""
        super().__init__()
        self.exploration = exploration
        if exploration.decay_steps:
            steps = exploration.state()["steps"]
            self._calls = tf.Variable(steps, trainable=False, dtype=tf.int64)

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """Returns actions int32 [B] for values float32 [B, actions]."""
        return trfl.epsilon_greedy(values, epsilon=self._epsilon()).sample()

    def _epsilon(self) -> float | tf.Tensor:
        """Returns this call's epsilon, and counts the call if it makes a difference."""
        decay_steps = self.exploration.decay_steps
        if not decay_steps:
            return self.exploration.epsilon
        calls = self._calls.assign_add(1) - 1
        done = tf.cast(tf.minimum(calls, decay_steps), tf.float32) / decay_steps
        return self.exploration.epsilon_after(done)


def make(
    spec: specs.EnvironmentSpec, kind: str, layers: tuple[int, ...]
) -> snt.Sequential:
    """Returns a Q-network with its variables made.

    Args:
      spec: the environment's; actions are a DiscreteArray.
      kind: "mlp", "duelling" (Wang et al. 2016) or "atari" (Acme's DQNAtariNetwork:
        three convolutions, then a duelling layer of 512).
      layers: hidden layer sizes of the first two.
    """
    count = spec.actions.num_values
    if kind == "atari":
        parts = [Image(), acme_networks.DQNAtariNetwork(count)]
    elif kind == "duelling":
        parts = [Row(), duelling.DuellingMLP(count, hidden_sizes=layers)]
    else:
        parts = [Row(), snt.nets.MLP([*layers, count])]
    network = snt.Sequential(parts)
    tf2_utils.create_variables(network, [spec.observations])
    return network
