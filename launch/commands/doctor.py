"""`acme-quant doctor`: looks at a machine before a run does, and says what to mend.

Nothing heavy is imported here. What may break at import, and break the process with it,
is tried in a process of its own with a time limit: `doctor_trials`. So a broken
TensorFlow is a finding like any other, and not a traceback.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from acme_quant.launch.commands import remedies
from acme_quant.launch.settings import user_process

PYTHON = (3, 10)
TRIAL_TIMEOUT_S = 120
MAPS = "/proc/self/maps"
# What a trial exits with when the command line is at fault and not the machine.
USAGE = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
      name: the check.
      text: what is there, or what is wrong with it, in one line.
      remedy: the one command that mends it; empty when there is nothing to mend.
      usage: whether the command line is at fault.
    """

    name: str
    text: str
    remedy: str = ""
    usage: bool = False

    def __str__(self) -> str:
        """Returns the line, and the command below it."""
        line = f"{'FAULT' if self.remedy else 'ok':6}{self.name:14}{self.text}"
        return f"{line}\n{'':20}mend it: {self.remedy}" if self.remedy else line


# Name of the trial -> what mends it, when its error does not tell.
TRIALS = {
    "kernels": remedies.rebuild,
    "environment": lambda: remedies.install("dm-control", "mujoco"),
    "tensorflow": lambda: remedies.install(*remedies.TENSORFLOW),
    "reverb": lambda: remedies.install("dm-reverb", *remedies.TENSORFLOW),
    "courier": lambda: remedies.install("dm-launchpad", *remedies.TENSORFLOW),
    "checkpoint": lambda: remedies.install("tensorstore"),
    "workdir": lambda: "choose another folder: --workdir=FOLDER",
    "memory": lambda: "choose a smaller replay: --max_replay_size=N",
}


def main(argv: Sequence[str]) -> int:
    """Prints one finding a check.

    Args:
      argv: program name and any flags of `train`: environment, workdir and replay size
        are checked as they would be used.

    Returns:
      0 when all is well, 1 when something is to be mended, 2 for an unknown flag.
    """
    flags = list(argv[1:])
    if any(flag.lstrip("-") in ("help", "h") for flag in flags):
        print(__doc__)
        print("usage: acme-quant doctor [flags of acme-quant train]")
        return 0
    checks: list[Callable[[], Finding]] = [check_python, check_pins, check_libpython]
    checks += [lambda name=name: try_out(name, flags) for name in TRIALS]
    faults = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for finding in pool.map(lambda check: check(), checks):
            print(finding, flush=True)
            if finding.usage:
                pool.shutdown(cancel_futures=True)
                return USAGE
            faults += bool(finding.remedy)
    print(f"{faults} to be mended" if faults else f"healthy: {remedies.versions()}")
    return 1 if faults else 0


def check_python() -> Finding:
    """Checks interpreter and platform: the training stack is built for one."""
    have = (
        f"{platform.python_implementation()} {platform.python_version()} on "
        f"{platform.system()} {platform.machine()}"
    )
    wanted = "CPython 3.10 on Linux x86_64"
    right = sys.version_info[:2] == PYTHON and sys.implementation.name == "cpython"
    if right and (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return Finding("python", have)
    text = (
        f"training expects {wanted}, got {have}; "
        "a trained policy runs here all the same"
    )
    return Finding("python", text, "PYTHON=/path/to/python3.10 make install")


def check_pins() -> Finding:
    """Compares the installed versions with the set that is known to load."""
    wrong = []
    pins = remedies.pins()
    for name, version in pins.items():
        have = remedies.installed(name)
        if have != version:
            wrong.append((name, f"{name} {version}, got {have or 'none'}"))
    if not pins:
        return Finding(
            "pins", "expected acme-quant to be installed, got none", remedies.rebuild()
        )
    if not wrong:
        return Finding("pins", f"{len(pins)} packages as pinned")
    text = "expected " + "; ".join(what for _, what in wrong[:3])
    if len(wrong) > 3:
        text += f"; and {len(wrong) - 3} more"
    return Finding("pins", text, remedies.install(*(name for name, _ in wrong)))


def check_libpython() -> Finding:
    """Looks for the shared library of Python, which Courier and Reverb need."""
    library = f"libpython{PYTHON[0]}.{PYTHON[1]}.so.1.0"
    where = find_library(library)
    if where:
        return Finding("libpython", f"{library} in {where}")
    text = f"{library} is not on the loader's path, and this Python is linked to none"
    return Finding("libpython", text, remedies.find_libpython(library))


def find_library(library: str) -> str:
    """Returns where the loader finds a library, empty when it does not.

    Loading it by `ctypes` would prove nothing: that module has a path of its own.
    """
    mapped = re.search(
        rf"(\S*)/{re.escape(library)}$", pathlib.Path(MAPS).read_text(), re.MULTILINE
    )
    if mapped:
        return mapped[1]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and pathlib.Path(folder, library).exists():
            return folder
    try:
        command = ["/sbin/ldconfig", "-p"]
        cache = subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""
    cached = re.search(rf"=> (\S*)/{re.escape(library)}$", cache, re.MULTILINE)
    return cached[1] if cached else ""


def try_out(name: str, flags: Sequence[str]) -> Finding:
    """Runs one trial in a process of its own."""
    command = [sys.executable, "-m", "acme_quant.launch.commands.trials", name, *flags]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = user_process.run(command, TRIAL_TIMEOUT_S, env)
    except subprocess.TimeoutExpired:
        return Finding(name, f"no answer within {TRIAL_TIMEOUT_S} s", TRIALS[name]())
    if done.returncode == 0:
        return Finding(name, _last_line(done.stdout))
    if done.returncode == USAGE:
        return Finding(name, _last_line(done.stderr), "acme-quant train --help", True)
    error = _last_line(done.stderr) or f"ended by signal {-done.returncode}"
    return Finding(name, error, remedies.by_error(error) or TRIALS[name]())


def _last_line(text: str) -> str:
    """Returns the last line; of a traceback, all that its last error says."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [i for i, line in enumerate(lines) if re.match(r"[A-Za-z_][\w.]*:", line)]
    return " ".join(" ".join(lines[errors[-1] if errors else -1 :]).split())[:300]
