"""Weights of many places that are changed, and drawn from, many at once."""

from __future__ import annotations

import numpy as np


class SumTree:
    """A binary tree of float64 whose leaves are weights and whose root is their sum.

    Every inner node is computed anew from its two children whenever one of them
    changes, so no rounding error adds up, and equal weights give an equal tree.
    """

    def __init__(self, size: int) -> None:
        """Makes a tree of `size` leaves, all 0."""
        self._depth = max(size - 1, 0).bit_length()
        self._first = 1 << self._depth
        # Node i has the children 2i and 2i+1; the root is node 1.
        self._nodes = np.zeros(2 * self._first)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._nodes[1])

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """Returns the weights float64 [n] of places int64 [n]."""
        return self._nodes[self._first + places]

    def set(self, places: np.ndarray, weights: np.ndarray) -> None:
        """Gives places int64 [n] the weights float64 [n], none of them negative.

        Of a place that is named twice, the last weight counts.
        """
        nodes = self._first + places
        self._nodes[nodes] = weights
        for _ in range(self._depth):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, targets: np.ndarray) -> np.ndarray:
        """Returns the places int64 [n] at which the running sum passes `targets`.

        Args:
          targets: float64 [n] in [0, total); uniform ones draw places by weight.
        """
        nodes, targets = np.ones(len(targets), np.int64), targets.copy()
        for _ in range(self._depth):
            left, right = self._nodes[2 * nodes], self._nodes[2 * nodes + 1]
            # A branch of weight 0 is not entered, whatever rounding did to a target.
            goes_right = ((targets >= left) & (right > 0)) | (left == 0)
            targets -= np.where(goes_right, left, 0.0)
            nodes = 2 * nodes + goes_right
        return nodes - self._first
