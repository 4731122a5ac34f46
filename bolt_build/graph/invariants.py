"""What must hold of every graph, between any two passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bolt_build.graph.arrays import held_dtype, numpy_dtype, type_of
from bolt_build.graph.ir import Array, Graph, Node, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary


class InvariantError(Exception):
    """The graph is broken: `violations` are sentences, all of them."""

    def __init__(self, graph: str, violations: tuple[str, ...]) -> None:
        self.violations = violations
        super().__init__(f"graph '{graph}' is broken: " + "; ".join(violations))


def check(graph: Graph, right: Graph | None = None) -> None:
    """Raises InvariantError unless names are unique and defined before use, types are what `infer` says, epilogues
    keep output 0's type, constants agree with their types, outputs are produced and every value is used.

    The types of nodes that `right` has too, with the same values around them, are not inferred again: it was checked.
    """
    violations = [*_names(graph), *_values(graph), *_order(graph)]
    known = {value.name for value in graph.values}
    kept = set() if right is None else {id(node) for node in right.nodes}
    same = set() if right is None else {v.name for v in graph.values if right.has(v.name) and right.value(v.name) is v}
    for node in graph.nodes:
        if id(node) in kept and same.issuperset((*node.inputs, *node.outputs)):
            continue
        if known.issuperset((*node.inputs, *node.outputs)):
            violations += [f"node '{node.name}': {text}" for text in _types(graph, node)]
    if violations:
        raise InvariantError(graph.name, tuple(violations))


def _names(graph: Graph) -> Iterator[str]:
    for what, names in (
        ("value", [value.name for value in graph.values]),
        ("node", [node.name for node in graph.nodes]),
        ("input", graph.inputs),
        ("output", graph.outputs),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"the {what} name '{name}' is used {count} times"
    for name, count in Counter(name for node in graph.nodes for name in node.outputs).items():
        if count > 1:
            yield f"the value '{name}' is produced {count} times"


def _values(graph: Graph) -> Iterator[str]:
    referred = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        referred.update(node.inputs, node.outputs)
    for value in graph.values:
        if value.name not in referred:
            yield f"the value '{value.name}' is not used"
        if value.constant is not None and not _holds(value.type, value.constant.array):
            found = type_of(value.constant.array)
            yield f"the constant '{value.name}' of type {_shown(value.type)} holds {_shown(found)}"
    defined = {value.name for value in graph.values}
    for name in sorted(referred - defined):
        yield f"the value '{name}' does not exist"
    for name in graph.inputs:
        if graph.has(name) and graph.value(name).constant is not None:
            yield f"the input '{name}' is a constant"


def _order(graph: Graph) -> Iterator[str]:
    """Every input defined by an earlier node, every output by some node, graph inputs and constants by none."""
    given = {value.name for value in graph.values if value.constant is not None} | set(graph.inputs)
    produced = {name for node in graph.nodes for name in node.outputs}
    defined = set(given)
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            if name in produced and name not in defined:
                yield f"node '{node.name}' reads '{name}' before it is produced"
            elif name not in produced and name not in defined and graph.has(name):
                yield f"node '{node.name}' reads '{name}', which nothing produces"
        for name in node.outputs:
            if name in given:
                yield f"node '{node.name}' produces '{name}', which is a graph input or a constant"
        defined.update(node.outputs)
    for name in graph.outputs:
        if name not in defined and graph.has(name):
            yield f"the output '{name}' is not produced"


def _types(graph: Graph, node: Node) -> Iterator[str]:
    operands = [stage.operand for stage in node.epilogue if stage.operand is not None]
    own = len(node.inputs) - len(set(operands))
    if sorted(set(operands)) != list(range(own, len(node.inputs))):
        yield f"epilogue operands {sorted(set(operands))} do not stand behind the op's own inputs"
        return
    try:
        inferred = node.op.infer([graph.type(name) for name in node.op_inputs])
    except ShapeError as error:
        yield str(error)
        return
    if len(inferred) != len(node.outputs):
        yield f"the operator has {len(inferred)} outputs, the node {len(node.outputs)}"
        return
    for name, t in zip(node.outputs, inferred, strict=True):
        if _differs(t, graph.type(name)):
            yield f"output '{name}' is {_shown(graph.type(name))}, the operator gives {_shown(t)}"
    for index, stage in enumerate(node.epilogue):
        binary, activation = isinstance(stage.op, Binary), isinstance(stage.op, Activation)
        if not (binary or activation) or binary == (stage.operand is None):
            yield f"epilogue stage {index} is neither an activation alone nor a binary function with an operand"
            continue
        if stage.swapped and not binary:
            yield f"epilogue stage {index} has no operand to swap with"
        sides = [inferred[0]]
        if stage.operand is not None:
            sides.append(graph.type(node.inputs[stage.operand]))
        try:
            (result,) = stage.op.infer(sides)
        except ShapeError as error:
            yield f"epilogue stage {index}: {error}"
            continue
        if _differs(result, inferred[0]):
            yield f"epilogue stage {index} turns {_shown(inferred[0])} into {_shown(result)}"


def _differs(a: TensorType, b: TensorType) -> bool:
    return (a.dtype, a.shape) != (b.dtype, b.shape)


def _holds(type: TensorType, array: Array) -> bool:
    """True of an array of the type itself, or as a pass holds it."""
    return array.shape == type.shape and array.dtype in (numpy_dtype(type.dtype), held_dtype(type.dtype))


def _shown(t: TensorType) -> str:
    return f"{t.dtype.value}[{','.join(map(str, t.shape))}]"
