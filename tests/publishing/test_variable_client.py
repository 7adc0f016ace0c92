"""The variable client: it asks, takes and tells how old its policy is."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from publishing_parts import GRAPH, Learner
from variable_clients import (
    HOST,
    OBSERVATION,
    Source,
    client_of,
    publisher_process,
)

from acme_quant.policy import payload
from acme_quant.policy.quantized_policy import quantize_graph
from acme_quant.publishing.client import NoPolicy, QuantizedVariableClient


@pytest.fixture
def source() -> Source:
    made = Source()
    made.publish()
    return made


def drain(client: QuantizedVariableClient) -> None:
    """Waits for the answer under way, without taking it."""
    assert client._idle.wait(10)


def test_the_first_policy_is_awaited() -> None:
    late = Source()
    threading.Timer(0.1, late.publish).start()
    with client_of(late) as client:
        assert client.policy is None and client.version == 0
        client.update_and_wait()
        assert client.version == 1


def test_no_first_policy_is_an_error_that_says_so() -> None:
    with client_of(Source(), first_policy_timeout_s=0.1) as client:
        with pytest.raises(NoPolicy, match="first policy of the quantizer"):
            client.update_and_wait()


def test_the_policy_acts_as_the_learner_s_quantized(source: Source) -> None:
    with client_of(source) as client:
        client.update_and_wait()
        expected = quantize_graph(GRAPH, source.learner.variables, "int8")
        np.testing.assert_array_equal(client.policy(OBSERVATION), expected(OBSERVATION))


@pytest.mark.parametrize("shared", [True, False])
def test_both_ways_bring_the_same_bytes(source: Source, shared: bool) -> None:
    with client_of(source, use_shared_memory=shared) as client:
        client.update_and_wait()
        assert client.policy.payload == source.node._current.content.data
        status = client.get_status()
        by_block = bool(shared and HOST)
        assert status["shared_memory_pulls"] == by_block
        assert status["array_pulls"] == (not by_block)
        assert (status["bytes_received"] == 0) == by_block


def test_a_question_is_asked_every_update_period(source: Source) -> None:
    with client_of(source, update_period=10) as client:
        client.update_and_wait()
        before = len(source.questions)
        for _ in range(35):
            client.update()
            drain(client)
        assert len(source.questions) - before == 3


def test_unchanged_brings_no_payload_and_no_load(source: Source) -> None:
    with client_of(source, update_period=1) as client:
        client.update_and_wait()
        policy = client.policy
        for _ in range(20):
            client.update(wait=True)
        status = client.get_status()
        assert status["unchanged_polls"] == 20 and status["updates"] == 1
        assert client.policy is policy


def test_the_policy_changes_inside_update_alone(source: Source) -> None:
    with client_of(source, update_period=3) as client:
        client.update_and_wait()
        source.publish()
        for _ in range(3):
            client.update()
        drain(client)
        assert client.version == 1  # Here, but not in place.
        client.update()
        assert client.version == 2


def test_no_answer_is_lost_between_two_updates(source: Source) -> None:
    with client_of(source, update_period=1) as client:
        client.update_and_wait()
        for version in range(2, 200):
            source.publish()
            before = client.version
            client.update()
            client.update()
            assert before <= client.version <= version
        client.update_and_wait()
        assert client.version == 199


def test_the_program_is_shared_by_the_versions_of_a_policy(source: Source) -> None:
    with client_of(source) as client:
        client.update_and_wait()
        program = client.policy._shared.program
        source.publish()
        client.update_and_wait()
        assert client.version == 2 and client.policy._shared.program is program


def test_staleness_counts_versions_learner_steps_and_seconds(source: Source) -> None:
    with client_of(source, update_period=1) as client:
        assert client.staleness()["versions"] == 0
        client.update_and_wait()
        source.publish()
        source.publish()
        client.update()
        drain(client)
        time.sleep(0.01)
        stale = client.staleness()
        assert (stale["versions"], stale["learner_steps"]) == (2, 2)
        assert 0.01 <= stale["seconds"] < 10
        client.update_and_wait()
        assert (
            client.staleness()["versions"] == client.staleness()["learner_steps"] == 0
        )


def test_staleness_grows_while_the_learner_goes_on_unpublished() -> None:
    source = Source()
    source.publish()
    with client_of(source) as client:
        client.update_and_wait()
        source.node._schedule._period = 1000
        source.learner.step(40)
        source.node.poll()
        client.update(wait=True)
        stale = client.staleness()
        assert (stale["versions"], stale["learner_steps"]) == (0, 40)


@pytest.mark.parametrize("wire", ["float32", "float16", "int8_tensor", "int4"])
def test_an_actor_quantizes_what_came_in_another_precision(wire: str) -> None:
    source = Source("int8", communication=wire)
    source.publish()
    with client_of(source, quantizer="int8") as client:
        for version in (1, 2):
            client.update_and_wait()
            assert client.version == version and client.policy.quantizer == "int8"
            assert client.policy.learner_step == version
            sent = quantize_graph(GRAPH, source.learner.variables, wire)
            action = client.policy(OBSERVATION)
            # One int8 step of the weights: a 254th of their range, over two layers.
            assert np.abs(action - sent(OBSERVATION)).max() < 0.02
            source.publish()


def test_float32_on_the_wire_gives_the_very_policy_of_int8() -> None:
    source = Source("int8", communication="float32")
    source.publish()
    with client_of(source, quantizer="int8") as client:
        client.update_and_wait()
        expected = quantize_graph(GRAPH, source.learner.variables, "int8")
        size = payload.HEADER.size
        assert client.policy.payload[size:] == expected.payload[size:]


def test_an_update_with_nothing_due_costs_less_than_a_microsecond(
    source: Source,
) -> None:
    with client_of(source, update_period=10**9) as client:
        client.update_and_wait()
        best = min(seconds_of(client.update, 1000) for _ in range(50))
        assert best / 1000 < 1e-6


def seconds_of(function: Any, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        function()
    return time.perf_counter() - start


def test_an_update_period_below_one_is_refused(source: Source) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        QuantizedVariableClient(source, update_period=0)


def test_a_closed_client_leaves_no_thread_and_keeps_its_policy(source: Source) -> None:
    client = QuantizedVariableClient(source)
    client.update_and_wait()
    client.close()
    assert not client._thread.is_alive()
    assert np.isfinite(client.policy(OBSERVATION)).all()


@pytest.mark.parametrize("shared", [True, False])
def test_policies_cross_processes(shared: bool) -> None:
    with publisher_process() as (_, peer):
        with client_of(peer, use_shared_memory=shared) as client:
            client.update_and_wait()
            expected = quantize_graph(GRAPH, Learner().variables, "int8")
            np.testing.assert_array_equal(
                client.policy(OBSERVATION), expected(OBSERVATION)
            )
            peer.step()
            deadline = time.monotonic() + 10
            while client.version < 2 and time.monotonic() < deadline:
                client.update(wait=True)
            assert client.version == 2
            by_block = bool(shared and HOST)
            assert client.get_status()["shared_memory_pulls"] == 2 * by_block
