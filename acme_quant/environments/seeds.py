"""Seeds derived from one: other streams, and the same ones each time."""

from __future__ import annotations

import numpy as np


def derived_seed(seed: int, *path: int) -> int:
    """Returns the seed at `path` below `seed`, int31; both are not negative."""
    entropy = [seed, *path]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)
