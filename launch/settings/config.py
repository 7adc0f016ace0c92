"""The resolved configuration of one run, and the command-line flags made from it.

A setting is written once, as a field with its help: the flag, the default, the
resolved `config.json` and the nodes' plain frozen configuration all come from it. Nodes
get this object and never parse flags.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags

from acme_quant import agents
from acme_quant.agents.agent import Agent
from acme_quant.launch.settings.actors import ACTORS
from acme_quant.policy import quantizers
from acme_quant.records import energy
from acme_quant.settings import flags as setting_flags
from acme_quant.settings.declaration import setting

# How a run is laid out: a process for each node, a thread for each node, or all in one
# thread, whose turns are fixed.
PROCESSES, THREADS, ONE_THREAD = "processes", "threads", "one_thread"


class UsageError(ValueError):
    """The command line asks for something that cannot be run; exit code 2."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Settings of a run that do not belong to one agent.

    They serve "engine" (our own actors), "processes" (runs of several) or "vectors"
    (actors that may step several environments); `Run.absent` tells who is not there.
    """

    agent: str = setting(
        "d4pg", f"Agent: {', '.join(agents.AGENTS)}.", choices=tuple(agents.AGENTS)
    )
    env: str = setting(
        "dm_control:cartpole:balance",
        "Environment: dm_control:DOMAIN:TASK, gym:ID, atari:GAME, envpool_dm:ID or "
        "MODULE:FACTORY.",
    )
    quantizer: str = setting(
        "int8",
        "Number format of the actors' policy.",
        choices=tuple(quantizers.QUANTIZERS),
        serves="engine",
    )
    activations: str = setting(
        "wide",
        "Integers that inputs of integer layers are rounded to: wide (up to 16 bit) "
        "or 8bit.",
        choices=("wide", "8bit"),
        serves="engine",
    )
    communication: str = setting(
        "",
        "Number format on the wire, when it differs from --quantizer: the actor then "
        "quantizes what it receives.",
        choices=("", *quantizers.QUANTIZERS),
        serves="engine",
    )
    action_limit: float = setting(
        0.0,
        "Bound for continuous actions that have none; 0 refuses such a task.",
        at_least=0,
    )
    sticky_actions: float = setting(
        0.0,
        "Atari: probability that the previous action is repeated.",
        at_least=0,
        below=1,
    )
    actor: str = setting(
        "engine",
        "Actor: engine (ours) or acme (Acme's own, on the learner).",
        choices=tuple(ACTORS),
        serves="processes",
    )
    num_actors: int = setting(
        2,
        "Actor processes; 0: no processes, a run in one that --seed repeats to the "
        "bit.",
        at_least=0,
    )
    envs_per_actor: int = setting(
        1,
        "Environments that an actor steps together, with one policy call for all.",
        at_least=1,
        serves="vectors",
    )
    max_actor_steps: int = setting(
        100_000, "Environment steps at which the run ends.", at_least=1
    )
    workdir: str = setting("", "Folder for everything that the run writes.")
    seed: int = setting(0, "Seed; every node derives its own from it.", at_least=0)
    publish_period: int = setting(
        100,
        "Learner steps between two publications of the policy.",
        at_least=1,
        serves="engine",
    )
    publish_period_s: float = setting(
        0.0,
        "Seconds between two publications instead; 0: learner steps count.",
        at_least=0,
        serves=("engine", "clock"),
        instead_of="publish_period",
    )
    update_period: int = setting(
        100,
        "Environment steps between an actor's questions for a newer policy.",
        at_least=1,
    )
    max_bad_policies: int = setting(
        10,
        "Refused policies in a row at which the run stops.",
        at_least=1,
        serves="engine",
    )
    max_action_change: float = setting(
        0.0,
        "Largest change of an action by the number format at which a policy is still "
        "published; 0: any.",
        at_least=0,
        serves="engine",
    )
    colocate_quantizer: bool = setting(
        False,
        "Quantize inside the learner's process instead of beside it.",
        serves=("engine", "processes"),
    )
    evaluate_every: int = setting(
        500,
        "Learner steps between two evaluations; 0 switches the evaluator off.",
        at_least=0,
    )
    evaluation_episodes: int = setting(1, "Episodes of one evaluation.", at_least=1)
    evaluation_max_steps: int = setting(
        30_000,
        "Steps at which an episode of an evaluation is cut: a policy may never end "
        "one; 0: any number.",
        at_least=0,
    )
    evaluate_float32: bool = setting(
        False,
        "Evaluate the float32 policy beside the actors' one.",
        serves="engine",
    )
    log_every_s: float = setting(
        1.0, "Seconds between two rows of a node's CSV file.", at_least=0
    )
    country_iso_code: str = setting(
        energy.DEFAULT_COUNTRY,
        "Country whose electricity the run uses, three letters: it gives the CO2.",
    )
    checkpoint_every_s: float = setting(
        60.0,
        "Seconds between two checkpoints, beside the one at the end; 0: none at all.",
        at_least=0,
    )
    keep_checkpoints: int = setting(
        3, "Newest checkpoints that are kept, beside the best one.", at_least=1
    )
    checkpoint_replay: bool = setting(
        False,
        "Save the replay too, with Reverb's own checkpoint, which pauses it.",
        serves="processes",
    )
    max_replay_checkpoint_mb: int = setting(
        2000,
        "A replay that takes more is left out of checkpoints.",
        at_least=1,
        serves="processes",
    )
    fresh: bool = setting(
        False,
        "Start anew in a folder with checkpoints; what is there is moved aside.",
    )
    actor_failures: str = setting(
        "restart",
        "What follows when an actor dies: restart it, or stop the run.",
        choices=("restart", "stop"),
        serves="processes",
    )
    max_actor_restarts: int = setting(
        3,
        "Restarts of one actor within ten minutes; one more death ends the run.",
        at_least=0,
        serves=("processes", "restarts"),
    )
    step_timeout_s: float = setting(
        60.0,
        "Seconds that one step or reset of the environment may take before its actor "
        "is given up; 0: any time.",
        at_least=0,
    )


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a run starts: at nothing, or at a checkpoint.

    Attributes:
      checkpoint: its number, None for a run that starts at nothing.
      counts: what the nodes had counted.
      deposits: what each node had left with the counter, JSON.
      policy_version: the newest version that was published.
      wall_s: seconds that the run had lasted.
    """

    checkpoint: int | None = None
    counts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    deposits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    policy_version: int = 0
    wall_s: float = 0.0

    @property
    def actor_steps(self) -> int:
        """Environment steps of all actors."""
        return int(self.counts.get("actor_steps", 0))

    @property
    def learner_steps(self) -> int:
        """Learner steps."""
        return int(self.counts.get("learner_steps", 0))


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's whole configuration: the run's own settings and the agent's.

    Attributes:
      config: the run's own settings.
      agent_config: the agent's.
      start: where it starts.
      nodes_in: PROCESSES or THREADS, for runs that have actors beside the rest.
    """

    config: RunConfig
    agent_config: Any
    start: Start = Start()
    nodes_in: str = PROCESSES

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Run:
        """Returns the run that a checkpoint's settings describe.

        A setting that they lack has its default.

        Raises:
          UsageError: if the agent is unknown.
        """
        try:
            agent = agents.get(settings.get("agent", RunConfig.agent))
        except ValueError as error:
            raise UsageError(str(error)) from error
        return cls(_from(RunConfig, settings), _from(agent.Config, settings))

    @property
    def agent(self) -> Agent[Any, Any]:
        """The chosen agent."""
        return agents.get(self.config.agent)

    @property
    def layout(self) -> str:
        """PROCESSES, THREADS or ONE_THREAD: chosen here, and asked for everywhere."""
        return self.nodes_in if self.config.num_actors else ONE_THREAD

    @property
    def absent(self) -> dict[str, str]:
        """Whom settings may serve and this run does not have -> what says so."""
        found = {}
        if self.layout == ONE_THREAD:
            one = "--num_actors=0, whose learner, replay and actor are one process"
            found |= dict.fromkeys(("processes", "vectors", "restarts"), one)
            found["clock"] = "--num_actors=0, where nothing goes by the clock"
        # An unknown kind is refused by its own setting.
        kind, flag = ACTORS.get(self.config.actor), f"--actor={self.config.actor}"
        if kind and not kind.payload:
            found["engine"] = f"{flag}, whose actors take the learner's own variables"
        if kind and not kind.several_environments:
            found["vectors"] = f"{flag}, whose actors step one environment each"
        if self.config.actor_failures == "stop":
            found["restarts"] = "--actor_failures=stop, which restarts nobody"
        return found

    @property
    def workdir(self) -> pathlib.Path:
        """The run's folder."""
        return pathlib.Path(self.config.workdir)

    @property
    def environment_options(self) -> dict[str, Any]:
        """What `make_environment` gets beside the name and the seed."""
        options = {
            "action_limit": self.config.action_limit,
            "sticky_actions": self.config.sticky_actions,
        }
        return {name: value for name, value in options.items() if value}

    def node_seed(self, node: str) -> int:
        """Returns the seed of one node, int31: other nodes, other streams."""
        entropy = [self.config.seed, zlib.crc32(node.encode())]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)

    def to_json(self) -> str:
        """Returns the resolved settings, one flag a key."""
        settings = {
            **dataclasses.asdict(self.config),
            **dataclasses.asdict(self.agent_config),
        }
        return json.dumps(settings, indent=2) + "\n"


def _from(config_class: type, settings: Mapping[str, Any]) -> Any:
    """Returns settings as their dataclass; JSON knows no tuples."""
    given = {
        field.name: tuple(value) if isinstance(value, list) else value
        for field in dataclasses.fields(config_class)
        if (value := settings.get(field.name, field.default)) is not None
    }
    return config_class(**given)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines one flag for each setting of the run and of every agent."""
    setting_flags.define(flag_values, RunConfig)
    for name in agents.AGENTS:
        setting_flags.define(flag_values, agents.get(name).Config, owner=name)


def from_flags(flag_values: flags.FlagValues) -> Run:
    """Returns the run that the parsed flags describe.

    Raises:
      UsageError: if the agent is unknown or a flag was given that it does not have.
    """
    config = setting_flags.read(flag_values, RunConfig)
    try:
        agent = agents.get(config.agent)
        _refuse_foreign_flags(flag_values, config.agent, agent.Config)
        return Run(config, setting_flags.read(flag_values, agent.Config))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _refuse_foreign_flags(
    flag_values: flags.FlagValues, name: str, config_class: type
) -> None:
    own = {field.name for field in dataclasses.fields(config_class)}
    for other in agents.AGENTS:
        for field in dataclasses.fields(agents.get(other).Config):
            if field.name not in own and flag_values[field.name].value is not None:
                raise UsageError(
                    f"--{field.name} is a setting of {other} and would change nothing "
                    f"with --agent={name}."
                )
