from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from publishing_parts import GRAPH, Learner, Remote, Running

from acme_quant.launch import nodes
from acme_quant.peers import calls, serving
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.publishing import publisher, shared_memory
from acme_quant.publishing.answer import ARRAY, SHARED_MEMORY, UNCHANGED
from acme_quant.publishing.publisher import PolicyPublisher

HOST = shared_memory.host_identity()


def running(source: Any, quantizer: str = "int8", **options: Any) -> Running:
    stop = threading.Event()
    options.setdefault("publish_period", 1)
    return Running(
        PolicyPublisher(GRAPH, source, quantizer, stop=stop, **options), stop
    )


def first(run: Running) -> None:
    run.wait_until(lambda: run.status()["policy_version"] == 1)


def array(run: Running) -> QuantizedPolicy:
    _, _, kind, body = run.publisher.get_policy(0, "")
    assert kind == ARRAY and body.dtype == np.uint8
    return QuantizedPolicy.from_bytes(body)


def same_bits(policy: QuantizedPolicy, other: QuantizedPolicy) -> bool:
    return policy.payload[64:].tobytes() == other.payload[64:].tobytes()


@pytest.mark.parametrize("quantizer", ["float32", "float16", "int8", "int4"])
def test_what_is_published_is_the_quantized_policy_bit_for_bit(quantizer: str) -> None:
    learner = Learner()
    with running(learner, quantizer) as run:
        first(run)
        expected = quantize_graph(GRAPH, learner.variables, quantizer)
        assert same_bits(array(run), expected)
        _, _, kind, name = run.publisher.get_policy(0, HOST)
        if HOST:
            assert kind == SHARED_MEMORY
            block = QuantizedPolicy.from_bytes(shared_memory.open_block(name))
            assert block.payload == array(run).payload


def test_a_policy_carries_its_version_and_learner_step() -> None:
    learner = Learner()
    learner.steps = 700
    with running(learner) as run:
        first(run)
        policy = array(run)
        assert (policy.version, policy.learner_step) == (1, 700)
        learner.step(3)
        run.wait_until(lambda: run.status()["policy_version"] == 2)
        assert array(run).learner_step == 703


def test_nothing_is_answered_before_the_first_policy() -> None:
    silent = Remote(Learner())
    silent.fail_with(OSError("refused"))
    with running(silent) as run:
        assert run.publisher.get_policy(0, HOST) == (0, 0, UNCHANGED, None)
        assert run.status()["policy_version"] == 0


def test_unchanged_costs_no_payload() -> None:
    with running(Learner()) as run:
        first(run)
        served = run.status()["bytes_served"]
        assert run.publisher.get_policy(1, HOST) == (1, 0, UNCHANGED, None)
        assert run.status()["bytes_served"] == served


def test_a_client_of_another_host_gets_an_array() -> None:
    with running(Learner()) as run:
        first(run)
        for host in ("", "another/host/0", None, 7):
            assert run.publisher.get_policy(0, host)[2] == ARRAY


def test_a_version_that_never_was_gets_the_newest() -> None:
    with running(Learner()) as run:
        first(run)
        assert run.publisher.get_policy(99, "")[0] == 1


def test_a_policy_is_published_every_period_of_learner_steps() -> None:
    learner = Learner()
    with running(learner, publish_period=10) as run:
        first(run)
        learner.step(9)
        run.wait_until(lambda: run.publisher.get_policy(1, "")[1] == 9)
        assert run.status()["policy_version"] == 1 and learner.fetches == 1
        learner.step(1)
        run.wait_until(lambda: run.status()["policy_version"] == 2)


def test_a_policy_is_published_every_period_of_seconds() -> None:
    learner = Learner()
    with running(learner, publish_period_s=0.05) as run:
        for _ in range(3):
            version = run.status()["policy_version"]
            learner.step()
            run.wait_until(
                lambda version=version: run.status()["policy_version"] > version
            )


def test_a_learner_that_stands_still_publishes_nothing() -> None:
    learner = Learner()
    with running(learner) as run:
        first(run)
        threading.Event().wait(0.1)
        assert run.status()["publications"] == 1 and learner.fetches == 1


def test_steps_that_leave_the_policy_alone_publish_nothing() -> None:
    learner = Learner()
    with running(learner) as run:
        first(run)
        learner.steps += 5
        run.wait_until(lambda: run.status()["unchanged_policies"] == 1)
        assert run.status()["policy_version"] == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantizer", ["float32", "int8"])
def test_a_bad_policy_is_refused_and_the_last_good_one_stays(
    bad: float, quantizer: str, caplog: pytest.LogCaptureFixture
) -> None:
    learner = Learner()
    with running(learner, quantizer) as run:
        first(run)
        good = bytes(array(run).payload)
        learner.step(bad=bad)
        run.wait_until(lambda: run.status()["refused_policies"] == 1)
        assert bytes(array(run).payload) == good
        assert "learner step 1" in caplog.text
        learner.variables = Learner().variables
        learner.step()
        run.wait_until(lambda: run.status()["policy_version"] == 2)
        assert run.failure is None


def test_a_bias_that_is_not_finite_is_refused_too() -> None:
    learner = Learner()
    with running(learner) as run:
        first(run)
        learner.variables[1][0] = np.nan
        learner.steps += 1
        run.wait_until(lambda: run.status()["refused_policies"] == 1)


def test_weights_of_1e38_are_published() -> None:
    learner = Learner()
    learner.variables[0][0, 0] = 1e38
    with running(learner) as run:
        first(run)
        assert np.isfinite(array(run)(np.ones(5, np.float32))).all()


def test_too_many_bad_policies_in_a_row_end_the_run_with_that_reason() -> None:
    learner = Learner()
    with running(learner, max_bad_policies=3) as run:
        first(run)
        for count in (1, 2, 3):
            learner.step(bad=np.nan)
            run.wait_until(
                lambda count=count: run.status()["refused_policies"] == count
            )
        run.wait_until(lambda: run.failure is not None)
    assert isinstance(run.failure, publisher.BadPolicies)
    assert "3 in a row" in str(run.failure) and "learner step 3" in str(run.failure)


def test_a_good_policy_in_between_begins_the_count_anew() -> None:
    learner = Learner()
    good = learner.variables
    with running(learner, max_bad_policies=2) as run:
        first(run)
        for round_ in range(1, 4):
            learner.step(bad=np.nan)
            run.wait_until(
                lambda round_=round_: run.status()["refused_policies"] == round_
            )
            learner.variables = [variable * round_ / 2 for variable in good]
            learner.variables = [v.astype(np.float32) for v in learner.variables]
            learner.steps += 1
            run.wait_until(
                lambda round_=round_: run.status()["policy_version"] == round_ + 1
            )
        assert run.failure is None


def test_a_silent_learner_is_asked_again_while_the_last_policy_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "RETRY_S", 0.01)
    source = Remote(Learner())
    with running(source) as run:
        first(run)
        source.fail_with(TimeoutError("no answer"))
        run.wait_until(lambda: run.status()["fetch_failures"] >= 3)
        assert array(run).version == 1
        source.fail_with(None)
        source.peer.step()
        run.wait_until(lambda: run.status()["policy_version"] == 2)


def test_a_dead_learner_ends_the_run_within_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publisher, "RETRY_S", 0.01)
    source = Remote(Learner())
    with running(source, max_silence_s=0.1) as run:
        first(run)
        source.fail_with(OSError("Connection refused"))
        run.wait_until(lambda: run.failure is not None)
    assert isinstance(run.failure, calls.PeerSilent)
    assert "learner" in str(run.failure) and "refused" in str(run.failure)


def test_variables_of_another_network_end_the_run_at_once() -> None:
    learner = Learner()
    learner.variables = learner.variables[:-1]
    with running(learner) as run:
        run.wait_until(lambda: run.failure is not None)
    assert isinstance(run.failure, ValueError) and "variables" in str(run.failure)


def test_without_shared_memory_everything_is_an_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(Learner(), use_shared_memory=False) as run:
        first(run)
        assert run.publisher.get_policy(0, HOST)[2] == ARRAY

    def refuse(content: memoryview) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(shared_memory, "Block", refuse)
    with running(Learner()) as run:
        first(run)
        assert run.publisher.get_policy(0, HOST)[2] == ARRAY


def test_an_array_under_way_never_changes() -> None:
    learner = Learner()
    with running(learner, use_shared_memory=False) as run:
        first(run)
        body = run.publisher.get_policy(0, "")[3]
        before = body.tobytes()
        learner.step()
        run.wait_until(lambda: run.status()["policy_version"] == 2)
        assert body.tobytes() == before


def test_communication_precision_is_what_travels() -> None:
    learner = Learner()
    with running(learner, "int8", communication="float16") as run:
        first(run)
        assert array(run).quantizer == "float16"
    with pytest.raises(ValueError, match="other than int8"):
        running(learner, "int8", communication="int8")


def test_peers_reach_what_they_must_call_and_nothing_else() -> None:
    courier = pytest.importorskip("courier")
    node = PolicyPublisher(GRAPH, Learner(), "int8")
    server = serving.serve(node, nodes.kind_of("quantizer").serves)
    client = courier.Client(server.address, call_timeout=5)
    try:
        exposed = ["get_float32", "get_policy", "get_status"]
        assert sorted(courier.list_methods(client)) == exposed
        assert client.get_policy(0, "x") == (0, 0, UNCHANGED, None)
    finally:
        server.Stop()
        server.Join()


def test_the_publisher_needs_no_tensorflow() -> None:
    code = (
        "import sys, acme_quant.publishing.publisher, acme_quant.publishing.client\n"
        "print(any(m.split('.')[0] in ('tensorflow', 'reverb', 'acme', 'launchpad')"
        " for m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "False", run.stderr


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def sizes_around_5000_publications() -> tuple[tuple[float, int], tuple[float, int]]:
    """Resident MB and open files after 500 and after 5,500 publications."""
    from acme_quant.publishing.client import QuantizedVariableClient

    learner, stop = Learner(), threading.Event()
    node = PolicyPublisher(GRAPH, learner, "int8", publish_period=1, stop=stop)
    node.poll()
    client = QuantizedVariableClient(node)
    factors = np.random.default_rng(0).uniform(0.5, 2, 5500).astype(np.float32)
    first_variables = learner.variables
    for number, factor in enumerate(factors):
        if number == 500:
            before = resident_mb(), len(os.listdir("/proc/self/fd"))
        learner.variables = [variable * factor for variable in first_variables]
        learner.steps += 1
        node.poll()
        client.update(wait=True)
    assert client.version == node.get_status()["policy_version"] == 5501
    after = resident_mb(), len(os.listdir("/proc/self/fd"))
    client.close()
    return before, after


@pytest.mark.skipif(not HOST, reason="reads /proc")
def test_5000_publications_leave_the_resident_size_flat() -> None:
    # In a process of its own: threads of other tests' servers open files meanwhile.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        before, after = pool.submit(sizes_around_5000_publications).result(timeout=300)
    assert after[0] - before[0] < 5 and after[1] <= before[1] + 1


def test_the_last_policy_is_published_before_its_period_is_over() -> None:
    learner = Learner()
    last = PolicyPublisher(GRAPH, learner, publish_period=1000)
    last.poll()
    learner.step(7)
    assert last.poll() and last.get_status()["policy_version"] == 1
    last.publish_last()
    assert last.get_status()["policy_version"] == 2
    assert last.get_status()["learner_steps"] == learner.steps
    last.publish_last()
    assert last.get_status()["policy_version"] == 2


def test_a_learner_that_has_gone_leaves_the_policy_before() -> None:
    source = Remote(Learner())
    source.fail_with(RuntimeError("gone"))
    last = PolicyPublisher(GRAPH, source)
    last.publish_last()
    assert last.get_status()["policy_version"] == 0
