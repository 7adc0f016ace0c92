"""What each node is made of; every function runs in its node's own process.

Imports stand in the functions: a process imports what its node uses. Actors, evaluator,
quantizer and counter get by without TensorFlow, which saves each of them seconds of
start-up and hundreds of megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import launchpad as lp

from acme_quant.launch.nodes.loggers import make_logger
from acme_quant.launch.settings.config import Run

if TYPE_CHECKING:
    import dm_env
    import reverb

    from acme_quant.launch.checkpoints.deposits import Drawer
    from acme_quant.launch.nodes.coordinator import Coordinator
    from acme_quant.launch.nodes.counter import RunCounter
    from acme_quant.launch.nodes.engine_actor import ActorNode, Life
    from acme_quant.launch.nodes.evaluator import EvaluatorNode
    from acme_quant.launch.nodes.learner import LearnerNode
    from acme_quant.launch.nodes.quantizer import Publication, QuantizerNode
    from acme_quant.policy.quantized_policy import QuantizedPolicy
    from acme_quant.publishing.client import QuantizedVariableClient
    from acme_quant.publishing.publisher import PolicyPublisher

COUNTER_PERIOD_S = 0.5


def counter_period_s(run: Run) -> float:
    """Returns how long a node counts by itself; in one process, not at all."""
    return COUNTER_PERIOD_S if run.config.num_actors else -1.0


def make_tables(run: Run, spec: Any) -> list[reverb.Table]:
    """Returns the replay tables of the agent."""
    builder = run.agent.make_acme_builder(run.agent_config)
    return builder.make_replay_tables(spec)


def make_counter(run: Run) -> RunCounter:
    """Returns the counter that all others count into, from where the run starts."""
    from acme_quant.launch.nodes.counter import RunCounter

    return RunCounter(run.start.counts, run.start.deposits)


def make_coordinator(counter: Any, max_actor_steps: int) -> Coordinator:
    """Returns the node that knows when the steps are done."""
    from acme_quant.launch.nodes.coordinator import Coordinator

    return Coordinator(counter, max_actor_steps)


def make_learner(
    run: Run, spec: Any, graph: Any, replay: Any, counter: Any, started: float
) -> LearnerNode:
    """Returns Acme's learner; with the publisher when that is colocated.

    Args:
      run: the run's configuration.
      spec: acme.specs.EnvironmentSpec of its environment.
      graph: the lowered policy.
      replay: the server's address; in one process, its LocalReplay.
      counter: the run's RunCounter.
      started: time.time() at launch.
    """
    import functools

    import reverb
    import tensorflow as tf
    from acme.utils import counting

    from acme_quant.launch.checkpoints import learner_state, saving
    from acme_quant.launch.checkpoints.replay_saver import ReplaySaver
    from acme_quant.launch.nodes import learner_times
    from acme_quant.launch.nodes.learner import LearnerNode
    from acme_quant.publishing import learner as learners

    tf.random.set_seed(run.node_seed("learner"))
    single = not run.config.num_actors
    builder = _learner_builder(run)
    logger = learner_times.LearnerTimes(
        make_logger(run.workdir, "learner", "learner_steps", started),
        builder,
        run.config.log_every_s,
    )
    client = replay if single else reverb.Client(replay)
    acme_learner = run.agent.make_learner(
        builder,
        run.agent.make_learner_networks(spec, run.agent_config),
        client,
        counting.Counter(counter, "learner", time_delta=counter_period_s(run)),
        logger,
    )
    state = learner_state.LearnerState(acme_learner)
    saving.restore(run, state)
    policy = state.names_of(run.agent.policy_variables(acme_learner))
    replay_saver = ReplaySaver(run, spec, client)
    saver = saving.LearnerSaver(
        run, spec, state, policy, counter, replay_saver, started
    )
    steps = run.start.learner_steps
    if not (single or run.config.colocate_quantizer):
        learner = logger.learner = learners.ConsistentLearner(acme_learner, steps)
        return LearnerNode(learner, logger, saver)
    publisher = functools.partial(_make_publisher, run, graph)
    kind = learners.SequentialLearner if single else learners.PublishingLearner
    learner = kind(acme_learner, publisher, steps)
    logger.learner = learner
    saver.policy_version = lambda: int(learner.get_status()["version"])
    return LearnerNode(learner, logger, saver, _make_publication(run, learner, started))


def _learner_builder(run: Run) -> Any:
    """Returns the agent's builder; its batches come from this process or are timed."""
    from acme_quant.replay import data_wait, local_batches

    builder = run.agent.make_acme_builder(run.agent_config)
    if not run.config.num_actors:
        return local_batches.LocalBuilder(builder, run.agent_config.batch_size)
    return data_wait.TimedBuilder(builder)


def make_quantizer(
    run: Run, graph: Any, learner: Any, counter: Any, started: float
) -> QuantizerNode:
    """Returns the node that quantizes the learner's policy."""
    from acme_quant.launch.checkpoints.deposits import QUANTIZER, Drawer
    from acme_quant.launch.nodes.quantizer import QuantizerNode

    publisher = _make_publisher(run, graph, learner)
    drawer = Drawer(counter, QUANTIZER)
    publication = _make_publication(run, publisher, started, drawer)
    return QuantizerNode(publisher, publication)


def _make_publication(
    run: Run, publisher: Any, started: float, drawer: Drawer | None = None
) -> Publication:
    from acme_quant.launch.nodes.quantizer import Publication

    logger = make_logger(run.workdir, "quantizer", "learner_step", started)
    return Publication(publisher, logger, run.workdir, run.config.log_every_s, drawer)


def _make_publisher(run: Run, graph: Any, learner: Any) -> PolicyPublisher:
    from acme_quant.publishing import publisher

    config = run.config
    return publisher.PolicyPublisher(
        graph,
        learner,
        config.quantizer,
        activations=config.activations,
        communication=config.communication or None,
        publish_period=config.publish_period,
        publish_period_s=config.publish_period_s or None,
        first_version=run.start.policy_version + 1,
        max_bad_policies=config.max_bad_policies,
        stop=lp.stop_event() if config.num_actors else None,
    )


def make_client(run: Run, quantizer: Any) -> QuantizedVariableClient:
    """Returns a variable client that already holds a first policy."""
    from acme_quant.publishing import client as variable_client

    config = run.config
    client = variable_client.QuantizedVariableClient(
        quantizer,
        config.update_period,
        quantizer=config.quantizer if config.communication else None,
        activations=config.activations,
        wait=not config.num_actors,
    )
    client.update_and_wait()
    return client


def make_actor(
    run: Run,
    spec: Any,
    index: int,
    policies: Any,
    replay: str,
    counter: Any,
    started: float,
) -> ActorNode:
    """Returns one actor: ours on the quantizer, or Acme's own on the learner."""
    from acme_quant.launch.nodes.engine_actor import ActorNode, Life

    name = f"actor_{index}"
    life = Life(counter, name)
    logger = make_logger(
        run.workdir, name, "actor_steps", started, run.config.log_every_s
    )
    make = _engine_loop if run.config.actor == "engine" else _acme_loop
    several = run.config.envs_per_actor > 1
    environment = (_make_vector_environment if several else make_environment)(
        run, life.seed_name
    )
    environment = life.watch(environment, run)
    loop = make(run, spec, index, policies, replay, environment, counter, logger, life)
    return ActorNode(loop, logger.close, life)


def make_environment(run: Run, node: str) -> dm_env.Environment:
    """Returns the environment of one node, with a seed of its own."""
    from acme_quant import environments

    return environments.make_environment(
        run.config.env, seed=run.node_seed(node), **run.environment_options
    )


def _make_vector_environment(run: Run, node: str) -> Any:
    from acme_quant.environments import vector

    return vector.make_vector_environment(
        run.config.env,
        run.config.envs_per_actor,
        seed=run.node_seed(node),
        **run.environment_options,
    )


def _engine_loop(
    run: Run,
    spec: Any,
    index: int,
    quantizer: Any,
    replay: str,
    environment: Any,
    counter: Any,
    logger: Any,
    life: Life,
) -> Any:
    from acme_quant.acting import actor, async_counter, environment_loop
    from acme_quant.replay import client as replay_client

    config, count = run.config, run.config.envs_per_actor
    client = make_client(run, quantizer)
    explorations = [
        # Noise is spread over all environments of all actors.
        run.agent.exploration(
            spec, run.agent_config, index * count + i, config.num_actors * count
        )
        for i in range(count)
    ]
    adders = run.agent.make_adders(
        replay_client.ReplayClient(replay), run.agent_config, count
    )
    seed = run.node_seed(f"noise_{index}")
    if count > 1:
        acts = actor.QuantizedVectorActor(client, explorations, adders, seed=seed)
        make = environment_loop.VectorEnvironmentLoop
    else:
        acts = actor.QuantizedActor(client, explorations[0], adders[0], seed=seed)
        make = environment_loop.EnvironmentLoop
    life.adopt(acts)
    local = async_counter.AsyncCounter(counter, "actor", COUNTER_PERIOD_S)
    return make(environment, acts, local, logger)


def _acme_loop(
    run: Run,
    spec: Any,
    index: int,
    learner: Any,
    replay: str,
    environment: Any,
    counter: Any,
    logger: Any,
    life: Life,
) -> Any:
    import reverb
    import tensorflow as tf
    from acme.utils import counting

    from acme_quant.launch.nodes import acme_actor

    # TensorFlow's generator cannot go on where another process left it.
    tf.random.set_seed(run.node_seed(f"noise_{index} of {life.seed_name}"))
    adder = run.agent.make_acme_builder(run.agent_config).make_adder(
        reverb.Client(replay)
    )
    exploration = run.agent.exploration(
        spec, run.agent_config, index, run.config.num_actors
    )
    if hasattr(exploration, "set_state"):
        exploration.set_state({"steps": life.steps_before})
    actor = acme_actor.make(run, spec, learner, adder, exploration)
    local = counting.Counter(counter, "actor", time_delta=COUNTER_PERIOD_S)
    return acme_actor.Loop(environment, actor, local, logger)


def _float32_source(graph: Any, quantizer: Any) -> Callable[[], QuantizedPolicy]:
    """Returns a function of the float32 policy behind the last publication."""
    from acme_quant.policy import quantized_policy as policy

    def make() -> QuantizedPolicy:
        step, variables = quantizer.get_float32()
        return policy.quantize_graph(graph, variables, "float32", learner_step=step)

    return make


def make_evaluator(
    run: Run, spec: Any, graph: Any, policies: Any, counter: Any, started: float
) -> EvaluatorNode:
    """Returns the evaluator of the actors' policy."""
    from acme.utils import counting

    from acme_quant.launch.checkpoints.deposits import EVALUATOR, Drawer
    from acme_quant.launch.nodes import evaluator

    environment = make_environment(run, "evaluator")
    if run.config.actor == "engine":
        evaluated = evaluator.EnginePolicies(
            make_client(run, policies),
            run.agent.greedy(spec),
            _float32_source(graph, policies) if run.config.evaluate_float32 else None,
        )
    else:
        from acme_quant.launch.nodes import acme_actor

        actor = acme_actor.make(run, spec, policies, None)
        greedy = run.agent.greedy(spec)
        evaluated = evaluator.AcmePolicies(actor, policies, greedy)
    drawer = Drawer(counter, EVALUATOR)
    counter = counting.Counter(counter, "evaluator", time_delta=counter_period_s(run))
    return evaluator.EvaluatorNode(
        run, environment, evaluated, counter, drawer, started
    )
