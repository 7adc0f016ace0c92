"""Lowers a Sonnet/TensorFlow policy to a `Graph`; the only place that reads TF graphs.

The policy is traced once, as `tf.function` does it, with a batch dimension; the
operations that the action depends on are then translated one by one by
`rules`, and merged by `fusion`. Tracing covers every way of writing a policy:
modules, sequences, plain functions. What the engine has no layer for is refused with
its name and place.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tree

from acme_quant.lowering import fusion, layer_norm
from acme_quant.lowering.parameters import compute
from acme_quant.lowering.rules import RULES
from acme_quant.lowering.values import (
    Constant,
    LayerList,
    Meaning,
    Node,
    Reference,
    Variable,
    View,
)
from acme_quant.policy import graph
from acme_quant.policy.graph import Field, Graph, LoweringError, Parameter
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.policy.quantizers import Quantizer

# Shapes are worked out for this many rows where the batch is of unknown size: a prime
# that no policy has as a width, so that a row count is never taken for something else.
PRETENDED_BATCH = 61

# Operations on the size of the batch; they end in a Reshape, never in arithmetic.
SHAPE_OPERATIONS = frozenset(
    "Add AddV2 BroadcastArgs Cast ConcatV2 ExpandDims FloorDiv GatherV2 Identity Mul "
    "Pack Prod Reshape Slice Squeeze StridedSlice Sub".split()
)

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def lower(
    module: Callable[..., Any],
    observation_spec: Any,
    variables: Sequence[tf.Variable] | None = None,
) -> Graph:
    """Lowers a policy.

    Args:
      module: maps a nest of batched observations to one tensor, batched actions; a
        Sonnet module or any callable. It is called once on zeros, which makes its
        variables if they are not made yet.
      observation_spec: nest of specs (anything with `shape` and `dtype`), unbatched.
      variables: the learner's variables in its order; `policy_variables` if None.

    Raises:
      LoweringError: if the policy computes something that the engine cannot, in one
        sentence that names the operation and where it stands.
    """
    if variables is None:
        variables = policy_variables(module, observation_spec)
    with tf.init_scope():
        _call_on_zeros(module, observation_spec)
        return _lower(module, observation_spec, variables)


def quantize_policy(
    module: Callable[..., Any],
    observation_spec: Any,
    quantizer: str | Quantizer = "int8",
    activations: str = "wide",
) -> QuantizedPolicy:
    """Quantizes a Sonnet/TensorFlow policy as it stands.

    Args:
      module: maps a nest of batched observations to one tensor of batched actions.
      observation_spec: nest of specs, without batch dimension.
      quantizer: a name in `quantizers.QUANTIZERS` or an object like those.
      activations: 'wide' or '8bit', see `PolicyWriter`.

    Raises:
      LoweringError: if the policy computes something that the engine cannot.
      NonFiniteWeights: if a variable holds a NaN or Inf.
    """
    variables = policy_variables(module, observation_spec)
    graph = lower(module, observation_spec, variables)
    arrays = [variable.numpy() for variable in variables]
    return quantize_graph(graph, arrays, quantizer, activations)


def policy_variables(
    module: Callable[..., Any], observation_spec: Any
) -> tuple[tf.Variable, ...]:
    """Returns the variables of a policy in the order that `lower` takes by default.

    These are the module's own, as a learner publishes them, and after them any others
    that it reads (a function may close over another module).

    Raises:
      LoweringError: if the policy cannot be called on its observations.
    """
    with tf.init_scope():
        _call_on_zeros(module, observation_spec)
        try:
            own = tuple(getattr(module, "variables", ()))
        except ValueError:  # Sonnet refuses to list no variables.
            own = ()
        traced = _trace(module, observation_spec)[0].graph
    known = {id(variable) for variable in own}
    # The graph keeps its variables in a set, its captures in order of first use.
    read = {id(variable.handle): variable for variable in traced.variables}
    ordered = [read[id(outer)] for outer, _ in traced.captures if id(outer) in read]
    return own + tuple(v for v in ordered if id(v) not in known)


def _call_on_zeros(module: Callable[..., Any], spec: Any) -> None:
    """Makes the module's variables; refuses what does not give one tensor."""

    def zeros(leaf: Any) -> tf.Tensor:
        return tf.zeros((1, *leaf.shape), leaf.dtype)

    try:
        output = module(tree.map_structure(zeros, spec))
    except Exception as error:
        raise LoweringError(
            f"acme_quant cannot call the policy on a batch of one observation of its "
            f"spec: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    if isinstance(output, tf.Tensor):
        return
    if hasattr(output, "sample") and hasattr(output, "mean"):
        raise LoweringError(
            f"acme_quant cannot lower a policy that ends in the distribution "
            f"'{output.name}': end it in a tensor, such as the distribution's mean() "
            "or mode(), and let the actor explore"
        )
    raise LoweringError(
        "acme_quant cannot lower a policy that returns other than one tensor: "
        f"expected a tensor of batched actions, got {type(output).__name__}"
    )


def _trace(module: Callable[..., Any], spec: Any) -> tuple[Any, int]:
    """Traces the policy.

    Returns:
      The concrete function, and the rows of a batch that its shapes stand for. Some
      modules want to know the size of the batch while tracing; they get an actor's, 1.
    """
    function = tf.function(lambda observation: module(observation), autograph=False)

    def trace(batch: int | None) -> Any:
        def batched(leaf: Any) -> tf.TensorSpec:
            return tf.TensorSpec((batch, *leaf.shape), leaf.dtype)

        return function.get_concrete_function(tree.map_structure(batched, spec))

    try:
        return trace(None), PRETENDED_BATCH
    except Exception:
        pass
    try:
        return trace(1), 1
    except Exception as error:
        raise LoweringError(
            "acme_quant cannot trace the policy as a TensorFlow graph: "
            f"{type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


def _lower(
    module: Callable[..., Any], spec: Any, variables: Sequence[tf.Variable]
) -> Graph:
    traced, batch = _trace(module, spec)
    fields = _fields(spec)
    if not any(field.width for field in fields):
        raise LoweringError(
            "acme_quant cannot lower a policy without observations: expected a spec "
            f"of at least one number, got {spec}"
        )
    layers = LayerList(sum(f.width for f in fields), batch)
    meanings, references = _inputs(traced, _views(fields), variables)
    nodes = list(meanings)
    ((last, number),) = _inline(traced.graph, references, nodes)
    layer_norm.recognise(nodes)
    for node in _needed(nodes, last):
        meanings[node] = _apply(layers, node, _arguments(meanings, node))
    return _finish(layers, meanings[last][number], last, fields, variables)


def _finish(
    layers: LayerList,
    action: Meaning,
    node: Node,
    fields: tuple[Field, ...],
    variables: Sequence[tf.Variable],
) -> Graph:
    """Fuses the layers into a graph that ends by writing the action."""
    if not isinstance(action, View):
        raise node.refuse("the action does not depend on the observation")
    if action.folded:
        raise node.refuse("it mixes the batch dimension with others")
    output = layers.whole(action, node)
    if output == 0:
        output = layers.concatenate(node, [action]).value
    fused, widths = fusion.fuse(layers.layers, layers.widths, output)
    return Graph(
        fused,
        widths,
        fields,
        Field((), action.shape, action.dtype),
        tuple(tuple(variable.shape) for variable in variables),
    )


def _fields(spec: Any) -> tuple[Field, ...]:
    def dtype_name(dtype: Any) -> str:
        return np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).name

    return tuple(
        Field(keys, tuple(int(n) for n in leaf.shape), dtype_name(leaf.dtype))
        for keys, leaf in graph.flatten(spec)
    )


def _views(fields: Sequence[Field]) -> list[View]:
    offsets = np.cumsum([0, *(field.width for field in fields)]).tolist()
    return [View(0, o, f.shape, f.dtype) for o, f in zip(offsets, fields)]


# --- From a function's graph to a flat list of nodes --------------------------------


def _inputs(
    traced: Any, views: list[View], variables: Sequence[tf.Variable]
) -> tuple[dict[Node, list[Meaning]], dict[int, Reference]]:
    """Gives the function's arguments and captured tensors their meanings.

    Returns:
      The meanings of the nodes made for them, and a reference to these nodes for each
      of the graph's input tensors, by its id.
    """
    index = {id(variable.handle): i for i, variable in enumerate(variables)}
    captures = {id(inner): outer for outer, inner in traced.graph.captures}
    arguments = iter(views)
    meanings, references = {}, {}
    for tensor in traced.graph.inputs:
        node = Node("Placeholder", tensor.op.name, [], tensor.op.get_attr)
        outer = captures.get(id(tensor))
        if outer is None:
            meaning = next(arguments)
        elif outer.dtype != tf.resource:
            meaning = Constant(outer.numpy())
        elif id(outer) in index:
            shape = tuple(variables[index[id(outer)]].shape)
            meaning = Variable(Parameter(shape, index[id(outer)]), shape)
        else:
            raise node.refuse("its variable is not one of the learner's")
        meanings[node], references[id(tensor)] = [meaning], (node, 0)
    return meanings, references


def _inline(
    function_graph: Any, references: dict[int, Reference], nodes: list[Node]
) -> list[Reference]:
    """Appends the graph's operations, with those of functions it calls, to `nodes`.

    Args:
      function_graph: a `FuncGraph`.
      references: what its inputs stand for, by the ids of their tensors; extended.
      nodes: appended to, in order of execution.

    Returns:
      What the graph's outputs stand for.
    """
    for operation in function_graph.get_operations():
        inputs = [references.get(id(tensor)) for tensor in operation.inputs]
        if operation.type == "Placeholder":
            continue
        if operation.type in CALLS:
            name = operation.get_attr("f").name
            inner = function_graph._get_function(name).graph
            bound = {id(tensor): ref for tensor, ref in zip(inner.inputs, inputs)}
            results = _inline(inner, bound, nodes)
        else:
            get = operation.get_attr
            node = Node(operation.type, operation.name, inputs, get, operation)
            nodes.append(node)
            results = [(node, i) for i in range(len(operation.outputs))]
        references.update((id(t), r) for t, r in zip(operation.outputs, results))
    return [references[id(tensor)] for tensor in function_graph.outputs]


def _needed(nodes: Sequence[Node], result: Node) -> Iterator[Node]:
    """Yields the operations that the result depends on, in order of execution."""
    needed, stack = set(), [result]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(ref[0] for ref in node.inputs if ref is not None)
    return (node for node in nodes if node in needed and node.operation is not None)


# --- One node -----------------------------------------------------------------------


def _arguments(meanings: dict[Node, list[Meaning]], node: Node) -> list[Meaning | None]:
    """Returns the meanings of a node's inputs, None for those it lacks."""
    return [None if ref is None else meanings[ref[0]][ref[1]] for ref in node.inputs]


def _apply(layers: LayerList, node: Node, args: list[Meaning]) -> list[Meaning]:
    """Returns the meanings of a node's outputs."""
    if any(word in node.type for word in ("Random", "Multinomial")):
        raise node.refuse(
            "it draws random numbers, and exploration belongs to the actor; leave it "
            "out of the policy"
        )
    if all(isinstance(arg, Constant) for arg in args if arg is not None):
        if not node.operation.op_def.is_stateful:
            return _evaluate(node, args)
    if any(isinstance(arg, Variable) for arg in args):
        if not any(isinstance(arg, View) for arg in args):
            return _apply_to_variables(layers, node, args)
    if node.type not in RULES:
        raise node.refuse(
            "the engine has no such layer; write it with products, convolutions, max "
            "pooling, layer norm, softmax and functions of single elements, or compute "
            "it in the environment"
        )
    return RULES[node.type](layers, node, args)


VARIABLE_OPERATIONS = (
    "Cast Identity IdentityN ReadVariableOp Reshape ExpandDims Squeeze Shape ShapeN "
    "StopGradient PreventGradient EnsureShape".split()
)


def _apply_to_variables(
    layers: LayerList, node: Node, args: list[Meaning]
) -> list[Meaning]:
    """Lets variables be read and reshaped before they meet the observation."""
    if node.type in VARIABLE_OPERATIONS:
        return RULES[node.type](layers, node, args)
    made = compute(node, args)
    if made is None:
        raise node.refuse(
            "it computes with variables alone, and is none of the formulas for that; "
            "keep its result in a variable that the learner sets"
        )
    return made


def _evaluate(node: Node, args: list[Constant]) -> list[Constant]:
    """Evaluates an operation on constants, now and for ever."""
    of_batch = any(arg.of_batch for arg in args)
    if of_batch and node.type not in SHAPE_OPERATIONS:
        raise node.refuse("it computes with the size of the batch")
    if node.type == "Const":
        return [Constant(tf.make_ndarray(node.attributes("value")))]
    try:
        outputs = _run(node.operation, [arg.array for arg in args])
    except Exception as error:
        raise node.refuse(
            f"evaluating it on constants failed: {str(error).splitlines()[0]}"
        ) from error
    return [Constant(np.asarray(output), of_batch) for output in outputs]


def _run(operation: tf.Operation, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Runs one operation of a traced graph, as it stands there, on arrays."""
    with tf.Graph().as_default() as alone, tf.device("/cpu:0"):
        inputs = [
            tf.constant(array, tensor.dtype)
            for array, tensor in zip(arrays, operation.inputs)
        ]
        types = [output.dtype for output in operation.outputs]
        attributes = dict(operation.node_def.attr)
        copy = alone.create_op(operation.type, inputs, types, attrs=attributes)
        with tf.compat.v1.Session(graph=alone) as session:
            return session.run(list(copy.outputs))
