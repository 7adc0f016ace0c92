"""Merges the layers of a traced policy: fewer, fatter operations for the engine.

A layer is merged into the one that wrote its input if nobody else reads that value:
biases into products, chains of constant factors and terms into one, activations into
whatever they follow.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Sequence

import numpy as np

from acme_quant.policy.graph import Layer, Parameter


def fuse(
    layers: Sequence[Layer], value_widths: Sequence[int], output: int
) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Merges layers and numbers their values anew.

    Args:
      layers: in order of execution.
      value_widths: elements of each value's row.
      output: the id of the value that is the policy's result.

    Returns:
      The layers and value widths; the last layer writes the result.
    """
    layers = _live(layers, output)
    uses = collections.Counter(value for layer in layers for value in layer.inputs)
    uses[output] += 1
    writers = collections.Counter(layer.output for layer in layers)
    merged: list[Layer] = []
    for layer in layers:
        first = _producer(merged, layer.inputs[0])
        alone = first and uses[first.output] == 1 and writers[first.output] == 1
        together = _merge(first, layer) if alone else None
        if together is not None:
            merged.remove(first)
            layer = together
        merged.append(layer)
    return _renumber([_whole_rows(layer) for layer in merged], value_widths)


def _live(layers: Sequence[Layer], output: int) -> list[Layer]:
    """Returns the layers that the output depends on; shapes alone may need others."""
    needed, live = {output}, []
    for layer in reversed(layers):
        if layer.output in needed:
            needed.update(layer.inputs)
            live.append(layer)
    return live[::-1]


def _producer(layers: Sequence[Layer], value: int) -> Layer | None:
    """Returns the last layer that writes `value`, None for the observation."""
    return next((layer for layer in reversed(layers) if layer.output == value), None)


def _merge(first: Layer, second: Layer) -> Layer | None:
    """Returns one layer that does the work of two, None if there is none."""
    if first.activation != "identity" or len(second.inputs) > 1:
        return None
    if second.kind == "unary" and first.kind != "argmax":
        merged = dataclasses.replace(first, activation=second.activation)
    elif second.kind == "affine" and first.kind in ("linear", "conv2d"):
        merged = _add_bias(first, second)
    elif second.kind == "affine" and first.kind == "affine":
        merged = _chain(first, second)
    elif second.kind == "clip" and first.kind == "clip":
        merged = _clip_both(first, second)
    else:
        return None
    return merged and dataclasses.replace(merged, output=second.output)


def _clip_both(first: Layer, second: Layer) -> Layer | None:
    """Merges tf.clip_by_value's minimum, then maximum, into one clip."""
    low, high = second.scale, first.bias
    if first.scale is not None or second.bias is not None or None in (low, high):
        return None
    if low.constant is None or high.constant is None:
        return None
    low_values, high_values = _on_common_width(low, high)
    if (low_values > high_values).any():
        return None
    return dataclasses.replace(first, scale=low, activation=second.activation)


def _add_bias(product: Layer, affine: Layer) -> Layer | None:
    """Merges a term into a product without one; a factor stays a layer."""
    bias = affine.bias
    fits = affine.scale is None and bias and bias.shape == (product.outputs,)
    if product.bias is not None or not fits:
        return None
    return dataclasses.replace(product, bias=bias, activation=affine.activation)


def _chain(first: Layer, second: Layer) -> Layer | None:
    """Merges (x*a + b)*c + d into x*(a*c) + (b*c + d), in float64, rounded once.

    A variable can stand in it only where it is not multiplied or added to: the
    learner changes it after lowering.
    """
    if first.bias is None and second.scale is None:
        merged = dataclasses.replace(first, bias=second.bias)
    elif all(p.constant is not None for p in first.parameters + second.parameters):
        a, b, c, d = _on_common_width(
            first.scale, first.bias, second.scale, second.bias
        )
        merged = dataclasses.replace(
            first, scale=Parameter.of(a * c), bias=Parameter.of(b * c + d)
        )
    else:
        return None
    return dataclasses.replace(merged, activation=second.activation)


def _on_common_width(*parameters: Parameter | None) -> list[np.ndarray]:
    """Returns factor, term, factor, term, ... in float64, all equally wide."""
    arrays = [
        np.array([1.0 - index % 2]) if p is None else p.constant.astype(np.float64)
        for index, p in enumerate(parameters)
    ]
    width = max(len(array) for array in arrays)
    return [np.tile(array, width // len(array)) for array in arrays]


def _whole_rows(layer: Layer) -> Layer:
    """Repeats parameters per channel along the row; the engine knows [K] and [1]."""
    if layer.kind not in ("affine", "clip"):
        return layer
    return dataclasses.replace(
        layer,
        scale=_whole_row(layer, layer.scale),
        bias=_whole_row(layer, layer.bias),
    )


def _whole_row(layer: Layer, parameter: Parameter | None) -> Parameter | None:
    if parameter is None or parameter.shape in ((1,), (layer.width,)):
        return parameter
    if parameter.constant is None:
        return Parameter((layer.width,), computed="repeat", operands=(parameter,))
    return Parameter.of(
        np.tile(parameter.constant, layer.width // parameter.constant.size)
    )


def _renumber(
    layers: Sequence[Layer], value_widths: Sequence[int]
) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Numbers the values that are left in order of their making."""
    order = dict.fromkeys([0, *(layer.output for layer in layers)])
    number = {value: index for index, value in enumerate(order)}
    renumbered = tuple(
        dataclasses.replace(
            layer,
            inputs=tuple(number[value] for value in layer.inputs),
            output=number[layer.output],
        )
        for layer in layers
    )
    return renumbered, tuple(value_widths[value] for value in order)
