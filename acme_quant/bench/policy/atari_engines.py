"""The engines that `acme-quant bench policy` compares on Acme's Atari network.

As in `policy_engines`: made from the network's variables, from NumPy to NumPy, one
thread; the observations are bytes, uint8 [M, 84, 84, 4].
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List

import numpy as np

from acme_quant.bench.policy import check, engines
from acme_quant.bench.policy.atari import (
    ACTIONS,
    CONVOLUTIONS,
    IMAGE,
    PIXEL,
    atari_graph,
)
from acme_quant.bench.policy.engines import Call, Engine, Variables
from acme_quant.bench.policy.onnx_model import LayeredModel
from acme_quant.policy.quantized_policy import quantize_graph


def _own(
    quantizer: str, activations: str, variables: Variables
) -> Callable[[np.ndarray], Call]:
    policy = quantize_graph(atari_graph(), variables, quantizer, activations)
    return engines.own_calls(policy)


def _acme(variables: Variables) -> Callable[[np.ndarray], Call]:
    """Acme's own network, of scaled images."""
    import sonnet as snt
    import tensorflow as tf
    from acme.tf.networks import atari

    def scaled(images: Any) -> Any:
        return tf.cast(images, tf.float32) * PIXEL

    network = atari.DQNAtariNetwork(ACTIONS)
    module = snt.Sequential([scaled, network])
    module(tf.zeros([1, *IMAGE], tf.uint8))
    # Sonnet has each layer's bias before its weight.
    order = np.arange(len(variables)).reshape(-1, 2)[:, ::-1].ravel()
    for variable, i in zip(network.trainable_variables, order):
        variable.assign(variables[i])
    return engines.acme_calls(module)


def _onnx(int8: bool, variables: Variables) -> Callable[[np.ndarray], Call]:
    """The network on images [M, c, h, w], as ONNX Runtime's kernels want them."""
    from onnx import TensorProto

    model = LayeredModel("x")
    linear = model.linear_int8 if int8 else model.linear
    convolution = model.convolution_uint8 if int8 else model.convolution
    model.node("Cast", ["x"], to=TensorProto.FLOAT)
    model.node("Mul", [model.x, PIXEL])
    model.node("Transpose", [model.x], perm=[0, 3, 1, 2])
    for i, c in enumerate(CONVOLUTIONS):
        weight = variables[2 * i].transpose(3, 2, 0, 1)
        pads, strides = [c.pads[0]] * 2 + [c.pads[1]] * 2, [c.stride] * 2
        args = (np.ascontiguousarray(weight), variables[2 * i + 1], "Relu")
        convolution(*args, pads=pads, strides=strides)
    [features] = model.node("Flatten", [model.x])
    outputs: List[str] = []
    for i in (6, 10):
        model.x = features
        linear(_channels_first(variables[i]), variables[i + 1], "Relu")
        linear(variables[i + 2], variables[i + 3])
        outputs.append(model.x)
    advantages, value = outputs
    [mean] = model.node("ReduceMean", [advantages], axes=[1])
    model.node("Sub", [advantages, mean])
    model.node("Add", [value, model.x])
    return model.session(IMAGE, "uint8")


def _channels_first(weight: np.ndarray) -> np.ndarray:
    """Returns a weight [h w c, N] for features in the order [c h w]."""
    size, channels = CONVOLUTIONS[-1].out_size, CONVOLUTIONS[-1].outputs
    images = weight.reshape(size * size, channels, -1).swapaxes(0, 1)
    return np.ascontiguousarray(images.reshape(weight.shape))


def _own_int8(name: str, activations: str) -> Engine:
    make = functools.partial(_own, "int8", activations)
    return Engine(name, make, engines.own_steps(activations))


ENGINES = (
    _own_int8("int8", "wide"),
    Engine("float32", functools.partial(_own, "float32", "wide"), check.FLOAT32),
    Engine("acme_tf", _acme, check.FLOAT32, True),
    Engine("onnxruntime_float32", functools.partial(_onnx, False), check.FLOAT32),
    Engine(
        "onnxruntime_int8",
        functools.partial(_onnx, True),
        check.ONNXRUNTIME_INT8,
    ),
)
OPTIONAL = (_own_int8("int8_8bit", "8bit"),)
