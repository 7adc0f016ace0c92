"""The fault suite takes half an hour: it runs by `make faults` alone."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Iterator
from typing import Callable

import pytest

HERE = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    asked_for = any("faults" in argument for argument in config.args)
    for item in items:
        if HERE in item.path.parents and not asked_for:
            item.add_marker(pytest.mark.skip("long: make faults"))


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Notes what a test saw, for the table of docs/reliability.md."""
    notes: list[str] = []
    began = time.monotonic()
    yield notes.append
    path = os.environ.get("FAULTS_SEEN")
    if path:
        with open(path, "a") as file:
            text = "; ".join(notes) or "FAILED"
            file.write(
                f"{request.node.name} | {text} | {time.monotonic() - began:.0f} s\n"
            )
