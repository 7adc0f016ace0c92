"""What a run says of its making: `sessions` in config.json, one entry a start.

The resolved settings stay at their keys. A resumed run adds an entry and keeps those
before it, so that a folder tells every command, version and host that it was made with.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from acme_quant.launch.settings import arguments, machine
from acme_quant.launch.settings.config import Run
from acme_quant.records import durable

CONFIG_FILE = "config.json"
SESSIONS = "sessions"


def write(run: Run, argv: Sequence[str]) -> None:
    """Writes the run's settings and adds this session to those before it.

    Args:
      run: the run's configuration, with its start.
      argv: the command line as it was typed.

    Raises:
      OSError: if the file cannot be written.
    """
    path = run.workdir / CONFIG_FILE
    content = json.loads(run.to_json())
    content[SESSIONS] = [*_sessions(path), _session(run, argv)]
    durable.replace_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def changed_versions(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Returns a sentence on the packages whose version is another, empty for none."""
    changed = [
        f"{name} {version} -> {now[name]}"
        for name, version in before.items()
        if now.get(name, version) != version
    ]
    if not changed:
        return ""
    return f"warning: the checkpoint was made by other versions: {', '.join(changed)}"


def find_modules_in(folder: str) -> None:
    """Has a run's own environment found where it was, by us and our children."""
    if not folder or folder == os.getcwd() or not pathlib.Path(folder).is_dir():
        return
    sys.path.append(folder)
    known = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{known}{os.pathsep}{folder}" if known else folder


def _session(run: Run, argv: Sequence[str]) -> dict[str, Any]:
    return {
        "command": shlex.join(argv[0].split() + list(argv[1:])),
        "preset": arguments.preset_of(argv),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "from_checkpoint": run.start.checkpoint,
        "folder": os.getcwd(),
        "host": {"name": platform.node(), **machine.describe()},
    }


def _sessions(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the entries of a file, none if there is no whole one."""
    try:
        return list(json.loads(path.read_text())[SESSIONS])
    except (OSError, ValueError, KeyError, TypeError):
        return []
