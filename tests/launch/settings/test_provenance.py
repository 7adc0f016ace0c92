"""A run says how it was made, once a session; a resume overwrites nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from acme_quant.launch.checkpoints import resume
from acme_quant.launch.settings import checks, provenance
from acme_quant.launch.settings.config import Run, Start, UsageError
from acme_quant.records.checkpoints import Checkpoints

ARGV = ["acme-quant train", "--preset=dqn_cartpole_small", "--seed=7", "--workdir=a b"]


def make_run(workdir: pathlib.Path) -> Run:
    return checks.parse([*ARGV[:-1], f"--workdir={workdir}"])


def test_config_json_keeps_the_command_preset_versions_and_host(
    tmp_path: pathlib.Path,
) -> None:
    run = make_run(tmp_path)
    provenance.write(run, ARGV)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["seed"] == 7 and content["agent"] == "dqn"
    (session,) = content["sessions"]
    command = "acme-quant train --preset=dqn_cartpole_small --seed=7 '--workdir=a b'"
    assert session["command"] == command
    assert session["preset"] == "dqn_cartpole_small"
    assert session["from_checkpoint"] is None and session["folder"] == os.getcwd()
    assert {"name", "cpu", "cores", "packages", "commit"} <= set(session["host"])


def test_a_resume_adds_a_session_and_takes_none_away(tmp_path: pathlib.Path) -> None:
    run = make_run(tmp_path)
    provenance.write(run, ARGV)
    again = dataclasses.replace(run, start=Start(checkpoint=4))
    provenance.write(again, [*ARGV, "--max_actor_steps=9"])
    sessions = json.loads((tmp_path / "config.json").read_text())["sessions"]
    assert [s["from_checkpoint"] for s in sessions] == [None, 4]
    assert sessions[1]["command"].endswith("--max_actor_steps=9")


def test_a_config_of_before_has_no_sessions_and_is_read(tmp_path: pathlib.Path) -> None:
    run = make_run(tmp_path)
    (tmp_path / "config.json").write_text(run.to_json())
    provenance.write(run, ARGV)
    content = json.loads((tmp_path / "config.json").read_text())
    assert len(content["sessions"]) == 1
    assert Run.from_settings(content) == run


def test_settings_without_one_take_its_default(tmp_path: pathlib.Path) -> None:
    settings = json.loads(make_run(tmp_path).to_json())
    del settings["agent"], settings["env"]
    assert Run.from_settings(settings).config.agent == "d4pg"
    with pytest.raises(UsageError, match="expected an agent out of d4pg"):
        Run.from_settings({"agent": "ppo"})


def test_other_package_versions_are_said_at_a_resume(tmp_path: pathlib.Path) -> None:
    run = make_run(tmp_path)
    settings = json.loads(run.to_json())
    del settings["update_period"]  # A manifest may lack a setting.
    facts = {
        "policy": [],
        "settings": settings,
        "versions": {"tensorflow": "2.7.0", "unknown": "1"},
        "counts": {"learner_steps": 1},
        "deposits": {},
        "policy_version": 1,
        "wall_s": 1.0,
    }
    Checkpoints(tmp_path / "checkpoints").save({"x": np.ones(2)}, facts)
    _, sentences = resume.resume(run, None)
    assert sentences[-1].startswith(
        "warning: the checkpoint was made by other versions"
    )
    assert "tensorflow 2.7.0 -> 2.8.4" in sentences[-1]
    assert "unknown" not in sentences[-1]


def test_modules_are_found_where_the_run_had_them(tmp_path: pathlib.Path) -> None:
    (tmp_path / "some_task.py").write_text("")
    code = (
        "import subprocess, sys; from acme_quant.launch.settings import provenance; "
        f"provenance.find_modules_in({str(tmp_path)!r}); import some_task; "
        "subprocess.run([sys.executable, '-c', 'import some_task'], check=True)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    provenance.find_modules_in(str(tmp_path / "gone"))
    assert str(tmp_path / "gone") not in sys.path
