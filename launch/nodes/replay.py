"""The replay node: a Reverb server whose handle is a plain address.

Launchpad's own Reverb node hands out a `reverb.Client`; the import behind it brings
TensorFlow into every process that holds such a handle. Here a peer gets `host:port` and
connects as it likes.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import launchpad as lp
from launchpad import address as lp_address
from launchpad.launch import worker_manager
from launchpad.nodes import base

from acme_quant.launch.checkpoints import replay_saver
from acme_quant.launch.nodes import stopping
from acme_quant.peers import loopback

if TYPE_CHECKING:
    import reverb

POLL_S = 0.5


class ReplayHandle(base.Handle[str]):
    """Stands for the server's address while the program is made."""

    def __init__(self, address: lp_address.Address) -> None:
        """Keeps the address until Launchpad has bound it."""
        self._address = address

    def dereference(self) -> str:
        """Returns `host:port`."""
        return self._address.resolve()


class ReplayNode(lp.PyNode):
    """Serves replay tables until the program ends."""

    def __init__(
        self,
        make_tables: Callable[[], Sequence[reverb.Table]],
        folder: pathlib.Path | None = None,
    ) -> None:
        """Serves what `make_tables` returns in the node's own process.

        Args:
          make_tables: returns the tables.
          folder: where Reverb keeps its checkpoints, and finds the one it starts with;
            None for a replay that is not saved.
        """
        super().__init__(self.run)
        self._make_tables = make_tables
        self._folder = folder
        self._address = lp_address.Address("reverb")
        self.allocate_address(self._address)

    def create_handle(self) -> ReplayHandle:
        """Returns a handle that becomes the server's address."""
        return self._track_handle(ReplayHandle(self._address))

    def run(self) -> None:
        """Serves until the program ends."""
        port = lp_address.get_port_from_address(self._address.resolve())
        server = replay_saver.serve(self._make_tables, port, self._folder)
        loopback.listen_on_loopback(port)
        # Now and then back in Python, where signals are heard.
        while not worker_manager.wait_for_stop(POLL_S):
            pass
        if stopping.is_own_process():
            # The server's own stop waits for streams that were cut off, and for ever
            # after a SIGSTOP; there is nothing left to save.
            os._exit(0)
        server.stop()
