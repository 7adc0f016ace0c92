"""The launcher's TensorFlow sees no card; the nodes that start later do."""

from __future__ import annotations

import os

import pytest

from acme_quant.launch.settings import checks

NAME = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize("before", ["0,1", None])
def test_cards_are_hidden_from_the_launcher_alone(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if before is not None:
        monkeypatch.setenv(NAME, before)
    with checks._hidden_gpus(True):
        assert os.environ[NAME] == ""
    assert os.environ.get(NAME) == before
    with checks._hidden_gpus(False):
        assert os.environ.get(NAME) == before
