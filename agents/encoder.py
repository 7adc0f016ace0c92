"""What observations of bytes and images go through before a policy's first layer."""

from __future__ import annotations

import math
from typing import Any

import sonnet as snt
import tensorflow as tf
import tree
from acme.tf import networks as acme_networks

from acme_quant.agents import images


class Encoder(snt.Module):
    """Makes one row of a nest: images through convolutions, the rest as it is.

    The convolutions are those of Acme's Atari network, each image has its own.
    """

    def __init__(self, observations: Any) -> None:
        """Initializes the encoder for a nest of specs."""
        super().__init__(name="encoder")
        self._are_images = [images.is_image(f) for f in images.fields(observations)]
        self._torsos = [
            acme_networks.AtariTorso() for image in self._are_images if image
        ]

    def __call__(self, observation: Any) -> tf.Tensor:
        """Returns float32 [B, width], fields side by side in dm-tree's order."""
        torsos = iter(self._torsos)
        rows = [
            next(torsos)(scale(field)) if image else row(field)
            for field, image in zip(tree.flatten(observation), self._are_images)
        ]
        return rows[0] if len(rows) == 1 else tf.concat(rows, axis=-1)


def row(field: tf.Tensor) -> tf.Tensor:
    """Returns `field` as float32 [B, width]."""
    return tf.reshape(scale(field), [-1, math.prod(field.shape[1:])])


def scale(field: tf.Tensor) -> tf.Tensor:
    """Returns `field` in float32, bytes scaled to [0, 1]."""
    if field.dtype == tf.uint8:
        return tf.cast(field, tf.float32) * (1.0 / 255.0)
    return tf.cast(field, tf.float32)
