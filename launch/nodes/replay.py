"""The replay's node: a Reverb server."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Callable, Sequence

import reverb
from launchpad.launch import worker_manager

from acme_quant.launch.checkpoints import replay_saver
from acme_quant.launch.nodes import stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.peers import loopback

POLL_S = 0.5


def make(context: Context) -> ReplayServer:
    """Returns the server of the agent's tables."""
    tables = functools.partial(make_tables, context)
    return ReplayServer(tables, replay_saver.folder_of(context.run))


def make_tables(context: Context) -> list[reverb.Table]:
    """Returns the replay tables of the agent."""
    builder = context.run.agent.make_acme_builder(context.run.agent_config)
    return builder.make_replay_tables(context.spec)


class ReplayServer:
    """Serves replay tables until the program ends."""

    def __init__(
        self,
        make_tables: Callable[[], Sequence[reverb.Table]],
        folder: pathlib.Path | None = None,
    ) -> None:
        """Serves nothing yet.

        Args:
          make_tables: returns the tables.
          folder: where Reverb keeps its checkpoints, and finds the one it starts with;
            None for a replay that is not saved.
        """
        self._make_tables = make_tables
        self._folder = folder

    def run(self, port: int) -> None:
        """Serves on `port` until the program ends."""
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
