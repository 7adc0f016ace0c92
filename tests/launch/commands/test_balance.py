from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import synthetic_runs as synthetic

from acme_quant.launch.commands import balance, child
from acme_quant.launch.reports import balance_page, operating_point, runs
from acme_quant.launch.reports.operating_point import Point
from acme_quant.launch.running import signals

# A point at which everybody waits a little; the tests change what they look at.
EVEN = Point(
    quantizer="int8",
    actors=1,
    batch=64,
    samples_per_insert=8.0,
    steps_per_s=100.0,
    learner_steps_per_s=10.0,
    learner_waits=0.1,
    actors_wait=0.1,
    actors_insert=0.1,
    publishing=0.1,
    cores={"actor": 1.0, "learner": 0.5},
    watts=50.0,
)


def over_actors(speeds: list[float], **changes: Any) -> list[Point]:
    return [
        dataclasses.replace(EVEN, actors=2**i, steps_per_s=speed, **changes)
        for i, speed in enumerate(speeds)
    ]


@pytest.mark.parametrize(
    "changes, limit",
    [
        ({"actors_wait": 0.5}, "learner"),
        ({"learner_waits": 0.5}, "actors"),
        ({"learner_waits": 0.5, "actors_insert": 0.6}, "replay"),
        ({"publishing": 0.9}, "publishing"),
        ({}, "none"),
        ({"learner_waits": None}, None),
    ],
)
def test_who_does_not_wait_is_the_limit(
    changes: dict[str, Any], limit: str | None
) -> None:
    assert dataclasses.replace(EVEN, **changes).limit == limit


def test_knee_is_the_fewest_actors_with_most_of_the_throughput() -> None:
    assert operating_point.knee(over_actors([100.0, 190.0, 200.0, 201.0])).actors == 2
    assert operating_point.knee(over_actors([100.0, 200.0, 400.0])).actors == 4
    assert operating_point.knee(over_actors([100.0, 90.0])).actors == 1
    assert operating_point.knee([]) is None


def test_recommended_ratio_keeps_both_sides_busy() -> None:
    advice = operating_point.recommend(over_actors([100.0, 50.0]), cores=2)
    # Free rates: 10 / 0.9 learner steps/s of 64 samples, 100 / 0.9 inserts/s.
    assert advice.samples_per_insert == pytest.approx(10 * 64 / 100)
    assert advice.actor_cores_per_learner_core == 2.0
    assert advice.actors == 1


def test_batch_with_the_most_samples_is_recommended() -> None:
    points = over_actors([100.0, 50.0])
    larger = dataclasses.replace(EVEN, batch=256, learner_steps_per_s=5.0)
    advice = operating_point.recommend([*points, larger], cores=2)
    assert advice.batch == 256
    assert advice.samples_per_insert == pytest.approx(5 * 256 / 100)


def test_what_was_not_measured_is_said() -> None:
    advice = operating_point.recommend(over_actors([100.0, 200.0, 400.0]), cores=2)
    text = " ".join(advice.extrapolated)
    assert "no run was made with this value" in text
    assert "still rose at 4 actors" in text
    assert "the 2 cores" in text
    assert "only 64 was tried" in text


def test_run_folder_gives_its_point(tmp_path: pathlib.Path) -> None:
    synthetic.write_run(tmp_path, 10.0, watts=36.0)
    config = {"batch_size": 64, "samples_per_insert": 8.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    rows = [
        {
            "wall_s": 10.0 + n / 10.0,
            "actor_steps": 4 * n,
            "learner_steps": n,
            "waiting_ms": 25.0,
            "step_ms": 70.0,
            "export_ms": 5.0,
        }
        for n in range(0, 1001, 50)
    ]
    synthetic.write_csv(tmp_path / "csv" / "learner.csv", rows)
    point = operating_point.measure(runs.read(tmp_path, "int8", 0), "int8", 3)
    assert point.steps_per_s == pytest.approx(40.0)
    assert point.learner_steps_per_s == pytest.approx(10.0)
    assert point.learner_waits == pytest.approx(0.25)
    assert point.actors_insert == pytest.approx(50 / 350)
    assert point.watts == pytest.approx(36.0)
    assert (point.batch, point.actors) == (64, 3)


def test_failed_run_has_no_numbers(tmp_path: pathlib.Path) -> None:
    point = operating_point.measure(runs.read(tmp_path, "int8", 0), "int8", 1)
    assert point.steps_per_s is None and point.limit is None


def test_page_stands_alone_and_says_what_is_unknown(tmp_path: pathlib.Path) -> None:
    empty = Point("float32", 1, 64, 8.0)
    about = {"command": ["balance"], "host": {"cores": 2}}
    points = [*over_actors([100.0, 150.0], others=0.5), empty]
    found = balance_page.write(tmp_path, points, about)
    text = (tmp_path / "balance.html").read_text()
    assert "data:image/png;base64," in text and "<script" not in text
    assert "not measured" in text and "nothing to recommend" in text
    assert found.recommendations["float32"] is None
    assert "50% of the CPU time went to other programs" in text
    assert "float32, 1 actors, batch 64: did not finish" in text
    assert json.loads((tmp_path / "summary.json").read_text())["points"]


FLAGS = ["--batch_size=64", "--min_replay_size=100", "--steps_per_actor=400"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    asked: list[list[str]] = []

    def train(flags: list[str], log: pathlib.Path, show: Any) -> tuple[int, str]:
        asked.append(flags)
        given = dict(f.lstrip("-").split("=", 1) for f in flags)
        folder = pathlib.Path(given["workdir"])
        # Two actors are twice as fast as one, four no faster.
        synthetic.write_run(folder, 10.0 * min(int(given["num_actors"]), 2))
        batch = int(given["batch_size"])
        (folder / "config.json").write_text(json.dumps({"batch_size": batch}))
        return 0, "done"

    monkeypatch.setattr(child, "train", train)
    monkeypatch.setattr(signals, "listen", lambda: None)
    return asked


def run(folder: pathlib.Path, *flags: str) -> int:
    argv = ["balance", f"--workdir={folder}", "--actors=1,2,4", *FLAGS, *flags]
    return balance.main(argv)


def test_balance_tries_actors_and_then_a_larger_batch_at_the_knee(
    asked: list[list[str]], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(tmp_path, "--quantizers=int8,float32") == 0
    assert len(asked) == 3 * 2 + 2
    assert "--max_actor_steps=1600" in asked[4]
    # absl takes the last of a flag that is given twice.
    assert asked[-1].index("--batch_size=256") > asked[-1].index("--batch_size=64")
    assert "--num_actors=2" in asked[-1]
    assert "int8: --num_actors=2" in capsys.readouterr().out
    assert (tmp_path / "report" / "balance.png").exists()


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--num_actors=2", "each run has its own"),
        ("--actors=one", "list of whole numbers"),
        ("--actors=0", "--actors of at least 1, got 0"),
        ("--quantizers=int9", "int9"),
        ("--min_replay_size=1000", "steps_per_actor"),
        ("--env=gym:CartPole-v1", "discrete"),
        ("--nonsense", "nonsense"),
    ],
)
def test_what_cannot_be_run_is_refused_first(
    asked: list[list[str]],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture,
    flag: str,
    words: str,
) -> None:
    assert run(tmp_path / "b", flag) == 2
    assert words in capsys.readouterr().err
    assert asked == [] and not (tmp_path / "b").exists()


def test_preset_is_taken_but_for_what_the_plan_decides(
    asked: list[list[str]], tmp_path: pathlib.Path
) -> None:
    argv = ["balance", f"--workdir={tmp_path}", "--actors=1", "--quantizers=int8"]
    assert balance.main([*argv, "--preset=d4pg_cartpole_balance_small"]) == 0
    assert "--sigma_spread=0.5" in asked[0]
    given = [flag for flag in asked[0] if flag.startswith("--max_actor_steps")]
    assert given == ["--max_actor_steps=5000"]


def test_flag_beside_a_preset_is_refused_when_the_plan_decides_it(
    asked: list[list[str]], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    preset = "--preset=d4pg_cartpole_balance_small"
    assert run(tmp_path / "b", preset, "--num_actors=2") == 2
    assert "num_actors" in capsys.readouterr().err


def test_folder_in_use_is_refused(
    asked: list[list[str]], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    run(tmp_path)
    assert run(tmp_path) == 2
    assert "another folder" in capsys.readouterr().err
