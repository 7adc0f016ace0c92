"""Short runs of random settings with random faults, each looked at after its end.

    SOAK_MINUTES=60 SOAK_SEED=7 python tests/soak/soak.py [FOLDER]

Prints a line a run and writes `soak.json`. Where anything was wrong the folders of
those runs stay, and the exit code is 1. A seed repeats the choices, not their timing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator

import checks
from choices import Choices, choose

from acme_quant.records.csv_rows import last_row

HERE = pathlib.Path(__file__).parent
COMMAND = pathlib.Path(sys.executable).parent / "acme-quant"
MINUTES = float(os.environ.get("SOAK_MINUTES", "60"))
# How long a run may go on; one that is not through is asked to end, and must.
RUN_S = float(os.environ.get("SOAK_RUN_S", "90"))
END_S = 40.0
STOPPED_S = 5.0
DISK = "150m"
# Steps at which a run ends that goes on in the folder of one before.
AGAIN = 4000
# Of an end that nobody asked for: done, or a node or the disk failed.
ORDINARY = {0, 1}


@dataclasses.dataclass
class Report:
    """What became of one run."""

    choices: Choices
    session: int
    code: int | None = None
    seconds: float = 0.0
    happened: str = ""
    complaints: list[str] = dataclasses.field(default_factory=list)

    def line(self) -> str:
        """Returns the run's line."""
        verdict = "; ".join(self.complaints) or "ok"
        flags = dict(f[2:].split("=", 1) for f in self.choices.flags if "=" in f)
        what = f"{self.choices.layout}, {flags['agent']}, {flags['env']}"
        return (
            f"{self.choices.number}.{self.session} | {what} | "
            f"{self.happened or 'no fault'} | exit {self.code} after "
            f"{self.seconds:.0f} s | {verdict}"
        )


class Session:
    """One command in one folder: started, hurt, waited for, looked at."""

    def __init__(self, choices: Choices, folder: pathlib.Path, session: int) -> None:
        """Runs `choices` in `folder`; a later `session` goes on without a fault."""
        self._choices = choices
        self._fault = choices.fault if session == 1 else "none"
        self._workdir = folder / "disk" / "run"
        self._temporary = folder / f"tmp{session}"
        self._output = folder / f"output{session}"
        self._marker = uuid.uuid4().hex
        self._ports: set[int] = set()
        self._memory = checks.shared_memory()
        self._once = folder / "once"
        self.report = Report(choices, session)

    def run(self) -> Report:
        """Returns the report; nothing of the run is left behind after it."""
        self._workdir.mkdir(parents=True, exist_ok=True)
        self._temporary.mkdir()
        began = time.monotonic()
        with self._output.open("wb") as output:
            process = self._start(output)
            try:
                self._hurt(process)
                self.report.code = self._wait(process, began + RUN_S)
                self.report.seconds = time.monotonic() - began
                self._look()
            finally:
                for pid in checks.processes(self._marker):
                    _send(pid, signal.SIGKILL)
                process.wait()
        return self.report

    def _start(self, output: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                str(COMMAND),
                "train",
                f"--workdir={self._workdir}",
                *self._choices.flags,
                # The last of a flag counts: what goes on ends by itself.
                *([] if self.report.session == 1 else [f"--max_actor_steps={AGAIN}"]),
            ],
            env={
                **os.environ,
                checks.MARKER: self._marker,
                "FAULT_ONCE": str(self._once),
                "TMPDIR": str(self._temporary),
                "PYTHONPATH": str(HERE.parent / "faults"),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _hurt(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the moment of the fault, and lets it happen."""
        if self._fault == "none":
            return
        deadline = time.monotonic() + RUN_S
        if not self._choices.early:
            path = self._workdir / "csv" / "learner.csv"
            while not last_row(path) and time.monotonic() < deadline:
                if process.poll() is not None:
                    return
                time.sleep(0.1)
        try:
            process.wait(self._choices.after)
            return
        except subprocess.TimeoutExpired:
            pass
        self._ports = checks.ports(set(checks.processes(self._marker)))
        self.report.happened = self._inject(process)

    def _inject(self, process: subprocess.Popen[bytes]) -> str:
        """Does it; returns what was done, "" if there was nobody to do it to."""
        fault, node = self._fault, self._choices.node
        if fault in ("kill", "stop"):
            pid = self._node(node)
            if pid is None:
                return ""
            if fault == "kill":
                _send(pid, signal.SIGKILL)
                return f"kill {node}"
            _send(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            _send(pid, signal.SIGCONT)
        elif fault == "full disk":
            _fill(self._workdir.parent)
        elif fault == "kill launcher":
            _send(process.pid, signal.SIGKILL)
        else:
            name, whom = fault.split()
            pids = [process.pid]
            if whom == "all":
                pids = list(checks.processes(self._marker))
            for pid in pids:
                _send(pid, signal.Signals[name])
        moment = "early, " if self._choices.early else ""
        return f"{moment}{fault}" + (f" {node}" if fault == "stop" else "")

    def _node(self, name: str) -> int | None:
        """Returns the pid of a node by the log that it writes to."""
        for pid in checks.processes(self._marker):
            with contextlib.suppress(OSError):
                if pathlib.Path(os.readlink(f"/proc/{pid}/fd/1")).stem == name:
                    return pid
        return None

    def _wait(self, process: subprocess.Popen[bytes], until: float) -> int | None:
        """Returns the exit code; None for a run that had to be killed."""
        if self.report.happened and self._fault.startswith(("SIG", "kill launcher")):
            until = time.monotonic() + END_S
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(max(0.0, until - time.monotonic()))
            self.report.happened += " and SIGINT at its time limit"
            _send(process.pid, signal.SIGINT)
            until = time.monotonic() + END_S
        try:
            return process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def _promised(self) -> set[int]:
        """Returns the exit codes that this end may have."""
        happened = self.report.happened
        if "time limit" in happened:
            return {130, *ORDINARY}
        if "SIGINT" in happened:
            return {130, *ORDINARY}
        if "SIGTERM" in happened:
            return {143, *ORDINARY}
        if happened.endswith("kill launcher"):
            return {-signal.SIGKILL}
        return {2, *ORDINARY} if "full disk" in happened else ORDINARY

    def _look(self) -> None:
        """Fills the report with what is wrong."""
        code, add = self.report.code, self.report.complaints.extend
        if code is None:
            add([f"no end within {END_S:.0f} s of a signal"])
        elif code not in self._promised():
            add([f"exit code {code}, expected one of {sorted(self._promised())}"])
        add(checks.left_running(self._marker, self._ports))
        add(checks.held_lock(self._workdir))
        add(checks.left_in_memory(self._memory))
        add(checks.broken_checkpoint(self._workdir))
        add(checks.bad_rows(self._workdir))
        output = self._output.read_text(errors="replace")
        if "Traceback" in output:
            add([f"traceback: {output.strip().splitlines()[-1][:200]}"])
        if code is None or code < 0:
            return
        add(checks.left_temporary(self._temporary))
        full = "full disk" in self.report.happened
        if "files in" in output and not full:
            add(checks.bad_summary(self._workdir, code))


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _fill(folder: pathlib.Path) -> None:
    """Takes all the room of a disk."""
    with contextlib.suppress(OSError):
        with (folder / "ballast").open("ab", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass


@contextlib.contextmanager
def _disk(folder: pathlib.Path, small: bool) -> Iterator[bool]:
    """Makes FOLDER/disk, small if it is to be filled; yields whether that went."""
    path = folder / "disk"
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(path)]
    mounted = small and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted or not small
    finally:
        if mounted:
            (path / "ballast").unlink(missing_ok=True)
            shutil.copytree(path, folder / "kept", symlinks=True)
            subprocess.run(["umount", "--lazy", str(path)], check=True)


def run_of(choices: Choices, folder: pathlib.Path) -> list[Report]:
    """Runs one choice, and once more in its folder where that is part of it."""
    with _disk(folder, choices.fault == "full disk") as possible:
        if not possible:
            choices = dataclasses.replace(choices, fault="none")
        reports = [Session(choices, folder, 1).run()]
        if choices.resumes:
            (folder / "disk" / "ballast").unlink(missing_ok=True)
            reports.append(Session(choices, folder, 2).run())
    return reports


def soak(seed: int, folder: pathlib.Path, tell: Callable[[str], None]) -> list[Report]:
    """Runs until the time is up; returns all reports."""
    deadline = time.monotonic() + 60.0 * MINUTES
    reports: list[Report] = []
    first = number = int(os.environ.get("SOAK_FIRST", "1"))
    while number == first or time.monotonic() < deadline:
        own = folder / f"{number:04d}"
        made = run_of(choose(seed, number), own)
        for report in made:
            tell(report.line())
        reports += made
        content = [dataclasses.asdict(r) for r in reports]
        text = json.dumps({"seed": seed, "runs": content}, indent=1)
        (folder / "soak.json").write_text(text + "\n")
        if not any(report.complaints for report in made):
            shutil.rmtree(own, ignore_errors=True)
        number += 1
    return reports


def main() -> int:
    """Soaks; returns the exit code."""
    seed = int(os.environ.get("SOAK_SEED", secrets.randbelow(10**6)))
    given = sys.argv[1] if len(sys.argv) > 1 else None
    folder = pathlib.Path(given or tempfile.mkdtemp(prefix="soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, {MINUTES:g} minutes, folder {folder}", flush=True)
    reports = soak(seed, folder, lambda line: print(line, flush=True))
    bad = [r for r in reports if r.complaints]
    print(f"{len(reports)} runs, {len(bad)} with faults; seed {seed}, {folder}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
