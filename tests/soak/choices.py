"""What a run of the soak is made of: every choice from one seed."""

from __future__ import annotations

import dataclasses
import random

ENVIRONMENTS = (
    ("fault_environments:steady", 6),
    ("fault_environments:diverges_at_random", 2),
    ("fault_environments:nan_at_random", 2),
    ("fault_environments:raises_from_500", 1),
    ("fault_environments:kills_its_process", 1),
    ("fault_environments:hangs_once", 1),
)
QUANTIZERS = ("int8", "int8_tensor", "int8_clipped", "int4", "float16", "float32")
NODES = ("actor_0", "actor_1", "learner", "quantizer", "replay", "counter", "evaluator")
FAULTS = (
    ("none", 4),
    ("kill", 3),
    ("stop", 2),
    ("SIGINT launcher", 2),
    ("SIGTERM launcher", 2),
    ("SIGINT all", 1),
    ("SIGTERM all", 2),
    ("full disk", 2),
    ("kill launcher", 1),
)
SMALL = (
    "--batch_size=16",
    "--samples_per_insert=4",
    "--min_replay_size=100",
    "--update_period=20",
    "--evaluate_every=200",
    "--log_every_s=0.1",
    "--checkpoint_every_s=1",
    "--step_timeout_s=5",
)


@dataclasses.dataclass(frozen=True)
class Choices:
    """One run: its flags, and what happens to it when.

    Attributes:
      layout: `processes`, `threads` or `one process`.
      fault: one of FAULTS.
      node: whom a fault of one node meets.
      after: seconds from launch, or from the first learner step, to the fault.
      early: whether the seconds count from launch.
      resumes: whether the same folder is run again, without a fault, after it.
    """

    number: int
    flags: tuple[str, ...]
    layout: str
    fault: str
    node: str
    after: float
    early: bool
    resumes: bool


def choose(seed: int, number: int) -> Choices:
    """Returns the choices of run `number`; they depend on nothing but the arguments."""
    rng = random.Random(f"{seed} {number}")
    agent = rng.choice(("d4pg", "dqn"))
    layout = rng.choices(("processes", "threads", "one process"), (6, 1, 3))[0]
    own_processes = layout == "processes"
    environment = _weighed(rng, ENVIRONMENTS)
    if (
        agent == "dqn"
        or not own_processes
        and environment.endswith(("process", "once"))
    ):
        environment = environment if own_processes else "fault_environments:steady"
    fault = _weighed(rng, FAULTS)
    if not own_processes and fault in ("kill", "stop"):
        fault = "none"
    flags = [
        *SMALL,
        f"--env={environment}" if agent == "d4pg" else "--env=gym:CartPole-v1",
        f"--agent={agent}",
        f"--seed={rng.randrange(1000)}",
        f"--max_actor_steps={_steps(rng, fault)}",
        *(_layers(agent)),
        *_actors(rng, layout),
    ]
    return Choices(
        number=number,
        flags=tuple(flags),
        layout=layout,
        fault=fault,
        node=rng.choice(NODES),
        after=round(rng.uniform(0.0, 8.0), 2),
        early=rng.random() < 0.25,
        resumes=rng.random() < 0.4,
    )


def _steps(rng: random.Random, fault: str) -> int:
    """Returns a limit that is reached, or one that the fault comes before."""
    if fault == "none":
        return rng.choice((300, 1500, 3000))
    return 8000 if fault in ("kill", "stop", "full disk") else 10**6


def _layers(agent: str) -> tuple[str, ...]:
    if agent == "dqn":
        return ("--q_layers=16,16",)
    return ("--policy_layers=16,16", "--critic_layers=16,16")


def _actors(rng: random.Random, layout: str) -> list[str]:
    """Returns the flags of a layout, its actors and what these run."""
    kind = rng.choices(("engine", "acme"), (4, 1))[0]
    quantizer = rng.choice(QUANTIZERS)
    colocated = rng.random() < 0.3
    if layout == "one process":
        return ["--num_actors=0", f"--quantizer={quantizer}", "--publish_period=10"]
    flags = ["--num_actors=2"]
    if layout == "threads":
        flags.append("--lp_launch_type=local_mt")
    if kind == "acme":
        return [*flags, "--actor=acme"]
    flags += [f"--quantizer={quantizer}", "--publish_period=10"]
    return flags + (["--colocate_quantizer"] if colocated else [])


def _weighed(rng: random.Random, choices: tuple[tuple[str, int], ...]) -> str:
    return rng.choices([c for c, _ in choices], [w for _, w in choices])[0]
