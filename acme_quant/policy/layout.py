"""The layout of a payload, read with care: what `PolicyWriter` writes, checked.

The sender of a payload is not trusted. Types and lengths are checked here, but those of
the key 'tensors': `payload.decode` has read it already, to find the tensors. The engine
checks the operations themselves.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Tuple

import numpy as np

from acme_quant import kernels
from acme_quant.policy.graph import Field
from acme_quant.policy.payload import PayloadError

KEYS = frozenset(
    "activations names observation ops output quantizer tensors value_widths".split()
)


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
