from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from acme_quant.launch.nodes import learner_times
from acme_quant.publishing.learner import ConsistentLearner
from acme_quant.replay import data_wait

WAIT_S = 0.05


def slow_batches() -> Iterator[np.ndarray]:
    for i in range(100):
        time.sleep(WAIT_S)
        yield np.full(3, i, np.float32)


class Builder:
    """An Acme builder whose replay is slow."""

    name = "slow"

    def make_dataset_iterator(self, replay_client: Any) -> Any:
        del replay_client
        spec = tf.TensorSpec([3], tf.float32)
        return iter(tf.data.Dataset.from_generator(slow_batches, output_signature=spec))


class Learner:
    """Steps like Acme's: the batch is taken within a tf.function."""

    def __init__(self, iterator: Any, logger: Any) -> None:
        self._iterator = iterator
        self._logger = logger

    @tf.function
    def _step(self) -> tf.Tensor:
        return tf.reduce_sum(next(self._iterator))

    def step(self) -> None:
        self._logger.write({"sum": float(self._step())})

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        time.sleep(WAIT_S)
        return [[] for _ in names]


class Rows(list):
    """A logger that keeps its rows."""

    write = list.append

    def close(self) -> None:
        pass


def make(every_s: float = 0.0) -> tuple[ConsistentLearner, Rows, Any]:
    rows, builder = Rows(), data_wait.TimedBuilder(Builder())
    times = learner_times.LearnerTimes(rows, builder, every_s)
    iterator = builder.make_dataset_iterator(None)
    learner = times.learner = ConsistentLearner(Learner(iterator, times))
    return learner, rows, iterator


def test_batches_come_unchanged_in_a_graph() -> None:
    learner, rows, _ = make()
    for _ in range(3):
        learner.step()
    assert [row["sum"] for row in rows] == [0.0, 3.0, 6.0]


def test_waiting_in_a_compiled_step_is_measured() -> None:
    learner, rows, iterator = make()
    for _ in range(5):
        learner.step()
    # A sleep never is shorter than asked for; how much longer depends on the machine.
    assert iterator.waited_s >= 5 * WAIT_S * 0.99
    assert iterator.waited_s <= learner.step_s
    assert rows[2]["waiting_ms"] >= 1e3 * WAIT_S * 0.9


def test_eager_batches_are_timed_as_well() -> None:
    iterator = data_wait.TimedBuilder(Builder()).make_dataset_iterator(None)
    next(iterator)
    assert iterator.waited_s >= WAIT_S * 0.99


def test_answered_requests_count_as_export() -> None:
    import threading

    learner, rows, _ = make()
    learner.step()
    asking = threading.Thread(target=learner.get_variables, args=(["policy"],))
    asking.start()
    while learner._requests.empty():
        time.sleep(0.001)
    learner.step()
    asking.join()
    learner.step()
    assert learner.export_s >= WAIT_S * 0.99
    assert rows[2]["export_ms"] >= 1e3 * WAIT_S * 0.9


def test_rows_in_between_are_dropped_and_averaged() -> None:
    learner, rows, iterator = make(every_s=60.0)
    for _ in range(4):
        learner.step()
    assert len(rows) == 1


def test_all_else_of_the_builder_stays() -> None:
    builder = data_wait.TimedBuilder(Builder())
    assert builder.name == "slow"
    with pytest.raises(AttributeError):
        _ = builder.nothing
