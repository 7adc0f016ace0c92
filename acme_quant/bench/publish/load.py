"""One quantizer node under many clients, and over many publications."""

from __future__ import annotations

import multiprocessing
import os
from typing import Dict, Iterator, List, NamedTuple

import numpy as np

from acme_quant.bench.publish.nodes import Nodes, Setting, client, run_pullers
from acme_quant.publishing.client import QuantizedVariableClient

MAX_CLIENT_PROCESSES = 8
WARM_UP = 50
# gRPC frees the buffers of a message some time after it; what a process needs between
# two messages is the least of some.
MEMORY_WINDOW = 50


class ScaleRow(NamedTuple):
    """How fast clients that pull without a pause are served."""

    hidden: int
    quantizer: str
    transport: str
    clients: int
    pulls_per_s: float
    mb_per_s: float
    median_ms: float
    p99_ms: float


class MemoryRow(NamedTuple):
    """Resident size of a process at the first and the last of many publications."""

    hidden: int
    quantizer: str
    transport: str
    process: str
    publications: int
    before_mb: float
    after_mb: float
    growth_mb: float


def scale(setting: Setting, running: Nodes, clients: int, seconds: float) -> ScaleRow:
    """Lets `clients` pull whole policies for `seconds`, each by a connection."""
    context = multiprocessing.get_context("spawn")
    count = min(clients, MAX_CLIENT_PROCESSES)
    processes, pipes = [], []
    for index in range(count):
        threads = clients // count + (index < clients % count)
        mine, theirs = context.Pipe()
        process = context.Process(
            target=run_pullers,
            args=(theirs, running.publisher_port, setting.transport, threads, seconds),
            daemon=True,
        )
        process.start()
        processes.append(process)
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    results = [pipe.recv() for pipe in pipes]
    pulls_ms = 1e3 * np.concatenate([pulls_s for pulls_s, _ in results])
    pulls_per_s = len(pulls_ms) / max(elapsed_s for _, elapsed_s in results)
    for process in processes:
        process.join()
    size = running.publisher.get_status()["policy_bytes"]
    return ScaleRow(
        *setting,
        clients,
        pulls_per_s=pulls_per_s,
        mb_per_s=pulls_per_s * size / 1e6,
        median_ms=float(np.median(pulls_ms)),
        p99_ms=float(np.percentile(pulls_ms, 99)),
    )


def memory(setting: Setting, running: Nodes, publications: int) -> Iterator[MemoryRow]:
    """Publishes and pulls many versions; yields what the two processes grew by."""
    actor = QuantizedVariableClient(
        client(running.publisher_port),
        use_shared_memory=setting.transport == "shared_memory",
    )
    observation = np.linspace(-1, 1, 17, dtype=np.float32)
    processes = {"publisher": running.publisher_pid, "actor": os.getpid()}
    sizes: Dict[str, List[float]] = {name: [] for name in processes}
    for _ in range(WARM_UP + publications):
        running.publish()
        actor.update_and_wait()
        actor.policy(observation)
        for name, pid in processes.items():
            sizes[name].append(resident_mb(pid))
    window = min(MEMORY_WINDOW, publications)
    for name, size in sizes.items():
        before = min(size[WARM_UP : WARM_UP + window])
        after = min(size[-window:])
        yield MemoryRow(
            setting.hidden,
            setting.quantizer,
            setting.transport,
            name,
            publications,
            before,
            after,
            after - before,
        )
    actor.close()


def resident_mb(pid: int) -> float:
    """Returns the resident size of a process in MB."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
