from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys

import pytest

from acme_quant.peers import loopback

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone binds so")


def listener() -> socket.socket:
    made = socket.socket(socket.AF_INET6)
    made.bind(("::", 0))
    made.listen()
    return made


def device(bound: socket.socket) -> bytes:
    return bound.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)


def test_a_listening_socket_is_bound_to_the_loopback_device() -> None:
    with listener() as mine, listener() as other:
        assert loopback.listen_on_loopback(mine.getsockname()[1])
        assert device(mine).rstrip(b"\0") == b"lo"
        assert device(other) == b""
        with socket.create_connection(("127.0.0.1", mine.getsockname()[1]), 5):
            pass


def test_a_port_nobody_listens_on_is_not_restricted() -> None:
    with listener() as mine:
        port = mine.getsockname()[1]
    assert not loopback.listen_on_loopback(port)


def test_a_courier_server_still_answers_this_host() -> None:
    courier = pytest.importorskip("courier")
    server = courier.Server()
    server.Bind("seven", lambda: 7)
    loopback.start(server)
    try:
        assert courier.Client(server.address, call_timeout=5).seven() == 7
    finally:
        server.Stop()
        server.Join()


def test_an_exposed_port_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Server:
        port = 1

        def Start(self) -> None:
            pass

    with caplog.at_level(logging.WARNING):
        loopback.start(Server())
    assert "Port 1 can be reached from other hosts" in caplog.text


# Two network namespaces joined by a cable stand for two hosts.
HOSTS = """
ip link set lo up
unshare --net sleep 20 & peer=$!
sleep 0.5
ip link add near type veth peer name far netns $peer
ip addr add 10.9.0.1/24 dev near && ip link set near up
nsenter -t $peer -n sh -c 'ip addr add 10.9.0.2/24 dev far && ip link set far up'
{python} -c "
import socket, subprocess
from acme_quant.peers import loopback
def reaches(port):
    code = 'import socket; socket.create_connection((\\'10.9.0.1\\', %d), 3)' % port
    enter = ['nsenter', '-t', '$peer', '-n', '{python}', '-c', code]
    return subprocess.run(enter, stderr=subprocess.DEVNULL).returncode == 0
server = socket.socket(socket.AF_INET6)
server.bind(('::', 0))
server.listen()
port = server.getsockname()[1]
print(reaches(port), loopback.listen_on_loopback(port), reaches(port))
"
kill $peer
"""


def test_another_host_reaches_the_port_before_and_not_after() -> None:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("needs unshare, nsenter and ip")
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("needs unprivileged namespaces")
    script = HOSTS.format(python=sys.executable)
    run = subprocess.run([*command, script], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["True", "True", "False"], run.stderr
