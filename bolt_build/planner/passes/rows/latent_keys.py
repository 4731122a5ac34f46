"""Gives keys and values of multi-head latent attention by one product, where heads of keys have a part that all share.

A latent of each row becomes the first elements of every head's keys, and its values, by one product; the last elements
of all heads are the same, and turned by the row's place: DeepSeek's, MiniCPM3's. Put together by themselves, keys are
cut, repeated and moved. With the shared elements behind the latent, and an identity for every head beside its weights,
the product leaves keys and values as attention reads them: each shared element is multiplied by 1, and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_HEADS_FIRST = Transpose((0, 2, 1, 3))


@dataclass(frozen=True)
class _Found:
    """The product; the first column of a head's keys and of its values in its result, and how many each has; the value
    that all heads share, its elements, and whether these stand in front of the head's own."""

    product: Node
    keys: tuple[int, int]
    values: tuple[int, int]
    shared: str
    elements: int
    ahead: bool


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(JOIN_LATENT_KEYS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Attention) or node.op.packed:
            continue
        found = _found(editor, node)
        if found is None:
            continue
        obstacle = weight_obstacle(editor, found.product) or _obstacle(editor, node, found)
        if obstacle is not None:
            journal.declined(node.name, f"keys of a latent: {obstacle}")
            continue
        _join(editor, node, found)
        reason = f"{found.elements} elements of keys that all heads share are columns of '{found.product.name}'"
        journal.did(node.name, "made one product of keys and values", reason)
    return journal.result(editor.finish())


def _found(editor: GraphEditor, node: Node) -> _Found | None:
    op = node.op
    assert isinstance(op, Attention)
    put, value = _heads(editor, node.inputs[1], op.kv_heads), _values(editor, node.inputs[2], op.kv_heads)
    parts = None if put is None else editor.producer(put)
    if value is None or parts is None or parts.op != Concat(3) or parts.epilogue or len(parts.inputs) != 2:
        return None
    for own, repeated in (parts.inputs, parts.inputs[::-1]):
        shared = _shared(editor, repeated)
        keys = _columns(editor, own)
        if shared is None or keys is None or keys[0] != value[0]:
            continue
        elements = editor.type(repeated).shape[-1]
        return _Found(keys[0], keys[1], value[1], shared, elements, repeated == parts.inputs[0])
    return None


def _heads(editor: GraphEditor, value: str, heads: int) -> str | None:
    """The value with heads in front of its rows, [N, heads, S, D], that these rows were moved from."""
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Reshape) or node.epilogue:
        return None
    node = editor.producer(node.inputs[0])
    if node is None or node.op != _HEADS_FIRST or node.epilogue:
        return None
    shape = editor.type(node.inputs[0]).shape
    rows = editor.type(value).shape
    return node.inputs[0] if (shape[0], shape[2], shape[1]) == (*rows[:2], heads) else None


def _shared(editor: GraphEditor, value: str) -> str | None:
    """What is repeated for every head."""
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Expand) or node.epilogue:
        return None
    images, _, rows, elements = editor.type(value).shape
    return node.inputs[0] if editor.type(node.inputs[0]).shape == (images, 1, rows, elements) else None


def _values(editor: GraphEditor, value: str, heads: int) -> tuple[Node, tuple[int, int]] | None:
    """The same of rows of values, whose heads were cut in front of their rows or beside each other."""
    first = _heads(editor, value, heads)
    if first is not None:
        return _columns(editor, first)
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Reshape) or node.epilogue:
        return None
    shape = editor.type(node.inputs[0]).shape
    beside = shape[:-1] == (*editor.type(value).shape[:2], heads)
    return _columns(editor, node.inputs[0], beside=True) if beside else None


def _columns(editor: GraphEditor, value: str, *, beside: bool = False) -> tuple[Node, tuple[int, int]] | None:
    """The product, and the first column of its heads that the value has and how many; `beside`: its heads lie so."""
    cut = editor.producer(value)
    if cut is None or not isinstance(cut.op, Slice) or cut.epilogue or any(step != 1 for step in cut.op.step):
        return None
    if cut.op.count[:3] != editor.type(cut.inputs[0]).shape[:3]:
        return None
    source = cut.inputs[0]
    if not beside:
        moved = editor.producer(source)
        if moved is None or moved.op != _HEADS_FIRST or moved.epilogue:
            return None
        (source,) = moved.inputs
    apart = editor.producer(source)
    product = None if apart is None else editor.producer(apart.inputs[0])
    if apart is None or not isinstance(apart.op, Reshape) or apart.epilogue:
        return None
    if product is None or not isinstance(product.op, MatMul):
        return None
    _, _, heads, each = apart.op.shape
    whole = editor.type(product.outputs[0]).shape[-1] == heads * each
    return (product, (cut.op.begin[3], cut.op.count[3])) if whole else None


def _obstacle(editor: GraphEditor, node: Node, found: _Found) -> str | None:
    assert isinstance(found.product.op, MatMul)
    if found.product.op.transpose_a or found.product.op.transpose_b or len(found.product.inputs) != 2:
        return f"'{found.product.name}' is no plain product"
    rows = editor.type(node.inputs[1]).shape[:2]
    *lead, _ = editor.type(found.product.inputs[0]).shape
    if tuple(n for n in lead if n != 1) != tuple(n for n in rows if n != 1):
        return f"'{found.product.inputs[0]}' has other rows"
    return None


def _join(editor: GraphEditor, node: Node, found: _Found) -> None:
    op, weight = node.op, editor.constant(found.product.inputs[1])
    assert isinstance(op, Attention)
    assert weight is not None
    dtype, heads = editor.type(found.product.inputs[1]).dtype, op.kv_heads
    images, rows, _ = editor.type(node.inputs[1]).shape
    latent = weight.shape[0]
    apart = weight.reshape(latent, heads, -1)
    (key, keys), (value, values) = found.keys, found.values
    own = np.zeros((latent + found.elements, heads, keys + found.elements), weight.dtype)
    at = found.elements if found.ahead else 0
    own[:latent, :, at : at + keys] = apart[..., key : key + keys]
    begin = 0 if found.ahead else keys
    own[latent:, :, begin : begin + found.elements] = np.eye(found.elements, dtype=weight.dtype)[:, None]
    others = np.zeros((latent + found.elements, heads * values), weight.dtype)
    others[:latent] = apart[..., value : value + values].reshape(latent, -1)
    both = np.concatenate((own.reshape(len(own), -1), others), axis=1).astype(held_dtype(dtype), copy=False)
    name = editor.new_constant(f"{found.product.inputs[1]}.shared", both, dtype)
    chain = Chain(editor, f"{node.name}.keys")
    given = []
    for source in (found.product.inputs[0], found.shared):
        shape = (images, rows, editor.type(source).shape[-1])
        given.append(source if editor.type(source).shape == shape else chain.add(Reshape(shape), [source]))
    made = chain.add(MatMul(), [chain.add(Concat(2), given), name])
    split = heads * (keys + found.elements)
    cuts = [
        chain.add(Slice((0, 0, first), (images, rows, many), (1, 1, 1)), [made])
        for first, many in ((0, split), (split, heads * values))
    ]
    attention = replace(node, inputs=(node.inputs[0], *cuts, *node.inputs[3:]))
    editor.replace(node, *chain.nodes, attention)
    removed = editor.prune(node.inputs[1:3])
    product = editor.producer(made)
    assert product is not None
    editor.replace(product, replace(product, covers=joined(*(each.covers for each in removed))))


JOIN_LATENT_KEYS = Pass(
    "join-latent-keys", _run, pays_on=lambda target, precision: target.gpu is not None and precision != "fp32"
)  # fmt: skip
