"""The layers of the benchmarks' ONNX models.

The int8 layers are those that onnxruntime's quantize_dynamic writes, with its reduced
range, node for node and number for number. They are written out here because that
function needs an `onnx` that needs a newer protobuf than TensorFlow 2.8.
"""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from acme_quant.export.onnx_model import OnnxModel

# The largest code of a matrix in a reduced range. Without VNNI, ONNX Runtime adds two
# products in a saturating int16, which codes up to 127 exceed: in 36 random policies
# actions of size 1 were then off by up to 0.31, and so by 0.07. It is as fast.
CODE_MAX = 64


class LayeredModel(OnnxModel):
    """A model of layers one after the other: every one goes on from `x`."""

    def __init__(self, x: str) -> None:
        """Takes the name of the input."""
        super().__init__(x)
        self._quantized: Dict[str, List[str]] = {}

    def linear(
        self, weight: np.ndarray, bias: np.ndarray, activation: str | None = None
    ) -> None:
        """Adds x W + b, W [K, N]."""
        self.node("Gemm", [self.x, weight, bias])
        if activation:
            self.node(activation, [self.x])

    def convolution(
        self,
        weight: np.ndarray,
        bias: np.ndarray,
        activation: str | None = None,
        **attributes: Any,
    ) -> None:
        """Adds a convolution of images [M, c, h, w], W [N, c, kh, kw]."""
        self.node("Conv", [self.x, weight, bias], **attributes)
        if activation:
            self.node(activation, [self.x])

    def linear_int8(
        self, weight: np.ndarray, bias: np.ndarray, activation: str | None = None
    ) -> None:
        """Adds x W + b with int8 codes of both, W [K, N] symmetric."""
        scale = np.float32(np.abs(weight).max() / np.float32(CODE_MAX))
        codes = np.rint(weight / scale).astype(np.int8)
        zero = np.array(0, np.int8)
        self._integer("MatMulInteger", codes, scale, zero, bias, activation)

    def convolution_uint8(
        self,
        weight: np.ndarray,
        bias: np.ndarray,
        activation: str | None = None,
        **attributes: Any,
    ) -> None:
        """Adds a convolution with uint8 codes: ConvInteger takes no int8 weights."""
        low, high = min(weight.min(), 0), max(weight.max(), 0)
        scale = np.float32((high - low) / 255)
        zero = np.rint(-low / scale).astype(np.uint8)
        codes = np.clip(np.rint(weight / scale) + zero, 0, 255).astype(np.uint8)
        bias = bias.reshape(1, -1, 1, 1)
        self._integer("ConvInteger", codes, scale, zero, bias, activation, **attributes)

    def _integer(
        self,
        kind: str,
        codes: np.ndarray,
        scale: np.float32,
        zero: np.ndarray,
        bias: np.ndarray,
        activation: str | None,
        **attributes: Any,
    ) -> None:
        """Adds a product of codes, and what makes floats of its sums."""
        from onnx import TensorProto

        if self.x not in self._quantized:
            self._quantized[self.x] = self.node("DynamicQuantizeLinear", [self.x], 3)
        q, scale_x, zero_x = self._quantized[self.x]
        [scales] = self.node("Mul", [scale_x, scale])
        self.node(kind, [q, codes, zero_x, zero], **attributes)
        [sums] = self.node("Cast", [self.x], to=TensorProto.FLOAT)
        self.node("Mul", [sums, scales])
        self.node("Add", [self.x, bias])
        if activation:
            self.node(activation, [self.x])
