"""Images and bytes as observations, for both agents."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from acme import specs

from acme_quant import lowering
from acme_quant.agents import d4pg, dqn
from acme_quant.policy.quantized_policy import quantize_graph

ROW = specs.Array((3,), np.float32, "speed")
CASES = {
    "image": specs.Array((24, 20, 3), np.uint8, "camera"),
    "float image": specs.Array((24, 20, 1), np.float32, "camera"),
    "bytes": specs.Array((128,), np.uint8, "ram"),
    "nest": {"camera": specs.Array((24, 20, 3), np.uint8, "camera"), "speed": ROW},
}
CONFIGS: dict[Any, Any] = {
    d4pg: d4pg.Config(policy_layers=(8,), critic_layers=(8,)),
    dqn: dqn.Config(),
}


def spec_of(agent: Any, observations: Any) -> specs.EnvironmentSpec:
    box = specs.BoundedArray((2,), np.float32, -1.0, 1.0, "force")
    actions = box if agent is d4pg else specs.DiscreteArray(3)
    reward = specs.Array((), np.float32, "reward")
    discount = specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")
    return specs.EnvironmentSpec(observations, actions, reward, discount)


def draw(spec: Any) -> Any:
    rng = np.random.default_rng(0)
    if isinstance(spec, dict):
        return {key: draw(part) for key, part in spec.items()}
    if spec.dtype == np.uint8:
        return rng.integers(0, 256, spec.shape, np.uint8)
    return rng.random(spec.shape, np.float32)


@pytest.mark.parametrize("name", CASES)
def test_d4pg_sees_bytes_and_images_and_its_actors_the_same(name: str) -> None:
    import tensorflow as tf
    import tree

    config, spec = CONFIGS[d4pg], spec_of(d4pg, CASES[name])
    d4pg.AGENT.check(spec, config)
    networks = d4pg.AGENT.make_networks(spec, config)
    module = d4pg.AGENT.policy_module(networks)
    graph = lowering.lower(module, spec.observations)
    variables = [variable.numpy() for variable in module.variables]
    policy = quantize_graph(graph, variables, "float32")
    observation = draw(spec.observations)
    batch = tree.map_structure(lambda a: tf.constant(a[None]), observation)
    np.testing.assert_allclose(
        policy(observation), module(batch)[0].numpy(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("agent", CONFIGS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_whose_channels_come_first_are_refused(agent: Any, dtype: type) -> None:
    spec = spec_of(agent, specs.Array((3, 96, 80), dtype, "camera"))
    with pytest.raises(ValueError, match="camera.*channels come first"):
        agent.AGENT.check(spec, CONFIGS[agent])


def test_dqn_takes_a_float_image_for_an_image_unless_told_otherwise() -> None:
    config, spec = CONFIGS[dqn], spec_of(dqn, CASES["float image"])
    kinds = {}
    for network in ("auto", "mlp"):
        chosen = dataclasses.replace(config, network=network)
        dqn.AGENT.check(spec, chosen)
        kinds[network] = dqn.AGENT.make_networks(spec, chosen).variables
    assert any(len(variable.shape) == 4 for variable in kinds["auto"])
    assert not any(len(variable.shape) == 4 for variable in kinds["mlp"])


def test_a_small_table_of_floats_stays_a_row() -> None:
    config, spec = CONFIGS[dqn], spec_of(dqn, specs.Array((7, 7, 3), np.float32, "map"))
    dqn.AGENT.check(spec, config)
    networks = dqn.AGENT.make_networks(spec, config)
    assert not any(len(variable.shape) == 4 for variable in networks.variables)
