"""The settings of DQN."""

from __future__ import annotations

import dataclasses

from acme_quant.agents.settings import setting

NETWORKS = ("auto", "mlp", "duelling", "atari")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of DQN; the defaults are Acme's except where the help says so."""

    network: str = setting(
        "auto",
        "Q-network: mlp, duelling, atari (Acme's, of images), or auto: atari for "
        "images, mlp for all else.",
    )
    q_layers: tuple[int, ...] = setting(
        (256, 256, 256), "Hidden layer sizes of the networks mlp and duelling."
    )
    batch_size: int = setting(256, "Transitions per learner step.")
    samples_per_insert: float = setting(
        32.0, "Times each inserted transition is sampled on average."
    )
    min_replay_size: int = setting(1000, "Transitions before learning starts.")
    max_replay_size: int = setting(1_000_000, "Transitions that replay holds.")
    priority_exponent: float = setting(
        0.6, "Exponent of the priorities in replay; 0 samples uniformly."
    )
    importance_sampling_exponent: float = setting(
        0.2, "Exponent of the importance weights that correct for the priorities."
    )
    n_step: int = setting(5, "Environment steps folded into one transition.")
    discount: float = setting(0.99, "Discount factor of a step.")
    learning_rate: float = setting(1e-3, "Adam's step size.")
    target_update_period: int = setting(
        100, "Learner steps between copies to the target networks."
    )
    epsilon: float = setting(0.05, "Probability of a random action of an actor.")
    epsilon_exponent: float = setting(
        0.0,
        "Spread of epsilon over the actors: actor i of N takes epsilon ** (1 + "
        "exponent * i / (N-1)); 0: all the same; Ape-X has 7 with epsilon 0.4.",
    )
    epsilon_decay_steps: int = setting(
        0, "Steps of an actor in which its epsilon falls from 1 to its own value."
    )
