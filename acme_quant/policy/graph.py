"""A policy as a short list of layers: what lowering produces, without TensorFlow.

A `Graph` says how an action follows from an observation and *which* of the learner's
variables each layer reads; it holds no weights but constants. It is small, picklable
and the same for every version of one policy, so it is made once and sent once.

Values are rows of float32: value 0 is the observation, all its fields flattened and
concatenated in the order of `Graph.observation`; each layer writes one value. Batched
values have a leading M that no layer mentions.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np


class LoweringError(ValueError):
    """A policy does something that the engine has no layer for."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One array of an observation, or the action.

    Attributes:
      keys: where the array stands in the nested structure, outermost key first; a
        `str` looks into a mapping, an `int` into a sequence (or a mapping with such
        keys). Empty if the structure is the array itself.
      shape: the shape without a batch dimension.
      dtype: the NumPy name of the element type, such as 'float32'.
    """

    keys: tuple
    shape: tuple[int, ...]
    dtype: str

    @property
    def path(self) -> str:
        """Where the array stands, for people: 'position' or 'camera/0'."""
        return "/".join(str(key) for key in self.keys) or "observation"

    @property
    def width(self) -> int:
        """The number of elements: the columns the array takes in a row."""
        return math.prod(self.shape)

    def to_json(self) -> list:
        """Returns [keys, shape, dtype] as plain lists."""
        return [list(self.keys), list(self.shape), self.dtype]

    @classmethod
    def from_json(cls, value: Sequence) -> Field:
        """Reads what `to_json` wrote.

        Raises:
          ValueError: if `value` is not such a list.
        """
        try:
            keys, shape, dtype = value
            field = cls(tuple(keys), tuple(shape), np.dtype(dtype).name)
            sound = np.dtype(dtype).kind in "biuf"
            sound = sound and all(type(n) is int and n >= 0 for n in field.shape)
            sound = sound and all(type(key) in (str, int) for key in field.keys)
        except (TypeError, ValueError):
            sound = False
        if not sound:
            raise ValueError(f"expected [keys, shape, dtype] of a field, got {value!r}")
        return field


# What a layer's tensor may be computed by from variables, at each publication.
COMPUTED: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "divide": np.divide,
    "exp": np.exp,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "repeat": lambda array: array,
    "sqrt": np.sqrt,
    "square": np.square,
    "subtract": np.subtract,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Parameter:
    """A tensor that a layer reads: a variable of the learner, a constant, or computed.

    Attributes:
      shape: as TensorFlow has it: [K, N] linear, [kh, kw, c, N] conv2d,
        else [K] or [1].
      variable: the index into the learner's list of variables, -1 for a constant.
      constant: float32 of `shape`, None for a variable.
      computed: an entry of `COMPUTED`, '' for a variable or a constant; 'repeat' fills
        `shape` with its operand again and again.
      operands: what it is computed from.
    """

    shape: tuple[int, ...]
    variable: int = -1
    constant: np.ndarray | None = None
    computed: str = ""
    operands: tuple[Parameter, ...] = ()

    @property
    def variables(self) -> frozenset[int]:
        """The indices of all variables that the tensor is made from."""
        own = {self.variable} - {-1}
        return frozenset(own.union(*(part.variables for part in self.operands)))

    @classmethod
    def of(cls, constant: np.ndarray) -> Parameter:
        """Makes a constant, float32."""
        constant = np.ascontiguousarray(constant, np.float32)
        return cls(constant.shape, constant=constant)

    @classmethod
    def compute(cls, operation: str, *operands: Parameter) -> Parameter:
        """Makes a tensor computed from others, by NumPy's rules of broadcasting."""
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        return cls(shape, computed=operation, operands=operands)

    def value(self, variables: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the tensor, of `shape`, reading the learner's variables.

        What is computed is so in float64, and rounded once; it may not be finite.
        """
        if self.computed:
            return self._exact(variables).astype(np.float32)
        array = self.constant if self.variable < 0 else variables[self.variable]
        return np.asarray(array).reshape(self.shape)

    def _exact(self, variables: Sequence[np.ndarray]) -> np.ndarray:
        if not self.computed:
            return self.value(variables).astype(np.float64)
        operands = [operand._exact(variables) for operand in self.operands]
        with np.errstate(all="ignore"):
            result = COMPUTED[self.computed](*operands)
        if self.computed == "repeat":
            return np.resize(result, self.shape)
        return result.reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class ConvGeometry:
    """Sizes of a 2-D convolution on NHWC images, in pixels; padding is zeros."""

    height: int
    width: int
    channels: int
    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    pad_top: int
    pad_left: int
    out_height: int
    out_width: int


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """One operation of the engine; `acme_quant.kernels` defines each kind's formula.

    Attributes:
      kind: one of `kernels.KINDS`.
      inputs: ids of one or two values.
      output: id of the value written; only 'copy' layers may share one.
      width: elements read from the input row (`K`; 'copy': columns copied).
      outputs: elements written (`N`; 'conv2d': channels of a pixel).
      activation: one of `kernels.ACTIVATIONS`, applied to the result.
      weight: [K, N] or [kh, kw, c, N] of 'linear' and 'conv2d'.
      scale: 'layer_norm', 'affine': the factor; 'clip': the lower bound.
      bias: the term added; 'clip': the upper bound.
      geometry: of 'conv2d' and 'max_pool'.
      epsilon: of 'layer_norm'.
      input_offset: first column read, 'copy' only.
      output_offset: first column written, 'copy' only.
      name: where the layer stands in the user's module, for reports.
    """

    kind: str
    inputs: tuple[int, ...]
    output: int
    width: int
    outputs: int
    activation: str = "identity"
    weight: Parameter | None = None
    scale: Parameter | None = None
    bias: Parameter | None = None
    geometry: ConvGeometry | None = None
    epsilon: float = 0.0
    input_offset: int = 0
    output_offset: int = 0
    name: str = ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The tensors the layer reads."""
        every = (self.weight, self.scale, self.bias)
        return tuple(parameter for parameter in every if parameter is not None)


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """A lowered policy.

    Attributes:
      layers: in order of execution; the last one writes the action.
      value_widths: elements of each value's row; entry 0 is the observation.
      observation: the fields of the observation, mappings in sorted order of keys.
      output: the action.
      variable_shapes: the shapes of all of the learner's variables, in its order;
        a policy may leave some of them unread.
    """

    layers: tuple[Layer, ...]
    value_widths: tuple[int, ...]
    observation: tuple[Field, ...]
    output: Field
    variable_shapes: tuple[tuple[int, ...], ...]

    @property
    def num_variables(self) -> int:
        """The length of the learner's list of variables."""
        return len(self.variable_shapes)

    def check_variables(self, variables: Sequence[np.ndarray]) -> None:
        """Checks that a list of variables is the one this graph was lowered for.

        Raises:
          ValueError: if the number, a shape or an element type differs.
        """
        if len(variables) != self.num_variables:
            raise ValueError(
                f"expected {self.num_variables} variables of the policy, "
                f"got {len(variables)}"
            )
        parameters = [p for layer in self.layers for p in layer.parameters]
        for index in sorted(frozenset().union(*(p.variables for p in parameters))):
            expected, array = self.variable_shapes[index], variables[index]
            shape = getattr(array, "shape", None)
            dtype = getattr(array, "dtype", type(array))
            if shape != expected or dtype != np.float32:
                raise ValueError(
                    f"expected variable {index} of the policy to be float32 "
                    f"{list(expected)}, got {dtype} {list(shape or ())}"
                )


def flatten(structure: Any) -> list[tuple[tuple, Any]]:
    """Flattens nested mappings and sequences in dm-tree's order.

    Args:
      structure: mappings (read in sorted order of keys), lists and tuples, of leaves.

    Returns:
      (keys, leaf) for every leaf, with keys as in `Field`.
    """
    if isinstance(structure, Mapping):
        items = [(key, structure[key]) for key in sorted(structure)]
    elif isinstance(structure, (list, tuple)):
        items = list(enumerate(structure))
    else:
        return [((), structure)]
    return [
        ((key, *keys), leaf) for key, inner in items for keys, leaf in flatten(inner)
    ]
