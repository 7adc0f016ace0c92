"""The machine and the versions that a measurement was made with."""

from __future__ import annotations

import math
import os
import pathlib
import platform
import re
import subprocess
from importlib import metadata
from typing import Any

from acme_quant.launch.settings import control_groups

_PACKAGES = ("acme-quant", "dm-acme", "dm-reverb", "tensorflow", "numpy", "codecarbon")


def describe() -> dict[str, Any]:
    """Returns host, versions and commit, as JSON can hold them; None for unknown."""
    return {
        "cpu": _first(r"model name\s*: (.+)", "/proc/cpuinfo") or platform.processor(),
        "cores": os.cpu_count(),
        "usable_cores": cores(),
        "memory_gb": _memory_gb(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": commit(),
    }


def cores() -> int:
    """Returns how many cores this process may keep busy: affinity and quota."""
    quota = control_groups.cpu_quota()
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, math.floor(quota))) if quota else allowed


def load() -> float | None:
    """Returns the processes that ran or waited in the last minute, None if unknown."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def commit() -> str | None:
    """Returns the source's commit, with + for changed files; None outside of git."""
    folder = pathlib.Path(__file__).resolve().parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        done.check_returncode()
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory_gb() -> float | None:
    kilobytes = _first(r"MemTotal:\s+(\d+)", "/proc/meminfo")
    return round(int(kilobytes) / 1e6, 1) if kilobytes else None


def _first(pattern: str, path: str) -> str | None:
    try:
        found = re.search(pattern, pathlib.Path(path).read_text())
    except OSError:
        return None
    return found.group(1) if found else None
