"""The quantizer node: asks the learner for its policy, quantizes it, publishes it.

    learner --get_variables--> quantize, check --> one immutable (version, bytes)
                                                        |
    clients --"newer than v?"-------------> unchanged | shared memory | array

Peers call `get_policy` and `get_status`, nothing else. A policy with a NaN or Inf is
refused, counted and logged, and the last good one stays; so is one whose actions the
number format changes too much, if there is a bound. A learner that does not answer
is asked again; meanwhile the last policy is served.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Dict, Sequence, Tuple

import numpy as np

from acme_quant import roles
from acme_quant.peers import calls
from acme_quant.policy import quantizers
from acme_quant.policy.graph import Graph
from acme_quant.policy.payload import HEADER
from acme_quant.policy.writer import PolicyWriter
from acme_quant.publishing import shared_memory
from acme_quant.publishing.action_changes import ActionsChanged, Changes
from acme_quant.publishing.answer import ARRAY, SHARED_MEMORY, UNCHANGED, Answer
from acme_quant.publishing.schedule import MIN_POLL_S, Schedule

RETRY_S = 1.0

_log = logging.getLogger(__name__)


class BadPolicies(RuntimeError):
    """The learner's policy was refused too many times in a row."""


@dataclasses.dataclass(frozen=True)
class _Published:
    """One version: its bytes, and the block others can open, if there is one."""

    version: int
    learner_step: int
    content: np.ndarray
    block: shared_memory.Block | None


_STATUS = (
    "publications",
    "refused_policies",
    "unchanged_policies",
    "fetch_ms",
    "quantize_ms",
    "publish_ms",
    "policy_bytes",
    "polls",
    "shared_memory_pulls",
    "array_pulls",
    "bytes_served",
)


class PolicyPublisher:
    """Quantizes the learner's policy every so often and serves it to clients."""

    def __init__(
        self,
        graph: Graph,
        variable_source: roles.VariableSource,
        quantizer: str | quantizers.Quantizer = "int8",
        *,
        activations: str = "wide",
        communication: str | quantizers.Quantizer | None = None,
        variable_name: str = "policy",
        publish_period: int = 100,
        publish_period_s: float | None = None,
        first_version: int = 1,
        max_bad_policies: int = 10,
        changes: Changes | None = None,
        max_silence_s: float = calls.MAX_SILENCE_S,
        use_shared_memory: bool = True,
        stop: threading.Event | None = None,
    ) -> None:
        """Prepares a publisher; `run` makes it publish.

        Args:
          graph: The lowered policy.
          variable_source: The learner or a client of it, a `roles.CountingSource`; an
            object of this process need not count if `publish_period_s` is given.
          quantizer: Number format of the actors.
          activations: How integer layers round their inputs: 'wide' or '8bit'.
          communication: Number format of the payload when clients quantize it again.
          variable_name: What the learner calls the policy's variables.
          publish_period: Learner steps between two publications.
          publish_period_s: Seconds between two publications, instead of steps.
          first_version: The first publication's; a resumed run goes on counting.
          max_bad_policies: Refused policies in a row at which `run` raises.
          changes: Compares versions with their float32; None: without a bound.
          max_silence_s: Seconds without an answer, after one, at which it raises.
          use_shared_memory: Whether clients of this host may map the policy.
          stop: Ends `run` when set.

        Raises:
          ValueError: A format is unknown, or `communication` would change nothing.
        """
        quantizers.check_precisions(quantizer, communication)
        self._source = calls.bounded(variable_source)
        self._writer = PolicyWriter(graph, communication or quantizer, activations)
        self._changes = changes or Changes(graph, quantizer, activations, communication)
        self._room: memoryview | None = None
        self._variable_name = variable_name
        self._schedule = Schedule(publish_period, publish_period_s)
        self._first_version = first_version
        self._max_bad_policies = max_bad_policies
        self._stop = stop or threading.Event()
        self._silence = calls.Silence("learner", max_silence_s)
        self._host = shared_memory.host_identity() if use_shared_memory else ""
        self._bad_in_a_row = self._learner_step = 0
        self._current: _Published | None = None
        self._previous: _Published | None = None
        self._float32: Tuple[int, Sequence[np.ndarray]] = (0, [])
        self._lock = threading.Lock()
        self._status: Dict[str, float] = dict.fromkeys(_STATUS, 0)

    def get_policy(self, newer_than: int, host: str) -> Answer:
        """Answers a client's "newer than v?".

        Args:
          newer_than: The version the client runs, 0 for none.
          host: The client's `shared_memory.host_identity()`; empty to get an array.

        """
        current = self._current
        if current is None or current.version == newer_than:
            self._count(polls=1)
            return Answer(newer_than, self._learner_step, UNCHANGED, None)
        if current.block is not None and host == self._host:
            self._count(polls=1, shared_memory_pulls=1)
            body, kind = list(current.block.name), SHARED_MEMORY
        else:
            self._count(polls=1, array_pulls=1, bytes_served=current.content.nbytes)
            body, kind = current.content, ARRAY
        return Answer(current.version, self._learner_step, kind, body)

    def get_float32(self) -> Tuple[int, Sequence[np.ndarray]]:
        """Returns what the newest policy was quantized from: for comparing the two.

        Returns:
          (learner step, the learner's variables).
        """
        return self._float32

    def get_status(self) -> Dict[str, float]:
        """Returns counts since the start and the last publication's milliseconds."""
        current = self._current
        with self._lock:
            status = {**self._status, **self._changes.status}
        status["policy_version"] = current.version if current else 0
        status["learner_steps"] = current.learner_step if current else 0
        status["fetch_failures"] = self._silence.failures
        return status

    def run(self) -> None:
        """Publishes until `stop` is set.

        Raises:
          BadPolicies: Too many refused policies in a row.
          calls.PeerSilent: The learner has not answered for too long.
          ValueError: The learner's variables do not fit the graph.
        """
        while not self._stop.is_set():
            self._stop.wait(self.poll())

    def poll(self) -> float:
        """Publishes if it is time to; returns the seconds until it may be again.

        Raises:
          Exception: As `run`.
        """
        try:
            steps = self._ask_steps()
            if not self._schedule.is_due(steps):
                self._silence.answered()
                return self._schedule.wait_s(steps)
            variables = self._fetch()
        except Exception as error:
            if not calls.is_remote(self._source):
                raise
            self._silence.failed(error)
            return RETRY_S
        self._silence.answered()
        self._schedule.note(steps)
        self._quantize_and_publish(variables, steps)
        return MIN_POLL_S

    def publish_last(self) -> None:
        """Publishes what was learnt since the last publication, if the learner answers.

        For the end of a run, when nobody calls `poll` any more.
        """
        try:
            steps = self._ask_steps()
            if self._schedule.has(steps):
                return
            variables = self._fetch()
        except Exception as error:
            if not calls.is_remote(self._source):
                raise
            _log.warning("The learner's last policy was not fetched: %s", error)
            return
        self._schedule.note(steps)
        try:
            self._quantize_and_publish(variables, steps)
        except BadPolicies as error:
            _log.warning("%s", error)

    def _ask_steps(self) -> int:
        source = self._source
        if isinstance(source, roles.CountingSource):  # A Courier client is all things.
            self._learner_step = int(source.get_steps())
            return self._learner_step
        return 0

    def _fetch(self) -> Sequence[np.ndarray]:
        start_s = time.perf_counter()
        (variables,) = self._source.get_variables([self._variable_name])
        self._set(fetch_ms=(time.perf_counter() - start_s) * 1e3)
        return variables

    def _quantize_and_publish(
        self, variables: Sequence[np.ndarray], steps: int
    ) -> None:
        current = self._current
        version = current.version + 1 if current else self._first_version
        start_s = time.perf_counter()
        try:
            payload = self._writer.write(variables, version, steps, self._room)
            self._room = payload.buffer
            self._changes.check(variables, payload)
        except (quantizers.NonFiniteWeights, ActionsChanged) as error:
            self._refuse(error, steps)
            return
        self._float32 = (steps, variables)
        self._bad_in_a_row = 0
        quantized_s = time.perf_counter()
        self._set(quantize_ms=(quantized_s - start_s) * 1e3)
        if self._is_unchanged(payload.buffer):
            self._count(unchanged_policies=1)
            return
        self._swap(self._make(payload.buffer, version, steps))
        self._set(publish_ms=(time.perf_counter() - quantized_s) * 1e3)
        self._changes.note(variables, payload)

    def _refuse(self, error: ValueError, steps: int) -> None:
        self._bad_in_a_row += 1
        _log.warning("Refused the policy of learner step %d: %s", steps, error)
        self._count(refused_policies=1)
        # Without a first policy nobody acts, so that no better one would be learnt.
        if self._bad_in_a_row >= self._max_bad_policies or self._current is None:
            raise BadPolicies(
                f"expected a policy fit to publish, got {self._bad_in_a_row} in a row "
                f"that are not, the last at learner step {steps}: {error}"
            ) from error

    def _is_unchanged(self, payload: memoryview) -> bool:
        """Returns whether every tensor has the bits it had in the version before."""
        if self._current is None:
            return False
        new = np.frombuffer(payload, np.uint8)[HEADER.size :]
        return np.array_equal(new, self._current.content[HEADER.size :])

    def _make(self, payload: memoryview, version: int, steps: int) -> _Published:
        """Returns a published copy of `payload`, in shared memory if there is any."""
        if self._host:
            try:
                block = shared_memory.Block(payload)
                content = np.frombuffer(block.view, np.uint8)
                return _Published(version, steps, content, block)
            except OSError as error:
                _log.warning("No shared memory, policies go through Courier: %s", error)
                self._host = ""
        return _Published(version, steps, np.array(payload, np.uint8), None)

    def _swap(self, published: _Published) -> None:
        """Makes a version the current one.

        The one before keeps its block: a client may be about to open it.
        """
        gone, self._previous = self._previous, self._current
        self._current = published
        if gone is not None and gone.block is not None:
            gone.block.close()
        self._count(publications=1)
        self._set(policy_bytes=published.content.nbytes)

    def _count(self, **amounts: int) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._status[name] += amount

    def _set(self, **values: float) -> None:
        with self._lock:
            self._status.update(values)
