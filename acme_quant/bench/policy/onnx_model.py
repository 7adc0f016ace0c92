"""ONNX models written node by node, and ONNX Runtime on one thread.

The int8 layers are those that onnxruntime's quantize_dynamic writes, with its reduced
range, node for node and number for number. They are written out here because that
function needs an `onnx` that needs a newer protobuf than TensorFlow 2.8.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

import numpy as np

Call = Callable[[], np.ndarray]

# The largest code of a matrix in a reduced range. Without VNNI, ONNX Runtime adds two
# products in a saturating int16, which codes up to 127 exceed: in 36 random policies
# actions of size 1 were then off by up to 0.31, and so by 0.07. It is as fast.
CODE_MAX = 64


class OnnxModel:
    """A model under construction: every layer goes on from `x`.

    Attributes:
      x: the name of the value made last; may be set, for a model with branches.
    """

    def __init__(self, x: str) -> None:
        """Takes the name of the input."""
        self.x = self._input = x
        self._nodes: List[Any] = []
        self._tensors: Dict[str, np.ndarray] = {}
        self._quantized: Dict[str, List[str]] = {}

    def node(
        self, kind: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any
    ) -> List[str]:
        """Adds a node; inputs are names or arrays. Returns its outputs' names."""
        from onnx import helper

        number = len(self._nodes)
        names = []
        for i, value in enumerate(inputs):
            if not isinstance(value, str):
                self._tensors[f"t{number}_{i}"] = np.asarray(value)
                value = f"t{number}_{i}"
            names.append(value)
        made = [f"v{number}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, names, made, **attributes))
        self.x = made[0]
        return made

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

    def session(
        self, shape: Sequence[int], dtype: Any = np.float32
    ) -> Callable[[np.ndarray], Call]:
        """Returns a function of rows [M, *shape] that makes a call, on one thread."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            self._model(shape, dtype), options, providers=["CPUExecutionProvider"]
        )
        return lambda rows: lambda: session.run(None, {self._input: rows})[0]

    def _model(self, shape: Sequence[int], dtype: Any) -> bytes:
        from onnx import helper, mapping, numpy_helper

        def face(name: str, element: Any, dimensions: Sequence[Any]) -> Any:
            kind = mapping.NP_TYPE_TO_TENSOR_TYPE[np.dtype(element)]
            return helper.make_tensor_value_info(name, kind, ["rows", *dimensions])

        graph = helper.make_graph(
            self._nodes,
            "policy",
            [face(self._input, dtype, shape)],
            [face(self.x, np.float32, [None])],
            [numpy_helper.from_array(t, name) for name, t in self._tensors.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        return model.SerializeToString()
