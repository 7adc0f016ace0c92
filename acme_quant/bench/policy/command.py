"""Times one policy call of ours against ONNX Runtime, TFLite and Acme's TF actor.

    acme-quant bench policy
    acme-quant bench policy --hidden=256 --batches=1 --json=policy.json
    acme-quant bench policy --networks=mlp,atari

The policy is a tanh MLP, 17-h-h-h-6, the same in every engine; with --networks=atari
Acme's Atari network, of bytes 84 x 84 x 4, its convolutions in int8 too. Every engine's
actions are compared with a float64 reference before its time is printed. The engines
take turns for several rounds, so that a busy moment of the machine falls on all of
them; a time is the best of many short stretches. One thread.
"""

from __future__ import annotations

import functools
import json
from typing import Callable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
from absl import flags

from acme_quant import kernels
from acme_quant.bench.policy import atari_check, atari_engines
from acme_quant.bench.policy import check as policy_check
from acme_quant.bench.policy import engines as policy_engines
from acme_quant.bench.policy.atari import atari_images, atari_variables
from acme_quant.bench.policy.engines import ENGINES, OPTIONAL, Call, Engine
from acme_quant.bench.policy.mlp import mlp_graph, mlp_variables
from acme_quant.bench.policy.report import (
    ATARI,
    BATCHES,
    HIDDEN,
    MLP,
    NETWORKS,
    Row,
    print_conclusions,
)
from acme_quant.bench.turns import take_turns

# Batches that the Atari network, far larger than the MLP, is measured at.
ATARI_BATCHES_TO = 32


class Subject(NamedTuple):
    """A network to measure.

    Attributes:
      network: one of NETWORKS.
      hidden: units of the MLP's hidden layers, 0 for the Atari network.
      engines: those of the network.
      variables: its weights and biases, drawn by a generator.
      observe: batch, generator -> observations.
      reference: variables, observations, an engine's steps -> actions, allowed errors.
    """

    network: str
    hidden: int
    engines: Sequence[Engine]
    variables: Callable[[np.random.Generator], List[np.ndarray]]
    observe: Callable[[int, np.random.Generator], np.ndarray]
    reference: Callable[..., Tuple[np.ndarray, np.ndarray]]


def subjects(networks: Sequence[str], sizes: Sequence[int]) -> Iterator[Subject]:
    """Yields the MLP in all sizes, and the Atari network, as far as asked for."""
    for hidden in sizes if MLP in networks else ():
        yield Subject(
            *(MLP, hidden, (*ENGINES, *OPTIONAL)),
            functools.partial(mlp_variables, mlp_graph(hidden)),
            lambda batch, rng: rng.standard_normal((batch, 17), np.float32),
            policy_check.reference,
        )
    if ATARI in networks:
        yield Subject(
            *(ATARI, 0, (*atari_engines.ENGINES, *atari_engines.OPTIONAL)),
            *(atari_variables, atari_images, atari_check.reference),
        )


def define_flags() -> flags.FlagValues:
    """Returns the benchmark's own flags."""
    own = flags.FlagValues()
    sizes, batches = (",".join(map(str, numbers)) for numbers in (HIDDEN, BATCHES))
    names = ",".join(engine.name for engine in ENGINES)
    for define, name, default, text in (
        (flags.DEFINE_list, "networks", MLP, "Policies: mlp, atari."),
        (flags.DEFINE_list, "hidden", sizes, "Units of the MLP's hidden layers."),
        (
            flags.DEFINE_list,
            "batches",
            batches,
            f"Observations in a call; of atari those up to {ATARI_BATCHES_TO}.",
        ),
        (flags.DEFINE_list, "engines", names, "Engines to compare."),
        (flags.DEFINE_integer, "rounds", 15, "Turns of every engine."),
        (flags.DEFINE_float, "seconds", 0.02, "Seconds of an engine's turn."),
        (flags.DEFINE_string, "json", "", "File to write the rows to."),
    ):
        define(name, default, text, flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 1 for a wrong result, 2 for flags."""
    own = define_flags()
    try:
        sizes, batches = read_flags(own, argv)
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    todo = list(subjects(own.networks, sizes))
    try:
        rows = list(run(todo, batches, own.engines, own.rounds, own.seconds))
    except ArithmeticError as error:
        print(f"{argv[0]}: {error}")
        return 1
    print_conclusions(rows)
    if file is not None:
        with file:
            json.dump([row.to_json() for row in rows], file, indent=1)
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
    for name in own.networks or [""]:
        if name not in NETWORKS:
            raise ValueError(f"networks must be of {','.join(NETWORKS)}, got {name!r}.")
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
    todo: Sequence[Subject],
    batches: Sequence[int],
    names: Sequence[str],
    rounds: int,
    seconds: float,
) -> Iterator[Row]:
    """Measures and prints; yields the rows."""
    every = [e for e in (*ENGINES, *OPTIONAL) if e.name in names]
    if any(engine.tensorflow for engine in every):
        policy_engines.prepare_tensorflow()
    print(f"one thread, kernels {kernels.isa()}; microseconds a call")
    print(f"{'hidden':>6} {'batch':>5}", *(f"{e.name:>19}" for e in every))
    rng = np.random.default_rng(0)
    for subject in todo:
        for row in measure(subject, batches, names, rounds, seconds, rng):
            times = {one.engine: f"{one.us:.1f}" for one in row}
            print(
                f"{subject.hidden or subject.network:>6} {row[0].batch:5}",
                *(f"{times.get(engine.name, '-'):>19}" for engine in every),
                flush=True,
            )
            yield from row


def measure(
    subject: Subject,
    batches: Sequence[int],
    names: Sequence[str],
    rounds: int,
    seconds: float,
    rng: np.random.Generator,
) -> Iterator[List[Row]]:
    """Yields the rows of each batch of one network."""
    engines = [engine for engine in subject.engines if engine.name in names]
    variables = subject.variables(rng)
    made = [engine.make(variables) for engine in engines]
    for batch in batches:
        if subject.network == ATARI and batch > ATARI_BATCHES_TO:
            continue
        observations = subject.observe(batch, rng)
        calls = [make(observations) for make in made]
        for engine, call in zip(engines, calls):
            check(subject, engine, call, variables, observations)
        times = take_turns(calls, rounds, seconds)
        yield [
            Row(engine.name, subject.hidden, batch, round(us, 3), subject.network)
            for engine, us in zip(engines, times)
        ]


def check(
    subject: Subject,
    engine: Engine,
    call: Call,
    variables: Sequence[np.ndarray],
    observations: np.ndarray,
) -> None:
    """Raises ArithmeticError if an engine's actions are not the policy's."""
    expected, allowed = subject.reference(variables, observations, engine.steps)
    actions = np.reshape(call(), (len(observations), -1))
    policy_check.check(engine.name, actions, expected, allowed)
