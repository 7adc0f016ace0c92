"""Starts the processes of a Launchpad program and ends them in order.

Launchpad makes the program: handles, addresses, one command a node. Its own starter
cannot tell which worker failed, sends every signal to everybody at once, and ends a
run by killing its own process group. So the commands it made are started here.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence

import launchpad as lp
from launchpad.launch.run_locally import run_locally
from launchpad.nodes.python.local_multi_processing import PythonProcess

STOP_S = 12.0
_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Worker:
    """One node's process."""

    name: str
    log: pathlib.Path
    process: subprocess.Popen

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def last_words(self) -> str:
        """Returns the last line that the node wrote: with an error, its message."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")


class NodeFailed(RuntimeError):
    """A node ended before the run did."""

    def __init__(self, worker: Worker) -> None:
        """Describes how `worker` ended."""
        code = worker.exit_code
        how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        message = f"node {worker.name} {how}"
        words = worker.last_words()
        if code > 0 and words:
            message += f": {words}"
        super().__init__(f"{message} (its log: {worker.log})")
        self.worker = worker


class Supervisor:
    """The processes of one run.

    Every process leads a session of its own, so that Ctrl-C reaches the launcher
    alone, and dies with the launcher, however that ends.
    """

    def __init__(
        self,
        program: lp.Program,
        resources: Mapping[str, PythonProcess],
        log_dir: pathlib.Path,
    ) -> None:
        """Starts one process a node; its output goes to `log_dir/NAME.log`."""
        log_dir.mkdir(parents=True, exist_ok=True)
        names = _names(program)
        commands = _commands(program, resources)
        self._workers = [
            _start(name, command, log_dir) for name, command in zip(names, commands)
        ]

    def pids(self) -> dict[str, int]:
        """Returns {node name: process id} of the nodes that run."""
        running = [w for w in self._workers if w.exit_code is None]
        return {worker.name: worker.process.pid for worker in running}

    def check(self) -> None:
        """Raises NodeFailed when a node has ended: none ends by itself."""
        for worker in self._workers:
            if worker.exit_code is not None:
                raise NodeFailed(worker)

    def stop(self, then: Sequence[Sequence[str]] = ()) -> None:
        """Asks the nodes to end, each group of `then` after those before it.

        Args:
          then: groups of node names; nodes in none of them end first.

        Whatever runs STOP_S seconds after the first request is killed.
        """
        deadline = time.monotonic() + STOP_S
        later = {name for group in then for name in group}
        _end([w for w in self._workers if w.name not in later], deadline)
        for group in then:
            _end([w for w in self._workers if w.name in group], deadline)

    def kill(self) -> None:
        """Kills all nodes at once."""
        for worker in self._workers:
            _signal(worker, signal.SIGKILL)
        for worker in self._workers:
            worker.process.wait()


def _names(program: lp.Program) -> list[str]:
    """Returns one name a process: the group, numbered where a group has several."""
    names = []
    for label, nodes in program.groups.items():
        one = len(nodes) == 1
        names += [label if one else f"{label}_{i}" for i in range(len(nodes))]
    return names


def _commands(
    program: lp.Program, resources: Mapping[str, PythonProcess]
) -> list[run_locally.CommandToLaunch]:
    """Returns the commands Launchpad would start, in the order of `_names`."""
    commands: list[run_locally.CommandToLaunch] = []
    start = run_locally.run_commands_locally
    run_locally.run_commands_locally = lambda made, terminal: commands.extend(made)
    try:
        lp.launch(
            program,
            lp.LaunchType.LOCAL_MULTI_PROCESSING,
            local_resources=dict(resources),
        )
    finally:
        run_locally.run_commands_locally = start
    return commands


def _start(
    name: str, command: run_locally.CommandToLaunch, log_dir: pathlib.Path
) -> Worker:
    log = log_dir / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command.command_as_list,
            env={**os.environ, **command.env_overrides},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    return Worker(name, log, process)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when the launcher is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(workers: Iterable[Worker], deadline: float) -> None:
    workers = [w for w in workers if w.exit_code is None]
    for worker in workers:
        _signal(worker, signal.SIGTERM)
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(worker, signal.SIGKILL)
            worker.process.wait()


def _signal(worker: Worker, number: int) -> None:
    if worker.exit_code is None:
        # The session of the node, so that what it started ends with it.
        os.killpg(worker.process.pid, number)
