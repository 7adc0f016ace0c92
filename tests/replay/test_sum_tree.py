"""Weights by place: their sum, and who is found at a running sum."""

from __future__ import annotations

import numpy as np
import pytest

from acme_quant.replay.sum_tree import SumTree


@pytest.mark.parametrize("size", [1, 2, 5, 8, 100])
def test_targets_find_the_places_of_a_running_sum(size: int) -> None:
    # Small whole numbers: every sum is exact in whatever order it is taken.
    weights = np.random.default_rng(size).integers(0, 4, size).astype(float)
    weights[0] = 1.0
    tree = SumTree(size)
    tree.set(np.arange(size), weights)
    assert tree.total == weights.sum()
    np.testing.assert_array_equal(tree[np.arange(size)], weights)
    targets = np.arange(0, tree.total, 0.5)
    found = np.searchsorted(np.cumsum(weights), targets, side="right")
    np.testing.assert_array_equal(tree.find(targets), found)


def test_a_tree_does_not_remember_earlier_weights() -> None:
    rng = np.random.default_rng(0)
    used, fresh = SumTree(50), SumTree(50)
    for _ in range(100):
        used.set(rng.integers(0, 50, 7), rng.random(7))
    weights = rng.random(50)
    for tree in (used, fresh):
        tree.set(np.arange(50), weights)
    assert used.total == fresh.total


def test_the_last_weight_of_a_place_counts() -> None:
    tree = SumTree(4)
    tree.set(np.array([2, 2]), np.array([5.0, 3.0]))
    assert tree.total == 3.0


def test_a_place_without_weight_is_never_found() -> None:
    tree = SumTree(4)
    tree.set(np.array([1]), np.array([0.1]))
    # A target at the very end, where rounding may lead past the last weight.
    assert tree.find(np.array([0.0, 0.1, 1.0])).tolist() == [1, 1, 1]
