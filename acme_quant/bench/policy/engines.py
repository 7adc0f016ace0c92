"""The engines that `acme-quant bench policy` compares, all on the same tanh MLP.

An engine is made from the MLP's variables (weight [K, N], bias [N] of each layer) and
gives, for a batch of M rows, a call without arguments that maps the rows to actions:
what a person would write, from NumPy to NumPy. Everything runs on one thread.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from acme_quant.bench.policy import check
from acme_quant.bench.policy.check import Steps
from acme_quant.bench.policy.mlp import mlp_graph
from acme_quant.bench.policy.onnx_model import LayeredModel
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.policy.writer import activation_max

Call = Callable[[], np.ndarray]
Variables = Sequence[np.ndarray]


class Engine(NamedTuple):
    """One engine.

    Attributes:
      name: in the rows that the benchmark writes.
      make: variables -> (rows float32 [M, K] -> call).
      steps: how it rounds, for the check of its actions.
      tensorflow: whether it runs TensorFlow.
    """

    name: str
    make: Callable[[Variables], Callable[[np.ndarray], Call]]
    steps: Steps
    tensorflow: bool = False


def prepare_tensorflow() -> None:
    """Makes TensorFlow quiet and single-threaded, before its first operation."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _own(
    quantizer: str, activations: str, variables: Variables
) -> Callable[[np.ndarray], Call]:
    graph = mlp_graph(variables[0].shape[1], len(variables) // 2 - 1)
    return own_calls(quantize_graph(graph, variables, quantizer, activations))


def own_calls(policy: QuantizedPolicy) -> Callable[[np.ndarray], Call]:
    """Returns calls of our policy, as an actor and as a vector of actors make them."""

    def on(rows: np.ndarray) -> Call:
        if len(rows) > 1:
            return lambda: policy.batch(rows)
        row = rows[0].copy()
        return lambda: policy(row)

    return on


def _module(variables: Variables) -> Any:
    """Returns the MLP as a Sonnet module."""
    import sonnet as snt
    import tensorflow as tf

    widths = [len(bias) for bias in variables[1::2]]
    module = snt.nets.MLP(widths, activation=tf.tanh, activate_final=True)
    module(tf.zeros([1, len(variables[0])]))
    order = [(layer.w, layer.b) for layer in module.submodules if hasattr(layer, "w")]
    for variable, value in zip((v for pair in order for v in pair), variables):
        variable.assign(value)
    return module


def _acme(variables: Variables) -> Callable[[np.ndarray], Call]:
    return acme_calls(_module(variables))


def acme_calls(module: Any) -> Callable[[np.ndarray], Call]:
    """Acme's actor for one observation; its compiled policy alone for a batch."""
    import tensorflow as tf
    from acme.agents.tf import actors

    actor = actors.FeedForwardActor(module)
    compiled = tf.function(module)

    def on(rows: np.ndarray) -> Call:
        if len(rows) > 1:
            return lambda: compiled(rows).numpy()
        row = rows[0].copy()
        return lambda: actor.select_action(row)

    return on


def _onnx_float32(variables: Variables) -> Callable[[np.ndarray], Call]:
    model = LayeredModel("x")
    for weight, bias in zip(variables[::2], variables[1::2]):
        model.linear(weight, bias, "Tanh")
    return model.session(variables[0].shape[:1])


def _onnx_int8(variables: Variables) -> Callable[[np.ndarray], Call]:
    model = LayeredModel("x")
    for weight, bias in zip(variables[::2], variables[1::2]):
        model.linear_int8(weight, bias, "Tanh")
    return model.session(variables[0].shape[:1])


def _tflite(int8: bool, variables: Variables) -> Callable[[np.ndarray], Call]:
    """TFLite; int8 is its dynamic-range mode, which needs no data to calibrate."""
    import tensorflow as tf

    module = _module(variables)
    spec = tf.TensorSpec([None, len(variables[0])])
    function = tf.function(lambda x: module(x)).get_concrete_function(spec)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    content = converter.convert()

    def on(rows: np.ndarray) -> Call:
        interpreter = tf.lite.Interpreter(model_content=content, num_threads=1)
        source = interpreter.get_input_details()[0]["index"]
        target = interpreter.get_output_details()[0]["index"]
        interpreter.resize_tensor_input(source, rows.shape)
        interpreter.allocate_tensors()

        def call() -> np.ndarray:
            interpreter.set_tensor(source, rows)
            interpreter.invoke()
            return interpreter.get_tensor(target)

        return call

    return on


def own_steps(activations: str) -> Steps:
    """Returns how our int8 rounds, with wide or 8-bit activations."""

    def largest_code(inputs: int) -> int:
        return activation_max(activations, inputs, has_zero_point=False)

    return check.own_int8(largest_code)


def _own_int8(name: str, activations: str) -> Engine:
    make = functools.partial(_own, "int8", activations)
    return Engine(name, make, own_steps(activations))


_make_float32 = functools.partial(_own, "float32", "wide")
_make_tflite_float32 = functools.partial(_tflite, False)
_make_tflite_int8 = functools.partial(_tflite, True)

ENGINES = (
    _own_int8("int8", "wide"),
    Engine("float32", _make_float32, check.FLOAT32),
    Engine("acme_tf", _acme, check.FLOAT32, True),
    Engine("onnxruntime_float32", _onnx_float32, check.FLOAT32),
    Engine("onnxruntime_int8", _onnx_int8, check.ONNXRUNTIME_INT8),
    Engine("tflite_float32", _make_tflite_float32, check.FLOAT32, True),
    Engine("tflite_int8", _make_tflite_int8, check.TFLITE_INT8, True),
)
# Compared when asked for: our int8 with 8-bit activations instead of wide ones.
OPTIONAL = (_own_int8("int8_8bit", "8bit"),)
