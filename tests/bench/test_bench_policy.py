"""The policy benchmark: it checks before it prints, and says what it found."""

from __future__ import annotations

import json
import pathlib
import re

import numpy as np
import pytest

from acme_quant.bench import turns
from acme_quant.bench.policy import check, command, engines, report
from acme_quant.bench.policy.mlp import mlp_graph, mlp_variables

OURS = "--engines=int8,float32,int8_8bit"
QUICK = ("--hidden=64", "--batches=1,8", "--rounds=2", "--seconds=0.001")


def small() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    return mlp_variables(mlp_graph(64), rng), rng.standard_normal((8, 17), np.float32)


def test_rows_are_written_as_json(tmp_path: pathlib.Path, capsys: object) -> None:
    path = tmp_path / "rows.json"
    assert command.main(["bench policy", OURS, *QUICK, f"--json={path}"]) == 0
    rows = json.loads(path.read_text())
    assert [tuple(row) for row in rows] == [("engine", "hidden", "batch", "us")] * 6
    assert {row["engine"] for row in rows} == {"int8", "float32", "int8_8bit"}
    assert all(row["us"] > 0 for row in rows)
    printed = capsys.readouterr().out
    assert "int8     / float32" in printed
    assert "where int8 does not gain" in printed and "GB/s" in printed


def test_engines_have_their_promised_names() -> None:
    assert [engine.name for engine in engines.ENGINES] == [
        "int8",
        "float32",
        "acme_tf",
        "onnxruntime_float32",
        "onnxruntime_int8",
        "tflite_float32",
        "tflite_int8",
    ]


@pytest.mark.parametrize(
    "flag",
    ["--engines=int9", "--hidden=0", "--batches=x", "--rounds=0", "--nonsense", "more"]
    + [
        "--hidden=",
        "--seconds=-1",
        "--networks=mlp,resnet",
        "--networks=",
        "--json=/no/such/folder/rows.json",
    ],
)
def test_wrong_flags_exit_with_2(flag: str, capsys: object) -> None:
    assert command.main(["bench policy", OURS, *QUICK, flag]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("bench policy: ") and printed.count("\n") <= 3


@pytest.mark.parametrize(
    "engine", engines.ENGINES + engines.OPTIONAL, ids=lambda e: e.name
)
def test_every_engine_computes_the_same_policy(engine: engines.Engine) -> None:
    if engine.tensorflow:
        pytest.importorskip("tensorflow")
    if engine.name.startswith("onnx"):
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    variables, rows = small()
    make = engine.make(variables)
    for batch in (rows, rows[:1]):
        expected, allowed = check.reference(variables, batch, engine.steps)
        actions = np.reshape(make(batch)(), expected.shape)
        check.check(engine.name, actions, expected, allowed)
        # The check is worth something: actions are of size 1.
        rounds = "int8" in engine.name
        assert allowed.max() < (0.4 if rounds else 4e-5)


def test_an_engine_that_is_wrong_is_never_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = command.ENGINES[1]._replace(
        make=lambda variables: lambda rows: lambda: np.zeros((len(rows), 6))
    )
    monkeypatch.setattr(command, "ENGINES", (wrong,))
    assert command.main(["bench policy", "--engines=float32", *QUICK]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.match("bench policy: float32: expected .* within .*, got 0$", last), last


def test_actions_of_another_shape_or_nan_do_not_pass() -> None:
    expected = np.zeros((2, 6))
    with pytest.raises(ArithmeticError, match=r"\[2, 6\], got \[6\]"):
        check.check("engine", np.zeros(6), expected, expected + 1)
    with pytest.raises(ArithmeticError, match="got nan"):
        check.check("engine", expected * np.nan, expected, expected + 1)


def test_reference_allows_rounding_but_no_changed_weight() -> None:
    variables, rows = small()
    expected, allowed = check.reference(variables, rows, check.FLOAT32)
    changed = [v.copy() for v in variables]
    changed[2][3, 5] += 0.01
    other, _ = check.reference(changed, rows, check.FLOAT32)
    with pytest.raises(ArithmeticError):
        check.check("changed", other, expected, allowed)


def test_calls_take_turns() -> None:
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    times = turns.take_turns(calls, rounds=3, seconds=1e-9)
    assert len(times) == 2 and 0 < min(times) < 1000
    changes = "".join(x for x, y in zip(order, [None, *order]) if x != y)
    assert changes == "ab" * 3


def test_targets_missed_and_losses_are_told(capsys: object) -> None:
    rows = [
        report.Row("int8", 2048, 1, 100.0),
        report.Row("float32", 2048, 1, 90.0),
        report.Row("onnxruntime_float32", 2048, 1, 95.0),
    ]
    report.print_conclusions(rows)
    printed = capsys.readouterr().out
    assert "1.111  at most 0.300  MISSED" in printed
    assert "0.947  at most 1.000  ok" in printed
    assert "int8 100.0 us, float32 90.0, onnxruntime_float32 95.0" in printed
