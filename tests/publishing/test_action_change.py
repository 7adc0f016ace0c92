"""What a number format does to actions is told, and refused above a bound."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from publishing_parts import GRAPH, Learner, Running
from small_policies import NESTED, network

from acme_quant.policy import action_change
from acme_quant.policy.action_change import Comparison, sample_rows
from acme_quant.policy.graph import Field
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.policy.requantize import Requantizer
from acme_quant.policy.writer import PolicyWriter
from acme_quant.publishing import action_changes
from acme_quant.publishing.action_changes import Changes
from acme_quant.publishing.publisher import BadPolicies, PolicyPublisher


def with_outliers(learner: Learner) -> Learner:
    """Spoils 8-bit weights: the largest of a column, of a dead unit, take all codes."""
    learner.variables[0][:, 0] = learner.variables[1][0] = 0.0
    learner.variables[2][0] = 1000.0
    return learner


def running(
    source: Any,
    quantizer: str = "int8",
    communication: str | None = None,
    max_bad_policies: int = 10,
    **options: Any,
) -> Running:
    stop = threading.Event()
    changes = Changes(GRAPH, quantizer, "wide", communication, **options)
    made = PolicyPublisher(
        GRAPH,
        source,
        quantizer,
        communication=communication,
        publish_period=1,
        max_bad_policies=max_bad_policies,
        changes=changes,
        stop=stop,
    )
    return Running(made, stop)


def compared(run: Running) -> None:
    run.wait_until(lambda: not math.isnan(run.status()["action_change_max"]))


@pytest.mark.parametrize("quantizer", ["int8", "int4", "float16"])
def test_changes_are_those_of_the_two_policies(quantizer: str) -> None:
    graph, variables = network(NESTED)
    written = PolicyWriter(graph, quantizer).write(variables)
    change = Comparison(graph)(variables, written)
    rows, actions = sample_rows(NESTED), np.empty((2, action_change.ROWS, 2), "f4")
    QuantizedPolicy(written).run_rows(rows, actions[0])
    quantize_graph(graph, variables, "float32").run_rows(rows, actions[1])
    difference = np.abs(actions[0] - actions[1])
    assert change.largest == difference.max() > 0
    assert change.mean == pytest.approx(difference.mean())
    greedy = actions.argmax(axis=2)
    assert change.greedy == (greedy[0] != greedy[1]).mean()


def test_float32_changes_nothing() -> None:
    graph, variables = network()
    compare = Comparison(graph)
    for _ in range(2):
        written = PolicyWriter(graph, "float32").write(variables)
        assert compare(variables, written) == (0, 0, 0)


def test_made_up_observations_are_of_their_dtype_and_the_same_each_time() -> None:
    fields = (
        Field(("a",), (50,), "float64"),
        Field(("b",), (50,), "uint8"),
        Field(("c",), (50,), "bool"),
        Field(("d",), (50,), "int8"),
    )
    rows = sample_rows(fields)
    assert np.array_equal(rows, sample_rows(fields)) and rows.dtype == np.float32
    floats, images, flags, small = np.split(rows, 4, axis=1)
    assert abs(floats.mean()) < 0.1 and abs(floats.std() - 1) < 0.1
    assert (images.min(), images.max()) == (0, 255)
    assert set(flags.flat) == {0, 1} and small.max() <= 127


def test_the_worst_layer_is_the_one_with_outliers() -> None:
    graph, variables = network()
    variables[4][0] = 1000.0
    compare = Comparison(graph)
    compare(variables, PolicyWriter(graph, "int8").write(variables))
    assert "'head'" in compare.worst_layer()
    variables = network()[1]
    variables[0][0] = 1000.0
    change = compare(variables, PolicyWriter(graph, "int8").write(variables))
    assert "'torso'" in compare.worst_layer()
    again = compare(variables, PolicyWriter(graph, "int8").write(variables))
    assert change == again


def test_a_publication_tells_how_far_its_number_format_changed_actions() -> None:
    with running(Learner()) as run:
        compared(run)
        usual = run.status()
    assert 0 < usual["action_change_mean"] <= usual["action_change_max"] < 0.5
    assert usual["compared_learner_steps"] == 0 and usual["compare_ms"] > 0
    assert "greedy_actions_changed" not in usual
    with running(with_outliers(Learner())) as run:
        compared(run)
        assert run.status()["action_change_max"] > 10 * usual["action_change_max"]
        assert run.status()["policy_version"] == 1


def test_of_action_values_the_share_of_other_greedy_actions_is_told() -> None:
    with running(Learner(), "int4", discrete=True) as run:
        compared(run)
        assert 0 <= run.status()["greedy_actions_changed"] <= 1


def test_a_version_is_compared_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action_changes, "SHARE", 1e-9)
    learner = Learner()
    with running(learner) as run:
        compared(run)
        learner.step(5)
        run.wait_until(lambda: run.status()["policy_version"] == 2)
        assert run.status()["compared_learner_steps"] == 0


def test_a_policy_that_its_format_spoils_is_refused_above_a_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = Learner()
    with running(learner, limit=0.5) as run:
        compared(run)
        run.wait_until(lambda: run.status()["policy_version"] == 1)
        good = bytes(run.publisher.get_policy(0, "")[3])
        with_outliers(learner).steps += 1
        run.wait_until(lambda: run.status()["refused_policies"] == 1)
        assert bytes(run.publisher.get_policy(0, "")[3]) == good
        assert "expected int8 to change actions by at most 0.5" in caplog.text
        assert "the weights of 'linear_1' alone" in caplog.text
        learner.variables = Learner().variables
        learner.step()
        run.wait_until(lambda: run.status()["policy_version"] == 2)


def test_too_many_spoilt_policies_end_the_run_with_that_reason() -> None:
    options = {"limit": 0.5, "max_bad_policies": 1}
    with running(with_outliers(Learner()), **options) as run:
        run.wait_until(lambda: run.failure is not None)
        assert run.status()["policy_version"] == 0
    assert isinstance(run.failure, BadPolicies)
    assert "change actions by at most 0.5" in str(run.failure)


def test_actions_that_are_not_numbers_are_above_every_bound() -> None:
    learner = Learner()
    learner.variables[0][...] = 3e38
    with running(learner, limit=1e30, max_bad_policies=1) as run:
        run.wait_until(lambda: run.failure is not None)


def test_what_arrives_in_another_format_is_compared_as_actors_run_it() -> None:
    learner = Learner()
    with running(learner, "int4", communication="float16") as run:
        compared(run)
        status = run.status()
    sent = PolicyWriter(GRAPH, "float16").write(learner.variables)
    change = Comparison(GRAPH)(learner.variables, Requantizer("int4")(sent))
    assert status["action_change_max"] == change.largest


def test_what_actors_cannot_quantize_is_published_without_a_bound() -> None:
    learner = Learner()
    learner.variables[2][0] = 1e30
    with running(learner, "float16", communication="int8") as run:
        run.wait_until(lambda: run.status()["policy_version"] == 1)
        learner.step()
        run.wait_until(lambda: run.status()["policy_version"] == 2)
    with running(
        learner,
        "float16",
        communication="int8",
        limit=1.0,
        max_bad_policies=1,
    ) as run:
        run.wait_until(lambda: run.failure is not None)
        assert "float16's 65504" in str(run.failure)


@pytest.mark.parametrize("spoil", ["outliers", "nan"])
def test_a_first_policy_that_is_refused_ends_the_run(spoil: str) -> None:
    learner = with_outliers(Learner())
    if spoil == "nan":
        learner.variables[2][0] = np.nan
    with running(learner, limit=0.5, max_bad_policies=10) as run:
        run.wait_until(lambda: run.failure is not None)
    assert isinstance(run.failure, BadPolicies)
