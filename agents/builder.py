"""QuantizedBuilder: an Acme builder whose actors run a quantized policy.

    builder = acme_quant.QuantizedBuilder(builder, quantizer="int8")

The learner that it makes is the wrapped builder's own, and answers one more call: its
policy as a payload, quantized in the learner's process. The actors that it makes ask
for that payload and run it in the engine. Everything else is handed through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from acme_quant import roles
from acme_quant.acting.actor import QuantizedActor
from acme_quant.acting.exploration import Unchanged
from acme_quant.publishing.client import QuantizedVariableClient
from acme_quant.publishing.publisher import PolicyPublisher

if TYPE_CHECKING:
    import reverb
    import sonnet as snt
    import tensorflow as tf
    from acme import adders, core, specs

    from acme_quant.policy.graph import Graph
    from acme_quant.policy.quantized_policy import QuantizedPolicy


class AcmeBuilder(Protocol):
    """What this library asks of an Acme builder, such as `D4PGBuilder`."""

    def make_replay_tables(
        self, environment_spec: specs.EnvironmentSpec
    ) -> list[reverb.Table]:
        """Returns the replay server's tables."""
        ...

    def make_dataset_iterator(
        self, replay_client: reverb.Client
    ) -> Iterator[reverb.ReplaySample]:
        """Returns batches of the replay server's data."""
        ...

    def make_adder(self, replay_client: reverb.Client) -> adders.Adder:
        """Returns an actor's adder."""
        ...

    def make_learner(self, *args: Any, **kwargs: Any) -> core.Learner:
        """Returns the learner of networks and a dataset; each builder has its own."""
        ...


@runtime_checkable
class ActorCriticNetworks(Protocol):
    """Acme's networks of an agent with a policy of its own."""

    observation_network: Callable[..., tf.Tensor]
    policy_network: Callable[..., tf.Tensor]


class QuantizedBuilder:
    """Wraps an Acme builder; the interface stays that builder's."""

    def __init__(
        self,
        builder: AcmeBuilder,
        quantizer: str | roles.Quantizer = "int8",
        *,
        activations: str = "wide",
        publish_period: int = 100,
        update_period: int = 100,
        exploration: roles.Exploration | None = None,
        policy_module: Callable[[Any], snt.Module] | None = None,
        adder_factory: Callable[[Any], adders.Adder] | None = None,
        seed: int | None = None,
    ) -> None:
        """Wraps `builder`.

        Args:
          builder: an object with Acme's builder methods.
          quantizer: name of a quantizer, or an object of one's own.
          activations: 'wide' or '8bit'; see `acme_quant.quantize_policy`.
          publish_period: learner steps between two publications.
          update_period: environment steps between an actor's questions.
          exploration: what actors do to the policy's output; None takes it from the
            policy network that `make_actor` gets, as D4PG makes it.
          policy_module: maps what `make_learner` gets as networks to the deterministic
            policy whose variables the learner calls "policy"; None knows D4PG's
            networks and single modules.
          adder_factory: makes an actor's adder of a Reverb client; None leaves it to
            the wrapped builder.
          seed: seed of the actors' exploration.
        """
        self.unwrapped = builder
        self._quantizer = quantizer
        self._activations = activations
        self._publish_period = publish_period
        self._update_period = update_period
        self._exploration = exploration
        self._policy_module = policy_module or deterministic_policy
        self._adder_factory = adder_factory
        self._seed = seed
        self._spec: specs.EnvironmentSpec | None = None

    def make_replay_tables(
        self, environment_spec: specs.EnvironmentSpec
    ) -> list[reverb.Table]:
        """Returns the wrapped builder's tables."""
        self._spec = environment_spec
        return self.unwrapped.make_replay_tables(environment_spec)

    def make_dataset_iterator(
        self, replay_client: reverb.Client
    ) -> Iterator[reverb.ReplaySample]:
        """Returns the wrapped builder's dataset."""
        return self.unwrapped.make_dataset_iterator(replay_client)

    def make_adder(self, replay_client: reverb.Client) -> adders.Adder:
        """Returns an actor's adder."""
        make = self._adder_factory or self.unwrapped.make_adder
        return make(replay_client)

    def make_learner(
        self, networks: Any, dataset: Iterator[Any], *args: Any, **kwargs: Any
    ) -> core.Learner:
        """Returns the wrapped builder's learner, which also publishes its policy.

        Raises:
          LoweringError: a module of the policy has no counterpart in the engine.
          TypeError: the policy cannot be found in `networks`.
        """
        from acme_quant import lowering
        from acme_quant.publishing import learner

        made = self.unwrapped.make_learner(networks, dataset, *args, **kwargs)
        module = self._policy_module(networks)
        graph = lowering.lower(module, _observation_spec(dataset))
        return learner.PublishingLearner(
            made,
            lambda source: PolicyPublisher(
                graph,
                source,
                self._quantizer,
                activations=self._activations,
                publish_period=self._publish_period,
            ),
        )

    def make_actor(
        self,
        policy_network: snt.Module,
        adder: adders.Adder | None = None,
        variable_source: core.VariableSource | None = None,
    ) -> QuantizedActor:
        """Returns an actor that runs the learner's payload.

        Args:
          policy_network: the behaviour network, as Acme's agents make it; its noise is
            read off it, its weights only when there is no `variable_source`.
          adder: the actor's adder; None for an evaluator.
          variable_source: the learner of `make_learner`, or a Courier client of it;
            None when the network is shared with a learner of this process.
        """
        module, exploration = split_exploration(policy_network)
        if variable_source is not None:
            client = QuantizedVariableClient(variable_source, self._update_period)
            client.update_and_wait()
        else:
            client = ModuleVariableClient(module, self._observations(), self)
        return QuantizedActor(
            client, self._exploration or exploration, adder=adder, seed=self._seed
        )

    def quantize(
        self, module: snt.Module, observation_spec: Any, graph: Graph | None = None
    ) -> QuantizedPolicy:
        """Returns a module's present policy in this builder's number format."""
        from acme_quant import lowering
        from acme_quant.policy import quantized_policy

        graph = graph or lowering.lower(module, observation_spec)
        return quantized_policy.quantize_graph(
            graph,
            [variable.numpy() for variable in module.variables],
            self._quantizer,
            activations=self._activations,
        )

    def _observations(self) -> Any:
        if self._spec is None:
            raise ValueError(
                "expected make_replay_tables(environment_spec) before an actor without "
                "variable_source, got none: the observations' shapes are not known."
            )
        return self._spec.observations


class ModuleVariableClient:
    """Quantizes a module of this process each time the actor is updated."""

    def __init__(
        self, module: snt.Module, observation_spec: Any, builder: QuantizedBuilder
    ) -> None:
        """Lowers `module` once; its variables are read at each update."""
        from acme_quant import lowering

        self._module = module
        self._builder = builder
        self._graph = lowering.lower(module, observation_spec)
        self.policy: QuantizedPolicy
        self.update()

    def update(self, wait: bool = False) -> None:
        """Quantizes the module's present variables; there is nothing to wait for."""
        del wait
        self.policy = self._builder.quantize(self._module, None, self._graph)

    @property
    def version(self) -> int:
        """The version of `policy`."""
        return self.policy.version

    def staleness(self) -> dict[str, float]:
        """Returns zeros: the policy is the learner's own."""
        return {"versions": 0, "learner_steps": 0, "seconds": 0.0}

    def close(self) -> None:
        """Holds nothing that could be closed."""


def deterministic_policy(networks: Any) -> snt.Module:
    """Finds the policy in what an Acme learner was made of.

    Of an (online, target) pair the target's: that is what D4PG's learner hands out.

    Raises:
      TypeError: if there is none to be found.
    """
    import sonnet as snt

    if isinstance(networks, Sequence):
        networks = networks[-1]
    if isinstance(networks, ActorCriticNetworks):
        parts = [networks.observation_network, networks.policy_network]
        return snt.Sequential(parts)
    if isinstance(networks, snt.Module):
        return networks
    raise TypeError(
        "expected networks with a policy_network, or one module, got "
        f"{type(networks).__name__}: pass policy_module= to QuantizedBuilder."
    )


def split_exploration(network: snt.Module) -> tuple[snt.Module, roles.Exploration]:
    """Splits a behaviour network into its deterministic part and its exploration.

    Asks the agents, who know how their own end. Any other is taken as deterministic.
    """
    from acme_quant import agents

    for name in agents.AGENTS:
        parts = agents.get(name).split_exploration(network)
        if parts is not None:
            return parts
    return network, Unchanged()


def _observation_spec(dataset: Iterator[Any]) -> Any:
    """Returns the observations' spec of an Acme dataset, without its batch axis."""
    import tree
    from acme import specs

    return tree.map_structure(
        lambda leaf: specs.Array(leaf.shape[1:], leaf.dtype.as_numpy_dtype),
        dataset.element_spec.data.observation,
    )
