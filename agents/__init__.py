"""The agents: one module each, found by name.

An agent is a module with these names; launch and the builders ask for no other:

* ``Config``: a frozen dataclass of the agent's own settings. Each field carries its
  help text, so that the command line is made from it.
* ``check(spec, config)``: raises ``ValueError`` with one sentence when the agent
  cannot act in that environment or the settings contradict each other.
* ``make_networks(spec, config)``: Acme's networks of this agent, with variables.
* ``policy_module(networks)``: the deterministic module that the actors run; its
  variables are in the order of the learner's ``get_variables(["policy"])``.
* ``make_builder(config, ...)``: an Acme builder whose actors are quantized.
* ``make_adders(client, config, num_envs)``: the adders of one actor, one per
  environment.
* ``exploration(spec, config, actor_index, num_actors)``: what an actor does to the
  policy's output; ``greedy(spec)``: the same for an evaluator.

Importing an agent imports no TensorFlow: an actor's process does not need it.
"""

from __future__ import annotations

import importlib
import types

AGENTS = {
    "d4pg": "acme_quant.agents.d4pg",
    "dqn": "acme_quant.agents.dqn",
}


def get(name: str) -> types.ModuleType:
    """Returns the module of the agent called `name`.

    Raises:
      ValueError: if there is no such agent.
    """
    if name not in AGENTS:
        raise ValueError(f"expected an agent out of {', '.join(AGENTS)}, got {name!r}.")
    return importlib.import_module(AGENTS[name])
