"""The processes of `acme-quant bench actor`: one replay server, and actors.

The host has TensorFlow: it makes the policies, writes our actors' payloads to files and
serves replay. An actor's process imports what that actor needs, so start-up time and
memory are those of a real one.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Any

from acme_quant.bench.actor_loops import acme_loop, engine_loop
from acme_quant.bench.actor_plan import ACME, Measured, Plan, agent_of, spec_of

TABLE_SIZE = 10_000


def import_quietly() -> None:
    """Silences TensorFlow, and the old gym, which Acme and EnvPool import."""
    import gym_notices.notices

    gym_notices.notices.notices.clear()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def host(plans: list[Plan], folder: str, pipe: Any) -> None:
    """Writes the policies and serves replay.

    Answers every message with {table: items received} and its processor time.
    """
    import_quietly()
    import reverb
    from acme.adders import reverb as adders

    import acme_quant

    tables = {}
    for plan in plans:
        spec = spec_of(plan)
        signature = adders.NStepTransitionAdder.signature(spec)
        tables[plan.table] = reverb.Table(
            plan.table,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=TABLE_SIZE,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=signature,
        )
        path = plan.policy_path(folder)
        if plan.arm != ACME and not os.path.exists(path):
            agent, config = agent_of(spec, plan.hidden)
            module = agent.policy_module(agent.make_networks(spec, config))
            acme_quant.quantize_policy(module, spec.observations, plan.arm).save(path)
    server = reverb.Server(list(tables.values()), port=None)
    client = reverb.Client(f"localhost:{server.port}")
    pipe.send(f"localhost:{server.port}")
    while pipe.recv():
        items = {
            name: info.rate_limiter_info.insert_stats.completed
            for name, info in client.server_info().items()
        }
        pipe.send((items, time.process_time()))


def act(
    plan: Plan, index: int, address: str, folder: str, seconds: float, pipe: Any
) -> None:
    """Acts in one actor's process, while a thread of it watches."""
    started = time.time() - _age_s()
    import_quietly()
    make = acme_loop if plan.arm == ACME else engine_loop
    loop = make(plan, index, address, folder)
    stop = threading.Event()
    found: dict[str, Any] = {}

    def observe() -> None:
        try:
            found.update(_observe(loop, started, seconds, pipe))
        finally:
            stop.set()

    threading.Thread(target=observe, daemon=True).start()
    loop.run(stop)  # In the main thread: Acme's loop installs signal handlers.
    loop.flush()
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(Measured(items=loop.environment.items, rss_mb=rss_mb, **found))
    pipe.recv()


def _observe(loop: Any, started: float, seconds: float, pipe: Any) -> dict[str, Any]:
    """Waits for the first action, a warm-up and the word to begin, then measures."""
    while not loop.environment.steps:
        time.sleep(0.001)
    startup_s = time.time() - started
    time.sleep(min(2.0, seconds))
    pipe.send("warm")
    pipe.recv()
    before = _state(loop)
    time.sleep(seconds)
    after = _state(loop)
    steps = after[0] - before[0]
    return {
        "steps": steps,
        "seconds": after[2] - before[2],
        "microseconds": {
            stage: 1e6 * (total - before[1][stage]) / max(steps, 1)
            for stage, total in after[1].items()
        },
        "startup_s": startup_s,
        "threads": len(os.listdir("/proc/self/task")) - 1,  # But this one.
    }


def _state(loop: Any) -> tuple[int, dict[str, float], float]:
    """Returns steps, seconds by stage, and the time."""
    stages = {**loop.stages(), "cpu": time.process_time()}
    return loop.environment.steps, stages, time.perf_counter()


def _age_s() -> float:
    """Returns the seconds since this process was started."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")
