"""What `acme-quant bench actor` tells of its turns: rows, ratios, promises."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Iterable, NamedTuple, Sequence

from acme_quant.bench.actor.plan import ACME, Plan
from acme_quant.bench.actor.rounds import Turn


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured setting; times are per environment step of one actor.

    `us_step` is wall time over steps, whatever the loop did in it. Speeds and times are
    medians over the rounds; the last three are of the processes.
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


def summarize(plan: Plan, turns: Sequence[Turn]) -> Row:
    """Returns the medians over a plan's turns, and what its processes are at last."""
    rounds = [turn.numbers() for turn in turns]
    last = turns[-1].measured

    def mean(values: Iterable[float], digits: int) -> float:
        return round(sum(values) / len(last), digits)

    return Row(
        **dataclasses.asdict(plan),
        **{key: median(numbers[key] for numbers in rounds) for key in rounds[0]},
        startup_s=mean((one.startup_s for one in last), 2),
        rss_mb=mean((one.rss_mb for one in last), 1),
        threads=max(one.threads for one in last),
    )


def median(values: Iterable[float]) -> float:
    """Returns the middle value, to two digits."""
    return round(statistics.median(values), 2)


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
