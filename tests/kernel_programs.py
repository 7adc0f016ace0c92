"""Small programs for the kernel tests, and the ways they are run and compared."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Iterator, List, Optional, Sequence

import numpy as np

from acme_quant import kernels
from acme_quant.kernels import reference

ALIGNMENT = 64


def padded(width: int) -> int:
    return -(-width // kernels.ROW) * kernels.ROW


@contextlib.contextmanager
def using(isa: str) -> Iterator[None]:
    before = kernels.isa()
    kernels.select_isa(isa)
    try:
        yield
    finally:
        kernels.select_isa(before)


def operation(kind: str, **fields: Any) -> np.void:
    """Returns one operation record; formats and activations by their names."""
    op = np.zeros((), kernels.OP_DTYPE)
    for name in ("other", "weight", "scale", "zero_point", "bias"):
        op[name] = -1
    op["output"] = 1
    op["kind"] = kernels.KINDS.index(kind)
    names = {"format": kernels.FORMATS, "activation": kernels.ACTIVATIONS}
    for name, value in fields.items():
        op[name] = names[name].index(value) if isinstance(value, str) else value
    return op


@dataclasses.dataclass
class Built:
    """A program's parts: OP_DTYPE [L], its tensors, and the width of each value."""

    ops: np.ndarray
    tensors: List[np.ndarray]
    value_widths: List[int]

    def __post_init__(self) -> None:
        self.ops = np.atleast_1d(np.array(self.ops, kernels.OP_DTYPE))

    def table(self) -> np.ndarray:
        """Returns int64 [T, 2]: each tensor's offset and size in the payload."""
        rows, offset = [], 0
        for tensor in self.tensors:
            rows.append((offset, tensor.nbytes))
            offset += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return np.array(rows, np.int64).reshape(-1, 2)

    def payload(self) -> np.ndarray:
        table = self.table()
        size = int((table[:, 0] + table[:, 1]).max(initial=0))
        payload = np.zeros(-(-size // ALIGNMENT) * ALIGNMENT, np.uint8)
        for (offset, nbytes), tensor in zip(table, self.tensors):
            payload[offset : offset + nbytes] = tensor.reshape(-1).view(np.uint8)
        return payload

    def program(self) -> kernels.Program:
        return kernels.Program(
            self.ops,
            self.table(),
            np.array(self.value_widths, np.int32),
            self.payload().nbytes,
        )

    def run(self, rows: np.ndarray, isa: Optional[str] = None) -> np.ndarray:
        with using(isa or kernels.isa()):
            program = self.program()
        out = np.full((len(rows), program.output_width), np.nan, np.float32)
        program.run(self.payload(), rows, out)
        return out

    def expected(self, rows: np.ndarray) -> np.ndarray:
        return reference.run(self.ops, self.tensors, self.value_widths, rows)


def observations(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    return rng.normal(size=(rows, width)).astype(np.float32)


def vector(rng: np.random.Generator, width: int) -> np.ndarray:
    return rng.normal(size=width).astype(np.float32)


def integer_codes(
    rng: np.random.Generator, rows: int, width: int, limit: int, extreme: bool
) -> np.ndarray:
    """Returns int8 [rows, Kp] of codes within the limit, or all at its two ends."""
    codes = np.zeros((rows, padded(width)), np.int8)
    if extreme:
        codes[:, :width] = limit * rng.choice([-1, 1], size=(rows, 1))
    else:
        codes[:, :width] = rng.integers(-limit, limit + 1, (rows, width))
    return codes


def largest_activation(inputs: int, zero_point: bool = False) -> int:
    return min(32640, (2**31 - 1) // ((254 if zero_point else 127) * inputs))


def linear(
    rng: np.random.Generator,
    inputs: int,
    outputs: int,
    weight_format: str = "int8",
    *,
    zero_point: bool = False,
    bias: bool = True,
    activation_max: Optional[int] = None,
    activation: str = "identity",
    extreme: bool = False,
    kind: str = "linear",
    widths: Optional[Sequence[int]] = None,
    **fields: int,
) -> Built:
    """Returns a program of one linear (or conv2d) operation."""
    if weight_format.startswith("int"):
        limit = 127 if weight_format == "int8" else 7
        weight = integer_codes(rng, outputs, inputs, limit, extreme)
        if weight_format == "int4":
            weight = reference.pack_int4(weight)
        if activation_max is None:
            activation_max = largest_activation(inputs, zero_point)
    else:
        weight = np.zeros((outputs, padded(inputs)), weight_format)
        weight[:, :inputs] = rng.normal(size=(outputs, inputs))
    tensors = [weight]
    for name, wanted, tensor in (
        ("scale", weight_format.startswith("int"), rng.uniform(0.1, 1, outputs)),
        ("zero_point", zero_point, rng.integers(-127, 128, outputs).astype(np.int32)),
        ("bias", bias, rng.normal(size=outputs)),
    ):
        if wanted:
            fields[name] = len(tensors)
            wide = tensor.dtype == np.float64
            tensors.append(tensor.astype(np.float32) if wide else tensor)
    op = operation(
        kind,
        weight=0,
        inputs=inputs,
        outputs=outputs,
        format=weight_format,
        activation=activation,
        activation_max=activation_max or 0,
        **fields,
    )
    return Built(op, tensors, list(widths or [inputs, outputs]))


def conv2d(
    rng: np.random.Generator,
    weight_format: str = "int8",
    *,
    image: Sequence[int] = (9, 7, 3),
    kernel: Sequence[int] = (3, 2),
    stride: Sequence[int] = (2, 1),
    pad: Sequence[int] = (1, 1),
    out: Sequence[int] = (5, 8),
    outputs: int = 5,
    **options: Any,
) -> Built:
    """Returns a program of one convolution over images [height, width, channels]."""
    return linear(
        rng,
        kernel[0] * kernel[1] * image[2],
        outputs,
        weight_format,
        kind="conv2d",
        widths=[int(np.prod(image)), out[0] * out[1] * outputs],
        **dict(zip(("height", "width", "channels"), image)),
        **dict(zip(("kernel_height", "kernel_width"), kernel)),
        **dict(zip(("stride_height", "stride_width"), stride)),
        **dict(zip(("pad_top", "pad_left"), pad)),
        **dict(zip(("out_height", "out_width"), out)),
        **options,
    )


def row_program(
    rng: np.random.Generator, kind: str, width: int, output_width: int, **fields: Any
) -> Built:
    """Returns a program of one operation over rows; `scale` and `bias` of the given
    numbers of elements, where they are given."""
    tensors = []
    for name in ("scale", "bias"):
        if name in fields:
            tensors.append(vector(rng, fields[name]))
            fields[name] = len(tensors) - 1
    return Built(operation(kind, **fields), tensors, [width, output_width])


def mlp(
    rng: np.random.Generator, widths: Sequence[int], weight_format: str = "int8"
) -> Built:
    """Returns tanh layers of the given widths."""
    ops, tensors = [], []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layer = linear(rng, inputs, outputs, weight_format, activation="tanh")
        op = layer.ops[0]
        op["input"], op["output"] = i, i + 1
        for name in ("weight", "scale", "bias"):
            op[name] += len(tensors) if op[name] >= 0 else 0
        if op["scale"] >= 0:
            layer.tensors[1] /= np.float32(127 * np.sqrt(inputs))
        ops.append(op)
        tensors += layer.tensors
    return Built(np.array(ops), tensors, list(widths))


def good() -> Built:
    """Returns linear 5 -> 3, layer norm, and a sum with the first value's columns."""
    rng = np.random.default_rng(0)
    built = linear(rng, 5, 3)
    ops = [
        built.ops[0],
        operation("layer_norm", input=1, output=2, scale=2, bias=2, epsilon=1e-5),
        operation("copy", input=0, output=3, inputs=3, input_offset=1),
        operation("add", input=2, other=3, output=4),
    ]
    return Built(np.array(ops), built.tensors, [5, 3, 3, 3, 3])
