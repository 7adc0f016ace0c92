"""The counter's node: what all nodes count, and the small states they leave with it.

A node that may be started again (an actor after a crash, every node after a resume)
deposits what it would need: random state, steps of its own, last result. The learner
puts counts and deposits into each checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

import launchpad as lp
from acme.utils import counting

from acme_quant.launch.nodes.context import Context


def make(context: Context) -> RunCounter:
    """Returns the counter that all others count into, from where the run starts."""
    start = context.run.start
    return RunCounter(start.counts, start.deposits)


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

    def run(self) -> None:
        """Counts until the program ends."""
        lp.wait_for_stop()
