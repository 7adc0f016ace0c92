"""Times the way of a policy from the learner's variables to an actor's first action.

    acme-quant bench publish --hidden=256,2048 --quantizers=int8,float32
    acme-quant bench publish --clients=1,4,16,64
    acme-quant bench publish --publications=5000

Learner, quantizer node and actor are three processes that talk through Courier. Every
round publishes new weights once; times are medians over the rounds. Before a time is
printed the received bytes are compared with a policy quantized right here from the
learner's variables, bit for bit, and so are its actions.

Stages, in milliseconds:
  fetch          quantizer node: the learner's variables arrive
  quantize       quantizer node: quantize, write the payload, checksum it
  pack           quantizer node: put it where clients get it
  pull           actor: question, answer, bytes at hand
  decode         actor: every length and the checksum verified
  load           actor: the decoded policy becomes the one that runs
  first_action   actor: the first action of the new policy
  request_to_action  actor: all of its stages, as the variable client does them
  unchanged_poll actor: a question with the answer "no"
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Dict, Iterator, List, NamedTuple, Sequence

import numpy as np
from absl import flags

from acme_quant.bench.policy.mlp import mlp_graph
from acme_quant.bench.publish import load
from acme_quant.bench.publish.nodes import Nodes, Setting, client, nodes, pull
from acme_quant.policy import payload, quantizers
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.publishing.client import QuantizedVariableClient

TRANSPORTS = ("shared_memory", "courier")
PUBLISHER_STAGES = {
    "fetch": "fetch_ms",
    "quantize": "quantize_ms",
    "pack": "publish_ms",
}
ACTOR_STAGES = (
    "pull",
    "decode",
    "load",
    "first_action",
    "request_to_action",
    "unchanged_poll",
)


class Row(NamedTuple):
    """One measured stage."""

    hidden: int
    quantizer: str
    stage: str
    transport: str
    ms: float
    bytes: int


def define_flags() -> flags.FlagValues:
    """Returns the benchmark's own flags."""
    own = flags.FlagValues()
    for define, name, default, text in (
        (flags.DEFINE_list, "hidden", "256,2048", "Units of the three hidden layers."),
        (flags.DEFINE_list, "quantizers", "int8,float32", "Number formats."),
        (flags.DEFINE_list, "transports", ",".join(TRANSPORTS), "Ways of the bytes."),
        (flags.DEFINE_integer, "rounds", 21, "Publications a median is taken of."),
        (flags.DEFINE_list, "clients", "", "Numbers of clients that pull at once."),
        (flags.DEFINE_float, "seconds", 3.0, "Seconds that clients pull."),
        (flags.DEFINE_integer, "publications", 0, "Publications to watch memory over."),
        (flags.DEFINE_string, "json", "", "File to write the rows to."),
    ):
        define(name, default, text, flag_values=own)
    return own


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark; returns the exit code, 2 for wrong flags."""
    own = define_flags()
    if "--help" in argv:
        print(__doc__, own.get_help(), sep="\n")
        return 0
    try:
        chosen = read_flags(own, argv)
        file = open(own.json, "w", encoding="utf-8") if own.json else None
    except (flags.Error, ValueError, OSError) as error:
        print(f"{argv[0]}: {error}")
        return 2
    rows: List[NamedTuple] = []
    for setting in chosen:
        for row in measure(setting, own):
            print(line(row), flush=True)
            rows.append(row)
    if file is not None:
        with file:
            json.dump([row._asdict() for row in rows], file, indent=1)
    return 0


def read_flags(own: flags.FlagValues, argv: Sequence[str]) -> List[Setting]:
    """Parses the flags; returns what to measure.

    Raises:
      absl.flags.Error, ValueError: A flag is unknown or its value makes no sense.
    """
    extra = own(list(argv))[1:]
    if extra:
        raise ValueError(f"expected flags alone, got {extra[0]!r}.")
    for transport in own.transports:
        if transport not in TRANSPORTS:
            raise ValueError(f"expected transports of {TRANSPORTS}, got {transport!r}.")
    for quantizer in own.quantizers:
        quantizers.get(quantizer)
    counts = [*map(int, own.hidden), *map(int, own.clients), own.rounds]
    if min(counts) < 1 or own.seconds <= 0 or own.publications < 0:
        raise ValueError("expected sizes, clients, rounds and seconds above zero.")
    return [
        Setting(int(hidden), quantizer, transport)
        for hidden in own.hidden
        for quantizer in own.quantizers
        for transport in own.transports
    ]


def measure(setting: Setting, own: flags.FlagValues) -> Iterator[NamedTuple]:
    """Yields the rows of one setting in the mode the flags choose."""
    with nodes(setting) as running:
        running.wait_for(0)
        if own.clients:
            for clients in own.clients:
                yield load.scale(setting, running, int(clients), own.seconds)
        elif own.publications:
            yield from load.memory(setting, running, own.publications)
        else:
            yield from stages(setting, running, own.rounds)


def stages(setting: Setting, running: Nodes, rounds: int) -> Iterator[Row]:
    """Yields the median of each stage over `rounds` publications."""
    check(setting, running)
    actor = Actor(setting, running)
    samples: Dict[str, List[float]] = {}
    for number in range(rounds + 1):
        status = running.publish()
        times = {stage: status[key] for stage, key in PUBLISHER_STAGES.items()}
        times.update(actor.by_stage())
        running.publish()
        times["request_to_action"] = actor.request_to_action()
        times["unchanged_poll"] = actor.unchanged_poll()
        for stage, ms in times.items():
            if number:  # The first round warms up.
                samples.setdefault(stage, []).append(ms)
    actor.close()
    sizes = {"fetch": variable_bytes(setting.hidden), "unchanged_poll": 0}
    for stage in (*PUBLISHER_STAGES, *ACTOR_STAGES):
        size = sizes.get(stage, int(status["policy_bytes"]))
        ms = statistics.median(samples[stage])
        yield Row(setting.hidden, setting.quantizer, stage, setting.transport, ms, size)


def variable_bytes(hidden: int) -> int:
    """Returns the bytes of the learner's float32 variables."""
    return sum(4 * int(np.prod(shape)) for shape in mlp_graph(hidden).variable_shapes)


def check(setting: Setting, running: Nodes) -> None:
    """Raises RuntimeError unless the published policy is the learner's, bit for bit."""
    running.publish()
    received = QuantizedPolicy.from_bytes(pull(running.publisher, 0, setting.transport))
    (variables,) = running.learner.get_variables(["policy"])
    expected = quantize_graph(mlp_graph(setting.hidden), variables, setting.quantizer)
    size = payload.HEADER.size
    if received.payload[size:].tobytes() != expected.payload[size:].tobytes():
        raise RuntimeError("expected the published bytes to be the learner's policy.")
    rows = np.random.default_rng(1).standard_normal((8, 17), np.float32)
    if not np.array_equal(received.batch(rows), expected.batch(rows)):
        raise RuntimeError("expected the published policy's actions.")


class Actor:
    """The client side of the benchmark."""

    def __init__(self, setting: Setting, running: Nodes) -> None:
        """Pulls a first policy, by hand and through a variable client."""
        self._transport = setting.transport
        self._source = running.publisher
        self._observation = np.linspace(-1, 1, 17, dtype=np.float32)
        self._client = QuantizedVariableClient(
            client(running.publisher_port),
            use_shared_memory=setting.transport == "shared_memory",
        )
        self._client.update_and_wait()
        self._policy = self._decoded = None
        self.by_stage()

    def by_stage(self) -> Dict[str, float]:
        """Returns the milliseconds of each stage of taking a new policy."""
        before = self._decoded, self._policy  # Freed after the clock has stopped.
        times = [time.perf_counter()]
        buffer = pull(self._source, 0, self._transport)
        times.append(time.perf_counter())
        self._decoded = payload.decode(buffer, self._decoded and self._decoded.table)
        times.append(time.perf_counter())
        self._policy = QuantizedPolicy(self._decoded, like=self._policy)
        times.append(time.perf_counter())
        self._policy(self._observation)
        times.append(time.perf_counter())
        del before
        return {
            stage: (end - start) * 1e3
            for stage, start, end in zip(ACTOR_STAGES, times, times[1:])
        }

    def request_to_action(self) -> float:
        """Returns the milliseconds from a question to the new policy's first action."""
        version = self._client.version
        start_s = time.perf_counter()
        self._client.update(wait=True)
        self._client.policy(self._observation)
        elapsed_s = time.perf_counter() - start_s
        if self._client.version <= version:
            raise RuntimeError(f"expected a policy newer than version {version}.")
        return elapsed_s * 1e3

    def unchanged_poll(self) -> float:
        """Returns the milliseconds of a question that brings nothing new."""
        version = self._client.version
        time.sleep(0.02)  # Steps lie between two questions; the old policy is freed.
        start_s = time.perf_counter()
        self._client.update(wait=True)
        elapsed_s = time.perf_counter() - start_s
        if self._client.version != version:
            raise RuntimeError(f"expected version {version} to be the newest.")
        return elapsed_s * 1e3

    def close(self) -> None:
        """Ends the variable client."""
        self._client.close()


def line(row: NamedTuple) -> str:
    """Returns a row as text: numbers with a unit in their name, aligned."""
    parts = []
    for name, value in row._asdict().items():
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        parts.append(f"{name}={text}")
    return "  ".join(parts)
