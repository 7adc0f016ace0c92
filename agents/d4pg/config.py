"""The settings of D4PG."""

from __future__ import annotations

import dataclasses

from acme_quant.settings.declaration import setting


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of D4PG; the defaults are Acme's except where the help says so."""

    policy_layers: tuple[int, ...] = setting(
        (256, 256, 256), "Hidden layer sizes of the policy.", at_least=1, fewest=1
    )
    critic_layers: tuple[int, ...] = setting(
        (512, 512, 256), "Hidden layer sizes of the critic.", at_least=1, fewest=1
    )
    num_atoms: int = setting(
        51, "Atoms of the critic's value distribution.", at_least=2
    )
    value_bound: float = setting(
        150.0,
        "The atoms span [-bound, bound]; values beyond are clipped, and counted as "
        "clipped_share in csv/learner.csv.",
        above=0,
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
    n_step: int = setting(
        5,
        "Environment steps folded into one transition, whose return dqn clips to "
        "[-1, 1].",
        at_least=1,
    )
    discount: float = setting(0.99, "Discount factor of a step.", at_least=0, at_most=1)
    learning_rate: float = setting(
        1e-4, "Adam's step size, policy and critic.", above=0
    )
    adam: str = setting(
        "fused",
        "The learner's Adam: fused, one pass over each variable, or sonnet, Acme's.",
        choices=("fused", "sonnet"),
    )
    target_update_period: int = setting(
        100, "Learner steps between copies to the target networks.", at_least=1
    )
    sigma: float = setting(
        0.3, "Standard deviation of the actors' Gaussian exploration noise.", at_least=0
    )
    sigma_spread: float = setting(
        0.0,
        "Spread of sigma over the actors: they run from sigma*(1-spread) to "
        "sigma*(1+spread), evenly.",
        at_least=0,
        at_most=1,
    )
