"""The one cast at the edge: whatever an environment returns -> arrays to its spec.

Images (uint8) stay uint8, for replay's sake; every other number becomes float32, so
that mixed dtypes concatenate anywhere behind the edge. Mappings become dicts in sorted
key order, the order in which dm-tree flattens them; sequences become tuples.
"""

from __future__ import annotations

import collections.abc
import math
from typing import Any, Callable

import numpy as np
from dm_env import specs

from acme_quant.environments.errors import (
    EpisodeFailed,
    OutOfSpec,
    UnsupportedEnvironment,
)

Reader = Callable[[Any], Any]


def make_reader(spec: Any, path: str = "observation") -> tuple[Any, Reader]:
    """Returns the spec behind the edge and the function that reads a value to it.

    Args:
      spec: nested mappings and sequences of dm_env specs, as the environment has it.
      path: name of the field, for messages.

    Returns:
      The same nest with float32 or uint8 leaves, and a callable value -> nest of fresh
      arrays, which raises OutOfSpec naming the field that does not fit the spec, or
      EpisodeFailed if a number is not finite.

    Raises:
      UnsupportedEnvironment: if a field is no array of real numbers.
    """
    if isinstance(spec, collections.abc.Mapping):
        return _mapping_reader(spec, path)
    if isinstance(spec, (tuple, list)):
        return _sequence_reader(spec, path)
    if not isinstance(spec, specs.Array) or np.dtype(spec.dtype).kind not in "fiub":
        raise UnsupportedEnvironment(
            f"{path} must be an array of real numbers or a nest of them, got {spec!r}."
        )
    field = Field(path, tuple(spec.shape), np.dtype(spec.dtype))
    return specs.Array(field.shape, field.dtype, name=spec.name or path), field.read


def check_size(spec: Any) -> None:
    """Checks that an observation of `spec`, as `make_reader` has it, holds a number.

    Raises:
      UnsupportedEnvironment: if there is nothing for a policy to see.
    """
    if not _size(spec):
        raise UnsupportedEnvironment(
            f"observation must hold at least one number, got {spec!r}."
        )


def _size(spec: Any) -> int:
    if isinstance(spec, dict):
        return sum(map(_size, spec.values()))
    return sum(map(_size, spec)) if isinstance(spec, tuple) else math.prod(spec.shape)


class Field:
    """One array of the observation."""

    def __init__(self, path: str, shape: tuple[int, ...], source: np.dtype) -> None:
        """Initializes the field from what the environment declares."""
        self.path = path
        self.shape = shape
        self.dtype = np.dtype(np.uint8 if source == np.uint8 else np.float32)
        self._source = source
        self._accepted = source  # The dtype seen last: checked only when it changes.
        self._checks_finite = source.kind == "f"
        self._is_row = len(shape) == 1

    def read(self, value: Any) -> np.ndarray:
        """Returns a copy of `value` in the field's dtype, checked.

        Raises:
          OutOfSpec: if shape or kind of number differ from the spec.
          EpisodeFailed: if a number is not finite.
        """
        try:
            array = np.asarray(value)
        except ValueError as error:  # A ragged list.
            raise OutOfSpec(f"{self.path} is no array: {error}.") from error
        if array.shape != self.shape:
            raise OutOfSpec(
                f"{self.path} must have shape {self.shape}, got {array.shape}."
            )
        if array.dtype is not self._accepted:
            self._accept(array.dtype)
        # A copy always: environments may write their next observation in place.
        array = array.astype(self.dtype)
        # A sum of squares is finite only if all terms are, and costs a third of
        # isfinite().all(); one that overflows is looked at closely.
        if self._checks_finite:
            flat = array if self._is_row else array.ravel()
            if not math.isfinite(flat.dot(flat)) and not np.isfinite(flat).all():
                raise EpisodeFailed(f"{self.path} is not finite.")
        return array

    def _accept(self, dtype: np.dtype) -> None:
        if dtype != self._source and not np.can_cast(dtype, self._source, "same_kind"):
            raise OutOfSpec(f"{self.path} must be {self._source}, got {dtype}.")
        self._accepted = dtype


def _mapping_reader(spec: collections.abc.Mapping, path: str) -> tuple[Any, Reader]:
    parts = {key: make_reader(spec[key], f"{path}.{key}") for key in sorted(spec)}
    readers = [(key, reader) for key, (_, reader) in parts.items()]
    keys = parts.keys()

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, collections.abc.Mapping) or value.keys() != keys:
            got = list(value) if hasattr(value, "keys") else type(value).__name__
            raise OutOfSpec(f"{path} must have the fields {list(keys)}, got {got}.")
        return {key: reader(value[key]) for key, reader in readers}

    return {key: part for key, (part, _) in parts.items()}, read


def _sequence_reader(spec: tuple | list, path: str) -> tuple[Any, Reader]:
    parts = [make_reader(part, f"{path}[{i}]") for i, part in enumerate(spec)]
    readers = [reader for _, reader in parts]

    def read(value: Any) -> tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(readers):
            got = len(value) if hasattr(value, "__len__") else type(value).__name__
            raise OutOfSpec(f"{path} must have {len(readers)} parts, got {got}.")
        return tuple(reader(part) for reader, part in zip(readers, value))

    return tuple(part for part, _ in parts), read
