"""What each TensorFlow operation becomes: one rule per operation, one dict at the foot.

A rule gets a node of the traced policy and the meanings of its inputs, and returns the
meanings of its outputs; rules that compute append a `Layer` to the `LayerList`.
TensorFlow itself stays out of this module: it is all about shapes.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

from acme_quant.lowering.moves import MOVES
from acme_quant.lowering.values import (
    Constant,
    LayerList,
    Meaning,
    Node,
    Variable,
    View,
    numbers,
)
from acme_quant.policy.graph import ConvGeometry, Parameter

# --- Arithmetic ---------------------------------------------------------------------


def _parameter(
    node: Node, meaning: Constant | Variable, shape: tuple[int, ...]
) -> Parameter:
    """Returns a factor or term that broadcasts over `shape`: [K], [1] or, repeated
    along the row, [n] of the last dimensions."""
    own = meaning.array.shape if isinstance(meaning, Constant) else meaning.shape
    while own and own[0] == 1:
        own = own[1:]
    try:
        fits = np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise node.refuse(f"shape {list(own)} does not broadcast over {list(shape)}")
    suffix = own == shape[len(shape) - len(own) :]
    if isinstance(meaning, Variable):
        if not suffix:
            raise node.refuse(f"a variable {list(own)} is spread over {list(shape)}")
        return Parameter((int(np.prod(own, dtype=int)),), meaning.index)
    if meaning.of_batch:
        raise node.refuse("it computes with the size of the batch")
    array = meaning.array.reshape(own)
    return Parameter.of((array if suffix else np.broadcast_to(array, shape)).ravel())


def _known(parameter: Parameter, node: Node) -> np.ndarray:
    if parameter.variable >= 0:
        raise node.refuse("it inverts or negates a variable")
    return parameter.constant


def _add(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "add", args)]
    view, other = args if isinstance(args[0], View) else reversed(args)
    bias = _parameter(node, other, view.shape)
    return [layers.append(node, "affine", [view], view.shape, bias=bias)]


def _subtract(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "subtract", args)]
    if isinstance(args[0], View):
        bias = Parameter.of(-_known(_parameter(node, args[1], args[0].shape), node))
        return [layers.append(node, "affine", [args[0]], args[0].shape, bias=bias)]
    view = args[1]
    bias, minus = _parameter(node, args[0], view.shape), Parameter.of(np.array([-1.0]))
    return [layers.append(node, "affine", [view], view.shape, scale=minus, bias=bias)]


def _multiply(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "multiply", args)]
    view, other = args if isinstance(args[0], View) else reversed(args)
    scale = _parameter(node, other, view.shape)
    return [layers.append(node, "affine", [view], view.shape, scale=scale)]


def _divide(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if not isinstance(args[0], View) or isinstance(args[1], View):
        raise node.refuse("it divides by a value that depends on the observation")
    divisor = _known(_parameter(node, args[1], args[0].shape), node)
    if not divisor.all():
        raise node.refuse("it divides by zero")
    scale = Parameter.of(1 / divisor.astype(np.float64))
    return [layers.append(node, "affine", [args[0]], args[0].shape, scale=scale)]


def _negate(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    minus = Parameter.of(np.array([-1.0]))
    return [layers.append(node, "affine", args, args[0].shape, scale=minus)]


def _square(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    return [_pairwise(layers, node, "multiply", args * 2)]


def _squared_difference(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    return _square(layers, node, _subtract(layers, node, args))


def _pairwise(layers: LayerList, node: Node, kind: str, args: list) -> View:
    """Appends an operation on two views of one shape, or of which one has width 1."""
    a, b = args
    wide = max(args, key=lambda view: view.width)
    fits = a.shape == b.shape
    if not fits and len(a.shape) == len(b.shape):
        fits = min(a.width, b.width) == 1
    if not fits:
        raise node.refuse(f"shapes {list(a.shape)} and {list(b.shape)} differ")
    return layers.append(node, kind, args, wide.shape)


def _minimum(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    return _clip(layers, node, args, "bias")


def _maximum(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    return _clip(layers, node, args, "scale")


def _clip(layers: LayerList, node: Node, args: list, bound: str) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        raise node.refuse("it compares two values that depend on the observation")
    view, other = args if isinstance(args[0], View) else reversed(args)
    limit = _parameter(node, other, view.shape)
    return [layers.append(node, "clip", [view], view.shape, **{bound: limit})]


def _clip_by_value(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, *limits = args
    if any(isinstance(limit, View) for limit in limits):
        raise node.refuse("its limits depend on the observation")
    low, high = (_parameter(node, limit, view.shape) for limit in limits)
    return [layers.append(node, "clip", [view], view.shape, scale=low, bias=high)]


def _activate(kind: str) -> Callable[..., list[Meaning]]:
    def rule(layers: LayerList, node: Node, args: list) -> list[Meaning]:
        return [layers.append(node, "unary", args, args[0].shape, activation=kind)]

    return rule


def _relu6(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    low, high = (Parameter.of(np.array([limit])) for limit in (0.0, 6.0))
    return [layers.append(node, "clip", args, args[0].shape, scale=low, bias=high)]


# --- Products, reductions, normalization --------------------------------------------


def _weight(node: Node, meaning: Meaning) -> Parameter:
    if isinstance(meaning, View):
        raise node.refuse("it multiplies two values that depend on the observation")
    if isinstance(meaning, Variable):
        return Parameter(meaning.shape, meaning.index)
    return Parameter.of(meaning.array)


def _matmul(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, weight = args[0], _weight(node, args[1])
    if node.attributes("transpose_a") or node.attributes("transpose_b"):
        raise node.refuse(
            "it transposes a factor; store the matrix as [inputs, outputs]"
        )
    if not isinstance(view, View) or len(view.shape) != 1:
        raise node.refuse("expected [batch, inputs] times [inputs, outputs]")
    return [layers.append(node, "linear", [view], weight.shape[1:], weight=weight)]


def _conv2d(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, weight = args[0], _weight(node, args[1])
    if node.attributes("data_format") != b"NHWC":
        raise node.refuse("expected images as [batch, height, width, channels]")
    if set(node.attributes("dilations")) != {1}:
        raise node.refuse("expected no dilation")
    if not isinstance(view, View) or view.shape[2] != weight.shape[2]:
        raise node.refuse("expected ungrouped filters over the observation's channels")
    geometry = _geometry(node, view.shape, weight.shape)
    shape = (geometry.out_height, geometry.out_width, weight.shape[3])
    if 0 in shape:
        raise node.refuse(f"images of {view.shape[0]}x{view.shape[1]} are too small")
    parts = dict(weight=weight, geometry=geometry, outputs=weight.shape[3])
    return [layers.append(node, "conv2d", [view], shape, **parts)]


def _geometry(node: Node, image: tuple, kernel: tuple) -> ConvGeometry:
    """Returns sizes and padding by the rules of tf.nn.convolution."""
    strides = node.attributes("strides")[1:3]
    padding = node.attributes("padding")
    explicit = node.attributes("explicit_paddings")[2:6] or [0] * 4
    out, pads = [], []
    for axis, stride in enumerate(strides):
        if padding == b"SAME":
            size = -(-image[axis] // stride)
            needed = (size - 1) * stride + kernel[axis] - image[axis]
            pads.append(max(needed, 0) // 2)
        else:
            before, after = explicit[2 * axis : 2 * axis + 2]
            size = (image[axis] + before + after - kernel[axis]) // stride + 1
            pads.append(before)
        out.append(max(size, 0))
    return ConvGeometry(*image, *kernel[:2], *strides, *pads, *out)


def _bias_add(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if node.attributes("data_format") != b"NHWC":
        raise node.refuse("expected channels in the last dimension")
    return _add(layers, node, args)


def _axis_of_whole_row(node: Node, view: View, axes: Meaning) -> list[int]:
    """Checks that a reduction covers all of a row; returns its sorted axes."""
    rank = len(view.shape) + 1
    axes = sorted(int(axis) % rank for axis in numbers(node, axes).ravel())
    kept = [size for axis, size in enumerate(view.shape, 1) if axis not in axes]
    if 0 in axes or np.prod(kept, dtype=int) != 1:
        raise node.refuse(
            "it reduces over the batch, or over a part of the other dimensions"
        )
    return axes


def _reduced(view: View, axes: list[int], keep: bool) -> tuple[int, ...]:
    sizes = enumerate(view.shape, 1)
    if keep:
        return (1,) * len(view.shape)
    return tuple(size for axis, size in sizes if axis not in axes)


def _mean(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axes = _axis_of_whole_row(node, *args)
    shape = _reduced(args[0], axes, node.attributes("keep_dims"))
    return [layers.append(node, "mean", args[:1], shape)]


def _sum(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    mean = _mean(layers, node, args)
    count = Parameter.of(np.array([float(args[0].width)]))
    return [layers.append(node, "affine", mean, mean[0].shape, scale=count)]


def _argmax(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    axes = _axis_of_whole_row(node, *args)
    dtype = np.dtype(node.attributes("output_type").as_numpy_dtype).name
    shape = _reduced(args[0], axes, keep=False)
    return [layers.append(node, "argmax", args[:1], shape, dtype)]


def _layer_norm(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    """Lowers what `lowering` recognised: view, axes, epsilon, [scale], [offset]."""
    view, axes, epsilon, *parameters = args
    _axis_of_whole_row(node, view, axes)
    scale, offset = (
        None if parameter is None else _parameter(node, parameter, view.shape)
        for parameter in parameters
    )
    for parameter in (scale, offset):
        if parameter and parameter.shape != (view.width,):
            raise node.refuse("expected a scale and offset for each element")
    parts = dict(scale=scale, bias=offset, epsilon=float(numbers(node, epsilon)))
    return [layers.append(node, "layer_norm", [view], view.shape, **parts)]


RULES: dict[str, Callable[[LayerList, Node, list], list[Meaning]]] = {
    **MOVES,
    "Add": _add,
    "AddV2": _add,
    "ArgMax": _argmax,
    "BiasAdd": _bias_add,
    "ClipByValue": _clip_by_value,
    "Conv2D": _conv2d,
    "Elu": _activate("elu"),
    "LayerNorm": _layer_norm,
    "MatMul": _matmul,
    "Maximum": _maximum,
    "Mean": _mean,
    "Minimum": _minimum,
    "Mul": _multiply,
    "Neg": _negate,
    "RealDiv": _divide,
    "Relu": _activate("relu"),
    "Relu6": _relu6,
    "Selu": _activate("selu"),
    "Sigmoid": _activate("sigmoid"),
    "Softplus": _activate("softplus"),
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "Sub": _subtract,
    "Sum": _sum,
    "Tanh": _activate("tanh"),
}
