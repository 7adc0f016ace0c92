from __future__ import annotations

import threading
import time

import pytest

from acme_quant.launch.nodes.stopping import run_until_stopped


def blocked(stop: threading.Event) -> None:
    threading.Event().wait()


def test_it_returns_when_a_work_returns() -> None:
    run_until_stopped([lambda stop: None, blocked], threading.Event(), 0.1)


def test_it_raises_what_a_work_raised() -> None:
    def work(stop: threading.Event) -> None:
        raise KeyError("the cause")

    with pytest.raises(KeyError, match="the cause"):
        run_until_stopped([work, blocked], threading.Event())


def test_it_leaves_a_blocked_work_after_the_grace() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    start = time.monotonic()
    run_until_stopped([blocked], stop, grace_s=0.3)
    assert 0.4 < time.monotonic() - start < 3.0


def test_an_error_after_the_stop_says_nothing() -> None:
    stop = threading.Event()

    def work(stop: threading.Event) -> None:
        stop.wait()
        raise ConnectionError("the peer has gone already")

    threading.Timer(0.1, stop.set).start()
    run_until_stopped([work], stop)
