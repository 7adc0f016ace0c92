"""Whose CPU time it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from acme_quant.records import cpu_times

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
# A node whose environment starts a server, which burns and says so.
PARENT = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", {burn!r} + "print(1, flush=True); time.sleep(60)"],
    stdin=subprocess.DEVNULL,  # Or it would take the word that is the node's.
    start_new_session={apart},
)
for line in sys.stdin:
    if line.strip() == "end":
        child.kill()
        child.wait()
        print(2, flush=True)
"""


@pytest.mark.parametrize("apart", [False, True])
def test_what_an_environments_own_process_uses_is_its_actors(apart: bool) -> None:
    times = cpu_times.CpuTimes({"actor": "actor"})
    node = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(burn=BURN, apart=apart)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    node.stdout.readline()
    times.sample({"actor_0": node.pid})
    used = times._by_role()["actor"]
    assert used >= 0.29
    # A child that ended and was waited for is counted once.
    node.stdin.write("end\n")
    node.stdin.flush()
    node.stdout.readline()
    times.sample({"actor_0": node.pid})
    assert used <= times._by_role()["actor"] <= used + 0.25
    node.communicate()


def test_seconds_of_a_process_that_nobody_waited_for_are_kept() -> None:
    used = cpu_times._Used()
    for reading in (2.0, 5.0, 3.0, 4.0):
        used.note(reading, since=0.0)
    assert used.seconds == 6.0
