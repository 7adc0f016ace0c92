"""How far from the exact policy an engine may be: an error model of its arithmetic.

Rounding errors are taken as independent, as they nearly are (Higham and Mary, 2019),
so their variances add up. For y = x W + b over K inputs, with u = 2^-24:

    var(y_n) = sum_k w_kn^2 var(x_k)                  errors carried along
             + sum_k w_kn^2 d_x^2/12                  inputs rounded to steps d_x
             + sum_k x_k^2 d_w^2/12                   weights rounded to steps d_w
             + K u^2 (sum_k |x_k w_kn| + |b_n|)^2     float32 sums

tanh and relu magnify nothing; tanh is itself good to 4u. An engine passes if no action
is off by more than SIGMAS standard deviations.
"""

from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

import numpy as np

from acme_quant.bench.policy import onnx_model

# Weights' errors are the same in all rows, so that few large ones show in many actions.
SIGMAS = 8.0
UNIT = 2.0**-24


class Steps(NamedTuple):
    """How an engine rounds: functions of a layer's weight [K, N] and input [M, K].

    Both return steps that broadcast over their argument; 0 for float32.
    """

    weight: Callable[[np.ndarray], np.ndarray]
    inputs: Callable[[np.ndarray], np.ndarray]


class Uncertain(NamedTuple):
    """Exact numbers and the variances of an engine's, float64 of one shape."""

    exact: np.ndarray
    variance: np.ndarray

    def times(self, weight: np.ndarray, bias: np.ndarray, steps: Steps) -> Uncertain:
        """Returns x W + b for rows x [M, K], by the formula above."""
        x, variance = self
        weight, bias = weight.astype(np.float64), bias.astype(np.float64)
        carried = variance + steps.inputs(x) ** 2 / 12
        rounded = x**2 @ np.broadcast_to(steps.weight(weight) ** 2 / 12, weight.shape)
        magnitude = np.abs(x) @ np.abs(weight) + np.abs(bias)
        sums = len(weight) * (UNIT * magnitude) ** 2
        return Uncertain(x @ weight + bias, carried @ weight**2 + rounded + sums)

    def tanh(self) -> Uncertain:
        """Returns tanh(x)."""
        return Uncertain(np.tanh(self.exact), self.variance + (4 * UNIT) ** 2)

    def relu(self) -> Uncertain:
        """Returns max(x, 0), exact where x is negative without doubt."""
        doubtful = self.exact > -self.allowed()
        return Uncertain(np.maximum(self.exact, 0), self.variance * doubtful)

    def allowed(self) -> np.ndarray:
        """Returns how far an engine may be off."""
        return SIGMAS * np.sqrt(self.variance)


def certain(rows: np.ndarray) -> Uncertain:
    """Returns observations, which are what they are."""
    rows = rows.astype(np.float64)
    return Uncertain(rows, np.zeros_like(rows))


def reference(
    variables: Sequence[np.ndarray], rows: np.ndarray, steps: Steps
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the tanh MLP in float64.

    Args:
      variables: weight [K, N] and bias [N] of each layer in turn, float32.
      rows: observations float32 [M, K].
      steps: of the engine under test.

    Returns:
      Actions and their allowed errors, float64 [M, A].
    """
    x = certain(rows)
    for weight, bias in zip(variables[::2], variables[1::2]):
        x = x.times(weight, bias, steps).tanh()
    return x.exact, x.allowed()


def check(
    name: str, actions: np.ndarray, expected: np.ndarray, allowed: np.ndarray
) -> None:
    """Raises ArithmeticError if an engine's actions are off by more than allowed."""
    actions = np.asarray(actions)
    if actions.shape != expected.shape:
        raise ArithmeticError(
            f"{name}: expected actions {list(expected.shape)}, got "
            f"{list(actions.shape)}"
        )
    excess = np.abs(actions - expected) / allowed
    if not (excess <= 1).all():
        worst = np.unravel_index(np.argmax(excess), excess.shape)
        raise ArithmeticError(
            f"{name}: expected {expected[worst]:.6g} within {allowed[worst]:.2g}, got "
            f"{actions[worst]:.6g}"
        )


def _none(array: np.ndarray) -> np.ndarray:
    return np.zeros((1, 1))


def _per_column(weight: np.ndarray) -> np.ndarray:
    return np.abs(weight).max(axis=0, keepdims=True) / 127


def _per_matrix(code_max: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda weight: np.abs(weight).max(keepdims=True) / code_max


def _row_of(codes: Callable[[int], int]) -> Callable[[np.ndarray], np.ndarray]:
    def step(x: np.ndarray) -> np.ndarray:
        return np.abs(x).max(axis=1, keepdims=True) / codes(x.shape[1])

    return step


def _range_of_batch(x: np.ndarray) -> np.ndarray:
    return (max(x.max(), 0) - min(x.min(), 0)) / 255 * np.ones((1, 1))


FLOAT32 = Steps(_none, _none)
# ONNX Runtime: DynamicQuantizeLinear takes one scale for a whole batch.
ONNXRUNTIME_INT8 = Steps(_per_matrix(onnx_model.CODE_MAX), _range_of_batch)
TFLITE_INT8 = Steps(_per_matrix(127), _row_of(lambda inputs: 127))


def own_int8(largest_code: Callable[[int], int]) -> Steps:
    """Returns the steps of our int8: `largest_code` of a row by its inputs."""
    return Steps(_per_column, _row_of(largest_code))
