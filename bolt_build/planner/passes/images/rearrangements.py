"""Makes one movement of a reshape, a transpose and a reshape between images, with the channels that alone are read of
it; and computes activations in front of what only moves elements.

Such three are a channel shuffle, a pixel shuffle, or patches that become channels. A reshape counts in planes, so it
would bring an image whose channels lie last into planes and back. Heads that are cut out of a run of columns are moved
likewise: a reshape needs dense rows, so it would have these columns copied before.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.moves.rearrange import Rearrange, axes_of
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.fuse.epilogues import IN_KERNEL
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.wording import many

_MOST_AXES = 8
SUFFIX = ".ordered"
"""Behind the names of weights whose filters are in another order."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_REARRANGEMENTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, Transpose) and not node.epilogue:
            _merge(editor, journal, node)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, Activation):
            _lift(editor, journal, node)
    return journal.result(editor.finish())


def _merge(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """The transpose with the reshapes around it, where they rearrange an image."""
    assert isinstance(node.op, Transpose)
    first, last = editor.producer(node.inputs[0]), _only_reader(editor, node)
    if first is None or not isinstance(first.op, Reshape) or first.epilogue or editor.not_private(node.inputs[0]):
        first = None
    if last is None or not isinstance(last.op, Reshape) or last.epilogue:
        last = None
    turned = editor.type(node.outputs[0]).shape
    if last is not None and axes_of(editor.type(last.outputs[0]).shape, turned) is None:
        last = None
    if first is None and last is None:
        return
    begin, end = first or node, last or node
    given, made = editor.type(begin.inputs[0]), editor.type(end.outputs[0])
    split = editor.type(node.inputs[0]).shape
    images = given.shape[:1] == made.shape[:1] and (
        min(given.rank, made.rank) >= 4 or (given.rank == made.rank == 3 and _convolved(editor, begin.inputs[0]))
    )
    columns = first is not None and made.rank > 1 and _takes_columns(editor, begin.inputs[0])
    if not (images or columns) or len(split) > _MOST_AXES or 0 in split:
        return
    op = Rearrange(split, node.op.perm, made.shape, 0, made.shape)
    if axes_of(given.shape, split) is None or op.joined is None:
        return
    for gone in (first, last):
        if gone is not None:
            editor.remove(gone)
    covers = joined(*(each.covers for each in (begin, node, end)))
    whole = Node(end.name, op, begin.inputs, end.outputs, covers=covers)
    editor.replace(node, whole)
    whole, op = _ordered(editor, journal, whole, op)
    journal.did(whole.name, "merged", "moves elements between axes in one step")
    whole, op = _cropped(editor, journal, whole, op)
    _take(editor, journal, whole, op)


def _convolved(editor: GraphEditor, value: str) -> bool:
    """Whether a value of three axes is a line of a convolution: of others rows are tokens."""
    node = editor.producer(value)
    return node is not None and isinstance(node.op, Conv)


def _takes_columns(editor: GraphEditor, value: str) -> bool:
    """Whether the value is a run of another one's columns, read where it lies where nothing cuts its rows first."""
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Slice) or node.epilogue or set(node.op.step) != {1}:
        return False
    shape = editor.type(node.inputs[0]).shape
    return len(shape) > 1 and node.op.count[:-1] == shape[:-1] and node.op.count[-1] < shape[-1]


def _ordered(editor: GraphEditor, journal: Journal, node: Node, op: Rearrange) -> tuple[Node, Rearrange]:
    """The movement of a convolution's result whose filters are in another order, so that those which become channels of
    one pixel follow each other."""
    (given,) = node.inputs
    front, cut, made = _front(editor, given), axes_of(editor.type(given).shape, op.split), op.joined
    assert cut is not None
    assert made is not None
    kept = [axis for axis in cut[1] if axis in made[1]]
    order = [*(axis for axis in cut[1] if axis not in made[1]), *(axis for axis in made[1] if axis in kept)]
    if not front or tuple(order) == cut[1] or not kept:
        return node, op
    conv = front[0]
    assert isinstance(conv.op, Conv)
    obstacle = weight_obstacle(editor, conv) or editor.not_private(*(each.outputs[0] for each in front))
    if obstacle is None and conv.op.groups > 1:
        obstacle = f"'{conv.name}' has groups"
    if obstacle is not None:
        journal.declined(conv.name, f"filters that '{node.name}' moves to one pixel stay apart: {obstacle}")
        return node, op
    places = [*range(cut[1][0]), *order, *range(cut[1][-1] + 1, len(op.split))]
    extents, turned = [op.split[axis] for axis in cut[1]], [axis - cut[1][0] for axis in order]
    inputs = [conv.inputs[0]]
    for name in conv.inputs[1:]:
        array, dtype = editor.constant(name), editor.type(name).dtype
        assert array is not None
        apart = array.reshape(*extents, *array.shape[1:])
        moved = apart.transpose(*turned, *range(len(extents), apart.ndim)).reshape(array.shape)
        inputs.append(editor.new_constant(f"{name}{SUFFIX}", np.ascontiguousarray(moved), dtype))
    split, perm = tuple(op.split[axis] for axis in places), tuple(places.index(axis) for axis in op.perm)
    op = replace(op, split=split, perm=perm)
    read = tuple(inputs)
    for each in front:
        between = editor.new_value(f"{each.outputs[0]}{SUFFIX}", editor.type(each.outputs[0]))
        editor.replace(each, replace(each, inputs=read, outputs=(between,)))
        read = (between,)
    last = replace(node, op=op, inputs=read)
    editor.replace(node, last)
    journal.did(conv.name, "ordered", f"filters that '{node.name}' moves to one pixel follow each other")
    return last, op


def _front(editor: GraphEditor, value: str) -> list[Node]:
    """The convolution that makes a value, and the activations behind it; nothing where it is none's."""
    found: list[Node] = []
    node = editor.producer(value)
    while node is not None and isinstance(node.op, Activation) and not node.epilogue:
        found.insert(0, node)
        node = editor.producer(node.inputs[0])
    return [node, *found] if node is not None and isinstance(node.op, Conv) and not node.epilogue else []


def _cropped(editor: GraphEditor, journal: Journal, node: Node, op: Rearrange) -> tuple[Node, Rearrange]:
    """The movement that leaves out what its only reader cuts off behind the channels, as transposed convolutions do."""
    reader = _only_reader(editor, node)
    if reader is None or not isinstance(reader.op, Slice) or set(reader.op.step) != {1} or reader.epilogue:
        return node, op
    cut = reader.op
    taken = replace(op, shape=cut.count, first=cut.begin[2:])
    if cut.count[:2] != op.whole[:2] or not all(map(taken.steps_whole, range(2, len(op.whole)))):
        return node, op
    last = replace(reader, op=taken, inputs=node.inputs, covers=joined(node.covers, reader.covers))
    editor.remove(node)
    editor.replace(reader, last)
    journal.did(last.name, "merged", f"leaves out what is cut off of '{node.name}'")
    return last, taken


def _take(editor: GraphEditor, journal: Journal, node: Node, op: Rearrange) -> None:
    """Slices of channels, where nothing else reads the image, take them themselves."""
    (output,) = node.outputs
    readers = editor.readers(output)
    parts = op.joined
    assert parts is not None
    inner = prod(op.split[axis] for axis in parts[1][1:])
    for reader in readers:
        if not isinstance(reader.op, Slice) or set(reader.op.step) != {1} or reader.epilogue:
            return
        kept = (reader.op.count[0], op.whole[1], *reader.op.count[2:])
        if kept != op.whole or reader.op.begin[1] % inner or reader.op.count[1] % inner:
            return
    if editor.is_output(output) or not readers:
        return
    for reader in readers:
        assert isinstance(reader.op, Slice)
        taken = replace(op, begin=reader.op.begin[1], shape=reader.op.count)
        covers = joined(node.covers, reader.covers)
        editor.replace(reader, replace(reader, op=taken, inputs=node.inputs, covers=covers))
        journal.did(reader.name, "merged", f"takes its channels of '{node.name}' itself")
    editor.remove(node)


def _only_reader(editor: GraphEditor, node: Node) -> Node | None:
    (output,) = node.outputs
    readers = editor.readers(output)
    return None if editor.not_private(output) is not None or not readers else readers[0]


def _lift(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """The activation behind the convolution in front of what moves its result."""
    assert isinstance(node.op, Activation)
    if node.op.function not in IN_KERNEL or node.epilogue:
        return
    moves, value = list[Node](), node.inputs[0]
    while True:
        before = editor.producer(value)
        if before is None or before.epilogue or editor.not_private(value) is not None:
            return
        if isinstance(before.op, Conv):
            break
        if not isinstance(before.op, Rearrange | Reshape | Transpose | Slice):
            return
        moves.append(before)
        value = before.inputs[0]
    if not moves:
        return
    early = editor.new_value(f"{node.name}.early", editor.type(value))
    name = editor.free_node_name(f"{node.name}.early")
    activation = Node(name, node.op, (value,), (early,), covers=node.covers)
    editor.remove(node)
    given, front = early, [activation]
    for move in reversed(moves):
        (old,) = move.outputs
        (made,) = node.outputs if move is moves[0] else (editor.new_value(f"{old}.early", editor.type(old)),)
        editor.replace(move, *front, replace(move, inputs=(given,), outputs=(made,)))
        given, front = made, []
    journal.did(node.name, "moved", f"in front of {many(len(moves), 'movement')} of the convolution's result")


MERGE_REARRANGEMENTS = Pass("merge-rearrangements", _run, pays_on=on_tensor_cores)
