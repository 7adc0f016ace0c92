"""The first signal is noted, the second leaves at once, whatever it interrupts."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
START = """
import os, subprocess, sys, time
from acme_quant.launch.running import signals, temporary
from acme_quant.launch.settings import process_groups
signals.leave_on_signals()
"""
LISTENS = (
    START
    + """
signals.listen()
print("ready", flush=True)
while not signals.asked():
    time.sleep(0.01)
print(*signals.asked(), flush=True)
"""
)
# Waits for a process in C, spawns and prints: where a handler met a lock.
ENDS = (
    LISTENS
    + """
node = process_groups.start(["sleep", "60"])
while True:
    try:
        node.wait(0.001)
    except subprocess.TimeoutExpired:
        process_groups.end(process_groups.start(["true"]))
        print("going on")
        node.poll()
"""
)
GROUP = (
    START
    + """
node = process_groups.start(["sh", "-c", "sleep 67 & sleep 68"])
print("ready", flush=True)
time.sleep(60)
"""
)


def start(code: str, *before: str) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", code]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str], within_s: float = 10.0) -> str:
    try:
        return process.communicate(timeout=within_s)[0]
    finally:
        process.kill()


def in_group(group: int) -> list[int]:
    found = subprocess.run(["ps", "-eo", "pgid="], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split() if int(line) == group]


@pytest.mark.parametrize("name", ENDING)
def test_the_first_signal_is_noted_and_raises_nothing(name: str) -> None:
    process = start(LISTENS)
    process.send_signal(signal.Signals[name])
    assert end(process).split() == [name, str(128 + signal.Signals[name])]
    assert process.returncode == 0


@pytest.mark.parametrize("name", ENDING)
def test_before_a_run_listens_a_command_leaves_at_once(name: str) -> None:
    process = start(START + 'print("ready", flush=True); time.sleep(60)')
    process.send_signal(signal.Signals[name])
    process.wait(10)
    assert process.returncode == 128 + signal.Signals[name]
    assert f"ended by {name}" in process.stderr.read()


def test_a_callback_that_drops_exceptions_swallows_no_signal() -> None:
    # As of the garbage collector: what is raised in it is printed and forgotten.
    code = """
import gc, os, signal
gc.callbacks.append(lambda *_: signal.raise_signal(signal.SIGINT))
print("ready", flush=True)
gc.collect()
time.sleep(60)
"""
    process = start(START + code)
    end(process)
    assert process.returncode == 130


def test_a_second_signal_leaves_at_once_wherever_it_falls() -> None:
    rng = random.Random(0)
    for _ in range(15):
        process = start(ENDS)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.15 + 0.1 * rng.random())
        process.send_signal(signal.SIGTERM)
        end(process)
        assert process.returncode == 143


def test_the_two_signals_of_timeout_are_one() -> None:
    process = start(LISTENS + "time.sleep(0.3)")
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.02)
    assert end(process).split() == ["SIGTERM", "143"]
    assert process.returncode == 0


def test_the_word_of_a_command_is_the_first_signal_and_never_the_second() -> None:
    process = start(LISTENS.replace("print(*", "time.sleep(0.5); print(*"))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    process.send_signal(signal.SIGRTMIN)
    assert end(process).split() == ["SIGHUP", "129"]


def test_who_leaves_ends_the_groups_of_what_it_started() -> None:
    process = start(GROUP)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    child = int(children.read_text())
    assert len(in_group(child)) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143
    deadline = time.monotonic() + 5.0
    while in_group(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not in_group(child)


def test_nohup_keeps_a_command_from_its_terminals_end() -> None:
    process = start(LISTENS, "nohup")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert end(process).split() == ["SIGTERM", "143"]


@pytest.mark.parametrize("command", ["doctor", "train", "bench"])
def test_commands_leave_with_nothing_temporary_left(
    tmp_path: pathlib.Path, command: str
) -> None:
    program = "from acme_quant.launch import cli; cli.main()"
    rest = {"train": [f"--workdir={tmp_path / 'run'}"], "bench": ["policy"]}
    folder = tmp_path / "tmp"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", program, command, *rest.get(command, [])],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not any(folder.iterdir()):
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert not any(folder.iterdir())
