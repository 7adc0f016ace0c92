"""The fast adder writes, item by item, what Acme's adder writes."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator

import dm_env
import numpy as np
import pytest
from acme import specs

from acme_quant.acting import timing
from acme_quant.replay import adder as adder_lib
from acme_quant.replay import client as replay_client

reverb = pytest.importorskip("reverb")
acme_adders = pytest.importorskip("acme.adders.reverb")

TABLES = ("priority_table", "other_table")


def spec_of(
    observation: Any, reward: type = np.float32, discount: type = np.float32
) -> specs.EnvironmentSpec:
    return specs.EnvironmentSpec(
        observations=observation,
        actions=specs.BoundedArray((2,), np.float32, -1, 1),
        rewards=specs.Array((), reward),
        discounts=specs.BoundedArray((), discount, 0, 1),
    )


FLAT = specs.Array((3,), np.float32)
NESTED = {
    "velocity": specs.Array((2,), np.float32),
    "arm": {"height": specs.Array((), np.float64), "image": specs.Array((4,), "u1")},
}


def make_server(
    spec: specs.EnvironmentSpec, extras_spec: Any = (), limiter: Callable | None = None
) -> Any:
    limiter = limiter or (lambda: reverb.rate_limiters.MinSize(1))
    signature = acme_adders.NStepTransitionAdder.signature(spec, extras_spec)
    return reverb.Server(
        [
            reverb.Table(
                name,
                sampler=reverb.selectors.Fifo(),
                remover=reverb.selectors.Fifo(),
                max_size=10_000,
                max_times_sampled=1,
                rate_limiter=limiter(),
                signature=signature,
            )
            for name in TABLES
        ],
        port=None,
    )


def episodes(
    spec: specs.EnvironmentSpec,
    lengths: list[int],
    final_discount: float,
    extras: bool = False,
    seed: int = 0,
) -> Iterator[tuple[dm_env.TimeStep, list]]:
    """Yields (first timestep, [(action, timestep, extras), ...]) per episode."""
    rng = np.random.default_rng(seed)

    def value(s: Any) -> Any:
        if isinstance(s, dict):
            return {key: value(item) for key, item in s.items()}
        return (100 * rng.random(s.shape)).astype(s.dtype)

    reward_type, discount_type = spec.rewards.dtype.type, spec.discounts.dtype.type
    for length in lengths:
        steps = []
        first = dm_env.restart(value(spec.observations))
        for t in range(1, length + 1):
            last = t == length
            step = dm_env.TimeStep(
                dm_env.StepType.LAST if last else dm_env.StepType.MID,
                reward_type(rng.normal()),
                discount_type(final_discount if last else rng.choice([1.0, 0.9])),
                value(spec.observations),
            )
            steps.append(
                (
                    rng.normal(size=2).astype(np.float32),
                    step,
                    {"logits": rng.normal(size=3)} if extras else (),
                )
            )
        yield first, steps


def written(
    make_adder: Callable[[Any], Any],
    tables: tuple[str, ...],
    spec: specs.EnvironmentSpec,
    lengths: list[int],
    final_discount: float = 0.0,
    extras: bool = False,
) -> dict[str, list]:
    """Returns {table: [(priority, flat data), ...]} in the order of writing."""
    extras_spec = {"logits": specs.Array((3,), np.float64)} if extras else ()
    server = make_server(spec, extras_spec)
    client = reverb.Client(f"localhost:{server.port}")
    adder = make_adder(client)
    for first, steps in episodes(spec, lengths, final_discount, extras):
        adder.add_first(first)
        for action, step, extra in steps:
            adder.add(action, step, extra)
    adder.reset()
    found = {}
    for table in tables:
        size = client.server_info()[table].current_size
        samples = client.sample(table, size, emit_timesteps=False) if size else ()
        found[table] = [(s.info.priority, s.data) for s in samples]
    del adder  # A server waits seconds for open streams before it stops.
    server.stop()
    return found


def priority_fns() -> dict:
    return {
        TABLES[0]: lambda item: float(abs(item.reward) + item.discount),
        TABLES[1]: None,
    }


def assert_same_items(
    spec: specs.EnvironmentSpec,
    lengths: list[int],
    n_step: int,
    fns: dict | None = None,
    **options: Any,
) -> None:
    tables = TABLES if fns else TABLES[:1]

    def acme(client: Any) -> Any:
        return acme_adders.NStepTransitionAdder(client, n_step, 0.99, priority_fns=fns)

    def ours(client: Any) -> Any:
        return adder_lib.NStepTransitionAdder(client, n_step, 0.99, priority_fns=fns)

    expected = written(acme, tables, spec, lengths, **options)
    found = written(ours, tables, spec, lengths, **options)
    for table in tables:
        assert (
            len(found[table])
            == len(expected[table])
            == sum(lengths) + sum(min(length, n_step) - 1 for length in lengths)
        )
        for (priority, item), (want_priority, want) in zip(
            found[table], expected[table]
        ):
            assert priority == want_priority
            assert len(item) == len(want)
            for leaf, want_leaf in zip(item, want):
                assert leaf.dtype == want_leaf.dtype
                np.testing.assert_array_equal(leaf, want_leaf)


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_items_equal_acmes_over_short_and_long_episodes(n_step: int) -> None:
    assert_same_items(spec_of(FLAT), [1, 2, 4, 5, 6, 40], n_step)


def test_items_equal_acmes_when_episodes_are_truncated() -> None:
    assert_same_items(spec_of(FLAT), [3, 12], 5, final_discount=1.0)


def test_items_equal_acmes_with_nested_observations() -> None:
    assert_same_items(spec_of(NESTED), [2, 9], 3)


def test_items_and_priorities_equal_acmes_in_several_tables() -> None:
    assert_same_items(spec_of(FLAT), [2, 9], 3, fns=priority_fns())


def test_priorities_see_nested_transitions_with_extras() -> None:
    fns = {
        TABLES[0]: lambda item: float(item.extras["logits"][0] ** 2),
        TABLES[1]: lambda item: float(item.next_observation["arm"]["height"]),
    }
    assert_same_items(spec_of(NESTED), [2, 9], 3, fns=fns, extras=True)


# Acme's adder contradicts its own signature for float32 rewards with float64 discounts.
@pytest.mark.parametrize(
    ("reward", "discount"),
    [(np.float64, np.float32), (np.float64, np.float64), (np.float32, np.float32)],
)
def test_items_equal_acmes_in_every_precision(reward: type, discount: type) -> None:
    assert_same_items(spec_of(FLAT, reward, discount), [7], 4)


def test_adders_of_several_environments_share_one_writer() -> None:
    spec = spec_of(FLAT)
    server = make_server(spec)
    client = reverb.Client(f"localhost:{server.port}")
    writer = adder_lib.ItemWriter(client, keep_alive_rows=5 * 3, chunk_length=4)
    adders = [
        adder_lib.NStepTransitionAdder(client, 3, 0.99, writer=writer) for _ in range(3)
    ]
    runs = [list(episodes(spec, [2 + i, 6], 0.0, seed=i)) for i in range(3)]
    streams = [
        [step for first, steps in run for step in [first, *steps]] for run in runs
    ]
    for t in range(max(len(stream) for stream in streams)):
        for adder, stream in zip(adders, streams):
            if t < len(stream):
                step = stream[t]
                adder.add(*step) if isinstance(step, tuple) and len(
                    step
                ) == 3 else adder.add_first(step)
    writer.flush()
    size = client.server_info()[TABLES[0]].current_size
    rows = [s.data for s in client.sample(TABLES[0], size, emit_timesteps=False)]
    assert (
        size
        == writer.items
        == sum(length + min(length, 3) - 1 for i in range(3) for length in (2 + i, 6))
    )
    # Every item starts and ends at observations of one and the same environment.
    for observation, _, _, _, next_observation in rows:
        owners = [
            {step[1].observation.tobytes() for _, s in run for step in s}
            | {first.observation.tobytes() for first, _ in run}
            for run in runs
        ]
        assert any(
            observation.tobytes() in owner and next_observation.tobytes() in owner
            for owner in owners
        )
    writer.close()
    server.stop()


@pytest.mark.parametrize("n_step", [1, 5])
def test_adders_write_all_items_when_all_episodes_end_together(n_step: int) -> None:
    spec, count, length = spec_of(FLAT), 16, 12
    server = make_server(spec)
    client = reverb.Client(f"localhost:{server.port}")
    adders = adder_lib.make_adders(client, count, n_step, 0.99)
    for episode in range(2):
        runs = [
            next(episodes(spec, [length], 1.0, seed=count * episode + i))
            for i in range(count)
        ]
        for adder, (first, _) in zip(adders, runs):
            adder.add_first(first)
        for t in range(length):
            for adder, (_, steps) in zip(adders, runs):
                adder.add(*steps[t])
    adders[0].reset()
    items = 2 * count * (length + n_step - 1)
    assert client.server_info()[TABLES[0]].current_size == items
    adders[0].close()
    server.stop()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_finite_rewards_is_finite(sign: int) -> None:
    largest = np.finfo(np.float32).max
    server = make_server(spec_of(FLAT))
    client = reverb.Client(f"localhost:{server.port}")
    adder = adder_lib.NStepTransitionAdder(client, 3, 0.99)
    observation = np.zeros(3, np.float32)
    adder.add_first(dm_env.restart(observation))
    with pytest.warns(RuntimeWarning, match="in their place"):
        for reward in (3e38, 3e38, -3e38, 1.0):
            step = dm_env.transition(
                np.float32(sign * reward), observation, np.float32(1)
            )
            adder.add(np.zeros(2, np.float32), step)
    adder.reset()
    size = client.server_info()[TABLES[0]].current_size
    samples = client.sample(TABLES[0], size, emit_timesteps=False)
    rewards = [float(sample.data[2]) for sample in samples]
    assert np.isfinite(rewards).all()
    assert rewards[:2] == [np.float32(sign * 3e38), sign * largest]
    adder.close()
    server.stop()


def test_wrong_order_of_calls_is_refused() -> None:
    adder = adder_lib.NStepTransitionAdder(
        replay_client.ReplayClient("localhost:1"), 3, 0.99
    )
    step = dm_env.transition(np.float32(0), np.zeros(3, np.float32), np.float32(1))
    with pytest.raises(ValueError, match="expects the first timestep"):
        adder.add_first(step)
    with pytest.raises(ValueError, match="add_first"):
        adder.add(np.zeros(2, np.float32), step)
    with pytest.raises(ValueError, match="at least 1"):
        adder_lib.NStepTransitionAdder(replay_client.ReplayClient("localhost:1"), 0, 1)


def test_data_that_does_not_fit_the_table_is_refused() -> None:
    server = make_server(spec_of(FLAT))
    client = reverb.Client(f"localhost:{server.port}")
    adder = adder_lib.NStepTransitionAdder(client, 3, 0.99)
    adder.add_first(dm_env.restart(np.zeros(4, np.float32)))
    step = dm_env.transition(np.float32(0), np.zeros(4, np.float32), np.float32(1))
    with pytest.raises(ValueError, match="signature"):
        adder.add(np.zeros(2, np.float32), step)
    adder.close()
    server.stop()


def run_until_blocked(adder: Any) -> Exception | None:
    """Adds steps until an exception; returns it."""
    adder.add_first(dm_env.restart(np.zeros(3, np.float32)))
    step = dm_env.TimeStep(
        dm_env.StepType.MID, np.float32(0), np.float32(1), np.zeros(3, np.float32)
    )
    try:
        for _ in range(200):
            adder.add(np.zeros(2, np.float32), step)
    except Exception as error:
        return error
    return None


def test_server_that_is_gone_is_an_error_within_the_time_set() -> None:
    server = make_server(spec_of(FLAT))
    client = reverb.Client(f"localhost:{server.port}")
    adder = adder_lib.NStepTransitionAdder(client, 3, 0.99, server_timeout_s=0.5)
    adder.add_first(dm_env.restart(np.zeros(3, np.float32)))
    server.stop()
    start = time.monotonic()
    error = run_until_blocked(adder)
    assert isinstance(error, replay_client.ReplayUnavailable)
    assert "did not answer" in str(error)
    assert time.monotonic() - start < 10


def test_an_episodes_end_sends_its_items_and_waits_for_none() -> None:
    spec, room = spec_of(FLAT), 10
    server = make_server(spec, limiter=lambda: reverb.rate_limiters.Queue(room))
    client = reverb.Client(f"localhost:{server.port}")
    adder = adder_lib.NStepTransitionAdder(client, 3, 0.99)
    # Two episodes of six steps are 16 items, of which the table takes ten.
    for first, steps in episodes(spec, [6, 6], 0.0):
        adder.add_first(first)
        for step in steps:
            adder.add(*step)
    deadline = time.monotonic() + 20
    while client.server_info()[TABLES[0]].current_size < room:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    adder.close()
    server.stop()


def test_full_rate_limiter_is_waited_for_and_stop_ends_the_wait() -> None:
    server = make_server(spec_of(FLAT), limiter=lambda: reverb.rate_limiters.Queue(10))
    client = reverb.Client(f"localhost:{server.port}")
    stop = threading.Event()
    adder = adder_lib.NStepTransitionAdder(client, 3, 0.99, server_timeout_s=0.5)
    adder.bind(timing.StageClock(), stop)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(run_until_blocked(adder)))
    thread.start()
    time.sleep(2.0)
    assert thread.is_alive()
    stop.set()
    thread.join(timeout=5)
    assert outcome == [None]
    adder.close()
    server.stop()
