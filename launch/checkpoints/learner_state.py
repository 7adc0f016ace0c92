"""An Acme learner's variables by name: networks, optimizers, its own count of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import sonnet as snt
import tensorflow as tf
from acme import core

PART = "learner"


class LearnerState:
    """Copies a learner's variables to host arrays, and back.

    A learner's networks and optimizers are its attributes; their names and Sonnet's
    order of variables name the arrays: `learner/policy_network/003`.
    """

    def __init__(self, learner: core.Learner) -> None:
        """Finds the variables; the optimizers' slots must have been made."""
        self._variables = _find(learner)
        # The same memory at every copy: touching new pages takes longer than copying.
        self._arrays: dict[str, np.ndarray] = {}

    def copy(self) -> dict[str, np.ndarray]:
        """Returns the variables' values; the next copy overwrites them."""
        for name, variable in self._variables.items():
            value = np.asarray(memoryview(variable.read_value()))
            if name not in self._arrays:
                self._arrays[name] = np.empty_like(value)
            np.copyto(self._arrays[name], value)
        return self._arrays

    def like(self) -> dict[str, np.ndarray]:
        """Returns arrays of the variables' shapes and dtypes, without values."""
        return {
            name: np.broadcast_to(np.zeros((), v.dtype.as_numpy_dtype), tuple(v.shape))
            for name, v in self._variables.items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Gives every variable its array's value.

        Each gets a copy of its own: TensorFlow may keep an array's memory as the
        variable's, and a fused optimizer then writes into the array.
        """
        for name, variable in self._variables.items():
            variable.assign(np.array(arrays[name]))

    def names_of(self, variables: Sequence[tf.Variable]) -> list[str]:
        """Returns the arrays' names of some of the variables, in their order."""
        names = {id(variable): name for name, variable in self._variables.items()}
        return [names[id(variable)] for variable in variables]


def _find(learner: core.Learner) -> dict[str, tf.Variable]:
    found: dict[str, tf.Variable] = {}
    seen: set[int] = set()
    for attribute, value in sorted(vars(learner).items()):
        for index, variable in enumerate(_variables(value)):
            if id(variable) not in seen:
                seen.add(id(variable))
                found[f"{PART}/{attribute.strip('_')}/{index:03d}"] = variable
    return found


def _variables(value: object) -> Sequence[tf.Variable]:
    if isinstance(value, tf.Variable):
        return [value]
    return value.variables if isinstance(value, snt.Module) else []
