"""Evaluations that do not come are named, once for each time of waiting."""

from __future__ import annotations

from acme_quant.launch.running.overdue import Overdue


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_evaluation_that_does_not_come_is_named_once() -> None:
    clock = Clock()
    overdue = Overdue(100, patience_s=60.0, clock=clock)
    assert overdue.look(250, 100) is None
    clock.now = 61.0
    sentence = overdue.look(350, 100)
    assert "for 61 s" in sentence and "step 100, 2 are due" in sentence
    assert overdue.look(450, 100) is None
    assert overdue.missing == 3


def test_one_that_comes_starts_the_time_anew() -> None:
    clock = Clock()
    overdue = Overdue(100, patience_s=60.0, clock=clock)
    overdue.look(250, 0)
    clock.now = 61.0
    assert overdue.look(250, 0)
    assert overdue.look(350, 250) is None and overdue.missing == 0
    clock.now = 130.0
    assert overdue.look(450, 250)


def test_nothing_is_due_before_the_learner_has_got_there_or_without_evaluator() -> None:
    clock = Clock()
    for every in (100, 0):
        overdue = Overdue(every, patience_s=60.0, start=1000, clock=clock)
        overdue.look(1099, 1000)
        clock.now += 100.0
        assert overdue.look(1099, 1000) is None and not overdue.missing
