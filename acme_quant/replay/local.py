"""A replay table within one process, whose batches a seed repeats.

Reverb's selectors draw from generators that no seed reaches, and its samplers run ahead
of the learner in threads of their own. Here a batch is drawn in the learner's step and
not before, from a generator with a seed. All else is that of the `reverb.Table` which
the agent's builder makes: sampler and exponent, size, first in first out, rate limiter
and signature. The adder writes to it as to a server, the learner changes priorities as
at one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tree

from acme_quant.replay.sum_tree import SumTree

if TYPE_CHECKING:
    import reverb


class LocalReplay:
    """One table: a ReplayClient to the adder, a `reverb.Client` to the learner."""

    server_address = "this process"

    def __init__(self, table: reverb.Table, seed: int) -> None:
        """Takes the settings of `table`, which itself stays empty.

        Raises:
          ValueError: if its sampler is neither uniform nor prioritized.
        """
        info = table.info
        self.signature = info.signature
        self._name = info.name
        self._fields = [
            (spec.shape, spec.dtype.as_numpy_dtype)
            for spec in tree.flatten(info.signature)
        ]
        self._exponent = _exponent(info.sampler_options)
        self._limit = info.rate_limiter_info
        self._max_size = info.max_size
        self._weights = SumTree(self._max_size)
        self._priorities = np.zeros(self._max_size)
        self._items: list[list[np.ndarray]] = []
        self._rng = np.random.default_rng(seed)
        self._inserted = self._sampled = 0

    def answers(self, timeout_s: int = 0) -> bool:
        """Returns True."""
        del timeout_s
        return True

    def trajectory_writer(self, *options: Any) -> LocalWriter:
        """Returns a writer; chunks and timeouts are nothing to it."""
        del options
        return LocalWriter(self)

    def insert(self, table: str, priority: float, row: list[np.ndarray]) -> None:
        """Adds an item, in the place of the oldest one if the table is full.

        Raises:
          ValueError: if there is no such table, or `row` does not fit its signature.
        """
        self._check(table)
        found = [(column.shape, column.dtype) for column in row]
        if found != self._fields:
            raise ValueError(
                f"expected an item of shapes and dtypes {self._fields}, got {found}."
            )
        key = self._inserted
        self._inserted += 1
        if len(self._items) < self._max_size:
            self._items.append(row)
        else:
            self._items[key % self._max_size] = row
        self.mutate_priorities(table, {key: priority})

    def mutate_priorities(self, table: str, updates: Mapping[int, float]) -> None:
        """Changes priorities by item key; items that are gone are left out.

        Raises:
          ValueError: if there is no such table.
        """
        self._check(table)
        keys = np.fromiter(updates.keys(), np.int64, len(updates))
        priorities = np.fromiter(updates.values(), np.float64, len(updates))
        here = keys >= self._inserted - len(self._items)
        places = keys[here] % self._max_size
        self._priorities[places] = priorities[here]
        if self._exponent is not None:
            # As in Reverb, what has no priority is not sampled, even by exponent 0.
            weights = np.where(priorities > 0, priorities**self._exponent, 0.0)
            self._weights.set(places, weights[here])

    def can_sample(self, count: int) -> bool:
        """Returns whether the table's rate limiter lets `count` items be sampled."""
        limit = self._limit
        ahead = self._inserted * limit.samples_per_insert - self._sampled - count
        enough = len(self._items) >= limit.min_size_to_sample
        return enough and ahead >= limit.min_diff

    def sample(self, count: int) -> list[np.ndarray]:
        """Draws items, with replacement.

        Returns:
          key uint64, probability float64, table size int64, priority float64, then the
          columns of the signature: each [count, ...].
        """
        places, probabilities = self._draw(count)
        size = len(self._items)
        # The newest item with this place.
        keys = self._inserted - 1 - (self._inserted - 1 - places) % self._max_size
        rows = [self._items[place] for place in places]
        self._sampled += count
        return [
            keys.astype(np.uint64),
            probabilities,
            np.full(count, size, np.int64),
            self._priorities[places],
            *(np.stack(column) for column in zip(*rows)),
        ]

    def _draw(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns places int64 [count] and the probability of each, float64."""
        size, total = len(self._items), self._weights.total
        if not total:  # Uniform, or nothing has a priority.
            return self._rng.integers(size, size=count), np.full(count, 1.0 / size)
        places = self._weights.find(self._rng.random(count) * total)
        return places, self._weights[places] / total

    def _check(self, table: str) -> None:
        if table != self._name:
            raise ValueError(f"expected the table {self._name!r}, got {table!r}.")


def _exponent(sampler: Any) -> float | None:
    """Returns the exponent of priorities, None of a sampler that does not know them."""
    if sampler.HasField("prioritized"):
        return sampler.prioritized.priority_exponent
    if sampler.HasField("uniform"):
        return None
    raise ValueError(f"expected a uniform or prioritized sampler, got {sampler}.")


class _Cell:
    """One column of a row, as Reverb's references are."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        # A copy: environments write their next observation where the last one was.
        self.value = np.array(value)

    def numpy(self) -> np.ndarray:
        return self.value


class LocalWriter:
    """What the adder uses of Reverb's C++ trajectory writer, under its names."""

    def __init__(self, replay: LocalReplay) -> None:
        """Writes to `replay`."""
        self._replay = replay

    def Append(self, row: list) -> list:
        """Returns a reference per column, None where the row has no value."""
        return [None if value is None else _Cell(value) for value in row]

    def CreateItem(
        self, table: str, priority: float, columns: list, squeeze: list
    ) -> None:
        """Inserts the item that the references, one a column, stand for."""
        del squeeze
        row = [references[0].value for references in columns]
        self._replay.insert(table, priority, row)

    def Flush(self, remaining: int, timeout_ms: int) -> None:
        """Does nothing: an item is in the table when `CreateItem` returns."""

    def Close(self) -> None:
        """Does nothing: there is nothing to close."""
