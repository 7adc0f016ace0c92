"""Our actor: the quantized policy on the C engine, and nothing of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acme.utils import loggers

from acme_quant.acting import actor, environment_loop
from acme_quant.acting.async_counter import AsyncCounter
from acme_quant.acting.step_limit import StepLimit
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.nodes.evaluator import EnginePolicies
from acme_quant.launch.nodes.life import Life
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.publishing.client import QuantizedVariableClient
from acme_quant.replay.client import ReplayClient


def make_loop(
    context: Context, life: Life, environment: Any, logger: loggers.Logger
) -> environment_loop.EnvironmentLoop | environment_loop.VectorEnvironmentLoop:
    """Returns the loop of one actor.

    Args:
      context: of the actor's node.
      life: goes on where the process before this one was.
      environment: one, or a vector of `envs_per_actor`.
      logger: gets a row an episode.
    """
    run, config = context.run, context.run.config
    count = config.envs_per_actor
    client = make_client(context)
    # Noise is spread over all environments of all actors.
    first, of = context.index * count, config.num_actors * count
    explorations = [
        run.agent.exploration(context.spec, run.agent_config, first + i, of)
        for i in range(count)
    ]
    replay = ReplayClient(context.replay)
    adders = run.agent.make_adders(replay, run.agent_config, count)
    seed = run.node_seed(f"noise_{context.index}")
    if count > 1:
        acts = actor.QuantizedVectorActor(client, explorations, adders, seed=seed)
        make = environment_loop.VectorEnvironmentLoop
    else:
        acts = actor.QuantizedActor(client, explorations[0], adders[0], seed=seed)
        make = environment_loop.EnvironmentLoop
    life.adopt(acts)
    counter = AsyncCounter(context.counter, "actor", context.count_every_s)
    limit = StepLimit(counter, config.max_actor_steps, config.num_actors)
    return make(environment, acts, counter, logger, limit=limit)


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
