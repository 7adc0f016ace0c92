"""The kinds of actor that `--actor` names: each is an entry here and a module."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ActorKind:
    """One kind of actor.

    Attributes:
      module: where its `make_loop` and, for the evaluator, its `make_policies` are;
        imported in the actor's and the evaluator's own process alone.
      asks: name of the node that it takes its policy from.
      payload: whether that policy travels quantized, as a payload.
      several_environments: whether one process steps several of them together.
    """

    module: str
    asks: str
    payload: bool = True
    several_environments: bool = True


ACTORS = {
    "engine": ActorKind("acme_quant.launch.nodes.engine_actor", asks="quantizer"),
    "acme": ActorKind(
        "acme_quant.launch.nodes.acme_actor",
        asks="learner",
        payload=False,
        several_environments=False,
    ),
}
