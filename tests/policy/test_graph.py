"""The lowered policy: fields, parameters, variables, pickling."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest

from acme_quant.policy import graph


def two_layers() -> graph.Graph:
    weight = graph.Parameter((3, 2), variable=1)
    layers = (
        graph.Layer("linear", (0,), 1, 3, 2, weight=weight),
        graph.Layer("affine", (1,), 2, 2, 2, scale=graph.Parameter.of(np.array([2.0]))),
    )
    observation = (graph.Field((), (3,), "float32"),)
    action = graph.Field((), (2,), "float32")
    return graph.Graph(layers, (3, 2, 2), observation, action, ((7,), (3, 2)))


def variables() -> list[np.ndarray]:
    return [np.zeros(7, np.float32), np.ones((3, 2), np.float32)]


def test_graph_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(two_layers()))
    assert [layer.kind for layer in copy.layers] == ["linear", "affine"]
    assert copy.layers[1].scale.value([]) == np.float32(2)
    assert copy.value_widths == (3, 2, 2)


def test_graph_is_small_because_it_holds_no_weights() -> None:
    assert len(pickle.dumps(two_layers())) < 2000


def test_parameter_reads_the_learners_variable() -> None:
    layer = two_layers().layers[0]
    assert layer.parameters[0].value(variables()).shape == (3, 2)


def test_variables_of_the_graph_pass_the_check() -> None:
    two_layers().check_variables(variables())


def test_unread_variables_may_have_any_type() -> None:
    two_layers().check_variables([np.zeros(9, np.int64), variables()[1]])


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ValueError, match="expected 2 variables of the policy, got 1"):
        two_layers().check_variables(variables()[:1])


@pytest.mark.parametrize(
    "wrong", [np.ones((2, 3), np.float32), np.ones((3, 2)), [[1.0]] * 3, None]
)
def test_a_variable_of_another_shape_or_type_is_named(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"variable 1 .* float32 \[3, 2\], got"):
        two_layers().check_variables([variables()[0], wrong])


def test_flatten_follows_the_sorted_order_of_keys() -> None:
    structure = collections.OrderedDict(b=1, a=[2, {"y": 3, "x": 4}])
    assert graph.flatten(structure) == [
        (("a", 0), 2),
        (("a", 1, "x"), 4),
        (("a", 1, "y"), 3),
        (("b",), 1),
    ]


def test_flatten_of_a_leaf_has_no_keys() -> None:
    assert graph.flatten(5) == [((), 5)]


def test_flatten_equals_dm_tree() -> None:
    tree = pytest.importorskip("tree")
    structure = {"q/w": (1, [2]), "a": {"c": 3, "b": 4}, "z": 5}
    assert [leaf for _, leaf in graph.flatten(structure)] == tree.flatten(structure)


def test_field_survives_json() -> None:
    field = graph.Field(("camera", 0), (4, 4, 3), "uint8")
    assert graph.Field.from_json(field.to_json()) == field
    assert (field.path, field.width) == ("camera/0", 48)
    assert graph.Field((), (), "float32").width == 1


@pytest.mark.parametrize(
    "wrong",
    [None, [], [[], [-1], "float32"], [[], [2.0], "float32"], [[None], [2], "int8"]]
    + [[[], [2], "no such type"], [[], 2, "float32"]],
)
def test_field_refuses_other_json(wrong: object) -> None:
    with pytest.raises(ValueError, match="of a field, got"):
        graph.Field.from_json(wrong)
