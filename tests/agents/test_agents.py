"""Every agent of the list keeps the whole contract of `Agent`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from acme import specs

from acme_quant import agents, lowering
from acme_quant.agents import agent as contract
from acme_quant.agents.builder import split_exploration

BOX = specs.BoundedArray((2,), np.float32, [-1, -2], [1, 2])
ACTIONS = {"d4pg": BOX, "dqn": specs.DiscreteArray(3)}
SIZES = {"policy_layers": (8,), "critic_layers": (8,), "q_layers": (8,)}


def spec_of(name: str) -> specs.EnvironmentSpec:
    """Returns a small environment that the agent can act in."""
    return specs.EnvironmentSpec(
        observations=specs.Array((4,), np.float32),
        actions=ACTIONS[name],
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )


@pytest.fixture(params=sorted(agents.AGENTS))
def made(request: pytest.FixtureRequest) -> tuple[Any, specs.EnvironmentSpec, Any]:
    """Returns an agent, an environment's spec for it, and small settings."""
    agent = agents.get(request.param)
    names = {field.name for field in dataclasses.fields(agent.Config)}
    sizes = {key: value for key, value in SIZES.items() if key in names}
    return agent, spec_of(request.param), agent.Config(**sizes)


def test_an_agent_is_an_agent_and_accepts_its_own_settings(made: tuple) -> None:
    agent, spec, config = made
    assert isinstance(agent, contract.Agent)
    agent.check(spec, config)


def test_an_agents_policy_can_be_lowered_and_its_output_explored(made: tuple) -> None:
    agent, spec, config = made
    module = agent.policy_module(agent.make_networks(spec, config))
    policy = lowering.quantize_policy(module, spec.observations)
    output = policy(np.zeros(4, np.float32))
    for exploration in (agent.exploration(spec, config, 0, 2), agent.greedy(spec)):
        state = exploration.state()
        action = exploration(output, np.random.default_rng(0))
        spec.actions.validate(action.astype(spec.actions.dtype))
        exploration.set_state(state)
        again = exploration(output, np.random.default_rng(0))
        np.testing.assert_array_equal(again, action)


def test_acmes_policy_of_an_agent_explores_as_ours(made: tuple) -> None:
    agent, spec, config = made
    exploration = agent.exploration(spec, config, 0, 1)
    policy = agent.make_acme_policy(
        agent.make_networks(spec, config), spec, exploration
    )
    _, found = split_exploration(policy)
    assert type(found) is type(exploration)


def test_an_agents_builder_has_the_parts_of_a_program(made: tuple) -> None:
    agent, spec, config = made
    (table,) = agent.make_builder(config).make_replay_tables(spec)
    online, target = agent.make_learner_networks(spec, config)
    assert online is not target and table.name
