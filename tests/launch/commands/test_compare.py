from __future__ import annotations

import json
import pathlib
from typing import Any, Callable

import pytest
import synthetic_runs as synthetic

from acme_quant.launch.commands import child, compare
from acme_quant.launch.reports import comparison, figures
from acme_quant.launch.running import signals
from acme_quant.launch.settings import arguments
from acme_quant.launch.settings.config import UsageError

FLAGS = ["--batch_size=64", "--publish_period=50", "--seeds=2"]
Train = Callable[..., tuple]


class Trainer:
    """Stands for `acme-quant train`: int8 is twice as fast; what it was asked for."""

    def __init__(self, codes: dict[tuple[str, int], int] | None = None) -> None:
        self.asked: list[list[str]] = []
        self.codes = codes or {}

    def __call__(
        self, flags: list[str], log: pathlib.Path, show: Any
    ) -> tuple[int, str]:
        self.asked.append(flags)
        given = dict(flag.lstrip("-").split("=", 1) for flag in flags)
        arm = "acme" if given.get("actor") == "acme" else given["quantizer"]
        code = self.codes.get((arm, int(given["seed"])), 0)
        if code == 130:
            raise child.Interrupted(signals.Asked("SIGINT", 130))
        if code != 2:
            synthetic.write_run(
                pathlib.Path(given["workdir"]),
                {"float32": 10.0, "int8": 20.0, "acme": 5.0}[arm],
                actor=given.get("actor", "engine"),
                exit_code=code,
            )
        return code, "the last line"


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    trainer = Trainer()
    monkeypatch.setattr(child, "train", trainer)
    monkeypatch.setattr(signals, "listen", lambda: None)
    # Drawing takes longer than all else, and has tests of its own.
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    return trainer


def parsed(*flags: str) -> compare.Comparison:
    argv = ["compare", "--workdir=x", *FLAGS, *flags]
    values, options = arguments.flags_of(argv, compare.Options)
    return compare.make_comparison(values, options)


def run(folder: pathlib.Path, *flags: str) -> int:
    return compare.main(["compare", f"--workdir={folder}", *FLAGS, *flags])


def test_arms_differ_in_the_format_alone() -> None:
    arms = parsed("--quantizers=float32,int8").arms
    assert arms["float32"][:-1] == arms["int8"][:-1]
    assert arms["int8"][-1] == "--quantizer=int8"
    assert "--batch_size=64" in arms["int8"]


def test_baseline_takes_no_flag_of_our_actors() -> None:
    arm = parsed("--baseline=acme").arms["acme"]
    assert "--actor=acme" in arm and "--batch_size=64" in arm
    assert not any("publish_period" in flag for flag in arm)


def test_preset_stands_for_its_flags_and_is_overridden() -> None:
    arms = parsed("--preset=dqn_cartpole_small", "--baseline=acme").arms
    assert "--q_layers=256,256" in arms["int8"]
    assert "--batch_size=64" in arms["int8"]
    assert "--publish_period=50" in arms["int8"]
    assert not any("publish_period" in flag for flag in arms["acme"])


def test_every_seed_begins_with_another_arm() -> None:
    order = list(parsed("--seeds=3", "--baseline=acme").runs())
    assert [arm for arm, _ in order[::3]] == ["float32", "int8", "acme"]
    assert [seed for _, seed in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(set(order)) == 9


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--seed=1", "sets it for each arm"),
        ("--quantizer=int8", "sets it for each arm"),
        ("--actor=acme", "sets it for each arm"),
        ("--quantizers=int9", "'int9'"),
        ("--env=gym:CartPole-v1", "discrete"),
        ("--num_actors=0", "num_actors"),
        ("--country_iso_code=fra", "country_iso_code"),
        ("--nonsense=1", "nonsense"),
        ("--preset=dqn_cart", "dqn_cartpole"),
        ("--seeds=0", "seeds"),
        ("leftover", "leftover"),
    ],
)
def test_what_cannot_be_run_is_refused_first(
    trainer: Trainer,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture,
    flag: str,
    words: str,
) -> None:
    assert run(tmp_path / "c", flag) == 2
    assert words in capsys.readouterr().err
    assert trainer.asked == [] and not (tmp_path / "c").exists()


def test_comparison_writes_a_report(trainer: Trainer, tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, "--baseline=acme") == 0
    assert len(trainer.asked) == 6
    found = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert found["whole_run"]["training_speedup"]["float32"]["int8"][
        "mean"
    ] == pytest.approx(2.0)
    assert found["about"]["host"]["cores"] > 0
    assert found["about"]["command"][0] == "compare"
    assert (tmp_path / "report" / "report.html").exists()


def test_crashed_run_does_not_end_the_comparison(
    trainer: Trainer, tmp_path: pathlib.Path
) -> None:
    trainer.codes["int8", 0] = 1
    assert run(tmp_path) == 1
    assert len(trainer.asked) == 4
    found = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert found["by_arm"]["int8"]["runs"] == 1


def test_refused_arm_ends_the_comparison(
    trainer: Trainer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    trainer.codes["int8", 0] = 2
    assert run(tmp_path) == 2
    assert "int8 cannot be run: the last line" in capsys.readouterr().err


def test_interrupted_comparison_is_reported_and_goes_on_by_resume(
    trainer: Trainer, tmp_path: pathlib.Path
) -> None:
    trainer.codes["int8", 1] = 130
    assert run(tmp_path) == 130
    assert (tmp_path / "report" / "report.html").exists()
    asked = len(trainer.asked)
    trainer.codes.clear()
    assert compare.main(["compare", f"--workdir={tmp_path}", "--resume"]) == 0
    again = [flag for flags in trainer.asked[asked:] for flag in flags]
    assert not any("float32/seed_0" in flag for flag in again)
    assert any("int8/seed_1" in flag for flag in again)


def test_half_a_run_is_begun_anew(trainer: Trainer, tmp_path: pathlib.Path) -> None:
    assert run(tmp_path) == 0
    folder = comparison.run_folder(tmp_path, "int8", 0)
    (folder / "summary.json").unlink()
    (folder / "stale").write_text("")
    assert run(tmp_path, "--resume") == 0
    assert not (folder / "stale").exists()
    assert compare.is_finished(folder)


def test_folder_in_use_needs_resume(
    trainer: Trainer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    run(tmp_path)
    assert run(tmp_path) == 2
    assert "--resume" in capsys.readouterr().err


def test_resume_with_other_flags_is_refused(
    trainer: Trainer, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    run(tmp_path)
    assert run(tmp_path, "--resume", "--num_actors=7") == 2
    assert "got others" in capsys.readouterr().err


def test_child_gives_exit_code_and_last_line(tmp_path: pathlib.Path) -> None:
    code, words = child.train(["--nonsense=1"], tmp_path / "log", lambda line: None)
    assert code == 2
    assert "nonsense" in words


def test_no_format_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="expected"):
        parsed("--quantizers=")
