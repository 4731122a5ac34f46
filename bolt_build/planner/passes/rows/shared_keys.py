"""Makes queries of heads that share one head of keys and values, where each has few: so keys are read once for all.

Rows hold heads side by side, so [N, S, heads D] is [N, S heads, D] as it lies. A decoder's one token of grouped heads,
whose cache [N, groups, T, D] makes an image of every group, read it once a head, with tiles of one query.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention, AttentionShape
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.few_rows import FEW
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SHARE_KEYS.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Attention) or op.packed or op.kv_heads != 1 or op.heads == 1:
            continue
        shape = op.extents([editor.type(name) for name in node.inputs])
        if shape.queries >= FEW:
            continue
        mask = next((editor.type(name).shape for name in op.masks(node.inputs)), ())
        if (obstacle := _obstacle(node, op, shape, mask)) is not None:
            journal.declined(node.name, f"{op.heads} heads share their keys, but {obstacle}")
            continue
        _share(editor, node, op, shape, mask)
        journal.did(node.name, "made queries of heads", f"{op.heads} heads share their keys")
    return journal.result(editor.finish())


def _obstacle(node: Node, op: Attention, shape: AttentionShape, mask: tuple[int, ...]) -> str | None:
    """Why queries stay heads apart; None where one head computes the same."""
    if op.causal or op.window or op.relative:
        return "which keys a query reads follows from its place"
    heads, queries, _ = ((1, 1, 1, *mask)[-3:]) if mask else (1, 1, 1)
    if shape.queries > 1 and (heads > 1 or queries > 1):
        return "its mask has rows of their own for heads or queries"
    if op.cap and heads > 1:  # kernels with a cap take masks that all queries of a head share
        return "its mask has rows of their own for heads, and its scores a cap"
    if op.sunk:
        return "each has a sink of its own"
    if len(op.masks(node.inputs)) > 1:
        return "it adds two masks"
    if node.epilogue:
        return "something follows in its kernel"
    return None


def _share(editor: GraphEditor, node: Node, op: Attention, shape: AttentionShape, mask: tuple[int, ...]) -> None:
    """Of one query each the mask's heads become its queries; of several they have none of their own."""
    made, operands = list[Node](), list(node.inputs)

    def reshaped(what: str, name: str, *extents: int) -> str:
        value = editor.new_value(f"{node.outputs[0]}.{what}", replace(editor.type(name), shape=extents))
        made.append(Node(editor.free_node_name(f"{node.name}.{what}"), Reshape(extents), (name,), (value,)))
        return value

    rows = shape.queries * op.heads
    operands[0] = reshaped("queries", operands[0], shape.batch, rows, shape.depth)
    if len(mask) >= 3 and mask[-3] > 1:
        images = mask[0] if len(mask) == 4 else 1
        operands[3] = reshaped("mask", operands[3], images, 1, op.heads, mask[-1])
    (value,) = node.outputs
    attention = replace(op, heads=1)
    (kind,) = attention.infer([editor.type(name) for name in operands])
    result = editor.new_value(f"{value}.rows", kind)
    made.append(Node(node.name, attention, tuple(operands), (result,), covers=node.covers))
    back = Reshape((shape.batch, shape.queries, op.heads * shape.columns))
    made.append(Node(editor.free_node_name(f"{node.name}.heads"), back, (result,), (value,)))
    editor.replace(node, *made)


SHARE_KEYS = Pass("share-keys", _run, pays_on=PLACE_PRODUCTS.pays_on)
