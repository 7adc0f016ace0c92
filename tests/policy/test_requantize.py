from __future__ import annotations

import numpy as np
import pytest

from acme_quant.policy import quantizers, requantize
from acme_quant.policy.graph import ConvGeometry, Field, Graph, Layer, Parameter
from acme_quant.policy.payload import Payload
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.requantize import Requantizer
from acme_quant.policy.writer import PolicyWriter

RNG = np.random.default_rng(0)


def convolution() -> Graph:
    """A convolution, a linear layer, and the sum of that and its norm."""
    geometry = ConvGeometry(4, 4, 2, 3, 3, 1, 1, 1, 1, 4, 4)
    layers = (
        Layer(
            "conv2d", (0,), 1, 32, 5, "relu",
            weight=Parameter((3, 3, 2, 5), 0), bias=Parameter((5,), 1),
            geometry=geometry, name="conv",
        ),
        Layer(
            "linear", (1,), 2, 80, 6,
            weight=Parameter((80, 6), 2), bias=Parameter((6,), 3), name="linear",
        ),
        Layer(
            "layer_norm", (2,), 3, 6, 6, "tanh",
            scale=Parameter((6,), 4), bias=Parameter.of(np.full(6, 0.5)),
            epsilon=1e-5, name="norm",
        ),
        Layer("add", (2, 3), 4, 6, 6, name="sum"),
    )  # fmt: skip
    return Graph(
        layers,
        (32, 80, 6, 6, 6),
        (Field((), (4, 4, 2), "float32"),),
        Field((), (6,), "float32"),
        ((3, 3, 2, 5), (5,), (80, 6), (6,), (6,)),
    )


GRAPH = convolution()
VARIABLES = [RNG.standard_normal(s, np.float32) for s in GRAPH.variable_shapes]
OBSERVATIONS = RNG.standard_normal((7, 4, 4, 2), np.float32)


def written(quantizer: str) -> Payload:
    return PolicyWriter(GRAPH, quantizer).write(VARIABLES, 4, 40)


def body(payload: Payload) -> bytes:
    return bytes(payload.buffer[64:])


@pytest.mark.parametrize("quantizer", quantizers.QUANTIZERS)
def test_from_float32_comes_what_the_publisher_would_have_written(
    quantizer: str,
) -> None:
    received = Requantizer(quantizer)(written("float32"))
    assert body(received) == body(written(quantizer))
    assert (received.policy_version, received.learner_step) == (4, 40)


@pytest.mark.parametrize("wire", quantizers.QUANTIZERS)
def test_to_float32_the_weights_are_those_that_came(wire: str) -> None:
    sent = written(wire)
    got = requantize.variables_of(sent, requantize.graph_of(sent))
    again = Requantizer("float32")(sent)
    names = {spec.name: index for index, spec in enumerate(sent.table.specs)}
    for index, number in ((0, 0), (1, 2)):
        weight = VARIABLES[number].reshape(-1, VARIABLES[number].shape[-1])
        quantized = quantizers.get(wire).quantize(weight)
        expected = quantized.dequantize().T
        stands = got[names[f"{index}.weight"]].reshape(expected.shape)
        np.testing.assert_array_equal(stands, expected)
    actions = QuantizedPolicy(again).batch(OBSERVATIONS)
    assert np.isfinite(actions).all()


def test_each_version_gets_a_buffer_of_its_own() -> None:
    requantizer, sent = Requantizer("int8"), written("float16")
    first, second = requantizer(sent), requantizer(sent)
    assert first.table is second.table
    assert not np.shares_memory(np.asarray(first.buffer), np.asarray(second.buffer))


def test_an_unknown_quantizer_is_refused() -> None:
    with pytest.raises(ValueError, match="int7"):
        Requantizer("int7")
