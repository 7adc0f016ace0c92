"""`acme-quant bench adder`: small runs of it, and what it would refuse."""

from __future__ import annotations

import json
import pathlib

import pytest

from acme_quant.bench import adder, cli
from acme_quant.replay import adder as adder_lib


def test_every_arm_writes_the_same_items_and_is_timed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "adder.json"
    flags = ["--rounds=2", "--length=20", "--n_step=3", f"--json={file}"]
    assert cli.main(["bench", "adder", *flags]) == 0
    rows = json.loads(file.read_text())
    assert [row["arm"] for row in rows] == ["acme", "ours", "writer"]
    assert all(row["us_step"] > 0 and row["us_cpu"] > 0 for row in rows)
    printed = capsys.readouterr().out
    assert "ours / acme" in printed and "ours / writer" in printed


def test_an_arm_whose_items_do_not_all_arrive_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adder, "repeat", lambda calls, stream: None)
    with pytest.raises(RuntimeError, match="writer: expected 44 items .* got 0"):
        adder.run(n_step=3, length=20, rounds=1)


def test_recorded_calls_are_those_of_the_adder() -> None:
    recorder = adder.Recorder()
    recorded = adder_lib.NStepTransitionAdder(recorder, 3, 0.99)
    first, steps = adder.make_episode(7)
    adder.write(recorded, first, steps)
    methods = [method for method, _ in recorder.calls]
    assert methods.count("CreateItem") == 7 + 2
    # A row per time step, and the sums of the two shorter windows at the end.
    assert methods.count("Append") == 8 + 2
    assert methods[-1] == "Flush"


@pytest.mark.parametrize(
    "wrong, words",
    [
        ("--length=0", "at least 1"),
        ("more", "expected flags only"),
        ("--json=/nowhere/rows.json", "'/nowhere/rows.json'"),
    ],
)
def test_wrong_flags_are_refused_before_a_process_starts(
    wrong: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delattr(adder, "served")
    assert cli.main(["bench", "adder", wrong]) == 2
    printed = capsys.readouterr().out
    assert words in printed and printed.count("\n") == 1
