"""However fast their environments are, actors together keep to a limit on steps."""

from __future__ import annotations

import threading
import time

import loop_parts
import pytest
from acme.utils import counting
from remote_counters import RemoteCounter, serve

from acme_quant.acting import environment_loop
from acme_quant.acting.actor import QuantizedActor
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.step_limit import StepLimit


class SlowLinks(RemoteCounter):
    """A counter that answers after a while, in which a fast actor takes many steps."""

    def increment(self, **counts: float) -> dict:
        time.sleep(0.01)
        return super().increment(**counts)


def loop_of(client: object, most: int, actors: int) -> environment_loop.EnvironmentLoop:
    counter = AsyncCounter(client, "actor", 0.5)
    return environment_loop.EnvironmentLoop(
        loop_parts.CountingEnvironment(20),
        QuantizedActor(loop_parts.LinearPolicy()),
        counter,
        loop_parts.ListLogger(),
        limit=StepLimit(counter, most, actors),
    )


def steps_of(client: object, parent: counting.Counter, most: int, actors: int) -> int:
    """Lets actors act, some time beyond the limit; returns the steps of all."""
    stop = threading.Event()
    loops = [loop_of(client, most, actors) for _ in range(actors)]
    threads = [threading.Thread(target=one.run, kwargs={"stop": stop}) for one in loops]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while parent.get_counts().get("actor_steps", 0) < most:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive()
    return int(parent.get_counts()["actor_steps"])


@pytest.mark.parametrize("actors", [1, 2, 4])
def test_fast_actors_end_within_a_small_share_of_the_limit(actors: int) -> None:
    parent = SlowLinks()
    with serve(parent) as client:
        assert 500 <= steps_of(client, parent, 500, actors) <= 525


def test_an_actor_beside_its_counter_ends_at_the_limit() -> None:
    parent = counting.Counter()
    assert steps_of(parent, parent, 500, 1) == 500


def test_far_from_the_limit_nobody_is_waited_for() -> None:
    parent = RemoteCounter()
    with serve(parent) as client:
        loop = loop_of(client, 10**9, 2)
        parent.may_answer.clear()
        stop = threading.Event()
        thread = threading.Thread(target=loop.run, kwargs={"stop": stop})
        thread.start()
        # An episode has 20 steps: their rows come although no answer does.
        deadline = time.monotonic() + 30
        while len(loop._record._logger.results) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(loop._record._logger.results) >= 100
        parent.may_answer.set()
        stop.set()
        thread.join(timeout=10)


def test_a_wait_for_the_counter_ends_with_the_run() -> None:
    parent = RemoteCounter()
    with serve(parent) as client:
        loop = loop_of(client, 100, 1)
        parent.may_answer.clear()
        stop = threading.Event()
        thread = threading.Thread(target=loop.run, kwargs={"stop": stop})
        thread.start()
        time.sleep(0.3)
        stop.set()
        thread.join(timeout=20)
        assert not thread.is_alive()
