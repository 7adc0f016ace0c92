"""The launcher makes no environment: a process reads its specs, and is ended."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import psutil
import pytest

from acme_quant.launch.settings import checks, spec_child, user_process
from acme_quant.launch.settings.config import Run, RunConfig, UsageError

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def diary(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Returns the file that says what happened to environments."""
    monkeypatch.setenv("PYTHONPATH", str(FIXTURES))
    monkeypatch.setenv("UNRULY_DIARY", str(tmp_path / "diary"))
    return tmp_path / "diary"


def words(diary: pathlib.Path) -> list[str]:
    return [line.split()[0] for line in diary.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["stays", "wanders", "tame"])
def test_what_an_environment_does_to_its_process_is_not_done_to_ours(
    diary: pathlib.Path, kind: str
) -> None:
    here = os.getcwd()
    with spec_child.SpecChild(f"unruly_environments:{kind}", {}) as child:
        assert child.spec().observations.shape == (3,)
    assert os.getcwd() == here
    assert words(diary) == ["made", "closed"]
    pids = {int(line.split()[-1]) for line in diary.read_text().splitlines()}
    assert os.getpid() not in pids and not any(map(psutil.pid_exists, pids))
    assert "unruly_environments" not in sys.modules


def test_processes_that_an_environment_leaves_end_with_the_one_it_was_made_in(
    diary: pathlib.Path,
) -> None:
    with spec_child.SpecChild("unruly_environments:serves", {}) as child:
        child.spec()
    server = int(diary.read_text().split()[1])
    deadline = time.monotonic() + 10
    while psutil.pid_exists(server) and time.monotonic() < deadline:
        if psutil.Process(server).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.02)
    else:
        assert not psutil.pid_exists(server)


@pytest.mark.parametrize(
    "kind,sentence",
    [
        ("dies", "its process exited with 7"),
        ("crashes", "its process was killed by signal 11"),
        ("hangs", "no answer within 2 s"),
    ],
)
def test_an_environment_that_gives_no_answer_is_one_sentence(
    diary: pathlib.Path, kind: str, sentence: str
) -> None:
    with spec_child.SpecChild(f"unruly_environments:{kind}", {}) as child:
        with pytest.raises(ValueError, match=sentence):
            child.spec(timeout_s=2.0 if kind == "hangs" else 60.0)


def test_a_name_that_is_unknown_is_the_librarys_sentence(diary: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="nearest: tame"):
        spec_child.read_spec("unruly_environments:tam", {})


def test_a_request_is_refused_before_any_process_starts(
    diary: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec_child.SpecChild, "__init__", None)
    run = Run(RunConfig(workdir="x", num_actors=-1), None)
    with pytest.raises(UsageError, match="num_actors"):
        checks.prepare(run)


def test_the_process_imports_neither_tensorflow_nor_launchpad() -> None:
    code = (
        "import sys, acme_quant.launch.settings.spec_child; "
        "assert not {'tensorflow', 'launchpad', 'courier', 'reverb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_folder_named_on_the_command_line_is_meant_from_the_start() -> None:
    run = checks.parse(["train", "--workdir=some/run"])
    assert run.workdir == pathlib.Path("some/run").absolute()


def test_a_command_is_not_kept_waiting_by_what_it_left_running() -> None:
    code = "import subprocess, sys; print('done', flush=True); "
    code += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])"
    done = user_process.run([sys.executable, "-c", code], timeout_s=30.0)
    assert (done.returncode, done.stdout) == (0, "done\n")
    with pytest.raises(subprocess.TimeoutExpired):
        user_process.run([sys.executable, "-c", "input()\n" * 9 + "1", "x"], 0.0)
