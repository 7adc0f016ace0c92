"""ONNX models written node by node, and ONNX Runtime on one thread.

The one place that makes an ONNX file. `onnx` of the training stack is an old one, as a
newer one needs a newer protobuf than TensorFlow 2.8; hence the opset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

import numpy as np

Call = Callable[[], np.ndarray]
Attribute = Union[int, float, str, Sequence[int]]

OPSET = 13
IR_VERSION = 8


class OnnxModel:
    """A model under construction: a node without a name of its own goes on from `x`.

    Attributes:
      x: the name of the value made last; may be set, for a model with branches.
    """

    def __init__(self, x: str) -> None:
        """Takes the name of the input."""
        self.x = self._input = x
        self._nodes: list = []
        self._tensors: dict[str, np.ndarray] = {}

    def node(
        self,
        kind: str,
        inputs: Sequence[str | np.ndarray],
        outputs: int = 1,
        **attributes: Attribute,
    ) -> list[str]:
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

    def named(self, name: str) -> None:
        """Gives the value made last a name."""
        self.node("Identity", [self.x])
        self._nodes[-1].output[0] = self.x = name

    def content(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        out_dtype: str = "float32",
        facts: dict[str, str] | None = None,
    ) -> bytes:
        """Returns the file's bytes.

        Args:
          shape: of one observation; the file takes any number of rows.
          dtype: of the input.
          out_dtype: of the output, the value made last.
          facts: the file's metadata.
        """
        from onnx import helper, mapping, numpy_helper

        def face(name: str, element: str, dimensions: Sequence[int | None]) -> object:
            kind = mapping.NP_TYPE_TO_TENSOR_TYPE[np.dtype(element)]
            return helper.make_tensor_value_info(name, kind, ["rows", *dimensions])

        graph = helper.make_graph(
            self._nodes,
            "policy",
            [face(self._input, dtype, shape)],
            [face(self.x, out_dtype, [None])],
            [numpy_helper.from_array(t, name) for name, t in self._tensors.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = IR_VERSION
        helper.set_model_props(model, facts or {})
        return model.SerializeToString()

    def session(
        self, shape: Sequence[int], dtype: str = "float32"
    ) -> Callable[[np.ndarray], Call]:
        """Returns a function of rows [M, *shape] that makes a call, on one thread."""
        run = session(self.content(shape, dtype))
        return lambda rows: lambda: run(rows)


def session(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function of rows that runs a model of one input, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    runtime = onnxruntime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )
    name = runtime.get_inputs()[0].name
    return lambda rows: runtime.run(None, {name: rows})[0]
