"""Counts reach the parent once each, and nobody waits for it but at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from acme.utils import counting
from remote_counters import RemoteCounter, serve

from acme_quant.acting.async_counter import AsyncCounter, CountsLost


@pytest.fixture
def parent() -> RemoteCounter:
    counter = RemoteCounter()
    counter.increment(learner_steps=7)
    counter.increments.clear()
    return counter


@pytest.fixture
def client(parent: RemoteCounter) -> Iterator[Any]:
    with serve(parent) as client:
        yield client


def total(parent: RemoteCounter, name: str) -> float:
    return sum(counts.get(name, 0) for counts in parent.increments)


def wait_for_call(counter: AsyncCounter) -> None:
    deadline = time.monotonic() + 10
    while not counter._call.done() and time.monotonic() < deadline:
        time.sleep(0.001)


def timed(function: Any, *args: Any) -> float:
    start = time.monotonic()
    function(*args)
    return time.monotonic() - start


@pytest.mark.parametrize("prefix", ["", "actor"])
@pytest.mark.parametrize("time_delta", [-1.0, 1000.0])
def test_in_one_process_it_counts_as_acmes_counter(
    prefix: str, time_delta: float
) -> None:
    found_parent, expected_parent = counting.Counter(), counting.Counter()
    found = AsyncCounter(found_parent, prefix, time_delta)
    expected = counting.Counter(expected_parent, prefix, time_delta)
    for counts in ({"steps": 3}, {"steps": 2, "episodes": 1}, {}, {"seconds": 0.5}):
        assert found.increment(**counts) == expected.increment(**counts)
        assert found.get_counts() == expected.get_counts()
        assert found_parent.get_counts() == expected_parent.get_counts()


def test_without_a_parent_it_counts_alone() -> None:
    counter = AsyncCounter()
    counter.increment(steps=3)
    assert counter.increment(steps=2, episodes=1) == {"steps": 5, "episodes": 1}
    counter.flush()
    assert counter.get_counts() == {"steps": 5, "episodes": 1}


def test_a_result_can_be_altered_without_altering_counts() -> None:
    counter = AsyncCounter()
    counter.increment(steps=3)["steps"] = 100
    assert counter.get_counts() == {"steps": 3}


def test_counts_of_all_nodes_are_known_from_the_start(client: Any) -> None:
    counter = AsyncCounter(client, "actor")
    assert counter.get_counts() == {"learner_steps": 7}
    assert counter.increment(steps=2) == {"learner_steps": 7, "actor_steps": 2}


def test_an_answer_brings_what_others_counted_meanwhile(
    client: Any, parent: RemoteCounter
) -> None:
    counter = AsyncCounter(client, "actor", 0)
    counter.increment(steps=2)
    wait_for_call(counter)
    counting.Counter.increment(parent, learner_steps=1, actor_steps=30)
    counter.increment(steps=3)
    wait_for_call(counter)
    assert counter.get_counts() == {"learner_steps": 8, "actor_steps": 35}


def test_every_count_is_passed_on_once(client: Any, parent: RemoteCounter) -> None:
    counter = AsyncCounter(client, "actor", 0.001)
    for step in range(3000):
        counts = counter.increment(steps=1, episodes=step % 2)
        assert counts["actor_steps"] == step + 1
    counter.flush()
    assert total(parent, "actor_steps") == 3000
    assert total(parent, "actor_episodes") == 1500
    assert 1 < len(parent.increments) < 3000


def test_the_parent_is_called_once_in_a_period(
    client: Any, parent: RemoteCounter
) -> None:
    counter = AsyncCounter(client, "actor", 1000.0)
    for _ in range(100):
        counter.increment(steps=1)
    counter.flush()
    assert parent.increments == [{"actor_steps": 1}, {"actor_steps": 99}]


def test_a_parent_that_does_not_answer_blocks_nobody(
    client: Any, parent: RemoteCounter
) -> None:
    counter = AsyncCounter(client, "actor", 0)
    parent.may_answer.clear()
    start = time.monotonic()
    for step in range(200):
        assert counter.increment(steps=1)["actor_steps"] == step + 1
        time.sleep(0.001)
    assert time.monotonic() - start < 5  # The parent would take 30.
    assert parent.increments == []
    parent.may_answer.set()
    counter.flush()
    assert parent.increments == [{"actor_steps": 1}, {"actor_steps": 199}]


def test_an_error_of_the_parent_is_raised_at_the_next_count(
    client: Any, parent: RemoteCounter
) -> None:
    counter = AsyncCounter(client, "actor", 0)
    parent.error = ValueError("no room for counts")
    counter.increment(steps=1)
    wait_for_call(counter)
    with pytest.raises(CountsLost, match="counts, got: ValueError: no room for coun"):
        counter.increment(steps=1)
    with pytest.raises(CountsLost, match="no room for counts"):
        counter.flush()


def test_an_error_of_a_parent_in_this_process_is_raised_as_it_is() -> None:
    parent = RemoteCounter()
    parent.error = ValueError("no room for counts")
    counter = AsyncCounter(parent, "actor", 0)
    with pytest.raises(ValueError, match="no room for counts"):
        counter.increment(steps=1)


def test_a_parent_that_is_silent_for_too_long_is_an_error(
    client: Any, parent: RemoteCounter
) -> None:
    counter = AsyncCounter(client, "actor", 0, max_silence_s=0.2)
    parent.may_answer.clear()
    counter.increment(steps=1)
    wait_for_call(counter)
    with pytest.raises(CountsLost, match="got: Deadline Exceeded"):
        counter.increment(steps=1)


def test_a_parent_that_has_died_is_an_error() -> None:
    with serve(RemoteCounter()) as client:
        counter = AsyncCounter(client, "actor", 0, max_silence_s=0.2)
    counter.increment(steps=1)
    wait_for_call(counter)
    with pytest.raises(CountsLost, match="expected the counter to take this node's"):
        counter.increment(steps=1)


def test_the_wait_for_a_silent_parent_at_the_end_is_bounded(
    client: Any, parent: RemoteCounter, caplog: pytest.LogCaptureFixture
) -> None:
    counter = AsyncCounter(client, "actor", 0)
    parent.may_answer.clear()
    counter.increment(steps=1)
    counter.increment(steps=2)
    call = counter._call
    with caplog.at_level(logging.WARNING):
        assert 0.2 <= timed(counter.flush, 0.2) < 5
    assert "not answered for 0.2 s" in caplog.text
    assert "{'actor_steps': 2} for sure" in caplog.text
    assert call.cancelled()  # A process would wait for it otherwise.


def test_a_slow_parent_gets_all_at_the_end(client: Any, parent: RemoteCounter) -> None:
    counter = AsyncCounter(client, "actor", 0)
    parent.may_answer.wait = lambda timeout: time.sleep(0.2)
    counter.increment(steps=1)
    counter.increment(steps=2)
    counter.flush()
    assert total(parent, "actor_steps") == 3
