"""Calls to a peer that may be slow, stopped or gone.

A peer is a Courier client or, in one process, the object itself. A Courier call waits
for ever on a stopped process, and a client with a call under way cannot be destroyed;
so every call has a deadline, which gRPC itself keeps.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable, TypeVar

if TYPE_CHECKING:
    import courier
    from typing_extensions import TypeGuard

# Outlasts a peer that is stopped for a minute and answers again.
MAX_SILENCE_S = 120.0
CALL_TIMEOUT_S = 30.0
# What a node may take to import, build its networks and answer for the first time.
START_S = 300.0

_log = logging.getLogger(__name__)


Peer = TypeVar("Peer")


class PeerSilent(RuntimeError):
    """A peer has not answered for longer than it may."""


def is_remote(peer: object) -> TypeGuard[courier.Client]:
    """Returns whether calls to `peer` cross a process boundary."""
    return hasattr(peer, "futures")


def bounded(peer: Peer, timeout_s: float = CALL_TIMEOUT_S) -> Peer:
    """Returns a client of the same address whose calls fail after `timeout_s`.

    A peer of this process is returned as it is.
    """
    if not is_remote(peer):
        return peer
    return type(peer)(peer.address, call_timeout=timeout_s)


class Silence:
    """Counts how long a peer has not answered and says when that is too long."""

    def __init__(
        self,
        peer_name: str,
        max_silence_s: float = MAX_SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with a peer that is starting too.

        Args:
          peer_name: What messages call it.
          max_silence_s: Seconds it may be silent once it has answered; before, it has
            `START_S`.
          clock: Tells the seconds.
        """
        self.failures = 0
        self._peer_name = peer_name
        self._max_silence_s = max_silence_s
        self._clock = clock
        self._last_answer_s = clock()
        self._has_answered = False

    def answered(self) -> None:
        """Notes that the peer has answered."""
        self._last_answer_s = self._clock()
        self._has_answered = True

    def failed(self, error: BaseException) -> None:
        """Notes and logs a failed call.

        Raises:
          PeerSilent: The peer has been silent for too long.
        """
        self.failures += 1
        silent_s = self._clock() - self._last_answer_s
        lines = str(error).strip().splitlines() or [type(error).__name__]
        _log.log(
            logging.WARNING if self._has_answered else logging.INFO,
            "The %s has not answered for %.0f s: %s",
            self._peer_name,
            silent_s,
            lines[-1],
        )
        limit_s = self._max_silence_s if self._has_answered else START_S
        if silent_s > limit_s:
            raise PeerSilent(
                f"expected an answer of the {self._peer_name} within {limit_s:.0f} s, "
                f"got none for {silent_s:.0f} s: {lines[-1]}."
            ) from error
