"""The Atari network in float64, and how far from it an engine may be.

The error model is that of `policy_check`; a convolution is a product with patches.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from acme_quant.bench.policy.atari import ACTIONS, CONVOLUTIONS, PIXEL, Convolution
from acme_quant.bench.policy.check import Steps, Uncertain, certain


def reference(
    variables: Sequence[np.ndarray], images: np.ndarray, steps: Steps
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the network in float64.

    Args:
      variables: as `atari_variables` makes them.
      images: uint8 [M, 84, 84, 4].
      steps: of the engine under test.

    Returns:
      Values of the actions and their allowed errors, float64 [M, A].
    """
    layers = list(zip(variables[::2], variables[1::2]))
    x = certain(images * PIXEL)
    for c, (weight, bias) in zip(CONVOLUTIONS, layers):
        weight = weight.reshape(-1, c.outputs)
        rows = Uncertain(*(patches(c, part) for part in x))
        y = rows.times(weight, bias, steps).relu()
        shape = (len(images), c.out_size, c.out_size, c.outputs)
        x = Uncertain(*(part.reshape(shape) for part in y))
    features = Uncertain(*(part.reshape(len(images), -1) for part in x))
    advantages, value = (
        features.times(*layers[i], steps).relu().times(*layers[i + 1], steps)
        for i in (3, 5)
    )
    values = duel(advantages, value)
    return values.exact, values.allowed()


def patches(c: Convolution, images: np.ndarray) -> np.ndarray:
    """Returns what the kernel sees at each position of [M, h, w, c], in rows."""
    images = np.pad(images, ((0, 0), c.pads, c.pads, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(
        images, (c.kernel, c.kernel), (1, 2)
    )
    windows = windows[:, :: c.stride, :: c.stride].transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(-1, c.kernel * c.kernel * c.channels)


def duel(advantages: Uncertain, value: Uncertain) -> Uncertain:
    """Returns value + advantages - their mean (Wang et al. 2016)."""
    a, variance = advantages
    centred = a - a.mean(axis=1, keepdims=True)
    # (1 - 1/A)^2 of an advantage's own variance, 1/A^2 of each of the others'.
    mean = variance.sum(axis=1, keepdims=True) / ACTIONS**2
    spread = variance * (1 - 2 / ACTIONS) + mean
    return Uncertain(value.exact + centred, value.variance + spread)
