"""Runs of rows whose bounds data decide, one behind the other: what exporters write for mixtures of experts whose
rows were sorted by expert (`grouped_mm`).

    run_0 = Range(0, end_0), run_1 = Range(end_0, end_1), ...
    y = Concat(f_0(Gather(x, run_0)), f_1(Gather(x, run_1)), ...)

A Split of x by sizes that data decide is such runs too. How long each run is, data decide; all of them together are the
rows of x. So each f is computed of all rows, and a row of y is taken from the function in whose run it lies
(`chosen` follows the values in between). Where all of them are products with matrices of one size, they are one
product with a stack of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.importing import NodeImport, OnnxNode
from bolt_build.graph.ir import Array, Node
from bolt_build.graph.nodes.chosen_rules import Key, Rows
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.lines.lines import CumSum
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape, Slice
from bolt_build.graph.ops.products.matmul import MatMul

Naming = Callable[[str], Key]
"""What a value is computed by."""

STRAYED = (
    "data decide how many rows it gives, and shapes are static: runs of rows are taken where all of them together are "
    "put behind each other again; let experts be batched products (transformers: "
    "model.set_experts_implementation('batched_mm'))"
)
"""What helps where a run is read otherwise."""

_AS_IT_IS = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""What keeps a number, or a line of numbers, as it is."""


def run_of(node: OnnxNode, builder: GraphBuilder, key: Naming) -> Rows | None:
    """The run that a Range of data is. None where it is none of integers one after another."""
    if len(node.inputs) != 3 or not all(node.inputs):
        return None
    start, end, step = node.inputs
    if any(builder.values[each].type.dtype not in (DType.I32, DType.I64) for each in node.inputs):
        return None
    if (by := builder.constant(step)) is None or by.size != 1 or int(by.reshape(-1)[0]) != 1:
        return None
    return Rows(("run", key(start), key(end)), node, 0, between=(start, end))


def split_runs(node: NodeImport, builder: GraphBuilder) -> tuple[Rows, ...]:
    """The runs that a Split along the first axis by sizes of data gives, each of which is all rows. Empty where it is
    none."""
    name, shape, count = node.input(0), node.type(0).shape, len(node.node.outputs)
    if not shape or node.axis(node.integer("axis", 0), len(shape)) or node.type(1).shape != (count,):
        return ()
    ends = node.emit(CumSum(0), [node.input(1)])
    first, last = (node.helper(np.asarray(each, numpy_dtype(node.type(1).dtype)), "bound") for each in (0, shape[0]))
    inside = [node.emit(Slice((index,), (1,), (1,)), [ends]) for index in range(count - 1)]
    bounds = [first, *(node.emit(Reshape(()), [each]) for each in inside), last]
    for index, output in enumerate(node.node.outputs):
        if output:
            node.emit(Identity(), [name], index)
            builder.values[output] = replace(builder.values[output], synthetic=True)
    return tuple(Rows(("run", (a,), (b,)), node.node, 0, between=(a, b)) for a, b in pairwise(bounds))


def joined(node: OnnxNode, sides: Sequence[Rows | None], builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> bool:
    """Whether a Concat puts runs behind each other that are all rows of what they were taken from."""
    if not sides or any(each is None or each.between is None or each.each != 1 or each.counts for each in sides):
        return False
    runs = [each for each in sides if each is not None]
    shapes = [builder.values[name].type.shape for name in node.inputs]
    axis = dict(node.attributes).get("axis", 0)
    if any(each.axis != 0 for each in runs) or axis not in (0, -len(shapes[0])) or len(set(shapes)) > 1:
        return False
    if any(before.key[2] != after.key[1] for before, after in pairwise(runs)):
        return False
    bounds = [each.between for each in runs if each.between is not None]
    first = builder.constant(bounds[0][0])
    return first is not None and not first.any() and _count(bounds[-1][1], builder, made) == shapes[0][0]


def _count(name: str, builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> int | None:
    """What the last of running sums is: how many ones were scattered, wherever they went. None where the value is
    something else."""
    if (known := builder.constant(name)) is not None:
        return int(known.reshape(-1)[0]) if known.size == 1 else None
    node = _counting(name, builder, made)
    parts = [] if node is None else [builder.constant(node.inputs[place]) for place in (0, 2)]
    if not parts or any(each is None for each in parts):
        return None
    return int(sum(each.sum() for each in parts if each is not None))


def _counting(name: str, builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> OnnxNode | None:
    """The scatter that counts what running sums add up, of which the value is the last."""
    node = _maker(name, made)
    if node is None or not _is_last(node, name, builder, made):
        return None
    node = _maker(node.inputs[0], made)
    if node is None or node.op_type != "CumSum" or builder.values[node.inputs[0]].type.rank != 1:
        return None
    if any(dict(node.attributes).get(each, 0) for each in ("exclusive", "reverse")):
        return None
    node = _maker(node.inputs[0], made)
    if node is None or node.op_type not in ("ScatterElements", "ScatterND"):
        return None
    return node if dict(node.attributes).get("reduction") == "add" else None


def _maker(name: str, made: Mapping[str, OnnxNode]) -> OnnxNode | None:
    """The node that makes a value, behind what leaves numbers as they are."""
    while (node := made.get(name)) is not None and node.op_type in _AS_IT_IS:
        name = node.inputs[0]
    return node


def _is_last(node: OnnxNode, name: str, builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> bool:
    """Whether a value is the last number of a line that a node is given."""
    extent = builder.values[node.inputs[0]].type.elements
    if node.op_type == "Split":
        while name not in node.outputs:
            name = made[name].inputs[0]
        return node.outputs.index(name) == extent - 1
    if node.op_type == "Gather":
        place = builder.constant(node.inputs[1])
        return place is not None and place.size == 1 and int(place.reshape(-1)[0]) in (-1, extent - 1)
    return False


def join(node: NodeImport, runs: Sequence[Rows], builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> None:
    """Emits output 0: each row from the function in whose run it lies."""
    names = node.inputs()
    ends = [each.between[1] for each in runs if each.between is not None]
    products = [_product(name, builder) for name in names]
    alike = {(each[0], each[2], builder.values[each[1]].type) if each is not None else None for each in products}
    first = products[0]
    if len(alike) > 1 or first is None:
        _chosen_rows(node, names, ends)
        return
    matrices = [each[1] for each in products if each is not None]
    stack = _stacked(node, matrices, builder, made)
    count, (rows, depth), product = len(names), node.type_of(first[0]).shape, first[2]
    columns = node.type_of(stack).shape[1 if product.transpose_b else 2]
    group = _sorted_groups(node, ends[-1], rows, builder, made) or _groups(node, ends, rows)
    if 3 * rows <= count:
        taken = node.emit(Gather(0), [stack, group])
        lines = node.emit(Reshape((rows, 1, depth)), [first[0]])
        node.emit(Reshape((rows, columns)), [node.emit(product, [lines, taken])], 0)
        return
    lines = node.emit(Reshape((1, rows, depth)), [first[0]])
    every = node.emit(Reshape((count * rows, columns)), [node.emit(product, [lines, stack])])
    behind = node.emit(Binary("mul"), [group, node.scalar_like(rows, group)])
    place = node.emit(Binary("add"), [behind, node.helper(np.arange(rows, dtype=np.int64), "row")])
    node.emit(Gather(0), [every, place], 0)


def _product(name: str, builder: GraphBuilder) -> tuple[str, str, MatMul] | None:
    """The factors of a product of rows with a constant matrix that a value is, and the product."""
    made = next((each for each in reversed(builder.nodes) if name in each.outputs), None)
    while made is not None and made.op.kind == "identity":
        made = next((each for each in reversed(builder.nodes) if made.inputs[0] in each.outputs), None)
    if made is None or not isinstance(made.op, MatMul) or made.op.transpose_a or len(made.inputs) != 2:
        return None
    rows, matrix = made.inputs
    if builder.constant(matrix) is None or builder.values[matrix].type.rank != 2:
        return None
    return _whole(rows, builder.nodes), matrix, made.op


def _whole(name: str, nodes: Sequence[Node]) -> str:
    """What a copy is a copy of."""
    while (made := next((each for each in reversed(nodes) if name in each.outputs), None)) is not None:
        if made.op.kind != "identity":
            break
        name = made.inputs[0]
    return name


def _stacked(node: NodeImport, matrices: Sequence[str], builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> str:
    """The constant that the matrices were split from, or one of all of them."""
    squeezed = [made.get(name) for name in matrices]
    parts = [each.inputs[0] if each is not None and each.op_type == "Squeeze" else "" for each in squeezed]
    split = made.get(parts[0])
    if split is not None and split.op_type == "Split" and list(split.outputs) == parts:
        found = builder.values.get(split.inputs[0])
        if found is not None and found.constant is not None and found.type.shape[0] == len(parts):
            return split.inputs[0]
    taken = [_taken(made.get(name), builder) for name in matrices]
    if taken[0] is not None and taken == [(taken[0][0], index, len(taken)) for index in range(len(taken))]:
        return taken[0][0]
    arrays: list[Array] = [each for each in map(builder.constant, matrices) if each is not None]
    return node.helper(np.stack(arrays), "stack")


def _taken(node: OnnxNode | None, builder: GraphBuilder) -> tuple[str, int, int] | None:
    """Of which constant a matrix is which, and how many it has."""
    if node is None or node.op_type != "Gather" or dict(node.attributes).get("axis", 0) != 0:
        return None
    data, index = node.inputs
    place, whole = builder.constant(index), builder.values[data]
    if place is None or place.ndim or whole.constant is None:
        return None
    return data, int(place), whole.type.shape[0]


def _sorted_groups(
    node: NodeImport, last: str, rows: int, builder: GraphBuilder, made: Mapping[str, OnnxNode]
) -> str | None:
    """In which run each row lies, where runs are as long as numbers occur that were sorted: its own number."""
    counted = _counting(last, builder, made)
    if counted is None or any(builder.constant(counted.inputs[place]) is None for place in (0, 2)):
        return None
    none, ones = (builder.constant(counted.inputs[place]) for place in (0, 2))
    if none is None or none.any() or ones is None or ones.size != rows or not (ones == 1).all():
        return None
    index = counted.inputs[1]
    if builder.values[index].type.elements != rows or not _ascends(index, builder, made):
        return None
    return node.emit(Reshape((rows,)), [_long(node, index)])


def _ascends(name: str, builder: GraphBuilder, made: Mapping[str, OnnxNode]) -> bool:
    """Whether no number of a line is smaller than the one in front of it: all of a line, sorted, and what then keeps
    their order."""
    while (node := made.get(name)) is not None:
        factor = builder.constant(node.inputs[1]) if node.op_type in ("Div", "Mul") else None
        scaled = factor is not None and factor.size == 1 and bool(factor.reshape(-1)[0] > 0)
        if node.op_type not in (*_AS_IT_IS, "Clip") and not scaled:
            break
        name = node.inputs[0]
    if node is None or node.op_type != "TopK" or name != node.outputs[0]:
        return False
    given, stated = builder.values[node.inputs[0]].type, dict(node.attributes)
    whole = given.rank == 1 and builder.values[name].type.shape == given.shape
    return whole and not stated.get("largest", 1) and bool(stated.get("sorted", 1))


def _groups(node: NodeImport, ends: Sequence[str], rows: int) -> str:
    """In which run each row lies: how many runs end in front of it."""
    places = node.helper(np.arange(rows).astype(np.int64).reshape(rows, 1), "places")
    lines = [node.emit(Reshape((1,)), [_long(node, end)]) for end in ends[:-1]]
    if not lines:
        return node.helper(np.zeros(rows, np.int64), "run")
    bounds = node.emit(Concat(0), lines) if len(lines) > 1 else lines[0]
    behind = node.emit(Compare("greater_equal"), [places, bounds])
    return node.emit(Reduce("sum", (1,), keepdims=False), [node.emit(Cast(DType.I64), [behind])])


def _chosen_rows(node: NodeImport, names: Sequence[str], ends: Sequence[str]) -> None:
    shape = node.type_of(names[0]).shape
    wide = (shape[0],) + (1,) * (len(shape) - 1)
    places = node.helper(np.arange(shape[0]).astype(np.int64).reshape(wide), "places")
    found = names[-1]
    for index in reversed(range(len(names) - 1)):
        inside = node.emit(Compare("less"), [places, _long(node, ends[index])])
        found = node.emit(Where(), [inside, names[index], found], None if index else 0)


def _long(node: NodeImport, name: str) -> str:
    return name if node.type_of(name).dtype is DType.I64 else node.emit(Cast(DType.I64), [name])
