"""Who is in the graph, and who talks to whom."""

from __future__ import annotations

from typing import Any

import pytest

from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.program import make_program
from acme_quant.launch.settings import checks


def groups(*flags: str, graph: Any = "a lowered policy") -> dict[str, list[Any]]:
    """Returns the nodes of a program by group."""
    run = checks.parse(["train", "--workdir=unused", *flags])
    program = make_program(Context(run, started=0.0, graph=graph))
    return dict(program.program.groups)


def peers(nodes: dict[str, list[Any]], group: str) -> set[str]:
    """Returns the groups whose handles the nodes of `group` hold."""
    owners = {
        id(h): g for g, ns in nodes.items() for n in ns for h in n._created_handles
    }
    return {owners[id(h)] for node in nodes[group] for h in node.input_handles}


def test_a_run_has_all_its_nodes() -> None:
    nodes = groups("--num_actors=3")
    assert {g: len(n) for g, n in nodes.items()} == {
        "replay": 1,
        "counter": 1,
        "coordinator": 1,
        "learner": 1,
        "quantizer": 1,
        "evaluator": 1,
        "actor": 3,
    }


def test_nobody_but_the_quantizer_asks_the_learner() -> None:
    nodes = groups()
    askers = {group for group in nodes if "learner" in peers(nodes, group)}
    assert askers == {"quantizer"}
    assert peers(nodes, "actor") == {"quantizer", "replay", "counter"}
    assert peers(nodes, "evaluator") == {"quantizer", "counter"}


def test_colocated_quantizer_has_no_process_of_its_own() -> None:
    nodes = groups("--colocate_quantizer")
    assert "quantizer" not in nodes
    assert "learner" in peers(nodes, "actor")


def test_acmes_actors_ask_the_learner_and_there_is_no_quantizer() -> None:
    nodes = groups("--actor=acme", graph=None)
    assert "quantizer" not in nodes
    assert "learner" in peers(nodes, "actor")


@pytest.mark.parametrize("quantizer", ["float32", "float16", "int4"])
def test_the_number_format_does_not_change_the_graph(quantizer: str) -> None:
    nodes, other = groups(), groups(f"--quantizer={quantizer}")
    assert {g: peers(nodes, g) for g in nodes} == {g: peers(other, g) for g in other}


def test_the_evaluator_can_be_left_out() -> None:
    assert "evaluator" not in groups("--evaluate_every=0")
