"""What must hold after a run, however it ended: each check returns its complaints."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import time

import psutil

from acme_quant.records.checkpoints import Checkpoints, NoCheckpoint
from acme_quant.records.csv_rows import read_rows

MARKER = "ACME_QUANT_SOAK"
# A killed process is gone before the kernel has closed all that it had open.
SETTLE_S = 3.0
SHARED = pathlib.Path("/dev/shm")


def processes(marker: str) -> dict[int, str]:
    """Returns {pid: command line} of all that descend from a marked process."""
    wanted = f"{MARKER}={marker}".encode()
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode(errors="replace")[:200]
        except OSError:
            continue
    return found


def ports(pids: set[int] | None = None) -> set[int]:
    """Returns the ports that these processes listen at, or all processes."""
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and (pids is None or connection.pid in pids)
    }


def shared_memory() -> set[str]:
    """Returns the names of all shared memory."""
    return set(os.listdir(SHARED)) if SHARED.is_dir() else set()


def left_running(marker: str, known_ports: set[int]) -> list[str]:
    """Returns processes and ports that are still there."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline and processes(marker):
        time.sleep(0.05)
    complaints = [f"process left: {p} {c}" for p, c in processes(marker).items()]
    open_ports = known_ports & ports()
    return complaints + [f"port left: {port}" for port in sorted(open_ports)]


def left_in_memory(before: set[str]) -> list[str]:
    """Returns shared memory that came since and that no living process has open."""
    new = shared_memory() - before
    if not new:
        return []
    used = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:
            continue
        used |= {name for name in new if f"{SHARED}/{name}" in text}
    return [f"shared memory left: {name}" for name in sorted(new - used)]


def left_temporary(folder: pathlib.Path) -> list[str]:
    """Returns what is left in the run's own TMPDIR."""
    return [f"temporary file left: {p.name}" for p in folder.iterdir()]


def held_lock(workdir: pathlib.Path) -> list[str]:
    """Returns a complaint if somebody holds the run's folder."""
    try:
        with (workdir / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return []
    except OSError:
        return ["the folder is still locked"]
    return []


def broken_checkpoint(workdir: pathlib.Path) -> list[str]:
    """Returns a complaint if the newest committed checkpoint is not whole."""
    checkpoints = Checkpoints(workdir / "checkpoints")
    if not checkpoints.numbers():
        return []
    try:
        _, _, damaged = checkpoints.newest_whole()
    except NoCheckpoint as error:
        return [str(error)]
    return damaged


def bad_rows(workdir: pathlib.Path) -> list[str]:
    """Returns files of rows that are torn, run back, or tell a step twice."""
    complaints = []
    for path in sorted((workdir / "csv").glob("*.csv")):
        rows = read_rows(path)
        whole = path.read_bytes().count(b"\n") - 1
        if rows and whole != len(rows):
            complaints.append(f"{path.name}: {whole} lines, {len(rows)} whole rows")
        for column in ("actor_steps", "learner_steps", "policy_version"):
            numbers = [float(row.get(column) or 0) for row in rows]
            if numbers != sorted(numbers):
                complaints.append(f"{path.name}: {column} runs back")
        steps = [row["learner_steps"] for row in rows if "learner_steps" in row]
        once = path.stem in ("learner", "evaluator")
        if once and len(set(steps)) < len(steps):
            complaints.append(f"{path.name}: a learner step stands there twice")
    return complaints


def bad_summary(workdir: pathlib.Path, code: int) -> list[str]:
    """Returns a complaint unless `summary.json` is of this end."""
    try:
        summary = json.loads((workdir / "summary.json").read_text())
    except (OSError, ValueError) as error:
        return [f"summary.json: {error}"]
    if summary["exit_code"] != code:
        return [f"summary.json tells exit code {summary['exit_code']}, it was {code}"]
    return []
