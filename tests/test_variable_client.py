from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Iterator, List

import numpy as np
import pytest
from publishing import GRAPH, Learner, Remote

from acme_quant import calls, payload, shared_memory, variable_client
from acme_quant.payload import PayloadError
from acme_quant.policy import quantize_graph
from acme_quant.publisher import PolicyPublisher
from acme_quant.variable_client import NoPolicy, QuantizedVariableClient

HOST = shared_memory.host_identity()
OBSERVATION = np.linspace(-1, 1, 5, dtype=np.float32)


class Source:
    """A publisher that publishes when the test says so."""

    def __init__(self, quantizer: str = "int8", **options: Any) -> None:
        self.learner = Learner()
        self.node = PolicyPublisher(
            GRAPH, self.learner, quantizer, publish_period=1, **options
        )
        self.questions: List[tuple] = []
        self.forge: Any = None
        self.silent: Any = None

    def publish(self) -> None:
        self.learner.step()
        self.node.poll()

    def get_policy(self, newer_than: int, host: str) -> Any:
        self.questions.append((newer_than, host))
        if self.silent:
            raise self.silent
        answer = self.node.get_policy(newer_than, host)
        return answer if self.forge is None else self.forge(answer)


@pytest.fixture
def source() -> Source:
    made = Source()
    made.publish()
    return made


@contextlib.contextmanager
def client_of(source: Any, **options: Any) -> Iterator[QuantizedVariableClient]:
    client = QuantizedVariableClient(source, **options)
    try:
        yield client
    finally:
        client.close()


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
        program = client.policy._program
        source.publish()
        client.update_and_wait()
        assert client.version == 2 and client.policy._program is program


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
        source.node._publish_period = 1000
        source.learner.step(40)
        source.node.poll()
        client.update(wait=True)
        stale = client.staleness()
        assert (stale["versions"], stale["learner_steps"]) == (0, 40)


def test_a_block_that_is_gone_is_asked_for_again(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = shared_memory.open_block, []

    def open_block(name: Any) -> memoryview:
        tries.append(name)
        if len(tries) == 1:
            raise shared_memory.BlockGone("expected block 1/2, found none.")
        return real(name)

    monkeypatch.setattr(shared_memory, "open_block", open_block)
    with client_of(source) as client:
        client.update_and_wait()
        assert client.version == 1 and (len(tries) == 2 or not HOST)


@pytest.mark.parametrize("error", [PermissionError(1, "no"), ValueError("no block")])
def test_a_host_that_forbids_blocks_is_served_arrays(
    source: Source, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def open_block(name: Any) -> memoryview:
        raise error

    monkeypatch.setattr(shared_memory, "open_block", open_block)
    with client_of(source) as client:
        client.update_and_wait()
        source.publish()
        client.update_and_wait()
        assert client.version == 2
        assert client.get_status()["array_pulls"] == 2


def test_a_block_that_goes_again_and_again_ends_in_an_array(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_block(name: Any) -> memoryview:
        raise shared_memory.BlockGone("expected block 1/2, found none.")

    monkeypatch.setattr(shared_memory, "open_block", open_block)
    with client_of(source) as client:
        client.update_and_wait()
        assert client.version == 1 and client.get_status()["array_pulls"] == 1


def damaged(answer: tuple) -> tuple:
    body = source_bytes(answer)
    body[len(body) // 2] ^= 1
    return (*answer[:2], "array", body)


def source_bytes(answer: tuple) -> np.ndarray:
    if answer[2] == "shared_memory":
        return np.array(shared_memory.open_block(answer[3]), np.uint8)
    return answer[3].copy()


def test_damaged_bytes_are_dropped_and_the_last_policy_stays(source: Source) -> None:
    with client_of(source) as client:
        client.update_and_wait()
        policy = client.policy
        source.publish()
        source.forge = damaged
        client.update(wait=True)
        assert client.policy is policy and client.get_status()["bad_payloads"] == 1
        source.forge = None
        client.update(wait=True)
        assert client.version == 2


def test_damaged_bytes_again_and_again_are_an_error(source: Source) -> None:
    source.forge = damaged
    with client_of(source) as client:
        with pytest.raises(PayloadError, match="3 unusable ones in a row.*checksum"):
            client.update_and_wait()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        (),
        (1, 1, "array"),
        (1, 1, "pickle", b""),
        ("1", 1, "array", np.zeros(4, np.uint8)),
        (1, None, "unchanged", None),
        (1, 1, "array", None),
        (1, 1, "array", "text"),
        (1, 1, ["array"], None),
    ],
    ids=repr,
)
def test_an_answer_that_is_not_one_is_refused(source: Source, answer: Any) -> None:
    with client_of(source, first_policy_timeout_s=0.2) as client:
        client.update_and_wait()
        policy = client.policy
        source.forge = lambda _: answer
        with pytest.raises(ValueError, match="expected"):
            for _ in range(variable_client.MAX_BAD_PAYLOADS):
                client.update(wait=True)
        assert client.policy is policy


def test_a_silent_publisher_is_borne_and_then_an_error(source: Source) -> None:
    remote = Remote(source)
    with client_of(remote, max_silence_s=0.3) as client:
        client.update_and_wait()
        remote.fail_with(TimeoutError("no answer"))
        client.update(wait=True)
        remote.fail_with(None)
        source.publish()
        client.update(wait=True)
        assert client.version == 2
        remote.fail_with(OSError("Connection refused"))
        with pytest.raises(calls.PeerSilent, match="quantizer.*refused"):
            for _ in range(100):
                client.update(wait=True)
                time.sleep(0.02)
        assert client.version == 2


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


NODE = """
import sys, threading, time
sys.path.insert(0, {tests!r})
import courier
from acme_quant.publisher import PolicyPublisher
from publishing import GRAPH, Learner
learner = Learner()
node = PolicyPublisher(GRAPH, learner, "int8", publish_period=1)
server = courier.Server()
server.Bind("get_policy", node.get_policy)
server.Bind("step", learner.step)
server.Start()
threading.Thread(target=node.run, daemon=True).start()
print(server.port, flush=True)
time.sleep(120)
"""


@contextlib.contextmanager
def publisher_process() -> Iterator[tuple]:
    courier = pytest.importorskip("courier")
    code = NODE.format(tests=os.path.dirname(__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline())
        yield process, courier.Client(f"localhost:{port}")
    finally:
        process.kill()
        process.wait(10)


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


def test_a_stopped_publisher_is_waited_for_and_a_killed_one_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls.bounded, "__defaults__", (0.3,))
    with publisher_process() as (process, peer):
        with client_of(peer, update_period=1, max_silence_s=2.0) as client:
            client.update_and_wait()
            process.send_signal(signal.SIGSTOP)
            client.update(wait=True)
            client.update(wait=True)
            assert client.get_status()["failures"] == 2 and client.version == 1
            process.send_signal(signal.SIGCONT)
            client.update(wait=True)
            client.update(wait=True)
            assert client.get_status()["failures"] <= 3
            process.kill()
            process.wait(10)
            start = time.monotonic()
            with pytest.raises(calls.PeerSilent, match="quantizer"):
                while True:
                    client.update(wait=True)
            assert time.monotonic() - start < 20
            assert np.isfinite(client.policy(OBSERVATION)).all()
