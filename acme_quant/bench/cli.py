"""`acme-quant bench NAME`: one benchmark a module, each with its own flags."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

BENCHES = {
    "policy": (
        "acme_quant.bench.policy.command",
        "one policy call against ONNX Runtime, TFLite and Acme's actor",
    ),
    "publish": (
        "acme_quant.bench.publish.command",
        "from the learner's variables to an actor's first action",
    ),
    "actor": ("acme_quant.bench.actor.command", "an actor's whole loop against Acme's"),
    "learner": (
        "acme_quant.bench.learner.command",
        "a learner's step, fused, against Acme's own",
    ),
    "adder": (
        "acme_quant.bench.adder",
        "an n-step adder against Acme's and against Reverb's writer",
    ),
}


def main(argv: Sequence[str]) -> int:
    """Runs the benchmark named first in the arguments.

    Args:
      argv: program name, benchmark, its flags.

    Returns:
      The exit code; 2 for an unknown benchmark.
    """
    name = argv[1] if len(argv) > 1 else ""
    if name not in BENCHES:
        rows = "\n".join(f"  {key:8} {text}" for key, (_, text) in BENCHES.items())
        print(
            f"{argv[0]}: expected a benchmark, got {name!r}:\n{rows}", file=sys.stderr
        )
        return 2
    module = importlib.import_module(BENCHES[name][0])
    return module.main([f"{argv[0]} {name}", *argv[2:]]) or 0
