"""Computes deep products of two tensors that have few results in parts of their depth, side by side, and adds these up.

A block multiplies the whole depth of its tile: a mean of 4096 pixels that are weighted, or channels by channels over an
image, leaves few blocks that each take thousands of steps behind each other. Parts of the depth are matrices of a
batch, read where they lie. Each part is rounded once.
"""

from __future__ import annotations

from math import ceil, prod

from bolt_build.graph.ir import Graph, Node, TensorType
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.rearrange import axes_of
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import Move, PlacedMatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor

_TILE = 32
"""Rows and columns of the smallest tile."""
_DEEP, _PART, _WHOLE = 4096, 256, 8
"""Least depth that is worth it: similarities of 1024 normalised pixels (EdgeNeXt) departed from what rounding does, by
the rounding of four parts that cancel each other, and gained little. Least depth of a part; and what it is
a multiple of, so that its rows begin at whole loads."""
_FULL = 1024
"""Blocks that a GPU holds at once."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SPLIT_DEPTHS.name)
    for node in editor.nodes():
        op = _placed(editor, node)
        if op is None:
            continue
        *batch, rows, columns = op.product
        depth, blocks = op.left[2][-1], prod(batch) * ceil(rows / _TILE) * ceil(columns / _TILE)
        if depth < _DEEP or 4 * blocks > _FULL or min(op.product) == 0:
            continue
        parts = _parts(op, depth, _FULL // blocks)
        if parts is None:
            journal.declined(node.name, f"its depth of {depth} cannot be cut where its factors lie")
            continue
        _split(editor, node, op, parts)
        journal.did(
            node.name, f"split its depth of {depth} in {parts} parts", f"{blocks} blocks would multiply all of it"
        )
    return journal.result(editor.finish())


def _placed(editor: GraphEditor, node: Node) -> PlacedMatMul | None:
    """The product as one of factors that lie somewhere; None for those with weights, and for anything else."""
    if node.epilogue or len(node.inputs) != 2 or any(map(editor.is_constant, node.inputs)):
        return None
    if isinstance(node.op, PlacedMatMul):
        return node.op
    if not isinstance(node.op, MatMul):
        return None
    a, b, c = (editor.type(name).shape for name in (*node.inputs, *node.outputs))
    if min(len(a), len(b)) < 2 or len(a) != len(b):
        return None
    return PlacedMatMul(_factor(a, node.op.transpose_a), _factor(b, node.op.transpose_b), _factor(c, False))


def _factor(shape: tuple[int, ...], turned: bool) -> Move:
    order = list(range(len(shape)))
    if turned:
        order[-2:] = order[:-3:-1]
    return shape, tuple(order), tuple(shape[axis] for axis in order)


def _parts(op: PlacedMatMul, depth: int, most: int) -> int | None:
    """The most parts that both factors can be cut in."""
    for parts in range(min(most, depth // _PART), 1, -1):
        whole = depth % parts == 0 and depth // parts % _WHOLE == 0
        if whole and all(_cut(move, axis, parts) is not None for move, axis in ((op.left, -1), (op.right, -2))):
            return parts
    return None


def _cut(move: Move, axis: int, parts: int) -> Move | None:
    """The move with `parts` of an axis of what it makes as matrices of their own, in front of the last two axes; None
    where such a part would end inside of one of its axes."""
    split, perm, whole = move
    groups = axes_of(whole, tuple(split[each] for each in perm))
    if groups is None:
        return None
    order, sizes = list(perm), list(split)
    left, outer = parts, list[int]()
    for place in groups[axis]:
        if left == 1:
            break
        source = perm[place]
        if left % split[source] == 0:
            left //= split[source]
            outer.append(source)
        elif split[source] % left == 0:
            sizes[source : source + 1] = [left, split[source] // left]
            order = [each + (each > source) for each in order]
            order.insert(order.index(source) + 1, source + 1)
            outer = [each + (each > source) for each in outer] + [source]
            left = 1
        else:
            return None
    if left != 1:
        return None
    front = sum(len(group) for group in groups[:-2])
    behind = [each for each in order[front:] if each not in outer]
    shape = (*whole[:-2], parts, *whole[-2:])
    at = len(shape) + axis
    return tuple(sizes), (*order[:front], *outer, *behind), (*shape[:at], shape[at] // parts, *shape[at + 1 :])


def _split(editor: GraphEditor, node: Node, op: PlacedMatMul, parts: int) -> None:
    left, right = _cut(op.left, -1, parts), _cut(op.right, -2, parts)
    assert left is not None
    assert right is not None
    split, perm, shape = op.made
    groups = axes_of(op.product, split)
    assert groups is not None
    at = sum(len(group) for group in groups[:-2])
    # Parts lie outermost: what adds them up reads rows, and leaves what the product would have left.
    made = (
        (*split[:at], parts, *split[at:]), (at, *(each + (each >= at) for each in perm)), (parts, *shape)
    )  # fmt: skip
    (output,) = node.outputs
    type_ = editor.type(output)
    value = editor.new_value(f"{output}.parts", TensorType(type_.dtype, (parts, *shape)))
    product = Node(editor.free_node_name(f"{node.name}.parts"), PlacedMatMul(left, right, made), node.inputs, (value,))
    total = Node(node.name, Reduce("sum", (0,), False), (value,), (output,), covers=node.covers)
    editor.replace(node, product, total)


SPLIT_DEPTHS = Pass("split-depths", _run, pays_on=PLACE_PRODUCTS.pays_on)
