"""The processes of `acme-quant bench publish`: a learner, a quantizer node, clients.

Each is a process of its own and talks through Courier, as in a run; none imports
TensorFlow.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from acme_quant.bench.policy.mlp import mlp_graph, mlp_variables
from acme_quant.publishing import shared_memory
from acme_quant.publishing.answer import SHARED_MEMORY
from acme_quant.publishing.publisher import PolicyPublisher

START_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 30.0


class Setting(NamedTuple):
    """What one measurement publishes and how it travels."""

    hidden: int
    quantizer: str
    transport: str


class Learner:
    """Variables that change a little with every step."""

    def __init__(self, hidden: int) -> None:
        """Draws the first variables."""
        self._graph = mlp_graph(hidden)
        self._variables = mlp_variables(self._graph, np.random.default_rng(0))
        self._steps = 0

    def get_variables(self, names: List[str]) -> List[List[np.ndarray]]:
        """Returns the policy's variables."""
        return [self._variables for _ in names]

    def get_steps(self) -> int:
        """Returns the number of steps done."""
        return self._steps

    def step(self) -> int:
        """Changes every variable; returns the number of steps done."""
        factor = np.float32(0.999)
        self._variables = [variable * factor for variable in self._variables]
        self._steps += 1
        return self._steps


def serve(instance: Any, methods: Tuple[str, ...], pipe: Connection) -> None:
    """Serves `methods` through Courier and tells the port; returns at once."""
    import courier

    server = courier.Server()
    for method in methods:
        server.Bind(method, getattr(instance, method))
    server.Start()
    pipe.send(server.port)
    instance.server = server  # Lives as long as the instance.


def client(port: int) -> Any:
    """Returns a Courier client of a node of this host."""
    import courier

    return courier.Client(f"localhost:{port}", call_timeout=CALL_TIMEOUT_S)


def run_learner(pipe: Connection, hidden: int) -> None:
    """Serves a Learner until killed."""
    serve(Learner(hidden), ("get_variables", "get_steps", "step"), pipe)
    threading.Event().wait()


def run_publisher(pipe: Connection, setting: Setting, learner_port: int) -> None:
    """Publishes every step of the learner until killed."""
    publisher = PolicyPublisher(
        mlp_graph(setting.hidden),
        client(learner_port),
        setting.quantizer,
        publish_period=1,
        use_shared_memory=setting.transport == SHARED_MEMORY,
    )
    serve(publisher, ("get_policy", "get_status"), pipe)
    publisher.run()


class Nodes(NamedTuple):
    """Clients of the two nodes of a measurement, and their process ids."""

    learner: Any
    publisher: Any
    publisher_port: int
    publisher_pid: int

    def publish(self) -> Dict[str, float]:
        """Makes the learner step; returns the publisher's status once it is out."""
        step = self.learner.step()
        return self.wait_for(step)

    def wait_for(self, step: int) -> Dict[str, float]:
        """Returns the publisher's status once it has published that learner step."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            status = self.publisher.get_status()
            if status["policy_version"] and status["learner_steps"] >= step:
                return status
            time.sleep(0.002)
        raise TimeoutError(f"expected learner step {step} to be published.")


@contextlib.contextmanager
def nodes(setting: Setting) -> Iterator[Nodes]:
    """Runs a learner and a quantizer node; kills both at the end."""
    processes: List[multiprocessing.Process] = []
    try:
        learner_port = start(processes, run_learner, setting.hidden)
        port = start(processes, run_publisher, setting, learner_port)
        yield Nodes(client(learner_port), client(port), port, processes[1].pid)
    finally:
        for process in processes:
            process.kill()
            process.join()


def start(
    processes: List[multiprocessing.Process], target: Callable, *args: Any
) -> Any:
    """Starts `target(pipe, *args)` in a new process; returns what it sends first."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    processes.append(process)
    if not mine.poll(START_TIMEOUT_S):
        raise TimeoutError(f"expected {target.__name__} to start.")
    return mine.recv()


def pull(publisher: Any, newer_than: int, transport: str) -> Any:
    """Returns the bytes of the newest policy, by one question of a client."""
    host = shared_memory.host_identity() if transport == SHARED_MEMORY else ""
    _, _, kind, body = publisher.get_policy(newer_than, host)
    if kind != transport.replace("courier", "array"):
        raise RuntimeError(f"expected a policy through {transport}, got {kind}.")
    return shared_memory.open_block(body) if kind == SHARED_MEMORY else body


def run_pullers(
    pipe: Connection, port: int, transport: str, threads: int, seconds: float
) -> None:
    """Pulls the policy again and again in `threads` threads for `seconds`.

    Sends a word when it is ready, waits for one, and sends the seconds of each pull and
    the seconds of all: a pull that has begun is finished.
    """
    sources = [client(port) for _ in range(threads)]
    for source in sources:
        pull(source, 0, transport)
    pipe.send("ready")
    pipe.recv()
    pulls_s: List[float] = []
    begin_s = time.perf_counter()
    deadline_s = begin_s + seconds

    def work(source: Any) -> None:
        while time.perf_counter() < deadline_s:
            start_s = time.perf_counter()
            pull(source, 0, transport)
            pulls_s.append(time.perf_counter() - start_s)

    workers = [threading.Thread(target=work, args=(source,)) for source in sources]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    pipe.send((pulls_s, time.perf_counter() - begin_s))
