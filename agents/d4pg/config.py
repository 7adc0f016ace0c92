"""The settings of D4PG."""

from __future__ import annotations

import dataclasses

from acme_quant.agents.settings import setting


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of D4PG; the defaults are Acme's except where the help says so."""

    policy_layers: tuple[int, ...] = setting(
        (256, 256, 256), "Hidden layer sizes of the policy."
    )
    critic_layers: tuple[int, ...] = setting(
        (512, 512, 256), "Hidden layer sizes of the critic."
    )
    num_atoms: int = setting(51, "Atoms of the critic's value distribution.")
    value_bound: float = setting(150.0, "The atoms span [-bound, bound].")
    batch_size: int = setting(256, "Transitions per learner step.")
    samples_per_insert: float = setting(
        32.0, "Times each inserted transition is sampled on average."
    )
    min_replay_size: int = setting(1000, "Transitions before learning starts.")
    max_replay_size: int = setting(1_000_000, "Transitions that replay holds.")
    n_step: int = setting(5, "Environment steps folded into one transition.")
    discount: float = setting(0.99, "Discount factor of a step.")
    learning_rate: float = setting(1e-4, "Adam's step size, policy and critic.")
    target_update_period: int = setting(
        100, "Learner steps between copies to the target networks."
    )
    sigma: float = setting(
        0.3, "Standard deviation of the actors' Gaussian exploration noise."
    )
    sigma_spread: float = setting(
        0.0,
        "Spread of sigma over the actors: they run from sigma*(1-spread) to "
        "sigma*(1+spread), evenly.",
    )
