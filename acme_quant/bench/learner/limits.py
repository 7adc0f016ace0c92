"""What a learner's step cannot do without: its products, and the bytes of its Adam.

P and C are the weights of policy and critic, B the batch. Forward, backward to the
inputs and backward to the weights take 2 operations a weight and row each:

  d4pg  the critic at (o_t-1, a) all three; at (o_t, pi(o_t)) the first two; the target
        critic and the target policy the first; the policy all three: 12 CB + 8 PB
  dqn   the network at o_t-1 all three, at o_t the first, the target the first: 10 PB

Adam reads a variable, its gradient and two moments and writes the first and the last
two; the gradient was written, and read for its norm: 9 numbers of float32 a weight.
"""

from __future__ import annotations

import functools
import math
import time
from typing import NamedTuple

import numpy as np

from acme_quant.bench import turns

ADAM_BYTES = 9 * 4
BLOCK_BYTES = 1 << 27
PRODUCT = 1024
FLOPS = {
    "d4pg": lambda policy, critic: 12 * critic + 8 * policy,
    "dqn": lambda policy, critic: 10 * policy,
}


class Least(NamedTuple):
    """The least seconds of a step: by its arithmetic, by its memory."""

    arithmetic: float
    memory: float


def seconds(agent: str, policy: int, critic: int, batch: int) -> Least:
    """Returns the least seconds of a step of networks with so many weights."""
    return Least(
        FLOPS[agent](policy, critic) * batch / flops_per_s(),
        (policy + critic) * ADAM_BYTES / bytes_per_s(),
    )


@functools.cache
def flops_per_s() -> float:
    """Returns what TensorFlow's float32 matrix product reaches here, all cores."""
    import tensorflow as tf

    square = tf.constant(np.ones((PRODUCT, PRODUCT), np.float32))
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        tf.matmul(square, square).numpy()
        best = min(best, time.perf_counter() - start)
    return 2 * PRODUCT**3 / best


@functools.cache
def bytes_per_s() -> float:
    """Returns the bytes read and written a second by a copy of large blocks."""
    return turns.copy_bandwidth(BLOCK_BYTES)
