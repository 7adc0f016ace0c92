"""The actor benchmark's turns: who acts when, what is measured, what is reported."""

from __future__ import annotations

import threading
from typing import Any

import loop_parts
import numpy as np
import pytest

from acme_quant.bench.actor import host as actor_host
from acme_quant.bench.actor import loops, nodes, rounds
from acme_quant.bench.actor import report as actor_report
from acme_quant.bench.actor.plan import STAGES, Measured, Plan

PLAN = Plan("gym:X", 16, "int8", 2)


def measured(steps: int, us: float = 2.0, items: int = 0, **what: Any) -> Measured:
    process = {"startup_s": 1.0, "rss_mb": 80.0, "threads": 9, **what}
    return Measured(steps, 1.0, items, dict.fromkeys(STAGES, us), **process)


def turn(*all_: Measured, us_replay: float = 30.0) -> rounds.Turn:
    return rounds.Turn(all_, us_replay)


class Machine:
    """Arms that act on it take `steps` steps a turn, or a tenth in slow moments."""

    def __init__(self, slow: range) -> None:
        self._slow = slow
        self.log: list[str] = []

    def arm(self, name: str, steps: int) -> Any:
        machine = self

        class Arm:
            def act(self, seconds: float) -> rounds.Turn:
                now = len(machine.log)
                machine.log.append(name)
                return turn(measured(steps // 10 if now in machine._slow else steps))

        return Arm()


def test_arms_take_turns_and_every_other_round_goes_backwards() -> None:
    machine = Machine(slow=range(0))
    arms = [machine.arm(name, 100) for name in "abc"]
    assert [len(turns) for turns in rounds.take_turns(arms, 1.0)] == [5, 5, 5]
    assert "".join(machine.log) == "abccbaabccbaabc"


@pytest.mark.parametrize("begin", range(10))
def test_slow_moment_of_two_rounds_changes_no_arms_speed(begin: int) -> None:
    # One after the other an arm would meet it whole; a mean would show it.
    machine = Machine(slow=range(begin, begin + 6))
    arms = [machine.arm("acme", 100), machine.arm("int8", 400), machine.arm("f", 300)]
    speeds = [
        actor_report.summarize(PLAN, turns).steps_per_s
        for turns in rounds.take_turns(arms, 1.0)
    ]
    assert speeds == [100, 400, 300]


def test_speeds_of_a_turns_actors_add_up_and_times_are_means() -> None:
    numbers = turn(measured(100, us=1.0), measured(300, us=2.0)).numbers()
    assert (numbers["steps_per_s"], numbers["us_adder"]) == (400, 1.5)
    assert numbers["us_step"] == pytest.approx((10_000 + 3333.33) / 2, abs=0.01)


def test_every_figure_is_the_median_of_its_own_rounds() -> None:
    turns = [
        turn(measured(100, us=3.0), us_replay=10.0),
        turn(measured(900, us=1.0), us_replay=90.0),
        turn(measured(200, us=2.0), us_replay=80.0),
    ]
    row = actor_report.summarize(PLAN, turns)
    assert (row.steps_per_s, row.us_step, row.us_replay) == (200, 5000, 80)
    stages = [getattr(row, f"us_{stage}") for stage in STAGES]
    assert stages == [2.0] * len(STAGES)


def test_memory_and_threads_are_those_at_the_end() -> None:
    last = turn(
        measured(1, startup_s=1.0, rss_mb=80.0, threads=9),
        measured(1, startup_s=3.0, rss_mb=90.0, threads=8),
    )
    row = actor_report.summarize(PLAN, [turn(measured(1), measured(1)), last])
    assert (row.startup_s, row.rss_mb, row.threads) == (2.0, 85.0, 9)


class Actor:
    """Stands for an actor's process: answers, unless it is dead, and can be killed."""

    def __init__(self, log: list[str], name: str, items: int, dead: bool) -> None:
        self._log, self._name, self._items, self._dead = log, name, items, dead

    def send(self, seconds: float) -> None:
        self._log.append(f"{self._name} acts")

    def receive(self, timeout_s: float) -> Measured:
        self._log.append(f"{self._name} told")
        if self._dead:
            raise RuntimeError("it died")
        return measured(10, items=self._items)

    def kill(self) -> None:
        self._log.append(f"{self._name} killed")


class Host:
    """Stands for the host, whose table receives so many items turn by turn."""

    def __init__(self, items: list[int], dead: str = "") -> None:
        self._items, self._dead = items, dead
        self._counts = 0
        self.log: list[str] = []

    def count(self, table: str) -> tuple[int, float]:
        self._counts += 1
        turns = self._counts // 2
        return sum(self._items[:turns]), 0.001 * turns

    def start_actor(self, plan: Plan, index: int, seconds: float) -> Actor:
        name = f"{plan.arm}{index}"
        self.log.append(f"{name} starts")
        return Actor(self.log, name, 50, name == self._dead)


def test_actors_start_and_warm_up_one_after_the_other() -> None:
    host = Host([50, 50, 100])
    arm = rounds.Arm(PLAN, host)
    arm.start(1.0)
    assert host.log == ["int80 starts", "int80 told", "int81 starts", "int81 told"]
    assert arm.act(1.0).us_replay == pytest.approx(1000 / 100)
    assert host.log[4:] == ["int80 acts", "int81 acts", "int80 told", "int81 told"]


@pytest.mark.parametrize("items", [[50, 50, 99], [50, 50, 101], [49, 51, 100]])
def test_turn_whose_items_are_not_all_in_replay_is_an_error(items: list[int]) -> None:
    arm = rounds.Arm(PLAN, Host(items))
    with pytest.raises(RuntimeError, match="expected (50|100) items in replay, got"):
        arm.start(1.0)
        arm.act(1.0)


def test_actors_of_all_arms_are_killed_when_one_dies() -> None:
    host = Host([50] * 9, dead="int80")
    plans = [Plan("gym:X", 16, arm) for arm in ("acme", "int8", "float32")]
    with pytest.raises(RuntimeError, match="it died"):
        rounds.measure(plans, host, 1.0)
    assert host.log[2:] == [
        "int80 starts",
        "int80 told",
        "int80 killed",
        "acme0 killed",
    ]


def test_process_that_ends_without_an_answer_is_named() -> None:
    child = actor_host.Child("actor 0 of int8", print)
    try:
        with pytest.raises(RuntimeError, match="the process 'actor 0 of int8', but it"):
            child.receive()
        child.send(1.0)  # Dead for long: no other error than that one.
        with pytest.raises(RuntimeError, match="the process 'actor 0 of int8', but it"):
            child.receive()
    finally:
        child.kill()


class Loop:
    """A loop over a counting environment, with a clock of its own: 1 s a step."""

    def __init__(self) -> None:
        counting = loop_parts.CountingEnvironment(length=1000)
        self.environment = loops.Watched(counting, 5, 1)
        self.flushed_at: list[int] = []
        self.now = self._step_ended = 0.0

    def flush(self) -> None:
        self.flushed_at.append(self.environment.items)

    def stages(self) -> dict[str, float]:
        return dict.fromkeys(STAGES, self._step_ended)

    def run(self, steps: int) -> None:
        self.environment.reset()
        for _ in range(steps):
            self.environment.step(np.zeros(2, np.float32))
            self.now += 1
            self._step_ended = self.now


class Pipe:
    """Answers every report, after long, with the seconds of another turn."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.reports: list[Measured] = []
        self.steps: list[int] = []

    def send(self, report: Measured) -> None:
        self.reports.append(report)

    def recv(self) -> float:
        self.steps.append(self._loop.environment.steps)
        self._loop.now += 1000
        return 0.0


def test_turn_is_measured_between_two_steps_without_the_wait_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "SETTLE_S", 0.0)
    loop = Loop()
    pipe = Pipe(loop)
    loop.environment.interrupt(nodes.turns(loop, 0.0, 0.0, pipe))
    loop.run(steps=7)
    # It goes on before each step: begin, end, settled, end, settled, end, settled.
    assert pipe.steps == loop.flushed_at == [1, 3, 5]
    assert [report.steps for report in pipe.reports] == [1, 1, 1]
    assert [report.items for report in pipe.reports] == [1, 2, 2]
    assert [report.microseconds["environment"] for report in pipe.reports] == [1e6] * 3


def test_loop_stands_still_until_its_next_turn() -> None:
    loop = Loop()
    waits, goes_on = threading.Event(), threading.Event()

    class Waiting(Pipe):
        def recv(self) -> float:
            waits.set()
            assert goes_on.wait(10)
            return 1000.0

    pipe = Waiting(loop)
    loop.environment.interrupt(nodes.turns(loop, 0.0, 0.0, pipe))
    thread = threading.Thread(target=loop.run, args=(20,))
    thread.start()
    assert waits.wait(10)
    thread.join(0.05)
    assert thread.is_alive() and loop.environment.steps == 1
    goes_on.set()
    thread.join(10)
    assert loop.environment.steps == 20
