"""Acme's Atari network, described by hand, without TensorFlow: three convolutions and a
duelling head, of 84 x 84 x 4 bytes.

Its variables are weight and bias of each layer of LAYERS, in order; weights of
convolutions are [kh, kw, c, N], the others [K, N], bias is [N].
"""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy as np

from acme_quant.policy.graph import ConvGeometry, Field, Graph, Layer, Parameter

IMAGE = (84, 84, 4)
ACTIONS = 6
# Pixels are scaled to [0, 1].
PIXEL = np.float32(1 / 255)


class Convolution(NamedTuple):
    """One convolution; padding is TensorFlow's SAME: the odd pixel comes last."""

    size: int
    channels: int
    kernel: int
    stride: int
    outputs: int

    @property
    def out_size(self) -> int:
        """Pixels of a side of the result."""
        return -(-self.size // self.stride)

    @property
    def pads(self) -> Tuple[int, int]:
        """Zeros before and after a line."""
        total = (self.out_size - 1) * self.stride + self.kernel - self.size
        return total // 2, total - total // 2

    @property
    def shape(self) -> Tuple[int, ...]:
        """The weight's."""
        return self.kernel, self.kernel, self.channels, self.outputs


CONVOLUTIONS = (
    Convolution(84, 4, 8, 4, 32),
    Convolution(21, 32, 4, 2, 64),
    Convolution(11, 64, 3, 1, 64),
)
FEATURES = 11 * 11 * 64
HIDDEN = 512
# Advantages and value, each a hidden layer and an output.
HEADS = ((FEATURES, HIDDEN), (HIDDEN, ACTIONS), (FEATURES, HIDDEN), (HIDDEN, 1))
SHAPES = tuple(c.shape for c in CONVOLUTIONS) + HEADS


def atari_graph() -> Graph:
    """Returns the network: uint8 [84, 84, 4] -> values of 6 actions."""
    widths = [int(np.prod(IMAGE))] * 2
    widths += [c.out_size**2 * c.outputs for c in CONVOLUTIONS]
    widths += [HIDDEN, ACTIONS, HIDDEN, 1, 1, ACTIONS, ACTIONS]
    scaled = Layer(
        *("affine", (0,), 1, widths[0], widths[0]),
        scale=Parameter.of(np.array([PIXEL])),
        name="scale",
    )
    convolutions = [_convolution(i, c) for i, c in enumerate(CONVOLUTIONS)]
    heads = [
        _linear(3, 4, 5, "relu"),
        _linear(4, 5, 6),
        _linear(5, 4, 7, "relu"),
        _linear(6, 7, 8),
    ]
    duel = [
        Layer("mean", (6,), 9, ACTIONS, 1, name="mean"),
        Layer("subtract", (6, 9), 10, ACTIONS, ACTIONS, name="advantages"),
        Layer("add", (8, 10), 11, 1, ACTIONS, name="values"),
    ]
    return Graph(
        layers=(scaled, *convolutions, *heads, *duel),
        value_widths=tuple(widths),
        observation=(Field((), IMAGE, "uint8"),),
        output=Field((), (ACTIONS,), "float32"),
        variable_shapes=tuple(s for shape in SHAPES for s in (shape, shape[-1:])),
    )


def _convolution(index: int, c: Convolution) -> Layer:
    geometry = ConvGeometry(
        *(c.size, c.size, c.channels, c.kernel, c.kernel, c.stride, c.stride),
        *(c.pads[0], c.pads[0], c.out_size, c.out_size),
    )
    return Layer(
        *("conv2d", (index + 1,), index + 2, c.size**2 * c.channels, c.outputs),
        activation="relu",
        geometry=geometry,
        name=f"convolution_{index}",
        **_parameters(index),
    )


def _linear(
    index: int, source: int, target: int, activation: str = "identity"
) -> Layer:
    inputs, outputs = SHAPES[index]
    return Layer(
        *("linear", (source,), target, inputs, outputs, activation),
        name=f"linear_{index - len(CONVOLUTIONS)}",
        **_parameters(index),
    )


def _parameters(index: int) -> dict[str, Parameter]:
    """Returns weight and bias of one of SHAPES."""
    shape = SHAPES[index]
    return {
        "weight": Parameter(shape, 2 * index),
        "bias": Parameter(shape[-1:], 2 * index + 1),
    }


def atari_variables(rng: np.random.Generator) -> List[np.ndarray]:
    """Returns weights that keep the size of what relu lets pass, and small biases.

    The factor is sqrt(2 / inputs), of He et al. 2015.
    """
    variables: List[np.ndarray] = []
    for shape in SHAPES:
        deviation = np.float32(np.sqrt(2 / np.prod(shape[:-1])))
        variables.append(rng.standard_normal(shape, np.float32) * deviation)
        variables.append(rng.standard_normal(shape[-1:], np.float32) / np.float32(100))
    return variables


def atari_images(batch: int, rng: np.random.Generator) -> np.ndarray:
    """Returns images of noise, uint8 [batch, 84, 84, 4]."""
    return rng.integers(0, 256, (batch, *IMAGE), np.uint8)
