"""CPU seconds of a run's processes, by the role of their node.

The shares tell which nodes the machine worked for; energy is divided by them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

# Whose is no node's: the launcher's own process, and the machine's other programs.
SERVICES, OTHER = "services", "other"
# The kernel tells the boot time, and with it a process's start, in whole seconds.
_CLOCK_SLACK_S = 2.0


def role_of(node: str, roles: Mapping[str, str]) -> str:
    """Returns the role of a node, numbered or not; SERVICES if it is in no list."""
    return roles.get(re.sub(r"_\d+$", "", node), SERVICES)


def all_roles(roles: Mapping[str, str]) -> tuple[str, ...]:
    """Returns every role once, in the order of the list and OTHER last."""
    return (*dict.fromkeys((*roles.values(), SERVICES)), OTHER)


class CpuTimes:
    """Adds up the CPU seconds of each role and of the whole machine since its start.

    A node's are those of its process and of all that it started, such as the server of
    an environment. A process older than this object is counted from the first sample
    on, a younger one from its own start. One that ended keeps what it had used at the
    last sample.
    """

    def __init__(self, roles: Mapping[str, str]) -> None:
        """Notes the machine's CPU time so far; `roles` is {node: role}."""
        self._roles = roles
        self._used: dict[tuple[str, int], _Used] = {}
        self._began = time.time()
        self._busy_before = _machine_busy_s()
        self._busy = 0.0
        self._note({os.getpid(): SERVICES}, _processes())

    def sample(self, pids: Mapping[str, int]) -> None:
        """Reads the CPU time of the processes {node: pid}, and of this one."""
        roles = {pid: role_of(node, self._roles) for node, pid in pids.items()}
        self._note({os.getpid(): SERVICES, **roles}, _processes())
        self._busy = _machine_busy_s() - self._busy_before

    def _note(self, roles: Mapping[int, str], processes: _Processes) -> None:
        seconds = dict.fromkeys(roles, 0.0)
        for pid, process in processes.items():
            node = _node_of(pid, processes, roles)
            if node is not None:
                seconds[node] += process.own_s
                # This process waits for the nodes, which are counted by themselves.
                seconds[node] += 0.0 if node == os.getpid() else process.waited_s
        for pid in roles.keys() & processes.keys():
            older = processes[pid].created < self._began - _CLOCK_SLACK_S
            used = self._used.setdefault((roles[pid], pid), _Used())
            used.note(seconds[pid], since=seconds[pid] if older else 0.0)

    def total(self) -> float:
        """Returns the CPU seconds of all roles together."""
        return sum(self._by_role().values())

    def shares(self) -> dict[str, float]:
        """Returns role -> share of all CPU time; empty before there is any."""
        seconds = self._by_role()
        total = sum(seconds.values())
        return {role: s / total for role, s in seconds.items()} if total else {}

    def _by_role(self) -> dict[str, float]:
        seconds = dict.fromkeys(all_roles(self._roles), 0.0)
        for (role, _), used in self._used.items():
            seconds[role] += used.seconds
        # The kernel's tick counts the machine coarser than the processes.
        seconds[OTHER] += max(0.0, self._busy - sum(seconds.values()))
        return seconds


@dataclasses.dataclass
class _Used:
    """What a node has used, which never falls.

    A process that nobody waited for takes its seconds along when it ends.
    """

    seconds: float = 0.0
    _last: float | None = None

    def note(self, now: float, since: float) -> None:
        """Takes a reading; the first counts from `since`."""
        last = since if self._last is None else self._last
        self.seconds += max(0.0, now - last)
        self._last = now


class _Process(NamedTuple):
    """One process: its CPU seconds, and those of ended children it waited for."""

    parent: int
    session: int
    own_s: float
    waited_s: float
    created: float


_Processes = dict[int, _Process]


def _processes() -> _Processes:
    """Returns all processes of the machine, in one look of some milliseconds."""
    import psutil

    tick = float(os.sysconf("SC_CLK_TCK"))
    boot = psutil.boot_time()
    found = {}
    for folder in os.scandir("/proc"):
        if not folder.name.isdecimal():
            continue
        try:
            with open(f"/proc/{folder.name}/stat", "rb") as file:
                # After the name, which may hold spaces and brackets: see proc(5).
                row = file.read().rpartition(b")")[2].split()
        except OSError:  # It has just ended.
            continue
        times = [int(field) / tick for field in (*row[11:15], row[19])]
        found[int(folder.name)] = _Process(
            parent=int(row[1]),
            session=int(row[3]),
            own_s=times[0] + times[1],
            waited_s=times[2] + times[3],
            created=boot + times[4],
        )
    return found


def _node_of(pid: int, processes: _Processes, nodes: Collection[int]) -> int | None:
    """Returns the node that a process belongs to: its own, or that of who started it.

    One whose parent has ended is found by the session that each node leads.
    """
    at: int | None = pid
    for _ in range(len(processes)):
        if at in nodes or at not in processes:
            break
        at = processes[at].parent
    if at in nodes:
        return at
    session = processes[pid].session
    return session if session in nodes else None


def _machine_busy_s() -> float:
    """CPU seconds that the machine's processors were not idle, since it booted."""
    import psutil

    times = psutil.cpu_times()
    return times.user + times.nice + times.system + getattr(times, "steal", 0.0)
