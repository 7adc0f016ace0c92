"""The counter's node: what all nodes count, and the small states they leave with it.

A node that may be started again (an actor after a crash, every node after a resume)
deposits what it would need: random state, steps of its own, last result. The learner
puts counts and deposits into each checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import launchpad as lp
from acme.utils import counting

from acme_quant.peers import loopback

# What acme.utils.counting.Counter has beside what its peers call.
PRIVATE = ("restore", "run", "save")


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
