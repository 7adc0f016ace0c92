"""The agents: one folder each, found by name; `agent.Agent` says what each has to have.

A new agent is a folder with `AGENT`, an `Agent`, and a line here. Importing one imports
no TensorFlow: an actor's process does not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acme_quant.agents.agent import Agent

AGENTS = {
    "d4pg": "acme_quant.agents.d4pg",
    "dqn": "acme_quant.agents.dqn",
}


def get(name: str) -> Agent[Any, Any]:
    """Returns the agent called `name`.

    Raises:
      ValueError: if there is no such agent.
    """
    if name not in AGENTS:
        raise ValueError(f"expected an agent out of {', '.join(AGENTS)}, got {name!r}.")
    return importlib.import_module(AGENTS[name]).AGENT
