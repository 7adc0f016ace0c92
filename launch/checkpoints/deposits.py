"""The small states that nodes leave with the counter, for whoever starts them again."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from acme_quant import roles
from acme_quant.peers import calls

CALL_TIMEOUT_S = 10.0
EVALUATOR, QUANTIZER = "evaluator", "quantizer"


class Keeper(roles.Counter, Protocol):
    """The run's counter: a RunCounter, or a Courier client of it."""

    def deposit(self, node: str, state: str) -> None:
        """Keeps `state`, JSON, in the place of what `node` left before."""
        ...

    def get_deposits(self) -> Mapping[str, str]:
        """Returns what every node left last."""
        ...


class Drawer:
    """One node's place at the counter."""

    def __init__(self, counter: Keeper, node: str) -> None:
        """Opens the drawer of `node` at the run's counter."""
        self._counter: Keeper = calls.bounded(counter, CALL_TIMEOUT_S)
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
