"""The actor's node: an environment, and one of the kinds of actors that act in it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Protocol

from acme_quant.launch.nodes import stopping
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.life import Life
from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.launch.settings.actors import ACTORS


class Loop(Protocol):
    """Acts in an environment, episode after episode."""

    def run(self, stop: threading.Event) -> None:
        """Acts until `stop` is set."""


def make(context: Context) -> ActorNode:
    """Returns an actor of the run's kind."""
    run, life = context.run, Life(context.counter, context.name)
    logger = make_logger(
        run.workdir,
        context.name,
        "actor_steps",
        context.started,
        run.config.log_every_s,
    )
    kind = importlib.import_module(ACTORS[run.config.actor].module)
    loop = kind.make_loop(context, life, logger)
    return ActorNode(loop, logger.close, life)


class ActorNode:
    """Runs an environment loop until the program ends."""

    LEAVE_EVERY_S = 2.0

    def __init__(self, loop: Loop, close: Callable[[], None], life: Life) -> None:
        """Runs `loop.run(stop_event)`, leaves `life`, calls `close()` at the end."""
        self._loop = loop
        self._close = close
        self._life = life

    def run(self) -> None:
        """Acts until the program ends."""
        stopping.serve_until_stopped(self._act, self._leave, close=self._close)

    def _act(self, stop: threading.Event) -> None:
        try:
            self._loop.run(stop=stop)
            self._life.leave()
        finally:
            self._life.close()

    def _leave(self, stop: threading.Event) -> None:
        self._life.leave()
        while not stop.wait(self.LEAVE_EVERY_S):
            self._life.leave()
