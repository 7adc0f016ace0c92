"""DQN with quantized actors: Acme's learner, prioritized replay, our actors.

    from acme_quant.agents import dqn
    builder = dqn.make_builder(dqn.Config(), quantizer="int8")

The learner is Acme's `DQNLearner`: double Q-learning on n-step transitions, importance
weights, priorities |TD error|. It clips each transition's n-step return to [-1, 1].
Adder and learner get the same discount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acme_quant.acting.exploration import EpsilonGreedy, apex_epsilon
from acme_quant.agents import images, settings
from acme_quant.agents.agent import Agent
from acme_quant.agents.dqn.config import Config
from acme_quant.settings import refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import acme
    import reverb
    import sonnet as snt
    import tensorflow as tf
    from acme import specs
    from acme.utils import counting, loggers

    from acme_quant import roles
    from acme_quant.agents.builder import QuantizedBuilder
    from acme_quant.agents.dqn.builder import DQNBuilder


class DQN(Agent[Config, "snt.Sequential"]):
    """DQN: values of actions, of which an actor mostly takes the best."""

    Config = Config
    clipping = (
        "DQN clips n-step returns to [-1, 1]; smaller rewards or a smaller --n_step "
        "would be seen whole"
    )

    def check(self, spec: specs.EnvironmentSpec, config: Config) -> None:
        """Refuses environments that DQN cannot act in.

        Raises:
          ValueError: if the actions are not one index, the network does not fit the
            observations, or the settings can never let the learner take a batch.
        """
        from acme_quant import environments

        kind = environments.action_kind(spec)
        if kind != "discrete":
            raise ValueError(
                f"dqn expects discrete actions, got {kind} ones; "
                "use --agent=d4pg for continuous actions."
            )
        settings.check(config)
        _check_network(spec, config)

    def make_networks(
        self, spec: specs.EnvironmentSpec, config: Config
    ) -> snt.Sequential:
        """Returns the Q-network with its variables made."""
        from acme_quant.agents.dqn import networks as q_networks

        return q_networks.make(spec, _network(spec, config), config.q_layers)

    def policy_module(self, networks: snt.Sequential) -> snt.Module:
        """Returns the Q-network: what actors run; `exploration` picks the action."""
        return networks

    def make_acme_builder(self, config: Config) -> DQNBuilder:
        """Returns the builder of Acme's own learner, actor and adder."""
        from acme_quant.agents.dqn import builder as dqn_builder

        return dqn_builder.DQNBuilder(config)

    def make_learner(
        self,
        builder: DQNBuilder,
        networks: tuple[snt.Sequential, snt.Sequential],
        replay: reverb.Client,
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> acme.Learner:
        """Returns Acme's learner, which updates the replay server's priorities."""
        dataset = builder.make_dataset_iterator(replay)
        return builder.make_learner(
            networks, dataset, counter, logger, checkpoint=False, replay_client=replay
        )

    def make_acme_policy(
        self,
        networks: snt.Sequential,
        spec: specs.EnvironmentSpec,
        exploration: EpsilonGreedy,
    ) -> snt.Module:
        """Returns the module that Acme's own actor runs: it explores as ours would."""
        import sonnet as snt

        from acme_quant.agents.dqn import networks as q_networks

        del spec
        return snt.Sequential([networks, q_networks.EpsilonGreedyHead(exploration)])

    def exploration(
        self,
        spec: specs.EnvironmentSpec | None,
        config: Config,
        actor_index: int,
        num_actors: int,
    ) -> EpsilonGreedy:
        """Returns epsilon-greedy choice with this actor's epsilon."""
        del spec
        epsilon = apex_epsilon(
            config.epsilon, config.epsilon_exponent, actor_index, num_actors
        )
        decay_steps = config.epsilon_decay_steps
        start = 1.0 if decay_steps else None
        return EpsilonGreedy(epsilon, initial_epsilon=start, decay_steps=decay_steps)

    def greedy(self, spec: specs.EnvironmentSpec) -> EpsilonGreedy:
        """Returns the exploration of an evaluator: none."""
        del spec
        return EpsilonGreedy(0.0)

    def make_builder(
        self,
        config: Config | None = None,
        quantizer: str | roles.Quantizer = "int8",
        **options: Any,
    ) -> QuantizedBuilder:
        """Returns a DQN builder with quantized actors and our adder.

        Its `make_actor` takes the Q-network; all its actors explore alike. An
        evaluator's builder is given `exploration=dqn.AGENT.greedy(spec)`.

        Args:
          config: the agent's settings.
          quantizer: name of a quantizer, or an object of one's own.
          **options: further arguments of `acme_quant.QuantizedBuilder`.
        """
        config = config or Config()
        options.setdefault("exploration", self.exploration(None, config, 0, 1))
        return super().make_builder(config, quantizer, **options)

    def clipped(
        self, config: Config, reward: tf.Tensor, discount: tf.Tensor
    ) -> tf.Tensor:
        """Returns which n-step returns Acme's learner clips, bool [B]."""
        del config, discount
        return abs(reward) > 1.0

    def policy_variables(self, learner: acme.Learner) -> Sequence[tf.Variable]:
        """Returns the network's: Acme's learner has one list of its one network."""
        return learner._variables[0]

    def split_exploration(
        self, network: snt.Module
    ) -> tuple[snt.Module, EpsilonGreedy] | None:
        """Knows the EpsilonGreedyHead that `make_acme_policy` puts on top."""
        import sonnet as snt

        from acme_quant.agents.dqn import networks as q_networks

        layers = network._layers if isinstance(network, snt.Sequential) else []
        if not layers or not isinstance(layers[-1], q_networks.EpsilonGreedyHead):
            return None
        return snt.Sequential(layers[:-1]), layers[-1].exploration


def _check_network(spec: specs.EnvironmentSpec, config: Config) -> None:
    images.check_channels(spec.observations)
    image = images.is_image(spec.observations)
    if config.network == "atari" and not image:
        raise ValueError(
            "the atari network expects one image [height, width, channels], uint8 or "
            f"float32, got {spec.observations}."
        )
    if _network(spec, config) != "atari":
        if image and spec.observations.dtype == "uint8":
            raise ValueError(f"{config.network} expects rows, got images; use atari.")
        return
    refusals.check(config, {"mlp": "the atari network, which has layers of its own"})


def _network(spec: specs.EnvironmentSpec, config: Config) -> str:
    """Returns the kind of network that `auto` stands for, or the one named."""
    if config.network != "auto":
        return config.network
    return "atari" if images.is_image(spec.observations) else "mlp"


AGENT = DQN()
make_builder = AGENT.make_builder
