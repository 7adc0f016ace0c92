"""How much of what a learner samples it clips, counted inside its compiled step.

Acme's learners clip in silence: DQN the return of a transition, D4PG the values of its
critic. A run that clips much learns something else than it was asked to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from acme.utils import loggers

# Share of transitions above which a run says a word, once.
MOST_CLIPPED = 0.1


class CountingIterator:
    """An iterator of batches that adds up which of their transitions are clipped."""

    def __init__(
        self, iterator: Iterator[Any], clipped: Callable[[Any, Any], Any]
    ) -> None:
        """Wraps the iterator of a dataset.

        Args:
          iterator: yields samples whose `data` has a reward and a discount, [B].
          clipped: of reward and discount, tensors, which transitions: bool [B].
        """
        import tensorflow as tf

        self._tf = tf
        self._iterator = iterator
        self._clipped = clipped
        with tf.device("cpu:0"):
            self._sums = tf.Variable([0.0, 0.0], trainable=False, dtype=tf.float64)

    def __iter__(self) -> CountingIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Returns the next batch, in a graph or eagerly."""
        tf = self._tf
        sample = next(self._iterator)
        with tf.device("cpu:0"):
            clipped = self._clipped(sample.data.reward, sample.data.discount)
            share = tf.reduce_mean(tf.cast(clipped, tf.float64))
            self._sums.assign_add([share, 1.0])
        return sample

    def sums(self) -> tuple[float, float]:
        """Returns the batches' shares of clipped transitions, and batches, so far."""
        share, batches = self._sums.numpy()
        return float(share), float(batches)


class CountingBuilder:
    """An Acme builder whose dataset tells what of it is clipped.

    Attributes:
      batches: the dataset's iterator, once it is made.
    """

    def __init__(self, builder: Any, clipped: Callable[[Any, Any], Any]) -> None:
        """Wraps `builder`; all but its dataset stays as it is."""
        self._builder = builder
        self._clipped = clipped
        self.batches: CountingIterator | None = None

    def make_dataset_iterator(self, replay_client: Any) -> CountingIterator:
        """Returns the builder's own iterator, counting."""
        iterator = self._builder.make_dataset_iterator(replay_client)
        self.batches = CountingIterator(iterator, self._clipped)
        return self.batches

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the builder."""
        return getattr(self._builder, name)


class ClippedShare(loggers.Logger):
    """Adds `clipped_share`, of the transitions since the last row, to a learner's."""

    def __init__(
        self, to: loggers.Logger, builder: CountingBuilder, clipping: str
    ) -> None:
        """Passes rows on to `to`; `clipping` says what is clipped, and what helps."""
        self._to = to
        self._builder = builder
        self._clipping = clipping
        self._last = (0.0, 0.0)
        self._warned = False

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes one row, and warns the first time that much is clipped."""
        shares, batches = now = self._builder.batches.sums()
        share = (shares - self._last[0]) / max(batches - self._last[1], 1.0)
        self._last = now
        self._to.write({**data, "clipped_share": round(share, 4)})
        if share > MOST_CLIPPED and not self._warned:
            self._warned = True
            logging.warning(
                "%s: %.0f %% of the transitions since the last row, which "
                "clipped_share of csv/learner.csv counts.",
                self._clipping,
                100 * share,
            )

    def close(self) -> None:
        """Closes what rows are written to."""
        self._to.close()
