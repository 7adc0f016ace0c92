"""What the control groups of this process allow: memory and processors, v1 and v2.

A limit may stand in any group between the process's own and the root: Slurm and systemd
set it far below. The strictest counts.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path("/sys/fs/cgroup")
MEMBERSHIP = pathlib.Path("/proc/self/cgroup")
UNLIMITED = 2**62


def memory_left() -> int:
    """Returns the bytes that every group still allows, UNLIMITED without a limit."""
    left = [UNLIMITED]
    for folder in _folders("memory"):
        for limit, usage in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            allowed, used = _number(folder / limit), _number(folder / usage)
            if allowed is not None and used is not None and allowed < UNLIMITED:
                left.append(max(0, allowed - used))
    return min(left)


def cpu_quota() -> float | None:
    """Returns the processors that every group allows, None without a quota."""
    quotas = []
    for folder in _folders("cpu"):
        of_v1 = [_text(folder / f"cpu.cfs_{part}_us") for part in ("quota", "period")]
        for words in (_text(folder / "cpu.max").split(), of_v1):
            if len(words) == 2 and all(word.isdigit() for word in words):
                quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _folders(controller: str) -> Iterator[pathlib.Path]:
    """Yields the folders of this process's groups that may hold such a limit."""
    for line in _text(MEMBERSHIP).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        # One hierarchy (v2) is mounted at the root, each of v1 in a folder of its own.
        mounts = [controllers, controller] if controllers else ["", "unified"]
        for mount in dict.fromkeys(mounts):
            group = pathlib.PurePosixPath(path.lstrip("/"))
            for part in (group, *group.parents):
                yield ROOT / mount / part


def _number(path: pathlib.Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
