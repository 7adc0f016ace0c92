"""The policy the benchmarks time: a tanh MLP described by hand, without TensorFlow."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from acme_quant.policy.graph import Field, Graph, Layer, Parameter


def mlp_graph(hidden: int, depth: int = 3, inputs: int = 17, outputs: int = 6) -> Graph:
    """Returns `depth` tanh layers of `hidden` units and a tanh output.

    Its variables are weight [K, N] and bias [N] of each layer, in order.
    """
    widths = (inputs, *[hidden] * depth, outputs)
    layers: List[Layer] = []
    shapes: List[Tuple[int, ...]] = []
    for index, (width, units) in enumerate(zip(widths, widths[1:])):
        layers.append(
            Layer(
                kind="linear",
                inputs=(index,),
                output=index + 1,
                width=width,
                outputs=units,
                activation="tanh",
                weight=Parameter((width, units), 2 * index),
                bias=Parameter((units,), 2 * index + 1),
                name=f"linear_{index}",
            )
        )
        shapes += [(width, units), (units,)]
    return Graph(
        layers=tuple(layers),
        value_widths=widths,
        observation=(Field((), (inputs,), "float32"),),
        output=Field((), (outputs,), "float32"),
        variable_shapes=tuple(shapes),
    )


def mlp_variables(graph: Graph, rng: np.random.Generator) -> List[np.ndarray]:
    """Returns weights scaled by 1/sqrt(inputs) and small biases, float32."""
    return [
        rng.standard_normal(shape, np.float32)
        * np.float32(1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.01)
        for shape in graph.variable_shapes
    ]
