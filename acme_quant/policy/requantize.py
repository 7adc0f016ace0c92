"""From the number format on the wire to the one an actor runs.

With a communication precision of its own a policy arrives as float16, say, and the
actor quantizes it itself: a payload is read back into a graph and variables, and the
same writer that serves the publisher writes them again.
"""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from acme_quant import kernels
from acme_quant.policy import quantizers
from acme_quant.policy.graph import ConvGeometry, Graph, Layer, Parameter
from acme_quant.policy.layout import Layout
from acme_quant.policy.payload import Payload, Table
from acme_quant.policy.qtensor import QTensor
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.writer import WEIGHTED, PolicyWriter

BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
WINDOWED = ("conv2d", "max_pool")


class Requantizer:
    """Quantizes received versions of one policy to another number format."""

    def __init__(
        self, quantizer: str | quantizers.Quantizer, activations: str = "wide"
    ) -> None:
        """Takes the actor's number format.

        Args:
          quantizer: a name in `quantizers.QUANTIZERS` or an object like those.
          activations: how integer layers round their inputs: 'wide' or '8bit'.

        Raises:
          ValueError: the quantizer is unknown.
        """
        self._quantizer = quantizers.get(quantizer)
        self._activations = activations
        self._made: Tuple[Table, PolicyWriter] | None = None

    def __call__(self, received: Payload) -> Payload:
        """Returns the same version in the actor's format, in a buffer of its own.

        Raises:
          PayloadError: `received` is not a policy.
          NonFiniteWeights: it holds a NaN or Inf.
        """
        writer = self._writer(received)
        return writer.write(
            variables_of(received, writer.graph),
            received.policy_version,
            received.learner_step,
        )

    def _writer(self, received: Payload) -> PolicyWriter:
        """Returns the writer of payloads with this layout; the last one is kept."""
        if self._made is None or self._made[0] is not received.table:
            QuantizedPolicy(received)  # The engine checks every number of the layout.
            graph = graph_of(received)
            writer = PolicyWriter(graph, self._quantizer, self._activations)
            self._made = received.table, writer
        return self._made[1]


def graph_of(received: Payload) -> Graph:
    """Returns a graph that computes what a payload does.

    Its variables are the payload's own tensors: a parameter's `variable` is the id of
    the tensor it is stored in.
    """
    layout = Layout.of(received.layout)
    layers = tuple(
        _layer(op, name, received) for op, name in zip(layout.ops, layout.names)
    )
    shapes = [spec.shape for spec in received.table.specs]
    for layer in layers:
        if layer.weight is not None:
            shapes[layer.weight.variable] = layer.weight.shape
    return Graph(
        layers=layers,
        value_widths=tuple(layout.value_widths.tolist()),
        observation=layout.observation,
        output=layout.output,
        variable_shapes=tuple(shapes),
    )


def _layer(op: np.void, name: str, received: Payload) -> Layer:
    kind = kernels.KINDS[op["kind"]]
    weighted = kind in WEIGHTED
    inputs = (int(op["input"]),)
    geometry = None
    if kind in WINDOWED:
        sizes = {name: int(op[name]) for name in ConvGeometry.__dataclass_fields__}
        geometry = ConvGeometry(**sizes)
    return Layer(
        kind=kind,
        inputs=inputs + ((int(op["other"]),) if kind in BINARY else ()),
        output=int(op["output"]),
        width=int(op["inputs"]),
        outputs=int(op["outputs"]),
        activation=kernels.ACTIVATIONS[op["activation"]],
        weight=_weight_parameter(op, geometry) if weighted else None,
        scale=None if weighted else _parameter(op["scale"], received),
        bias=_parameter(op["bias"], received),
        geometry=geometry,
        epsilon=float(op["epsilon"]),
        input_offset=int(op["input_offset"]),
        output_offset=int(op["output_offset"]),
        name=name,
    )


def _parameter(tensor: np.int32, received: Payload) -> Parameter | None:
    if tensor < 0:
        return None
    return Parameter(received.table.specs[tensor].shape, int(tensor))


def _weight_parameter(op: np.void, geometry: ConvGeometry | None) -> Parameter:
    shape: Tuple[int, ...] = (int(op["inputs"]), int(op["outputs"]))
    if geometry is not None:
        window = (geometry.kernel_height, geometry.kernel_width, geometry.channels)
        shape = (*window, shape[1])
    return Parameter(shape, int(op["weight"]))


def variables_of(received: Payload, graph: Graph) -> List[np.ndarray]:
    """Returns a payload's tensors as float32 variables of its `graph_of`."""
    variables = received.tensors()
    ops = Layout.of(received.layout).ops
    for op, layer in zip(ops, graph.layers):
        if layer.weight is None:
            continue
        parts = (op["scale"], op["zero_point"])
        scale, zero_point = (variables[part] if part >= 0 else None for part in parts)
        matrix = _dequantized(variables[op["weight"]], op, scale, zero_point)
        variables[op["weight"]] = matrix.reshape(layer.weight.shape)
    return variables


def _dequantized(
    codes: np.ndarray,
    op: np.void,
    scale: np.ndarray | None,
    zero_point: np.ndarray | None,
) -> np.ndarray:
    """Returns a weight matrix float32 [K, N] out of its stored codes."""
    shape = (int(op["outputs"]), int(op["inputs"]))
    qtensor = QTensor(kernels.FORMATS[op["format"]], codes, shape, scale, zero_point)
    qtensor.check()
    return np.ascontiguousarray(qtensor.dequantize().T)
