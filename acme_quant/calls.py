"""Calls to a peer that may be slow, stopped or gone.

A peer is a Courier client or, in one process, the object itself. A Courier call waits
for ever on a stopped process, and a client with a call under way cannot be destroyed;
so every call has a deadline, which gRPC itself keeps.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

# Outlasts a peer that is stopped for a minute and answers again.
MAX_SILENCE_S = 120.0
CALL_TIMEOUT_S = 30.0


class PeerSilent(RuntimeError):
    """A peer has not answered for longer than it may."""


def is_remote(peer: Any) -> bool:
    """Returns whether calls to `peer` cross a process boundary."""
    return hasattr(peer, "futures")


def bounded(peer: Any, timeout_s: float = CALL_TIMEOUT_S) -> Any:
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
        """Starts as if the peer had answered just now."""
        self._peer_name = peer_name
        self._max_silence_s = max_silence_s
        self._clock = clock
        self._last_answer_s = clock()
        self.failures = 0
        self._error: Optional[BaseException] = None

    def answered(self) -> None:
        """Notes that the peer has answered."""
        self._last_answer_s = self._clock()

    def failed(self, error: BaseException) -> None:
        """Notes a failed call.

        Raises:
          PeerSilent: It was one too many.
        """
        self.failures += 1
        self._error = error
        silent_s = self._clock() - self._last_answer_s
        if silent_s > self._max_silence_s:
            text = str(error).strip().splitlines()
            raise PeerSilent(
                f"expected an answer of the {self._peer_name} within "
                f"{self._max_silence_s:.0f} s, got none for {silent_s:.0f} s: "
                f"{text[-1] if text else type(error).__name__}."
            ) from error
