"""The layout of a payload, read with care: what `PolicyWriter` writes, checked.

The sender of a payload is not trusted. Types and lengths are checked here; the engine
checks the operations themselves.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterator, Mapping, Tuple

import numpy as np

from acme_quant import kernels
from acme_quant.graph import Field
from acme_quant.payload import PayloadError

KEYS = frozenset(
    "activations names observation ops output quantizer tensors value_widths".split()
)


class ObservationError(ValueError):
    """An observation is not what the policy was made for."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The part of a payload that is the same for every version of a policy.

    Attributes:
      ops: OP_DTYPE [L].
      names: the place of each operation in the user's module.
      value_widths: int32 [V].
      observation: the fields of an observation, in the order of a row.
      output: the action.
      quantizer: its name.
      activations: 'wide' or '8bit'.
    """

    ops: np.ndarray
    names: Tuple[str, ...]
    value_widths: np.ndarray
    observation: Tuple[Field, ...]
    output: Field
    quantizer: str
    activations: str

    @classmethod
    def of(cls, layout: Dict[str, Any]) -> Layout:
        """Reads a decoded layout.

        Raises:
          PayloadError: if a part is missing, unknown or of another type.
        """
        if set(layout) != KEYS:
            raise PayloadError(
                f"expected a layout of {sorted(KEYS)}, got {sorted(layout)}"
            )
        for name in ("names", "observation", "ops", "value_widths"):
            if not isinstance(layout[name], list):
                raise PayloadError(f"expected a list of {name} in the layout")
        text = [*layout["names"], layout["quantizer"], layout["activations"]]
        if not all(isinstance(part, str) for part in text):
            raise PayloadError("expected names in the layout to be strings")
        try:
            fields = tuple(Field.from_json(field) for field in layout["observation"])
            output = Field.from_json(layout["output"])
        except ValueError as error:
            raise PayloadError(str(error)) from error
        ops = _integers("ops", layout["ops"], len(kernels.OP_FIELDS))
        widths = layout["value_widths"]
        widths = _integers("value_widths", [widths], len(widths))[0]
        result = cls(
            ops.view(kernels.OP_DTYPE).reshape(-1),
            tuple(layout["names"]),
            widths,
            fields,
            output,
            layout["quantizer"],
            layout["activations"],
        )
        result._check_widths()
        return result

    def _check_widths(self) -> None:
        """Checks that fields, values and names go together."""
        if not self.observation:
            raise PayloadError("expected at least one field of the observation")
        if len(self.names) != len(self.ops) or not len(self.ops):
            raise PayloadError(
                f"expected a name for each operation, got {len(self.names)} names "
                f"for {len(self.ops)}"
            )
        last = int(self.ops["output"][-1])
        widths = self.value_widths.tolist()
        if not widths or not 0 <= last < len(widths):
            raise PayloadError(f"expected the width of value {last} in the layout")
        expected = (sum(f.width for f in self.observation), self.output.width)
        if (widths[0], widths[last]) != expected:
            raise PayloadError(
                f"expected observation and action of {expected} numbers, got "
                f"{(widths[0], widths[last])}"
            )

    def select(self, observation: Any) -> Iterator[Tuple[Field, Any]]:
        """Yields each field and its array in a nested observation.

        Raises:
          ObservationError: if a key is missing or there is one too many.
        """
        for field in self.observation:
            yield field, _look_up(field, observation)
        if self.observation[0].keys:
            expected, found = len(self.observation), _count_leaves(observation)
            if found != expected:
                paths = ", ".join(field.path for field in self.observation)
                raise ObservationError(
                    f"expected an observation of {expected} fields ({paths}), "
                    f"got {found}"
                )

    def batch_size(self, observations: Any) -> int:
        """Returns the rows of a batch, by its first field.

        Raises:
          ObservationError: if there is no such field or it has no dimensions.
        """
        shape = np.shape(_look_up(self.observation[0], observations))
        if not shape:
            raise ObservationError("expected observations with a leading batch size")
        return shape[0]


def _look_up(field: Field, observation: Any) -> Any:
    for key in field.keys:
        try:
            observation = observation[key]
        except (KeyError, IndexError, TypeError) as error:
            raise ObservationError(
                f"expected '{field.path}' in the observation, got "
                f"{_describe(observation)}"
            ) from error
    if isinstance(observation, Mapping):
        raise ObservationError(
            f"expected an array as '{field.path}', got {_describe(observation)}"
        )
    return observation


def _describe(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return f"keys {sorted(map(str, observation))}"
    if isinstance(observation, (list, tuple)):
        return f"{len(observation)} entries"
    return type(observation).__name__


def _count_leaves(observation: Any) -> int:
    if isinstance(observation, Mapping):
        return sum(map(_count_leaves, observation.values()))
    if isinstance(observation, (list, tuple)):
        return sum(map(_count_leaves, observation))
    return 1


def _integers(name: str, rows: list, width: int) -> np.ndarray:
    """Returns int32 rows of one width.

    Raises:
      PayloadError: if an entry is not an int32 or a row has another width.
    """
    limits = np.iinfo(np.int32)
    for row in rows:
        sound = isinstance(row, list) and len(row) == width
        if not sound or not all(
            type(n) is int and limits.min <= n <= limits.max for n in row
        ):
            raise PayloadError(f"expected rows of int32 as '{name}' in the layout")
    return np.array(rows, np.int32).reshape(len(rows), width)
