from __future__ import annotations

import time

import pytest
from publishing_parts import Learner, Remote

from acme_quant.peers import calls


def test_a_peer_of_this_process_is_called_as_it_is() -> None:
    learner = Learner()
    assert calls.bounded(learner) is learner and not calls.is_remote(learner)


def test_a_peer_elsewhere_gets_a_deadline() -> None:
    peer = Remote(Learner())
    bounded = calls.bounded(peer, 7.0)
    assert calls.is_remote(bounded) and bounded.call_timeout == 7.0
    assert bounded.get_steps() == 0


def test_a_courier_call_to_nobody_is_given_up() -> None:
    courier = pytest.importorskip("courier")
    portpicker = pytest.importorskip("portpicker")
    address = f"localhost:{portpicker.pick_unused_port()}"
    peer = calls.bounded(courier.Client(address), 0.2)
    start = time.monotonic()
    with pytest.raises(Exception, match="(?i)deadline"):
        peer.get_steps()
    del peer  # Does not wait for a call under way either.
    assert time.monotonic() - start < 10


def test_silence_is_borne_for_a_while_and_then_raised() -> None:
    now = 0.0
    silence = calls.Silence("learner", max_silence_s=10, clock=lambda: now)
    silence.answered()
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


def test_a_peer_that_starts_has_longer() -> None:
    now = 0.0
    silence = calls.Silence("learner", max_silence_s=10, clock=lambda: now)
    now = 299.0
    silence.failed(TimeoutError())
    now = 301.0
    with pytest.raises(calls.PeerSilent, match="within 300 s.*TimeoutError"):
        silence.failed(TimeoutError())
