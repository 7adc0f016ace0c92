"""The Atari network of the policy benchmark: Acme's own, checked before it is timed."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from acme_quant.bench.policy import (
    atari_check,
    atari_engines,
    check,
    command,
    engines,
    report,
)
from acme_quant.bench.policy.atari import (
    CONVOLUTIONS,
    atari_graph,
    atari_images,
    atari_variables,
)
from acme_quant.policy.graph import Graph

QUICK = ("--networks=atari", "--batches=1,64", "--rounds=1", "--seconds=0.001")


@pytest.fixture(scope="module")
def network() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    return atari_variables(rng), atari_images(2, rng)


def test_rows_name_their_network_and_large_batches_are_left_out(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "rows.json"
    arguments = ["bench policy", "--engines=int8,float32", *QUICK, f"--json={path}"]
    assert command.main(arguments) == 0
    rows = json.loads(path.read_text())
    assert [(row["engine"], row["network"], row["hidden"]) for row in rows] == [
        ("int8", "atari", 0),
        ("float32", "atari", 0),
    ]
    assert {row["batch"] for row in rows} == {1} and rows[0]["us"] > 0
    assert " atari     1 " in capsys.readouterr().out


def test_ratio_against_onnxruntime_is_told(capsys: pytest.CaptureFixture) -> None:
    rows = [
        report.Row("int8", 0, 1, 500.0, "atari"),
        report.Row("onnxruntime_float32", 0, 1, 2000.0, "atari"),
    ]
    report.print_conclusions(rows)
    printed = capsys.readouterr().out
    assert "int8     / onnxruntime_float32 atari" in printed
    assert "0.250  at most 0.500  ok" in printed
    assert "GB/s" not in printed


@pytest.mark.parametrize(
    "engine", atari_engines.ENGINES + atari_engines.OPTIONAL, ids=lambda e: e.name
)
def test_every_engine_computes_the_same_values(
    engine: engines.Engine, network: tuple
) -> None:
    if engine.tensorflow:
        pytest.importorskip("tensorflow")
    if engine.name.startswith("onnx"):
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    variables, images = network
    make = engine.make(variables)
    for batch in (images, images[:1]):
        expected, allowed = atari_check.reference(variables, batch, engine.steps)
        values = np.reshape(make(batch)(), expected.shape)
        check.check(engine.name, values, expected, allowed)
        # The check is worth something: values are of size 1.
        assert allowed.max() < (0.6 if "int8" in engine.name else 2e-3)


def test_a_changed_kernel_or_swapped_heads_do_not_pass(network: tuple) -> None:
    variables, images = network
    expected, allowed = atari_check.reference(variables, images, check.FLOAT32)
    changed = [v.copy() for v in variables]
    changed[0][3, 5, 1] += 0.01
    swapped = [*variables[:6], *variables[10:12], *variables[8:10]]
    swapped += [*variables[6:8], *variables[12:]]
    for wrong in (changed, swapped):
        values, _ = atari_check.reference(wrong, images, check.FLOAT32)
        with pytest.raises(ArithmeticError):
            check.check("wrong", values, expected, allowed)


def test_convolutions_are_padded_as_tensorflow_pads() -> None:
    assert [c.pads for c in CONVOLUTIONS] == [(2, 2), (1, 2), (1, 1)]
    assert [c.out_size for c in CONVOLUTIONS] == [21, 11, 11]


def test_the_graph_is_what_a_dqn_agents_network_is_lowered_to() -> None:
    pytest.importorskip("tensorflow")
    specs = pytest.importorskip("acme.specs")
    from acme_quant import lowering
    from acme_quant.agents.dqn import networks as q_networks

    observations = specs.Array((84, 84, 4), np.uint8)
    spec = specs.EnvironmentSpec(observations, specs.DiscreteArray(6), *[None] * 2)
    lowered = lowering.lower(q_networks.make(spec, "atari", ()), observations)
    assert summary(lowered) == summary(atari_graph())


def summary(graph: Graph) -> tuple:
    layers = [(layer.kind, layer.activation, layer.geometry) for layer in graph.layers]
    return layers, sorted(graph.value_widths), graph.observation, graph.output
