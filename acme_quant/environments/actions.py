"""Actions at the edge: a canonical box or an index -> what the environment takes.

Continuous actions are float32 rows in [-1, 1], clipped and then mapped to the bounds of
each dimension: the rule of Acme's CanonicalSpecWrapper(clip=True). Discrete actions are
indices from 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dm_env import specs

from acme_quant.environments.errors import EpisodeFailed, UnsupportedEnvironment

NAN_ACTION = "action is NaN."
# A bound this large is none: MuJoCo's largest number (mjMAXVAL) is the suite's bound of
# an actuator without one, and scaling to the largest float would overflow.
UNBOUNDED = 1e10


class ContinuousActions:
    """Maps [-1, 1]^n to the environment's own box."""

    def __init__(self, low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> None:
        """Initializes the map.

        Args:
          low: smallest action, of the environment's action shape.
          high: largest action, of the same shape.
          dtype: floating dtype in which the environment takes its actions.
        """
        size = int(low.size)
        ones = np.ones(size, dtype)
        self.spec = specs.BoundedArray((size,), np.float32, -ones, ones, name="action")
        self._shape, self._dtype = low.shape, dtype
        self._row, self._top, self._bottom = (size,), ones, -ones
        self._low, self._high = low.astype(dtype), high.astype(dtype)
        self._half = (0.5 * (high - low)).ravel()
        self._middle = (0.5 * (high + low)).ravel()
        self._canonical = bool((self._half == 1).all() and (self._middle == 0).all())

    def write(self, action: Any) -> np.ndarray:
        """Returns the environment's action for `action`, float [n].

        Raises:
          EpisodeFailed: if the action is NaN.
          ValueError: if it has another shape.
        """
        action = np.asarray(action, self._dtype)
        if action.shape != self._row:
            raise ValueError(f"action must have shape {self._row}, got {action.shape}.")
        written = self.scale(action)
        flat = written.ravel()
        if math.isnan(flat.dot(flat)):  # Of bounded numbers: only if one is NaN.
            raise EpisodeFailed(NAN_ACTION)
        return written

    def scale(self, actions: np.ndarray) -> np.ndarray:
        """Returns the environment's actions for float [..., n]; NaN stays NaN."""
        actions = np.minimum(np.maximum(actions, self._bottom), self._top)
        if self._canonical:
            return actions.reshape(actions.shape[:-1] + self._shape)
        scaled = self._middle + self._half * actions
        scaled = scaled.astype(self._dtype).reshape(actions.shape[:-1] + self._shape)
        # Rounding must not leave the box.
        return np.minimum(np.maximum(scaled, self._low), self._high)


class DiscreteActions:
    """Maps the indices 0..n-1 to the environment's first action and those after it."""

    def __init__(self, count: int, start: int, dtype: np.dtype) -> None:
        """Initializes the map: `count` actions from `start` on, given as `dtype`."""
        self.spec = specs.DiscreteArray(count, dtype=np.int32, name="action")
        self._count, self._start, self._type = count, start, np.dtype(dtype).type

    def write(self, action: Any) -> np.generic:
        """Returns the environment's action for the index `action`.

        Raises:
          ValueError: if it is no index of an action.
        """
        index = int(action)
        if not 0 <= index < self._count:
            raise ValueError(f"action must lie in 0..{self._count - 1}, got {index}.")
        return self._type(index + self._start)


def adapt(spec: Any, limit: float | None) -> ContinuousActions | DiscreteActions:
    """Returns the actions to offer for the environment's action spec.

    Args:
      spec: a dm_env spec.
      limit: bound to use wherever the spec has none; such actions are refused if None.

    Raises:
      UnsupportedEnvironment: if the spec is neither one row of bounded real numbers nor
        one index.
    """
    if not isinstance(spec, specs.Array):
        raise UnsupportedEnvironment(
            f"action must be one array, got {type(spec).__name__} {spec!r}."
        )
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return ContinuousActions(*_bounds(spec, limit), dtype)
    if isinstance(spec, specs.DiscreteArray):
        return DiscreteActions(spec.num_values, 0, dtype)
    bounded = isinstance(spec, specs.BoundedArray) and dtype.kind in "iu"
    if bounded and spec.shape == ():
        low, high = int(spec.minimum), int(spec.maximum)
        return DiscreteActions(high - low + 1, low, dtype)
    raise UnsupportedEnvironment(
        "action must be one index or one row of bounded real numbers, "
        f"got {dtype} of shape {spec.shape}."
    )


def _bounds(spec: specs.Array, limit: float | None) -> tuple[np.ndarray, np.ndarray]:
    low = np.full(spec.shape, getattr(spec, "minimum", -np.inf), np.float64)
    high = np.full(spec.shape, getattr(spec, "maximum", np.inf), np.float64)
    below, above = np.abs(low) < UNBOUNDED, np.abs(high) < UNBOUNDED
    if not (below.all() and above.all()):
        if limit is None:
            raise UnsupportedEnvironment(
                "action has infinite bounds: expected finite ones, or a limit to clip "
                f"to (action_limit), got {low.tolist()} to {high.tolist()}."
            )
        low, high = np.where(below, low, -limit), np.where(above, high, limit)
    if not low.size or not (low < high).all():
        raise UnsupportedEnvironment(
            "action must have each lower bound below its upper bound, "
            f"got {low.tolist()} to {high.tolist()}."
        )
    return low, high


def action_kind(spec: Any) -> str:
    """Returns 'continuous' or 'discrete' for an environment spec or an action spec.

    Raises:
      UnsupportedEnvironment: if the actions are of neither kind.
    """
    actions = getattr(spec, "actions", spec)
    if isinstance(actions, specs.DiscreteArray):
        return "discrete"
    if isinstance(actions, specs.BoundedArray) and actions.dtype.kind == "f":
        return "continuous"
    raise UnsupportedEnvironment(
        f"action must be a DiscreteArray or a BoundedArray of floats, got {actions!r}."
    )
