"""Operations that move elements without computing: views of the same columns.

Each is carried out by NumPy on the numbers of the columns; as long as the columns of
a row stay side by side, the engine has nothing to do. Only concatenation may copy.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Sequence

import numpy as np

from acme_quant.lowering.values import (
    Constant,
    LayerList,
    Meaning,
    Node,
    Variable,
    View,
    numbers,
)


def _moved(
    layers: LayerList,
    node: Node,
    view: View,
    move: Callable[[np.ndarray], np.ndarray | list],
) -> list[View]:
    """Applies a NumPy movement to the column numbers of a whole batch, and reads off
    which columns of which shape it leaves in each row."""
    rows = np.arange(layers.batch)[:, None]
    leading = (-1, *view.shape[1:]) if view.folded else (layers.batch, *view.shape)
    columns = (rows * view.width + np.arange(view.width)).reshape(leading)
    try:
        parts = move(columns)
    except ValueError as error:
        raise node.refuse(f"its shapes do not fit: {error}") from error
    views = []
    for part in parts if isinstance(parts, list) else [parts]:
        shape, folded = part.shape[1:], _is_folded(part, columns, layers.batch)
        if folded:
            shape = (part.shape[0] // layers.batch, *shape)
        width = int(np.prod(shape, dtype=np.int64))
        first = int(part.flat[0]) if part.size else 0
        expected = (first + rows * view.width + np.arange(width)).ravel()
        whole = folded or part.shape[:1] == (layers.batch,)
        if not whole or not np.array_equal(part.ravel(), expected):
            raise node.refuse(
                "it mixes the batch dimension with others, or picks elements that do "
                "not lie side by side"
            )
        place = dict(offset=view.offset + first, shape=shape, folded=folded)
        views.append(dataclasses.replace(view, **place))
    return views


def _is_folded(part: np.ndarray, columns: np.ndarray, batch: int) -> bool:
    """Says whether each row of the batch has become several, all of them kept."""
    rows = part.shape[0] if part.ndim > 1 else 0
    return part.size == columns.size and rows > batch and rows % batch == 0


def _reshape(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    target = numbers(node, args[1]).tolist()
    if isinstance(args[0], Variable):
        shape = np.empty(args[0].shape, np.bool_).reshape(target).shape
        return [dataclasses.replace(args[0], shape=shape)]
    return _moved(layers, node, args[0], lambda x: x.reshape(target))


def _expand_dims(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axis = int(numbers(node, args[1]))
    if isinstance(args[0], Variable):
        shape = np.expand_dims(np.empty(args[0].shape, np.bool_), axis).shape
        return [dataclasses.replace(args[0], shape=shape)]
    return _moved(layers, node, args[0], lambda x: np.expand_dims(x, axis))


def _squeeze(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axes = tuple(node.attributes("squeeze_dims"))
    if isinstance(args[0], Variable):
        shape = np.empty(args[0].shape, np.bool_).squeeze(axes or None).shape
        return [dataclasses.replace(args[0], shape=shape)]
    if not axes:
        raise node.refuse("say which axis to squeeze, for a batch may have one row")
    return _moved(layers, node, args[0], lambda x: np.squeeze(x, axes))


def _transpose(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    order = numbers(node, args[1])
    return _moved(layers, node, args[0], lambda x: np.transpose(x, order))


def _slice(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    begin, size = (numbers(node, arg).tolist() for arg in args[1:])
    index = tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begin, size))
    return _moved(layers, node, args[0], lambda x: x[index])


def _strided_slice(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    begin, end, strides = (numbers(node, arg).tolist() for arg in args[1:])

    def bit(mask: str, i: int) -> bool:
        return bool(node.attributes(mask) >> i & 1)

    index = []
    for i, (first, last, stride) in enumerate(zip(begin, end, strides)):
        if bit("ellipsis_mask", i):
            index.append(Ellipsis)
        elif bit("new_axis_mask", i):
            index.append(np.newaxis)
        elif bit("shrink_axis_mask", i):
            index.append(first)
        else:
            first = None if bit("begin_mask", i) else first
            last = None if bit("end_mask", i) else last
            index.append(slice(first, last, stride))
    return _moved(layers, node, args[0], lambda x: x[tuple(index)])


def _split(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axis, parts = int(numbers(node, args[0])), node.attributes("num_split")
    return _moved(layers, node, args[1], lambda x: np.split(x, parts, axis))


def _split_v(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    sizes, axis = numbers(node, args[1]), int(numbers(node, args[2]))
    if (sizes < 0).any():
        raise node.refuse("give the size of every part")
    ends = np.cumsum(sizes)[:-1].tolist()
    return _moved(layers, node, args[0], lambda x: np.split(x, ends, axis))


def _unpack(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axis = node.attributes("axis")
    return _moved(layers, node, args[0], lambda x: list(np.moveaxis(x, axis, 0)))


def _concat(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    *parts, axis = args
    if not all(isinstance(part, View) for part in parts):
        raise node.refuse("it joins observations with constants or variables")
    rank = len(parts[0].shape) + 1
    axis = int(numbers(node, axis)) % rank
    if axis == 0 or np.prod(parts[0].shape[: axis - 1], dtype=int) > 1:
        raise node.refuse("it joins along another than the first non-batch dimension")
    if len({part.dtype for part in parts}) > 1:
        raise node.refuse("it joins arrays of different dtypes")
    shape = list(parts[0].shape)
    shape[axis - 1] = sum(part.shape[axis - 1] for part in parts)
    joined = _adjacent(parts) or layers.concatenate(node, parts)
    return [dataclasses.replace(joined, shape=tuple(shape))]


def _adjacent(parts: Sequence[View]) -> View | None:
    """Returns the first view if the others' columns follow it in the same value."""
    column = parts[0].offset
    for part in parts:
        if (part.value, part.offset) != (parts[0].value, column):
            return None
        column += part.width
    return parts[0]


def _pass(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    return list(args)


def _broadcast_to(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    shape = tuple(numbers(node, args[1]).tolist())
    if not isinstance(args[0], View) or shape != (layers.batch, *args[0].shape):
        raise node.refuse("it repeats elements")
    return args[:1]


def _cast(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    (view,) = args
    target = np.dtype(node.attributes("DstT").as_numpy_dtype)
    source = np.dtype(getattr(view, "dtype", np.float32))
    if isinstance(view, Variable):
        if target != np.float32:
            raise node.refuse(f"it turns a variable into {target}")
        return [view]
    rounds = target.kind != "f" and not np.can_cast(source, target)
    if target == np.float16 or (rounds and target not in (np.int32, np.int64)):
        raise node.refuse(f"it rounds {source} to {target}")
    if rounds and source.kind == "f":
        raise node.refuse(f"it truncates {source} to {target}")
    return [dataclasses.replace(view, dtype=target.name)]


def _shape(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    dtype = node.attributes("out_type").as_numpy_dtype
    return [
        Constant(np.array([layers.batch, *arg.shape], dtype), of_batch=True)
        if isinstance(arg, View)
        else Constant(np.array(arg.shape, dtype))
        for arg in args
    ]


MOVES: dict[str, Callable[[LayerList, Node, list], list[Meaning]]] = {
    "BroadcastTo": _broadcast_to,
    "Cast": _cast,
    "ConcatV2": _concat,
    "EnsureShape": _pass,
    "ExpandDims": _expand_dims,
    "Identity": _pass,
    "IdentityN": _pass,
    "PreventGradient": _pass,
    "ReadVariableOp": _pass,
    "Reshape": _reshape,
    "Shape": _shape,
    "ShapeN": _shape,
    "Slice": _slice,
    "Split": _split,
    "SplitV": _split_v,
    "Squeeze": _squeeze,
    "StopGradient": _pass,
    "StridedSlice": _strided_slice,
    "Transpose": _transpose,
    "Unpack": _unpack,
}
