"""What an agent is: all that the builders and a run ask of it, and what all share."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import acme
    import reverb
    import sonnet as snt
    import tensorflow as tf
    from acme import adders, specs
    from acme.utils import counting, loggers

    from acme_quant import roles
    from acme_quant.agents.builder import AcmeBuilder, QuantizedBuilder

C = TypeVar("C")  # The agent's settings.
N = TypeVar("N")  # Acme's networks of it.


class Agent(abc.ABC, Generic[C, N]):
    """One algorithm: Acme's learner of it, and how its actors run quantized.

    Importing an agent imports no TensorFlow: an actor's process does not need it.

    Attributes:
      Config: a frozen dataclass of the agent's settings. Each field carries its help
        text, so that the command line is made from it.
      clipping: what the learner clips and what helps, when `clipped` counts much.
    """

    Config: ClassVar[type]
    clipping: ClassVar[str]

    @abc.abstractmethod
    def check(self, spec: specs.EnvironmentSpec, config: C) -> None:
        """Refuses an environment or settings with which the agent cannot learn.

        Raises:
          ValueError: with one sentence that says why.
        """

    @abc.abstractmethod
    def make_networks(self, spec: specs.EnvironmentSpec, config: C) -> N:
        """Returns Acme's networks of this agent, with variables."""

    @abc.abstractmethod
    def policy_module(self, networks: N) -> snt.Module:
        """Returns the deterministic module that actors run.

        Its variables are in the order of the learner's `get_variables(["policy"])`.
        """

    @abc.abstractmethod
    def make_acme_builder(self, config: C) -> AcmeBuilder:
        """Returns the builder of Acme's own learner, actor and adder."""

    @abc.abstractmethod
    def make_learner(
        self,
        builder: AcmeBuilder,
        networks: tuple[N, N],
        replay: reverb.Client,
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> acme.Learner:
        """Returns Acme's learner on the replay server's data, all variables made."""

    @abc.abstractmethod
    def clipped(self, config: C, reward: tf.Tensor, discount: tf.Tensor) -> tf.Tensor:
        """Returns which transitions are beyond what the learner can learn.

        Args:
          config: the agent's settings.
          reward: n-step returns, [B].
          discount: of what comes after them, [B], before the learner's last factor.

        Returns:
          bool [B].
        """

    @abc.abstractmethod
    def policy_variables(self, learner: acme.Learner) -> Sequence[tf.Variable]:
        """Returns the variables that Acme's learner hands out as its policy."""

    @abc.abstractmethod
    def make_acme_policy(
        self,
        networks: N,
        spec: specs.EnvironmentSpec,
        exploration: roles.Exploration,
    ) -> snt.Module:
        """Returns the module that Acme's own actor runs: it explores as ours would."""

    @abc.abstractmethod
    def split_exploration(
        self, network: snt.Module
    ) -> tuple[snt.Module, roles.Exploration] | None:
        """Splits a behaviour network of this agent into policy and exploration.

        Returns:
          Both; None if the network's end is not of this agent.
        """

    @abc.abstractmethod
    def exploration(
        self,
        spec: specs.EnvironmentSpec,
        config: C,
        actor_index: int,
        num_actors: int,
    ) -> roles.Exploration:
        """Returns what one actor of many does to the policy's output."""

    @abc.abstractmethod
    def greedy(self, spec: specs.EnvironmentSpec) -> roles.Exploration:
        """Returns the same for an evaluator: nothing, or the best of values."""

    def make_builder(
        self,
        config: C | None = None,
        quantizer: str | roles.Quantizer = "int8",
        **options: Any,
    ) -> QuantizedBuilder:
        """Returns Acme's builder of this agent with quantized actors, our adder.

        Args:
          config: the agent's settings.
          quantizer: name of a quantizer, or an object of one's own.
          **options: further arguments of `acme_quant.QuantizedBuilder`.
        """
        from acme_quant.agents import builder

        settings: C = self.Config() if config is None else config
        return builder.QuantizedBuilder(
            self.make_acme_builder(settings),
            quantizer=quantizer,
            adder_factory=lambda client: self.make_adders(client, settings)[0],
            **options,
        )

    def make_learner_networks(
        self, spec: specs.EnvironmentSpec, config: C
    ) -> tuple[N, N]:
        """Returns the online and the target networks that Acme's learner trains."""
        return self.make_networks(spec, config), self.make_networks(spec, config)

    def make_adders(
        self, client: reverb.Client, config: C, num_envs: int = 1
    ) -> list[adders.Adder]:
        """Returns one actor's adders of n-step transitions, one per environment."""
        from acme_quant.replay import adder

        return adder.make_adders(client, num_envs, config.n_step, config.discount)
