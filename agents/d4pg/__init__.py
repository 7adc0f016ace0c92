"""D4PG with quantized actors: Acme's learner and replay, our actors.

    from acme_quant.agents import d4pg
    builder = d4pg.make_builder(d4pg.Config(), quantizer="int8")

The networks are those of Acme's `d4pg.make_default_networks`: a LayerNorm MLP policy
whose tanh is scaled to the action box, and a distributional critic. Bytes and images
go through an encoder first, which the critic's loss trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acme_quant.acting.exploration import GaussianNoise, spread
from acme_quant.agents import images, settings
from acme_quant.agents.d4pg.config import Config

if TYPE_CHECKING:
    import acme
    import reverb
    import sonnet as snt
    from acme import adders, specs
    from acme.agents.tf.d4pg import agent as acme_d4pg
    from acme.utils import counting, loggers

    from acme_quant.builder import QuantizedBuilder


def check(spec: specs.EnvironmentSpec, config: Config) -> None:
    """Refuses environments that D4PG cannot act in.

    Raises:
      ValueError: if the actions are not a bounded box of floats, the channels of an
        image come first, or the settings can never let the learner take its first
        batch.
    """
    from acme_quant import environments

    kind = environments.action_kind(spec)
    if kind != "continuous":
        raise ValueError(
            f"d4pg expects continuous actions, got {kind} ones; "
            "use --agent=dqn for discrete actions."
        )
    images.check_channels(spec.observations)
    settings.check(config)
    # Acme allows the rate an error of a tenth of min_replay_size insertions, and Reverb
    # refuses a limiter that allows less than one sample.
    if config.min_replay_size * config.samples_per_insert < 10:
        raise ValueError(
            "expected min_replay_size * samples_per_insert of at least 10, got "
            f"{config.min_replay_size} * {config.samples_per_insert}: the rate limiter "
            "would block for ever."
        )


def make_networks(
    spec: specs.EnvironmentSpec, config: Config
) -> acme_d4pg.D4PGNetworks:
    """Returns D4PG's networks with their variables made."""
    from acme.agents.tf.d4pg import agent as acme_d4pg
    from acme.agents.tf.d4pg import make_default_networks

    parts = make_default_networks(
        spec.actions,
        policy_layer_sizes=config.policy_layers,
        critic_layer_sizes=config.critic_layers,
        vmin=-config.value_bound,
        vmax=config.value_bound,
        num_atoms=config.num_atoms,
    )
    observation = parts["observation"]
    if images.needs_encoder(spec.observations):
        from acme_quant.agents.encoder import Encoder

        observation = Encoder(spec.observations)
    networks = acme_d4pg.D4PGNetworks(
        policy_network=parts["policy"],
        critic_network=parts["critic"],
        observation_network=observation,
    )
    networks.init(spec)
    return networks


def policy_module(networks: acme_d4pg.D4PGNetworks) -> snt.Module:
    """Returns observation network and policy in the learner's variable order."""
    import sonnet as snt

    return snt.Sequential([networks.observation_network, networks.policy_network])


def make_builder(
    config: Config | None = None, quantizer: Any = "int8", **options: Any
) -> QuantizedBuilder:
    """Returns Acme's D4PG builder with quantized actors and the fast adder.

    Args:
      config: the agent's settings.
      quantizer: name of a quantizer, or an object of one's own.
      **options: further arguments of `acme_quant.QuantizedBuilder`.
    """
    from acme_quant import builder

    config = config or Config()
    return builder.QuantizedBuilder(
        make_acme_builder(config),
        quantizer=quantizer,
        adder_factory=lambda client: make_adders(client, config)[0],
        **options,
    )


def make_acme_builder(config: Config) -> acme_d4pg.D4PGBuilder:
    """Returns Acme's own builder with these settings."""
    import sonnet as snt
    from acme.agents.tf.d4pg import agent as acme_d4pg

    return acme_d4pg.D4PGBuilder(
        acme_d4pg.D4PGConfig(
            discount=config.discount,
            batch_size=config.batch_size,
            target_update_period=config.target_update_period,
            policy_optimizer=snt.optimizers.Adam(config.learning_rate),
            critic_optimizer=snt.optimizers.Adam(config.learning_rate),
            min_replay_size=config.min_replay_size,
            max_replay_size=config.max_replay_size,
            samples_per_insert=config.samples_per_insert,
            n_step=config.n_step,
            sigma=config.sigma,
        )
    )


def make_learner_networks(
    spec: specs.EnvironmentSpec, config: Config
) -> tuple[acme_d4pg.D4PGNetworks, acme_d4pg.D4PGNetworks]:
    """Returns the online and the target networks that Acme's learner trains."""
    return make_networks(spec, config), make_networks(spec, config)


def make_learner(
    builder: acme_d4pg.D4PGBuilder,
    networks: tuple[acme_d4pg.D4PGNetworks, acme_d4pg.D4PGNetworks],
    replay: reverb.Client,
    counter: counting.Counter,
    logger: loggers.Logger,
) -> acme.Learner:
    """Returns Acme's learner on the replay server's data."""
    dataset = builder.make_dataset_iterator(replay)
    learner = builder.make_learner(networks, dataset, counter, logger, checkpoint=False)
    make_slots(learner)
    return learner


def make_slots(learner: Any) -> None:
    """Makes the optimizers' slots now.

    Sonnet makes them in the first step, which is too late for a checkpoint to be
    restored into them. The variables are those that Acme's learner gives each.
    """
    policy = learner._policy_network.trainable_variables
    critic = learner._critic_network.trainable_variables
    observation = learner._observation_network.trainable_variables
    learner._policy_optimizer._initialize(policy)
    learner._critic_optimizer._initialize(observation + critic)


def make_acme_policy(
    networks: acme_d4pg.D4PGNetworks,
    spec: specs.EnvironmentSpec,
    exploration: GaussianNoise,
) -> snt.Module:
    """Returns the module that Acme's own actor runs: it explores as ours would."""
    return networks.make_policy(spec, exploration.sigma)


def make_adders(
    client: reverb.Client, config: Config, num_envs: int = 1
) -> list[adders.Adder]:
    """Returns one actor's adders of n-step transitions, one per environment."""
    from acme_quant.replay import adder

    return adder.make_adders(client, num_envs, config.n_step, config.discount)


def exploration(
    spec: specs.EnvironmentSpec, config: Config, actor_index: int, num_actors: int
) -> GaussianNoise:
    """Returns clipped Gaussian noise with this actor's sigma."""
    low = config.sigma * (1.0 - config.sigma_spread)
    high = config.sigma * (1.0 + config.sigma_spread)
    sigma = spread(low, high, actor_index, num_actors)
    return GaussianNoise(sigma, spec.actions.minimum, spec.actions.maximum)


def greedy(spec: specs.EnvironmentSpec) -> GaussianNoise:
    """Returns the exploration of an evaluator: none."""
    return GaussianNoise(0.0, spec.actions.minimum, spec.actions.maximum)
