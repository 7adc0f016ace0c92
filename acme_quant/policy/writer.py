"""Writes a graph and the learner's variables into one payload: quantize once, in place.

A `PolicyWriter` works out the layout of a policy one time; every `write` then puts a
version's tensors straight where the kernels will read them, in a new buffer or in one
that is used again.

The weights of all linear and convolutional layers are quantized, first and last
included. Measured on a D4PG policy of 3x256, every layer adds about as much to the
error of an action; a last layer in float32 would take a quarter off the mean error, and
with it the promise that every CPU gives the same bits, as float32 sums have no fixed
order. Everything else stays float32: it is a few numbers.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, Sequence

import numpy as np

from acme_quant import kernels
from acme_quant.policy import payload, quantizers
from acme_quant.policy.graph import Graph, Layer, Parameter
from acme_quant.policy.qtensor import CODE_DTYPES, QTensor, codes_shape

INT32_MAX = 2**31 - 1
CODE_MAX = 127

# The largest code of an activation quantized at run time; see `activation_max`.
ACTIVATIONS = {"wide": kernels.LARGEST_CODE, "8bit": CODE_MAX}

WEIGHTED = ("linear", "conv2d")


def activation_max(activations: str, inputs: int, has_zero_point: bool) -> int:
    """Returns the largest code of a quantized activation, 0 to keep it float32.

    It is the largest for which a sum of `inputs` products cannot leave int32 (a
    code less its zero point is at most 254), and 0 if that is below 8 bits.
    """
    weight_max = 2 * CODE_MAX if has_zero_point else CODE_MAX
    safe = INT32_MAX // (weight_max * inputs)
    return min(ACTIVATIONS[activations], safe) if safe >= CODE_MAX else 0


class _Tensor(NamedTuple):
    """A tensor of the payload and what fills it."""

    spec: payload.TensorSpec
    layer: Layer
    parameter: Parameter
    # Then the quantizer fills it, and the scale and zero point that follow.
    is_quantized: bool


class PolicyWriter:
    """Turns versions of one policy's variables into payloads of one layout."""

    def __init__(
        self,
        graph: Graph,
        quantizer: str | quantizers.Quantizer = "int8",
        activations: str = "wide",
    ) -> None:
        """Works out the layout.

        Args:
          graph: the lowered policy.
          quantizer: a name in `quantizers.QUANTIZERS` or an object like those.
          activations: 'wide' quantizes the inputs of int8 and int4 layers to as many
            bits as int32 sums allow (at most 16), '8bit' to 8.

        Raises:
          ValueError: if the quantizer or `activations` is unknown.
        """
        if activations not in ACTIVATIONS:
            raise ValueError(
                f"expected activations out of {', '.join(ACTIVATIONS)}, "
                f"got {activations!r}"
            )
        self.graph = graph
        self.quantizer = quantizers.get(quantizer)
        self.activations = activations
        # One weight tells what the quantizer makes of all: its format, a zero point.
        self._sample = self.quantizer.quantize(np.ones((1, 1), np.float32))
        self._writes_in_place = (
            "out" in inspect.signature(self.quantizer.quantize).parameters
        )
        self._tensors: list[_Tensor] = []
        ops = [self._operation(layer) for layer in graph.layers]
        specs = [tensor.spec for tensor in self._tensors]
        self.table = payload.plan(self._layout(ops), specs)

    @property
    def nbytes(self) -> int:
        """Bytes of every payload written."""
        return self.table.total_bytes

    def write(
        self,
        variables: Sequence[np.ndarray],
        policy_version: int = 0,
        learner_step: int = 0,
        buffer: memoryview | None = None,
    ) -> payload.Payload:
        """Quantizes one version.

        Args:
          variables: the learner's, float32, in the order the graph was lowered with.
          policy_version: counts publications.
          learner_step: the learner's step the variables come from.
          buffer: `nbytes` writable bytes, zeros or from an earlier `write` of this
            writer; None for new ones.

        Raises:
          NonFiniteWeights: if a variable holds a NaN or Inf.
          ValueError: if the variables are not those of the graph.
        """
        self.graph.check_variables(variables)
        blank = payload.blank(self.table, buffer)
        arrays = iter(zip(self._tensors, blank.tensors()))
        for tensor, array in arrays:
            value = tensor.parameter.value(variables)
            if not tensor.is_quantized:
                array[...] = _finite(tensor, value)
                continue
            quantized = self._quantize(value.reshape(-1, value.shape[-1]), array)
            for part in (quantized.scale, quantized.zero_point):
                if part is not None:
                    next(arrays)[1][...] = part
        return payload.seal(blank, policy_version, learner_step)

    def _quantize(self, matrix: np.ndarray, codes: np.ndarray) -> QTensor:
        """Quantizes a weight float32 [K, N] into `codes`, its place in the payload."""
        if self._writes_in_place:
            quantized = self.quantizer.quantize(matrix, out=codes)
        else:
            quantized = self.quantizer.quantize(matrix)
            quantized.check()
        if _kind(quantized) != _kind(self._sample):
            raise ValueError(
                f"expected quantizer '{self.quantizer.name}' to give "
                f"{_kind(self._sample)} as before, got {_kind(quantized)}"
            )
        if quantized.codes is not codes:
            codes[...] = quantized.codes
        return quantized

    def _layout(self, ops: list[list[int]]) -> dict[str, Any]:
        graph = self.graph
        return {
            "activations": self.activations,
            "names": [layer.name for layer in graph.layers],
            "observation": [field.to_json() for field in graph.observation],
            "ops": ops,
            "output": graph.output.to_json(),
            "quantizer": self.quantizer.name,
            "value_widths": list(graph.value_widths),
        }

    def _operation(self, layer: Layer) -> list[int]:
        """Returns a layer as the engine's record; makes room for its tensors."""
        record = dict.fromkeys(kernels.OP_FIELDS, 0)
        record.update(
            kind=kernels.KINDS.index(layer.kind),
            activation=kernels.ACTIVATIONS.index(layer.activation),
            input=layer.inputs[0],
            other=layer.inputs[1] if len(layer.inputs) > 1 else -1,
            output=layer.output,
            inputs=layer.width,
            outputs=layer.outputs,
            input_offset=layer.input_offset,
            output_offset=layer.output_offset,
            epsilon=int(np.float32(layer.epsilon).view(np.int32)),
            **dict.fromkeys(("weight", "scale", "zero_point", "bias"), -1),
        )
        if layer.geometry is not None:
            record.update(vars(layer.geometry))
        if layer.weight is not None:
            record.update(self._weight(layer, layer.weight))
        for part in ("scale", "bias"):
            parameter = getattr(layer, part)
            if parameter is not None:
                shape = parameter.shape
                record[part] = self._room(layer, part, "float32", shape, parameter)
        return [record[name] for name in kernels.OP_FIELDS]

    def _weight(self, layer: Layer, weight: Parameter) -> dict[str, int]:
        """Returns the fields of a weighted layer; makes room for its weight."""
        outputs = weight.shape[-1]
        inputs = int(np.prod(weight.shape[:-1]))
        storage, has_zero_point = _kind(self._sample)
        dtype, shape = CODE_DTYPES[storage].name, codes_shape(storage, outputs, inputs)
        fields = {
            "inputs": inputs,
            "format": kernels.FORMATS.index(storage),
            "weight": self._room(layer, "weight", dtype, shape, weight, True),
        }
        if self._sample.scale is not None:
            fields["scale"] = self._room(layer, "scale", "float32", (outputs,), weight)
            limit = activation_max(self.activations, inputs, has_zero_point)
            fields["activation_max"] = limit
        if has_zero_point:
            fields["zero_point"] = self._room(
                layer, "zero_point", "int32", (outputs,), weight
            )
        return fields

    def _room(
        self,
        layer: Layer,
        part: str,
        dtype: str,
        shape: tuple[int, ...],
        parameter: Parameter,
        is_quantized: bool = False,
    ) -> int:
        """Returns the id of a new tensor of the payload."""
        name = f"{self.graph.layers.index(layer)}.{part}"
        spec = payload.TensorSpec(name, dtype, tuple(shape))
        self._tensors.append(_Tensor(spec, layer, parameter, is_quantized))
        return len(self._tensors) - 1


def _kind(qtensor: QTensor) -> tuple[str, bool]:
    """Returns what the layout depends on: the format, and whether zero is shifted."""
    return qtensor.format, qtensor.zero_point is not None


def _finite(tensor: _Tensor, array: np.ndarray) -> np.ndarray:
    if not np.isfinite(array).all():
        part = tensor.spec.name.rpartition(".")[2]
        raise quantizers.NonFiniteWeights(
            f"expected a finite {part} of '{tensor.layer.name}', got NaN or Inf"
        )
    return array
