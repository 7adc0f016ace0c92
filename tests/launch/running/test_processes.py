"""Order and time of the end, on processes that stand for nodes."""

from __future__ import annotations

import pathlib
import signal
import sys
import time

import launchpad as lp
import pytest
from launchpad.launch.run_locally import run_locally

from acme_quant.launch.running import processes
from acme_quant.launch.running.launcher_log import LauncherLog
from acme_quant.launch.running.processes import NodeFailed, Processes, Worker
from acme_quant.launch.running.restarts import Restarts
from acme_quant.launch.settings import process_groups

WAITS = "import time; time.sleep(60)"
# Stands for a node that saves when it is told to end.
SAVES = (
    "import pathlib, signal, sys, time\n"
    "def end(*_): pathlib.Path(sys.argv[1]).write_text(str(time.time())); sys.exit()\n"
    "signal.signal(signal.SIGRTMIN, end)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)
DEAF = SAVES.replace("end)", "lambda *_: None)").replace("time.sleep(60)", WAITS)


def worker(name: str, code: str, folder: pathlib.Path) -> Worker:
    command = run_locally.CommandToLaunch(
        command_as_list=[sys.executable, "-c", code, str(folder / f"{name}.end")],
        env_overrides={},
        resource_name=name,
        worker_name=name,
    )
    log = folder / f"{name}.log"
    return Worker(name, log, command, processes._spawn(command, log))


def supervise(folder: pathlib.Path, restarts: int, **codes: str) -> Processes:
    """Returns a supervisor of these processes, ready for signals."""
    made = Processes.__new__(Processes)
    made._workers = [worker(name, code, folder) for name, code in codes.items()]
    made._restarts = Restarts(restarts)
    made._log = LauncherLog(folder)
    deadline = time.monotonic() + 30
    for name, code in codes.items():
        while "ready" in code and not (folder / f"{name}.log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    return made


def ended(folder: pathlib.Path, name: str) -> float:
    return float((folder / f"{name}.end").read_text())


def test_groups_end_one_after_another(tmp_path: pathlib.Path) -> None:
    nodes = supervise(tmp_path, 0, replay=SAVES, learner=SAVES, actor_0=SAVES)
    nodes.stop()
    times = [ended(tmp_path, name) for name in ("actor_0", "learner", "replay")]
    assert times == sorted(times)


def test_a_node_that_hangs_leaves_the_next_its_time(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_S", 3.0)
    nodes = supervise(tmp_path, 0, actor_0=DEAF, learner=SAVES)
    began = time.monotonic()
    nodes.stop()
    assert 0.9 < time.monotonic() - began < 3.0
    assert ended(tmp_path, "learner")


def test_a_stopped_node_ends_too(tmp_path: pathlib.Path) -> None:
    nodes = supervise(tmp_path, 0, replay=SAVES)
    nodes._workers[0].process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    nodes.stop()
    assert time.monotonic() - began < 3.0
    assert ended(tmp_path, "replay")


def test_a_dropped_node_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    nodes = supervise(tmp_path, 0, evaluator=DEAF, learner=SAVES)
    began = time.monotonic()
    nodes.stop(early=True)
    assert time.monotonic() - began < 3.0
    assert ended(tmp_path, "learner")


def test_a_dead_node_is_named_with_its_signal_and_log(tmp_path: pathlib.Path) -> None:
    nodes = supervise(tmp_path, 3, learner=WAITS)
    nodes._workers[0].process.send_signal(signal.SIGKILL)
    nodes._workers[0].process.wait()
    with pytest.raises(NodeFailed, match=r"node learner was killed by signal 9 .*log"):
        nodes.check()


def test_a_dead_actor_is_started_again_and_its_last_words_are_told(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("acme_quant.launch.running.restarts.FIRST_PAUSE_S", 0.05)
    code = "import sys; sys.exit('KeyError: the cause')"
    nodes = supervise(tmp_path, 2, actor_0=code, actor_1=WAITS)
    with pytest.raises(NodeFailed, match="the cause; it died 3 times within 10"):
        while True:
            nodes.check()
            time.sleep(0.01)
    told = capsys.readouterr().out
    assert told.count("exited with 1: KeyError: the cause") == 2
    assert "1 of 2 actors live" in told and "2 of 2 actors live" in told
    assert told == "".join(
        line[20:] for line in (tmp_path / "logs" / "launcher.log").open()
    )
    process_groups.end_all()


def test_a_dropped_node_gets_to_close_what_it_holds(tmp_path: pathlib.Path) -> None:
    nodes = supervise(tmp_path, 0, evaluator=SAVES)
    nodes.stop(early=True)
    assert ended(tmp_path, "evaluator")


def test_an_evaluator_whose_environment_hangs_is_started_again(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = supervise(tmp_path, 1, evaluator="raise SystemExit('EnvironmentHangs')")
    nodes._workers[0].process.wait()
    nodes.check()
    assert nodes._workers[0].restart_at is not None
    said = capsys.readouterr().out
    assert "EnvironmentHangs" in said and "it is started again" in said


def test_launchpad_hands_over_its_commands_and_starts_nothing() -> None:
    # Fails when Launchpad renames the function that is replaced meanwhile.
    program = lp.Program("test")
    with program.group("nodes"):
        program.add_node(lp.PyNode(print, "started"))
    start = run_locally.run_commands_locally
    (command,) = processes._commands(program, {})
    assert command.command_as_list[0] == sys.executable
    assert dict(command.env_overrides) == {}
    assert run_locally.run_commands_locally is start


LEAVES_A_CHILD = (
    "import subprocess, sys\n"
    "child = subprocess.Popen(['sleep', '60'])\n"
    "open(sys.argv[1], 'w').write(str(child.pid))\n"
    "sys.exit('KeyError: the cause')\n"
)


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        try:
            if " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("ends", ["check", "stop", "end_all"])
def test_what_a_dead_node_started_ends_with_it(
    tmp_path: pathlib.Path, ends: str
) -> None:
    nodes = supervise(tmp_path, 1, actor_0=LEAVES_A_CHILD)
    worker = nodes._workers[0]
    while worker.exit_code is None:
        time.sleep(0.01)
    if ends == "end_all":
        process_groups.end_all()
    else:
        getattr(nodes, ends)()
    assert gone(int((tmp_path / "actor_0.end").read_text()))
    assert worker.exit_code == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_all_leaves_the_order_of_ends_to_the_launcher(
    tmp_path: pathlib.Path, name: str
) -> None:
    # A node is deaf from its first moment.
    nodes = supervise(tmp_path, 0, learner=SAVES)
    nodes._workers[0].process.send_signal(signal.Signals[name])
    time.sleep(0.3)
    nodes.check()
    assert not (tmp_path / "learner.end").exists()
    nodes.stop()
    assert ended(tmp_path, "learner")


HEARS = (
    "import launchpad as lp, subprocess, sys, threading, time\n"
    "from acme_quant.launch.nodes import stopping\n"
    "event = threading.Event()\n"
    "stopping.lp.stop_event = lambda: event\n"
    "stopping.stop_on_word()\n"
    "print('ready', flush=True)\n"
)


def test_a_node_hears_the_word_although_its_main_thread_is_busy_in_c(
    tmp_path: pathlib.Path,
) -> None:
    code = (
        "import threading, pathlib, os\n"
        "def end():\n"
        "    event.wait(); pathlib.Path(sys.argv[1]).write_text(str(time.time()))\n"
        "    os._exit(0)\n"
        "threading.Thread(target=end).start()\n"
        "import ctypes; ctypes.CDLL(None).sleep(60)\n"
    )
    nodes = supervise(tmp_path, 0, learner=HEARS + code)
    for number in process_groups.ENDING:
        nodes._workers[0].process.send_signal(number)
    began = time.monotonic()
    nodes.stop()
    assert time.monotonic() - began < 5.0
    assert ended(tmp_path, "learner")


def test_an_environment_may_still_end_the_processes_that_it_started(
    tmp_path: pathlib.Path,
) -> None:
    code = (
        "import multiprocessing\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "fork = multiprocessing.get_context('fork')\n"
        "forked = fork.Process(target=time.sleep, args=(60,))\n"
        "forked.start()\n"
        "time.sleep(0.5)\n"
        "child.terminate(); forked.terminate()\n"
        "codes = child.wait(), forked.join() or forked.exitcode\n"
        "open(sys.argv[1], 'w').write(str(codes))\n"
    )
    nodes = supervise(tmp_path, 0, actor_0=HEARS + code)
    worker = nodes._workers[0]
    while worker.exit_code is None:
        time.sleep(0.05)
    assert (tmp_path / "actor_0.end").read_text() == "(-15, -15)"
