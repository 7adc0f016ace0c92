"""How long a learner waits for its data, measured inside its compiled step.

Acme's learners take a batch by `next(iterator)` within a `tf.function`, where no clock
of Python can be read. So the iterator itself puts two time stamps into the graph,
around the one operation that blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class TimedIterator:
    """An iterator of a tf.data dataset that adds up what its consumer waits."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        """Wraps the iterator of a dataset."""
        import tensorflow as tf

        self._tf = tf
        self._iterator = iterator
        with tf.device("cpu:0"):
            self._waited = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def __iter__(self) -> TimedIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Returns the next element, in a graph or eagerly."""
        tf = self._tf
        with tf.device("cpu:0"):
            before = tf.timestamp()
        # A graph runs in the order of its dependencies, not of these lines.
        with tf.control_dependencies([before]):
            element = next(self._iterator)
        with tf.control_dependencies(tf.nest.flatten(element)), tf.device("cpu:0"):
            self._waited.assign_add(tf.timestamp() - before)
        return element

    @property
    def waited_s(self) -> float:
        """Seconds waited so far."""
        return float(self._waited.numpy())


class TimedBuilder:
    """An Acme builder whose dataset tells how long it was waited for.

    Attributes:
      iterator: the dataset's iterator, once it is made.
    """

    def __init__(self, builder: Any) -> None:
        """Wraps `builder`; all but its dataset stays as it is."""
        self._builder = builder
        self.iterator: TimedIterator | None = None

    def make_dataset_iterator(self, replay_client: Any) -> TimedIterator:
        """Returns the builder's own iterator, timed."""
        self.iterator = TimedIterator(
            self._builder.make_dataset_iterator(replay_client)
        )
        return self.iterator

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the builder."""
        return getattr(self._builder, name)
