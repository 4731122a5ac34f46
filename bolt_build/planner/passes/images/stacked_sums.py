"""Adds up tensors instead of summing over the axis that they are stacked along: sums over branches (selective kernels),
or over runs of channels (split attention), each with a factor of its own. Means and extremes of a stack are computed
tensor by tensor too: where branches meet in FractalNet, a mean of the last layers of a transformer.

A stack of images has five axes, so its elements would be brought into planes, stacked, summed over and brought back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node, Op, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_AXIS, _MOST = 1, 4
"""What images are stacked along, and tensors that are added up one by one."""
_JOINED = {"sum": "add", "mean": "add", "max": "max", "min": "min"}
"""How two tensors of a stack are joined, by the mode of the reduction."""
_NONE = "'{}' is no stack of images, or of runs of channels"


class _Unknown(Exception):
    """Why a stack's tensors cannot be had one by one."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ADD_STACKED.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not _sums_a_stack(editor, node):
            continue
        try:
            _add_up(editor, journal, node)
        except _Unknown as unknown:
            journal.declined(node.name, str(unknown))
    return journal.result(editor.finish())


def _sums_a_stack(editor: GraphEditor, node: Node) -> bool:
    if not isinstance(node.op, Reduce) or node.epilogue or node.op.mode not in _JOINED or len(node.op.axes) != 1:
        return False
    type_, (axis,) = editor.type(node.inputs[0]), node.op.axes
    if type_.dtype not in PRECISIONS.values() or type_.shape[axis] == 1:
        return False
    return (type_.rank == 5 and axis == _AXIS) or _tensors(editor, node.inputs[0], axis) is not None


def _tensors(editor: GraphEditor, value: str, axis: int) -> list[str] | None:
    """The tensors whose concatenation along an axis of its own the value is, None where it is none."""
    node = editor.producer(value)
    if node is None or node.op != Concat(axis) or node.epilogue:
        return None
    shape = tuple(extent for place, extent in enumerate(editor.type(value).shape) if place != axis)
    found = []
    for name in node.inputs:
        made = editor.producer(name)
        if editor.type(name).shape[axis] != 1 or made is None or made.epilogue or not isinstance(made.op, Reshape):
            return None
        if editor.type(made.inputs[0]).shape != shape:
            return None
        found.append(made.inputs[0])
    return found


def _add_up(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """Raises _Unknown where the node stays."""
    (value,) = node.inputs
    assert isinstance(node.op, Reduce)
    mode, (axis,) = node.op.mode, node.op.axes
    if node.op.keepdims:
        raise _Unknown(f"its {mode} keeps the axis of the stack")
    if (count := editor.type(value).shape[axis]) > _MOST:
        raise _Unknown(f"a stack of {count} tensors; at most {_MOST} are added up one by one")
    chain, stacked = Chain(editor, f"{node.name}.parts"), _tensors(editor, value, axis)
    total, *others = stacked or [_part(editor, chain, value, index) for index in range(count)]
    for index, other in enumerate(others):
        last = index == len(others) - 1 and mode != "mean"
        total = chain.add(Binary(_JOINED[mode]), [total, other], node.outputs[0] if last else None)
    if mode == "mean":
        part = editor.new_constant(f"{node.name}.part", np.array(1 / count, np.float32), editor.type(value).dtype)
        chain.add(Binary("mul"), [total, part], node.outputs[0])
    *front, end = chain.nodes
    editor.replace(node, *front, replace(end, name=node.name, covers=node.covers))
    removed = editor.prune([value])
    covers = joined(*(each.covers for each in removed), node.covers)
    made = editor.producer(node.outputs[0])
    assert made is not None
    editor.replace(made, replace(made, covers=covers))
    journal.did(node.name, "added up", f"{count} tensors of a stack, one by one")


def _part(editor: GraphEditor, chain: Chain, value: str, index: int) -> str:
    """Tensor `index` of the stack `value`, the only one of a stack of one. Raises _Unknown where it is none of known
    tensors."""
    type_, node = editor.type(value), editor.producer(value)
    index = min(index, type_.shape[_AXIS] - 1)
    shape = (type_.shape[0], *type_.shape[_AXIS + 1 :])
    if all(extent == 1 for extent in type_.shape[_AXIS + 2 :]):
        begin = tuple(index if axis == _AXIS else 0 for axis in range(type_.rank))
        count = tuple(1 if axis == _AXIS else size for axis, size in enumerate(type_.shape))
        steps = (1,) * type_.rank
        ops: list[Op] = [Slice(begin, count, steps)] if type_.shape[_AXIS] > 1 else []
        return chain.moved(value, [*ops, Reshape(shape)])
    if node is None or node.epilogue:
        raise _Unknown(_NONE.format(value))
    match node.op:
        case Concat(axis) if axis == _AXIS and all(editor.type(name).shape[_AXIS] == 1 for name in node.inputs):
            return _image(editor, node.inputs[index], shape)
        case Reshape():
            return _channels(editor, chain, node, type_, index)
        case Binary("mul" | "add") if all(editor.type(name).rank == type_.rank for name in node.inputs):
            if (reason := editor.not_private(value)) is not None:
                raise _Unknown(reason)
            return chain.add(node.op, [_part(editor, chain, name, index) for name in node.inputs])
    raise _Unknown(_NONE.format(value))


def _image(editor: GraphEditor, value: str, shape: tuple[int, ...]) -> str:
    """What a reshape makes a stack of one of."""
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Reshape):
        raise _Unknown(_NONE.format(value))
    if editor.type(node.inputs[0]).shape != shape:
        raise _Unknown(_NONE.format(value))
    return node.inputs[0]


def _channels(editor: GraphEditor, chain: Chain, cut: Node, type_: TensorType, index: int) -> str:
    """A run of the channels that a reshape makes a stack of."""
    shape = editor.type(cut.inputs[0]).shape
    each = type_.shape[_AXIS + 1]
    if shape != (type_.shape[0], type_.shape[_AXIS] * each, *type_.shape[_AXIS + 2 :]):
        raise _Unknown(_NONE.format(cut.outputs[0]))
    if shape[1] == each:
        return cut.inputs[0]
    begin = (0, index * each, *(0,) * (len(shape) - 2))
    return chain.add(Slice(begin, (shape[0], each, *shape[2:]), (1,) * len(shape)), [cut.inputs[0]])


ADD_STACKED = Pass("add-stacked", _run)
