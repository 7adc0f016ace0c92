"""The loop keeps Acme's contract, stops at once, and says where its time goes."""

from __future__ import annotations

import threading
import time

import acme
import dm_env
import loop_parts
import numpy as np
import pytest
from acme.utils import counting
from remote_counters import RemoteCounter, serve

from acme_quant import environments
from acme_quant.acting import environment_loop, timing
from acme_quant.acting.actor import QuantizedActor, QuantizedVectorActor
from acme_quant.acting.async_counter import AsyncCounter, CountsLost
from acme_quant.environments import vector as vector_environment


def make_loop(
    environment: loop_parts.CountingEnvironment, **options: object
) -> tuple[environment_loop.EnvironmentLoop, dict]:
    parts = {
        "client": loop_parts.PolicyClient(),
        "adder": loop_parts.RecordingAdder(),
        "counter": options.pop("counter", counting.Counter()),
        "logger": options.pop("logger", loop_parts.ListLogger()),
    }
    actor = QuantizedActor(
        parts["client"], loop_parts.noise, parts["adder"], seed=options.pop("seed", 7)
    )
    loop = environment_loop.EnvironmentLoop(
        environment, actor, parts["counter"], parts["logger"], **options
    )
    return loop, parts


def make_vector_loop(
    members: list, **options: object
) -> tuple[environment_loop.VectorEnvironmentLoop, dict]:
    count = len(members)
    parts = {
        "client": loop_parts.PolicyClient(),
        "adders": [loop_parts.RecordingAdder() for _ in range(count)],
        "counter": options.pop("counter", counting.Counter()),
        "logger": options.pop("logger", loop_parts.ListLogger()),
    }
    actor = QuantizedVectorActor(
        parts["client"], [loop_parts.noise] * count, parts["adders"], seed=7
    )
    loop = environment_loop.VectorEnvironmentLoop(
        vector_environment.ListEnvironment(members),
        actor,
        parts["counter"],
        parts["logger"],
        **options,
    )
    return loop, parts


def test_results_hold_what_acmes_loop_reports() -> None:
    loop, parts = make_loop(loop_parts.CountingEnvironment(4))
    loop.run(num_episodes=2)
    actor = QuantizedActor(loop_parts.PolicyClient(), loop_parts.noise, seed=7)
    logger = loop_parts.ListLogger()
    acmes = acme.EnvironmentLoop(
        _with_reward_spec(loop_parts.CountingEnvironment(4)), actor, logger=logger
    )
    acmes.run(num_episodes=2)
    for result, expected in zip(parts["logger"].results, logger.results):
        assert set(expected) <= set(result)
        for key in ("episode_length", "episode_return", "episodes", "steps"):
            assert result[key] == expected[key]


def _with_reward_spec(
    environment: loop_parts.CountingEnvironment,
) -> loop_parts.CountingEnvironment:
    assert environment.reward_spec().shape == ()
    return environment


def test_results_name_the_policy_and_the_stages() -> None:
    loop, parts = make_loop(loop_parts.CountingEnvironment(4))
    loop.run(num_episodes=1)
    (result,) = parts["logger"].results
    assert result["policy_version"] == 3
    assert result["staleness_learner_steps"] == 50
    assert result["staleness_seconds"] == 0.5
    assert {f"us_{stage}" for stage in timing.STAGES} <= set(result)


def test_run_ends_with_whole_episodes_after_enough_steps() -> None:
    loop, parts = make_loop(loop_parts.CountingEnvironment(4))
    loop.run(num_steps=9)
    assert parts["counter"].get_counts() == {"episodes": 3, "steps": 12}
    with pytest.raises(ValueError, match="got both"):
        loop.run(num_episodes=1, num_steps=1)


def test_actor_is_updated_after_every_step_unless_told_not_to() -> None:
    loop, parts = make_loop(loop_parts.CountingEnvironment(4))
    loop.run(num_episodes=2)
    assert parts["client"].updates == 8
    loop, parts = make_loop(loop_parts.CountingEnvironment(4), should_update=False)
    loop.run(num_episodes=2)
    assert parts["client"].updates == 0


def test_stop_ends_an_endless_episode_and_its_steps_are_counted() -> None:
    environment = loop_parts.CountingEnvironment(10**9)
    loop, parts = make_loop(environment, count_period_s=0.05)
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, kwargs={"stop": stop})
    thread.start()
    time.sleep(0.3)
    during = parts["counter"].get_counts()["steps"]
    assert 0 < during <= len(environment.actions)
    stop.set()
    thread.join(timeout=1.0)
    assert not thread.is_alive()
    assert parts["counter"].get_counts() == {"steps": len(environment.actions)}
    assert parts["logger"].results == []


def test_counter_is_asked_once_per_episode_not_per_step() -> None:
    calls = []

    class Counter(counting.Counter):
        def increment(self, **counts: float) -> dict:
            calls.append(counts)
            return super().increment(**counts)

    actor = QuantizedActor(loop_parts.LinearPolicy())
    loop = environment_loop.EnvironmentLoop(
        loop_parts.CountingEnvironment(50), actor, Counter(), loop_parts.ListLogger()
    )
    loop.run(num_episodes=3)
    assert calls == [{"episodes": 1, "steps": 50}] * 3


def remote_loop(
    client: object, length: int, vector: bool
) -> environment_loop.EnvironmentLoop:
    """Returns a loop that would pass on each step if the counter kept up."""
    make = make_vector_loop if vector else make_loop
    environment = loop_parts.CountingEnvironment(length)
    loop, _ = make(
        [environment] if vector else environment,
        counter=AsyncCounter(client, "actor", 0),
        count_period_s=0,
    )
    return loop


@pytest.mark.parametrize("vector", [False, True])
def test_a_counter_far_away_has_all_counts_when_a_run_ends(vector: bool) -> None:
    counter = RemoteCounter()
    with serve(counter) as client:
        loop = remote_loop(client, 50, vector)
        for run in (1, 2):
            loop.run(num_episodes=20)
            counts = counter.get_counts()
            assert counts == {"actor_episodes": run * 20, "actor_steps": run * 1000}
    assert sum(c.get("actor_steps", 0) for c in counter.increments) == 2000


@pytest.mark.parametrize("vector", [False, True])
def test_a_counter_that_does_not_answer_stops_no_loop(vector: bool) -> None:
    counter = RemoteCounter()
    with serve(counter) as client:
        loop = remote_loop(client, 10, vector)
        counter.may_answer.clear()
        threading.Timer(1.0, counter.may_answer.set).start()
        start = time.perf_counter()
        loop.run(num_episodes=20)  # The end alone waits for the counter.
        assert 0.9 < time.perf_counter() - start < 10
    assert sum(loop.clock.seconds) < 0.9
    assert counter.get_counts() == {"actor_episodes": 20, "actor_steps": 200}


def test_a_counter_that_fails_ends_the_run() -> None:
    counter = RemoteCounter()
    counter.error = ValueError("no room for counts")
    with serve(counter) as client:
        loop = remote_loop(client, 10**9, vector=False)
        with pytest.raises(CountsLost, match="no room for counts"):
            loop.run(num_episodes=1)


class ChoosyLogger(loop_parts.ListLogger):
    """Wants a row at one of its questions alone."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted = wanted
        self.asked = 0

    def wants(self) -> bool:
        self.asked += 1
        return self.asked == self.wanted


@pytest.mark.parametrize("vector", [False, True])
def test_no_results_are_made_for_a_logger_that_wants_none(vector: bool) -> None:
    make, environment = make_loop, loop_parts.CountingEnvironment(4)
    if vector:
        make, environment = make_vector_loop, [environment]
    logger, calls = ChoosyLogger(wanted=2), []
    loop, parts = make(environment, logger=logger, count_period_s=1000.0)
    staleness = parts["client"].staleness
    parts["client"].staleness = lambda: calls.append(0) or staleness()
    loop.run(num_episodes=3)
    assert logger.asked == 3 and len(calls) == 1
    (result,) = logger.results
    assert (result["episodes"], result["steps"]) == (2, 8)
    assert result["episode_length"] == 4
    assert parts["counter"].get_counts() == {"episodes": 3, "steps": 12}


@pytest.mark.parametrize("period_s, episodes", [(0.0, 1), (1000.0, 0)])
def test_an_episode_without_a_row_is_counted_when_it_is_time_to(
    period_s: float, episodes: int
) -> None:
    logger, during = ChoosyLogger(wanted=0), []
    environment = loop_parts.CountingEnvironment(4)
    loop, parts = make_loop(environment, logger=logger, count_period_s=period_s)
    reset = environment.reset
    environment.reset = lambda: during.append(parts["counter"].get_counts()) or reset()
    loop.run(num_episodes=2)
    assert during[1].get("episodes", 0) == episodes
    assert parts["counter"].get_counts() == {"episodes": 2, "steps": 8}


def test_failed_episode_is_left_and_counted() -> None:
    environment = loop_parts.CountingEnvironment(4, fails_at=[(2, 3)])
    loop, parts = make_loop(environment)
    loop.run(num_episodes=2)
    # Two steps of the failed episode were taken; the third has no outcome.
    assert parts["counter"].get_counts() == {
        "episodes": 2,
        "failed_episodes": 1,
        "steps": 10,
    }
    kinds = [event[0] for event in parts["adder"].events]
    whole = ["first"] + 4 * ["add"]
    assert kinds == [*whole, "first", "add", "add", *whole]


def test_environment_that_always_fails_is_given_up() -> None:
    fails = [(episode, 1) for episode in range(1, 100)]
    loop, _ = make_loop(loop_parts.CountingEnvironment(4, fails_at=fails))
    with pytest.raises(environments.EpisodeFailed):
        loop.run(num_episodes=1)


def test_stages_sum_to_the_time_of_the_loop() -> None:
    loop, _ = make_loop(loop_parts.CountingEnvironment(1000))
    start = time.perf_counter()
    loop.run(num_episodes=5)
    elapsed = time.perf_counter() - start
    assert 0.9 * elapsed < loop.clock.total() <= elapsed


def _slow(owner: object, method: str) -> list[float]:
    """Lets a method of `owner` take 3 ms more; returns where it notes its times."""
    fast, times = getattr(owner, method), []

    def slow(*args: object, **kwargs: object) -> object:
        start = time.perf_counter()
        time.sleep(0.003)
        result = fast(*args, **kwargs)
        times.append(time.perf_counter() - start)
        return result

    setattr(owner, method, slow)
    return times


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    "part, method, stage",
    [
        ("environment", "step", timing.ENVIRONMENT),
        ("adder", "add", timing.ADDER),
        ("client", "update", timing.UPDATE),
        ("counter", "increment", timing.LOOP),
        ("logger", "write", timing.LOOP),
    ],
)
def test_time_of_each_part_goes_to_its_stage(
    part: str, method: str, stage: int, vector: bool
) -> None:
    environment = loop_parts.CountingEnvironment(4)
    if vector:
        loop, parts = make_vector_loop([environment], count_period_s=0)
        parts["adder"] = parts["adders"][0]
    else:
        loop, parts = make_loop(environment, count_period_s=0)
    times = _slow({"environment": environment, **parts}[part], method)
    loop.run(num_episodes=8)
    assert len(times) >= 8
    assert loop.clock.seconds[stage] >= sum(times)


def test_one_environment_in_a_vector_does_as_the_plain_loop() -> None:
    plain_environment = loop_parts.CountingEnvironment(4)
    plain, expected = make_loop(plain_environment)
    plain.run(num_steps=10)
    member = loop_parts.CountingEnvironment(4)
    loop, found = make_vector_loop([member])
    loop.run(num_steps=10)
    np.testing.assert_array_equal(member.actions, plain_environment.actions)
    loop_parts.assert_same_events(found["adders"][0].events, expected["adder"].events)
    assert found["client"].updates == expected["client"].updates == 12
    assert found["counter"].get_counts() == expected["counter"].get_counts()
    for result, want in zip(found["logger"].results, expected["logger"].results):
        for key in ("episode_length", "episode_return", "episodes", "steps"):
            assert result[key] == want[key]
        assert set(result) == set(want)


def test_environments_of_a_vector_keep_their_own_episodes_and_noise() -> None:
    members = [loop_parts.CountingEnvironment(3 + i, seed=i) for i in range(3)]
    loop, parts = make_vector_loop(members)
    loop.run(num_episodes=12)
    by_length = {}
    for result in parts["logger"].results:
        by_length.setdefault(result["episode_length"], set()).add(
            result["episode_return"]
        )
    # Each reward is the number of the step, so a return tells its own length.
    assert by_length == {n: {n * (n + 1) / 2} for n in (3, 4, 5)}
    for i, (member, adder) in enumerate(zip(members, parts["adders"])):
        adds = [event for event in adder.events if event[0] == "add"]
        assert {event[2].observation[0] for event in adds} == {i}
        np.testing.assert_array_equal(
            [event[1] for event in adds], np.array(member.actions)
        )
        rng = np.random.default_rng((7, i))
        rows = [event[-1].observation for event in adder.events if not event[-1].last()]
        policy = loop_parts.LinearPolicy()
        for row, event in zip(rows, adds):
            np.testing.assert_allclose(
                event[1], loop_parts.noise(policy(row), rng), rtol=0, atol=1e-6
            )
    assert parts["counter"].get_counts()["steps"] == sum(
        len(member.actions) for member in members
    )


def test_failed_member_of_a_vector_starts_anew() -> None:
    members = [
        loop_parts.CountingEnvironment(4, fails_at=[(1, 2)]),
        loop_parts.CountingEnvironment(4, seed=1),
    ]
    loop, parts = make_vector_loop(members)
    loop.run(num_episodes=2)
    kinds = [event[0] for event in parts["adders"][0].events]
    assert kinds[:3] == ["first", "add", "first"]
    assert {result["episode_length"] for result in parts["logger"].results} == {4}
    assert parts["counter"].get_counts()["failed_episodes"] == 1


def test_vector_whose_member_always_fails_is_given_up() -> None:
    ends = [(episode, 1) for episode in range(20)]
    members = [
        loop_parts.CountingEnvironment(100),
        loop_parts.CountingEnvironment(100, fails_at=ends),
    ]
    loop, parts = make_vector_loop(members)
    with pytest.raises(environments.EpisodeFailed):
        loop.run(num_episodes=3)
    assert parts["counter"].get_counts()["failed_episodes"] == 10


class StartsBadly(loop_parts.CountingEnvironment):
    """Fails at its first resets, and at so many after each whole episode."""

    def __init__(self, length: int, failures: int) -> None:
        super().__init__(length)
        self._failures = self._left = failures

    def reset(self) -> dm_env.TimeStep:
        if self._left:
            self._left -= 1
            raise environments.EpisodeFailed("the cart is stuck")
        self._left = self._failures
        return super().reset()


@pytest.mark.parametrize("vector", [False, True])
def test_nine_failed_resets_in_a_row_are_tolerated_and_counted(vector: bool) -> None:
    member = StartsBadly(2, failures=9)
    loop, parts = make_vector_loop([member]) if vector else make_loop(member)
    loop.run(num_episodes=2)
    counts = parts["counter"].get_counts()
    assert counts == {"episodes": 2, "failed_episodes": 18, "steps": 4}


@pytest.mark.parametrize("vector", [False, True])
def test_ten_failed_resets_in_a_row_end_the_run(vector: bool) -> None:
    member = StartsBadly(2, failures=10)
    loop, parts = make_vector_loop([member]) if vector else make_loop(member)
    with pytest.raises(environments.EpisodeFailed, match="the cart is stuck"):
        loop.run(num_episodes=1)
    assert parts["counter"].get_counts()["failed_episodes"] == 10


def test_taking_a_batch_apart_is_the_loops_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment_loop, "split", vector_environment.split)
    times = _slow(environment_loop, "split")  # Undone by monkeypatch.
    loop, _ = make_vector_loop([loop_parts.CountingEnvironment(4)])
    loop.run(num_episodes=2)
    assert loop.clock.seconds[timing.LOOP] >= sum(times) > 0.02
    assert loop.clock.seconds[timing.ADDER] < sum(times)


def test_stop_ends_a_vector_loop() -> None:
    loop, _ = make_vector_loop([loop_parts.CountingEnvironment(10**9)] * 2)
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, kwargs={"stop": stop})
    thread.start()
    time.sleep(0.05)
    stop.set()
    thread.join(timeout=1.0)
    assert not thread.is_alive()
