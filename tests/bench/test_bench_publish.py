from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from acme_quant.bench.policy.mlp import mlp_graph, mlp_variables
from acme_quant.bench.publish import command, load, nodes
from acme_quant.policy.quantized_policy import quantize_graph

pytest.importorskip("courier")


def test_the_synthetic_policy_computes_an_mlp() -> None:
    graph = mlp_graph(8, depth=2, inputs=3, outputs=2)
    variables = mlp_variables(graph, np.random.default_rng(0))
    rows = np.random.default_rng(1).standard_normal((4, 3), np.float32)
    expected = rows
    for weight, bias in zip(variables[::2], variables[1::2]):
        expected = np.tanh(expected @ weight + bias)
    actions = quantize_graph(graph, variables, "float32").batch(rows)
    # Three layers of at most 8 products; 1e-6 is some ten float32 roundings.
    np.testing.assert_allclose(actions, expected, atol=1e-6)


def test_every_stage_of_both_ways_is_written(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rows.json"
    code = command.main(
        ["bench", "--hidden=16", "--quantizers=int8", "--rounds=2", f"--json={file}"]
    )
    rows = json.loads(file.read_text())
    assert code == 0
    stages = {(row["stage"], row["transport"]) for row in rows}
    every = (*command.PUBLISHER_STAGES, *command.ACTOR_STAGES)
    assert stages == {(s, t) for s in every for t in command.TRANSPORTS}
    assert all(row["ms"] > 0 and row["hidden"] == 16 for row in rows)
    assert {row["bytes"] for row in rows if row["stage"] == "unchanged_poll"} == {0}


def test_clients_are_counted_and_all_served(capsys: pytest.CaptureFixture) -> None:
    argv = ["bench", "--hidden=16", "--quantizers=int8", "--transports=courier"]
    assert command.main([*argv, "--clients=1,3", "--seconds=0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("clients=")[1].split()[0] for line in lines] == ["1", "3"]
    assert all("p99_ms=" in line for line in lines)


def test_memory_is_watched_in_both_processes(capsys: pytest.CaptureFixture) -> None:
    argv = ["bench", "--hidden=16", "--quantizers=int8", "--transports=shared_memory"]
    assert command.main([*argv, "--publications=10"]) == 0
    out = capsys.readouterr().out
    assert "process=publisher" in out and "process=actor" in out


def test_a_policy_that_is_not_the_learners_stops_the_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "quantize_graph", wrong_policy)
    setting = nodes.Setting(16, "int8", "courier")
    with nodes.nodes(setting) as running:
        running.wait_for(0)
        with pytest.raises(RuntimeError, match="learner's policy"):
            command.check(setting, running)


def wrong_policy(graph: object, variables: list, quantizer: str) -> object:
    return quantize_graph(graph, [2 * variable for variable in variables], quantizer)


@pytest.mark.parametrize(
    "wrong",
    [
        "--hiden=3",
        "extra",
        "--hidden=many",
        "--hidden=0",
        "--quantizers=int7",
        "--transports=pigeon",
        "--clients=0",
        "--rounds=0",
        "--json=/nowhere/rows.json",
    ],
)
def test_wrong_flags_are_refused_in_one_line(
    wrong: str, capsys: pytest.CaptureFixture
) -> None:
    assert command.main(["bench", wrong]) == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_help_names_stages_and_flags(capsys: pytest.CaptureFixture) -> None:
    assert command.main(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert "unchanged_poll" in out and "--clients" in out


def test_the_resident_size_is_in_megabytes() -> None:
    import os

    assert 5 < load.resident_mb(os.getpid()) < 10_000
