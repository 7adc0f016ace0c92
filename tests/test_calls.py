from __future__ import annotations

import concurrent.futures
import time

import pytest

from acme_quant import calls


class Peer:
    def double(self, value: int) -> int:
        return 2 * value


class RemotePeer:
    """Has the face of a Courier client; never answers `hang`."""

    def __init__(self) -> None:
        self.futures = self

    def double(self, value: int) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_result(2 * value)
        return future

    def fail(self) -> concurrent.futures.Future:
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_exception(OSError("first line\nConnection refused"))
        return future

    def hang(self) -> concurrent.futures.Future:
        return concurrent.futures.Future()


def test_a_peer_here_and_a_peer_elsewhere_answer_alike() -> None:
    assert calls.call(Peer(), "double", 4) == calls.call(RemotePeer(), "double", 4) == 8
    assert calls.is_remote(RemotePeer()) and not calls.is_remote(Peer())


def test_a_call_without_an_answer_is_given_up() -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="hang within 0 s"):
        calls.call(RemotePeer(), "hang", timeout_s=0.05)
    assert time.monotonic() - start < 5


def test_what_the_peer_raised_is_raised() -> None:
    with pytest.raises(OSError, match="refused"):
        calls.call(RemotePeer(), "fail")


def test_silence_is_borne_for_a_while_and_then_raised() -> None:
    now = 0.0
    silence = calls.Silence("learner", max_silence_s=10, clock=lambda: now)
    now = 9.0
    silence.failed(OSError("refused"))
    silence.answered()
    now = 18.0
    silence.failed(OSError("refused"))
    now = 19.5
    expected = "answer of the learner within 10 s, got none for 10 s: refused"
    with pytest.raises(calls.PeerSilent, match=expected):
        silence.failed(OSError("a\nrefused"))
    assert silence.failures == 3
