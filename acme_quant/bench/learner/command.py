"""Times a learner's step: Acme's learner with Sonnet's Adam against ours, fused.

    acme-quant bench learner
    acme-quant bench learner --agents=dqn --hidden=2048 --batch=32 --json=learner.json

Both arms have the same networks, from the same seed, and learn from the same batch,
which is ready in memory. They take turns of a few steps, and a time is the median of
the turns. Before a time is printed, the arms' variables must agree. Beside each time
stand the shares of two limits: the arithmetic that the step cannot do without, at the
rate of TensorFlow's own matrix product here, and the bytes that it must move, at the
rate of a copy of large blocks.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from acme_quant.bench.learner import arms, limits
from acme_quant.bench.learner.arms import AGENTS, ARMS, Arm
from acme_quant.settings import flags
from acme_quant.settings.declaration import setting

# Shortest turn: a step of a small network takes a few milliseconds.
TURN_S = 0.3


@dataclasses.dataclass(frozen=True)
class Config:
    """The benchmark's settings."""

    agents: tuple[str, ...] = setting(AGENTS, "Agents.", choices=AGENTS, fewest=1)
    hidden: tuple[int, ...] = setting(
        (256, 2048), "Units of each of three hidden layers.", at_least=1, fewest=1
    )
    batch: tuple[int, ...] = setting(
        (64, 256), "Transitions of a step.", at_least=1, fewest=1
    )
    rounds: int = setting(7, "Turns of every arm.", at_least=1)
    json: str = setting("", "File to write the rows to.")


class Row(NamedTuple):
    """One arm's step: milliseconds, and the shares of it that two limits take."""

    agent: str
    hidden: int
    batch: int
    arm: str
    ms: float
    arithmetic_share: float
    memory_share: float


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 2 for wrong flags."""
    try:
        config = flags.parse(argv, Config)
        if isinstance(config, str):
            print(config)
            return 0
        file = open(config.json, "w", encoding="utf-8") if config.json else None
    except (ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    rows = []
    for case in itertools.product(config.agents, config.hidden, config.batch):
        rows += measure(*case, config.rounds)
        for row in rows[-len(ARMS) :]:
            print(line(row, rows[-len(ARMS)]), flush=True)
    if file is not None:
        with file:
            json.dump([row._asdict() for row in rows], file, indent=1)
    return 0


def measure(agent: str, hidden: int, batch: int, rounds: int) -> list[Row]:
    """Returns a row an arm.

    Raises:
      RuntimeError: if the arms' variables do not agree after the last step.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    made = {name: arms.make(agent, name, hidden, batch) for name in ARMS}
    for arm in made.values():
        arm.learner.step()  # Traces it.
    count = max(1, round(TURN_S / _turn(made["acme"], 1)))
    _turn(made["ours"], 1)
    times: dict[str, list[float]] = {name: [] for name in ARMS}
    for name in tuple(ARMS) * rounds:
        times[name].append(_turn(made[name], count))
    arms.check(*made.values())
    weights = (arms.size(part) for part in (made["acme"].policy, made["acme"].critic))
    least = limits.seconds(agent, *weights, batch)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return [
        Row(agent, hidden, batch, name, 1e3 * s, *(limit / s for limit in least))
        for name, s in medians.items()
    ]


def _turn(arm: Arm, count: int) -> float:
    """Returns the mean seconds of `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        arm.learner.step()
    return (time.perf_counter() - start) / count


def line(row: Row, acme: Row) -> str:
    """Returns a row as a line, its ratio to Acme's learner beside."""
    return (
        f"{row.agent} 3x{row.hidden:<5} batch {row.batch:<4} {row.arm:5} "
        f"{row.ms:8.2f} ms  {row.ms / acme.ms:5.2f} of acme  arithmetic "
        f"{row.arithmetic_share:4.0%}  memory {row.memory_share:4.0%}"
    )
