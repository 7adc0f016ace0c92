"""The loops that `acme-quant bench actor` measures: Acme's own, and ours.

Both have an environment that counts, `run`, `flush` and `stages`. The environment can
be interrupted between two steps; the whole loop waits with it. Each loop imports what
its actor needs when it is made, so start-up time and memory are those of a real one.
"""

from __future__ import annotations

import math
import time
from typing import Any, Iterator

import dm_env
import numpy as np

from acme_quant.bench.actor.plan import Plan, agent_of, make_environment


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
        self._interruptions: Iterator[float] = iter(())
        self._next_interruption = math.inf

    def __getattr__(self, name: str) -> Any:
        """Is the environment in all else."""
        return getattr(self._environment, name)

    def interrupt(self, interruptions: Iterator[float]) -> None:
        """Has an iterator go on before the next step.

        It does what it likes while the loop waits, and yields after how many seconds
        it is to go on again.
        """
        self._interruptions = interruptions
        self._next_interruption = 0.0

    def reset(self) -> dm_env.TimeStep:
        """Resets the environment."""
        self._lengths = [0] * self.num_envs
        return self._environment.reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        """Steps the environment and counts."""
        if time.perf_counter() >= self._next_interruption:
            seconds = next(self._interruptions)
            self._next_interruption = time.perf_counter() + seconds
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


class AcmeLoop:
    """Acme's loop, actor and adder, timed from outside."""

    def __init__(self, environment: Watched, actor: Any, adder: Any) -> None:
        import acme
        from acme.utils import loggers

        self.environment = environment
        self._adder = adder
        self._timed = (
            _Timed(environment, {"step": "environment"}),
            _Timed(
                actor,
                {"select_action": "policy", "observe": "adder", "update": "update"},
            ),
        )
        self._loop = acme.EnvironmentLoop(*self._timed, logger=loggers.NoOpLogger())

    def run(self) -> None:
        """Runs without end."""
        self._loop.run()

    def flush(self) -> None:
        """Waits until replay has everything, in the middle of an episode."""
        # The adder itself would end the episode.
        self._adder._writer.flush()

    def stages(self) -> dict[str, float]:
        """Returns the seconds of each stage."""
        return {**self._timed[0].seconds, **self._timed[1].seconds}


class EngineLoop:
    """Our loop; its own clock says where the time goes."""

    def __init__(self, environment: Watched, loop: Any, adder: Any) -> None:
        self.environment = environment
        self._loop = loop
        self._adder = adder

    def run(self) -> None:
        """Runs without end."""
        self._loop.run()

    def flush(self) -> None:
        """Waits until replay has everything, in the middle of an episode."""
        self._adder.writer.flush()

    def stages(self) -> dict[str, float]:
        """Returns the seconds of each stage."""
        from acme_quant.acting import timing

        seconds = dict(zip(timing.STAGES, self._loop.clock.seconds))
        return {
            "environment": seconds["environment"],
            "policy": seconds["inference"] + seconds["exploration"],
            "adder": seconds["adder"] + seconds["waiting"],
            "update": seconds["update"] + seconds["loop"],
        }


def acme_loop(plan: Plan, index: int, address: str, folder: str) -> AcmeLoop:
    """Makes Acme's own actor, as its distributed agents do."""
    del folder
    import reverb
    from acme import specs
    from acme.adders import reverb as adders
    from acme.agents.tf import actors

    environment = make_environment(plan, index)
    spec = specs.make_environment_spec(environment)
    agent, config = agent_of(spec, plan.hidden)
    networks = agent.make_networks(spec, config)
    explores = agent.exploration(spec, config, 0, 1)
    policy = agent.make_acme_policy(networks, spec, explores)
    adder = adders.NStepTransitionAdder(
        reverb.Client(address),
        config.n_step,
        config.discount,
        priority_fns={plan.table: None},
    )
    watched = Watched(environment, config.n_step, 1)
    return AcmeLoop(watched, actors.FeedForwardActor(policy, adder), adder)


def engine_loop(plan: Plan, index: int, address: str, folder: str) -> EngineLoop:
    """Makes our actor, with as many environments as the plan has."""
    from acme import specs
    from acme.utils import loggers

    from acme_quant.acting import actor, async_counter, environment_loop
    from acme_quant.launch.nodes.loggers import TimeFilter
    from acme_quant.policy.quantized_policy import QuantizedPolicy
    from acme_quant.replay import adder

    environment = make_environment(plan, 1000 * index)
    spec = specs.make_environment_spec(environment)
    agent, config = agent_of(spec, plan.hidden)
    policy = QuantizedPolicy.load(plan.policy_path(folder))
    count = plan.envs_per_actor
    vector = hasattr(environment, "num_envs")
    adders = adder.make_adders(
        address,
        count,
        config.n_step,
        config.discount,
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
    # A run's default: a row a second.
    logger = TimeFilter(loggers.NoOpLogger(), 1.0)
    loop = make(watched, acts, async_counter.AsyncCounter(), logger)
    return EngineLoop(watched, loop, adders[0])
