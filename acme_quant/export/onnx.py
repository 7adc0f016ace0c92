"""A policy as ONNX: float32, or with QuantizeLinear and DequantizeLinear (QDQ).

Integer weights stand behind a DequantizeLinear. ONNX has no operator for the engine's
quantized inputs, whose scale is each row's own: they stay float32 with `wide`
activations, and with `8bit` ones get an int8 pair with one scale, calibrated on the
observations. How far that is from the engine is measured in ONNX Runtime and stored
beside the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from acme_quant.export.onnx_model import OPSET, OnnxModel, session
from acme_quant.export.source import (
    Exported,
    ExportError,
    Observations,
    Operation,
    Source,
)

# The engine's activations as ONNX names them.
ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "Relu",
    "elu": "Elu",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "erf": "Erf",
}
# The largest code of an int8 input.
CODE_MAX = 127
# Without a number of rows: they keep theirs.
ROWS = 0


def write(source: Source, name: str, observations: Observations) -> Exported:
    """Writes NAME.onnx, and NAME.parity.json with what ONNX Runtime makes of it.

    Raises:
      ExportError: an operation has no ONNX form, or a package is missing.
    """
    try:
        model = _model(source, observations)
        content = model.content(
            [source.widths[0]],
            out_dtype=source.layout.output.dtype,
            facts=_facts(source),
        )
        run = session(content)
    except ImportError as error:
        raise ExportError(
            f"expected the packages onnx and onnxruntime, got {error}."
        ) from error
    parity = {
        kind: _parity(run(rows), _shaped(source, source.actions(rows)))
        for kind, rows in observations.items()
    }
    report = {"opset": OPSET, "quantizer": source.policy.quantizer, "parity": parity}
    files = {
        f"{name}.onnx": content,
        f"{name}.parity.json": (json.dumps(report, indent=1) + "\n").encode(),
    }
    said = [f"{name}.onnx, opset {OPSET}, {len(content)} bytes"]
    return Exported(files, said + [_sentence(kind, parity[kind]) for kind in parity])


def _facts(source: Source) -> dict[str, str]:
    columns = {path: [start, width] for path, start, width in source.columns()}
    return {"observation": json.dumps(columns), "quantizer": source.policy.quantizer}


def _shaped(source: Source, actions: np.ndarray) -> np.ndarray:
    output = source.layout.output
    return actions.reshape(len(actions), *output.shape).astype(output.dtype)


def _parity(onnx: np.ndarray, engine: np.ndarray) -> dict[str, float]:
    """Returns how far two sets of actions [M, ...] are apart."""
    errors = np.abs(onnx.astype(np.float64) - engine.astype(np.float64))
    return {
        "observations": len(engine),
        "largest_error": float(errors.max(initial=0)),
        "mean_error": float(errors.mean()) if errors.size else 0.0,
        "largest_action": float(np.abs(engine).max(initial=0)),
    }


def _sentence(kind: str, parity: dict[str, float]) -> str:
    return (
        f"{parity['observations']} {kind} observations in ONNX Runtime: actions differ "
        f"from the engine's by {parity['largest_error']:.2g} at most, "
        f"{parity['mean_error']:.2g} on average (largest action "
        f"{parity['largest_action']:.3g})"
    )


def _model(source: Source, observations: Observations) -> OnnxModel:
    model = OnnxModel("observation")
    calibration = observations.get("recorded", observations["random"])
    values = _Values(source, calibration)
    for op in source.operations:
        emit = KINDS.get(op.kind)
        if emit is None:
            raise ExportError(
                f"expected operations out of {', '.join(KINDS)}, got {op}."
            )
        emit(model, op, values)
        if op.activation != "identity":
            if op.activation not in ACTIVATIONS:
                raise ExportError(
                    f"expected activations out of {', '.join(ACTIVATIONS)}, got "
                    f"'{op.activation}' of {op}."
                )
            model.node(ACTIVATIONS[op.activation], [model.x])
        values.written(model, op)
    model.x = values[source.operations[-1]["output"]]
    output = source.layout.output
    model.node("Reshape", [model.x, np.array([ROWS, *output.shape], np.int64)])
    model.node("Cast", [model.x], to=_element(output.dtype))
    model.named("action")
    return model


def _element(dtype: str) -> int:
    from onnx import mapping

    return mapping.NP_TYPE_TO_TENSOR_TYPE[np.dtype(dtype)]


class _Values:
    """The ONNX name of each of the engine's values."""

    def __init__(self, source: Source, calibration: np.ndarray) -> None:
        self.widths = source.widths
        self._source, self._calibration = source, calibration
        self._parts: dict[int, list[str]] = {0: ["observation"]}

    def __getitem__(self, value: int) -> str:
        return self._parts[value][0]

    def quantized(self, model: OnnxModel, op: Operation) -> str:
        """Returns the input of a weighted operation, through int8 codes if it has."""
        x = self[op["input"]]
        if self._source.policy.activations != "8bit" or not op["activation_max"]:
            return x
        rows = self._source.value(op["input"], self._calibration)
        largest = np.abs(rows[np.isfinite(rows)]).max(initial=0)
        scale = np.float32(largest / CODE_MAX) or np.float32(1)
        [codes] = model.node("QuantizeLinear", [x, scale, np.int8(0)])
        return model.node("DequantizeLinear", [codes, scale, np.int8(0)])[0]

    def written(self, model: OnnxModel, op: Operation) -> None:
        """Notes what an operation wrote; copies side by side become one value."""
        parts = self._parts.setdefault(op["output"], [])
        parts.append(model.x)
        last = op.kind != "copy" or (
            op["output_offset"] + op["inputs"] == self.widths[op["output"]]
        )
        if last and len(parts) > 1:
            self._parts[op["output"]] = model.node("Concat", parts, axis=1)


def _weight(model: OnnxModel, op: Operation, axes: Callable) -> str:
    """Adds a weight, its axes brought in order; returns its name, float32."""
    quantized = op.qtensor()
    if quantized.scale is None:
        codes = axes(op.as_inputs_first(quantized.codes[:, : op["inputs"]]))
        if codes.dtype == np.float32:
            return model.node("Identity", [codes])[0]
        return model.node("Cast", [codes], to=_element("float32"))[0]
    codes = axes(op.as_inputs_first(quantized.integer_codes()[:, : op["inputs"]]))
    zero = quantized.zero_point
    zero = np.zeros_like(quantized.scale) if zero is None else zero
    inputs = [codes, quantized.scale, zero.astype(np.int8)]
    return model.node("DequantizeLinear", inputs, axis=axes.output_axis)[0]


class _Linear:
    """Weights [K, N] as Gemm takes them."""

    output_axis = 1

    def __call__(self, weight: np.ndarray) -> np.ndarray:
        return weight


class _Convolution:
    """Weights [kh, kw, c, N] as Conv takes them, [N, c, kh, kw]."""

    output_axis = 0

    def __call__(self, weight: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(weight.transpose(3, 2, 0, 1))


def _linear(model: OnnxModel, op: Operation, values: _Values) -> None:
    weight = _weight(model, op, _Linear())
    bias = [] if op.bias is None else [op.bias]
    model.node("Gemm", [values.quantized(model, op), weight, *bias])


def _conv2d(model: OnnxModel, op: Operation, values: _Values) -> None:
    weight = _weight(model, op, _Convolution())
    bias = [] if op.bias is None else [op.bias]
    _slide(model, op, "Conv", values.quantized(model, op), [weight, *bias])


def _max_pool(model: OnnxModel, op: Operation, values: _Values) -> None:
    shape = [op["kernel_height"], op["kernel_width"]]
    _slide(model, op, "MaxPool", values[op["input"]], [], kernel_shape=shape)


def _slide(
    model: OnnxModel,
    op: Operation,
    kind: str,
    x: str,
    weights: list[str | np.ndarray],
    **attributes: list[int],
) -> None:
    """Adds a window over the images in the rows of `x`."""
    shape = (ROWS, op["height"], op["width"], op["channels"])
    model.node("Reshape", [x, np.array(shape, np.int64)])
    model.node("Transpose", [model.x], perm=[0, 3, 1, 2])
    bottom, right = (
        (op[f"out_{side}"] - 1) * op[f"stride_{side}"]
        + op[f"kernel_{side}"]
        - op[f"pad_{start}"]
        - op[side]
        for side, start in (("height", "top"), ("width", "left"))
    )
    pads = [op["pad_top"], op["pad_left"], max(bottom, 0), max(right, 0)]
    strides = [op["stride_height"], op["stride_width"]]
    inputs = [model.x, *weights]
    model.node(kind, inputs, pads=pads, strides=strides, **attributes)
    # An image may reach beyond the last position.
    ends = np.array([op["out_height"], op["out_width"]], np.int64)
    model.node("Slice", [model.x, np.zeros(2, np.int64), ends, np.array([2, 3])])
    model.node("Transpose", [model.x], perm=[0, 2, 3, 1])
    model.node("Reshape", [model.x, np.array([ROWS, -1], np.int64)])


def _layer_norm(model: OnnxModel, op: Operation, values: _Values) -> None:
    [mean] = model.node("ReduceMean", [values[op["input"]]], axes=[1])
    [centred] = model.node("Sub", [values[op["input"]], mean])
    model.node("Mul", [centred, centred])
    model.node("ReduceMean", [model.x], axes=[1])
    model.node("Add", [model.x, op.epsilon])
    model.node("Sqrt", [model.x])
    model.node("Div", [centred, model.x])
    _scaled(model, op, "Mul", "Add")


def _affine(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.x = values[op["input"]]
    _scaled(model, op, "Mul", "Add")


def _clip(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.x = values[op["input"]]
    _scaled(model, op, "Max", "Min")


def _scaled(model: OnnxModel, op: Operation, first: str, second: str) -> None:
    for kind, array in ((first, op.scale), (second, op.bias)):
        if array is not None:
            model.node(kind, [model.x, array])


def _pair(kind: str) -> Callable[[OnnxModel, Operation, _Values], None]:
    def emit(model: OnnxModel, op: Operation, values: _Values) -> None:
        model.node(kind, [values[op["input"]], values[op["other"]]])

    return emit


def _softmax(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.node("Softmax", [values[op["input"]]], axis=1)


def _mean(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.node("ReduceMean", [values[op["input"]]], axes=[1])


def _argmax(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.node("ArgMax", [values[op["input"]]], axis=1)
    model.node("Cast", [model.x], to=_element("float32"))


def _unary(model: OnnxModel, op: Operation, values: _Values) -> None:
    model.node("Identity", [values[op["input"]]])


def _copy(model: OnnxModel, op: Operation, values: _Values) -> None:
    start, end = op["input_offset"], op["input_offset"] + op["inputs"]
    ends = [np.array([number], np.int64) for number in (start, end, 1)]
    model.node("Slice", [values[op["input"]], *ends])


KINDS = {
    "linear": _linear,
    "conv2d": _conv2d,
    "layer_norm": _layer_norm,
    "unary": _unary,
    "affine": _affine,
    "clip": _clip,
    "add": _pair("Add"),
    "subtract": _pair("Sub"),
    "multiply": _pair("Mul"),
    "mean": _mean,
    "argmax": _argmax,
    "copy": _copy,
    "maximum": _pair("Max"),
    "minimum": _pair("Min"),
    "softmax": _softmax,
    "max_pool": _max_pool,
}
