"""D4PG with quantized actors: Acme's learner and replay, our actors.

    from acme_quant.agents import d4pg
    builder = d4pg.make_builder(d4pg.Config(), quantizer="int8")

The networks are those of Acme's `d4pg.make_default_networks`: a LayerNorm MLP policy
whose tanh is scaled to the action box, and a distributional critic. Bytes and images
go through an encoder first, which the critic's loss trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from acme_quant.acting.exploration import GaussianNoise, spread
from acme_quant.agents import images, settings
from acme_quant.agents.agent import Agent
from acme_quant.agents.d4pg.config import Config

if TYPE_CHECKING:
    from collections.abc import Sequence

    import acme
    import reverb
    import sonnet as snt
    import tensorflow as tf
    from acme import specs
    from acme.agents.tf.d4pg import agent as acme_d4pg
    from acme.utils import counting, loggers


class D4PG(Agent[Config, "acme_d4pg.D4PGNetworks"]):
    """D4PG: a deterministic policy, Gaussian noise, a distributional critic."""

    Config = Config
    clipping = (
        "D4PG clips values to --value_bound, and rewards like these, if they went on, "
        "would be worth more; a larger bound would show them whole"
    )

    def check(self, spec: specs.EnvironmentSpec, config: Config) -> None:
        """Refuses environments that D4PG cannot act in.

        Raises:
          ValueError: if the actions are not a bounded box of floats, the channels of
            an image come first, or the settings can never let the learner take its
            first batch.
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
        # Acme allows the rate an error of a tenth of min_replay_size insertions, and
        # Reverb refuses a limiter that allows less than one sample.
        if config.min_replay_size * config.samples_per_insert < 10:
            raise ValueError(
                "expected min_replay_size * samples_per_insert of at least 10, got "
                f"{config.min_replay_size} * {config.samples_per_insert}: the rate "
                "limiter would block for ever."
            )

    def make_networks(
        self, spec: specs.EnvironmentSpec, config: Config
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

    def policy_module(self, networks: acme_d4pg.D4PGNetworks) -> snt.Module:
        """Returns observation network and policy in the learner's variable order."""
        import sonnet as snt

        return snt.Sequential([networks.observation_network, networks.policy_network])

    def make_acme_builder(self, config: Config) -> acme_d4pg.D4PGBuilder:
        """Returns Acme's own builder with these settings."""
        from acme.agents.tf.d4pg import agent as acme_d4pg

        from acme_quant.agents.adam import OPTIMIZERS

        adam = OPTIMIZERS[config.adam]
        return acme_d4pg.D4PGBuilder(
            acme_d4pg.D4PGConfig(
                discount=config.discount,
                batch_size=config.batch_size,
                target_update_period=config.target_update_period,
                policy_optimizer=adam(config.learning_rate),
                critic_optimizer=adam(config.learning_rate),
                min_replay_size=config.min_replay_size,
                max_replay_size=config.max_replay_size,
                samples_per_insert=config.samples_per_insert,
                n_step=config.n_step,
                sigma=config.sigma,
            )
        )

    def make_learner(
        self,
        builder: acme_d4pg.D4PGBuilder,
        networks: tuple[acme_d4pg.D4PGNetworks, acme_d4pg.D4PGNetworks],
        replay: reverb.Client,
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> acme.Learner:
        """Returns Acme's learner on the replay server's data."""
        dataset = builder.make_dataset_iterator(replay)
        learner = builder.make_learner(
            networks, dataset, counter, logger, checkpoint=False
        )
        make_slots(learner)
        return learner

    def make_acme_policy(
        self,
        networks: acme_d4pg.D4PGNetworks,
        spec: specs.EnvironmentSpec,
        exploration: GaussianNoise,
    ) -> snt.Module:
        """Returns the module that Acme's own actor runs: it explores as ours would."""
        return networks.make_policy(spec, exploration.sigma)

    def exploration(
        self,
        spec: specs.EnvironmentSpec,
        config: Config,
        actor_index: int,
        num_actors: int,
    ) -> GaussianNoise:
        """Returns clipped Gaussian noise with this actor's sigma."""
        low = config.sigma * (1.0 - config.sigma_spread)
        high = config.sigma * (1.0 + config.sigma_spread)
        sigma = spread(low, high, actor_index, num_actors)
        return GaussianNoise(sigma, spec.actions.minimum, spec.actions.maximum)

    def greedy(self, spec: specs.EnvironmentSpec) -> GaussianNoise:
        """Returns the exploration of an evaluator: none."""
        return GaussianNoise(0.0, spec.actions.minimum, spec.actions.maximum)

    def clipped(
        self, config: Config, reward: tf.Tensor, discount: tf.Tensor
    ) -> tf.Tensor:
        """Returns which transitions move the outermost atom beyond the bound.

        A return that repeats itself for ever is worth `reward / (1 - discount)`. How
        likely the critic thinks such values is not asked: that would cost a pass of
        the target networks.
        """
        discount = config.discount * discount
        return abs(reward) > config.value_bound * (1.0 - discount)

    def policy_variables(self, learner: acme.Learner) -> Sequence[tf.Variable]:
        """Returns the policy's: Acme's learner knows its variables by name."""
        return learner._variables["policy"]

    def split_exploration(
        self, network: snt.Module
    ) -> tuple[snt.Module, GaussianNoise] | None:
        """Knows ClippedGaussian, then ClipToSpec, as `D4PGNetworks.make_policy` ends.

        Acme keeps both to itself, but a network is all that a builder is handed.
        """
        import sonnet as snt
        from acme.tf import networks as acme_networks

        layers = network._layers if isinstance(network, snt.Sequential) else []
        kinds = [type(layer) for layer in layers[-2:]]
        if kinds != [acme_networks.ClippedGaussian, acme_networks.ClipToSpec]:
            return None
        noise, clip = layers[-2:]
        sigma = float(np.max(noise._noise.stddev()))
        low, high = np.asarray(clip._min), np.asarray(clip._max)
        return snt.Sequential(layers[:-2]), GaussianNoise(sigma, low, high)


def make_slots(learner: acme.Learner) -> None:
    """Makes the optimizers' slots now.

    Sonnet makes them in the first step, which is too late for a checkpoint to be
    restored into them. The variables are those that Acme's learner gives each.
    """
    policy = learner._policy_network.trainable_variables
    critic = learner._critic_network.trainable_variables
    observation = learner._observation_network.trainable_variables
    learner._policy_optimizer._initialize(policy)
    learner._critic_optimizer._initialize(observation + critic)


AGENT = D4PG()
make_builder = AGENT.make_builder
