"""A quantized policy that a person can call: observation in, action out.

    policy = acme_quant.quantize_policy(module, observation_spec)
    action = policy(observation)
    policy.save("walker.aq");  QuantizedPolicy.load("walker.aq")

A `QuantizedPolicy` is one payload, read in place, and the engine's program over it. It
needs NumPy alone; any number of threads may call it.
"""

from __future__ import annotations

import os
import pathlib
import threading
from typing import Any, Callable, List, NamedTuple, Sequence, Union

import numpy as np

from acme_quant import kernels
from acme_quant.policy import payload, quantizers
from acme_quant.policy.graph import Field, Graph
from acme_quant.policy.layout import Layout
from acme_quant.policy.payload import Payload, PayloadError, Table
from acme_quant.policy.rows import ObservationError, RowFiller
from acme_quant.policy.writer import PolicyWriter

PathLike = Union[str, "os.PathLike[str]"]


class LayerReport(NamedTuple):
    """What became of one layer.

    Attributes:
      name: the layer's place in the user's module.
      kind: one of `kernels.KINDS`.
      format: what its weights are stored as, 'float32' if it has none.
      quantized: whether that is an integer format.
      nbytes: bytes of its weights, scales and biases.
      why: the reason for the format, in a few words.
    """

    name: str
    kind: str
    format: str
    quantized: bool
    nbytes: int
    why: str


class _Shared(NamedTuple):
    """What versions of one policy have in common: they were decoded with one table."""

    table: Table
    layout: Layout
    program: kernels.Program
    filler: RowFiller

    @classmethod
    def of(cls, decoded: Payload) -> _Shared:
        """Reads the layout; the engine checks every number of it.

        Raises:
          PayloadError: if the layout does not describe a policy.
        """
        layout = Layout.of(decoded.layout)
        spans, widths = decoded.table.spans(), layout.value_widths
        try:
            program = kernels.Program(layout.ops, spans, widths, decoded.nbytes)
        except ValueError as error:
            raise PayloadError(
                f"expected a layout the engine can run: {error}"
            ) from error
        return cls(decoded.table, layout, program, RowFiller(layout.observation))


class QuantizedPolicy:
    """One version of a policy; immutable."""

    def __init__(self, decoded: Payload, like: QuantizedPolicy | None = None) -> None:
        """Takes a payload as it is; `like` lends its program if the layout is the same.

        Raises:
          PayloadError: if the layout does not describe a policy.
        """
        self._payload = decoded
        self._buffer = decoded.buffer
        shared = None if like is None else like._shared
        if shared is None or shared.table is not decoded.table:
            shared = _Shared.of(decoded)
        self._shared = shared
        self._layout, self._filler = shared.layout, shared.filler
        self._run = shared.program.run
        # One flat array of floats is a row as it comes.
        (first, *others), output = self._layout.observation, self._layout.output
        flat = not others and not first.keys and len(first.shape) == 1
        self._is_row = flat and np.dtype(first.dtype).kind == "f"
        self._is_action = len(output.shape) == 1 and output.dtype == "float32"
        self._room = (1, output.width)

    @classmethod
    def from_bytes(
        cls, buffer: payload.Buffer, like: QuantizedPolicy | None = None
    ) -> QuantizedPolicy:
        """Reads a policy from bytes, in place; the buffer must not change any more.

        Args:
          buffer: a whole payload.
          like: an earlier version, to share its program if the layout is the same.

        Raises:
          PayloadError: if the bytes are cut short, damaged, of another format version
            or not a policy; a `ValueError`.
        """
        table = None if like is None else like._shared.table
        return cls(payload.decode(buffer, table), like)

    def replace(self, buffer: payload.Buffer) -> QuantizedPolicy:
        """Returns the policy in `buffer`, sharing this one's program if it can.

        Raises:
          PayloadError: as `from_bytes`.
        """
        return QuantizedPolicy.from_bytes(buffer, like=self)

    @classmethod
    def load(cls, path: PathLike) -> QuantizedPolicy:
        """Reads a policy that `save` wrote.

        Raises:
          OSError: if the file cannot be read.
          PayloadError: as `from_bytes`; names the file.
        """
        content = np.fromfile(os.fspath(path), np.uint8)
        try:
            return cls.from_bytes(content)
        except PayloadError as error:
            raise PayloadError(f"{os.fspath(path)}: {error}") from error

    def save(self, path: PathLike) -> None:
        """Writes the policy's bytes to `path`, whole or not at all.

        Raises:
          OSError: if the file cannot be written.
        """
        path = pathlib.Path(path)
        temporary = path.with_name(
            f".{path.name}.{os.getpid()}.{threading.get_ident()}"
        )
        try:
            temporary.write_bytes(self._buffer)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def __reduce__(self) -> tuple:
        """Pickles and copies the policy by its bytes."""
        return type(self).from_bytes, (bytes(self._buffer),)

    # --- Acting -----------------------------------------------------------------

    def __call__(self, observation: Any) -> np.ndarray:
        """Returns the action for one observation.

        Args:
          observation: a nest as the policy was lowered for, without batch dimension.

        Returns:
          The action, in the shape and dtype of the module's output.

        Raises:
          ObservationError: if a field is missing, unknown, of another shape, of a
            dtype that does not convert without loss of kind, or not finite.
        """
        action = np.empty(self._room, np.float32)
        if self._is_row:
            # What is wrong with an observation is left for the engine to find, so that
            # a good one, which is nearly every one of a run, is looked at once.
            try:
                self._run(self._buffer, observation[None], action)
            except (ValueError, TypeError, LookupError):
                self.run_rows(self._filler.rows(observation)[None], action)
        else:
            self.run_rows(self._filler.rows(observation)[None], action)
        return action[0] if self._is_action else self._shape_action(action[0], ())

    def batch(self, observations: Any) -> np.ndarray:
        """Returns the actions for M observations, [M, ...].

        Args:
          observations: a nest as for a call, every field with a leading M.

        Raises:
          ObservationError: as a call; also if fields differ in M.
        """
        if self._is_row:
            try:
                actions = np.empty((len(observations), self.output.width), np.float32)
                self._run(self._buffer, observations, actions)
            except (ValueError, TypeError):
                actions = self._batch_of_nests(observations)
        else:
            actions = self._batch_of_nests(observations)
        return self._shape_action(actions, (len(actions),))

    def _batch_of_nests(self, observations: Any) -> np.ndarray:
        """Returns the rows of actions for M observations of any structure."""
        size = self._filler.batch_size(observations)
        actions = np.empty((size, self.output.width), np.float32)
        self.run_rows(self._filler.rows(observations, (size,)), actions)
        return actions

    def run_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Runs the engine on flattened observations.

        Args:
          rows: float32 [M, W], C-contiguous, fields in the order of `observation`.
          out: float32 [M, A], C-contiguous, written.

        Raises:
          ObservationError: if a number is not finite, or the arrays are others.
        """
        try:
            self._run(self._buffer, rows, out)
        except ValueError as error:
            raise self._explain(rows, error) from error

    def _shape_action(self, action: np.ndarray, leading: tuple) -> np.ndarray:
        output = self._layout.output
        return action.reshape(leading + output.shape).astype(output.dtype, copy=False)

    def _explain(self, rows: np.ndarray, error: ValueError) -> ObservationError:
        """Says which field is not finite, or else what the engine says."""
        return ObservationError(self._filler.not_finite(rows) or str(error))

    # --- Reports ----------------------------------------------------------------

    @property
    def payload(self) -> memoryview:
        """The policy's bytes, read-only."""
        return self._buffer.toreadonly()

    @property
    def version(self) -> int:
        """The policy version: counts publications."""
        return self._payload.policy_version

    @property
    def learner_step(self) -> int:
        """The learner's step that the weights come from."""
        return self._payload.learner_step

    @property
    def quantizer(self) -> str:
        """The name of the quantizer."""
        return self._layout.quantizer

    @property
    def activations(self) -> str:
        """How inputs of integer layers are quantized: 'wide' or '8bit'."""
        return self._layout.activations

    @property
    def observation(self) -> tuple[Field, ...]:
        """The fields of an observation, in the order of a row."""
        return self._layout.observation

    @property
    def output(self) -> Field:
        """The action's shape and dtype."""
        return self._layout.output

    @property
    def nbytes(self) -> int:
        """Bytes of the whole policy, its description included."""
        return self._payload.nbytes

    def layers(self) -> List[LayerReport]:
        """Returns what became of each layer, in order of execution."""
        nbytes = [spec.nbytes for spec in self._payload.table.specs]
        return [
            LayerReport(
                name,
                kernels.KINDS[op["kind"]],
                kernels.FORMATS[op["format"]],
                kernels.FORMATS[op["format"]].startswith("int"),
                sum(nbytes[tensor] for tensor in _tensor_ids(op)),
                _why(op),
            )
            for name, op in zip(self._layout.names, self._layout.ops)
        ]

    def max_action_change(
        self,
        observations: Any,
        reference: QuantizedPolicy | Callable[[Any], Any],
    ) -> float:
        """Returns how far the actions are from another policy's, at most.

        Args:
          observations: a batch, as for `batch`.
          reference: the policy to compare with, such as the float32 one; a
            QuantizedPolicy, or a function of the batch that returns actions.

        Returns:
          The largest absolute difference of any element of an action; of integer
          actions, the share of observations whose action differs.
        """
        run = reference.batch if isinstance(reference, QuantizedPolicy) else reference
        mine, other = self.batch(observations), np.asarray(run(observations))
        if mine.shape != other.shape:
            raise ValueError(
                f"expected actions {list(mine.shape)} of the reference, "
                f"got {list(other.shape)}"
            )
        if mine.dtype.kind != "f":
            return float((mine != other).mean()) if mine.size else 0.0
        return float(np.abs(mine - other).max(initial=0))

    def __repr__(self) -> str:
        """Returns what the policy is, in one line."""
        return (
            f"QuantizedPolicy({self.quantizer}, {len(self._layout.ops)} layers, "
            f"{self.nbytes} bytes, version {self.version})"
        )


def quantize_graph(
    graph: Graph,
    variables: Sequence[np.ndarray],
    quantizer: str | quantizers.Quantizer = "int8",
    activations: str = "wide",
    policy_version: int = 0,
    learner_step: int = 0,
) -> QuantizedPolicy:
    """Quantizes one version of a lowered policy; see `PolicyWriter` for many.

    Raises:
      NonFiniteWeights: if a variable holds a NaN or Inf.
      ValueError: if the variables are not the graph's, or a name is unknown.
    """
    writer = PolicyWriter(graph, quantizer, activations)
    return QuantizedPolicy(writer.write(variables, policy_version, learner_step))


def _tensor_ids(op: np.void) -> List[int]:
    ids = (int(op[part]) for part in ("weight", "scale", "zero_point", "bias"))
    return [number for number in ids if number >= 0]


def _why(op: np.void) -> str:
    """Returns the reason for a layer's number format."""
    if kernels.KINDS[op["kind"]] not in ("linear", "conv2d"):
        return "a few numbers, computed in float32: quantizing them would save nothing"
    storage = kernels.FORMATS[op["format"]]
    if not storage.startswith("int"):
        return f"the quantizer stores weights as {storage}"
    largest = int(op["activation_max"])
    if largest == 0:
        return f"weights {storage}; inputs float32, too many for exact int32 sums"
    return f"weights {storage}, one scale per output; inputs in codes up to {largest}"
