"""CPU seconds of a run's processes, by the role of their node.

The shares tell which nodes the machine worked for; energy is divided by them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

ROLES = ("actor", "learner", "quantizer", "replay", "evaluator", "services", "other")
# The kernel tells the boot time, and with it a process's start, in whole seconds.
_CLOCK_SLACK_S = 2.0


def role_of(node: str) -> str:
    """Returns the role of a node: its name without a number, or `services`."""
    role = re.sub(r"_\d+$", "", node)
    return role if role in ROLES else "services"


class CpuTimes:
    """Adds up the CPU seconds of each role and of the whole machine since its start.

    A process older than this object is counted from the first sample on, a younger one
    from its own start. One that ended keeps what it had used at the last sample.
    """

    def __init__(self) -> None:
        """Notes the machine's CPU time so far."""
        self._seconds: dict[tuple[str, int], float] = {}
        self._before: dict[tuple[str, int], float] = {}
        self._began = time.time()
        self._busy_before = _machine_busy_s()
        self._own_before = sum(os.times()[:2])
        self._busy = 0.0

    def sample(self, pids: Mapping[str, int]) -> None:
        """Reads the CPU time of the processes {node: pid}."""
        for node, pid in pids.items():
            key = role_of(node), pid
            used, created = _process_s(pid)
            if used is None:
                continue
            older = created < self._began - _CLOCK_SLACK_S
            before = self._before.setdefault(key, used if older else 0.0)
            self._seconds[key] = used - before
        own = sum(os.times()[:2]) - self._own_before
        self._seconds["services", os.getpid()] = own
        self._busy = _machine_busy_s() - self._busy_before

    def total(self) -> float:
        """Returns the CPU seconds of all roles together."""
        return sum(self._by_role().values())

    def shares(self) -> dict[str, float]:
        """Returns role -> share of all CPU time; empty before there is any."""
        seconds = self._by_role()
        total = sum(seconds.values())
        return {role: s / total for role, s in seconds.items()} if total else {}

    def _by_role(self) -> dict[str, float]:
        seconds = dict.fromkeys(ROLES, 0.0)
        for (role, _), used in self._seconds.items():
            seconds[role] += used
        # The kernel's tick counts the machine coarser than the processes.
        seconds["other"] += max(0.0, self._busy - sum(seconds.values()))
        return seconds


def _process_s(pid: int) -> tuple[float | None, float]:
    """Returns the CPU seconds of a process with its ended children, and its start."""
    import psutil

    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        created = process.create_time()
    except psutil.Error:
        return None, 0.0
    children = times.children_user + times.children_system
    return times.user + times.system + children, created


def _machine_busy_s() -> float:
    """CPU seconds that the machine's processors were not idle, since it booted."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "steal", 0.0)
