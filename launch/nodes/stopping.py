"""How a node's work ends: bounded, whatever C++ call it may be blocked in.

A signal handler in Python runs only when the main thread is in Python. A learner may
sit for minutes inside the dataset's C++ `next`, an actor inside a rate-limited insert;
so the work runs in a thread of its own and the main thread waits for the stop.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

import launchpad as lp
from launchpad import context

from acme_quant.launch.settings import process_groups
from acme_quant.records import say

GRACE_S = 3.0

Work = Callable[[threading.Event], None]


def run_until_stopped(
    works: Sequence[Work],
    stop: threading.Event,
    grace_s: float = GRACE_S,
) -> None:
    """Runs each work in a thread until one returns, one raises, or `stop` is set.

    Args:
      works: blocking functions of `stop`; they should look at it when they can.
      stop: set when the program ends.
      grace_s: seconds that the works get to return after `stop` is set; past that they
        are left behind in their daemon threads.

    Raises:
      BaseException: whatever a work raised first, unless the program was ending: errors
        of peers that have gone already say nothing then.
    """
    ended = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Work) -> None:
        try:
            work(stop)
        except BaseException as error:
            if not stop.is_set():
                failures.append(error)
        ended.set()

    threads = [threading.Thread(target=guarded, args=[w], daemon=True) for w in works]
    for thread in threads:
        thread.start()
    while not ended.wait(0.1) and not stop.is_set():
        pass
    if failures:
        raise failures[0]
    deadline = time.monotonic() + grace_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def serve_until_stopped(
    *works: Work, close: Callable[[], None], grace_s: float = GRACE_S
) -> None:
    """Runs a node's works, closes what it holds, and leaves a node's process at once.

    A process whose TensorFlow or Reverb threads are blocked cannot be torn down in
    order: its destructors wait for them. Everything was flushed by `close`, so the
    process of a multi-processing run leaves without them.
    """
    code = 0
    try:
        run_until_stopped(works, lp.stop_event(), grace_s)
    except BaseException:
        if not is_own_process():
            raise
        say.say(traceback.format_exc(), sys.stderr)
        code = 1
    finally:
        close()
    if is_own_process():
        say.flush_all()
        os._exit(code)


def stop_on_word() -> None:
    """Has this node's process end when its launcher says so, and on nothing else.

    To be called in the main thread of its process.
    """
    process_groups.be_deaf()
    pipe = process_groups.hear_word()
    # A thread: a handler that set the event might wait for the frame it interrupts.
    listen = threading.Thread(
        target=_stop_on_word, args=(pipe, lp.stop_event()), daemon=True, name="word"
    )
    listen.start()


def _stop_on_word(pipe: int, stop: threading.Event) -> None:
    while process_groups.WORD not in os.read(pipe, 64):
        continue
    stop.set()


def is_own_process() -> bool:
    """Returns whether this node has a process to itself."""
    return (
        context.get_context().launch_type is context.LaunchType.LOCAL_MULTI_PROCESSING
    )
