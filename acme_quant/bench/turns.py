"""Times of calls on a machine that is not idle: the best of many short stretches.

A stretch is shorter than a scheduler's time slice, so that some of them run undisturbed
however busy the machine is. The calls take turns for several rounds, so that a busy
moment falls on all of them.
"""

from __future__ import annotations

import time
from typing import Callable, List, Sequence

import numpy as np

STRETCH_S = 0.0005

Call = Callable[[], object]


def take_turns(calls: Sequence[Call], rounds: int, seconds: float) -> List[float]:
    """Returns the best time of each call, in microseconds; the calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            best[i] = min(best[i], turn(call, seconds))
    return [1e6 * time_s for time_s in best]


def turn(call: Call, seconds: float) -> float:
    """Returns the best mean time of a call in short stretches, in seconds."""
    call()  # Brings the engine's weights back into the caches.
    best = stretch(call, 1)
    count = max(1, int(STRETCH_S / best))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, stretch(call, count))
    return best


def stretch(call: Call, count: int) -> float:
    """Returns the mean seconds of `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def copy_bandwidth(nbytes: int) -> float:
    """Returns bytes read and written a second when copying a block again and again."""
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    return 2 * nbytes / turn(lambda: np.copyto(target, source), seconds=0.1)
