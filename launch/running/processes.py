"""Starts the processes of a Launchpad program and ends them in order.

Launchpad makes the program: handles, addresses, one command a node. Its own starter
cannot tell which worker failed, sends every signal to everybody at once, and ends a
run by killing its own process group. So the commands it made are started here.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import time
from collections.abc import Iterable, Mapping
from concurrent import futures

import launchpad as lp
from launchpad.launch.run_locally import run_locally
from launchpad.nodes.python.local_multi_processing import PythonProcess

from acme_quant.launch import nodes
from acme_quant.launch.nodes import Node
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.program import make_program
from acme_quant.launch.running.launcher_log import LauncherLog
from acme_quant.launch.running.restarts import Restarts
from acme_quant.launch.settings import process_groups
from acme_quant.records.tail import last_line

STOP_S = 12.0
GROUP_S = 2.0


@dataclasses.dataclass
class Worker:
    """One node's process, and how to start it again.

    Attributes:
      restart_at: time.monotonic() of its next start, None when none is due.
    """

    name: str
    log: pathlib.Path
    command: run_locally.CommandToLaunch
    process: subprocess.Popen
    restart_at: float | None = None

    @property
    def node(self) -> Node:
        """Its entry in the list of nodes."""
        return nodes.kind_of(self.name)

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return process_groups.exit_code(self.process)

    def last_words(self) -> str:
        """Returns the last line that the node wrote: with an error, its message."""
        return last_line(self.log)


class NodeFailed(RuntimeError):
    """A node ended before the run did."""

    def __init__(self, worker: Worker, history: str = "") -> None:
        """Describes how `worker` ended, and what came before: `history`."""
        code = worker.exit_code
        how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        message = f"node {worker.name} {how}"
        words = worker.last_words()
        if code > 0 and words:
            message += f": {words}"
        super().__init__(f"{message}{history} (its log: {worker.log})")
        self.worker = worker


class Processes:
    """The processes of one run.

    Every process leads a session of its own, so that Ctrl-C reaches the launcher
    alone, leaves the order of ends to the launcher, and dies with it, however it ends.
    """

    def __init__(self, context: Context) -> None:
        """Starts one process a node; its output goes to the run's logs/NAME.log."""
        run = context.run
        log_dir = run.workdir / "logs"
        self._log = LauncherLog(run.workdir)
        made = make_program(context)
        names = _names(made.program)
        commands = _commands(made.program, made.resources())
        restarts = run.config.max_actor_restarts
        self._restarts = Restarts(
            0 if run.config.actor_failures == "stop" else restarts
        )
        self._workers = [
            _start(name, command, log_dir) for name, command in zip(names, commands)
        ]
        for name, pid in self.pids().items():
            self._log.note(f"node {name} is process {pid}")
        self._coordinator = made.coordinator.dereference()

    def pids(self) -> dict[str, int]:
        """Returns {node name: process id} of the nodes that run."""
        running = [w for w in self._workers if w.exit_code is None]
        return {worker.name: worker.process.pid for worker in running}

    def check(self) -> None:
        """Looks after nodes that have ended: none ends by itself.

        Raises:
          NodeFailed: unless it is one that may be started again.
        """
        for worker in self._workers:
            if worker.exit_code is None:
                continue
            if worker.restart_at is None:
                self._ended(worker)
            elif time.monotonic() >= worker.restart_at:
                worker.process = _spawn(worker.command, worker.log)
                worker.restart_at = None
                pid = worker.process.pid
                self._report(f"node {worker.name} is started again as process {pid}")

    def _ended(self, worker: Worker) -> None:
        """Ends what a dead node has left running, and plans its restart.

        Raises:
          NodeFailed: if there is none.
        """
        process_groups.end(worker.process)
        if not worker.node.may_restart:
            raise NodeFailed(worker)
        pause_s = self._restarts.after_death(worker.name)
        if pause_s is None:
            raise NodeFailed(worker, self._restarts.history(worker.name))
        self._report(f"{NodeFailed(worker)}; it is started again in {pause_s:.0f} s")
        worker.restart_at = time.monotonic() + pause_s

    def _report(self, sentence: str) -> None:
        """Tells the console and `launcher.log`, with the number of live actors."""
        actors = [w for w in self._workers if w.node.numbered]
        live = sum(worker.exit_code is None for worker in actors)
        self._log.tell(f"{sentence}; {live} of {len(actors)} actors live")

    def ask(self) -> futures.Future:
        """Returns the coordinator's status, answered some time later."""
        return self._coordinator.futures.get_status()

    def stop(self, early: bool = False) -> None:
        """Asks the nodes to end, those of one turn after those of the turns before.

        Whatever runs STOP_S seconds after the first request is killed; a turn that
        hangs leaves GROUP_S seconds to each of those after it.

        Args:
          early: nodes that have nothing to save end before, and get GROUP_S seconds to
            close what they hold.
        """
        began = time.monotonic()
        deadline = began + STOP_S
        if early:  # Time to close an environment, and no more.
            _end([w for w in self._workers if w.node.may_drop], began + GROUP_S)
        turns = sorted({worker.node.ends for worker in self._workers})
        for turn in turns:
            reserved_s = GROUP_S * (len(turns) - 1 - turns.index(turn))
            group = [w for w in self._workers if w.node.ends == turn]
            _end(group, deadline - reserved_s)


def _names(program: lp.Program) -> list[str]:
    """Returns one name a process: the group, numbered where a group has several."""
    names = []
    for label, group in program.groups.items():
        one = len(group) == 1
        names += [label if one else f"{label}_{i}" for i in range(len(group))]
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
    return Worker(name, log, command, _spawn(command, log))


def _spawn(command: run_locally.CommandToLaunch, log: pathlib.Path) -> subprocess.Popen:
    with log.open("ab") as output:
        return process_groups.start(
            command.command_as_list,
            deaf=True,
            env={**os.environ, **command.env_overrides},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _end(workers: Iterable[Worker], deadline: float) -> None:
    """Tells nodes to end; kills what is left of their groups at `deadline`."""
    workers = list(workers)
    for worker in workers:
        process_groups.tell(worker.process)
    for worker in workers:
        process_groups.wait(worker.process, max(0.0, deadline - time.monotonic()))
        process_groups.end(worker.process)
