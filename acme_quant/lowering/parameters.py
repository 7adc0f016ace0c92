"""Factors, terms, bounds: what a layer reads beside values, out of the traced policy.

What is made of constants is computed when lowering; what is made of the learner's
variables becomes a formula that is computed at each publication.
"""

from __future__ import annotations

import numpy as np

from acme_quant.lowering.values import Constant, Meaning, Node, Variable
from acme_quant.policy.graph import Parameter


def parameter(
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
        return meaning.parameter((int(np.prod(own, dtype=int)),))
    if meaning.of_batch:
        raise node.refuse("it computes with the size of the batch")
    array = meaning.array.reshape(own)
    return Parameter.of((array if suffix else np.broadcast_to(array, shape)).ravel())


def computed(operation: str, *operands: Parameter) -> Parameter:
    """Returns a computed parameter, at once if all of its operands are constants."""
    result = Parameter.compute(operation, *operands)
    return result if result.variables else Parameter.of(result.value(()))


# What is made of variables alone is computed anew at each publication.
_FORMULAS = {
    "Abs": "abs",
    "Add": "add",
    "AddV2": "add",
    "Exp": "exp",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mul": "multiply",
    "Neg": "negative",
    "RealDiv": "divide",
    "Sqrt": "sqrt",
    "Square": "square",
    "Sub": "subtract",
}


def compute(node: Node, args: list[Constant | Variable]) -> list[Meaning] | None:
    """Returns what an operation makes of variables, None if it has no such formula."""
    operands = [
        Parameter.of(arg.array)
        if isinstance(arg, Constant)
        else arg.parameter(arg.shape)
        for arg in args
    ]
    if node.type in ("Rsqrt", "Reciprocal"):
        root = operands[0]
        if node.type == "Rsqrt":
            root = computed("sqrt", root)
        result = computed("divide", Parameter.of(np.ones(())), root)
    elif node.type in _FORMULAS:
        result = computed(_FORMULAS[node.type], *operands)
    else:
        return None
    return [Variable(result, result.shape)]
