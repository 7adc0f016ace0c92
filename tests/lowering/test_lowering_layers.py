"""Layers that policies elsewhere are made of are lowered as TensorFlow has them."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
import sonnet as snt  # noqa: E402
from lowering_checks import check, disturb, kinds, lowered, spec  # noqa: E402

from acme_quant import lowering  # noqa: E402


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * tf.reduce_mean(tf.constant([1.0, 3.0])),
        lambda x: x + tf.reduce_sum(tf.ones([2, 2]), axis=[0, 1]),
        lambda x: x * tf.reduce_max(tf.constant([1.0, 3.0])),
        lambda x: tf.tensordot(x, tf.ones([4, 3]), 1),
        lambda x: tf.tensordot(x, tf.ones([4, 3]), [[1], [0]]),
    ],
)
def test_what_is_made_of_constants_is_computed(function: Callable) -> None:
    check(function, spec(4))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: snt.Linear(5),
        lambda: tf.keras.layers.Dense(5),
        lambda: tf.keras.layers.Dense(5, activation="relu"),
        lambda: lambda x: tf.tensordot(x, tf.ones([4, 2]), 1),
    ],
)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_a_dense_layer_is_applied_at_each_position(
    layer: Callable, shape: tuple
) -> None:
    assert "conv2d" in kinds(check(layer(), spec(*shape)))


@pytest.mark.parametrize(
    "function",
    [
        tf.nn.leaky_relu,
        lambda x: tf.nn.leaky_relu(x, 0.0),
        lambda x: tf.nn.leaky_relu(x, 1.5),
        lambda x: tf.maximum(x, 0.01 * x),
        lambda x: tf.minimum(x, x[:, :1]),
        lambda x: tf.nn.gelu(x, approximate=True),
        lambda x: tf.nn.gelu(x, approximate=False),
        tf.nn.softmax,
        lambda x: tf.math.pow(x, 3),
        tf.math.erf,
    ],
)
def test_functions_of_policies_elsewhere(function: Callable) -> None:
    check(snt.Sequential([snt.Linear(7), function, snt.Linear(3)]), spec(4))
    check(function, spec(4))


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("size, stride", [(2, 2), (3, 2), (3, 1)])
def test_max_pooling(size: int, stride: int, padding: str) -> None:
    def pool(x: Any) -> Any:
        return tf.nn.max_pool2d(x, size, stride, padding)

    module = snt.Sequential([snt.Conv2D(4, 3), pool, tf.nn.relu, snt.Flatten()])
    assert "max_pool" in kinds(check(module, spec(7, 6, 2)))
    check(pool, spec(7, 6, 3))


def batch_norm(keras: bool, shape: tuple = ()) -> Callable:
    if keras:
        return tf.keras.layers.BatchNormalization()
    norm = snt.BatchNorm(create_scale=True, create_offset=True)
    rows = 4 * np.random.default_rng(0).normal(size=(64, *shape)).astype(np.float32)
    norm(rows, is_training=True)
    return lambda x: norm(x, is_training=False)


@pytest.mark.parametrize("keras", [True, False])
@pytest.mark.parametrize("shape", [(6,), (5, 4, 3)])
def test_batch_norm_for_inference_reads_its_moving_averages(
    keras: bool, shape: tuple
) -> None:
    check(batch_norm(keras, shape), spec(*shape))


def test_batch_norm_between_convolutions() -> None:
    parts = [snt.Conv2D(4, 3), batch_norm(True), tf.nn.relu, snt.Conv2D(2, 3)]
    check(snt.Sequential([*parts, snt.Flatten(), snt.Linear(3)]), spec(6, 6, 2))


class Normalizer(snt.Module):
    """A running normaliser, as many agents have one before their policy."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = tf.Variable(np.full(4, 0.3, np.float32), trainable=False)
        self.variance = tf.Variable(np.full(4, 2.0, np.float32), trainable=False)

    def __call__(self, x: Any) -> Any:
        deviation = tf.maximum(tf.sqrt(self.variance), 1e-2)
        return tf.clip_by_value((x - self.mean) / deviation, -5.0, 5.0)


def test_a_running_normalizer_follows_its_variables() -> None:
    normalizer = Normalizer()
    module = snt.Sequential([normalizer, snt.Linear(3)])
    graph, _, variables = lowered(module, spec(4))
    check(module, spec(4))
    normalizer.mean.assign(np.arange(4, dtype=np.float32))
    disturb(variables)
    arrays = [variable.numpy() for variable in variables]
    policy = lowering.quantize_graph(graph, arrays, "float32")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(policy.batch(x), module(x).numpy(), rtol=0, atol=1e-5)


def test_a_formula_of_variables_that_is_not_finite_is_refused() -> None:
    normalizer = Normalizer()
    normalizer.variance.assign(np.full(4, -1.0, np.float32))
    with pytest.raises(ValueError, match="expected a finite"):
        lowering.quantize_policy(normalizer, spec(4))
