"""Sources of policies for the tests of publisher and variable client."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Optional

import numpy as np

from acme_quant.bench.mlp import mlp_graph, mlp_variables

GRAPH = mlp_graph(16, depth=1, inputs=5, outputs=2)


class Learner:
    """A learner of this process whose steps a test takes."""

    def __init__(self, graph: Any = GRAPH) -> None:
        self.variables = mlp_variables(graph, np.random.default_rng(3))
        self.steps = 0
        self.fetches = 0

    def get_variables(self, names: list) -> list:
        assert names == ["policy"]
        self.fetches += 1
        return [[variable.copy() for variable in self.variables]]

    def get_steps(self) -> int:
        return self.steps

    def step(self, steps: int = 1, bad: Optional[float] = None) -> None:
        self.variables = [variable * np.float32(0.9) for variable in self.variables]
        if bad is not None:
            self.variables[2][3, 1] = bad
        self.steps += steps


class Remote:
    """The face of a Courier client; may be told to fail."""

    def __init__(self, address: Any, call_timeout: float = 0) -> None:
        # Courier has a text here; this one leads to the peer without a server.
        self.address = address if isinstance(address, dict) else {"peer": address}
        self.call_timeout = call_timeout
        self.futures = None

    @property
    def peer(self) -> Any:
        return self.address["peer"]

    def fail_with(self, error: Optional[Exception]) -> None:
        self.address["error"] = error

    def __getattr__(self, method: str) -> Callable:
        if self.address.get("error"):
            raise self.address["error"]
        return getattr(self.peer, method)


class Running:
    """Runs a publisher in a thread for the length of a `with` block."""

    def __init__(self, publisher: Any, stop: threading.Event) -> None:
        self.publisher, self._stop = publisher, stop
        self.failure: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.publisher.run()
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def status(self) -> dict:
        return self.publisher.get_status()

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 10) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.002)
