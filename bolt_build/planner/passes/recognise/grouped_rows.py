"""Heads that share keys as rows of one product: how einsum computes grouped queries, and models that reshape them so.

Queries [N, G, R S, D] times keys [N, G, D, T] are scores of G matrices, which a reshape cuts in R heads each for the
softmax, and joins behind it. Each head is a matrix here, and keys and values are repeated, as others write it:
attention is recognised among these, and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.rewrite import GraphEditor

_MOST = 12
"""Steps between a product and its softmax that are followed."""


@dataclass(frozen=True)
class _Cut:
    """A product, and the reshape of its rows: of the result, or of its A operand. `groups` are the product's
    matrices, `repeats` the heads that each of them is cut in, of `rows` rows."""

    product: Node
    reshape: Node
    groups: tuple[int, ...]
    repeats: int
    rows: int


def with_heads_apart(graph: Graph, left_out: Container[str]) -> tuple[Graph, tuple[str, ...]]:
    """The graph with a matrix for each head, and the softmaxes of what changed; none of those `left_out` changes."""
    editor, found = GraphEditor(graph), list[str]()
    for node in editor.nodes():
        if not isinstance(node.op, Softmax) or node.epilogue or node.name in left_out:
            continue
        scores, shares = _scores(editor, node), _shares(editor, node)
        if scores is None or shares is None or scores.product.name == shares.product.name:
            continue
        if (scores.groups, scores.repeats, scores.rows) != (shares.groups, shares.repeats, shares.rows):
            continue
        if scores.repeats < 2:
            continue
        _cut(editor, scores)
        _join(editor, shares)
        found.append(node.name)
    return editor.finish(), tuple(found)


def _scores(editor: GraphEditor, softmax: Node) -> _Cut | None:
    """The product whose rows are cut in heads in front of the softmax."""
    if softmax.op != Softmax(editor.type(softmax.inputs[0]).rank - 1):
        return None
    value = softmax.inputs[0]
    for _ in range(_MOST):
        node = editor.producer(value)
        if node is None or node.epilogue or editor.not_private(value) is not None:
            return None
        match node.op:
            case Reshape() if (product := _plain_product(editor, node.inputs[0])) is not None:
                return _cut_of(editor, product, node, editor.type(value).shape)
            case Activation("tanh") | Cast() | Identity() | Reshape():
                value = node.inputs[0]
            case Binary("add" | "sub" | "mul" | "div" | "max") | Where():
                shape = editor.type(value).shape
                wide = [name for name in node.inputs if editor.type(name).shape == shape and editor.producer(name)]
                if not wide:
                    return None
                value = wide[-1] if isinstance(node.op, Where) else wide[0]
            case _:
                return None
    return None


def _shares(editor: GraphEditor, softmax: Node) -> _Cut | None:
    """The product whose A operand's rows are those of heads behind the softmax."""
    value = softmax.outputs[0]
    for _ in range(_MOST):
        readers = editor.readers(value)
        if editor.not_private(value) is not None or not readers or readers[0].epilogue:
            return None
        (node,) = readers
        (result, *_) = node.outputs
        match node.op:
            case Reshape():
                product = next(iter(editor.readers(result)), None)
                if product is not None and isinstance(product.op, MatMul) and product.inputs[0] == result:
                    plain = editor.not_private(result) is None and _is_plain(editor, product)
                    return _cut_of(editor, product, node, editor.type(value).shape) if plain else None
                value = result
            case Cast() | Identity():
                value = result
            case _:
                return None
    return None


def _plain_product(editor: GraphEditor, value: str) -> Node | None:
    """The product that makes the value, which nobody else reads."""
    node = editor.producer(value)
    if node is None or editor.not_private(value) is not None or not isinstance(node.op, MatMul):
        return None
    return node if _is_plain(editor, node) else None


def _is_plain(editor: GraphEditor, node: Node) -> bool:
    """Whether it is a product of as many matrices on both sides, without a bias or an epilogue."""
    if len(node.inputs) != 2 or node.epilogue or not isinstance(node.op, MatMul) or node.op.transpose_a:
        return False
    left, right = (editor.type(name).shape for name in node.inputs)
    return len(left) == len(right) > 2 and left[:-2] == right[:-2]


def _cut_of(editor: GraphEditor, product: Node, reshape: Node, cut: tuple[int, ...]) -> _Cut | None:
    """Which heads the shape has that the product's rows are cut in; None where these are no rows of one matrix each."""
    groups, rows = editor.type(product.inputs[0]).shape[:-2], editor.type(product.inputs[0]).shape[-2]
    last = editor.type(product.outputs[0]).shape[-1] if reshape.inputs == product.outputs else None
    if len(cut) < 3 or (last is not None and cut[-1] != last) or not rows or not cut[-2]:
        return None
    if rows % cut[-2] or prod(cut[:-1]) != prod(groups) * rows:
        return None
    if last is None and cut[-1] != editor.type(product.inputs[0]).shape[-1]:
        return None
    return _Cut(product, reshape, groups, rows // cut[-2], cut[-2])


def _heads(cut: _Cut) -> tuple[int, ...]:
    """Extents of the matrices of all heads: the groups' last one times what shares it."""
    return (*cut.groups[:-1], cut.groups[-1] * cut.repeats)


def _cut(editor: GraphEditor, found: _Cut) -> None:
    """Scores of each head by itself, where one matrix had those of several."""
    product, reshape = found.product, found.reshape
    queries = _reshaped(editor, product.inputs[0], (*_heads(found), found.rows, -1), product)
    keys = _repeated(editor, product.inputs[1], found)
    made = replace(product, inputs=(queries, keys), outputs=(_like(editor, product, (queries, keys)),))
    editor.replace(product, made)
    editor.replace(reshape, replace(reshape, inputs=made.outputs))


def _join(editor: GraphEditor, found: _Cut) -> None:
    """Results of each head by itself, which lie as one matrix of several would have them."""
    product, reshape = found.product, found.reshape
    keys = editor.type(product.inputs[0]).shape[-1]
    cut = replace(reshape, op=Reshape((*_heads(found), found.rows, keys)))
    (type_,) = cut.op.infer([editor.type(reshape.inputs[0])])
    shares = editor.new_value(f"{reshape.outputs[0]}.heads", type_)
    editor.replace(reshape, replace(cut, outputs=(shares,)))
    inputs = shares, _repeated(editor, product.inputs[1], found)
    result = _like(editor, product, inputs)
    behind = Node(
        editor.free_node_name(f"{product.name}.rows"), Reshape(editor.type(product.outputs[0]).shape), (result,),
        product.outputs,
    )  # fmt: skip
    editor.replace(product, replace(product, inputs=inputs, outputs=(result,)), behind)


def _like(editor: GraphEditor, product: Node, inputs: tuple[str, ...]) -> str:
    (type_,) = product.op.infer([editor.type(name) for name in inputs])
    return editor.new_value(f"{product.outputs[0]}.heads", type_)


def _repeated(editor: GraphEditor, value: str, found: _Cut) -> str:
    """Keys or values of each group, once for each head."""
    matrix = editor.type(value).shape[-2:]
    alone = _reshaped(editor, value, (*found.groups, 1, *matrix), found.product)
    every = Expand((*found.groups, found.repeats, *matrix))
    (type_,) = every.infer([editor.type(alone)])
    wide = editor.new_value(f"{value}.repeated", type_)
    name = editor.free_node_name(f"{found.product.name}.repeated")
    node = editor.producer(found.product.outputs[0])
    assert node is not None
    editor.replace(node, Node(name, every, (alone,), (wide,)), node)
    return _reshaped(editor, wide, (*_heads(found), *matrix), found.product)


def _reshaped(editor: GraphEditor, value: str, shape: tuple[int, ...], at: Node) -> str:
    """The value in this shape, in front of `at`; -1 is what is left."""
    elements = editor.type(value).elements
    whole = tuple(elements // -prod(shape) if extent == -1 else extent for extent in shape)
    op = Reshape(whole)
    (type_,) = op.infer([editor.type(value)])
    made = editor.new_value(f"{value}.heads", type_)
    node = editor.producer(at.outputs[0])
    assert node is not None
    editor.replace(node, Node(editor.free_node_name(f"{at.name}.heads"), op, (value,), (made,)), node)
    return made
