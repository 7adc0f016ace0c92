"""What a node is made of: the run, and the peers that it calls."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    from acme import specs

    from acme_quant.launch.nodes.counter import RunCounter
    from acme_quant.launch.nodes.learner import LearnerNode
    from acme_quant.launch.nodes.quantizer import QuantizerNode
    from acme_quant.policy.graph import Graph
    from acme_quant.replay.local import LocalReplay

COUNT_EVERY_S = 0.5


@dataclasses.dataclass(frozen=True)
class Context:
    """What every maker of a node gets; `Node.needs` says which fields are not None.

    A peer is a Courier client or, in a run of one thread, the node's object itself.

    Attributes:
      run: the run's configuration.
      started: time.time() at launch.
      spec: acme.specs.EnvironmentSpec of its environment.
      graph: the lowered policy; None with actors that take no payload.
      name: the node's own, such as `actor_1`.
      index: its place among those of its kind.
      stop: set when the run ends.
      counter: the run's RunCounter.
      replay: address of the replay server; in one thread, the replay itself.
      learner: who has the variables.
      policies: whom actors and evaluator ask for their policy.
      count_every_s: how long a node counts by itself; negative for not at all.
      waits: whether a client waits for each answer.
    """

    run: Run
    started: float
    spec: specs.EnvironmentSpec | None = None
    graph: Graph | None = None
    name: str = ""
    index: int = 0
    stop: threading.Event | None = None
    counter: RunCounter | None = None
    replay: str | LocalReplay | None = None
    learner: LearnerNode | None = None
    policies: QuantizerNode | LearnerNode | None = None
    count_every_s: float = COUNT_EVERY_S
    waits: bool = False
