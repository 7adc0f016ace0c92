"""What a node is made of: the run, and the peers that it calls."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING, Any, Protocol

from acme_quant import roles
from acme_quant.launch.checkpoints.deposits import Keeper
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    import numpy as np
    from acme import specs

    from acme_quant.policy.graph import Graph

COUNT_EVERY_S = 0.5
# What a node does not need is not in its context.
_ABSENT: Any = None


class Publisher(roles.PolicySource, Protocol):
    """Who publishes: a PolicyPublisher, or a learner that has one."""

    def get_float32(self) -> tuple[int, list[np.ndarray]]:
        """Returns the learner's step and variables behind the newest policy."""
        ...


@dataclasses.dataclass(frozen=True)
class Context:
    """What every maker of a node gets; `Node.needs` says which fields are there.

    A peer is a Courier client or, in a run of one thread, what the node serves.

    Attributes:
      run: the run's configuration.
      started: time.time() at launch.
      spec: its environment's.
      graph: the lowered policy, unless actors take no payload.
      name: the node's own, such as `actor_1`.
      index: its place among those of its kind.
      stop: set when the run ends.
      counter: the run's.
      replay: address of the replay server.
      learner: who has the variables.
      policies: whom actors and evaluator ask for their policy; with Acme's own actors
        the learner itself.
      count_every_s: how long a node counts by itself; negative for not at all.
      waits: whether a client waits for each answer.
    """

    run: Run
    started: float
    spec: specs.EnvironmentSpec = _ABSENT
    graph: Graph = _ABSENT
    name: str = ""
    index: int = 0
    stop: threading.Event | None = None
    counter: Keeper = _ABSENT
    replay: str = _ABSENT
    learner: roles.CountingSource = _ABSENT
    policies: Publisher = _ABSENT
    count_every_s: float = COUNT_EVERY_S
    waits: bool = False
