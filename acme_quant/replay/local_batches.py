"""How Acme's learners come by the batches of a LocalReplay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import tree

from acme_quant.replay.local import LocalReplay

if TYPE_CHECKING:
    import reverb


class LocalBatches:
    """A LocalReplay as the iterator of batches that Acme's learners take.

    Attributes:
      waited_s: seconds spent on drawing them.
    """

    def __init__(self, replay: LocalReplay, batch_size: int) -> None:
        """Draws `batch_size` items each time."""
        self._replay = replay
        self._batch_size = batch_size
        self.waited_s = 0.0

    def __iter__(self) -> LocalBatches:
        """Returns itself."""
        return self

    def __next__(self) -> reverb.ReplaySample:
        """Returns the next batch; in a graph, draws one each time that it runs."""
        import reverb
        import tensorflow as tf

        signature, count = self._replay.signature, self._batch_size
        info, leaves = reverb.SampleInfo.tf_dtypes(), tree.flatten(signature)
        drawn = tf.numpy_function(
            self._draw,
            [],
            [*info, *(leaf.dtype for leaf in leaves)],
        )
        for tensor, shape in zip(drawn, [()] * len(info) + [x.shape for x in leaves]):
            tensor.set_shape((count, *shape))
        data = tree.unflatten_as(signature, drawn[len(info) :])
        return reverb.ReplaySample(reverb.SampleInfo(*drawn[: len(info)]), data)

    def _draw(self) -> list[np.ndarray]:
        began = time.perf_counter()
        columns = self._replay.sample(self._batch_size)
        self.waited_s += time.perf_counter() - began
        return columns


class LocalBuilder:
    """An Acme builder whose learner draws its batches from a LocalReplay.

    It takes the place of a TimedBuilder, whose clock in the graph TensorFlow refuses
    when operations are to be deterministic.

    Attributes:
      iterator: the batches, once they are made.
    """

    def __init__(self, builder: Any, batch_size: int) -> None:
        """Wraps `builder`; all but its dataset stays as it is."""
        self._builder = builder
        self._batch_size = batch_size
        self.iterator: LocalBatches | None = None

    def make_dataset_iterator(self, replay: LocalReplay) -> LocalBatches:
        """Returns the replay's batches."""
        self.iterator = LocalBatches(replay, self._batch_size)
        return self.iterator

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the builder."""
        return getattr(self._builder, name)
