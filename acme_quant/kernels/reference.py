"""The engine's arithmetic in NumPy: what the C kernels must give. For tests only.

The integers and every float operation on the quantized path are the same, in the
same order, as in the C kernels; the transcendental functions are NumPy's.
"""

from __future__ import annotations

import math
from typing import Sequence, Tuple

import numpy as np

from acme_quant import kernels

_LANES = 8
_SELU_SCALE = np.float32(1.0507009873554805)
_SELU_ALPHA = np.float32(1.6732632423543772)


def run(
    ops: np.ndarray,
    tensors: Sequence[np.ndarray],
    value_widths: Sequence[int],
    observations: np.ndarray,
) -> np.ndarray:
    """Runs a list of operations.

    Args:
      ops: OP_DTYPE [L].
      tensors: the tensors the operations name, weights in kernel layout [N, Kp].
      value_widths: width of each value.
      observations: float32 [M, value_widths[0]].

    Returns:
      float32 [M, width of the last operation's output].
    """
    rows = len(observations)
    values = [np.zeros((rows, width), np.float32) for width in value_widths]
    values[0] = np.asarray(observations, np.float32)
    for op in ops:
        pick = lambda name, op=op: tensors[op[name]] if op[name] >= 0 else None  # noqa: E731
        with np.errstate(over="ignore", invalid="ignore"):
            result = _RUN[kernels.KINDS[op["kind"]]](op, values, pick)
            result = activate(result, kernels.ACTIVATIONS[op["activation"]])
        start = op["output_offset"]
        values[op["output"]][:, start : start + result.shape[1]] = result
    return values[ops[-1]["output"]]


def quantize_rows(x: np.ndarray, activation_max: int) -> Tuple[np.ndarray, np.ndarray]:
    """Quantizes each row to codes in [-activation_max, activation_max].

    Args:
      x: float32 [M, K].
      activation_max: the largest code.

    Returns:
      codes int32 [M, K] and scale float32 [M, 1]. A row of zeros has codes 0 and
      scale 1; a row with a NaN or Inf has codes 0 and scale NaN.
    """
    high = np.float32(activation_max)
    largest = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = high / largest
        usable = np.isfinite(inverse) & np.isfinite(largest)
        codes = np.rint(np.where(usable, x, 0) * np.where(usable, inverse, 0))
        scale = np.where(usable, largest / high, np.float32(1))
    scale = np.where(np.isfinite(largest), scale, np.float32(np.nan))
    return np.clip(codes, -high, high).astype(np.int32), scale.astype(np.float32)


def unpack_int4(packed: np.ndarray) -> np.ndarray:
    """Unpacks uint8 [N, Kp / 2] to int8 [N, Kp]; see `pack_int4`."""
    blocks = packed.reshape(len(packed), -1, 16)
    both = np.concatenate([blocks & 15, blocks >> 4], axis=2)
    return both.astype(np.int8).reshape(len(packed), -1) - np.int8(8)


def pack_int4(codes: np.ndarray) -> np.ndarray:
    """Packs int8 [N, Kp] in [-7, 7] to uint8 [N, Kp / 2].

    In each block of 32 codes, byte j holds code j in its low and code j + 16 in its
    high half, each as code + 8.
    """
    halves = (codes + 8).astype(np.uint8).reshape(len(codes), -1, 2, 16)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(codes), -1)


def lane_sum(x: np.ndarray) -> np.ndarray:
    """Sums each row of float32 [M, K] in the kernels' eight-lane order."""
    rows, width = x.shape
    lanes = np.zeros((rows, -(-width // _LANES) * _LANES), np.float32)
    lanes[:, :width] = x
    total = np.zeros((rows, _LANES), np.float32)
    for step in lanes.reshape(rows, -1, _LANES).swapaxes(0, 1):
        total = total + step
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total


def activate(x: np.ndarray, name: str) -> np.ndarray:
    """Applies an activation of ACTIVATIONS, computed in float64."""
    wide = x.astype(np.float64)
    negative = np.minimum(wide, 0)
    if name == "identity":
        return x
    result = {
        "tanh": lambda: np.tanh(wide),
        "relu": lambda: np.maximum(wide, 0),
        "elu": lambda: np.where(wide > 0, wide, np.expm1(negative)),
        "selu": lambda: (
            _SELU_SCALE * np.where(wide > 0, wide, _SELU_ALPHA * np.expm1(negative))
        ),
        "sigmoid": lambda: np.exp(-np.logaddexp(0, -wide)),
        "softplus": lambda: np.logaddexp(wide, 0),
        "erf": lambda: np.vectorize(math.erf, otypes=[float])(wide),
    }[name]()
    return result.astype(np.float32)


def product(op: np.void, x: np.ndarray, pick) -> np.ndarray:  # noqa: ANN001
    """Returns x W^T + bias, float32 [M, N], for x float32 [M, K]."""
    bias = pick("bias")
    weight_format = kernels.FORMATS[op["format"]]
    codes = pick("weight")
    if weight_format == "int4":
        codes = unpack_int4(codes)
    codes = codes[:, : op["inputs"]]
    if weight_format.startswith("int"):
        y = _integer_product(op, x, codes, pick("scale"), pick("zero_point"))
    else:
        if codes.dtype == np.uint16:
            codes = codes.view(np.float16)
        y = (x.astype(np.float64) @ codes.astype(np.float64).T).astype(np.float32)
    return y if bias is None else y + bias


def _integer_product(
    op: np.void,
    x: np.ndarray,
    codes: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None,
) -> np.ndarray:
    codes = codes.astype(np.int64)
    if zero_point is not None:
        codes = codes - zero_point.astype(np.int64)[:, None]
    if not op["activation_max"]:
        weight = codes.astype(np.float32) * scale[:, None]
        return (x.astype(np.float64) @ weight.astype(np.float64).T).astype(np.float32)
    inputs, input_scale = quantize_rows(x, int(op["activation_max"]))
    # Exact in float64: the sums are below 2**31.
    sums = inputs.astype(np.float64) @ codes.T.astype(np.float64)
    return sums.astype(np.int32).astype(np.float32) * (input_scale * scale)


def _linear(op, values, pick):  # noqa: ANN001, ANN202
    return product(op, values[op["input"]], pick)


def _conv2d(op, values, pick):  # noqa: ANN001, ANN202
    rows = len(values[op["input"]])
    image = values[op["input"]].reshape(rows, op["height"], op["width"], op["channels"])
    kernel = (int(op["kernel_height"]), int(op["kernel_width"]))
    bottom = int((op["out_height"] - 1) * op["stride_height"]) + kernel[0]
    right = int((op["out_width"] - 1) * op["stride_width"]) + kernel[1]
    top, left = int(op["pad_top"]), int(op["pad_left"])
    after = (
        max(0, bottom - top - image.shape[1]),
        max(0, right - left - image.shape[2]),
    )
    image = np.pad(image, ((0, 0), (top, after[0]), (left, after[1]), (0, 0)))
    patches = [
        image[:, i : i + kernel[0], j : j + kernel[1]].reshape(rows, -1)
        for i in range(0, bottom - kernel[0] + 1, op["stride_height"])
        for j in range(0, right - kernel[1] + 1, op["stride_width"])
    ]
    flat = np.stack(patches, axis=1).reshape(rows * len(patches), -1)
    return product(op, flat, pick).reshape(rows, -1)


def _layer_norm(op, values, pick):  # noqa: ANN001, ANN202
    x = values[op["input"]]
    width = np.float32(x.shape[1])
    centred = x - lane_sum(x) / width
    variance = lane_sum(centred * centred) / width
    y = centred * (np.float32(1) / np.sqrt(variance + op["epsilon"]))
    return _scale_and_shift(y, pick("scale"), pick("bias"))


def _scale_and_shift(x, scale, bias):  # noqa: ANN001, ANN202
    x = x if scale is None else x * scale
    return x if bias is None else x + bias


def _affine(op, values, pick):  # noqa: ANN001, ANN202
    return _scale_and_shift(values[op["input"]], pick("scale"), pick("bias"))


def _clip(op, values, pick):  # noqa: ANN001, ANN202
    x = values[op["input"]]
    x = x if pick("scale") is None else np.maximum(x, pick("scale"))
    return x if pick("bias") is None else np.minimum(x, pick("bias"))


def _copy(op, values, pick):  # noqa: ANN001, ANN202
    start = op["input_offset"]
    return values[op["input"]][:, start : start + op["inputs"]]


def _mean(op, values, pick):  # noqa: ANN001, ANN202
    x = values[op["input"]]
    return lane_sum(x) / np.float32(x.shape[1])


def _softmax(op, values, pick):  # noqa: ANN001, ANN202
    x = values[op["input"]]
    centred = (x - x.max(axis=1, keepdims=True)).astype(np.float64)
    powers = np.exp(centred).astype(np.float32)
    return powers * (np.float32(1) / lane_sum(powers))


def _max_pool(op, values, pick):  # noqa: ANN001, ANN202
    rows = len(values[op["input"]])
    sizes = (op["height"], op["width"], op["channels"])
    image = values[op["input"]].reshape(rows, *sizes)
    y = np.zeros((rows, op["out_height"], op["out_width"], op["channels"]), np.float32)
    for i in range(op["out_height"]):
        for j in range(op["out_width"]):
            top = i * op["stride_height"] - op["pad_top"]
            left = j * op["stride_width"] - op["pad_left"]
            window = image[
                :,
                max(top, 0) : max(top + op["kernel_height"], 0),
                max(left, 0) : max(left + op["kernel_width"], 0),
            ]
            if window.size:
                y[:, i, j] = window.max(axis=(1, 2))
    return y.reshape(rows, -1)


def _argmax(op, values, pick):  # noqa: ANN001, ANN202
    return values[op["input"]].argmax(axis=1, keepdims=True).astype(np.float32)


_RUN = {
    "linear": _linear,
    "conv2d": _conv2d,
    "layer_norm": _layer_norm,
    "unary": lambda op, values, pick: values[op["input"]],
    "affine": _affine,
    "clip": _clip,
    "add": lambda op, values, pick: values[op["input"]] + values[op["other"]],
    "subtract": lambda op, values, pick: values[op["input"]] - values[op["other"]],
    "multiply": lambda op, values, pick: values[op["input"]] * values[op["other"]],
    "mean": _mean,
    "argmax": _argmax,
    "maximum": lambda op, values, pick: np.maximum(
        values[op["input"]], values[op["other"]]
    ),
    "minimum": lambda op, values, pick: np.minimum(
        values[op["input"]], values[op["other"]]
    ),
    "softmax": _softmax,
    "max_pool": _max_pool,
    "copy": _copy,
}
