"""The environment of one node, with a seed of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_quant import environments
from acme_quant.environments import vector
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    import dm_env


def make_environment(run: Run, node: str) -> dm_env.Environment:
    """Returns the environment of one node."""
    return environments.make_environment(
        run.config.env, seed=run.node_seed(node), **run.environment_options
    )


def make_environments(
    run: Run, node: str
) -> dm_env.Environment | vector.VectorEnvironment:
    """Returns what an actor steps: one environment, or a vector of them."""
    if run.config.envs_per_actor == 1:
        return make_environment(run, node)
    return vector.make_vector_environment(
        run.config.env,
        run.config.envs_per_actor,
        seed=run.node_seed(node),
        **run.environment_options,
    )
