from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from acme_quant.launch.running.lock import WorkdirInUse, WorkdirLock

HOLD = """
import pathlib, sys
from acme_quant.launch.running.lock import WorkdirLock
lock = WorkdirLock(pathlib.Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_is_told_the_pid_of_the_first(tmp_path: pathlib.Path) -> None:
    first, second = WorkdirLock(tmp_path), WorkdirLock(tmp_path)
    first.acquire()
    with pytest.raises(WorkdirInUse, match=f"pid {os.getpid()} "):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_killed_holder_holds_no_more(tmp_path: pathlib.Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(WorkdirInUse, match=f"pid {holder.pid} "):
            WorkdirLock(tmp_path).acquire()
        holder.kill()
        holder.wait()
        WorkdirLock(tmp_path).acquire()
