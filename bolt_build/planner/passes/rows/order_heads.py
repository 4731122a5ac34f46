"""Orders the columns of a product so that what is sliced of every head lies side by side. LeViT, for example, has the
queries, keys and values of a head beside each other: three slices of every head become three runs of columns, which
attention reads where they lie. BLOOM, GPT-NeoX and MaxViT have them so too, and a transpose behind the product would
bring all queries in front of all keys: the columns are ordered as it leaves them, and it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import channel_axis, weight_obstacle
from bolt_build.planner.passes.tidy.moves import merge_moves
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Part:
    """What `node` slices of each of `heads` runs of channels that `cut` makes: `count` from `begin` on."""

    cut: Node
    node: Node
    heads: int
    begin: int
    count: int
    run: int

    def channels(self) -> Array:
        """Which channels these are, in the order of the slice."""
        return (np.arange(self.heads)[:, None] * self.run + self.begin + np.arange(self.count)).reshape(-1)


@dataclass(frozen=True)
class _Moved:
    """A reshape that cuts channels and a transpose of the parts; `order` names the channels as they lie then."""

    cut: Node
    move: Node
    order: Array


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ORDER_HEADS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv | MatMul) or weight_obstacle(editor, node) is not None:
            continue
        if isinstance(node.op, Conv) and node.op.groups != 1:
            continue
        parts = _parts(editor, node)
        if parts:
            _order(editor, journal, node, parts)
        elif (moved := _moved_columns(editor, node)) is not None:
            _order_all(editor, journal, node, moved)
    found = journal.result(editor.finish())
    if not found.decisions:
        return found
    merged = merge_moves(found.graph)  # reshapes of heads and what reads them
    return PassResult(merged.graph, (*found.decisions, *merged.decisions))


def _parts(editor: GraphEditor, product: Node) -> list[_Part]:
    """All that reads the product, where these are slices of every head that share nothing; otherwise nothing."""
    (value,) = (_move(editor, product) or product).outputs
    out, channel = editor.type(value), _channel(editor, product)
    found: list[_Part] = []
    for cut in editor.readers(value):
        if not isinstance(cut.op, Reshape) or cut.epilogue or editor.is_output(cut.outputs[0]):
            return []
        axis = _head_axis(out.shape, channel, cut.op.shape)
        for reader in editor.readers(cut.outputs[0]):
            part = None if axis is None else _part(cut, reader, axis, cut.op.shape)
            if part is None:
                return []
            found.append(part)
    channels = [each for part in found for each in part.channels()]
    return found if len(set(channels)) == len(channels) and not editor.is_output(value) else []


def _move(editor: GraphEditor, product: Node) -> Node | None:
    """The transpose that alone reads the product; None where there is none."""
    (value,) = product.outputs
    readers = editor.readers(value)
    if not readers or editor.not_private(value) is not None or readers[0].epilogue:
        return None
    return readers[0] if isinstance(readers[0].op, Transpose) else None


def _channel(editor: GraphEditor, product: Node) -> int:
    """The axis of channels of what slices are of: the product, or what a transpose makes of it."""
    channel, move = channel_axis(product, editor.type(product.outputs[0])), _move(editor, product)
    return move.op.perm.index(channel) if move is not None and isinstance(move.op, Transpose) else channel


def _head_axis(shape: tuple[int, ...], channel: int, cut: tuple[int, ...]) -> int | None:
    """The axis of `cut` that counts heads, where it makes two of the channels: heads and what is of one."""
    before = prod(shape[:channel])
    for axis in range(len(cut) - 1):
        if prod(cut[:axis]) == before and cut[axis] != 1:
            return axis if cut[axis] * cut[axis + 1] == shape[channel] and cut[axis + 1] != 1 else None
    return None


def _part(cut: Node, reader: Node, axis: int, shape: tuple[int, ...]) -> _Part | None:
    """What the reader slices of each head, None where it does something else too."""
    if not isinstance(reader.op, Slice) or reader.epilogue:
        return None
    begin, count, step = reader.op.begin, reader.op.count, reader.op.step
    whole = all(n == size for at, (n, size) in enumerate(zip(count, shape, strict=True)) if at != axis + 1)
    if not whole or count[axis + 1] == shape[axis + 1] or any(each != 1 for each in step):
        return None
    return _Part(cut, reader, shape[axis], begin[axis + 1], count[axis + 1], shape[axis + 1])


def _moved_columns(editor: GraphEditor, product: Node) -> _Moved | None:
    """The reshape and the transpose that alone read the product, where they move nothing but its channels."""
    nodes, value = [], product.outputs[0]
    for kind in (Reshape, Transpose):
        readers = editor.readers(value)
        if not readers or editor.not_private(value) is not None:
            return None
        if not isinstance(readers[0].op, kind) or readers[0].epilogue:
            return None
        nodes.append(readers[0])
        value = readers[0].outputs[0]
    cut, move = nodes
    assert isinstance(cut.op, Reshape)
    assert isinstance(move.op, Transpose)
    out, channel, shape = editor.type(product.outputs[0]).shape, _channel(editor, product), cut.op.shape
    before, fixed = prod(out[:channel]), [axis for axis, old in enumerate(move.op.perm) if axis == old]
    moved = [axis for axis in range(len(shape)) if axis not in fixed and shape[axis] != 1]
    if not moved:
        return None
    first, last = moved[0], moved[-1] + 1
    while prod(shape[:first]) > before:
        first -= 1
    while last < len(shape) and prod(shape[first:last]) < out[channel]:
        last += 1
    if prod(shape[:first]) != before or prod(shape[first:last]) != out[channel]:
        return None
    own = tuple(old - first for old in move.op.perm[first:last])
    if sorted(own) != list(range(last - first)):
        return None
    return _Moved(cut, move, np.arange(out[channel]).reshape(shape[first:last]).transpose(own).reshape(-1))


def _order_all(editor: GraphEditor, journal: Journal, product: Node, moved: _Moved) -> None:
    """Lets the product leave its channels as what is behind it moves them."""
    editor.remove(moved.cut)
    made = replace(product, inputs=_ordered(editor, product, moved.order))
    (value,) = _renamed(editor, product, made, [])
    shape = editor.type(moved.move.outputs[0]).shape
    covers = joined(moved.cut.covers, moved.move.covers)
    editor.replace(moved.move, replace(moved.move, op=Reshape(shape), inputs=(value,), covers=covers))
    journal.did(product.name, "ordered", f"its channels as '{moved.move.name}' moves them")


def _order(editor: GraphEditor, journal: Journal, product: Node, parts: list[_Part]) -> None:
    move, channel = _move(editor, product), _channel(editor, product)
    order = np.concatenate([part.channels() for part in parts])
    for cut in {part.cut.name: part.cut for part in parts}.values():
        editor.remove(cut)
    made = replace(product, inputs=_ordered(editor, product, order))
    (value,) = _renamed(editor, product, made, parts)
    if move is not None:
        (value,) = _renamed(editor, move, replace(move, inputs=(value,)), [])
    shape, first = editor.type(value).shape, 0
    for part in parts:
        many = part.heads * part.count
        begin = tuple(first if at == channel else 0 for at in range(len(shape)))
        count = tuple(many if at == channel else size for at, size in enumerate(shape))
        own = editor.new_value(f"{part.node.outputs[0]}.heads", replace(editor.type(value), shape=count))
        name = editor.free_node_name(f"{part.node.name}.heads")
        taken = Node(name, Slice(begin, count, (1,) * len(shape)), (value,), (own,))
        back = replace(part.node, op=Reshape(editor.type(part.node.outputs[0]).shape), inputs=(own,))
        editor.replace(part.node, taken, back)
        first += many
    journal.did(product.name, "ordered", f"its channels by what {len(parts)} slices take of each head")


def _ordered(editor: GraphEditor, product: Node, order: Array) -> tuple[str, ...]:
    """The product's inputs with weights and bias in this order of channels."""
    inputs = [product.inputs[0]]
    rows_first = isinstance(product.op, Conv) or (isinstance(product.op, MatMul) and product.op.transpose_b)
    for index, name in enumerate(product.inputs[1:]):
        array = editor.constant(name)
        assert array is not None
        ordered = np.ascontiguousarray(array[order] if rows_first or index else array[:, order])
        inputs.append(editor.new_constant(f"{name}.ordered", ordered, editor.type(name).dtype))
    return tuple(inputs)


def _renamed(editor: GraphEditor, old: Node, new: Node, parts: list[_Part]) -> tuple[str, ...]:
    """Puts `new`, whose result is another than that of `old`, in its place; returns what its result is called."""
    (type_,) = new.op.infer([editor.type(name) for name in new.inputs])
    outputs = (editor.new_value(f"{old.outputs[0]}.ordered", type_),)
    covers = joined(old.covers, *(part.cut.covers for part in parts))
    editor.replace(old, replace(new, outputs=outputs, covers=covers))
    return outputs


ORDER_HEADS = Pass("order-heads", _run)
