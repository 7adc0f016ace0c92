"""A policy as NumPy arrays: what other programs read without this library.

For operation 3 named `torso/linear_0`, with dots between the parts:

    3.torso/linear_0.weight      float32, [K, N] or [kh, kw, c, N]: dequantized
    3.torso/linear_0.codes       int8, [N, K], of an integer format
    3.torso/linear_0.scale, .zero_point, .bias
    operations                   JSON: kinds, activations and values of each
"""

from __future__ import annotations

import io
import json

import numpy as np

from acme_quant import kernels
from acme_quant.export.source import (
    WEIGHTED,
    Exported,
    Observations,
    Operation,
    Source,
)


def write(source: Source, name: str, observations: Observations) -> Exported:
    """Writes NAME.npz; observations are not needed."""
    del observations
    arrays: dict[str, np.ndarray] = {"operations": np.array(_description(source))}
    for op in source.operations:
        parts = _arrays(op)
        arrays.update({f"{op.number}.{op.name}.{part}": parts[part] for part in parts})
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    content = file.getvalue()
    said = f"{len(arrays)} arrays in {name}.npz, {len(content)} bytes"
    return Exported({f"{name}.npz": content}, [said])


def _arrays(op: Operation) -> dict[str, np.ndarray]:
    """Returns part -> array of one operation."""
    found = {part: getattr(op, part) for part in ("scale", "zero_point", "bias")}
    if op.kind in WEIGHTED:
        quantized = op.qtensor()
        found["weight"] = op.as_inputs_first(quantized.dequantize())
        if quantized.scale is not None:
            found["codes"] = quantized.integer_codes()[:, : op["inputs"]]
    return {part: array for part, array in found.items() if array is not None}


def _description(source: Source) -> str:
    """Returns the operations, the observation and the action as JSON."""
    layout = source.layout
    tensors = ("weight", "scale", "zero_point", "bias")
    numbers = [
        name
        for name in kernels.OP_FIELDS
        if name not in ("kind", "activation", "format", "epsilon", *tensors)
    ]
    operations = [
        {
            "name": op.name,
            "kind": op.kind,
            "activation": op.activation,
            "format": op.storage,
            "epsilon": float(op.epsilon),
            **{number: op[number] for number in numbers},
        }
        for op in source.operations
    ]
    facts = {
        "operations": operations,
        "value_widths": source.widths,
        "observation": [field.to_json() for field in layout.observation],
        "action": layout.output.to_json(),
        "quantizer": layout.quantizer,
        "activations": layout.activations,
        "policy_version": source.policy.version,
        "learner_step": source.policy.learner_step,
    }
    return json.dumps(facts, indent=1)
