"""The environment of one node, with a seed of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from acme_quant import environments
from acme_quant.environments import vector
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    import dm_env

# Nodes that are threads of one process import an environment's library at once, and the
# second would see half of modules that import each other.
_MAKING = threading.Lock()


def make_environment(run: Run, node: str) -> dm_env.Environment:
    """Returns the environment of one node."""
    with _MAKING:
        return environments.make_environment(
            run.config.env, seed=run.node_seed(node), **run.environment_options
        )


def make_vector_environment(run: Run, node: str) -> vector.VectorEnvironment:
    """Returns the environments of an actor that steps several."""
    with _MAKING:
        return vector.make_vector_environment(
            run.config.env,
            run.config.envs_per_actor,
            seed=run.node_seed(node),
            **run.environment_options,
        )
