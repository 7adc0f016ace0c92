"""The command `acme-quant`: one subcommand a module."""

from __future__ import annotations

import importlib
import signal
import sys
import tempfile

from acme_quant.launch.running import signals, temporary
from acme_quant.records import say

COMMANDS = {
    "train": ("launch.commands.train", "train an agent with quantized actors"),
    "evaluate": (
        "launch.commands.evaluate",
        "compare the int8 and the float32 policy of a checkpoint",
    ),
    "doctor": ("launch.commands.doctor", "look at this machine, say what to mend"),
    "compare": ("launch.commands.compare", "train in several number formats"),
    "export": ("launch.commands.export", "write a policy as C, ONNX or NumPy arrays"),
    "balance": ("launch.commands.balance", "find how many actors a machine can use"),
    "bench": ("bench.cli", "measure policies, publishing and actors"),
}


# As a shell tells of a command that SIGPIPE ended.
_READER_LEFT = 128 + signal.SIGPIPE


def main() -> None:
    """Runs the subcommand named on the command line; exits 2 for an unknown one.

    A command whose reader has left, as `| head` does, ends without a word.
    """
    try:
        _run()
    except BrokenPipeError:
        if not say.is_unread(sys.stdout):
            raise
        sys.exit(_READER_LEFT)
    finally:
        say.flush_all()


def _run() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("-h", "--help", "help"):
        print(_usage())
        return
    if name not in COMMANDS:
        print(
            f"acme-quant: expected a command, got {name!r}.\n{_usage()}",
            file=sys.stderr,
        )
        sys.exit(2)
    signals.leave_on_signals()
    if name != "doctor" and not _can_write_temporary_files():
        print(
            f"acme-quant {name}: expected a folder to write temporary files in, got "
            "none: set TMPDIR to one.",
            file=sys.stderr,
        )
        sys.exit(2)
    with temporary.own_folder():
        module = importlib.import_module(f"acme_quant.{COMMANDS[name][0]}")
        code = module.main([f"acme-quant {name}", *sys.argv[2:]])
    sys.exit(code)


def _can_write_temporary_files() -> bool:
    try:
        return bool(tempfile.gettempdir())
    except OSError:
        return False


def _usage() -> str:
    rows = [f"  {name:10} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        ["usage: acme-quant COMMAND [--flag=value ...] (COMMAND --help: its flags)"]
        + rows
    )
