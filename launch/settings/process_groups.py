"""Processes that lead a group of their own, and end with all that they started.

While a process has not been waited for in earnest, its number, and that of its group,
are nobody else's. So one is looked at without being reaped, and what is left of its
group is killed before it is. A process ends with the one that started it, too.

Schedulers send their signals to every process of a job at once. One that was started
`deaf` leaves the order of ends to us: nothing but our WORD ends it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

# What asks a command to end: a person, a scheduler, a terminal that closes, and
# Slurm's --signal=USR1 ahead of a time limit.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# What we say to our own processes; no scheduler sends it.
WORD = signal.SIGRTMIN
# What a killed process gets until it is gone, and a command until it has left.
GONE_S = 1.0
LEAVE_S = 2.0
_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
# Looked up before any fork: afterwards another thread may hold the loader's lock.
_prctl = ctypes.CDLL(None).prctl

# Pids of those that have not been ended; {pid: whether it has groups of its own}.
_live: dict[int, bool] = {}


def start(
    command: Sequence[str], deaf: bool = False, commands: bool = False, **options: Any
) -> subprocess.Popen:
    """Starts a process that leads a group and dies with us.

    Args:
      command: program and arguments.
      deaf: signals that ask to end are ignored, until the process says otherwise.
      commands: it is one of our commands, which ends what it has started itself.
      **options: of subprocess.Popen.
    """

    def before() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in ENDING if deaf else ():
            signal.signal(number, signal.SIG_IGN)

    process = subprocess.Popen(
        command, start_new_session=True, preexec_fn=before, **options
    )
    _live[process.pid] = commands
    return process


def exit_code(process: subprocess.Popen) -> int | None:
    """Returns the exit code, negative for a signal; None while it runs."""
    if process.returncode is not None:
        return process.returncode
    try:
        found = _look(process.pid)
    except ChildProcessError:  # Another thread has waited for it.
        return process.wait()
    if found is None:
        return None
    killed = found.si_code != os.CLD_EXITED
    return -found.si_status if killed else found.si_status


def wait(process: subprocess.Popen, timeout_s: float) -> bool:
    """Waits for the end; returns whether it came."""
    deadline = time.monotonic() + timeout_s
    while exit_code(process) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def tell(process: subprocess.Popen) -> None:
    """Says the WORD to a process that runs, also to one that was stopped."""
    if exit_code(process) is None:
        # One that was stopped hears nothing until it goes on. In this order: a signal
        # that waits for a stopped process may go to a thread that Python does not hear.
        os.killpg(process.pid, signal.SIGCONT)
        os.kill(process.pid, WORD)


def end(process: subprocess.Popen) -> int:
    """Kills what is left of the group; returns the exit code of the process."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        _live.pop(process.pid, None)
    return process.wait()


def end_all() -> None:
    """Kills all groups that have not been ended, and waits until they are gone.

    A signal's handler may call it: it asks no lock that an interrupted frame may hold.
    """
    commands = [pid for pid, has_groups in list(_live.items()) if has_groups]
    for pid in commands:
        _send(pid, signal.SIGTERM)
    _wait_for(commands, LEAVE_S)
    pids = list(_live)
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            continue
    _wait_for(pids, GONE_S)


def be_deaf() -> None:
    """Takes signals that ask to end for nothing, in this process but in no child of it.

    To be called in the main thread. A handler, as programs that are started inherit
    what is ignored: an environment could not end its own server any more.
    """
    for number in ENDING:
        signal.signal(number, _nothing)
    os.register_at_fork(after_in_child=_hear_again)


def _hear_again() -> None:
    for number in (*ENDING, WORD):
        if signal.getsignal(number) is _nothing:
            signal.signal(number, signal.SIG_DFL)


def _nothing(number: int, frame: FrameType | None) -> None:
    del number, frame


def hear_word() -> int:
    """Returns the end of a pipe that gets the number of each signal as a byte.

    To be called in the main thread, which may be blocked in C++ when the WORD comes:
    any other thread can read the pipe.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(WORD, _nothing)
    return read


def _look(pid: int) -> Any:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _wait_for(pids: Sequence[int], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for pid in pids:
        while time.monotonic() < deadline and not _gone(pid):
            time.sleep(_POLL_S)


def _gone(pid: int) -> bool:
    try:
        return _look(pid) is not None
    except OSError:  # Somebody has waited for it.
        return True
