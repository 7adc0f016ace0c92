"""The actor's side of publishing: the newest policy, asked for in the background.

    update() --every update_period calls--> thread --"newer than v?"--> publisher
    update() <--- checked, ready to run --- decode <--- block or array <--'

The policy changes inside `update` and nowhere else, by one assignment of a policy that
was received and checked as a whole; so an action between two updates never sees half a
policy. Bytes that fail a check are dropped and counted, and the last good policy stays.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Dict, Tuple

from acme_quant import roles
from acme_quant.peers import calls
from acme_quant.policy import payload
from acme_quant.policy.payload import Buffer, Payload, PayloadError
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.quantizers import Quantizer
from acme_quant.policy.requantize import Requantizer
from acme_quant.publishing import answer, shared_memory

FIRST_POLICY_TIMEOUT_S = 300.0
FIRST_POLL_S = 0.02
RETRY_S = 1.0
MAX_BLOCK_TRIES = 3
MAX_BAD_PAYLOADS = 3

_log = logging.getLogger(__name__)


class NoPolicy(RuntimeError):
    """No first policy came within the time it may take."""


_STATUS = (
    "polls",
    "unchanged_polls",
    "updates",
    "bad_payloads",
    "shared_memory_pulls",
    "array_pulls",
    "bytes_received",
    "pull_ms",
    "load_ms",
)


class QuantizedVariableClient:
    """Keeps `policy` as new as the publisher's, at a bounded number of questions.

    Attributes:
      policy: The policy to run until the next `update`; None before the first.
    """

    def __init__(
        self,
        source: roles.PolicySource,
        update_period: int = 100,
        *,
        quantizer: str | Quantizer | None = None,
        activations: str = "wide",
        use_shared_memory: bool = True,
        wait: bool = False,
        first_policy_timeout_s: float = FIRST_POLICY_TIMEOUT_S,
        max_silence_s: float = calls.MAX_SILENCE_S,
    ) -> None:
        """Starts the background thread; asks for nothing yet.

        Args:
          source: The PolicyPublisher or a Courier client of it.
          update_period: Calls of `update` from one question to the next.
          quantizer: Number format to quantize received policies to, in the background;
            None to run them as they come.
          activations: How integer layers then round their inputs: 'wide' or '8bit'.
          use_shared_memory: Whether to map the publisher's block when on its host.
          wait: Whether `update` waits for every answer, so that the step at which a
            policy is swapped in does not depend on how fast anything is.
          first_policy_timeout_s: Seconds `update_and_wait` gives the first policy.
          max_silence_s: Seconds without an answer after which `update` raises.

        Raises:
          ValueError: `update_period` is below 1 or the quantizer is unknown.
        """
        if update_period < 1:
            raise ValueError(
                f"expected an update_period of at least 1, got {update_period}."
            )
        self.policy: QuantizedPolicy | None = None
        self._source = calls.bounded(source)
        self._update_period = update_period
        self._calls_left = 1
        self._wait = wait
        self._requantize = Requantizer(quantizer, activations) if quantizer else None
        self._host = shared_memory.host_identity() if use_shared_memory else ""
        self._first_policy_timeout_s = first_policy_timeout_s
        self._silence = calls.Silence("quantizer", max_silence_s)
        # Written by the background thread, read by update().
        self._next: Tuple[QuantizedPolicy, Payload] | None = None
        self._failure: BaseException | None = None
        self._latest: Tuple[int, int] = (0, 0)
        self._bad_in_a_row = 0
        self._received: Payload | None = None
        self._loaded: QuantizedPolicy | None = None
        self._retired: QuantizedPolicy | None = None
        self._published_s = 0.0
        self._status: Dict[str, float] = dict.fromkeys(_STATUS, 0)
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closed = False
        self._thread = threading.Thread(
            target=self._serve, name="policy-updates", daemon=True
        )
        self._thread.start()

    @property
    def version(self) -> int:
        """The version of `policy`, 0 before the first."""
        return 0 if self.policy is None else self.policy.version

    def update(self, wait: bool = False) -> None:
        """Puts a newer policy in place if one has arrived; asks when it is time.

        Args:
          wait: Ask now and return with what the answer brings.

        Raises:
          calls.PeerSilent: The publisher has not answered for too long.
          PayloadError: It sent several unusable policies in a row.
          Exception: Another failure of the background thread.
        """
        self._calls_left -= 1
        wait = wait or (self._wait and self._calls_left <= 0)
        if self._next is None and self._calls_left > 0 and not wait:
            return
        self._update(wait)

    def update_and_wait(self) -> None:
        """Asks now; the first time, waits until there is a policy.

        Raises:
          NoPolicy: None came in `first_policy_timeout_s`.
          Exception: As `update`.
        """
        deadline_s = time.monotonic() + self._first_policy_timeout_s
        self.update(wait=True)
        while self.policy is None:
            if time.monotonic() > deadline_s:
                raise NoPolicy(
                    "expected a first policy of the quantizer within "
                    f"{self._first_policy_timeout_s:.0f} s, got none."
                )
            time.sleep(FIRST_POLL_S)
            self.update(wait=True)

    def staleness(self) -> Dict[str, float]:
        """Returns how far `policy` is behind what the publisher last answered.

        Returns:
          'versions' and 'learner_steps' behind, and the policy's age in 'seconds'.
        """
        if self.policy is None:
            return {"versions": 0, "learner_steps": 0, "seconds": 0.0}
        version, learner_step = self._latest
        return {
            "versions": max(version - self.policy.version, 0),
            "learner_steps": max(learner_step - self.policy.learner_step, 0),
            "seconds": max(time.time() - self._published_s, 0.0),
        }

    def get_status(self) -> Dict[str, float]:
        """Returns counts since the start and the last update's milliseconds."""
        return {**self._status, "failures": self._silence.failures}

    def close(self) -> None:
        """Ends the background thread; `policy` stays usable."""
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=1.0)

    def _update(self, wait: bool) -> None:
        if wait:
            self._idle.wait()  # An answer under way may be older than this call.
        # Before asking, so that no answer can overwrite one that is not taken yet.
        self._take()
        if not wait and self._calls_left > 0:
            return
        self._calls_left = self._update_period
        if self._idle.is_set():
            self._idle.clear()
            self._wake.set()
        if wait:
            self._idle.wait()
            self._take()

    def _take(self) -> None:
        """Puts the policy that has arrived in place."""
        if self._failure is not None:
            raise self._failure
        if self._next is not None:
            # Unmapping a large policy takes milliseconds: not in the actor's time.
            self._retired = self.policy
            (self.policy, received), self._next = self._next, None
            self._published_s = received.published_s
            self._status["updates"] += 1
            self._wake.set()

    def _serve(self) -> None:
        """Frees what is retired and asks when told to, until closed."""
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closed:
                return
            self._retired = None
            if self._idle.is_set():
                continue
            try:
                self._ask()
            except BaseException as error:
                self._failure = error
            self._idle.set()

    def _ask(self) -> None:
        """Asks once and leaves what comes in `_next`."""
        start_s = time.perf_counter()
        try:
            buffer = self._pull()
        except Exception as error:
            if not calls.is_remote(self._source):
                raise
            self._silence.failed(error)
            return
        self._silence.answered()
        if buffer is None:
            return
        pulled_s = time.perf_counter()
        self._load(buffer)
        self._status["pull_ms"] = (pulled_s - start_s) * 1e3
        self._status["load_ms"] = (time.perf_counter() - pulled_s) * 1e3

    def _pull(self) -> Buffer | None:
        """Returns the bytes of a newer policy, or None if there is none."""
        for attempt in range(MAX_BLOCK_TRIES):
            last = attempt == MAX_BLOCK_TRIES - 1
            kind, body = self._question("" if last else self._host)
            if kind != answer.SHARED_MEMORY:
                return body
            try:
                buffer = shared_memory.open_block(body)
            except shared_memory.BlockGone:
                continue  # It was replaced meanwhile: ask for the newer one.
            except (OSError, ValueError) as error:
                _log.warning("Policies come through Courier: %s", error)
                self._host = ""
                continue
            self._status["shared_memory_pulls"] += 1
            return buffer
        return None

    def _question(self, host: str) -> Tuple[str, Any]:
        """Asks "newer than what we have?"; returns the answer's kind and body."""
        received = self._received
        version = 0 if received is None else received.policy_version
        came = answer.checked(self._source.get_policy(version, host))
        self._latest = (came.version, came.learner_step)
        self._status["polls"] += 1
        if came.kind == answer.UNCHANGED:
            self._status["unchanged_polls"] += 1
        elif came.kind == answer.ARRAY:
            self._status["array_pulls"] += 1
            self._status["bytes_received"] += came.body.nbytes
        return came.kind, came.body

    def _load(self, buffer: Buffer) -> None:
        """Checks received bytes and leaves the policy they are in `_next`."""
        try:
            known = self._received
            received = payload.decode(buffer, None if known is None else known.table)
            running = self._requantize(received) if self._requantize else received
            loaded = QuantizedPolicy(running, like=self._loaded)
        except ValueError as error:
            self._refuse(error)
            return
        self._bad_in_a_row = 0
        self._received, self._loaded = received, loaded
        self._next = loaded, received

    def _refuse(self, error: ValueError) -> None:
        self._bad_in_a_row += 1
        self._status["bad_payloads"] += 1
        _log.warning("Refused a policy of the quantizer: %s", error)
        if self._bad_in_a_row >= MAX_BAD_PAYLOADS:
            raise PayloadError(
                f"expected a policy of the quantizer, got {self._bad_in_a_row} "
                f"unusable ones in a row, the last: {error}"
            ) from error
