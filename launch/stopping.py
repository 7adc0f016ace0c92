"""How a node's work ends: bounded, whatever C++ call it may be blocked in.

A signal handler in Python runs only when the main thread is in Python. A learner may
sit for minutes inside the dataset's C++ `next`, an actor inside a rate-limited insert;
so the work runs in a thread of its own and the main thread waits for the stop.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable

import launchpad as lp
from launchpad import context

GRACE_S = 3.0


def run_until_stopped(
    work: Callable[[], None], stop: threading.Event, grace_s: float = GRACE_S
) -> None:
    """Runs `work` until it returns, raises, or `stop` is set.

    Args:
      work: blocking function; it should look at `stop` when it can.
      stop: set when the program ends.
      grace_s: seconds that `work` gets to return after `stop` is set; past that it is
        left behind in its daemon thread.

    Raises:
      BaseException: whatever `work` raised, unless the program was ending: errors of
        peers that have gone already say nothing then.
    """
    done = threading.Event()
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=guarded, daemon=True, name="work").start()
    while not done.wait(0.1) and not stop.is_set():
        pass
    done.wait(grace_s)
    if failure and not stop.is_set():
        raise failure[0]


def serve_until_stopped(work: Callable[[], None], close: Callable[[], None]) -> None:
    """Runs a node's work, closes what it holds, and leaves a node's process at once.

    A process whose TensorFlow or Reverb threads are blocked cannot be torn down in
    order: its destructors wait for them. Everything was flushed by `close`, so the
    process of a multi-processing run leaves without them.
    """
    code = 0
    try:
        run_until_stopped(work, lp.stop_event())
    except BaseException:
        if not is_own_process():
            raise
        traceback.print_exc()
        code = 1
    finally:
        close()
    if is_own_process():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def is_own_process() -> bool:
    """Returns whether this node has a process to itself."""
    return (
        context.get_context().launch_type is context.LaunchType.LOCAL_MULTI_PROCESSING
    )
