"""One list of nodes: what follows from it, and what must agree with it."""

from __future__ import annotations

import pathlib
import re

import pytest

from acme_quant.launch import nodes
from acme_quant.launch.nodes import NODES, context
from acme_quant.launch.settings.config import RunConfig

SECURITY = pathlib.Path(__file__).parents[3] / "docs" / "security.md"


def table() -> dict[str, tuple[str, set[str]]]:
    """Returns node -> (protocol, methods) as docs/security.md has them."""
    found = {}
    for line in SECURITY.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1] in (nodes.COURIER, nodes.REVERB):
            methods = set(re.findall("`([a-z_0-9]+)`", cells[2]))
            found |= {name.strip(): (cells[1], methods) for name in cells[0].split(",")}
    return found


def test_the_table_of_what_listens_is_the_list() -> None:
    assert table() == {n.name: (n.protocol, set(n.serves)) for n in NODES}


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_peer_ends_no_sooner_than_who_calls_it(node: nodes.Node) -> None:
    config = RunConfig()
    for need in node.needs:
        assert need in {field for field in context.Context.__dataclass_fields__}
        name = nodes.policies_of(config) if need == "policies" else need
        if name not in ("spec", "graph"):
            assert nodes.kind_of(name).ends >= node.ends


def test_a_learner_that_quantizes_serves_what_the_quantizer_would() -> None:
    config = RunConfig(colocate_quantizer=True)
    serves = {node.name: set(node.serves) for node in nodes.nodes_of(config)}
    assert "quantizer" not in serves
    assert serves["learner"] >= set(nodes.kind_of("quantizer").serves)
    assert nodes.policies_of(config) == "learner"


def test_columns_of_energy_are_those_of_runs_before_the_list() -> None:
    assert nodes.ENERGY_ROLES == (
        "actor",
        "learner",
        "quantizer",
        "replay",
        "evaluator",
        "services",
        "other",
    )
