"""Presets: each parses, fits its environment, and says where its values come from."""

from __future__ import annotations

import pytest

from acme_quant import environments
from acme_quant.agents import presets
from acme_quant.launch.settings import checks

PAPER_TASKS = {
    "d4pg_cartpole_balance",
    "d4pg_cheetah_run",
    "d4pg_finger_spin",
    "d4pg_hopper_stand",
    "d4pg_humanoid_stand",
    "d4pg_humanoid_walk",
    "d4pg_reacher_hard",
    "d4pg_walker_stand",
    "dqn_acrobot",
    "dqn_cartpole",
    "dqn_mountaincar",
}
# QuaRL, arXiv 1910.01055: settings of all its tasks, then those of each agent.
PAPER = dict(batch_size=256, samples_per_insert=16.0, n_step=5, discount=0.99)
PAPER_OF = {
    "d4pg": dict(learning_rate=1e-4, min_replay_size=2_000, max_replay_size=100_000),
    "dqn": dict(learning_rate=1e-3, min_replay_size=100_000, max_replay_size=200_000),
}


def test_every_task_of_the_paper_and_pong_has_both_sizes() -> None:
    expected = PAPER_TASKS | {"dqn_pong"}
    assert set(presets.names()) == expected | {f"{name}_small" for name in expected}


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_a_run_that_can_be_prepared(name: str) -> None:
    run = checks.parse(["train", *presets.flags(name), "--workdir=unused"])
    assert run.config.agent == name.split("_")[0]
    checks.check(run)


@pytest.mark.parametrize("name", presets.names())
def test_absl_reads_a_preset_as_a_flagfile(name: str) -> None:
    read = checks.parse(["train", f"--flagfile={presets.path(name)}"])
    given = checks.parse(["train", *presets.flags(name)])
    assert read == given


@pytest.mark.parametrize("name", sorted(PAPER_TASKS))
def test_the_papers_presets_hold_the_papers_values(name: str) -> None:
    run = checks.parse(["train", *presets.flags(name)])
    for key, value in {**PAPER, **PAPER_OF[run.config.agent]}.items():
        assert getattr(run.agent_config, key) == value, key
    assert run.config.num_actors == 4
    layers = "policy_layers" if run.config.agent == "d4pg" else "q_layers"
    assert getattr(run.agent_config, layers) == (2048, 2048, 2048)


@pytest.mark.parametrize("name", presets.names())
def test_no_preset_sets_a_flag_twice(name: str) -> None:
    keys = [flag.partition("=")[0] for flag in presets.flags(name)]
    assert len(keys) == len(set(keys))


def test_an_unknown_preset_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown preset 'dqn_cartpol': expected dqn_"):
        presets.path("dqn_cartpol")


def test_a_humanoid_preset_meets_scalar_observations() -> None:
    spec = environments.environment_spec("dm_control:humanoid:stand")
    assert spec.observations["head_height"].shape == ()
