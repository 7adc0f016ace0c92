"""Times one policy call of ours against ONNX Runtime, TFLite and Acme's TF actor.

    acme-quant bench policy
    acme-quant bench policy --hidden=256 --batches=1 --json=policy.json

The policy is a tanh MLP, 17-h-h-h-6, the same in every engine. Every engine's actions
are compared with a float64 reference before its time is printed. The engines take turns
for several rounds, so that a busy moment of the machine falls on all of them; a time is
the best of many short stretches. One thread.
"""

from __future__ import annotations

import json
import time
from typing import Dict, Iterator, List, NamedTuple, Sequence

import numpy as np
from absl import flags

from acme_quant import kernels, policy_writer
from acme_quant.bench import policy_check, policy_engines
from acme_quant.bench.mlp import mlp_graph, mlp_variables
from acme_quant.bench.policy_engines import ENGINES, OPTIONAL, Call, Engine

HIDDEN = (64, 256, 512, 1024, 2048)
BATCHES = (1, 8, 32, 256)


class Row(NamedTuple):
    """One measured time."""

    engine: str
    hidden: int
    batch: int
    us: float


class Target(NamedTuple):
    """A promised ratio of two engines' times: at most `limit` at these sizes."""

    engine: str
    against: str
    hidden: int
    batch: int
    limit: float


def _targets() -> Iterator[Target]:
    yield Target("int8", "onnxruntime_int8", 256, 1, 0.4)
    yield Target("int8", "onnxruntime_int8", 512, 1, 0.5)
    yield Target("int8", "onnxruntime_int8", 1024, 1, 0.75)
    yield Target("int8", "onnxruntime_int8", 2048, 1, 0.9)
    yield Target("int8", "float32", 512, 1, 0.5)
    yield Target("int8", "float32", 2048, 1, 0.3)
    for hidden in HIDDEN:
        yield Target("float32", "onnxruntime_float32", hidden, 1, 1.0)
    yield Target("int8", "acme_tf", 256, 1, 1 / 40)
    yield Target("int8", "acme_tf", 2048, 1, 1 / 15)
    for hidden in HIDDEN[1:]:
        for batch in BATCHES[1:]:
            yield Target("int8", "onnxruntime_int8", hidden, batch, 1.2)
    for hidden in HIDDEN:
        for batch in BATCHES[:3]:
            yield Target("int8", "float32", hidden, batch, 1.0)


TARGETS = tuple(_targets())
STRETCH_S = 0.0005
SMALL_POLICY_US = 6.0  # Of our int8 at 64, batch 1, Python included.


def define_flags() -> flags.FlagValues:
    """Returns the benchmark's own flags."""
    own = flags.FlagValues()
    sizes, batches = (",".join(map(str, numbers)) for numbers in (HIDDEN, BATCHES))
    names = ",".join(engine.name for engine in ENGINES)
    for define, name, default, text in (
        (flags.DEFINE_list, "hidden", sizes, "Units of the three hidden layers."),
        (flags.DEFINE_list, "batches", batches, "Observations in a call."),
        (flags.DEFINE_list, "engines", names, "Engines to compare."),
        (flags.DEFINE_integer, "rounds", 15, "Turns of every engine."),
        (flags.DEFINE_float, "seconds", 0.02, "Seconds of an engine's turn."),
        (flags.DEFINE_string, "json", "", "File to write the rows to."),
    ):
        define(name, default, text, flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 2 for wrong flags."""
    own = define_flags()
    try:
        sizes, batches = read_flags(own, argv)
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    rows = list(run(sizes, batches, own.engines, own.rounds, own.seconds))
    print_conclusions(rows)
    if file is not None:
        with file:
            json.dump([row._asdict() for row in rows], file, indent=1)
    return 0


def read_flags(
    own: flags.FlagValues, argv: Sequence[str]
) -> tuple[List[int], List[int]]:
    """Parses the flags; returns hidden sizes and batches.

    Raises:
      absl.flags.Error, ValueError: if a flag is unknown or its value makes no sense.
    """
    extra = own(list(argv))[1:]
    if extra:
        raise ValueError(f"expected flags alone, got {extra[0]!r}.")
    known = [engine.name for engine in (*ENGINES, *OPTIONAL)]
    for name in own.engines:
        if name not in known:
            raise ValueError(f"engines must be of {','.join(known)}, got {name!r}.")
    if own.rounds < 1 or own.seconds <= 0:
        raise ValueError("expected rounds and seconds above zero.")
    return positive(own.hidden), positive(own.batches)


def positive(numbers: Sequence[object]) -> List[int]:
    """Returns numbers as integers.

    Raises:
      ValueError: if one is not a number above zero.
    """
    if not numbers or min(map(int, numbers)) < 1:
        raise ValueError(f"expected numbers above zero, got {numbers}.")
    return [int(number) for number in numbers]


def run(
    sizes: Sequence[int],
    batches: Sequence[int],
    names: Sequence[str],
    rounds: int,
    seconds: float,
) -> Iterator[Row]:
    """Measures and prints; yields the rows."""
    engines = [e for e in (*ENGINES, *OPTIONAL) if e.name in names]
    if any(engine.tensorflow for engine in engines):
        policy_engines.prepare_tensorflow()
    print(f"one thread, kernels {kernels.isa()}; microseconds a call")
    print(f"{'hidden':>6} {'batch':>5}", *(f"{e.name:>19}" for e in engines))
    rng = np.random.default_rng(0)
    for hidden in sizes:
        variables = mlp_variables(mlp_graph(hidden), rng)
        made = [engine.make(variables) for engine in engines]
        for batch in batches:
            observations = rng.standard_normal((batch, 17), np.float32)
            calls = [make(observations) for make in made]
            for engine, call in zip(engines, calls):
                check(engine, call, variables, observations)
            times = take_turns(calls, rounds, seconds)
            print(f"{hidden:6} {batch:5}", *(f"{t:19.1f}" for t in times), flush=True)
            for engine, us in zip(engines, times):
                yield Row(engine.name, hidden, batch, round(us, 3))


def check(
    engine: Engine, call: Call, variables: Sequence[np.ndarray], rows: np.ndarray
) -> None:
    """Raises ArithmeticError if an engine's actions are not the policy's."""
    expected, allowed = policy_check.reference(variables, rows, engine.steps)
    actions = np.reshape(call(), (len(rows), -1))
    policy_check.check(engine.name, actions, expected, allowed)


def take_turns(calls: Sequence[Call], rounds: int, seconds: float) -> List[float]:
    """Returns the best time of each call, in microseconds; the calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            best[i] = min(best[i], turn(call, seconds))
    return [1e6 * time_s for time_s in best]


def turn(call: Call, seconds: float) -> float:
    """Returns the best mean time of a call in short stretches, in seconds.

    A stretch is shorter than a scheduler's time slice, so that some of them run
    undisturbed however busy the machine is.
    """
    call()  # Brings the engine's weights back into the caches.
    best = stretch(call, 1)
    count = max(1, int(STRETCH_S / best))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, stretch(call, count))
    return best


def stretch(call: Call, count: int) -> float:
    """Returns the mean seconds of `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def print_conclusions(rows: Sequence[Row]) -> None:
    """Prints ratios against their targets, losses, and how near memory's speed is."""
    times = {(row.engine, row.hidden, row.batch): row.us for row in rows}
    print("\nratios of times, against what was promised")
    for target in TARGETS:
        a = times.get((target.engine, target.hidden, target.batch))
        b = times.get((target.against, target.hidden, target.batch))
        if a is not None and b is not None:
            verdict = "ok" if a <= target.limit * b else "MISSED"
            print(
                f"  {target.engine:8} / {target.against:19} hidden {target.hidden:4} "
                f"batch {target.batch:3}: {a / b:6.3f}  at most {target.limit:5.3f}  "
                f"{verdict}"
            )
    small = times.get(("int8", 64, 1))
    if small is not None:
        verdict = "ok" if small <= SMALL_POLICY_US else "MISSED"
        print(f"  int8 at 17-64-64-64-6: {small:.1f} us, at most 6.0  {verdict}")
    print_losses(times)
    print_bandwidth(times)


def print_losses(times: Dict[tuple, float]) -> None:
    """Says where our int8 is not the fastest."""
    print("\nwhere int8 does not gain")
    lost = False
    for hidden, batch in sorted({key[1:] for key in times}):
        here = {key[0]: us for key, us in times.items() if key[1:] == (hidden, batch)}
        own = here.pop("int8", None)
        faster = {name: us for name, us in here.items() if own and us <= own}
        if faster:
            lost = True
            text = ", ".join(f"{name} {us:.1f}" for name, us in faster.items())
            print(f"  hidden {hidden:4} batch {batch:3}: int8 {own:.1f} us, {text}")
    if not lost:
        print("  nowhere: it is the fastest at every size and batch")


def print_bandwidth(times: Dict[tuple, float]) -> None:
    """Prints how near one pass over the weights is to copying as many bytes."""
    print("\nbatch 1: bytes touched, against the bandwidth of copying as many bytes")
    for name in ("int8", "float32"):
        for hidden in sorted({key[1] for key in times}):
            us = times.get((name, hidden, 1))
            if us is None:
                continue
            nbytes = policy_writer.PolicyWriter(mlp_graph(hidden), name).nbytes
            copied = copy_bandwidth(nbytes)
            print(
                f"  {name:8} hidden {hidden:4}: {nbytes / 1e6:7.3f} MB, "
                f"{nbytes / us / 1e3:6.1f} GB/s, copy {copied / 1e9:6.1f} GB/s "
                f"({nbytes / us * 1e6 / copied:4.0%})"
            )


def copy_bandwidth(nbytes: int) -> float:
    """Returns bytes read and written a second when copying a block again and again."""
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return 2 * nbytes / turn(lambda: np.copyto(target, source), seconds=0.1)
