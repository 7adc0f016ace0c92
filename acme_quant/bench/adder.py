"""Times our n-step adder against Acme's, and against Reverb's writer alone.

    acme-quant bench adder
    acme-quant bench adder --n_step=1 --json=adder.json

The arms write the same episodes to a replay server in a process of its own, in turns of
one episode; a time is the median of them, from the first step until replay has
confirmed the last item. `writer` makes the calls of Reverb's C++ writer that our adder
makes, recorded beforehand, and nothing else: no adder on this writer can be faster.
Before a time is printed, replay must have received every item of every arm.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np

from acme_quant.bench.actor.host import receive
from acme_quant.settings import flags
from acme_quant.settings.declaration import setting

ARMS = ("acme", "ours", "writer")
OBSERVATIONS, ACTIONS, DISCOUNT = 17, 6, 0.99
# A sixth of Acme's adder, or 1.3 times the writer alone.
ACME_SHARE, WRITER_SHARE = 1 / 6, 1.3

Episode = list[tuple[np.ndarray, dm_env.TimeStep]]


@dataclasses.dataclass(frozen=True)
class Config:
    """The benchmark's settings."""

    n_step: int = setting(5, "Steps folded into one transition.", at_least=1)
    length: int = setting(500, "Steps of an episode.", at_least=1)
    rounds: int = setting(15, "Episodes of every arm.", at_least=1)
    json: str = setting("", "File to write the rows to.")


class Row(NamedTuple):
    """One arm's microseconds per environment step: wall time, processor time."""

    arm: str
    us_step: float
    us_cpu: float


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
    rows = run(config.n_step, config.length, config.rounds)
    print_rows(rows)
    if file is not None:
        with file:
            json.dump([row._asdict() for row in rows], file, indent=1)
    return 0


def run(n_step: int, length: int, rounds: int) -> list[Row]:
    """Measures all arms.

    Raises:
      RuntimeError: if replay did not receive exactly the items of an arm.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with served() as (address, items):
        writes = make_arms(address, n_step, length)
        times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
        for turn in range(rounds + 1):
            for arm in ARMS:
                took = timed(writes[arm])
                if turn:  # The first one opens the stream.
                    times[arm].append(took)
        expected = (rounds + 1) * (length + min(length, n_step) - 1)
        for arm in ARMS:
            if items()[arm] != expected:
                raise RuntimeError(
                    f"{arm}: expected {expected} items in replay, got {items()[arm]}."
                )
    return [
        Row(arm, *(round(1e6 * statistics.median(t) / length, 2) for t in zip(*taken)))
        for arm, taken in times.items()
    ]


def timed(write: Callable[[], None]) -> tuple[float, float]:
    """Returns the seconds of a call: wall time, processor time of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    write()
    return time.perf_counter() - wall, time.process_time() - cpu


def make_arms(address: str, n_step: int, length: int) -> dict[str, Callable[[], None]]:
    """Returns, for each arm, what writes one episode and waits for replay."""
    import reverb
    from acme.adders import reverb as acme_adders

    from acme_quant.replay import adder
    from acme_quant.replay import client as replay_client

    first, steps = make_episode(length)
    acme = acme_adders.NStepTransitionAdder(
        reverb.Client(address), n_step, DISCOUNT, priority_fns={"acme": None}
    )
    client = replay_client.ReplayClient(address)
    fns = {"ours": None}
    ours = adder.NStepTransitionAdder(client, n_step, DISCOUNT, priority_fns=fns)
    recorder = Recorder()
    recorded = adder.NStepTransitionAdder(
        recorder, n_step, DISCOUNT, priority_fns={"writer": None}
    )
    write(recorded, first, steps)
    stream = client.trajectory_writer(*recorder.options)
    return {
        "acme": lambda: write(acme, first, steps),
        "ours": lambda: write(ours, first, steps),
        "writer": lambda: repeat(recorder.calls, stream),
    }


def make_episode(length: int) -> tuple[dm_env.TimeStep, Episode]:
    """Returns the first time step of an episode, then (action, time step) pairs."""
    rng = np.random.default_rng(0)

    def row(width: int) -> np.ndarray:
        return rng.normal(size=width).astype(np.float32)

    last, mid = dm_env.StepType.LAST, dm_env.StepType.MID
    return dm_env.restart(row(OBSERVATIONS)), [
        (
            row(ACTIONS),
            dm_env.TimeStep(
                last if t == length else mid,
                np.float32(1),
                np.float32(1),
                row(OBSERVATIONS),
            ),
        )
        for t in range(1, length + 1)
    ]


def write(adder: Any, first: dm_env.TimeStep, steps: Episode) -> None:
    """Writes an episode and waits until replay has confirmed it."""
    adder.add_first(first)
    for action, timestep in steps:
        adder.add(action, timestep)
    adder.reset()


class Recorder:
    """A replay client and its C++ writer, which only remembers what it is told.

    Attributes:
      options: of the writer.
      calls: (method, arguments); a reference is (row, column).
    """

    server_address = "nobody"

    def __init__(self) -> None:
        self.options: tuple = ()
        self.calls: list[tuple[str, tuple]] = []
        self._rows = 0

    def answers(self, timeout_s: int = 0) -> bool:
        """Returns True."""
        del timeout_s
        return True

    def trajectory_writer(self, *options: Any) -> Recorder:
        """Returns itself."""
        self.options = options
        return self

    def Append(self, row: list) -> list:
        """Remembers a row of columns."""
        self.calls.append(("Append", (row,)))
        self._rows += 1
        return [(self._rows - 1, column) for column in range(len(row))]

    def CreateItem(self, *arguments: Any) -> None:
        """Remembers an item."""
        self.calls.append(("CreateItem", arguments))

    def Flush(self, *arguments: Any) -> None:
        """Remembers a wait."""
        self.calls.append(("Flush", arguments))

    def Close(self) -> None:
        """Does nothing."""


def repeat(calls: list[tuple[str, tuple]], stream: Any) -> None:
    """Makes the recorded calls."""
    rows: list[list] = []
    append, create_item, flush = stream.Append, stream.CreateItem, stream.Flush
    for method, arguments in calls:
        if method == "Append":
            rows.append(append(*arguments))
        elif method == "CreateItem":
            table, priority, columns, squeeze = arguments
            references = [[rows[row][column]] for ((row, column),) in columns]
            create_item(table, priority, references, squeeze)
        else:
            # Our adder waits a millisecond at an episode's end, confirmed or not.
            with contextlib.suppress(RuntimeError):
                flush(*arguments)


@contextlib.contextmanager
def served() -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """Yields a replay server's address, and what tells the items of its tables."""
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()

    def items() -> dict[str, int]:
        pipe.send("count")
        return receive(pipe, process)

    try:
        yield receive(pipe, process), items
    finally:
        process.kill()
        process.join()


def serve(pipe: Any) -> None:
    """Serves a table for each arm, and answers every message with their items."""
    import reverb
    from acme import specs
    from acme.adders import reverb as adders

    spec = specs.EnvironmentSpec(
        specs.Array((OBSERVATIONS,), np.float32),
        specs.BoundedArray((ACTIONS,), np.float32, -1, 1),
        specs.Array((), np.float32),
        specs.BoundedArray((), np.float32, 0, 1),
    )
    signature = adders.NStepTransitionAdder.signature(spec)
    server = reverb.Server(
        [
            reverb.Table(
                arm,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                max_size=10_000,
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=signature,
            )
            for arm in ARMS
        ],
        port=None,
    )
    client = reverb.Client(f"localhost:{server.port}")
    pipe.send(f"localhost:{server.port}")
    while pipe.recv():
        pipe.send(
            {
                name: info.rate_limiter_info.insert_stats.completed
                for name, info in client.server_info().items()
            }
        )


def print_rows(rows: list[Row]) -> None:
    """Prints the times, and our adder's ratios beside what was promised."""
    by_arm = {row.arm: row for row in rows}
    for row in rows:
        print(
            f"{row.arm:7} {row.us_step:8.1f} us a step, {row.us_cpu:8.1f} us of "
            "processor time"
        )
    ours = by_arm["ours"].us_step
    ratios = [("acme", ACME_SHARE), ("writer", WRITER_SHARE)]
    for arm, limit in ratios:
        ratio = ours / by_arm[arm].us_step
        verdict = "ok" if ratio <= limit else "MISSED"
        print(f"ours / {arm:7} {ratio:6.3f}  at most {limit:5.3f}  {verdict}")
    print("One of the two is promised: where the writer is the floor, the second.")
