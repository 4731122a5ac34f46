"""Scales and shifts channels of a convolution's result in front of what moves its elements, where they are folded.

Decoders have a BatchNorm behind a transposed convolution: a convolution whose channels are moved between pixels, of
which some at the border may be cut off. The BatchNorm of the convolution itself has each channel once a pixel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.rearrange import axes_of
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.wording import many


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(NORM_EARLY.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, BatchNorm) and not node.epilogue:
            _lift(editor, journal, node)
    return journal.result(editor.finish())


def _lift(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """The BatchNorm behind the convolution in front of the moves."""
    moves = _moves(editor, node.inputs[0])
    if not moves:
        return
    (value,) = moves[0].inputs
    conv = editor.producer(value)
    if conv is None or not isinstance(conv.op, Conv):
        return
    between = (name for move in moves for name in move.outputs)
    if (obstacle := editor.not_private(value, *between) or weight_obstacle(editor, conv)) is not None:
        journal.declined(node.name, obstacle)
        return
    parameters = [editor.constant(name) for name in node.inputs[1:]]
    channels = _channels(editor, moves)
    if channels is None:
        journal.declined(node.name, f"a channel of '{conv.name}' is part of several behind its movements")
        return
    if any(array is None for array in parameters):
        journal.declined(node.name, "its parameters are not constant")
        return
    inputs = [value]
    for name, array in zip(node.inputs[1:], parameters, strict=True):
        assert array is not None
        inputs.append(editor.new_constant(f"{name}.early", array[channels], editor.type(name).dtype))
    early = editor.new_value(f"{node.name}.early", editor.type(value))
    name = editor.free_node_name(f"{node.name}.early")
    norm = Node(name, node.op, tuple(inputs), (early,), covers=node.covers)
    editor.remove(node)
    given, front = early, [norm]
    for move in moves:
        (old,) = move.outputs
        (made,) = node.outputs if move is moves[-1] else (editor.new_value(f"{old}.early", editor.type(old)),)
        editor.replace(move, *front, replace(move, inputs=(given,), outputs=(made,)))
        given, front = made, []
    journal.did(node.name, "moved", f"in front of {many(len(moves), 'movement')} of the result of '{conv.name}'")


def _moves(editor: GraphEditor, value: str) -> list[Node]:
    """What moves a value, the first first: a reshape, a transpose and a reshape, and what cuts pixels off behind
    them; nothing where it is not moved so."""
    found: list[Node] = []
    wanted: tuple[type, ...] = (Slice, Reshape, Transpose, Reshape)
    if (last := editor.producer(value)) is not None and not isinstance(last.op, Slice):
        wanted = wanted[1:]
    for kind in wanted:
        node = editor.producer(value)
        if node is None or not isinstance(node.op, kind) or node.epilogue:
            return []
        found.insert(0, node)
        (value,) = node.inputs
    return found


def _channels(editor: GraphEditor, moves: list[Node]) -> Array | None:
    """Which channel behind the moves each channel in front of them is part of; None where one is part of several."""
    cut, turned, join, *rest = moves
    assert isinstance(turned.op, Transpose)
    for last in rest:
        assert isinstance(last.op, Slice)
        kept = editor.type(last.inputs[0]).shape[1]
        if last.op.begin[1] or last.op.count[1] != kept or last.op.step[1] != 1:
            return None
    split, whole = editor.type(cut.outputs[0]).shape, editor.type(join.outputs[0]).shape
    given = editor.type(cut.inputs[0]).shape
    before, behind = axes_of(given, split), axes_of(whole, tuple(split[axis] for axis in turned.op.perm))
    if before is None or behind is None or min(len(given), len(whole)) < 3:
        return None
    made = [turned.op.perm[at] for at in behind[1]]
    if any(axis not in before[1] for axis in made) or before[0] != (0,) or behind[0] != (0,) or turned.op.perm[0]:
        return None
    order = sorted(made)
    index = np.arange(whole[1]).reshape([split[axis] for axis in made]).transpose([made.index(axis) for axis in order])
    apart = index.reshape([split[axis] if axis in made else 1 for axis in before[1]])
    return np.broadcast_to(apart, [split[axis] for axis in before[1]]).reshape(-1)


NORM_EARLY = Pass("norm-early", _run)
