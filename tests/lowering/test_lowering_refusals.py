"""What cannot be lowered from TensorFlow is named in one sentence."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
import sonnet as snt  # noqa: E402
from acme.tf import networks  # noqa: E402
from lowering_checks import spec  # noqa: E402

from acme_quant import lowering  # noqa: E402
from acme_quant.policy.graph import LoweringError  # noqa: E402


@pytest.mark.parametrize(
    "module, observation_spec, message",
    [
        (tf.sin, spec(3), "operation 'Sin' at 'Sin': the engine has no such layer"),
        (tf.nn.softmax, spec(2, 3), "'Softmax'.*split the row"),
        (lambda x: x - tf.reduce_mean(x, 0), spec(3), "'Mean'.*over the batch"),
        (lambda x: x / 0.0, spec(3), "'RealDiv'.*divides by zero"),
        (lambda x: 1.0 / x, spec(3), "'RealDiv'.*divides by a value"),
        (lambda x: tf.ones([1, 2]), spec(3), "does not depend on the observation"),
        (lambda x: (x, x), spec(3), "expected a tensor of batched actions, got tuple"),
        (lambda x: x[::-1], spec(3), "'StridedSlice'.*mixes the batch"),
        (lambda x: x[:, ::2], spec(3), "'StridedSlice'.*side by side"),
        (lambda x: tf.transpose(x, [0, 2, 1]), spec(2, 3), "'Transpose'"),
        (lambda x: tf.squeeze(x), spec(1), "'Squeeze'.*which axis"),
        (lambda x: tf.concat([x, [[1.0]]], 1), spec(3), "'ConcatV2'.*constants"),
        (lambda x: tf.reshape(x, [-1, 2]), spec(4), "mixes the batch"),
        (
            lambda x: x * tf.cast(tf.shape(x)[0], tf.float32),
            spec(3),
            "computes with the size of the batch",
        ),
        (
            lambda x: tf.cast(tf.cast(x, tf.int32), tf.float32),
            spec(3),
            "'Cast'.*truncates float32 to int32",
        ),
        (
            lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x),
            spec(3),
            "acme_quant cannot lower",
        ),
        (snt.Linear(3), spec(3, dtype=np.float64), "computes in float64"),
        (lambda x: x**0.5, spec(3), "'Pow'.*the power of"),
        (
            lambda x: tf.compat.v1.nn.fused_batch_norm(x, [1.0], [0.0])[0],
            spec(3, 3, 1),
            "is_training=False",
        ),
        (snt.Linear(3), spec(), "cannot call the policy"),
        (lambda x: x["b"], {"a": spec(3)}, "cannot call the policy .* KeyError"),
        (lambda x: x * 2.0, spec(3, dtype=np.int32), "cannot call the policy"),
        (networks.MultivariateNormalDiagHead(2), spec(4), r"distribution .* mean\(\)"),
        (
            snt.Sequential([snt.Linear(2), networks.ClippedGaussian(0.1)]),
            spec(3),
            "random numbers, and exploration belongs to the actor",
        ),
    ],
)
def test_what_cannot_be_lowered_is_named(
    module: Callable, observation_spec: Any, message: str
) -> None:
    with pytest.raises(LoweringError, match=message) as caught:
        lowering.lower(module, observation_spec)
    assert "\n" not in str(caught.value)


def test_computed_weights_are_named() -> None:
    layer = snt.Linear(2)
    layer(tf.ones([1, 3]))
    with pytest.raises(LoweringError, match="'Sin'.*variables alone"):
        lowering.lower(lambda x: tf.matmul(x, tf.sin(layer.w)), spec(3))


def test_a_variable_the_learner_lacks_is_named() -> None:
    module = snt.nets.MLP([4, 2])
    lowering.policy_variables(module, spec(3))
    with pytest.raises(LoweringError, match="not one of the learner's"):
        lowering.lower(module, spec(3), module.variables[:1])
