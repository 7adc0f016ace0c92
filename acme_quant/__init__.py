"""acme_quant: actor-learner reinforcement learning on Acme with quantized actors.

The data path:

            float32 variables         one packed policy, versioned    action
    learner ----------------> quantizer ------------------> actor ----> environment
       ^                      (the evaluator pulls it too)    |              |
       +------------------------- replay <------ adder <------+--------------+

  lowering       a Sonnet/TensorFlow policy -> a short list of layers
  policy         layers, codes and scales <-> one block of bytes that the engine reads
  kernels        the engine: a policy call is one call into C
  publishing     the quantizer: the learner's variables -> payloads; clients pull them
  acting         observation -> action: the actor, its exploration, its loop
  environments   dm_control, gymnasium, Atari, EnvPool behind one thin edge
  replay         transitions into and out of a table
  peers          calls that end, servers that this host alone can reach
  records        what outlives a process: checkpoints, energy, rows
  roles          what these are to each other, as Protocols
  agents         D4PG, DQN, and any Acme builder, with quantized actors
  launch         the whole program and the command line
  bench          measurements, each of which checks its results first

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
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from acme_quant.acting.actor import QuantizedActor as QuantizedActor
    from acme_quant.agents.builder import QuantizedBuilder as QuantizedBuilder
    from acme_quant.lowering import quantize_policy as quantize_policy
    from acme_quant.policy import QuantizedPolicy as QuantizedPolicy
    from acme_quant.policy.graph import LoweringError as LoweringError
    from acme_quant.policy.payload import PayloadError as PayloadError
    from acme_quant.policy.quantizers import QUANTIZERS as QUANTIZERS
    from acme_quant.policy.quantizers import NonFiniteWeights as NonFiniteWeights
    from acme_quant.policy.rows import ObservationError as ObservationError
    from acme_quant.publishing.client import (
        QuantizedVariableClient as QuantizedVariableClient,
    )
    from acme_quant.publishing.publisher import PolicyPublisher as PolicyPublisher

# Public name -> the module that holds it, imported at first use.
_PUBLIC = {
    "LoweringError": "policy.graph",
    "NonFiniteWeights": "policy.quantizers",
    "ObservationError": "policy.rows",
    "PayloadError": "policy.payload",
    "QuantizedActor": "acting.actor",
    "QuantizedBuilder": "agents.builder",
    "QuantizedPolicy": "policy",
    "QuantizedVariableClient": "publishing.client",
    "PolicyPublisher": "publishing.publisher",
    "QUANTIZERS": "policy.quantizers",
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
