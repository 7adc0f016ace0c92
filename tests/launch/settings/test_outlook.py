"""What cannot be learnt or published is said before the start, and nothing else is."""

from __future__ import annotations

import dataclasses

import pytest

from acme_quant.launch.settings import checks, outlook
from acme_quant.launch.settings.config import Run, Start

SMALL = ("--min_replay_size=100", "--batch_size=10", "--samples_per_insert=1")


def make_run(*flags: str) -> Run:
    return checks.parse(["train", *SMALL, *flags])


def test_fewer_steps_than_the_replay_wants_are_said() -> None:
    (text,) = outlook.warnings(make_run("--max_actor_steps=99"))
    assert "nothing will be learnt" in text and "--min_replay_size=100" in text
    assert "99 environment steps" in text


def test_steps_left_of_a_resumed_run_count() -> None:
    run = make_run("--max_actor_steps=1000", "--publish_period=1")
    assert not outlook.warnings(run)
    start = Start(checkpoint=1, counts={"actor_steps": 950})
    (text,) = outlook.warnings(dataclasses.replace(run, start=start))
    assert "50 environment steps" in text
    kept = make_run("--max_actor_steps=1000", "--checkpoint_replay")
    assert not outlook.warnings(dataclasses.replace(kept, start=start))


def test_a_publication_that_never_comes_is_said() -> None:
    (text,) = outlook.warnings(make_run("--max_actor_steps=200"))
    assert "--publish_period=100" in text and "first policy" in text


@pytest.mark.parametrize(
    "flags",
    [
        ("--max_actor_steps=200", "--publish_period=5"),
        ("--max_actor_steps=200", "--publish_period_s=1"),
        ("--max_actor_steps=200", "--actor=acme"),
        ("--max_actor_steps=2000",),
    ],
)
def test_a_run_that_learns_and_publishes_gets_no_warning(flags: tuple) -> None:
    assert not outlook.warnings(make_run(*flags))
