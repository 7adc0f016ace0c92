"""A policy as its exporters read it: operations with their names and tensors."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from acme_quant import kernels
from acme_quant.policy import payload
from acme_quant.policy.layout import Layout
from acme_quant.policy.qtensor import QTensor
from acme_quant.policy.quantized_policy import QuantizedPolicy

WEIGHTED = ("linear", "conv2d")


# Kind ('random', 'recorded') -> float32 [M, W], observations as rows.
Observations = dict[str, np.ndarray]


class ExportError(ValueError):
    """A policy that a format cannot hold; says in one sentence what it is."""


class Exported(NamedTuple):
    """What an exporter made: file name -> content, and sentences for people."""

    files: dict[str, bytes]
    sentences: list[str]


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of the engine.

    Attributes:
      number: its place in the policy, from 0.
      name: its place in the user's module.
      kind: one of `kernels.KINDS`.
      activation: one of `kernels.ACTIVATIONS`.
      record: its OP_DTYPE record.
      weight: the codes as stored, [N, Kp], None if it has none.
      scale: float32 [N] or [1], or None; of 'clip' the lower bound.
      zero_point: int32 [N] or None.
      bias: float32 [N] or [1], or None; of 'clip' the upper bound.
    """

    number: int
    name: str
    kind: str
    activation: str
    record: np.void
    weight: np.ndarray | None
    scale: np.ndarray | None
    zero_point: np.ndarray | None
    bias: np.ndarray | None

    def __getitem__(self, field: str) -> int:
        """Returns an integer field of the record, such as 'inputs'."""
        return int(self.record[field])

    @property
    def storage(self) -> str:
        """One of `kernels.FORMATS`: how the weight is stored."""
        return kernels.FORMATS[self.record["format"]]

    @property
    def epsilon(self) -> np.float32:
        """The term under the root of 'layer_norm'."""
        return np.float32(self.record["epsilon"])

    def qtensor(self) -> QTensor:
        """Returns the weight of a weighted operation, N outputs and K inputs."""
        shape = (self["outputs"], self["inputs"])
        scale = self.scale if self.storage.startswith("int") else None
        return QTensor(self.storage, self.weight, shape, scale, self.zero_point)

    def as_inputs_first(self, weight: np.ndarray) -> np.ndarray:
        """Returns a weight [N, K] as TensorFlow has it: [K, N] or [kh, kw, c, N]."""
        if self.kind == "linear":
            return np.ascontiguousarray(weight.T)
        sizes = (self["kernel_height"], self["kernel_width"], self["channels"])
        return np.ascontiguousarray(weight.T.reshape(*sizes, -1))

    def __str__(self) -> str:
        """Returns what people call it."""
        return f"operation {self.number} ('{self.name}', {self.kind})"


@dataclasses.dataclass(frozen=True)
class Source:
    """What an exporter is given.

    Attributes:
      policy: the policy.
      layout: its layout, checked.
      operations: in order of execution; the last one writes the action.
    """

    policy: QuantizedPolicy
    layout: Layout
    operations: tuple[Operation, ...]

    @classmethod
    def of(cls, policy: QuantizedPolicy) -> Source:
        """Reads a policy.

        Raises:
          ExportError: a scale, bias or weight of it is not finite.
        """
        decoded = payload.decode(policy.payload)
        layout = Layout.of(decoded.layout)
        tensors = decoded.tensors()
        operations = tuple(
            _operation(number, name, record, tensors)
            for number, (name, record) in enumerate(zip(layout.names, layout.ops))
        )
        return cls(policy, layout, operations)

    @property
    def widths(self) -> list[int]:
        """The numbers in a row of each value."""
        return self.layout.value_widths.tolist()

    @property
    def float_sums(self) -> bool:
        """Whether it sums float32, in an order that the engine's kernels choose."""
        return any(
            op.kind in WEIGHTED and not op["activation_max"] for op in self.operations
        )

    def columns(self) -> list[tuple[str, int, int]]:
        """Returns (field, first column, columns) of each field of an observation."""
        rows, start = [], 0
        for field in self.layout.observation:
            rows.append((field.path, start, field.width))
            start += field.width
        return rows

    def value(self, value: int, rows: np.ndarray) -> np.ndarray:
        """Returns a value inside the policy, float32 [M, its width].

        Args:
          value: its id, 0 for the observation.
          rows: float32 [M, W].
        """
        if value == 0:
            return rows
        last = max(op.number for op in self.operations if op["output"] == value)
        decoded = payload.decode(self.policy.payload)
        program = kernels.Program(
            self.layout.ops[: last + 1],
            decoded.table.spans(),
            self.layout.value_widths,
            decoded.nbytes,
        )
        out = np.empty((len(rows), self.widths[value]), np.float32)
        program.run(decoded.buffer, rows, out)
        return out

    def actions(self, rows: np.ndarray) -> np.ndarray:
        """Returns the engine's actions by its portable kernels, float32 [M, A].

        Args:
          rows: float32 [M, W], observations flattened in the order of `columns`.
        """
        out = np.empty((len(rows), self.layout.output.width), np.float32)
        with _portable():
            policy = QuantizedPolicy.from_bytes(self.policy.payload)
        policy.run_rows(rows, out)
        return out


@contextlib.contextmanager
def _portable() -> Iterator[None]:
    """Makes programs of the portable kernels, whose float32 sums have a fixed order."""
    before = kernels.isa()
    kernels.select_isa("portable")
    try:
        yield
    finally:
        kernels.select_isa(before)


def _operation(
    number: int, name: str, record: np.void, tensors: list[np.ndarray]
) -> Operation:
    parts = {
        part: tensors[record[part]] if record[part] >= 0 else None
        for part in ("weight", "scale", "zero_point", "bias")
    }
    kind = kernels.KINDS[record["kind"]]
    activation = kernels.ACTIVATIONS[record["activation"]]
    operation = Operation(number, name, kind, activation, record, **parts)
    for part, tensor in parts.items():
        if tensor is not None and not np.isfinite(tensor).all():
            raise ExportError(
                f"expected a finite {part} of {operation}, got NaN or Inf."
            )
    return operation
