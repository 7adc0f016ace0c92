"""What each TensorFlow operation becomes: one rule per operation, one dict at the foot.

A rule gets a node of the traced policy and the meanings of its inputs, and returns the
meanings of its outputs; rules that compute append a `Layer` to the `LayerList`.
TensorFlow itself stays out of this module: it is all about shapes.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

from acme_quant.lowering.moves import MOVES
from acme_quant.lowering.parameters import computed, parameter
from acme_quant.lowering.products import PRODUCTS
from acme_quant.lowering.values import (
    LayerList,
    Meaning,
    Node,
    View,
    numbers,
)
from acme_quant.policy.graph import Parameter

# --- Arithmetic ---------------------------------------------------------------------


def _add(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "add", args)]
    view, other = args if isinstance(args[0], View) else reversed(args)
    bias = parameter(node, other, view.shape)
    return [layers.append(node, "affine", [view], view.shape, bias=bias)]


def _subtract(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "subtract", args)]
    if isinstance(args[0], View):
        bias = computed("negative", parameter(node, args[1], args[0].shape))
        return [layers.append(node, "affine", [args[0]], args[0].shape, bias=bias)]
    view = args[1]
    bias, minus = parameter(node, args[0], view.shape), Parameter.of(np.array([-1.0]))
    return [layers.append(node, "affine", [view], view.shape, scale=minus, bias=bias)]


def _multiply(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if all(isinstance(arg, View) for arg in args):
        return [_pairwise(layers, node, "multiply", args)]
    view, other = args if isinstance(args[0], View) else reversed(args)
    scale = parameter(node, other, view.shape)
    return [layers.append(node, "affine", [view], view.shape, scale=scale)]


def _divide(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if not isinstance(args[0], View) or isinstance(args[1], View):
        raise node.refuse("it divides by a value that depends on the observation")
    divisor = parameter(node, args[1], args[0].shape)
    if divisor.constant is not None and not divisor.constant.all():
        raise node.refuse("it divides by zero")
    scale = computed("divide", Parameter.of(np.ones(1)), divisor)
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
        kind = "maximum" if bound == "scale" else "minimum"
        return [_pairwise(layers, node, kind, args)]
    view, other = args if isinstance(args[0], View) else reversed(args)
    limit = parameter(node, other, view.shape)
    return [layers.append(node, "clip", [view], view.shape, **{bound: limit})]


def _clip_by_value(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, *limits = args
    if any(isinstance(limit, View) for limit in limits):
        raise node.refuse("its limits depend on the observation")
    low, high = (parameter(node, limit, view.shape) for limit in limits)
    return [layers.append(node, "clip", [view], view.shape, scale=low, bias=high)]


def _activate(kind: str) -> Callable[..., list[Meaning]]:
    def rule(layers: LayerList, node: Node, args: list) -> list[Meaning]:
        return [layers.append(node, "unary", args, args[0].shape, activation=kind)]

    return rule


def _relu6(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    low, high = (Parameter.of(np.array([limit])) for limit in (0.0, 6.0))
    return [layers.append(node, "clip", args, args[0].shape, scale=low, bias=high)]


# --- Reductions, normalization --------------------------------------------


def _softmax(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    (view,) = args
    if not view.shape or view.shape[-1] != view.width:
        raise node.refuse("it takes several softmaxes a row; split the row before it")
    return [layers.append(node, "softmax", [view], view.shape)]


def _leaky_relu(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    (view,), slope = args, node.attributes("alpha")
    scale = Parameter.of(np.array([slope]))
    scaled = layers.append(node, "affine", [view], view.shape, scale=scale)
    kind = "maximum" if slope <= 1 else "minimum"
    return [layers.append(node, kind, [view, scaled], view.shape)]


def _power(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, exponent = args
    power = numbers(node, exponent)
    if not isinstance(view, View) or power.ndim or power not in (1, 2, 3, 4):
        raise node.refuse("expected the observation to the power of 1, 2, 3 or 4")
    result = view
    for _ in range(int(power) - 1):
        result = _pairwise(layers, node, "multiply", [result, view])
    return [result]


def _batch_norm(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    """Lowers a batch norm with moving averages; its factor and term are folded."""
    view, *parts = args
    if node.attributes("is_training"):
        raise node.refuse(
            "it normalizes by the batch; give the policy is_training=False, so that it "
            "takes the moving averages"
        )
    if node.attributes("data_format") != b"NHWC":
        raise node.refuse("expected channels in the last dimension")
    scale, offset, mean, variance = (
        parameter(node, part, view.shape) for part in parts[:4]
    )
    epsilon = Parameter.of(np.array([node.attributes("epsilon")]))
    deviation = computed("sqrt", computed("add", variance, epsilon))
    factor = computed("divide", scale, deviation)
    term = computed("subtract", offset, computed("multiply", mean, factor))
    parts = dict(scale=factor, bias=term)
    return [layers.append(node, "affine", [view], view.shape, **parts)]


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
        None if part is None else parameter(node, part, view.shape)
        for part in parameters
    )
    for part in (scale, offset):
        if part and part.shape != (view.width,):
            raise node.refuse("expected a scale and offset for each element")
    parts = dict(scale=scale, bias=offset, epsilon=float(numbers(node, epsilon)))
    return [layers.append(node, "layer_norm", [view], view.shape, **parts)]


RULES: dict[str, Callable[[LayerList, Node, list], list[Meaning]]] = {
    **MOVES,
    **PRODUCTS,
    "Add": _add,
    "AddV2": _add,
    "ArgMax": _argmax,
    "BiasAdd": _bias_add,
    "ClipByValue": _clip_by_value,
    "Elu": _activate("elu"),
    "Erf": _activate("erf"),
    "FusedBatchNorm": _batch_norm,
    "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm,
    "LayerNorm": _layer_norm,
    "LeakyRelu": _leaky_relu,
    "Maximum": _maximum,
    "Mean": _mean,
    "Minimum": _minimum,
    "Mul": _multiply,
    "Neg": _negate,
    "Pow": _power,
    "RealDiv": _divide,
    "Relu": _activate("relu"),
    "Relu6": _relu6,
    "Selu": _activate("selu"),
    "Sigmoid": _activate("sigmoid"),
    "Softmax": _softmax,
    "Softplus": _activate("softplus"),
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "Sub": _subtract,
    "Sum": _sum,
    "Tanh": _activate("tanh"),
}
