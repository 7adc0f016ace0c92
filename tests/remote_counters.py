"""A counter behind a Courier server of this process, which tests make slow or fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Optional

import pytest
from acme.utils import counting


class RemoteCounter(counting.Counter):
    """Counts when it may.

    Attributes:
      increments: what it was given, call by call.
      may_answer: cleared by a test to let calls wait.
      error: raised instead of counting.
    """

    def __init__(self) -> None:
        super().__init__()
        self.increments: list[dict] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Optional[Exception] = None

    def increment(self, **counts: float) -> dict:
        self.may_answer.wait(30)
        if self.error is not None:
            raise self.error
        self.increments.append(counts)
        return super().increment(**counts)


@contextlib.contextmanager
def serve(counter: RemoteCounter) -> Iterator[Any]:
    """Yields a Courier client of `counter`."""
    courier = pytest.importorskip("courier")
    server = courier.Server()
    server.Bind("increment", counter.increment)
    server.Bind("get_counts", counter.get_counts)
    server.Start()
    try:
        yield courier.Client(f"localhost:{server.port}")
    finally:
        counter.may_answer.set()
        server.Stop()
