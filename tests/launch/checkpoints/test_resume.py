"""Where a run starts, and that its files of rows go on there."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from acme_quant.agents import d4pg
from acme_quant.launch.checkpoints import resume
from acme_quant.launch.nodes.loggers import CSVLogger, TensorBoardLogger
from acme_quant.launch.settings.config import Run, RunConfig, UsageError
from acme_quant.records import event_file
from acme_quant.records.checkpoints import Checkpoints


def make_run(workdir: pathlib.Path, **settings: object) -> Run:
    return Run(RunConfig(workdir=str(workdir), **settings), d4pg.Config())


def save(workdir: pathlib.Path, actor_steps: int, learner_steps: int) -> None:
    """Saves a checkpoint as a run would."""
    run = make_run(workdir)
    facts = {
        "counts": {"actor_steps": actor_steps, "learner_steps": learner_steps},
        "deposits": {"actor_0": '{"starts": 1}'},
        "policy_version": 3,
        "wall_s": 12.5,
        "policy": ["learner/policy/000"],
        "settings": json.loads(run.to_json()),
    }
    arrays = {"learner/policy/000": np.full((5, 2), learner_steps, np.float32)}
    Checkpoints(workdir / "checkpoints").save(arrays, facts)


def write_rows(workdir: pathlib.Path, node: str, text: str) -> None:
    (workdir / "csv").mkdir(exist_ok=True)
    (workdir / "csv" / f"{node}.csv").write_text(text)


def read_rows(workdir: pathlib.Path, node: str) -> list[str]:
    return (workdir / "csv" / f"{node}.csv").read_text().splitlines()


def test_an_empty_folder_starts_at_nothing(tmp_path: pathlib.Path) -> None:
    run, sentences = resume.resume(make_run(tmp_path), None)
    assert run.start.checkpoint is None and sentences == []


def test_the_newest_whole_checkpoint_is_the_start(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 1000, 100)
    save(tmp_path, 2000, 200)
    save(tmp_path, 3000, 300)
    (tmp_path / "checkpoints/000003/COMMIT").write_text("nonsense")
    run, sentences = resume.resume(make_run(tmp_path), None)
    assert (run.start.checkpoint, run.start.actor_steps) == (2, 2000)
    assert run.start.learner_steps == 200 and run.start.deposits
    assert "checkpoint 3 " in sentences[0] and "damaged" in sentences[0]
    assert "resumes from checkpoint 2: 2000 actor steps, 200 learner" in sentences[1]
    assert "replay fills anew" in sentences[2]
    assert Checkpoints(tmp_path / "checkpoints").numbers() == [1, 2]


def test_rows_after_the_checkpoint_and_torn_rows_go(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 2000, 200)
    head = "wall_s,policy_version,actor_steps,learner_steps\n"
    write_rows(tmp_path, "actor_0", head + "1,2,1000,90\n2,7,2000,210\n3,8,2001,190\n")
    write_rows(tmp_path, "learner", "learner_steps,loss\n199,0.5\n200,0.4\n201,0.3\n2")
    write_rows(tmp_path, "quantizer", "policy_version,learner_steps\n4,200\n5,300\n")
    run, _ = resume.resume(make_run(tmp_path), None)
    assert read_rows(tmp_path, "actor_0")[1:] == ["1,2,1000,90", "2,7,2000,210"]
    assert read_rows(tmp_path, "learner")[1:] == ["199,0.5", "200,0.4"]
    assert read_rows(tmp_path, "quantizer")[1:] == ["4,200"]
    # No version is given twice, even one that only an actor's row tells of.
    assert run.start.policy_version == 7


def test_a_file_with_names_of_before_goes_on_in_those_of_today(
    tmp_path: pathlib.Path,
) -> None:
    save(tmp_path, 2000, 200)
    write_rows(
        tmp_path, "quantizer", "wall_s,polls,version,learner_step\n1,5,4,200\n2,6,9,300"
    )
    run, _ = resume.resume(make_run(tmp_path), None)
    assert run.start.policy_version == 4
    status = {"wall_s": 3.0, "polls": 7, "policy_version": 5, "learner_steps": 250}
    logger = CSVLogger(tmp_path / "csv" / "quantizer.csv")
    logger.write(status)
    logger.close()
    assert read_rows(tmp_path, "quantizer") == [
        "wall_s,polls,policy_version,learner_steps",
        "1,5,4,200",
        "3.0,7,5,250",
    ]


def test_time_goes_on_from_the_last_metered_second(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 2000, 200)
    (tmp_path / "energy.csv").write_text("wall_s,kwh\n10,0.1\n20,0.2\n")
    run, _ = resume.resume(make_run(tmp_path), None)
    assert run.start.wall_s == 20.0


@pytest.mark.parametrize("fresh", [True, False])
def test_what_cannot_be_resumed_is_moved_aside(
    tmp_path: pathlib.Path, fresh: bool
) -> None:
    write_rows(tmp_path, "learner", "learner_steps\n5\n")
    if fresh:
        save(tmp_path, 2000, 200)
    run, sentences = resume.resume(make_run(tmp_path, fresh=fresh), None)
    assert run.start.checkpoint is None and "previous-1" in sentences[-1]
    assert (tmp_path / "previous-1/csv/learner.csv").exists()
    assert not (tmp_path / "csv").exists()


@pytest.mark.parametrize("name,value", [("agent", "dqn"), ("env", "gym:CartPole-v1")])
def test_another_agent_or_environment_is_refused(
    tmp_path: pathlib.Path, name: str, value: str
) -> None:
    save(tmp_path, 2000, 200)
    with pytest.raises(UsageError, match=f"expected --{name}="):
        resume.resume(make_run(tmp_path, **{name: value}), None)


def test_changed_settings_are_listed(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 2000, 200)
    _, sentences = resume.resume(make_run(tmp_path, num_actors=5), None)
    assert "num_actors 2 -> 5" in sentences[-1]


def test_a_curve_does_not_run_back_after_a_resume(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 2000, 200)
    logger = TensorBoardLogger(tmp_path / "tensorboard" / "learner", "steps")
    for step in (199, 200, 201, 250):
        logger.write({"steps": step})
    logger.close()
    (path,) = (tmp_path / "tensorboard" / "learner").glob(event_file.PATTERN)
    resume.resume(make_run(tmp_path), None)
    assert not event_file.cut(path, 200)
    assert event_file.cut(path, 199)
