"""Compares lowered modules with TensorFlow."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf
import tree
from acme import specs

from acme_quant import lowering
from acme_quant.policy import quantize_graph

ROWS = 5


def spec(*shape: int, dtype: Any = np.float32) -> specs.Array:
    return specs.Array(shape, dtype)


def observations(observation_spec: Any, rows: int = ROWS) -> Any:
    rng = np.random.default_rng(7)

    def draw(leaf: specs.Array) -> np.ndarray:
        if leaf.dtype.kind in "iu":
            return rng.integers(0, 200, (rows, *leaf.shape)).astype(leaf.dtype)
        return rng.normal(size=(rows, *leaf.shape)).astype(leaf.dtype)

    return tree.map_structure(draw, observation_spec)


def disturb(variables: Any) -> None:
    """Biases and offsets start at zero, where a mistake would not show."""
    rng = np.random.default_rng(3)
    for variable in variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape))


def lowered(module: Callable, observation_spec: Any) -> Any:
    """Returns (graph, policy in float32, variables) of a module with some weights."""
    variables = lowering.policy_variables(module, observation_spec)
    disturb(variables)
    graph = lowering.lower(module, observation_spec)
    arrays = [variable.numpy() for variable in variables]
    return graph, quantize_graph(graph, arrays, "float32"), variables


def tolerance(graph: Any, actions: np.ndarray) -> float:
    """Bounds the difference of two orders of float32 arithmetic.

    A sum of K products errs by at most K * 2**-24 of the sum of their magnitudes, in
    either program; that sum stays below 8 times an action here (weights of about unit
    norm), no activation magnifies an error twice, and errors of layers add up.
    """
    longest = max(layer.width for layer in graph.layers)
    magnitude = max(1.0, float(np.abs(actions).max()))
    return 2 * 8 * len(graph.layers) * longest * 2.0**-24 * magnitude


def check(module: Callable, observation_spec: Any) -> Any:
    """Compares a lowered module with TensorFlow; returns its graph."""
    graph, policy, _ = lowered(module, observation_spec)
    batch = observations(observation_spec)
    expected = module(tree.map_structure(tf.constant, batch)).numpy()
    actions = policy.batch(batch)
    assert (actions.shape, actions.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(
        actions, expected, rtol=0, atol=tolerance(graph, expected)
    )
    one = policy(tree.map_structure(lambda x: x[0], batch))
    np.testing.assert_allclose(
        one, expected[0], rtol=0, atol=tolerance(graph, expected)
    )
    return graph


def kinds(graph: Any) -> list[str]:
    return [layer.kind for layer in graph.layers]


def fused(graph: Any) -> list[str]:
    return [f"{layer.kind}+{layer.activation}" for layer in graph.layers]
