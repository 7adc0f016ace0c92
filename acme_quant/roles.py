"""What the parts of the data path are to each other: Protocols, and nothing else.

A class plays a role by having its methods; it need not know of this file. Types of
the rooms above are named for type checkers alone: at run time this imports NumPy.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Mapping,
    Protocol,
    Sequence,
    TypeVar,
    runtime_checkable,
)

import numpy as np

if TYPE_CHECKING:
    import threading

    from acme_quant.acting.timing import StageClock
    from acme_quant.policy.qtensor import QTensor


class Quantizer(Protocol):
    """A number format of weights: one of `QUANTIZERS`, or a user's own.

    Attributes:
      name: what payloads and messages call it.
    """

    @property
    def name(self) -> str:
        """What payloads and messages call it."""
        ...

    def quantize(self, weight: np.ndarray, out: np.ndarray | None = None) -> QTensor:
        """Quantizes a matrix float32 [K, N], one column per output channel.

        Args:
          weight: float32 [K, N].
          out: where the codes go, or None for a new array. A quantizer of one's own
            may lack it: its codes are then checked, and copied to where they go.
        """
        ...

    def error_bound(self, qtensor: QTensor, weight: np.ndarray) -> np.ndarray:
        """Returns a bound on |weight - dequantized|, float32 [N, K]."""
        ...


class Policy(Protocol):
    """Maps an observation to an output: a QuantizedPolicy, or who asks a server."""

    def __call__(self, observation: Any) -> np.ndarray:
        """Returns the output for one observation, a nest without batch dimension."""
        ...


class BatchPolicy(Policy, Protocol):
    """A policy of many environments at once."""

    def batch(self, observations: Any) -> np.ndarray:
        """Returns the outputs [M, ...] for a nest of [M, ...]."""
        ...


P = TypeVar("P", bound=Policy, covariant=True)


class PolicyClient(Protocol[P]):
    """Keeps a policy as new as its source's."""

    @property
    def policy(self) -> P:
        """What acts until the next `update`."""
        ...

    @property
    def version(self) -> int:
        """The version of `policy`."""
        ...

    def update(self, wait: bool = False) -> None:
        """Swaps a newer policy in if there is one; `wait` asks for it now."""
        ...

    def staleness(self) -> Mapping[str, float]:
        """Returns the versions, learner_steps and seconds that `policy` is behind."""
        ...

    def close(self) -> None:
        """Lets go of the source; `policy` stays usable."""
        ...


class PolicySource(Protocol):
    """Answers "newer than v?": a publisher, or a learner that publishes."""

    def get_policy(self, newer_than: int, host: str) -> tuple[int, int, str, Any]:
        """Returns an `acme_quant.publishing.answer.Answer`, as it comes off the wire.

        Args:
          newer_than: the version that the client runs, 0 for none.
          host: the client's `shared_memory.host_identity()`; empty to get an array.
        """
        ...


class VariableSource(Protocol):
    """A learner, or a client of it."""

    def get_variables(self, names: Sequence[str]) -> Sequence[Sequence[np.ndarray]]:
        """Returns the arrays under each of the learner's names."""
        ...


@runtime_checkable
class CountingSource(VariableSource, Protocol):
    """A learner that knows how often it has stepped."""

    def get_steps(self) -> int:
        """Returns the number of learner steps done."""
        ...


class Exploration(Protocol):
    """Makes an action of a policy's output; a schedule can be left and taken up."""

    def __call__(self, output: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the action for `output` (float32 [W] or [M, W])."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns where it is, as JSON values; empty if all calls are alike."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """Something that was published."""

    @property
    def version(self) -> int:
        """Counts publications."""
        ...


@runtime_checkable
class Timed(Protocol):
    """Tells a loop's clock of its stages, and ends its waits when the loop does."""

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Takes the clock to tell, and the event that ends waits."""
        ...


@runtime_checkable
class TimedActor(Timed, Protocol):
    """An actor of ours: one that tells the clock, and knows what policy it runs."""

    @property
    def client(self) -> PolicyClient[Policy]:
        """Whose `policy` acts."""
        ...


@runtime_checkable
class Closable(Protocol):
    """Holds something until it is closed."""

    def close(self) -> None:
        """Lets go of it."""
        ...


@runtime_checkable
class SparingLogger(Protocol):
    """A logger that says beforehand whether it would keep a row."""

    def wants(self) -> bool:
        """Returns whether it would keep what is written now."""
        ...


class Counter(Protocol):
    """Counts what a run has done; other nodes' counts included."""

    def increment(self, **counts: float) -> Mapping[str, float]:
        """Adds to counts; returns all of them."""
        ...

    def get_counts(self) -> Mapping[str, float]:
        """Returns all counts."""
        ...
