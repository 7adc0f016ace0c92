"""The processes of a run: actors, learner, quantizer, replay, evaluator, services.

`NODES` is the one list of them. Names of logs and CSV files, handles, what is on the
wire, order of the end, threads, restarts and shares of energy all follow from it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from acme_quant.launch.checkpoints.deposits import EVALUATOR, QUANTIZER
from acme_quant.launch.settings.actors import ACTORS
from acme_quant.records import cpu_times

if TYPE_CHECKING:
    from acme_quant.launch.settings.config import RunConfig

COURIER, REVERB = "Courier", "Reverb (gRPC)"


@dataclasses.dataclass(frozen=True)
class Node:
    """One kind of process of a run.

    Attributes:
      name: of logs/NAME.log and csv/NAME.csv.
      make: "module:function" of a Context; imported in the node's own process.
      needs: fields of the Context that it gets: `spec`, `graph` and its peers.
      serves: the methods that peers may call; no other is on the wire.
      ends: its turn at the end, 0 first; who ends last starts first.
      protocol: what its server speaks; all that Reverb serves is its own.
      count: how many there are in a run.
      numbered: whether there may be several, which are called `NAME_0`, `NAME_1`, ...
      within: the node that does its work too, in a run that has no process for it.
      threads: of its libraries; None for as many as they like.
      may_restart: whether a dead one is started again: it steps an environment.
      may_drop: whether it ends before all others when a run ends early: it saves
        nothing.
      energy: role that its energy is counted under.
    """

    name: str
    make: str
    needs: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    ends: int = 0
    protocol: str = COURIER
    count: Callable[[RunConfig], int] = lambda config: 1
    numbered: bool = False
    within: Callable[[RunConfig], str | None] = lambda config: None
    threads: int | None = 1
    may_restart: bool = False
    may_drop: bool = False
    energy: str = cpu_times.SERVICES


def _quantizers(config: RunConfig) -> int:
    return int(ACTORS[config.actor].payload and not config.colocate_quantizer)


# At the end the evaluator has a last look at the policy, the quantizer fetches the
# learner's last one, the learner saves what all others have counted, and the rest
# answer calls until nobody is left who makes any.
NODES = (
    Node(
        "actor",
        "acme_quant.launch.nodes.actor:make",
        needs=("spec", "policies", "replay", "counter"),
        count=lambda config: config.num_actors,
        numbered=True,
        may_restart=True,
        energy="actor",
    ),
    Node(
        "learner",
        "acme_quant.launch.nodes.learner:make",
        needs=("spec", "graph", "replay", "counter"),
        serves=("get_variables", "get_steps"),
        ends=3,
        threads=None,
        energy="learner",
    ),
    Node(
        QUANTIZER,
        "acme_quant.launch.nodes.quantizer:make",
        needs=("spec", "graph", "learner", "counter"),
        serves=("get_policy", "get_status", "get_float32"),
        ends=2,
        count=_quantizers,
        within=lambda config: "learner" if config.colocate_quantizer else None,
        energy="quantizer",
    ),
    Node(
        "replay",
        "acme_quant.launch.nodes.replay:make",
        needs=("spec",),
        ends=4,
        protocol=REVERB,
        energy="replay",
    ),
    Node(
        EVALUATOR,
        "acme_quant.launch.nodes.evaluator:make",
        needs=("spec", "graph", "policies", "counter"),
        ends=1,
        count=lambda config: int(config.evaluate_every > 0),
        may_restart=True,
        may_drop=True,
        energy="evaluator",
    ),
    Node(
        "counter",
        "acme_quant.launch.nodes.counter:make",
        serves=("increment", "get_counts", "deposit", "get_deposits"),
        ends=4,
    ),
    Node(
        "coordinator",
        "acme_quant.launch.nodes.coordinator:make",
        needs=("counter",),
        serves=("get_status",),
        ends=4,
    ),
)
# {node: role that its energy is counted under}, and all such roles.
ROLES = {node.name: node.energy for node in NODES}
ENERGY_ROLES = cpu_times.all_roles(ROLES)


def kind_of(name: str) -> Node:
    """Returns the node of a numbered or plain name, such as `actor_1`.

    Raises:
      KeyError: if there is none.
    """
    return {node.name: node for node in NODES}[re.sub(r"_\d+$", "", name)]


def nodes_of(config: RunConfig) -> list[Node]:
    """Returns the nodes of a run in the order they start, with all that each serves."""
    guests = {host: node for node in NODES if (host := node.within(config))}
    placed = [
        dataclasses.replace(node, serves=node.serves + guests[node.name].serves)
        if node.name in guests
        else node
        for node in NODES
        if node.count(config)
    ]
    return sorted(placed, key=lambda node: -node.ends)


def policies_of(config: RunConfig) -> str:
    """Returns the name of the node that actors and evaluator ask for their policy."""
    asked = kind_of(ACTORS[config.actor].asks)
    return asked.within(config) or asked.name
