"""The actor benchmark: what it runs, what it checks, what it writes."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import loop_parts
import numpy as np
import pytest

from acme_quant.bench.actor import command, loops, report
from acme_quant.bench.actor import plan as actor_plan


def plans(*arguments: str) -> list[actor_plan.Plan]:
    own = command.define_flags()
    own(["bench", *arguments])
    return list(command.plans(own))


def row(arm: str, steps_per_s: float) -> report.Row:
    return report.Row(
        *("gym:CartPole-v1", 256, arm, 1, 1, steps_per_s, 1e6 / steps_per_s),
        *(1.0, 2.0, 3.0, 4.0, 9.0, 30.0, 0.5, 80.0, 9),
    )


def test_every_setting_begins_with_acmes_own_actor() -> None:
    found = plans("--tasks=gym:CartPole-v1", "--hidden=16,32", "--actors=1")
    assert [(plan.hidden, plan.arm) for plan in found] == [
        (hidden, arm) for hidden in (16, 32) for arm in ("acme", "float32", "int8")
    ]


def test_vectors_are_measured_without_acmes_actor() -> None:
    assert {plan.arm for plan in plans("--envs_per_actor=8")} == {"float32", "int8"}
    pool = plans("--tasks=envpool_dm:CheetahRun-v1")
    assert {plan.arm for plan in pool} == {"float32", "int8"}


def test_ataris_network_has_one_size() -> None:
    assert {plan.hidden for plan in plans("--tasks=atari:Pong")} == {512}


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("--arms=torch", "got 'torch'"),
        ("--arms=", "arms must be of acme,float32,int8"),
        ("--actors=0", "actors must be whole numbers above zero, got '0'"),
        ("--seconds=0", "seconds must be positive"),
        ("--hidden=256,x", "hidden must be whole numbers above zero, got 'x'"),
        ("--envs_per_actor=", "envs_per_actor must be whole numbers above zero"),
        ("--envs_per_actor=-1", "envs_per_actor must be whole numbers above zero"),
        ("--nosuch=1", "nosuch"),
        ("more", "expected flags alone, got 'more'"),
        ("--tasks=", "expected a task at least"),
        ("--tasks=gym:CartPole-v1,humanoid_stand", "unknown environment"),
        ("--tasks=dm_control:humanoid:sit", "dm_control has no task 'humanoid:sit'"),
        ("--json=/nowhere/rows.json", "'/nowhere/rows.json'"),
    ],
)
def test_wrong_flags_are_refused_before_a_process_starts(
    wrong: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.delattr(command, "run")
    assert command.main(["bench actor", wrong]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("bench actor: ") and words in printed


def test_ratio_is_against_acmes_row_of_the_same_setting() -> None:
    acme, ours = row("acme", 100.0), row("int8", 450.0)
    other = dataclasses.replace(acme, actors=2)
    assert report.baseline(ours, [other]) is None
    assert report.baseline(ours, [other, acme]) is acme
    assert "4.50x" in report.line(ours, acme)


def test_a_steps_promised_ratio_is_told(capsys: pytest.CaptureFixture) -> None:
    report.print_targets(
        [row("acme", 100.0), row("int8", 450.0), row("float32", 350.0)]
    )
    printed = capsys.readouterr().out.splitlines()
    assert "step of float32 / acme  0.286  at most 0.250  MISSED" in printed[0]
    assert "step of int8 / acme  0.222  at most 0.167  MISSED" in printed[1]
    assert len(printed) == 3
    report.print_targets([row("acme", 100.0), row("int8", 700.0)])
    assert "at most 0.167  ok" in capsys.readouterr().out
    report.print_targets([row("float32", 450.0)])
    assert capsys.readouterr().out == ""


def test_share_of_updates_is_told_of_int8(capsys: pytest.CaptureFixture) -> None:
    ours = dataclasses.replace(row("int8", 450.0), us_step=100.0, us_update=2.5)
    slow = dataclasses.replace(ours, us_update=3.5)
    report.print_targets([ours, slow, dataclasses.replace(ours, arm="float32")])
    first, second = capsys.readouterr().out.splitlines()
    assert "update / a step of int8  0.025  at most 0.030  ok" in first
    assert "update / a step of int8  0.035  at most 0.030  MISSED" in second


def test_failure_of_a_process_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def run(todo: list[actor_plan.Plan], seconds: float) -> None:
        raise RuntimeError("expected an answer of the process 'actor 0 of int8'.")

    monkeypatch.setattr(command, "run", run)
    assert command.main(["bench actor", "--tasks=gym:CartPole-v1"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("bench actor: expected an answer of the process 'actor 0")
    assert printed.count("\n") == 1


def test_watched_environment_knows_how_many_items_its_steps_make() -> None:
    watched = loops.Watched(loop_parts.CountingEnvironment(2), 5, 1)
    watched.reset()
    for _ in range(4):  # Two steps, a new episode, one step.
        watched.step(np.zeros(2, np.float32))
    assert (watched.steps, watched.items) == (3, 2 + 1 + 1)


def test_benchmark_runs_and_replay_receives_every_item(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("reverb")
    path = tmp_path / "rows.json"
    code = command.main(
        [
            *("bench actor", "--tasks=gym:CartPole-v1", "--hidden=16", "--actors=1"),
            *("--arms=int8,acme", "--envs_per_actor=1,3", "--seconds=0.2"),
            f"--json={path}",
        ]
    )
    assert code == 0
    rows = json.loads(path.read_text())
    assert [(found["arm"], found["envs_per_actor"]) for found in rows] == [
        *(("acme", 1), ("int8", 1), ("int8", 3)),
    ]
    for found in rows:
        figures = ("steps_per_s", "us_step", "us_replay", "startup_s", "rss_mb")
        stages = [f"us_{stage}" for stage in actor_plan.STAGES]
        assert all(found[key] > 0 for key in (*figures, *stages, "threads"))
