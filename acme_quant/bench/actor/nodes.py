"""The processes of `acme-quant bench actor`: one replay server, and actors.

The host has TensorFlow: it makes the policies, writes our actors' payloads to files and
serves replay. An actor's process imports what that actor needs, so start-up time and
memory are those of a real one.
"""

from __future__ import annotations

import os
import time
from typing import Any, Iterator

from acme_quant.bench.actor.loops import acme_loop, engine_loop
from acme_quant.bench.actor.plan import ACME, STAGES, Measured, Plan, agent_of, spec_of

TABLE_SIZE = 10_000
# A turn begins so long before it is measured: caches fill, batches of items form.
SETTLE_S = 0.1


def import_quietly() -> None:
    """Silences TensorFlow, and the old gym, which Acme and EnvPool import."""
    import gym_notices.notices

    gym_notices.notices.notices.clear()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def host(plans: list[Plan], folder: str, pipe: Any) -> None:
    """Writes the policies and serves replay.

    Answers a table's name with the items it received and its own processor time.
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
    pipe.send(f"localhost:{server.port}")
    while True:
        info = tables[pipe.recv()].info
        items = info.rate_limiter_info.insert_stats.completed
        pipe.send((items, time.process_time()))


def act(
    plan: Plan, index: int, address: str, folder: str, seconds: float, pipe: Any
) -> None:
    """Acts in one actor's process, whose first turn lasts `seconds`, until killed."""
    started = time.time() - _age_s()
    import_quietly()
    make = acme_loop if plan.arm == ACME else engine_loop
    loop = make(plan, index, address, folder)
    loop.environment.interrupt(turns(loop, started, seconds, pipe))
    loop.run()  # In the main thread: Acme's loop installs signal handlers.


def turns(loop: Any, started: float, seconds: float, pipe: Any) -> Iterator[float]:
    """Measures the loop that it interrupts, turn by turn, and sends what it measured.

    Between two turns it waits for a message, the seconds of the next; so the loop does.

    Yields:
      Seconds for which the loop is to run.
    """
    startup_s = time.time() - started
    items = 0
    while True:
        before = _state(loop)
        yield seconds
        after = _state(loop)
        loop.flush()
        reached = loop.environment.items
        pipe.send(_measured(before, after, reached - items, startup_s))
        items = reached
        seconds = pipe.recv()
        # The step that was interrupted ends here, with the wait in its time.
        yield SETTLE_S


def _state(loop: Any) -> tuple[int, dict[str, float], float]:
    """Returns steps, seconds by stage, and the time."""
    stages = {**loop.stages(), "cpu": time.process_time()}
    return loop.environment.steps, stages, time.perf_counter()


def _measured(before: tuple, after: tuple, items: int, startup_s: float) -> Measured:
    """Returns what lies between two states, and what the process is now."""
    steps = after[0] - before[0]
    return Measured(
        steps=steps,
        seconds=after[2] - before[2],
        items=items,
        microseconds={
            stage: 1e6 * (after[1][stage] - before[1][stage]) / max(steps, 1)
            for stage in STAGES
        },
        startup_s=startup_s,
        rss_mb=_largest_resident_mb(),
        threads=len(os.listdir("/proc/self/task")),
    )


def _largest_resident_mb() -> float:
    """Returns this process's own: `getrusage` counts the parent's before its start."""
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def _age_s() -> float:
    """Returns the seconds since this process was started."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as file:
        uptime = float(file.read().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")
