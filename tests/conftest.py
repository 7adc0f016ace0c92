"""Whole runs come first.

Reverb's samplers of a server in the same process go on polling after their test, which
takes half a core from every test that follows.
"""

from __future__ import annotations

import pytest

WHOLE_RUNS = ("test_faults", "test_runs", "test_single")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests that launch whole programs before all others."""
    items.sort(key=lambda item: item.path.stem not in WHOLE_RUNS)
