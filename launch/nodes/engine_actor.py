"""Our actor: the quantized policy on the C engine, and nothing of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

from acme import adders
from acme.utils import loggers

from acme_quant import roles
from acme_quant.acting import actor, environment_loop
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.step_limit import StepLimit
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.environment import (
    make_environment,
    make_vector_environment,
)
from acme_quant.launch.nodes.evaluator import EnginePolicies
from acme_quant.launch.nodes.life import Life
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.publishing.client import QuantizedVariableClient
from acme_quant.replay.client import ReplayClient


def make_loop(
    context: Context, life: Life, logger: loggers.Logger
) -> environment_loop.EnvironmentLoop | environment_loop.VectorEnvironmentLoop:
    """Returns the loop of one actor.

    Args:
      context: of the actor's node.
      life: goes on where the process before this one was.
      logger: gets a row an episode.
    """
    if context.run.config.envs_per_actor > 1:
        return _make_vector_loop(context, life, logger)
    run = context.run
    environment = life.watch(make_environment(run, life.seed_name), run)
    client = make_client(context)
    (exploration,), (adder,) = _explorations(context), _adders(context)
    seed = run.node_seed(f"noise_{context.index}")
    acts = actor.QuantizedActor(client, exploration, adder, seed=seed)
    life.adopt(acts)
    counter = _counter(context)
    return environment_loop.EnvironmentLoop(
        environment, acts, counter, logger, limit=_limit(context, counter)
    )


def _make_vector_loop(
    context: Context, life: Life, logger: loggers.Logger
) -> environment_loop.VectorEnvironmentLoop:
    run = context.run
    environment = life.watch_vector(make_vector_environment(run, life.seed_name), run)
    client = make_client(context)
    seed = run.node_seed(f"noise_{context.index}")
    acts = actor.QuantizedVectorActor(
        client, _explorations(context), _adders(context), seed=seed
    )
    life.adopt(acts)
    counter = _counter(context)
    return environment_loop.VectorEnvironmentLoop(
        environment, acts, counter, logger, limit=_limit(context, counter)
    )


def _explorations(context: Context) -> list[roles.Exploration]:
    """Returns one exploration for each of the actor's environments."""
    run, config = context.run, context.run.config
    count = config.envs_per_actor
    # Noise is spread over all environments of all actors.
    first, of = context.index * count, config.num_actors * count
    return [
        run.agent.exploration(context.spec, run.agent_config, first + i, of)
        for i in range(count)
    ]


def _adders(context: Context) -> list[adders.Adder]:
    """Returns one adder for each of the actor's environments."""
    run, replay = context.run, ReplayClient(context.replay)
    count = run.config.envs_per_actor
    return run.agent.make_adders(replay, run.agent_config, count)


def _counter(context: Context) -> AsyncCounter:
    return AsyncCounter(context.counter, "actor", context.count_every_s)


def _limit(context: Context, counter: AsyncCounter) -> StepLimit:
    config = context.run.config
    return StepLimit(counter, config.max_actor_steps, config.num_actors)


def make_policies(context: Context) -> EnginePolicies:
    """Returns what the evaluator evaluates: the payload that the actors run."""
    run = context.run
    float32 = _float32_source(context) if run.config.evaluate_float32 else None
    greedy = run.agent.greedy(context.spec)
    return EnginePolicies(make_client(context), greedy, float32)


def make_client(context: Context) -> QuantizedVariableClient:
    """Returns a variable client that already holds a first policy."""
    config = context.run.config
    client = QuantizedVariableClient(
        context.policies,
        config.update_period,
        quantizer=config.quantizer if config.communication else None,
        activations=config.activations,
        wait=context.waits,
    )
    client.update_and_wait()
    return client


def _float32_source(context: Context) -> Callable[[], QuantizedPolicy]:
    """Returns a function of the float32 policy behind the last publication."""

    def make() -> QuantizedPolicy:
        step, variables = context.policies.get_float32()
        return quantize_graph(context.graph, variables, "float32", learner_step=step)

    return make
