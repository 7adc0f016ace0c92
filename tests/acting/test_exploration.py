"""Exploration noise: levels, bounds, dtypes, seeds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from acme_quant.acting.exploration import (
    EpsilonGreedy,
    GaussianNoise,
    apex_epsilon,
    spread,
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_zero_sigma_returns_the_clipped_output() -> None:
    noise = GaussianNoise(0.0, -1.0, 1.0)
    action = noise(np.array([-3.0, 0.25, 7.0], np.float32), generator())
    assert action.dtype == np.float32
    assert action.tolist() == [-1.0, 0.25, 1.0]


def test_sigma_is_the_standard_deviation_of_the_noise() -> None:
    noise = GaussianNoise(0.3, -100.0, 100.0)
    actions = noise(np.zeros(20000, np.float32), generator())
    # The standard error of a deviation from n draws is sigma / sqrt(2 n) = 0.0015.
    assert abs(float(actions.std()) - 0.3) < 5 * 0.0015


def test_bounds_hold_per_dimension() -> None:
    low, high = np.float32([0, -1, 5]), np.float32([1, 1, 1000])
    actions = GaussianNoise(50.0, low, high)(
        np.zeros((100, 3), np.float32), generator()
    )
    assert (actions >= low).all() and (actions <= high).all()


def test_the_same_seed_gives_the_same_actions() -> None:
    noise, output = GaussianNoise(0.2, -1.0, 1.0), np.zeros(6, np.float32)
    assert np.array_equal(noise(output, generator(3)), noise(output, generator(3)))
    assert not np.array_equal(noise(output, generator(3)), noise(output, generator(4)))


def test_zero_epsilon_takes_the_first_largest_value() -> None:
    action = EpsilonGreedy(0.0)(np.array([0.0, 2.0, 2.0], np.float32), generator())
    assert action.dtype == np.int32 and action.shape == () and action == 1


def test_rows_are_chosen_independently() -> None:
    values = np.tile(np.array([0.0, 1.0], np.float32), (20000, 1))
    actions = EpsilonGreedy(0.5)(values, generator())
    assert actions.shape == (20000,)
    # Half explore, half of those take action 0: 1/4, standard error 0.0031.
    assert abs(float((actions == 0).mean()) - 0.25) < 5 * 0.0031


def test_one_row_explores_as_often_as_epsilon_says() -> None:
    explore, rng = EpsilonGreedy(0.5), generator()
    values = np.array([0.0, 1.0], np.float32)
    zeros = sum(int(explore(values, rng)) == 0 for _ in range(4000))
    # 1/4 of 4000 with a standard deviation of 27.
    assert abs(zeros - 1000) < 5 * 27


def test_epsilon_decays_linearly_and_stays() -> None:
    explore, rng = (
        EpsilonGreedy(0.1, initial_epsilon=1.0, decay_steps=9),
        generator(),
    )
    levels = []
    for _ in range(12):
        levels.append(explore.epsilon)
        explore(np.zeros(2, np.float32), rng)
    expected = np.maximum(1.0 - 0.1 * np.arange(12), 0.1)
    assert np.allclose(levels, expected, atol=1e-12)


@pytest.mark.parametrize("epsilon", [-0.1, 1.5, float("nan")])
def test_an_epsilon_outside_the_unit_interval_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\]"):
        EpsilonGreedy(epsilon)


@pytest.mark.parametrize("sigma", [-0.1, float("inf"), float("nan")])
def test_a_sigma_that_is_no_deviation_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma must be"):
        GaussianNoise(sigma, -1.0, 1.0)


def test_levels_spread_over_the_actors() -> None:
    assert [spread(0.1, 0.4, i, 4) for i in range(4)] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4]
    )
    assert spread(0.1, 0.3, 0, 1) == pytest.approx(0.2)
    levels = [apex_epsilon(0.4, 7.0, i, 4) for i in range(4)]
    assert levels[0] == 0.4 and levels[-1] == pytest.approx(0.4**8)
    assert levels == sorted(levels, reverse=True)


def test_exploration_needs_numpy_alone() -> None:
    program = (
        "import sys, acme_quant.acting.exploration;"
        "sys.exit(any(m in sys.modules for m in ('tensorflow', 'acme', 'dm_env')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
