"""What lowering knows of a tensor of the traced policy, and the layers it writes.

  View      columns of an engine value, so that reshaping and slicing cost nothing
  Constant  known when lowering; pure-constant operations are evaluated then
  Variable  one of the learner's variables, known only when running

TensorFlow itself stays out of this module.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence, Tuple, Union

import numpy as np

from acme_quant.policy.graph import Layer, LoweringError, Parameter


@dataclasses.dataclass(frozen=True)
class View:
    """Columns `offset`, `offset + 1`, ... of a value, read in row-major `shape`.

    `shape` and `dtype` are TensorFlow's, without the batch dimension; the engine holds
    every element as float32. `folded` says that TensorFlow's batch dimension holds the
    first one of `shape` as well, as it does within tf.tensordot.
    """

    value: int
    offset: int
    shape: tuple[int, ...]
    dtype: str
    folded: bool = False

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A known tensor; `of_batch` if it was computed from the size of the batch."""

    array: np.ndarray
    of_batch: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Variable:
    """A tensor made from the learner's variables alone; reshaping keeps its source."""

    source: Parameter
    shape: tuple[int, ...]

    def parameter(self, shape: tuple[int, ...]) -> Parameter:
        """Returns it as a layer reads it, in another shape of as many elements."""
        return dataclasses.replace(self.source, shape=shape)


Meaning = Union[View, Constant, Variable]


@dataclasses.dataclass(eq=False)
class Node:
    """One operation of the traced policy, nested functions inlined.

    `inputs` are (node, output number); `attributes` reads an attribute by its name.
    """

    type: str
    name: str
    inputs: list
    attributes: Callable[[str], Any]
    operation: Any = None

    @property
    def scope(self) -> str:
        """The module the operation belongs to, as its name tells."""
        return self.name.rpartition("/")[0] or self.name

    def refuse(self, why: str) -> LoweringError:
        """Returns the error that says what cannot be lowered, where and why."""
        return LoweringError(
            f"acme_quant cannot lower the operation '{self.type}' at '{self.name}': "
            f"{why}"
        )


Reference = Tuple[Node, int]


class LayerList:
    """The layers written so far, and their values."""

    def __init__(self, observation_width: int, batch: int) -> None:
        """Starts with the observation as value 0 and shapes computed for `batch`."""
        self.layers: list[Layer] = []
        self.widths = [observation_width]
        self.batch = batch
        self._copies: dict[tuple[int, int, int], int] = {}

    def append(
        self,
        node: Node,
        kind: str,
        inputs: Sequence[View],
        shape: tuple[int, ...],
        dtype: str = "float32",
        **parts: Any,
    ) -> View:
        """Appends a layer that computes a new value of `shape` from whole views."""
        for view in inputs:
            if view.folded:
                raise node.refuse("it mixes the batch dimension with others")
            if view.dtype != "float32":
                raise node.refuse(
                    f"it computes in {view.dtype}, and the engine in float32; cast the "
                    "observation to float32 first"
                )
        values = tuple(self.whole(view, node) for view in inputs)
        result = View(len(self.widths), 0, shape, dtype)
        parts.setdefault("outputs", result.width)
        self.layers.append(
            Layer(kind, values, result.value, inputs[0].width, name=node.scope, **parts)
        )
        self.widths.append(result.width)
        return result

    def whole(self, view: View, node: Node) -> int:
        """Returns a value that holds just the columns of `view`, copying if needed."""
        if view.offset == 0 and view.width == self.widths[view.value]:
            return view.value
        key = (view.value, view.offset, view.width)
        if key not in self._copies:
            self._copies[key] = self.concatenate(node, [view]).value
        return self._copies[key]

    def concatenate(self, node: Node, views: Sequence[View]) -> View:
        """Appends copies of `views`, side by side, into one new value."""
        result = View(
            len(self.widths), 0, (sum(v.width for v in views),), views[0].dtype
        )
        self.widths.append(result.width)
        offset = 0
        for view in views:
            self.layers.append(
                Layer(
                    "copy",
                    (view.value,),
                    result.value,
                    view.width,
                    view.width,
                    input_offset=view.offset,
                    output_offset=offset,
                    name=node.scope,
                )
            )
            offset += view.width
        return result


def numbers(node: Node, meaning: Meaning) -> np.ndarray:
    """Returns a shape, axis or index, which has to be known when lowering."""
    if not isinstance(meaning, Constant):
        raise node.refuse("its shape, axis or index depends on the observation")
    return meaning.array
