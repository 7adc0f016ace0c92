"""Keeps the servers of a local run from the network.

Courier and Reverb listen on every interface of the host and offer no choice. A
listening socket bound to the device `lo` afterwards takes connections of this host
alone; the kernel refuses all others before the server sees a byte of them.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Any, Iterator

LOOPBACK_DEVICE = b"lo"

_log = logging.getLogger(__name__)


def listen_on_loopback(port: int) -> bool:
    """Binds this process's listening sockets of a port to the loopback device.

    Args:
      port: A TCP port that this process listens on.

    Returns:
      Whether every such socket takes connections of this host alone from now on;
      False where the kernel does not allow it (not Linux, or before 5.7).
    """
    if sys.platform != "linux":
        return False
    found = False
    for listener in _listeners(port):
        with listener:
            try:
                listener.setsockopt(
                    socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LOOPBACK_DEVICE
                )
            except OSError:
                return False
        found = True
    return found


def _listeners(port: int) -> Iterator[socket.socket]:
    """Yields a duplicate of every socket of this process that listens on `port`."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # Closed meanwhile.
        if _listens_on(duplicate, port):
            yield duplicate
        else:
            duplicate.close()


def _listens_on(candidate: socket.socket, port: int) -> bool:
    try:
        if candidate.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        listens = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(listens) and candidate.getsockname()[1] == port
    except OSError:
        return False


def start(server: Any) -> None:
    """Starts a Courier server that only this host can reach, or says that others can.

    Args:
      server: A courier.Server that has not been started.
    """
    server.Start()
    if not listen_on_loopback(server.port):
        _log.warning(
            "Port %d can be reached from other hosts: expected a kernel that binds a "
            "listening socket to %s. See docs/security.md.",
            server.port,
            LOOPBACK_DEVICE.decode(),
        )
