"""One measurement of `acme-quant bench actor`: plan, agent, environment, result."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

ACME, ARMS = "acme", ("acme", "float32", "int8")
# Where the time of a step goes; "cpu" is the processor time of the whole process.
STAGES = ("environment", "policy", "adder", "update", "cpu")


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
    def setting(self) -> tuple[str, int, int, int]:
        """What the arms that are compared have in common."""
        return self.task, self.hidden, self.actors, self.envs_per_actor

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
    """What one actor process measured in a turn.

    Attributes:
      steps: environment steps in the measured time.
      seconds: the measured time.
      items: transitions that replay must have received in the turn, those before the
        measured time included.
      microseconds: per step, of each of STAGES.
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


def agent_of(spec: Any, hidden: int) -> tuple[Any, Any]:
    """Returns the agent for these actions, and its configuration."""
    from acme_quant import environments
    from acme_quant.agents import d4pg, dqn

    layers = (hidden,) * 3
    if environments.action_kind(spec) == "continuous":
        return d4pg.AGENT, d4pg.Config(policy_layers=layers)
    if len(getattr(spec.observations, "shape", ())) == 3:
        return dqn.AGENT, dqn.Config()
    return dqn.AGENT, dqn.Config(q_layers=layers)


def make_environment(plan: Plan, seed: int) -> Any:
    """Returns the environment as the plan's actor would have it.

    Acme's actor gets DM Control through Acme's own wrappers, and the rest, which Acme
    0.4.0 cannot wrap, as ours does.
    """
    from acme_quant import environments
    from acme_quant.environments import vector as vector_environment

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

    environment = make_environment(plan, 0)
    spec = specs.make_environment_spec(environment)
    environment.close()
    return spec
