"""A program in this one process, a thread for each node: for debugging."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from concurrent import futures

import launchpad as lp

from acme_quant.launch.nodes import nodes_of
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.program import make_program
from acme_quant.launch.settings.actors import ACTORS

STOP_S = 12.0


class Threads:
    """The threads of one run."""

    def __init__(self, context: Context) -> None:
        """Starts a thread for each node; all that they import is imported before."""
        config = context.run.config
        for node in nodes_of(config):
            pkgutil.resolve_name(node.make)
        importlib.import_module(ACTORS[config.actor].module)
        made = make_program(context)
        self._manager = lp.launch(made.program, lp.LaunchType.LOCAL_MULTI_THREADING)
        self._coordinator = made.coordinator.dereference()

    def pids(self) -> dict[str, int]:
        """Returns nothing: the nodes have no processes of their own."""
        return {}

    def check(self) -> None:
        """Raises the error of a node that failed."""
        self._manager.check_for_thread_worker_exception()

    def ask(self) -> futures.Future:
        """Returns the coordinator's status, answered some time later."""
        return self._coordinator.futures.get_status()

    def stop(self, early: bool = False) -> None:
        """Asks all nodes to end and waits a while; threads cannot be killed."""
        del early
        self._manager.stop_event().set()
        wait = threading.Thread(
            target=self._manager.wait, kwargs={"raise_error": False}, daemon=True
        )
        wait.start()
        wait.join(STOP_S)
