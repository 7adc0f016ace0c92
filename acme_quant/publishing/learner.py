"""Learners that hand out the variables of one moment, and their policy as a payload."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import TYPE_CHECKING, Any

import numpy as np
from acme import core

if TYPE_CHECKING:
    from acme_quant.publishing.answer import Answer
    from acme_quant.publishing.publisher import PolicyPublisher

# Between two looks at whether the publisher of a waiting learner has failed.
WATCH_S = 0.5


class ConsistentLearner(core.Learner):
    """An Acme learner whose variables are never read in the middle of a step.

    Acme's learners update their variables one after another while they step, so
    variables that a peer reads meanwhile may stem from two steps. Here a request waits
    for the end of the step that runs; but not for ever, since a learner that waits for
    data changes nothing.

    Attributes:
      step_s: seconds spent in the wrapped learner's steps.
      export_s: seconds spent on handing out variables between two steps.
    """

    # Longer than a step, shorter than what a peer takes for a dead learner.
    STEP_TIMEOUT_S = 2.0

    def __init__(self, learner: core.Learner, steps: int = 0) -> None:
        """Wraps `learner`, which has taken `steps` steps in an earlier run."""
        self._learner = learner
        self._steps = self._first_step = steps
        self._requests: queue.SimpleQueue = queue.SimpleQueue()
        self.step_s = self.export_s = 0.0

    def step(self) -> None:
        """Takes one learner step, then answers who asked meanwhile."""
        began = time.perf_counter()
        self._learner.step()
        stepped = time.perf_counter()
        self._steps += 1
        while not self._requests.empty():
            names, request = self._requests.get()
            if request.set_running_or_notify_cancel():
                request.set_result(self._learner.get_variables(names))
        self.step_s += stepped - began
        self.export_s += time.perf_counter() - stepped

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        """Returns the variables between two steps, under Acme's names."""
        if self._steps == self._first_step:
            return self._learner.get_variables(names)
        request: futures.Future = futures.Future()
        self._requests.put((names, request))
        try:
            return request.result(self.STEP_TIMEOUT_S)
        except futures.TimeoutError:
            if not request.cancel():
                return request.result()
            return self._learner.get_variables(names)

    def get_steps(self) -> int:
        """Returns the number of learner steps done."""
        return self._steps

    def save(self) -> Any:
        """Returns the wrapped learner's state."""
        return self._learner.save()

    def restore(self, state: Any) -> None:
        """Restores the wrapped learner's state."""
        self._learner.restore(state)


class PublishingLearner(ConsistentLearner):
    """A learner that quantizes its policy in its own process and publishes it.

    The float32 variables cross no process boundary. Quantizing runs in a thread beside
    the steps.
    """

    def __init__(
        self,
        learner: core.Learner,
        make_publisher: Callable[[ConsistentLearner], PolicyPublisher],
        steps: int = 0,
    ) -> None:
        """Wraps `learner` and starts to publish.

        Args:
          learner: the learner to wrap.
          make_publisher: makes the publisher of a variable source.
          steps: steps that it has taken in an earlier run.
        """
        super().__init__(learner, steps)
        self._publisher = make_publisher(self)
        self._failure: BaseException | None = None
        self._start()

    def step(self) -> None:
        """Takes one learner step.

        Raises:
          Exception: what ended the publisher, such as too many policies with a NaN.
        """
        self._check()
        super().step()

    def watch(self, stop: threading.Event) -> None:
        """Waits for `stop`: a learner that waits for data takes no step.

        Raises:
          Exception: as `step`.
        """
        while not stop.wait(WATCH_S):
            self._check()

    def get_policy(self, newer_than: int, host: str) -> Answer:
        """Answers an actor's question; see `PolicyPublisher.get_policy`."""
        return self._publisher.get_policy(newer_than, host)

    def get_status(self) -> Mapping[str, float]:
        """Returns the publisher's counts; see `PolicyPublisher.get_status`."""
        return self._publisher.get_status()

    def get_float32(self) -> tuple[int, Sequence[np.ndarray]]:
        """Returns what was quantized last; see `PolicyPublisher.get_float32`."""
        return self._publisher.get_float32()

    def publish_last(self) -> None:
        """Publishes the newest policy; see `PolicyPublisher.publish_last`."""
        self._publisher.publish_last()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        threading.Thread(target=self._publish, daemon=True, name="publish").start()

    def _publish(self) -> None:
        try:
            self._publisher.run()
        except BaseException as error:
            self._failure = error


class SequentialLearner(PublishingLearner):
    """A publishing learner without a thread: it publishes between two of its steps.

    Which steps are published depends on their number alone. Only the thread that steps
    it may ask for its variables.
    """

    def step(self) -> None:
        """Takes one learner step, and publishes if it is time to."""
        super().step()
        self._publisher.poll()

    def get_variables(self, names: list[str]) -> list[list[np.ndarray]]:
        """Returns the variables, under Acme's names."""
        return self._learner.get_variables(names)

    def _start(self) -> None:
        self._publisher.poll()
