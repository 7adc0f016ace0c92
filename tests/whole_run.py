"""Whole runs of the real command for tests, small enough for seconds."""

from __future__ import annotations

import csv
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
COMMAND = pathlib.Path(sys.executable).parent / "acme-quant"
SMALL = (
    "--policy_layers=16,16",
    "--critic_layers=16,16",
    "--batch_size=16",
    "--samples_per_insert=4",
    "--min_replay_size=100",
    "--publish_period=10",
    "--update_period=20",
    "--evaluate_every=50",
    "--log_every_s=0",
)


def train(
    workdir: pathlib.Path, *flags: str, timeout_s: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Runs `acme-quant train` on a small problem and returns what came of it."""
    small = SMALL
    if "--actor=acme" in flags:  # Acme's actors know no publication.
        small = [flag for flag in SMALL if "publish" not in flag]
    process = start(workdir, *small, *flags)
    return finish(process, timeout_s)


def start(workdir: pathlib.Path, *flags: str) -> subprocess.Popen[str]:
    """Starts `acme-quant train` with these flags."""
    return subprocess.Popen(
        [str(COMMAND), "train", f"--workdir={workdir}", *flags],
        cwd=ROOT / "tests",
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(
    process: subprocess.Popen[str], timeout_s: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Returns what came of a run; one that takes longer is killed.

    Raises:
      subprocess.TimeoutExpired: if it was.
    """
    try:
        output, errors = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def rows(workdir: pathlib.Path, node: str) -> list[dict[str, str]]:
    """Returns the rows of one node's CSV file."""
    with (workdir / "csv" / f"{node}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def processes_of(workdir: pathlib.Path) -> set[int]:
    """Returns the pids of processes whose output goes to this run's logs."""
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            target = os.readlink(folder / "fd" / "1")
        except OSError:
            continue
        if target.startswith(str(workdir.resolve())):
            found.add(int(folder.name))
    return found
