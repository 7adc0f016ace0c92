"""The launcher's TensorFlow sees no card; the nodes that start later do."""

from __future__ import annotations

import os

import pytest

from acme_quant.agents import d4pg
from acme_quant.launch.settings import checks
from acme_quant.launch.settings import config as run_config
from acme_quant.launch.settings.config import Run, RunConfig

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


class Looked(Exception):
    """The networks were made."""


@pytest.mark.parametrize(
    "num_actors,nodes_in,seen",
    [
        (1, run_config.PROCESSES, ""),
        (1, run_config.THREADS, "0,1"),
        (0, run_config.PROCESSES, "0,1"),
    ],
)
def test_cards_are_seen_where_the_learner_is_in_the_launchers_process(
    num_actors: int, nodes_in: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, "0,1")

    def make_networks(*_: object) -> None:
        assert os.environ[NAME] == seen
        raise Looked

    run = Run(
        RunConfig(workdir="w", num_actors=num_actors), d4pg.Config(), nodes_in=nodes_in
    )
    monkeypatch.setattr(type(run.agent), "make_networks", make_networks)
    with pytest.raises(Looked):
        checks.lower(run, None)
