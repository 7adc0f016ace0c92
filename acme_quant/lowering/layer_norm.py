"""Finds layer normalization, which TensorFlow writes as a dozen operations.

`snt.LayerNorm` is tf.nn.moments followed by tf.nn.batch_normalization; both are traced
as their arithmetic. TensorFlow itself stays out of this module.
"""

from __future__ import annotations

import itertools
from typing import Sequence

from acme_quant.lowering.values import Node, Reference


def recognise(nodes: Sequence[Node]) -> None:
    """Turns the last operation of each `snt.LayerNorm` into a node 'LayerNorm'.

    Its inputs are then: the row, the axes, epsilon, and a scale and an offset, each
    None where there is none. The operations in between are no longer needed.
    """
    for node in nodes:
        if node.type in ("Add", "AddV2"):
            inputs = _match_batch_normalization(node)
            if inputs is not None:
                node.type, node.inputs = "LayerNorm", inputs
                node.name = node.scope


def _source(reference: Reference) -> Reference:
    """Skips operations that change nothing."""
    while reference[0].type in ("Identity", "StopGradient", "ReadVariableOp"):
        reference = reference[0].inputs[0]
    return reference


def _operands(reference: Reference, *types: str) -> list[list[Reference]]:
    """Returns both orders of the operands if the operation is one of `types`."""
    node, _ = _source(reference)
    if node.type not in types:
        return []
    return [list(order) for order in itertools.permutations(node.inputs)]


def _match_batch_normalization(root: Node) -> list | None:
    """Matches x * inverse + shift, as tf.nn.batch_normalization writes it.

    The shift is offset - mean * inverse, or (-mean) * inverse if there is no offset.
    """
    for scaled, shift in itertools.permutations(root.inputs):
        node, offset, product = _source(shift)[0], None, shift
        if node.type == "Sub":
            offset, product = node.inputs
        products = itertools.product(
            _operands(scaled, "Mul"), _operands(product, "Mul")
        )
        for (x, inverse), (mean, same_inverse) in products:
            if _source(inverse) != _source(same_inverse):
                continue
            if offset is None:
                mean = _negated(mean)
            found = mean and _match_moments(x, mean, inverse)
            if found:
                return [*found, offset]
    return None


def _negated(reference: Reference) -> Reference | None:
    """Returns what an operation negates, None if it does not."""
    node, _ = _source(reference)
    return node.inputs[0] if node.type == "Neg" else None


def _match_moments(
    x: Reference, mean: Reference, inverse: Reference
) -> list[Reference | None] | None:
    """Matches inverse = rsqrt(variance + epsilon) [* scale] with x's own moments."""
    candidates = [*_operands(inverse, "Mul"), [inverse, None]]
    for root, scale in candidates:
        node = _source(root)[0]
        sums = _operands(node.inputs[0], "Add", "AddV2") if node.type == "Rsqrt" else []
        for variance, epsilon in sums:
            axes = _axes_of_moments(x, mean, variance)
            if axes is not None:
                return [x, axes, epsilon, scale]
    return None


def _axes_of_moments(
    x: Reference, mean: Reference, variance: Reference
) -> Reference | None:
    """Returns the axes if `mean` and `variance` are tf.nn.moments of `x`."""
    mean, variance = _source(mean), _source(variance)
    if mean[0].type != "Mean" or variance[0].type != "Mean":
        return None
    if _source(mean[0].inputs[0]) != _source(x):
        return None
    for a, b in _operands(variance[0].inputs[0], "SquaredDifference"):
        if (_source(a), _source(b)) == (_source(x), mean):
            return mean[0].inputs[1]
    return None
