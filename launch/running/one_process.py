"""The launcher's face of a run in one process: `--num_actors=0`."""

from __future__ import annotations

import dataclasses
import threading
import time
import traceback
from concurrent import futures

from acme_quant.launch.nodes import counter
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.running import one_thread
from acme_quant.records.whole_records import WholeRecords

STOP_S = 20.0


class OneThread:
    """A run whose nodes take turns, in one thread beside the launcher's own."""

    def __init__(self, context: Context) -> None:
        """Starts the run."""
        self._counter = counter.make(context)
        context = dataclasses.replace(
            context, counter=self._counter, count_every_s=-1.0, waits=True
        )
        self._log = context.run.workdir / "logs" / "run.log"
        self._stop = threading.Event()
        self._done = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(context,), daemon=True, name="run"
        )
        self._thread.start()

    def pids(self) -> dict[str, int]:
        """Returns nothing: what the launcher's process uses is the run's own."""
        return {}

    def check(self) -> None:
        """Raises what ended the run, in one sentence that names its log."""
        if self._failure is not None:
            error = self._failure
            words = traceback.format_exception_only(type(error), error)[-1].strip()
            last = words.splitlines()[-1]
            raise RuntimeError(f"{last} (its log: {self._log})") from error

    def ask(self) -> futures.Future:
        """Returns the answer of a Coordinator, at once."""
        answer: futures.Future = futures.Future()
        counts = self._counter.get_counts()
        answer.set_result({"counts": counts, "done": self._done, "time": time.time()})
        return answer

    def stop(self, early: bool = False) -> None:
        """Ends the run after the step that is under way, and waits a bounded time."""
        del early
        self._stop.set()
        self._thread.join(STOP_S)

    def _run(self, context: Context) -> None:
        try:
            one_thread.make(context).run(self._stop)
            self._done = not self._stop.is_set()
        except BaseException as error:
            # First: nothing that is written below may keep the launcher waiting.
            self._failure = error
            log = WholeRecords(self._log)
            log.append(traceback.format_exc().encode())
            log.close()
