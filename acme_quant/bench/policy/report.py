"""What `acme-quant bench policy` concludes of its times: promised ratios, losses, and
how near memory's speed is."""

from __future__ import annotations

from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

from acme_quant.bench.policy.mlp import mlp_graph
from acme_quant.bench.turns import copy_bandwidth
from acme_quant.policy import writer

HIDDEN = (64, 256, 512, 1024, 2048)
BATCHES = (1, 8, 32, 256)
MLP, ATARI = NETWORKS = ("mlp", "atari")


class Row(NamedTuple):
    """One measured time; `hidden` is 0 for the Atari network, which has one size."""

    engine: str
    hidden: int
    batch: int
    us: float
    network: str = MLP

    def to_json(self) -> Dict[str, Any]:
        """Returns the row with its network, unless it is the MLP."""
        row = self._asdict()
        if self.network == MLP:
            del row["network"]
        return row


class Target(NamedTuple):
    """A promised ratio of two engines' times: at most `limit` at these sizes."""

    engine: str
    against: str
    hidden: int
    batch: int
    limit: float
    network: str = MLP


Times = Dict[Tuple[str, str, int, int], float]


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
    yield Target("int8", "onnxruntime_float32", 0, 1, 0.5, ATARI)


TARGETS = tuple(_targets())
SMALL_POLICY_US = 6.0  # Of our int8 at 64, batch 1, Python included.


def print_conclusions(rows: Sequence[Row]) -> None:
    """Prints ratios against their targets, losses, and how near memory's speed is."""
    times = {(r.engine, r.network, r.hidden, r.batch): r.us for r in rows}
    print_targets(times)
    print_losses(times)
    print_bandwidth(times)


def print_targets(times: Times) -> None:
    """Prints the ratios that were promised."""
    print("\nratios of times, against what was promised")
    for target in TARGETS:
        place = (target.network, target.hidden, target.batch)
        a = times.get((target.engine, *place))
        b = times.get((target.against, *place))
        if a is not None and b is not None:
            verdict = "ok" if a <= target.limit * b else "MISSED"
            print(
                f"  {target.engine:8} / {target.against:19} {_named(*place)}: "
                f"{a / b:6.3f}  at most {target.limit:5.3f}  {verdict}"
            )
    small = times.get(("int8", MLP, 64, 1))
    if small is not None:
        verdict = "ok" if small <= SMALL_POLICY_US else "MISSED"
        print(f"  int8 at 17-64-64-64-6: {small:.1f} us, at most 6.0  {verdict}")


def _named(network: str, hidden: int, batch: int) -> str:
    size = f"hidden {hidden:4}" if network == MLP else f"{network:11}"
    return f"{size} batch {batch:3}"


def print_losses(times: Times) -> None:
    """Says where our int8 is not the fastest."""
    print("\nwhere int8 does not gain")
    lost = False
    for place in sorted({key[1:] for key in times}, key=lambda p: (p[1] == 0, p)):
        here = {key[0]: us for key, us in times.items() if key[1:] == place}
        own = here.pop("int8", None)
        faster = {name: us for name, us in here.items() if own and us <= own}
        if faster:
            lost = True
            text = ", ".join(f"{name} {us:.1f}" for name, us in faster.items())
            print(f"  {_named(*place)}: int8 {own:.1f} us, {text}")
    if not lost:
        print("  nowhere: it is the fastest at every size and batch")


def print_bandwidth(times: Times) -> None:
    """Prints how near one pass over the weights is to copying as many bytes."""
    sizes = sorted({hidden for _, network, hidden, _ in times if network == MLP})
    if not sizes:
        return
    print("\nbatch 1: bytes touched, against the bandwidth of copying as many bytes")
    for name in ("int8", "float32"):
        for hidden in sizes:
            us = times.get((name, MLP, hidden, 1))
            if us is None:
                continue
            nbytes = writer.PolicyWriter(mlp_graph(hidden), name).nbytes
            copied = copy_bandwidth(nbytes)
            print(
                f"  {name:8} hidden {hidden:4}: {nbytes / 1e6:7.3f} MB, "
                f"{nbytes / us / 1e3:6.1f} GB/s, copy {copied / 1e9:6.1f} GB/s "
                f"({nbytes / us * 1e6 / copied:4.0%})"
            )
