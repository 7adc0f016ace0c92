"""The counter's node: what all nodes count, and the small states they leave with it.

A node that may be started again (an actor after a crash, every node after a resume)
deposits what it would need: random state, steps of its own, last result. The learner
puts counts and deposits into each checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import launchpad as lp
from acme.utils import counting

from acme_quant import calls, loopback

CALL_TIMEOUT_S = 10.0
# What acme.utils.counting.Counter has beside what its peers call.
PRIVATE = ("restore", "run", "save")
EVALUATOR, QUANTIZER = "evaluator", "quantizer"


class RunCounter(counting.Counter):
    """Acme's counter, starting where a run starts, with a drawer for each node."""

    def __init__(
        self, counts: Mapping[str, float], deposits: Mapping[str, str]
    ) -> None:
        """Starts with the counts and deposits of a checkpoint, or with none."""
        super().__init__()
        self._counts = dict(counts)
        self._deposits = dict(deposits)

    def deposit(self, node: str, state: str) -> None:
        """Keeps `state`, JSON, in the place of what `node` left before."""
        self._deposits[node] = state

    def get_deposits(self) -> dict[str, str]:
        """Returns what every node left last."""
        return dict(self._deposits)

    def set_courier_server(self, server: Any) -> None:
        """Serves peers, and exposes nothing but what they call."""
        for method in PRIVATE:
            server.Unbind(method)
        loopback.start(server)

    def run(self) -> None:
        """Counts until the program ends."""
        lp.wait_for_stop()


class Drawer:
    """One node's place at the counter."""

    def __init__(self, counter: Any, node: str) -> None:
        """Opens the drawer of `node` at a RunCounter or a Courier client of it."""
        self._counter = calls.bounded(counter, CALL_TIMEOUT_S)
        self._node = node

    def put(self, state: Mapping[str, Any]) -> None:
        """Leaves a state of JSON values; a counter that does not answer is no error."""
        text = json.dumps(state)
        try:
            self._counter.deposit(self._node, text)
        except Exception as error:
            logging.warning("The counter did not answer: %s", error)

    def take(self) -> dict[str, Any]:
        """Returns the last state, empty when there is none."""
        deposits = self._counter.get_deposits()
        return json.loads(deposits.get(self._node, "{}"))
