"""Which versions a publisher compares with their float32, and what it makes of it."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Sequence

import numpy as np

from acme_quant.policy import quantizers
from acme_quant.policy.action_change import ActionChange, Comparison
from acme_quant.policy.graph import Graph
from acme_quant.policy.payload import Payload
from acme_quant.policy.requantize import Requantizer

# Without a bound, comparing takes at most this share of one core.
SHARE = 0.02


class ActionsChanged(ValueError):
    """The number format changes a policy's actions by more than is allowed."""


class Changes:
    """Compares published versions with their float32, and refuses above a bound.

    Attributes:
      status: of the last version compared: its learner step, the largest and mean
        change, milliseconds, and the share of greedy actions that are others if the
        output is a value for each action; NaN before.
    """

    def __init__(
        self,
        graph: Graph,
        quantizer: str | quantizers.Quantizer,
        activations: str = "wide",
        communication: str | quantizers.Quantizer | None = None,
        *,
        limit: float = 0.0,
        discrete: bool = False,
    ) -> None:
        """Compares no version yet.

        Args:
          graph: the lowered policy.
          quantizer: number format of the actors.
          activations: how integer layers round their inputs: 'wide' or '8bit'.
          communication: number format of the payload when actors quantize it again.
          limit: largest change of an action, in its unit, at which a policy is
            published; each is then compared before. 0: any, and some are, after.
          discrete: whether the output is a value for each action.
        """
        self._compare = Comparison(graph)
        self._name = quantizers.get(quantizer).name
        self._requantizer: Requantizer | None = None
        if communication:
            self._requantizer = Requantizer(quantizer, activations)
        self._limit = limit
        self._discrete = discrete
        self._next_s = 0.0
        self.status: dict[str, float] = {}
        self._tell(math.nan, ActionChange(math.nan, math.nan, math.nan), math.nan)

    def check(self, variables: Sequence[np.ndarray], written: Payload) -> None:
        """Compares a version that is about to be published, if there is a bound.

        Args:
          variables: float32, what `written` was made from.
          written: the version, as it is sent.

        Raises:
          ActionsChanged: if the largest change is above the bound, or not a number.
          NonFiniteWeights: if the actors' number format cannot hold a weight.
        """
        if not self._limit:
            return
        largest = self._measure(variables, written).largest
        if not largest <= self._limit:
            raise ActionsChanged(
                f"expected {self._name} to change actions by at most {self._limit:g} "
                f"on made-up observations, got {largest:.3g}; "
                f"{self._compare.worst_layer()}."
            )

    def note(self, variables: Sequence[np.ndarray], written: Payload) -> None:
        """Compares a version that was published, if it was not and there is time."""
        if self._limit or time.monotonic() < self._next_s:
            return
        # A policy that actors cannot make of it is theirs to refuse.
        with contextlib.suppress(quantizers.NonFiniteWeights):
            self._measure(variables, written)

    def _measure(
        self, variables: Sequence[np.ndarray], written: Payload
    ) -> ActionChange:
        start_s = time.monotonic()
        actors = self._requantizer(written) if self._requantizer else written
        change = self._compare(variables, actors)
        seconds = time.monotonic() - start_s
        self._next_s = start_s + seconds / SHARE
        self._tell(written.learner_step, change, seconds * 1e3)
        return change

    def _tell(self, learner_step: float, change: ActionChange, ms: float) -> None:
        status = {
            "compared_learner_steps": learner_step,
            "action_change_max": change.largest,
            "action_change_mean": change.mean,
            "compare_ms": ms,
        }
        if self._discrete:
            status["greedy_actions_changed"] = change.greedy
        self.status = status
