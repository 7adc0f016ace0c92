"""acme_quant: actor-learner reinforcement learning on Acme with quantized actors.

The data path:

            float32 variables         one packed policy, versioned    action
    learner ----------------> quantizer ------------------> actor ----> environment
       ^                      (the evaluator pulls it too)    |              |
       +------------------------- replay <------ adder <------+--------------+

  graph, lowering      a Sonnet/TensorFlow policy -> a short list of layers
  qtensor, quantizers  float32 weights -> codes and scales: float32, float16, int8, ...
  policy, payload      layers + tensors <-> one block of bytes that the engine reads
  kernels              the engine: a policy call is one call into C
  publisher            the quantizer node: the learner's variables -> payloads
  variable_client      the newest payload, swapped in between two steps
  actor, adder         an `acme.Actor` on the engine; transitions into replay
  builder              any Acme builder with quantized actors
  agents, launch       D4PG and DQN; the whole program, the command line
  bench                measurements, each of which checks its results first

Letters in all docstrings: M rows of a batch, K inputs, N outputs. Integer results are
the same bits on every CPU.

    policy = acme_quant.quantize_policy(module, observation_spec, quantizer="int8")
    action = policy(observation)

Running a policy needs NumPy alone; whatever needs more is imported when it is used.
What this is not: quantization-aware training (the learner is Acme's own, in float32),
or an engine for anything but feed-forward policies on CPUs.
"""

from __future__ import annotations

import importlib
from typing import Any, List

# Public name -> the module that holds it, imported at first use.
_PUBLIC = {
    "LoweringError": "graph",
    "NonFiniteWeights": "quantizers",
    "ObservationError": "policy_rows",
    "PayloadError": "payload",
    "QuantizedActor": "actor",
    "QuantizedBuilder": "builder",
    "QuantizedPolicy": "policy",
    "QuantizedVariableClient": "variable_client",
    "PolicyPublisher": "publisher",
    "QUANTIZERS": "quantizers",
    "quantize_policy": "lowering",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> List[str]:
    """Lists public names, imported or not."""
    return sorted({*globals(), *__all__})
