"""The actor's node: an environment, a policy, an adder, and nothing of TensorFlow."""

from __future__ import annotations

from typing import Any

from acme_quant.launch import stopping


class ActorNode:
    """Runs an environment loop until the program ends."""

    def __init__(self, loop: Any, close: Any) -> None:
        """Runs `loop.run(stop_event)`, and `close()` at the end."""
        self._loop = loop
        self._close = close

    def set_courier_server(self, server: Any) -> None:
        """Serves nobody: no peer calls an actor."""
        server.Unbind("run")
        server.Start()

    def run(self) -> None:
        """Acts until the program ends."""
        stopping.serve_until_stopped(
            lambda stop: self._loop.run(stop=stop), close=self._close
        )
