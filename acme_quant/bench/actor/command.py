"""Times an actor's whole loop against Acme's own, with a replay server beside it.

    acme-quant bench actor
    acme-quant bench actor --tasks=dm_control:walker:stand --hidden=256 --actors=1,2
    acme-quant bench actor --tasks=envpool_dm:CheetahRun-v1 --envs_per_actor=32

The policy is frozen and nobody learns. Arms: `acme` is Acme's FeedForwardActor, n-step
adder and environment loop; `float32` and `int8` are ours. The processes of a setting's
arms are all started, one after the other, warm up, and then take turns: in each of five
rounds every arm acts for a fifth of `--seconds` while the others' processes wait, so a
slow moment of the machine falls on all arms. A figure is the median of its rounds, each
figure by itself, so parts need not add up. Memory must hold all arms' processes.

Of a line, steps/s is the sum over the actors; microseconds are per environment step,
their mean over the actors, of the whole loop first and then of its parts. Promised
ratios come last, and of int8 the share of a step that `update` takes: counters, the
ends of episodes, timing and the loop itself. A frozen policy is not pulled, and nothing
is written to files: what these cost stands in the columns `us_update` and `us_loop` of
a run's CSV. After every turn replay must have received every transition the
environments made in it. `cpu` is the processor time of the whole process per step, with
gRPC's threads; `replay` that of the server per item. Start-up is from an actor's
process start to its first action.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from typing import Iterator, Sequence

from absl import flags

from acme_quant.bench.actor import host as actor_host
from acme_quant.bench.actor import nodes, report, rounds
from acme_quant.bench.actor.plan import ACME, ARMS, Plan
from acme_quant.launch.settings import spec_child

TASKS = (
    "dm_control:cartpole:balance",
    "dm_control:walker:stand",
    "dm_control:humanoid:stand",
    "gym:CartPole-v1",
    "atari:Pong",
)
# Atari's convolutional network has one size: its last hidden layer's.
ATARI_HIDDEN = 512


def define_flags() -> flags.FlagValues:
    """Returns the benchmark's own flags."""
    own = flags.FlagValues()
    for define, name, default, text in (
        (flags.DEFINE_list, "tasks", ",".join(TASKS), "Environments."),
        (flags.DEFINE_list, "hidden", "256,2048", "Units of the three hidden layers."),
        (flags.DEFINE_list, "arms", ",".join(ARMS), "Actors to measure."),
        (
            flags.DEFINE_list,
            "actors",
            f"1,{os.cpu_count()}",
            "Numbers of actor processes.",
        ),
        (
            flags.DEFINE_list,
            "envs_per_actor",
            "1",
            "Numbers of environments stepped together; above 1 for ours alone.",
        ),
        (flags.DEFINE_float, "seconds", 5.0, "Seconds measured of an arm."),
        (flags.DEFINE_string, "json", "", "File to write the rows to."),
    ):
        define(name, default, text, flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code: 1 for a failure, 2 for wrong flags."""
    own = define_flags()
    try:
        extra = own(list(argv))[1:]
        if extra:
            raise ValueError(f"expected flags alone, got {extra[0]!r}.")
        todo = list(plans(own))
        nodes.import_quietly()
        for task in own.tasks:
            spec_child.read_spec(task, {})
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    try:
        rows = run(todo, own.seconds)
    except RuntimeError as error:
        print(f"{argv[0]}: {error}")
        return 1
    report.print_targets(rows)
    if file is not None:
        with file:
            json.dump([dataclasses.asdict(row) for row in rows], file, indent=1)
    return 0


def run(todo: list[Plan], seconds: float) -> list[report.Row]:
    """Returns the rows of all plans, each printed as soon as its setting is measured.

    Raises:
      RuntimeError: if a process died, or replay did not receive every transition.
    """
    rows: list[report.Row] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        actor_host.serve(todo, folder) as host,
    ):
        for _, arms in itertools.groupby(todo, key=lambda plan: plan.setting):
            setting = list(arms)
            turns = rounds.measure(setting, host, seconds)
            for row in map(report.summarize, setting, turns):
                acme = report.baseline(row, rows)
                print(report.line(row, acme), flush=True)
                rows.append(row)
    return rows


def plans(own: flags.FlagValues) -> Iterator[Plan]:
    """Yields what the flags ask for; Acme's arm first, as the others' baseline.

    Raises:
      ValueError: if there is no task, an arm is unknown or a number is not positive.
    """
    for arm in own.arms or [""]:
        if arm not in ARMS:
            raise ValueError(f"arms must be of {','.join(ARMS)}, got {arm!r}.")
    if not own.tasks:
        raise ValueError("expected a task at least, got none.")
    if own.seconds <= 0:
        raise ValueError(f"seconds must be positive, got {own.seconds}.")
    sizes, counts = positive(own, "hidden"), positive(own, "actors")
    vectors = positive(own, "envs_per_actor")
    for task in own.tasks:
        for hidden in [ATARI_HIDDEN] if task.startswith("atari:") else sizes:
            for actors in sorted(set(counts)):
                for envs in vectors:
                    vector = envs > 1 or task.startswith("envpool")
                    for arm in sorted(own.arms):
                        if not (arm == ACME and vector):
                            yield Plan(task, hidden, arm, actors, envs)


def positive(own: flags.FlagValues, name: str) -> list[int]:
    """Returns the numbers of a list flag.

    Raises:
      ValueError: if there are none, or one is not a whole number above zero.
    """
    for text in own[name].value or [""]:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"{name} must be whole numbers above zero, got {text!r}.")
    return [int(text) for text in own[name].value]
