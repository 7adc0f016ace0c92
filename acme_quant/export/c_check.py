"""Tries an exported policy with the C compiler of this machine."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from acme_quant.export.c_papers import FLAGS
from acme_quant.export.source import ExportError

WARNINGS = "-Wall -Wextra -Werror -pedantic"
TIMEOUT_S = 600
COMPILER = os.environ.get("CC", "cc")


def tried(files: dict[str, bytes], name: str, compiler: str | None) -> list[str]:
    """Builds and runs the self-test; returns what it found, in sentences.

    Args:
      files: file name -> content.
      name: the policy's.
      compiler: its name or path, or None.

    Raises:
      ExportError: the compiler refused the source, or an action has other bits.
    """
    compiler = shutil.which(compiler) if compiler else None
    if compiler is None:
        return ["no C compiler here (set CC): neither built nor timed"]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            pathlib.Path(folder, file).write_bytes(content)
        command = [compiler, *FLAGS.split(), *WARNINGS.split()]
        _run([*command, "-c", f"{name}.c"], folder)
        _run([*command, f"{name}.o", f"{name}_test.c", "-o", "test", "-lm"], folder)
        said = _run(["./test", "time"], folder)
    [nanoseconds] = re.findall(r"(\d+) ns a call", said)
    built = f"built by {pathlib.Path(compiler).name} {FLAGS}: same bits as the engine"
    return [built, f"{nanoseconds} ns a call here{_cycles(int(nanoseconds))}"]


def _run(command: list[str], folder: str) -> str:
    """Returns what a command printed.

    Raises:
      ExportError: it failed; the first line that it printed.
    """
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise ExportError(
            f"expected '{' '.join(command)}' to succeed, got status "
            f"{done.returncode}: {said[0]}"
        )
    return done.stdout


def _cycles(nanoseconds: int) -> str:
    """Returns the clock cycles of a time, if Linux tells the clock's rate."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    rates = re.findall(r"cpu MHz\s*: ([\d.]+)", text)
    if not rates:
        return ""
    megahertz = float(rates[0])
    return f", about {nanoseconds * megahertz / 1000:.0f} cycles at {megahertz:.0f} MHz"
