"""The builder that Acme's TensorFlow DQN lacks, around Acme's own learner.

Its interface is that of `acme.agents.tf.d4pg.D4PGBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import reverb
import sonnet as snt
from acme import adders, core, datasets, specs
from acme.adders import reverb as reverb_adders
from acme.agents.tf import actors
from acme.agents.tf.dqn import learning
from acme.tf import variable_utils
from acme.utils import counting, loggers

from acme_quant.agents.adam import OPTIMIZERS

if TYPE_CHECKING:
    from acme_quant.agents.dqn.config import Config

TABLE = reverb_adders.DEFAULT_PRIORITY_TABLE


class DQNBuilder:
    """Makes the parts of a distributed DQN with prioritized replay."""

    def __init__(self, config: Config, update_period: int = 100) -> None:
        """Initializes the builder.

        Args:
          config: the agent's settings.
          update_period: environment steps between two questions of an actor for the
            learner's variables.
        """
        self._config = config
        self._update_period = update_period
        self._replay_client: reverb.Client | None = None

    def make_replay_tables(
        self, environment_spec: specs.EnvironmentSpec
    ) -> list[reverb.Table]:
        """Returns one table, sampled by priority and emptied in order of age."""
        config = self._config
        # Room for an error of a tenth, as Acme's D4PG has it.
        error_buffer = 0.1 * config.samples_per_insert * config.min_replay_size
        return [
            reverb.Table(
                name=TABLE,
                sampler=reverb.selectors.Prioritized(config.priority_exponent),
                remover=reverb.selectors.Fifo(),
                max_size=config.max_replay_size,
                rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                    min_size_to_sample=config.min_replay_size,
                    samples_per_insert=config.samples_per_insert,
                    error_buffer=max(error_buffer, 1.0, config.samples_per_insert),
                ),
                signature=reverb_adders.NStepTransitionAdder.signature(
                    environment_spec
                ),
            )
        ]

    def make_dataset_iterator(
        self, reverb_client: reverb.Client
    ) -> Iterator[reverb.ReplaySample]:
        """Returns batches; `make_learner` updates priorities at the same server."""
        self._replay_client = reverb_client
        # Few batches under way: their probabilities age while they wait.
        dataset = datasets.make_reverb_dataset(
            table=TABLE,
            server_address=reverb_client.server_address,
            batch_size=self._config.batch_size,
            num_parallel_calls=2,
            prefetch_size=2,
        )
        return iter(dataset)

    def make_adder(self, replay_client: reverb.Client) -> adders.Adder:
        """Returns Acme's n-step adder; new transitions have priority 1."""
        return reverb_adders.NStepTransitionAdder(
            priority_fns={TABLE: lambda x: 1.0},
            client=replay_client,
            n_step=self._config.n_step,
            discount=self._config.discount,
        )

    def make_actor(
        self,
        policy_network: snt.Module,
        adder: adders.Adder | None = None,
        variable_source: core.VariableSource | None = None,
    ) -> core.Actor:
        """Returns Acme's actor of a network that maps observations to actions."""
        client = None
        if variable_source:
            client = variable_utils.VariableClient(
                variable_source,
                {"policy": policy_network.variables},
                update_period=self._update_period,
            )
            client.update_and_wait()
        return actors.FeedForwardActor(policy_network, adder, client)

    def make_learner(
        self,
        networks: tuple[snt.Module, snt.Module],
        dataset: Iterator[reverb.ReplaySample],
        counter: counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        checkpoint: bool = False,
        replay_client: reverb.Client | None = None,
    ) -> core.Learner:
        """Returns Acme's DQN learner: double Q, Huber loss, priorities |TD error|.

        Acme's learner clips the n-step return of a transition to [-1, 1].

        Args:
          networks: the online and the target network, both with variables.
          dataset: what `make_dataset_iterator` returned.
          counter: counts learner steps.
          logger: gets the loss.
          checkpoint: whether Acme snapshots the network under ~/acme.
          replay_client: where priorities are updated; None: where `dataset` comes from.

        Raises:
          ValueError: if there is none, so that priorities would never change.
        """
        replay_client = replay_client or self._replay_client
        if replay_client is None:
            raise ValueError(
                "expected replay_client, or a dataset of make_dataset_iterator: "
                "without either, priorities would never be updated."
            )
        online, target = networks
        for source, copy in zip(online.variables, target.variables):
            copy.assign(source)
        config = self._config
        learner = learning.DQNLearner(
            network=online,
            target_network=target,
            discount=config.discount,
            importance_sampling_exponent=config.importance_sampling_exponent,
            learning_rate=config.learning_rate,
            target_update_period=config.target_update_period,
            dataset=dataset,
            replay_client=replay_client,
            counter=counter,
            logger=logger,
            checkpoint=checkpoint,
        )
        # Acme's learner takes no optimizer; its step is traced at its first call.
        learner._optimizer = OPTIMIZERS[config.adam](config.learning_rate)
        learner._optimizer._initialize(online.trainable_variables)
        return learner
