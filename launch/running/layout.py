"""The layouts of a run: where its nodes are, and what the launcher can do with them."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from concurrent import futures
from typing import Protocol

from acme_quant.launch.nodes.context import Context
from acme_quant.launch.settings.config import ONE_THREAD, PROCESSES, THREADS

# Imported by the launcher that wants it: a run of processes needs no TensorFlow.
LAYOUTS = {
    PROCESSES: "acme_quant.launch.running.processes:Processes",
    THREADS: "acme_quant.launch.running.threads:Threads",
    ONE_THREAD: "acme_quant.launch.running.one_process:OneThread",
}


class Layout(Protocol):
    """A run under way."""

    def pids(self) -> Mapping[str, int]:
        """Returns {node name: process id} of the nodes that have a process."""

    def check(self) -> None:
        """Raises the error of a node that failed for good, naming it."""

    def ask(self) -> futures.Future:
        """Returns `Coordinator.get_status`, answered now or some time later."""

    def stop(self, early: bool = False) -> None:
        """Asks all nodes to end, in order and in bounded time.

        Args:
          early: the run has not reached its steps: nothing that can be left out is
            waited for.
        """


def start(context: Context) -> Layout:
    """Starts a run in the layout that its command line asks for."""
    return pkgutil.resolve_name(LAYOUTS[context.run.layout])(context)
