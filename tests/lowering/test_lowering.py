"""Policies lowered from TensorFlow act as TensorFlow does."""

from __future__ import annotations

import pickle
from typing import Any, Callable

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
import sonnet as snt  # noqa: E402
from acme import specs  # noqa: E402
from acme.tf import networks  # noqa: E402
from acme.tf import utils as tf2_utils  # noqa: E402
from lowering_checks import (  # noqa: E402
    check,
    disturb,
    fused,
    kinds,
    lowered,
    observations,
    spec,
    tolerance,
)

from acme_quant import lowering  # noqa: E402
from acme_quant.policy.quantized_policy import quantize_graph  # noqa: E402

ACTION = specs.BoundedArray((2,), np.float32, [-1, -2], [1, 3])


def test_mlp_becomes_one_layer_per_linear() -> None:
    graph = check(snt.nets.MLP([16, 8, 3]), spec(5))
    assert fused(graph) == ["linear+relu", "linear+relu", "linear+identity"]
    assert all(layer.bias is not None for layer in graph.layers)


def test_d4pg_policy_becomes_five_layers() -> None:
    module = snt.Sequential(
        [
            networks.LayerNormMLP([16, 16], activate_final=True),
            networks.NearZeroInitializedLinear(2),
            networks.TanhToSpec(ACTION),
        ]
    )
    graph = check(module, spec(17))
    assert fused(graph) == [
        "linear+identity",
        "layer_norm+tanh",
        "linear+elu",
        "linear+tanh",
        "affine+identity",
    ]
    assert graph.layers[1].name == "feedforward_mlp_torso/layer_norm"


def test_dict_observations_are_concatenated_in_sorted_order_without_copies() -> None:
    module = snt.Sequential([tf2_utils.batch_concat, snt.Linear(2)])
    observation_spec = {"velocity": spec(2), "height": spec(), "arm": spec(2, 3)}
    graph = check(module, observation_spec)
    assert kinds(graph) == ["linear"]
    assert [f.path for f in graph.observation] == ["arm", "height", "velocity"]


def test_fields_in_another_order_are_copied() -> None:
    def module(observation: Any) -> tf.Tensor:
        return tf.concat([observation["b"], observation["a"]], axis=-1)

    assert kinds(check(module, {"a": spec(2), "b": spec(3)})) == ["copy", "copy"]


def test_tuple_observations_of_mixed_dtypes() -> None:
    def module(observation: Any) -> tf.Tensor:
        image, (position, count) = observation
        count = tf.cast(count, tf.float32)[:, None]
        image = tf.reshape(tf.cast(image, tf.float32) / 255.0, [-1, 12])
        return tf.concat([image, tf.cast(position, tf.float32), count], axis=1)

    fields = (
        spec(2, 2, 3, dtype=np.uint8),
        (spec(3, dtype=np.float64), spec(dtype=np.int32)),
    )
    check(module, fields)


def test_layer_norm_and_residual_mlp() -> None:
    graph = check(networks.LayerNormAndResidualMLP(16, 2), spec(5))
    assert kinds(graph).count("layer_norm") == 2
    assert kinds(graph).count("add") == 2


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_layer_norm_with_or_without_scale_and_offset(scale: bool, offset: bool) -> None:
    module = snt.Sequential([snt.LayerNorm(-1, scale, offset), snt.Linear(2)])
    assert kinds(check(module, spec(6))) == ["layer_norm", "linear"]


def test_duelling_mlp() -> None:
    graph = check(networks.DuellingMLP(3, [16]), spec(5))
    assert kinds(graph)[-3:] == ["mean", "subtract", "add"]


def test_atari_network_with_greedy_actions() -> None:
    module = snt.Sequential(
        [
            lambda image: tf.cast(image, tf.float32) / 255.0,
            networks.DQNAtariNetwork(4),
        ]
    )
    observation_spec = spec(84, 84, 4, dtype=np.uint8)
    graph = check(module, observation_spec)
    assert kinds(graph)[:4] == ["affine", "conv2d", "conv2d", "conv2d"]
    assert [layer.activation for layer in graph.layers[1:4]] == ["relu"] * 3
    greedy = check(lambda x: tf.argmax(module(x), axis=-1), observation_spec)
    assert kinds(greedy)[-1] == "argmax"
    assert (greedy.output.shape, greedy.output.dtype) == ((), "int64")


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("kernel, stride", [(3, 1), ([2, 3], [3, 2]), (5, 4)])
def test_convolution_geometry(padding: str, kernel: Any, stride: Any) -> None:
    convolution = snt.Conv2D(4, kernel, stride, padding=padding)
    check(snt.Sequential([convolution, snt.Flatten(), snt.Linear(2)]), spec(9, 10, 3))


def test_convolution_without_bias_and_normalized_channels() -> None:
    def normalize(image: tf.Tensor) -> tf.Tensor:
        return (tf.cast(image, tf.float32) - [100.0, 90.0, 80.0]) / [50.0, 60.0, 70.0]

    module = snt.Sequential([normalize, snt.Conv2D(4, 3, with_bias=False)])
    graph = check(module, spec(6, 7, 3, dtype=np.uint8))
    assert kinds(graph) == ["affine", "conv2d"]


@pytest.mark.parametrize(
    "function",
    [tf.tanh, tf.nn.relu, tf.nn.elu, tf.nn.selu, tf.sigmoid, tf.nn.softplus],
    ids=lambda function: function.__name__,
)
def test_activations_are_fused_or_stand_alone(function: Callable) -> None:
    module = snt.Sequential([function, snt.Linear(8), function, snt.Linear(2)])
    graph = check(module, spec(6))
    assert kinds(graph) == ["unary", "linear", "linear"]
    assert graph.layers[0].activation == graph.layers[1].activation != "identity"


@pytest.mark.parametrize(
    "function",
    [
        tf.nn.relu6,
        tf.nn.swish,
        tf.square,
        lambda x: -x,
        lambda x: 1.0 - x,
        lambda x: x - [1.0, 2.0, 3.0, 4.0],
        lambda x: x / [1.0, 2.0, 3.0, 4.0],
        lambda x: tf.clip_by_value(x, -0.5, [0.1, 0.2, 0.3, 0.4]),
        lambda x: tf.maximum(x, 0.1),
        lambda x: tf.minimum([0.5], x),
        lambda x: x * x[:, :1] - x[:, 3:],
        lambda x: tf.math.squared_difference(x, 2.0),
        lambda x: tf.reduce_sum(x, axis=1, keepdims=True),
        lambda x: tf.reduce_mean(x, axis=[1]),
        lambda x: x[..., 1:-1],
        lambda x: tf.slice(x, [0, 1], [-1, 2]),
        lambda x: tf.split(x, [1, 3], axis=1)[1],
        lambda x: tf.unstack(x, axis=1)[2],
        lambda x: tf.reshape(x, [tf.shape(x)[0], 2, 2])[:, 1],
        lambda x: tf.squeeze(tf.expand_dims(x, 1), 1),
        lambda x: tf.reshape(x, [-1, 2, 2]),
        lambda x: tf.stop_gradient(tf.identity(x)),
        lambda x: tf.reshape(x, [x.shape[0], 4]) if x.shape[0] else 1 / 0,
    ],
)
def test_operations_alone(function: Callable) -> None:
    check(function, spec(4))


def test_constant_factors_and_terms_become_one_layer() -> None:
    graph = check(lambda x: ((x + 1.0) * 0.5 * [2.0, 3.0] - 1.0) / 4.0, spec(2))
    assert kinds(graph) == ["affine"]


def test_clip_and_rescale_to_spec_become_two_layers() -> None:
    module = snt.Sequential(
        [networks.ClipToSpec(ACTION), networks.RescaleToSpec(ACTION)]
    )
    assert kinds(check(module, spec(2))) == ["clip", "affine"]


def test_activation_of_a_shared_value_is_not_fused() -> None:
    first = snt.Linear(4)

    def module(x: tf.Tensor) -> tf.Tensor:
        y = first(x)
        return tf.tanh(y) + y

    assert fused(check(module, spec(3))) == [
        "linear+identity",
        "unary+tanh",
        "add+identity",
    ]


class Custom(snt.Module):
    """Python control flow, nested tf.functions, own variables, a split."""

    def __init__(self) -> None:
        super().__init__()
        self.torso = [snt.Linear(6), snt.Linear(6)]
        self.gain = tf.Variable([1.0, 2.0, 3.0])
        self.shift = tf.Variable([[0.1, 0.2, 0.3]])

    @tf.function
    def __call__(self, x: Any) -> tf.Tensor:
        for layer in self.torso:
            x = self.activate(layer(x))
        mean, other = tf.split(x, 2, axis=-1)
        return mean * tf.sigmoid(other) * self.gain + self.shift

    @tf.function
    def activate(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.selu(x)


def test_custom_module_with_nested_functions_and_variables() -> None:
    graph = check(Custom(), spec(5))
    assert fused(graph)[:2] == ["linear+selu", "linear+selu"]
    gain = graph.layers[-1]
    assert gain.kind == "affine" and min(gain.scale.variable, gain.bias.variable) >= 0


def test_plain_function_closing_over_modules() -> None:
    first, second = snt.Linear(8), snt.Linear(2)
    graph = check(lambda x: second(tf.nn.relu(first(x))), spec(4))
    assert kinds(graph) == ["linear", "linear"]
    assert graph.num_variables == 4


def test_mean_of_a_distribution_and_layers_that_only_give_shapes() -> None:
    head = networks.MultivariateNormalDiagHead(2)
    graph = check(snt.Sequential([head, lambda d: d.mean()]), spec(4))
    assert kinds(graph) == ["linear"]


def test_variables_come_in_the_learners_order() -> None:
    module = snt.nets.MLP([4, 2])
    lowering.policy_variables(module, spec(3))
    order = module.variables[::-1]
    graph = lowering.lower(module, spec(3), order)
    read = [(layer.weight.variable, layer.bias.variable) for layer in graph.layers]
    names = [(order[w].name, order[b].name) for w, b in read]
    assert names == [(f"mlp/linear_{i}/w:0", f"mlp/linear_{i}/b:0") for i in (0, 1)]


def test_graph_is_picklable_and_free_of_weights() -> None:
    graph, _, _ = lowered(snt.nets.MLP([512, 512]), spec(5))
    data = pickle.dumps(graph)
    assert len(data) < 5000 and b"tensorflow" not in data
    assert kinds(pickle.loads(data)) == kinds(graph)


def test_later_variables_need_no_second_lowering() -> None:
    module = snt.nets.MLP([8, 2])
    graph, _, variables = lowered(module, spec(3))
    disturb(variables)
    policy = quantize_graph(graph, [v.numpy() for v in variables], "float32")
    batch = observations(spec(3))
    expected = module(tf.constant(batch)).numpy()
    atol = tolerance(graph, expected)
    np.testing.assert_allclose(policy.batch(batch), expected, rtol=0, atol=atol)


def test_quantize_policy_lowers_and_quantizes() -> None:
    policy = lowering.quantize_policy(snt.nets.MLP([32, 2]), spec(3), "int8")
    assert policy(np.ones(3, np.float32)).shape == (2,)
