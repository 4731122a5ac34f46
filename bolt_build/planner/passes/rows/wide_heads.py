"""Computes attention whose heads are wider than kernels of attention take as two products and a softmax between them.

A block of these keeps a head's queries and sums in registers, up to 256 elements of each. One head of 512, as decoders
of latent images have it, would be computed score by score on plain instructions. Products read heads where they lie.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.attention.attention import Attention, AttentionShape, images_of
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor

_Add = Callable[..., str]
_WIDEST = 256
"""Elements of a head that kernels of attention keep."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_WIDE_HEADS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Attention):
            continue
        shape = node.op.extents([editor.type(name) for name in node.inputs])
        widest = max(shape.depth, shape.columns)
        if widest <= _WIDEST:
            continue
        if (obstacle := _obstacle(editor, node, node.op, shape)) is not None:
            journal.declined(node.name, f"its heads have {widest} elements, but {obstacle}")
            continue
        _multiply(editor, node, node.op, shape)
        journal.did(
            node.name, "made two products and a softmax of attention",
            f"its heads have {widest} elements, kernels of attention take {_WIDEST}",
        )  # fmt: skip
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, op: Attention, shape: AttentionShape) -> str | None:
    """Why it stays attention, None where products compute the same."""
    if op.causal or op.safe or op.counted or op.window:
        return "which keys a query reads is part of it"
    if op.cap:
        return "its scores have a cap"
    if op.kv_heads not in (1, op.heads):
        return f"{op.heads} heads share {op.kv_heads} of keys and values"
    if op.sunk or op.relative:
        return "heads have sinks" if op.sunk else "its mask is one of distances"
    images = (images_of(editor.type(name).shape, shape.batch) for name in op.masks(node.inputs))
    if any(count not in (1, shape.batch) for count in images):
        return "its mask begins anew inside of the batch"
    if node.epilogue:
        return "something follows in its kernel"
    return None


def _multiply(editor: GraphEditor, node: Node, op: Attention, shape: AttentionShape) -> None:
    made = list[Node]()

    def add(what: str, op: Op, *inputs: str) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.outputs[0]}.{what}", type_)
        made.append(Node(editor.free_node_name(f"{node.name}.{what}"), op, inputs, (value,)))
        return value

    q, k, v = node.inputs[:3] if not op.packed else _parts(editor, node.inputs[0], op, shape, add)
    n, s, t, h, shared = shape.batch, shape.queries, shape.keys, op.heads, op.kv_heads
    scores_shape = (n, h, s, t)
    same = scores_shape, (0, 1, 2, 3), scores_shape
    by_head = (n, s, h, shape.depth), (0, 2, 1, 3), (n, h, s, shape.depth)
    keys = (n, t, shared, shape.depth), (0, 2, 3, 1), (n, shared, shape.depth, t)
    values = (n, t, shared, shape.columns), (0, 2, 1, 3), (n, shared, t, shape.columns)
    rows = (n, h, s, shape.columns), (0, 2, 1, 3), (n, s, h * shape.columns)
    if op.scale != 1.0:  # in front of the product: scores that are not scaled may be too large for half precision
        dtype = editor.type(q).dtype
        factor = editor.new_constant(f"{node.name}.scale", np.asarray(op.scale, held_dtype(dtype)), dtype)
        q = add("scaled", Binary("mul"), q, factor)
    scores = add("scores", PlacedMatMul(by_head, keys, same), q, k)
    for what, mask in zip(("masked", "masked.more"), op.masks(node.inputs), strict=False):
        scores = add(what, Binary("add"), scores, mask)
    if op.tied and any(_may_be_endless(editor, mask) for mask in op.masks(node.inputs)):
        # keys that are all hidden have one score
        dtype = editor.type(scores).dtype
        least = np.asarray(np.finfo(np.float32).min, held_dtype(dtype))
        scores = add("hidden", Binary("max"), scores, editor.new_constant(f"{node.name}.least", least, dtype))
    shares = add("shares", Softmax(3), scores)
    product = PlacedMatMul(same, values, rows)
    editor.replace(node, *made, Node(node.name, product, (shares, v), node.outputs, covers=node.covers))


def _may_be_endless(editor: GraphEditor, mask: str) -> bool:
    """Whether a mask may hide by infinity: what it is made of does, or is not known."""
    array, node = editor.constant(mask), editor.producer(mask)
    if array is not None:
        return array.dtype.kind == "f" and bool(np.isneginf(array).any())
    if node is None or not isinstance(node.op, Where | Binary | Expand | Reshape | Transpose):
        return editor.type(mask).dtype.is_float
    return any(_may_be_endless(editor, name) for name in node.inputs)


def _parts(editor: GraphEditor, packed: str, op: Attention, shape: AttentionShape, add: _Add) -> tuple[str, str, str]:
    """Queries, keys and values of one tensor that has them side by side."""
    n, s, _ = editor.type(packed).shape
    found, begin = list[str](), 0
    for what, heads in (("queries", op.heads), ("keys", op.kv_heads), ("values", op.kv_heads)):
        count = heads * shape.depth
        found.append(add(what, Slice((0, 0, begin), (n, s, count), (1, 1, 1)), packed))
        begin += count
    q, k, v = found
    return q, k, v


MULTIPLY_WIDE_HEADS = Pass("multiply-wide-heads", _run, pays_on=PLACE_PRODUCTS.pays_on)
