"""An n-step transition adder that costs a step tens of microseconds.

It writes to the same Reverb tables the same items as Acme's `NStepTransitionAdder`
(`acme/adders/reverb/transition.py`, whose docstring defines them): at the start of an
episode s_0 -> s_1, ..., s_0 -> s_n, then s_t -> s_{t+n}, and at its end the shorter
s_{T-n+1} -> s_T, ..., s_{T-1} -> s_T.

Three things make it cheap. Rows go to Reverb's C++ writer as flat lists, and items
are made of the references it returned, so no structure is walked more than once.
Rows travel in chunks of `chunk_length`, not one by one. Confirmation is awaited once
in `chunk_length` items; at an episode's end, where Acme's adder waits for all of them,
items are sent.
The adders of several environments share one writer.
"""

from __future__ import annotations

import collections
import math
import threading
import time
import warnings
from typing import Any, Callable, Mapping, Optional

import dm_env
import numpy as np
import tree
from acme import specs, types
from acme.adders import base

from acme_quant.acting.timing import ADDER, WAITING, StageClock
from acme_quant.peers import calls
from acme_quant.replay import client as replay_client

# `acme.adders.reverb.DEFAULT_PRIORITY_TABLE`, whose module imports TensorFlow.
DEFAULT_TABLE = "priority_table"

PriorityFns = Mapping[str, Optional[Callable[[types.Transition], float]]]

_POLL_MS = 500


class ItemWriter:
    """One stream of rows and items to a replay server; adders may share it.

    A server that answers but does not take items (its rate limiter waits for the
    learner) is waited for without end; one that does not answer is given up.
    """

    def __init__(
        self,
        client: Any,
        keep_alive_rows: int,
        *,
        chunk_length: int = 16,
        max_in_flight_items: int = 24,
        server_timeout_s: float = calls.MAX_SILENCE_S,
    ) -> None:
        """Prepares the writer; the stream is opened by the first row.

        Args:
          client: a server's address, a ReplayClient or a `reverb.Client`.
          keep_alive_rows: rows back to which an item may refer.
          chunk_length: rows sent together, and items between two confirmations. With
            `max_in_flight_items` it stays under 50, where Reverb begins to warn.
          max_in_flight_items: items that may be unconfirmed after a confirmation.
          server_timeout_s: seconds without an answer after which it is an error.
        """
        self._client = replay_client.connect(client)
        self._keep_alive_rows = keep_alive_rows
        self._chunk_length = chunk_length
        self._max_in_flight_items = max_in_flight_items
        self._server_timeout_s = server_timeout_s
        self._stop = threading.Event()
        self._clock = StageClock()
        self._unconfirmed = 0
        self._stream: Any = None
        self.items = 0

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells `clock` of waits from now on, and ends them when `stop` is set."""
        self._clock, self._stop = clock, stop

    def append(self, row: list) -> list:
        """Appends one row of columns, None where a column has no value.

        Returns:
          A reference per column, alive for `keep_alive_rows` rows.

        Raises:
          ReplayUnavailable: if the server does not answer when the stream is opened.
        """
        if self._stream is None:
            self._open()
        return self._stream.Append(row)

    def create_item(self, table: str, priority: float, columns: list) -> None:
        """Queues an item whose column i is the row that `columns[i]` refers to.

        Raises:
          ValueError: if the columns do not fit the table's signature.
          ReplayUnavailable: if the server does not answer.
        """
        self._stream.CreateItem(
            table, priority, [[ref] for ref in columns], [True] * len(columns)
        )
        self.items += 1
        self._unconfirmed += 1
        if self._unconfirmed >= self._chunk_length:
            self.flush(self._max_in_flight_items)

    def flush(self, remaining: int = 0) -> None:
        """Waits until at most `remaining` items are unconfirmed, or for `stop`.

        Raises:
          ReplayUnavailable: if the server does not answer.
        """
        self._unconfirmed = 0
        if self._stream is None:
            return
        self._clock.lap(ADDER)
        silent_since = None
        while not self._stop.is_set() and not self._confirmed(remaining):
            if self._client.answers():
                silent_since = None
                continue
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > self._server_timeout_s:
                self._give_up()
        self._clock.lap(WAITING)

    def send(self) -> None:
        """Has all items sent now; waits for them no longer than a millisecond."""
        if self._stream is not None:
            self._clock.lap(ADDER)
            # The least wait that Reverb knows: 0 stands for one without end.
            self._confirmed(0, timeout_ms=1)
            self._clock.lap(WAITING)

    def close(self) -> None:
        """Ends the stream; items that are not confirmed are lost. Idempotent."""
        # Reverb's own destructor would wait for a silent server without end.
        if self._stream is not None:
            self._stream.Close()
            self._stream = None

    def __del__(self) -> None:
        """Closes the stream."""
        if getattr(self, "_stream", None) is not None:
            self.close()

    def _open(self) -> None:
        """Opens the stream once the server answers."""
        self._stream = self._client.trajectory_writer(
            self._chunk_length,
            self._keep_alive_rows,
            self._server_timeout_s,
            self._stop,
        )

    def _confirmed(self, remaining: int, timeout_ms: int = _POLL_MS) -> bool:
        """Returns whether all but `remaining` items are confirmed within the time."""
        try:
            self._stream.Flush(remaining, timeout_ms)
        except RuntimeError as error:
            if "Timeout exceeded" not in str(error):
                raise
            return False
        return True

    def _give_up(self) -> None:
        self.close()
        raise replay_client.ReplayUnavailable(
            f"The replay server at {self._client.server_address} did not answer for "
            f"{self._server_timeout_s:.0f} s, and items wait to be written."
        )


class NStepTransitionAdder(base.Adder):
    """Adds n-step transitions, item by item those of Acme's adder of this name.

    One difference cannot be seen in an item: rows of successive episodes carry one
    Reverb episode id, since a shared writer cannot end an episode of one environment.
    """

    def __init__(
        self,
        client: Any,
        n_step: int,
        discount: float,
        *,
        priority_fns: PriorityFns | None = None,
        writer: ItemWriter | None = None,
        **writer_options: Any,
    ) -> None:
        """Initializes the adder.

        Args:
          client: a server's address, a ReplayClient or a `reverb.Client`.
          n_step: steps folded into one transition, at least 1.
          discount: the agent's discount of a step.
          priority_fns: priority of a transition per table; None stands for 1.0.
          writer: writer to share with other adders; its own if None.
          **writer_options: of ItemWriter, for a writer of its own.

        Raises:
          ValueError: if n_step is less than 1.
        """
        if n_step < 1:
            raise ValueError(f"n_step must be at least 1, got {n_step}.")
        self._writer = writer or ItemWriter(client, n_step + 2, **writer_options)
        self._priority_fns = dict(priority_fns or {DEFAULT_TABLE: None})
        self._uniform = not any(self._priority_fns.values())
        self._discount = np.float32(discount)
        # The window, s_{t-n} ... s_t: what the writer made of its observations, and
        # of the action and extras, the rewards and discounts of its steps.
        self._observations: collections.deque = collections.deque(maxlen=n_step + 1)
        self._steps: collections.deque = collections.deque(maxlen=n_step)
        self._rewards: collections.deque = collections.deque(maxlen=n_step)
        self._discounts: collections.deque = collections.deque(maxlen=n_step)
        self._structure: tuple = ((), (), ())

    @property
    def writer(self) -> ItemWriter:
        """The writer, to be shared with or to be closed."""
        return self._writer

    def bind(self, clock: StageClock, stop: threading.Event) -> None:
        """Tells `clock` of waits for the server, and ends them when `stop` is set."""
        self._writer.bind(clock, stop)

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Records the first observation of an episode.

        Raises:
          ValueError: if the timestep is not the first of an episode.
        """
        if not timestep.first():
            raise ValueError(
                "add_first expects the first timestep of an episode, got one of type "
                f"{timestep.step_type!r}."
            )
        self._clear()
        self._observations.append(
            self._writer.append(tree.flatten(timestep.observation))
        )

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        """Records an action and what came of it, and writes what is complete.

        Raises:
          ValueError: if add_first was not called, or the data does not fit a table.
          ReplayUnavailable: if the replay server does not answer.
        """
        if not self._observations:
            raise ValueError("add expects add_first to have been called before.")
        extras = () if extras is None else extras
        observation = tree.flatten(next_timestep.observation)
        action_leaves = tree.flatten(action)
        self._rewards.append(np.asarray(next_timestep.reward)[()])
        self._discounts.append(np.asarray(next_timestep.discount)[()])
        refs = self._writer.append(
            [*observation, *self._sums(0), *action_leaves, *tree.flatten(extras)]
        )
        sums = len(observation)
        actions, rest = sums + 2, sums + 2 + len(action_leaves)
        self._observations.append(refs[:sums])
        self._steps.append((refs[actions:rest], refs[rest:]))
        self._structure = (next_timestep.observation, action, extras)
        self._write(0, refs[sums:actions])
        if next_timestep.last():
            self._write_last()
            self._clear()
            self._writer.send()

    def reset(self, timeout_ms: int | None = None) -> None:
        """Forgets the episode and waits until its items are in replay."""
        del timeout_ms
        self._clear()
        self._writer.flush()

    def close(self) -> None:
        """Ends the writer's stream; call `reset` first to keep what is unconfirmed."""
        self._writer.close()

    @classmethod
    def signature(
        cls,
        environment_spec: specs.EnvironmentSpec,
        extras_spec: types.NestedSpec = (),
    ) -> types.Transition:
        """Returns the signature of a table, Acme's; imports TensorFlow."""
        from acme.adders import reverb as adders

        return adders.NStepTransitionAdder.signature(environment_spec, extras_spec)

    def _clear(self) -> None:
        """Forgets the episode."""
        self._observations.clear()
        self._steps.clear()
        self._rewards.clear()
        self._discounts.clear()

    def _sums(self, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns return and discount of the window from its step `start` on.

        In the order of Acme's `_compute_cumulative_quantities`, so to the same bit.
        """
        rewards = list(self._rewards)[start:]
        discounts = list(self._discounts)[start:]
        total, sum_, decay = discounts[0], rewards[0], self._discount
        if total.ndim:
            sum_ = np.broadcast_to(sum_, np.broadcast(sum_, total).shape)
        for reward, discount in zip(rewards[1:], discounts[1:]):
            total = total * decay
            sum_ = sum_ + reward * total
            total = total * discount
        # Asked of scalars alone: np.isfinite costs a step ten times as much.
        if sum_.ndim or not math.isfinite(sum_):
            sum_ = _held(sum_)
        return np.asarray(sum_), np.asarray(total)

    def _write(self, start: int, sums: list) -> None:
        """Writes the transition from the window's step `start` to its end."""
        action, extras = self._steps[start]
        columns = [
            *(*self._observations[start], *action, *sums),
            *(*self._observations[-1], *extras),
        ]
        transition = None if self._uniform else self._transition(columns)
        for table, priority_fn in self._priority_fns.items():
            priority = priority_fn(transition) if priority_fn else 1.0
            self._writer.create_item(table, priority, columns)

    def _write_last(self) -> None:
        """Writes the shorter transitions into the episode's last observation."""
        absent = [None] * len(self._observations[-1])
        for start in range(1, len(self._steps)):
            refs = self._writer.append([*absent, *self._sums(start)])
            self._write(start, refs[len(absent) :])

    def _transition(self, columns: list) -> types.Transition:
        """Returns the transition that `columns` refer to, as NumPy arrays."""
        observation, action, extras = self._structure
        like = types.Transition(observation, action, 0, 0, observation, extras)
        return tree.unflatten_as(like, [ref.numpy() for ref in columns])


def _held(sums: np.ndarray) -> np.ndarray:
    """Returns sums of finite rewards, at most the largest number of their type.

    No loss or gradient of an infinite return is a number.
    """
    if not np.isinf(sums).any():
        return sums
    largest = np.finfo(sums.dtype).max
    warnings.warn(
        f"expected {sums.dtype} sums of n rewards, got larger ones: {largest:.3g} is "
        "written in their place.",
        RuntimeWarning,
        stacklevel=2,
    )
    return np.clip(sums, -largest, largest)


def make_adders(
    client: Any, num_envs: int, n_step: int, discount: float, **options: Any
) -> list[NStepTransitionAdder]:
    """Returns one adder per environment of a vector, all on one writer.

    Args:
      client: a server's address, a ReplayClient or a `reverb.Client`.
      num_envs: environments stepped together.
      n_step: steps folded into one transition.
      discount: the agent's discount of a step.
      **options: `priority_fns`, and those of ItemWriter.
    """
    priority_fns = options.pop("priority_fns", None)
    # In a step each environment adds one row of observations.
    writer = ItemWriter(client, num_envs * (n_step + 2), **options)
    return [
        NStepTransitionAdder(
            client, n_step, discount, priority_fns=priority_fns, writer=writer
        )
        for _ in range(num_envs)
    ]
