"""A node's own counter, which never waits for the one it passes its counts on to.

    increment() --adds--> pending --every period, one call at a time--> parent
    counts      <--all nodes' counts, when the answer has come--------'

Acme's counter calls its parent inside `increment`, and an actor's loop stands still
until a busy machine has answered. Here the call is a Courier future. Each count is in
one call, and no call is repeated: one that failed may have been counted.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent import futures
from typing import Dict, Mapping

from acme_quant import roles
from acme_quant.peers import calls

# A node has 3 s to end (launch.stopping), and leaves its state after its counts.
FLUSH_S = 2.0
# How often a wait looks whether the run has ended.
_LOOK_S = 0.1


class CountsLost(RuntimeError):
    """The parent has not taken counts, or not said so."""


class AsyncCounter:
    """Takes the place of `acme.utils.counting.Counter`; belongs to one thread."""

    def __init__(
        self,
        parent: roles.Counter | None = None,
        prefix: str = "",
        time_delta: float = 1.0,
        max_silence_s: float = calls.MAX_SILENCE_S,
    ) -> None:
        """Asks the parent what all nodes have counted so far.

        Args:
          parent: counter to pass counts on to: a Courier client, which is not waited
            for, or an object of this process; None for none.
          prefix: of this node's counts at the parent, as in "actor_steps".
          time_delta: seconds from one call to the next; 0 calls at each increment.
          max_silence_s: seconds a Courier call may take.
        """
        self._parent = calls.bounded(parent, max_silence_s)
        self._prefix = f"{prefix}_" if prefix else ""
        self._time_delta = time_delta
        self._next_call = 0.0
        self._call: futures.Future[Mapping[str, float]] | None = None
        self._pending: Dict[str, float] = {}
        # What the parent said last, and all that it could not know then.
        self._counts = {} if self._parent is None else dict(self._parent.get_counts())

    def increment(self, **counts: float) -> Dict[str, float]:
        """Adds to counts.

        Returns:
          All nodes' counts as far as known, this node's own up to now.

        Raises:
          CountsLost: a Courier call failed; its counts are not sent again.
        """
        pending, known, prefix = self._pending, self._counts, self._prefix
        for name, number in counts.items():
            key = prefix + name
            pending[key] = pending.get(key, 0) + number
            known[key] = known.get(key, 0) + number
        return self.get_counts()

    def get_counts(self) -> Dict[str, float]:
        """Returns as `increment` does, and calls the parent if it is time to."""
        if self._call is not None and self._call.done():
            self._take(self._call)
        if self._parent is not None and self._call is None:
            now = time.perf_counter()
            if now >= self._next_call:
                self._next_call = now + self._time_delta
                self._pass_on(self._parent)
        return dict(self._counts)

    def known(self, name: str) -> float:
        """Returns one of all nodes' counts as far as known; calls nobody."""
        return self._counts.get(name, 0)

    def settle(self, stop: threading.Event) -> None:
        """Passes on all counts and waits for the answer, or until `stop` is set.

        Raises:
          CountsLost: a Courier call failed.
        """
        while self._parent is not None and (self._call or self._pending):
            if self._call is None:
                self._pass_on(self._parent)
            elif futures.wait([self._call], _LOOK_S).done:
                self._take(self._call)
            elif stop.is_set():
                return

    def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Passes on all counts and waits until the parent has them.

        A Courier parent that does not answer within `timeout_s` is a warning.

        Raises:
          CountsLost: a Courier call failed.
        """
        deadline = time.monotonic() + timeout_s
        while self._parent is not None and (self._call or self._pending):
            if self._call is None:
                self._pass_on(self._parent)
                continue
            if not futures.wait([self._call], deadline - time.monotonic()).done:
                self._give_up(self._call, timeout_s)
                return
            self._take(self._call)

    def _pass_on(self, parent: roles.Counter) -> None:
        """Sends what is pending."""
        pending, self._pending = self._pending, {}
        if calls.is_remote(parent):
            self._call = parent.futures.increment(**pending)
        else:
            self._counts = dict(parent.increment(**pending))

    def _take(self, call: futures.Future[Mapping[str, float]]) -> None:
        """Takes the answer of the call that is done."""
        self._call = None
        try:
            counts = dict(call.result())
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise CountsLost(
                f"expected the counter to take this node's counts, got: {lines[-1]}."
            ) from error
        for key, number in self._pending.items():
            counts[key] = counts.get(key, 0) + number
        self._counts = counts

    def _give_up(
        self, call: futures.Future[Mapping[str, float]], timeout_s: float
    ) -> None:
        """Leaves the call under way: with one open a process does not end."""
        call.cancel()
        self._call = None
        logging.warning(
            "The counter has not answered for %.1f s; counts may be lost, %s for sure.",
            timeout_s,
            self._pending or "none",
        )
