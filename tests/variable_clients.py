"""A publisher that a test steers, in its process or another, and clients of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any, Iterator, List

import numpy as np
import pytest
from publishing import GRAPH, Learner

from acme_quant import shared_memory
from acme_quant.publisher import PolicyPublisher
from acme_quant.variable_client import QuantizedVariableClient

HOST = shared_memory.host_identity()
OBSERVATION = np.linspace(-1, 1, 5, dtype=np.float32)


class Source:
    """A publisher that publishes when the test says so."""

    def __init__(self, quantizer: str = "int8", **options: Any) -> None:
        self.learner = Learner()
        self.node = PolicyPublisher(
            GRAPH, self.learner, quantizer, publish_period=1, **options
        )
        self.questions: List[tuple] = []
        self.forge: Any = None
        self.silent: Any = None

    def publish(self) -> None:
        self.learner.step()
        self.node.poll()

    def get_policy(self, newer_than: int, host: str) -> Any:
        self.questions.append((newer_than, host))
        if self.silent:
            raise self.silent
        answer = self.node.get_policy(newer_than, host)
        return answer if self.forge is None else self.forge(answer)


@contextlib.contextmanager
def client_of(source: Any, **options: Any) -> Iterator[QuantizedVariableClient]:
    client = QuantizedVariableClient(source, **options)
    try:
        yield client
    finally:
        client.close()


NODE = """
import sys, threading, time
sys.path.insert(0, {tests!r})
import courier
from acme_quant.publisher import PolicyPublisher
from publishing import GRAPH, Learner
learner = Learner()
node = PolicyPublisher(GRAPH, learner, "int8", publish_period=1)
server = courier.Server()
server.Bind("get_policy", node.get_policy)
server.Bind("step", learner.step)
server.Start()
threading.Thread(target=node.run, daemon=True).start()
print(server.port, flush=True)
time.sleep(120)
"""


@contextlib.contextmanager
def publisher_process() -> Iterator[tuple]:
    courier = pytest.importorskip("courier")
    code = NODE.format(tests=os.path.dirname(__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    try:
        port = int(process.stdout.readline())
        yield process, courier.Client(f"localhost:{port}")
    finally:
        process.kill()
        process.wait(10)
