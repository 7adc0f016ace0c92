"""Processes for code that is not ours: started, asked, and ended with all they started.

A person's environment may start threads that never end, change the folder, take
signals, leave servers behind or never return. So a command has it made and stepped in a
process of its own, which leads a session: `UserProcess` hears answers of it, `run` only
waits. In the end the whole process group is killed.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, BinaryIO, NamedTuple, TypeVar

from acme_quant.launch.settings import process_groups

# What a process that has answered gets for its environment's close().
CLOSE_S = 5.0
_POLL_S = 0.1

Send = Callable[[object], None]
Self = TypeVar("Self", bound="UserProcess")


class Refused(ValueError):
    """The process says that what it was asked for cannot be had."""


class Failed(RuntimeError):
    """The process failed, ended, or did not answer in time."""


class UserProcess:
    """A module of ours, in a process of its own, that sends answers; see `serve`."""

    def __init__(self, module: str, request: Mapping[str, Any]) -> None:
        """Starts the module's `main` with a request, anything that JSON can say."""
        self._answers, theirs = Pipe(duplex=False)
        # The folder itself is not on the path: modules in it may be named like ours.
        program = f"import sys; sys.path.pop(0); from {module} import main; main()"
        arguments = (str(theirs.fileno()), json.dumps(request))
        self._process = process_groups.start(
            [sys.executable, "-c", program, *arguments],
            deaf=True,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type | None, *error: object) -> None:
        self.end(CLOSE_S if kind is None else 0.0)

    def answer(self, timeout_s: float) -> Any:
        """Returns the next answer.

        Raises:
          Refused: if that is a refusal.
          Failed: if it is an error, the process ended, or `timeout_s` have passed.
        """
        deadline = time.monotonic() + timeout_s
        while not self._answers.poll(_POLL_S):
            ended = process_groups.exit_code(self._process) is not None
            if ended and not self._answers.poll():
                raise Failed(self._how_it_ended())
            if time.monotonic() > deadline:
                raise Failed(f"no answer within {timeout_s:g} s")
        try:
            kind, content = _loads(self._answers.recv_bytes())
        except EOFError:
            process_groups.wait(self._process, CLOSE_S)
            raise Failed(self._how_it_ended()) from None
        if kind is not None:
            raise kind(content)
        return content

    def end(self, grace_s: float = 0.0) -> None:
        """Kills the process with its group, after `grace_s` seconds at most."""
        process_groups.wait(self._process, grace_s)
        process_groups.end(self._process)
        self._answers.close()

    def _how_it_ended(self) -> str:
        code = process_groups.end(self._process)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
        return f"its process {how}"


def serve(work: Callable[[dict[str, Any], Send], None]) -> None:
    """Runs `work(request, send)` in a process that UserProcess started, and leaves.

    ValueErrors are told as refusals, other errors as failures. Threads that still run,
    `atexit` and destructors have no say in the end.
    """
    from acme_quant.environments.errors import in_one_line

    process_groups.be_deaf()
    answers = Connection(int(sys.argv[1]), readable=False)
    try:
        work(json.loads(sys.argv[2]), lambda content: tell(answers, content))
    except ValueError as error:
        tell(answers, str(error), Refused)
    except (Exception, SystemExit) as error:
        tell(answers, in_one_line(error), Failed)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def give_up(reason: str) -> None:
    """Tells a failure and ends this process at once, from whatever thread."""
    tell(Connection(int(sys.argv[1]), readable=False), reason, Failed)
    os._exit(1)


def tell(answers: Connection, content: object, kind: type | None = None) -> None:
    """Sends an answer, or the sentence of an error."""
    answers.send_bytes(pickle.dumps((kind, content)))


class Done(NamedTuple):
    """What became of a process; its exit code is negative for a signal."""

    returncode: int
    stdout: str
    stderr: str


def run(
    command: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    text: str = "",
) -> Done:
    """Runs a command to its end with `text` as its input.

    What it started ends with it, and cannot keep us waiting by an open pipe.

    Raises:
      subprocess.TimeoutExpired: if it takes longer than `timeout_s`.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
        given.write(text.encode())
        given.seek(0)
        with tempfile.TemporaryFile() as errors:
            process = process_groups.start(
                command, env=env, stdin=given, stdout=out, stderr=errors
            )
            if not process_groups.wait(process, timeout_s):
                process_groups.end(process)
                raise subprocess.TimeoutExpired(command, timeout_s)
            return Done(process_groups.end(process), _text(out), _text(errors))


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


class _Unpickler(pickle.Unpickler):
    """Reads what we send, and imports nothing of a person's."""

    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if package in ("acme", "dm_env", "numpy") or module == __name__:
            return super().find_class(module, name)
        raise Failed(f"expected numbers, names and specs, got a {module}.{name}")


def _loads(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content)).load()
