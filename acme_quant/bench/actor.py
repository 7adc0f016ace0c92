"""Times an actor's whole loop against Acme's own, with a replay server beside it.

    acme-quant bench actor
    acme-quant bench actor --tasks=dm_control:walker:stand --hidden=256 --actors=1,2
    acme-quant bench actor --tasks=envpool_dm:CheetahRun-v1 --envs_per_actor=32

The policy is frozen and nobody learns. Arms: `acme` is Acme's FeedForwardActor, n-step
adder and environment loop; `float32` and `int8` are ours. Of a line, steps/s is the sum
over the actors; microseconds are per environment step, their mean over the actors, of
the whole loop first and then of its parts. Promised ratios come last, and of int8 the
share of a step that `update` takes: counters, the ends of episodes, timing and the loop
itself. A frozen policy is not pulled, and nothing is written to files: what these cost
stands in the columns `us_update` and `us_loop` of a run's CSV. Before a line is
printed, replay must have received every transition the environments made. `cpu` is the
processor time of the whole process per step, with gRPC's threads; `replay` that of the
server per item. Start-up is from an actor's process start to its first action.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import tempfile
from typing import Any, Iterator, NamedTuple, Sequence

from absl import flags

from acme_quant import environments
from acme_quant.bench import actor_nodes
from acme_quant.bench.actor_plan import ACME, ARMS, Measured, Plan

TASKS = (
    "dm_control:cartpole:balance",
    "dm_control:walker:stand",
    "dm_control:humanoid:stand",
    "gym:CartPole-v1",
    "atari:Pong",
)
# Atari's convolutional network has one size: its last hidden layer's.
ATARI_HIDDEN = 512
START_TIMEOUT_S = 300.0


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured setting; times are per environment step of one actor.

    `us_step` is wall time over steps, whatever the loop did in it.
    """

    task: str
    hidden: int
    arm: str
    actors: int
    envs_per_actor: int
    steps_per_s: float
    us_step: float
    us_environment: float
    us_policy: float
    us_adder: float
    us_update: float
    us_cpu: float
    us_replay: float
    startup_s: float
    rss_mb: float
    threads: int


class Target(NamedTuple):
    """A promised ratio of an arm's whole step to Acme's: at most `limit`."""

    task: str
    hidden: int
    arm: str
    limit: float


TARGETS = (
    Target("dm_control:cartpole:balance", 256, "int8", 1 / 3),
    Target("dm_control:walker:stand", 256, "int8", 1 / 3),
    Target("dm_control:humanoid:stand", 256, "int8", 1 / 2),
    Target("gym:CartPole-v1", 256, "float32", 1 / 4),
    Target("gym:CartPole-v1", 256, "int8", 1 / 6),
    Target("dm_control:cartpole:balance", 2048, "int8", 1 / 5),
    Target("dm_control:walker:stand", 2048, "int8", 1 / 5),
    Target("dm_control:humanoid:stand", 2048, "int8", 1 / 5),
)
# What `us_update` may be of `us_step`.
UPDATE_SHARE = 0.03


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
        (flags.DEFINE_float, "seconds", 5.0, "Seconds measured, after a warm-up."),
        (flags.DEFINE_string, "json", "", "File to write the rows to."),
    ):
        define(name, default, text, flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 2 for wrong flags."""
    own = define_flags()
    try:
        extra = own(list(argv))[1:]
        if extra:
            raise ValueError(f"expected flags alone, got {extra[0]!r}.")
        todo = list(plans(own))
        actor_nodes.import_quietly()
        for task in own.tasks:
            environments.make_environment(task, seed=0).close()
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, Host(todo, folder) as host:
        for plan in todo:
            row = measure(plan, host, own.seconds)
            print(line(row, baseline(row, rows)), flush=True)
            rows.append(row)
    print_targets(rows)
    if file is not None:
        with file:
            json.dump([dataclasses.asdict(row) for row in rows], file, indent=1)
    return 0


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


class Host:
    """The process that has TensorFlow and the replay server.

    Attributes:
      address: of the replay server.
      folder: where the policies are.
    """

    def __init__(self, todo: list[Plan], folder: str) -> None:
        """Starts the process; entering waits until it serves."""
        self._context = multiprocessing.get_context("spawn")
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=actor_nodes.host, args=(todo, folder, theirs), daemon=True
        )
        self.folder = folder
        self.address = ""

    def __enter__(self) -> Host:
        """Starts the host and waits for its address."""
        self._process.start()
        self.address = receive(self._pipe, self._process)
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the host."""
        self._process.kill()
        self._process.join()

    def items(self, table: str) -> tuple[int, float]:
        """Returns the items that a table ever received, and the host's CPU seconds."""
        self._pipe.send("count")
        items, cpu_s = receive(self._pipe, self._process)
        return items[table], cpu_s

    def start_actor(self, plan: Plan, index: int, seconds: float) -> tuple[Any, Any]:
        """Returns a started actor process, and the pipe to it."""
        pipe, theirs = self._context.Pipe()
        process = self._context.Process(
            target=actor_nodes.act,
            args=(plan, index, self.address, self.folder, seconds, theirs),
            daemon=True,
        )
        process.start()
        return process, pipe


def receive(pipe: Any, process: Any) -> Any:
    """Returns the next message of a process.

    Raises:
      RuntimeError: if the process died or took too long.
    """
    waited_s = 0.0
    while not pipe.poll(0.5) and process.is_alive() and waited_s < START_TIMEOUT_S:
        waited_s += 0.5
    try:
        if pipe.poll():
            return pipe.recv()
    except EOFError:
        pass
    raise RuntimeError("expected an answer of a process, but it died or hung.")


def measure(plan: Plan, host: Host, seconds: float) -> Row:
    """Returns the row of one plan.

    Raises:
      RuntimeError: if replay did not receive exactly what the environments made.
    """
    before, cpu_before_s = host.items(plan.table)
    actors = [host.start_actor(plan, i, seconds) for i in range(plan.actors)]
    try:
        for process, pipe in actors:
            receive(pipe, process)
        for _, pipe in actors:
            pipe.send("measure")
        measured = [receive(pipe, process) for process, pipe in actors]
    finally:
        for process, _ in actors:
            process.kill()
            process.join()
    after, cpu_s = host.items(plan.table)
    received = after - before
    expected = sum(one.items for one in measured)
    if received != expected:
        raise RuntimeError(
            f"{plan}: expected {expected} items in replay, got {received}."
        )
    return summarize(plan, measured, 1e6 * (cpu_s - cpu_before_s) / max(received, 1))


def summarize(plan: Plan, measured: list[Measured], us_replay: float) -> Row:
    """Returns the sum of the actors' speeds and the means of the rest."""

    def mean(values: Iterator[float]) -> float:
        return sum(values) / len(measured)

    stages = {
        f"us_{stage}": round(mean(one.microseconds[stage] for one in measured), 2)
        for stage in ("environment", "policy", "adder", "update", "cpu")
    }
    return Row(
        **dataclasses.asdict(plan),
        steps_per_s=round(sum(one.steps / one.seconds for one in measured), 1),
        us_step=round(
            mean(1e6 * one.seconds / max(one.steps, 1) for one in measured), 2
        ),
        **stages,
        us_replay=round(us_replay, 2),
        startup_s=round(mean(one.startup_s for one in measured), 2),
        rss_mb=round(mean(one.rss_mb for one in measured), 1),
        threads=max(one.threads for one in measured),
    )


def baseline(row: Row, rows: list[Row]) -> Row | None:
    """Returns Acme's row of the same task, size and number of actors, if measured."""
    for other in rows:
        same = (other.task, other.hidden, other.actors) == (
            *(row.task, row.hidden, row.actors),
        )
        if same and other.arm == ACME:
            return other
    return None


def line(row: Row, acme: Row | None) -> str:
    """Returns a row for people."""
    ratio = f"{row.steps_per_s / acme.steps_per_s:5.2f}x" if acme else "     -"
    return (
        f"{row.task:28} 3x{row.hidden:<5} {row.arm:8} {row.actors} actors "
        f"x{row.envs_per_actor:<3} {row.steps_per_s:9.1f} steps/s {ratio}  us: "
        f"step {row.us_step:7.1f} environment {row.us_environment:7.1f} "
        f"policy {row.us_policy:7.1f} adder {row.us_adder:7.1f} "
        f"update {row.us_update:5.1f} cpu {row.us_cpu:7.1f} "
        f"replay {row.us_replay:5.1f}  start {row.startup_s:5.2f} s "
        f"{row.rss_mb:6.1f} MB {row.threads} threads"
    )


def print_targets(rows: list[Row]) -> None:
    """Prints the promised ratios of steps to Acme's, and int8's share of updates."""
    for target in TARGETS:
        for row in rows:
            if (row.task, row.hidden, row.arm, row.envs_per_actor) != (
                *(target.task, target.hidden, target.arm, 1),
            ):
                continue
            acme = baseline(row, rows)
            if acme is not None:
                ratio = row.us_step / acme.us_step
                print_target(row, f"a step of {row.arm} / acme", ratio, target.limit)
    for row in rows:
        if row.arm == "int8":
            share = row.us_update / row.us_step
            print_target(row, "update / a step of int8", share, UPDATE_SHARE)


def print_target(row: Row, what: str, ratio: float, limit: float) -> None:
    """Prints whether a ratio measured in a row is within its limit."""
    print(
        f"{row.task} 3x{row.hidden} {row.actors} actors x{row.envs_per_actor}: "
        f"{what} {ratio:6.3f}  at most {limit:5.3f}  "
        f"{'ok' if ratio <= limit else 'MISSED'}"
    )
