"""From nested observations to the engine's rows, and what is wrong if there is no way.

A good observation is checked in a few comparisons per field; only one that does not
pass them is looked at again, with care, to convert it or to say what is wrong.
"""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Sequence, Set, Tuple

import numpy as np

from acme_quant.policy.graph import Field


class ObservationError(ValueError):
    """An observation is not what the policy was made for."""


class _Step(NamedTuple):
    """A field, the columns it fills, and the dtypes that need no second look."""

    field: Field
    start: int
    stop: int
    dtypes: Set[np.dtype]


class RowFiller:
    """Fills rows with observations of one structure."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """Takes the fields in the order of a row; at least one."""
        self._fields = tuple(fields)
        self._steps: List[_Step] = []
        start = 0
        for field in fields:
            stop = start + field.width
            self._steps.append(_Step(field, start, stop, _kindred(field.dtype)))
            start = stop
        self._width = start
        # Every mapping or sequence of the nest, and how many entries it has.
        children = {f.keys[:n]: set() for f in fields for n in range(len(f.keys))}
        for field in fields:
            for n, key in enumerate(field.keys):
                children[field.keys[:n]].add(key)
        self._containers = [(keys, len(found)) for keys, found in children.items()]

    def rows(self, observation: Any, leading: Tuple[int, ...] = ()) -> np.ndarray:
        """Flattens an observation, or a batch of them, into new rows.

        Args:
          observation: a nest of arrays, each with the dimensions `leading` in front.
          leading: () for a row [W], (M,) for rows [M, W].

        Raises:
          ObservationError: if a field is missing, one too many, or of another shape or
            kind of dtype.
        """
        rows = np.empty((*leading, self._width), np.float32)
        try:
            if self._fill(rows, observation, leading):
                return rows
        except (AttributeError, LookupError, TypeError):
            pass
        self._fill_with_care(rows, observation, leading)
        return rows

    def batch_size(self, observations: Any) -> int:
        """Returns the rows of a batch, by its first field.

        Raises:
          ObservationError: if there is no such field or it has no dimensions.
        """
        shape = np.shape(_look_up(self._fields[0], observations))
        if not shape:
            raise ObservationError(
                f"expected '{self._fields[0].path}' with a leading batch dimension, "
                "got a scalar"
            )
        return shape[0]

    def not_finite(self, rows: np.ndarray) -> str:
        """Says which field of rows [..., W] holds a NaN or Inf; '' if none does."""
        for field, start, stop, _ in self._steps:
            values = rows[..., start:stop]
            if not np.isfinite(values).all():
                wrong = values[~np.isfinite(values)][0]
                return f"expected finite numbers in '{field.path}', got {wrong}"
        return ""

    def _fill(self, rows: np.ndarray, observation: Any, leading: tuple) -> bool:
        """Fills rows from a good observation; returns whether it was one."""
        for keys, count in self._containers:
            container = observation
            for key in keys:
                container = container[key]
            if len(container) != count:
                return False
        for field, start, stop, dtypes in self._steps:
            array = observation
            for key in field.keys:
                array = array[key]
            if array.shape != leading + field.shape or array.dtype not in dtypes:
                return False
            if len(field.shape) != 1:
                array = array.reshape(*leading, stop - start)
            rows[..., start:stop] = array
        return True

    def _fill_with_care(
        self, rows: np.ndarray, observation: Any, leading: tuple
    ) -> None:
        for field, start, stop, _ in self._steps:
            array = _converted(field, _look_up(field, observation), leading)
            rows[..., start:stop] = array.reshape(*leading, stop - start)
        expected, found = len(self._fields), _count_leaves(observation)
        if self._containers and found != expected:
            paths = ", ".join(field.path for field in self._fields)
            raise ObservationError(
                f"expected an observation of {expected} fields ({paths}), got {found}"
            )


def _kindred(dtype: str) -> Set[np.dtype]:
    """Returns the dtypes that convert to `dtype` without a loss of kind."""
    every = (np.dtype(letter) for letter in "?" + np.typecodes["AllInteger"] + "efd")
    return set(filter(lambda other: np.can_cast(other, dtype, "same_kind"), every))


def _converted(field: Field, array: Any, leading: tuple) -> np.ndarray:
    """Returns a field of an observation as an array of the right shape and kind."""
    array = np.asarray(array)
    shape = leading + field.shape
    if array.shape != shape:
        raise ObservationError(
            f"expected '{field.path}' of shape {list(shape)}, got {list(array.shape)}"
        )
    if not np.can_cast(array.dtype, field.dtype, "same_kind"):
        raise ObservationError(
            f"expected '{field.path}' of dtype {field.dtype}, got {array.dtype}"
        )
    return array


def _look_up(field: Field, observation: Any) -> Any:
    for key in field.keys:
        try:
            observation = observation[key]
        except (LookupError, TypeError) as error:
            raise ObservationError(
                f"expected '{field.path}' in the observation, got "
                f"{_describe(observation)}"
            ) from error
    if isinstance(observation, Mapping):
        raise ObservationError(
            f"expected an array as '{field.path}', got {_describe(observation)}"
        )
    return observation


def _describe(observation: Any) -> str:
    if isinstance(observation, Mapping):
        return f"keys {sorted(map(str, observation))}"
    if isinstance(observation, (list, tuple)):
        return f"{len(observation)} entries"
    return type(observation).__name__


def _count_leaves(observation: Any) -> int:
    if isinstance(observation, Mapping):
        return sum(map(_count_leaves, observation.values()))
    if isinstance(observation, (list, tuple)):
        return sum(map(_count_leaves, observation))
    return 1
