"""The variable client where blocks vanish, bytes are bad or nobody answers."""

from __future__ import annotations

import signal
import time
from typing import Any

import numpy as np
import pytest
from publishing_parts import Remote
from variable_clients import (
    HOST,
    OBSERVATION,
    Source,
    client_of,
    publisher_process,
)

from acme_quant.peers import calls
from acme_quant.policy.payload import PayloadError
from acme_quant.publishing import client as variable_client
from acme_quant.publishing import shared_memory


@pytest.fixture
def source() -> Source:
    made = Source()
    made.publish()
    return made


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
