"""The settings of DQN."""

from __future__ import annotations

import dataclasses

from acme_quant.settings.declaration import setting

NETWORKS = ("auto", "mlp", "duelling", "atari")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of DQN; the defaults are Acme's except where the help says so."""

    network: str = setting(
        "auto",
        "Q-network: mlp, duelling, atari (Acme's, of images), or auto: atari for "
        "images, mlp for all else.",
        choices=NETWORKS,
    )
    q_layers: tuple[int, ...] = setting(
        (256, 256, 256),
        "Hidden layer sizes of the networks mlp and duelling.",
        at_least=1,
        serves="mlp",
    )
    batch_size: int = setting(256, "Transitions per learner step.", at_least=1)
    samples_per_insert: float = setting(
        32.0, "Times each inserted transition is sampled on average.", above=0
    )
    min_replay_size: int = setting(
        1000, "Transitions before learning starts.", at_least=10
    )
    max_replay_size: int = setting(
        1_000_000, "Transitions that replay holds.", at_least=1
    )
    priority_exponent: float = setting(
        0.6, "Exponent of the priorities in replay; 0 samples uniformly.", at_least=0
    )
    importance_sampling_exponent: float = setting(
        0.2,
        "Exponent of the importance weights that correct for the priorities.",
        at_least=0,
        at_most=1,
    )
    n_step: int = setting(
        5,
        "Environment steps folded into one transition, whose return dqn clips to "
        "[-1, 1].",
        at_least=1,
    )
    discount: float = setting(0.99, "Discount factor of a step.", at_least=0, at_most=1)
    learning_rate: float = setting(1e-3, "Adam's step size.", above=0)
    adam: str = setting(
        "fused",
        "The learner's Adam: fused, one pass over each variable, or sonnet, Acme's.",
        choices=("fused", "sonnet"),
    )
    target_update_period: int = setting(
        100, "Learner steps between copies to the target networks.", at_least=1
    )
    epsilon: float = setting(
        0.05, "Probability of a random action of an actor.", at_least=0, at_most=1
    )
    epsilon_exponent: float = setting(
        0.0,
        "Spread of epsilon over the actors: actor i of N takes epsilon ** (1 + "
        "exponent * i / (N-1)); 0: all the same; Ape-X has 7 with epsilon 0.4.",
        at_least=0,
    )
    epsilon_decay_steps: int = setting(
        0,
        "Steps of an actor in which its epsilon falls from 1 to its own value.",
        at_least=0,
    )
