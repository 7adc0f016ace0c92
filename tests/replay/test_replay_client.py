"""Reverb without TensorFlow's Python: same items, less to import."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from acme_quant.replay import client as replay_client


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reverb_may_be_imported_after_the_binding_alone() -> None:
    out = run(
        """
        import sys
        from acme_quant.replay import client as replay_client
        first = replay_client.load_binding()
        assert "tensorflow" not in sys.modules
        import reverb
        assert reverb.pybind.Client is first.Client
        assert replay_client.load_binding() is first
        server = reverb.Server(
            [reverb.Table.queue("q", 3)], port=None
        )
        assert replay_client.ReplayClient(f"localhost:{server.port}").answers()
        print("served")
        """
    )
    assert "served" in out


def test_binding_of_an_imported_reverb_is_used() -> None:
    reverb = pytest.importorskip("reverb")
    assert replay_client.load_binding().Client is reverb.pybind.Client


def test_whole_reverb_is_imported_when_the_binding_does_not_load_alone() -> None:
    out = run(
        """
        import sys
        from acme_quant.replay import client as replay_client
        replay_client._CORE_LIBRARY = "libnosuch.so"
        binding = replay_client.load_binding()
        assert "tensorflow" in sys.modules
        print(binding.Client("localhost:1"))
        """
    )
    assert "Client" in out


def test_client_pickles_as_its_address_and_connects_from_anything() -> None:
    client = replay_client.ReplayClient("localhost:1")
    assert pickle.loads(pickle.dumps(client)).server_address == "localhost:1"
    assert replay_client.connect(client) is client
    assert replay_client.connect("localhost:1").server_address == "localhost:1"


def test_server_that_is_not_there_is_an_error_naming_it() -> None:
    client = replay_client.ReplayClient("localhost:1")
    assert not client.answers()
    with pytest.raises(replay_client.ReplayUnavailable, match="localhost:1"):
        client.trajectory_writer(1, 1, timeout_s=0.1)


def test_stop_ends_the_wait_for_a_server() -> None:
    stop = threading.Event()
    stop.set()
    start = time.monotonic()
    with pytest.raises(replay_client.ReplayUnavailable):
        replay_client.ReplayClient("localhost:1").trajectory_writer(1, 1, 60, stop)
    assert time.monotonic() - start < 10
