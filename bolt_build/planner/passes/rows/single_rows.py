"""Prepares heads where a product leaves them, of single rows: a decoder's one token, whose keys join a cache.

Queries and keys of one token are columns of one product. Where heads are cut apart first, columns are copied and each
of what prepares heads, a normalisation and rotary embedding, is a step. Of one row an image the same numbers are rows
of heads side by side, which one step reads where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Prepared:
    """`nodes` that prepare heads of [N, 1, C] `rows` one behind the other, the last one first."""

    rows: str
    norm: Node | None
    turn: Node | None
    nodes: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SINGLE_ROWS.name)
    for node in reversed(editor.nodes()):
        if editor.node(node.name) is None or node.epilogue:
            continue
        if isinstance(node.op, Norm | Rotary):
            found = _prepared(editor, node)
            if found is not None and _pays(editor, found):
                _put(editor, journal, node, found)
        elif isinstance(node.op, HeadRows):
            _with_all_heads(editor, journal, node, node.op)
    return journal.result(editor.finish())


def _prepared(editor: GraphEditor, last: Node) -> _Prepared | None:
    """What prepares heads in front of the node, back to rows; None where they are no single rows an image."""
    length = editor.type(last.outputs[0]).shape[-1]
    norm: Node | None = None
    turn: Node | None = None
    nodes, value = list[Node](), last.outputs[0]
    while (made := editor.producer(value)) is not None and not made.epilogue:
        if made is not last and editor.not_private(value) is not None:
            break
        match made.op:
            case Rotary() if norm is None and turn is None:
                turn = made
            case Norm(_, axes, _, 1) if norm is None and _is_last(editor, value, axes) and len(made.inputs) <= 2:
                norm = made
            case Reshape():
                pass
            case _:
                break
        nodes.append(made)
        value = made.inputs[0]
    if (norm is None and turn is None) or any(
        each is not None and not _fits(editor, each, length) for each in (norm, turn)
    ):
        return None
    shape = editor.type(value).shape
    if len(shape) != 3 or shape[1] != 1 or shape[2] % length:
        return None
    if turn is not None and any(not _alike(editor, name, shape[0]) for name in turn.inputs[1:]):
        return None
    return _Prepared(value, norm, turn, tuple(nodes))


def _is_last(editor: GraphEditor, value: str, axes: tuple[int, ...]) -> bool:
    return axes == (editor.type(value).rank - 1,)


def _fits(editor: GraphEditor, node: Node, length: int) -> bool:
    """Whether the node works on heads of this length; a normalisation with one scale for all of them."""
    scales = node.inputs[1:] if isinstance(node.op, Norm) else ()
    alike = all(editor.type(name).shape == (length,) for name in scales)
    return alike and editor.type(node.outputs[0]).shape[-1] == length


def _alike(editor: GraphEditor, angles: str, images: int) -> bool:
    """Whether all heads of an image have the same angles."""
    shape = editor.type(angles).shape
    return prod(shape[:-1]) == 1 or (prod(shape[:-1]) == images == shape[0] and len(shape) == 4)


def _pays(editor: GraphEditor, found: _Prepared) -> bool:
    """Whether a step less is left, or none that copies columns. A normalisation of whole rows is none of heads."""
    last = editor.type(found.nodes[0].outputs[0]).shape[-1]
    if found.turn is None and editor.type(found.rows).shape[2] == last:
        return False
    return (found.norm is not None and found.turn is not None) or _is_columns(editor, found.rows)


def _is_columns(editor: GraphEditor, rows: str) -> bool:
    """Whether the rows are columns of others that several images have: elsewhere they lie one behind the other."""
    made = editor.producer(rows)
    return made is not None and isinstance(made.op, Slice) and editor.type(rows).shape[0] > 1


def _put(editor: GraphEditor, journal: Journal, node: Node, found: _Prepared) -> None:
    (value,) = node.outputs
    rows = editor.type(found.rows)
    heads = rows.shape[2] // editor.type(value).shape[-1]
    made = list[Node]()
    norm, turn = found.norm, found.turn
    op = HeadRows(heads)
    operands = list[str]()
    if norm is not None:
        assert isinstance(norm.op, Norm)
        op = replace(op, statistic=norm.op.statistic, epsilon=norm.op.epsilon, scaled=len(norm.inputs) > 1)
        operands += norm.inputs[1:]
    if turn is not None:
        assert isinstance(turn.op, Rotary)
        op = replace(op, rotary=True, interleaved=turn.op.interleaved, passed=turn.op.passed)
        operands += [_angles(editor, made, node, name) for name in turn.inputs[1:]]
    result = editor.new_value(f"{value}.rows", rows)
    name = editor.free_node_name(f"{node.name}.rows")
    made.append(
        Node(name, op, (found.rows, *operands), (result,), covers=joined(*(each.covers for each in found.nodes)))
    )
    last = Node(node.name, Reshape(editor.type(value).shape), (result,), (value,), covers=node.covers)
    editor.replace(node, *made, last)
    editor.prune(node.inputs[:1])
    journal.did(node.name, "prepared in rows", f"{heads} heads of a single row")


def _angles(editor: GraphEditor, made: list[Node], node: Node, name: str) -> str:
    """Angles as heads of rows have them, [N or 1, 1, 1, T]."""
    type_ = editor.type(name)
    shape = (prod(type_.shape[:-1]), 1, 1, type_.shape[-1])
    if (type_.rank <= 4 and prod(type_.shape[:-1]) == 1) or type_.shape == shape:
        return name
    value = editor.new_value(f"{name}.rows", replace(type_, shape=shape))
    made.append(Node(editor.free_node_name(f"{node.name}.angles"), Reshape(shape), (name,), (value,)))
    return value


def _with_all_heads(editor: GraphEditor, journal: Journal, node: Node, op: HeadRows) -> None:
    """Heads that attention has as images are prepared as those of the rows that they were cut from."""
    cut = editor.producer(node.inputs[0])
    if cut is None or not isinstance(cut.op, Reshape) or cut.epilogue:
        return
    rows, own = editor.type(cut.inputs[0]), editor.type(node.inputs[0])
    length = own.shape[2] // op.heads
    if rows.rank != 3 or rows.shape[1] != 1 or rows.shape[2] % length or rows.shape[0] == own.shape[0]:
        return
    if not _is_columns(editor, cut.inputs[0]):
        return
    if any(prod(editor.type(name).shape[:-1]) != 1 for name in node.inputs[1:]):
        journal.declined(node.name, "heads or images have numbers of their own")
        return
    (value,) = node.outputs
    all_heads = replace(op, heads=rows.shape[2] // length)
    result = editor.new_value(f"{value}.rows", rows)
    made = Node(node.name, all_heads, (cut.inputs[0], *node.inputs[1:]), (result,), covers=node.covers)
    back = Node(editor.free_node_name(f"{node.name}.heads"), Reshape(own.shape), (result,), (value,))
    editor.replace(node, made, back)
    editor.prune((node.inputs[0],))
    journal.did(node.name, "prepared in rows", f"{all_heads.heads} heads of a single row")


SINGLE_ROWS = Pass("single-rows", _run, pays_on=PLACE_PRODUCTS.pays_on)
