"""Every moment belongs to one stage."""

from __future__ import annotations

import time

from acme_quant.acting import timing


def test_laps_give_each_moment_to_one_stage() -> None:
    clock = timing.StageClock()
    start = time.perf_counter()
    time.sleep(0.01)
    clock.lap(timing.ENVIRONMENT)
    time.sleep(0.02)
    end = clock.lap(timing.ADDER)
    assert clock.seconds[timing.ENVIRONMENT] >= 0.01
    assert clock.seconds[timing.ADDER] >= 0.02
    assert clock.seconds[timing.LOOP] == 0.0
    assert clock.total() >= end - start


def test_restart_gives_time_to_nobody() -> None:
    clock = timing.StageClock()
    time.sleep(0.01)
    clock.restart()
    clock.lap(timing.LOOP)
    assert clock.total() < 0.01


def test_per_step_reports_microseconds_since_a_copy() -> None:
    clock = timing.StageClock()
    clock.seconds[timing.INFERENCE] = 1.0
    before = list(clock.seconds)
    clock.seconds[timing.INFERENCE] = 1.5
    report = clock.per_step(1000, before)
    assert report["us_inference"] == 500.0
    assert set(report) == {f"us_{stage}" for stage in timing.STAGES}


def test_a_reading_costs_less_than_two_microseconds() -> None:
    clock = timing.StageClock()
    costs = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(2000):
            clock.lap(timing.LOOP)
        costs.append((time.perf_counter() - start) / 2000)
    assert min(costs) < 2e-6
