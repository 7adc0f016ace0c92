"""Matrix products, convolutions, pooling: weights or a window slid over a row."""

from __future__ import annotations

import dataclasses
from typing import Callable

from acme_quant.lowering.values import LayerList, Meaning, Node, Variable, View
from acme_quant.policy.graph import ConvGeometry, Parameter


def _weight(node: Node, meaning: Meaning) -> Parameter:
    if isinstance(meaning, View):
        raise node.refuse("it multiplies two values that depend on the observation")
    if isinstance(meaning, Variable):
        return meaning.parameter(meaning.shape)
    return Parameter.of(meaning.array)


def _matmul(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    view, weight = args[0], _weight(node, args[1])
    if node.attributes("transpose_a") or node.attributes("transpose_b"):
        raise node.refuse(
            "it transposes a factor; store the matrix as [inputs, outputs]"
        )
    if isinstance(view, View) and view.folded:
        product = _at_each_position(layers, node, view, weight)
        return [dataclasses.replace(product, folded=True)]
    if not isinstance(view, View) or len(view.shape) != 1:
        raise node.refuse("expected [batch, inputs] times [inputs, outputs]")
    return [layers.append(node, "linear", [view], weight.shape[1:], weight=weight)]


def _batch_matmul(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    if node.attributes("adj_x") or node.attributes("adj_y"):
        raise node.refuse(
            "it transposes a factor; store the matrix as [inputs, outputs]"
        )
    if not isinstance(args[0], View) or args[0].folded:
        raise node.refuse("expected [batch, ..., inputs] times [inputs, outputs]")
    return [_at_each_position(layers, node, args[0], _weight(node, args[1]))]


def _at_each_position(
    layers: LayerList, node: Node, view: View, weight: Parameter
) -> View:
    """Appends [..., inputs] times [inputs, outputs]: a convolution of single pixels."""
    if len(weight.shape) != 2 or view.shape[-1] != weight.shape[0]:
        raise node.refuse("expected one matrix [inputs, outputs] for all positions")
    inputs, outputs = weight.shape
    shape = (*view.shape[:-1], outputs)
    positions = view.width // inputs
    pixels = dict(
        height=positions,
        width=1,
        channels=inputs,
        kernel_height=1,
        kernel_width=1,
        stride_height=1,
        stride_width=1,
        pad_top=0,
        pad_left=0,
        out_height=positions,
        out_width=1,
    )
    parts = dict(
        weight=dataclasses.replace(weight, shape=(1, 1, inputs, outputs)),
        geometry=ConvGeometry(**pixels),
        outputs=outputs,
    )
    if weight.constant is not None:
        kernel = weight.constant.reshape(1, 1, inputs, outputs)
        parts["weight"] = Parameter.of(kernel)
    plain = dataclasses.replace(view, folded=False)
    return layers.append(node, "conv2d", [plain], shape, **parts)


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
    explicit = [0] * 4
    if padding == b"EXPLICIT":
        explicit = node.attributes("explicit_paddings")[2:6]
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


def _max_pool(layers: LayerList, node: Node, args: list) -> list[Meaning]:
    (view,) = args
    if node.attributes("data_format") != b"NHWC" or len(view.shape) != 3:
        raise node.refuse("expected images as [batch, height, width, channels]")
    sizes = node.attributes("ksize")
    if {sizes[0], sizes[3]} != {1}:
        raise node.refuse("expected windows over height and width alone")
    geometry = _geometry(node, view.shape, tuple(sizes[1:3]))
    shape = (geometry.out_height, geometry.out_width, view.shape[2])
    if 0 in shape:
        raise node.refuse(f"images of {view.shape[0]}x{view.shape[1]} are too small")
    parts = dict(geometry=geometry, outputs=view.shape[2])
    return [layers.append(node, "max_pool", [view], shape, **parts)]


PRODUCTS: dict[str, Callable[[LayerList, Node, list], list[Meaning]]] = {
    "BatchMatMulV2": _batch_matmul,
    "Conv2D": _conv2d,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
}
