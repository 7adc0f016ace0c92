"""Times a learner's step: Acme's learner with Sonnet's Adam against ours, fused.

    acme-quant bench learner
    acme-quant bench learner --agents=dqn --hidden=2048 --batch=32 --json=learner.json

Both arms have the same networks, from the same seed, and learn from the same batch,
which is ready in memory; they take turns of a few steps, and a time is the median of the
turns. Before a time is printed, the arms' variables must agree. Beside each time stand
the shares of two limits: the arithmetic that the step cannot do without, at the rate of
TensorFlow's own matrix product here, and the bytes that it must move, at the rate of a
copy of large blocks.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from acme_quant.bench.learner import arms, limits
from acme_quant.bench.learner.arms import ARMS, MAKERS, Arm

# Shortest turn: a step of a small network takes a few milliseconds.
TURN_S = 0.3


class Row(NamedTuple):
    """One arm's step: milliseconds, and the shares of it that two limits take."""

    agent: str
    hidden: int
    batch: int
    arm: str
    ms: float
    arithmetic_share: float
    memory_share: float


def define_flags() -> flags.FlagValues:
    """Returns the benchmark's own flags."""
    own = flags.FlagValues()
    flags.DEFINE_list("agents", list(MAKERS), "Agents.", flag_values=own)
    flags.DEFINE_list(
        "hidden", ["256", "2048"], "Width of three hidden layers.", flag_values=own
    )
    flags.DEFINE_list("batch", ["64", "256"], "Transitions a step.", flag_values=own)
    flags.DEFINE_integer("rounds", 7, "Turns of every arm.", 1, flag_values=own)
    flags.DEFINE_string("json", "", "File to write the rows to.", flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 2 for wrong flags."""
    own = define_flags()
    try:
        settings = _settings(own, argv)
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    rows = []
    for setting in settings:
        rows += measure(*setting, own.rounds)
        for row in rows[-len(ARMS) :]:
            print(line(row, rows[-len(ARMS)]), flush=True)
    if file is not None:
        with file:
            json.dump([row._asdict() for row in rows], file, indent=1)
    return 0


def _settings(
    own: flags.FlagValues, argv: Sequence[str]
) -> list[tuple[str, int, int]]:
    extra = own(list(argv))[1:]
    unknown = set(own.agents) - set(MAKERS)
    if extra or unknown:
        raise ValueError(f"expected agents out of {', '.join(MAKERS)} and flags alone.")
    hidden, batch = map(int, own.hidden), map(int, own.batch)
    settings = list(itertools.product(own.agents, hidden, batch))
    if min(min(sizes) for _, *sizes in settings) < 1:
        raise ValueError("expected sizes above zero.")
    return settings


def measure(agent: str, hidden: int, batch: int, rounds: int) -> list[Row]:
    """Returns a row an arm.

    Raises:
      RuntimeError: if the arms' variables do not agree after the last step.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    made = {name: MAKERS[agent](name, hidden, batch) for name in ARMS}
    for arm in made.values():
        arm.learner.step()  # Traces it.
    count = max(1, round(TURN_S / _turn(made["acme"], 1)))
    _turn(made["ours"], 1)
    times: dict[str, list[float]] = {name: [] for name in ARMS}
    for name in ARMS * rounds:
        times[name].append(_turn(made[name], count))
    arms.check(*made.values())
    least = limits.seconds(agent, made["acme"].variables, batch)
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
