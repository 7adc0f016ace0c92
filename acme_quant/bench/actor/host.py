"""The processes that `acme-quant bench actor` starts, as their parent sees them."""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import Any, Callable, Iterator

from acme_quant.bench.actor import nodes
from acme_quant.bench.actor.plan import Plan

START_TIMEOUT_S = 300.0


class Child:
    """A process of its own, and the pipe to it."""

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        """Starts `target(*args, pipe)`; `name` is what errors call the process."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            name=name, target=target, args=(*args, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        """Sends a message; if the process is dead, `receive` says so."""
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    def receive(self, timeout_s: float = START_TIMEOUT_S) -> Any:
        """Returns the next message; raises RuntimeError if none comes."""
        return receive(self._pipe, self._process, timeout_s)

    def kill(self) -> None:
        """Ends the process, if it has not ended."""
        self._process.kill()
        self._process.join()


def receive(pipe: Any, process: Any, timeout_s: float = START_TIMEOUT_S) -> Any:
    """Returns the next message of a process.

    Raises:
      RuntimeError: if the process died or took too long.
    """
    waited_s = 0.0
    with contextlib.suppress(EOFError, OSError):
        while not pipe.poll(0.5) and process.is_alive() and waited_s < timeout_s:
            waited_s += 0.5
        if pipe.poll():
            return pipe.recv()
    raise RuntimeError(
        f"expected an answer of the process {process.name!r}, but it died or hung."
    )


class Host:
    """The process that has TensorFlow and the replay server."""

    def __init__(self, child: Child, address: str, folder: str) -> None:
        """Takes its process, the replay server's address and the policies' folder."""
        self._child = child
        self._address = address
        self._folder = folder

    def count(self, table: str) -> tuple[int, float]:
        """Returns the items that a table ever received, and the host's CPU seconds."""
        self._child.send(table)
        return self._child.receive()

    def start_actor(self, plan: Plan, index: int, seconds: float) -> Child:
        """Returns a started actor process, whose first turn lasts `seconds`."""
        return Child(
            f"actor {index} of {plan.arm}",
            nodes.act,
            *(plan, index, self._address, self._folder, seconds),
        )


@contextlib.contextmanager
def serve(plans: list[Plan], folder: str) -> Iterator[Host]:
    """Starts the host, waits until it serves, and ends it.

    Raises:
      RuntimeError: if the host does not come up.
    """
    child = Child("replay server", nodes.host, plans, folder)
    try:
        yield Host(child, child.receive(), folder)
    finally:
        child.kill()
