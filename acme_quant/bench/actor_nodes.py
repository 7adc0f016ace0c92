"""The processes of `acme-quant bench actor`: one replay server, and actors.

The host has TensorFlow: it makes the policies, writes our actors' payloads to files and
serves replay. An actor's process imports what that actor needs, so start-up time and
memory are those of a real one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import threading
import time
from typing import Any

import dm_env
import numpy as np

ACME, ARMS = "acme", ("acme", "float32", "int8")
TABLE_SIZE = 10_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """One measurement.

    Attributes:
      task: an environment's name.
      hidden: units of the three hidden layers.
      arm: one of ARMS: Acme's own actor, or ours in a number format.
      actors: processes that act at once.
      envs_per_actor: environments stepped together; more than 1 for ours alone.
    """

    task: str
    hidden: int
    arm: str
    actors: int = 1
    envs_per_actor: int = 1

    @property
    def table(self) -> str:
        """The replay table, one per kind of observation."""
        return f"{'acme' if self.arm == ACME else 'engine'}/{self.task}"

    def policy_path(self, folder: str) -> str:
        """Where the host writes this plan's payload."""
        name = f"{self.task}-{self.hidden}-{self.arm}.aq".replace(":", "_")
        return os.path.join(folder, name)


@dataclasses.dataclass
class Measured:
    """What one actor process measured.

    Attributes:
      steps: environment steps in the measured time.
      seconds: the measured time.
      items: transitions that replay must hold of this actor, warm-up included.
      microseconds: per stage of a step: environment, policy, adder, update; and "cpu",
        the processor time of the whole process per step, which is the same on a busy
        machine.
      startup_s: from the start of the process to the first action.
      rss_mb: largest resident memory.
      threads: threads of the process while it acts.
    """

    steps: int
    seconds: float
    items: int
    microseconds: dict[str, float]
    startup_s: float
    rss_mb: float
    threads: int


class Stopped(Exception):
    """Leaves Acme's loop in the middle of an episode."""


class Watched:
    """Counts an environment's steps, and the items that they make.

    Attributes:
      steps: steps taken.
      items: items that an n-step adder makes of them.
    """

    def __init__(self, environment: Any, n_step: int, num_envs: int) -> None:
        """Watches a dm_env environment, or a vector environment of `num_envs`."""
        self._environment = environment
        self._n_step = n_step
        self._lengths = [0] * num_envs
        self.num_envs = num_envs
        self.steps = self.items = 0
        self.raises_when: threading.Event | None = None

    def __getattr__(self, name: str) -> Any:
        """Is the environment in all else."""
        return getattr(self._environment, name)

    def reset(self) -> dm_env.TimeStep:
        """Resets the environment."""
        self._lengths = [0] * self.num_envs
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        """Steps the environment and counts."""
        if self.raises_when is not None and self.raises_when.is_set():
            raise Stopped
        timestep = self._environment.step(action)
        if isinstance(timestep.step_type, np.ndarray):
            for i, kind in enumerate(timestep.step_type.tolist()):
                self._count(i, kind)
        else:
            self._count(0, timestep.step_type)
        return timestep

    def _count(self, index: int, kind: int) -> None:
        if kind == dm_env.StepType.FIRST:
            self._lengths[index] = 0
            return
        self._lengths[index] += 1
        self.steps += 1
        self.items += 1
        # At its end an episode has the windows of 1 to n - 1 steps, too.
        if kind == dm_env.StepType.LAST:
            self.items += min(self._lengths[index], self._n_step) - 1


def agent_of(spec: Any, hidden: int) -> tuple[Any, Any]:
    """Returns the agent's module for these actions, and its configuration."""
    from acme_quant import environments
    from acme_quant.agents import d4pg, dqn

    layers = (hidden,) * 3
    if environments.action_kind(spec) == "continuous":
        return d4pg, d4pg.Config(policy_layers=layers)
    if len(getattr(spec.observations, "shape", ())) == 3:
        return dqn, dqn.Config()
    return dqn, dqn.Config(q_layers=layers)


def make_environment(plan: Plan, seed: int) -> Any:
    """Returns the environment as the plan's actor would have it.

    Acme's actor gets DM Control through Acme's own wrappers, and the rest, which Acme
    0.4.0 cannot wrap, as ours does.
    """
    from acme_quant import environments, vector_environment

    vector = plan.envs_per_actor > 1 or plan.task.startswith("envpool")
    if vector:
        return vector_environment.make_vector_environment(
            plan.task, plan.envs_per_actor, seed=seed
        )
    if plan.arm != ACME or not plan.task.startswith("dm_control:"):
        return environments.make_environment(plan.task, seed=seed)
    from acme import wrappers
    from dm_control import suite

    _, domain, task = plan.task.split(":")
    environment = suite.load(domain, task, task_kwargs={"random": seed})
    environment = wrappers.ConcatObservationWrapper(environment)
    environment = wrappers.CanonicalSpecWrapper(environment, clip=True)
    return wrappers.SinglePrecisionWrapper(environment)


def spec_of(plan: Plan) -> Any:
    """Returns the environment's specs."""
    from acme import specs

    return specs.make_environment_spec(make_environment(plan, 0))


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
    make = _acme_loop if plan.arm == ACME else _engine_loop
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


class _Timed:
    """Adds up the time that the methods of an object take, by stage."""

    def __init__(self, target: Any, stages: dict[str, str]) -> None:
        self._target = target
        self.seconds = dict.fromkeys(stages.values(), 0.0)
        for method, stage in stages.items():
            setattr(self, method, self._timed(getattr(target, method), stage))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def _timed(self, method: Any, stage: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = method(*args, **kwargs)
            self.seconds[stage] += time.perf_counter() - start
            return result

        return call


class _AcmeLoop:
    """Acme's loop, actor and adder, timed from outside."""

    def __init__(self, environment: Watched, actor: Any, adder: Any) -> None:
        import acme
        from acme.utils import loggers

        self.environment = environment
        self.flush = adder.reset
        self._timed = (
            _Timed(environment, {"step": "environment"}),
            _Timed(
                actor,
                {"select_action": "policy", "observe": "adder", "update": "update"},
            ),
        )
        self._loop = acme.EnvironmentLoop(*self._timed, logger=loggers.NoOpLogger())

    def run(self, stop: threading.Event) -> None:
        """Runs Acme's loop, which knows no stop, until the environment raises."""
        self.environment.raises_when = stop
        with contextlib.suppress(Stopped):
            self._loop.run()

    def stages(self) -> dict[str, float]:
        """Returns the seconds of each stage."""
        return {**self._timed[0].seconds, **self._timed[1].seconds}


class _EngineLoop:
    """Our loop; its own clock says where the time goes."""

    def __init__(self, environment: Watched, loop: Any, adder: Any) -> None:
        self.environment = environment
        self._loop = loop
        self._adder = adder

    def run(self, stop: threading.Event) -> None:
        """Runs our loop until `stop` is set."""
        self._loop.run(stop=stop)

    def flush(self) -> None:
        """Waits until replay has everything."""
        # The loop's own event is set, which ends waits for the server.
        self._adder.bind(self._loop.clock, threading.Event())
        self._adder.reset()

    def stages(self) -> dict[str, float]:
        """Returns the seconds of each stage."""
        from acme_quant import timing

        seconds = dict(zip(timing.STAGES, self._loop.clock.seconds))
        return {
            "environment": seconds["environment"],
            "policy": seconds["inference"] + seconds["exploration"],
            "adder": seconds["adder"] + seconds["waiting"],
            "update": seconds["update"] + seconds["loop"],
        }


def _acme_loop(plan: Plan, index: int, address: str, folder: str) -> _AcmeLoop:
    """Makes Acme's own actor, as its distributed agents do."""
    del folder
    import reverb
    from acme import specs
    from acme.adders import reverb as adders
    from acme.agents.tf import actors

    environment = make_environment(plan, index)
    spec = specs.make_environment_spec(environment)
    agent, config = agent_of(spec, plan.hidden)
    policy = agent.make_acme_policy(agent.make_networks(spec, config), spec, config)
    adder = adders.NStepTransitionAdder(
        reverb.Client(address),
        config.n_step,
        config.discount,
        priority_fns={plan.table: None},
    )
    watched = Watched(environment, config.n_step, 1)
    return _AcmeLoop(watched, actors.FeedForwardActor(policy, adder), adder)


def _engine_loop(plan: Plan, index: int, address: str, folder: str) -> _EngineLoop:
    """Makes our actor, with as many environments as the plan has."""
    from acme import specs
    from acme.utils import counting, loggers

    from acme_quant import actor, adder, environment_loop
    from acme_quant.policy import QuantizedPolicy

    environment = make_environment(plan, 1000 * index)
    spec = specs.make_environment_spec(environment)
    agent, config = agent_of(spec, plan.hidden)
    policy = QuantizedPolicy.load(plan.policy_path(folder))
    count = plan.envs_per_actor
    vector = hasattr(environment, "num_envs")
    adders = adder.make_adders(
        *(address, count, config.n_step, config.discount),
        priority_fns={plan.table: None},
    )
    explorations = [agent.exploration(spec, config, i, count) for i in range(count)]
    if vector:
        acts: Any = actor.QuantizedVectorActor(policy, explorations, adders, seed=index)
        make = environment_loop.VectorEnvironmentLoop
    else:
        acts = actor.QuantizedActor(policy, explorations[0], adders[0], seed=index)
        make = environment_loop.EnvironmentLoop
    watched = Watched(environment, config.n_step, count)
    loop = make(watched, acts, counting.Counter(), loggers.NoOpLogger())
    return _EngineLoop(watched, loop, adders[0])
