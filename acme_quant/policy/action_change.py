"""What a number format does to the actions: a policy beside its float32.

A publisher sees no observations, so both run on rows that are made up once, by a fixed
seed: floats are normal (mean 0, standard deviation 1), integers uniform in [0, 255],
booleans even. A policy whose weights a format cannot hold, such as one with outliers,
shows on them; how often its agent meets such observations they do not tell.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from acme_quant.policy import quantizers
from acme_quant.policy.graph import Field, Graph
from acme_quant.policy.payload import Payload
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.requantize import graph_of, variables_of
from acme_quant.policy.writer import PolicyWriter

ROWS = 32
LARGEST_INTEGER = 255
SEED = 0


class ActionChange(NamedTuple):
    """How far a policy's actions are from those of its float32, on made-up rows.

    Attributes:
      largest: of any element of an action, or of action values, in their own unit.
      mean: of all elements.
      greedy: share of rows in [0, 1] whose largest element is another one.
    """

    largest: float
    mean: float
    greedy: float


class Comparison:
    """Compares versions of one policy with their float32."""

    def __init__(self, graph: Graph) -> None:
        """Makes up the rows, and room for the actions.

        Args:
          graph: the lowered policy.
        """
        self._writer = PolicyWriter(graph, "float32")
        self._rows = sample_rows(graph.observation)
        self._actions = np.empty((2, ROWS, graph.output.width), np.float32)
        self._is_float = np.dtype(graph.output.dtype).kind == "f"
        self._float32: Payload | None = None
        self._reference: QuantizedPolicy | None = None
        self._payload: Payload | None = None
        self._policy: QuantizedPolicy | None = None

    def __call__(
        self, variables: Sequence[np.ndarray], written: Payload
    ) -> ActionChange:
        """Returns what the number format of `written` changes.

        Args:
          variables: float32, what the payload was written from; finite.
          written: the policy in the actors' number format.
        """
        room = self._float32 and self._float32.buffer
        self._float32 = self._writer.write(variables, buffer=room)
        self._reference = QuantizedPolicy(self._float32, self._reference)
        self._payload = written
        self._policy = QuantizedPolicy(written, self._policy)
        self._reference.run_rows(self._rows, self._actions[0])
        return self._change(self._policy)

    def worst_layer(self) -> str:
        """Names the layer of the last call whose weights alone change actions most."""
        payload, float32 = self._payload, self._float32.tensors()
        graph = graph_of(payload)
        weights, changes = variables_of(payload, graph), []
        for layer, at in zip(graph.layers, graph_of(self._float32).layers):
            if layer.weight is None:
                continue
            weight, room = weights[layer.weight.variable], float32[at.weight.variable]
            kept = room.copy()
            matrix = weight.reshape(-1, weight.shape[-1])
            quantizers.get("float32").quantize(matrix, out=room)
            changes.append((self._change(self._reference).largest, layer.name))
            room[...] = kept
        largest, name = max(changes, default=(0.0, ""))
        return f"the weights of '{name}' alone change them by {largest:.3g}"

    def _change(self, policy: QuantizedPolicy) -> ActionChange:
        reference, actions = self._actions
        policy.run_rows(self._rows, actions)
        with np.errstate(all="ignore"):  # Weights of 1e38 are finite, actions are not.
            change = np.abs(actions - reference)
        if not self._is_float:
            change = change != 0
        other = actions.argmax(axis=1) != reference.argmax(axis=1)
        return ActionChange(
            float(change.max()), float(change.mean()), float(other.mean())
        )


def sample_rows(fields: Sequence[Field]) -> np.ndarray:
    """Returns made-up observations, the same each time: float32 [ROWS, W]."""
    rng = np.random.default_rng(SEED)
    rows = []
    for field in fields:
        kind, shape = np.dtype(field.dtype).kind, (ROWS, field.width)
        if kind == "f":
            rows.append(rng.normal(size=shape))
        else:
            top = 1 if kind == "b" else min(LARGEST_INTEGER, np.iinfo(field.dtype).max)
            rows.append(rng.integers(0, top, shape, endpoint=True))
    return np.concatenate(rows, axis=1).astype(np.float32)
