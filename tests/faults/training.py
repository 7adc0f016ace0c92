"""A real run whose processes a test may kill, stop and count."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable

import psutil

HERE = pathlib.Path(__file__).parent
COMMAND = pathlib.Path(sys.executable).parent / "acme-quant"
SMALL = (
    "--env=fault_environments:steady",
    "--policy_layers=16,16",
    "--critic_layers=16,16",
    "--batch_size=16",
    "--samples_per_insert=4",
    "--min_replay_size=100",
    "--publish_period=10",
    "--update_period=20",
    "--evaluate_every=200",
    "--log_every_s=0.1",
    "--checkpoint_every_s=1",
)
START_S = 240.0
# The longest that any end may take.
END_S = 15.0


class Training:
    """`acme-quant train` on a small problem, in processes of its own."""

    def __init__(
        self, workdir: pathlib.Path, *flags: str, env: dict[str, str] | None = None
    ) -> None:
        """Starts the run; later flags win over `SMALL`."""
        workdir.mkdir(parents=True, exist_ok=True)
        self.workdir = workdir
        self._output = workdir.with_name(workdir.name + ".out")
        command = [str(COMMAND), "train", f"--workdir={workdir}", *SMALL, *flags]
        self._file = self._output.open("ab")
        self._from = self._output.stat().st_size
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(HERE), **(env or {})},
            stdout=self._file,
            stderr=subprocess.STDOUT,
        )
        self._ports: set[int] = set()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._file.close()

    def output(self) -> str:
        """Returns what this run has printed."""
        with self._output.open("rb") as file:
            file.seek(self._from)
            return file.read().decode(errors="replace")

    def nodes(self) -> dict[str, int]:
        """Returns {node: pid} of all processes that write to this run's logs."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                target = pathlib.Path(os.readlink(folder / "fd" / "1"))
            except OSError:
                continue
            if target.parent == self.workdir.resolve() / "logs":
                found[target.stem] = int(folder.name)
        return found

    def send(self, node: str, number: int) -> None:
        """Sends a signal to a node, `launcher` among them."""
        pids = {"launcher": self.process.pid, **self.nodes()}
        os.kill(pids[node], number)

    def rows(self, node: str) -> list[dict[str, str]]:
        """Returns the rows of a node's CSV file, none before there is one."""
        try:
            with (self.workdir / "csv" / f"{node}.csv").open(newline="") as file:
                rows = list(csv.DictReader(file))
        except OSError:
            return []
        return [row for row in rows if None not in row.values()]

    def last(self, node: str, column: str) -> float:
        """Returns the newest number in a column, 0 before there is one."""
        rows = self.rows(node)
        return float(rows[-1][column]) if rows else 0.0

    def steps(self) -> float:
        """Returns the environment steps done."""
        return max(self.last(f"actor_{i}", "actor_steps") for i in range(4))

    def checkpoints(self) -> list[int]:
        """Returns the numbers of the checkpoints."""
        folder = self.workdir / "checkpoints"
        return sorted(int(p.name) for p in folder.glob("[0-9]*") if p.suffix == "")

    def wait_for(
        self, condition: Callable[[], Any], timeout_s: float = START_S
    ) -> float:
        """Waits until `condition()` holds; returns the seconds it took."""
        began = time.monotonic()
        while not condition():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() - began < timeout_s, self.output()
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_until_it_learns(self, learner_steps: int = 100) -> None:
        """Waits until all nodes work and there is a checkpoint."""
        self.wait_for(lambda: self.last("learner", "learner_steps") >= learner_steps)
        self.wait_for(self.checkpoints)
        self.note_ports()

    def note_ports(self) -> None:
        """Notes where the nodes listen: `end` looks whether anybody still does."""
        self._ports = _listening(set(self.nodes().values()))

    def end(self, within_s: float = END_S) -> tuple[int, float]:
        """Waits for the end; returns the exit code and the seconds it took.

        Asserts that no process is left and no port is listened at.
        """
        nodes = set(self.nodes().values())
        began = time.monotonic()
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {within_s} s: {self.output()}") from None
        seconds = time.monotonic() - began
        # A killed process is gone before the kernel has closed all that it had open.
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline and (
            any(map(psutil.pid_exists, nodes)) or self._ports & _listening(None)
        ):
            time.sleep(0.02)
        assert not self.nodes()
        assert not self._ports & _listening(None)
        assert "Killed" not in self.output() and "Killing" not in self.output()
        return code, seconds

    def summary(self) -> dict[str, Any]:
        """Returns `summary.json`."""
        return json.loads((self.workdir / "summary.json").read_text())


def _listening(pids: set[int] | None) -> set[int]:
    """Returns the ports that these processes listen at, or all processes."""
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and (pids is None or connection.pid in pids)
    }


def stop_for(training: Training, node: str, seconds: float) -> None:
    """Stops a node for a while."""
    pid = training.nodes()[node]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
