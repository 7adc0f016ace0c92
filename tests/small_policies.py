"""A small policy for tests: its graph, its weights, observations of two kinds."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from acme_quant.graph import Field, Graph, Layer, Parameter
from acme_quant.policy import QuantizedPolicy, quantize_graph

FLAT = (Field((), (5,), "float32"),)
NESTED = (
    Field(("camera", 0), (2, 2), "uint8"),
    Field(("camera", 1), (), "float64"),
    Field(("position",), (3,), "float32"),
)


def network(
    fields: tuple = FLAT, action: Optional[Field] = None, hidden: int = 40
) -> tuple[Graph, list[np.ndarray]]:
    """Returns (graph, variables): linear, layer norm with tanh, linear, affine."""
    action = action or Field((), (2,), "float32")
    inputs, outputs = sum(f.width for f in fields), action.width
    shapes = ((inputs, hidden), (hidden,), (hidden,), (hidden,), (hidden, outputs))
    weight, bias, scale, offset, head = (
        Parameter(shape, variable=i) for i, shape in enumerate(shapes)
    )
    sizes = (inputs, hidden)
    twice = Parameter.of(np.array([2.0]))
    layers = (
        Layer("linear", (0,), 1, *sizes, weight=weight, bias=bias, name="torso"),
        Layer(
            *("layer_norm", (1,), 2, hidden, hidden, "tanh"),
            scale=scale,
            bias=offset,
            epsilon=1e-5,
            name="norm",
        ),
        Layer("linear", (2,), 3, hidden, outputs, weight=head, name="head"),
        Layer("affine", (3,), 4, outputs, outputs, scale=twice, name="rescale"),
    )
    graph = Graph(
        layers, (inputs, hidden, hidden, outputs, outputs), fields, action, shapes
    )
    rng = np.random.default_rng(0)
    return graph, [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def flat(rows: int = 1) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 5)).astype(np.float32)


def nested(**changes: Any) -> dict:
    camera = (np.arange(4, dtype=np.uint8).reshape(2, 2), 0.5)
    return {"position": np.ones(3, np.float32), "camera": camera, **changes}


def policy(quantizer: str = "int8", **parts: Any) -> QuantizedPolicy:
    return quantize_graph(*network(**parts), quantizer)
