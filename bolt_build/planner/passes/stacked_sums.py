"""Adds up tensors instead of summing over the axis that they are stacked along: sums over branches (selective kernels),
or over runs of channels (split attention), each with a factor of its own.

A stack of images has five axes, so its elements would be brought into planes, stacked, summed over and brought back.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node, Op, TensorType
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.attention_operands import Chain
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy

_AXIS, _MOST = 1, 4
"""What images are stacked along, and tensors that are added up one by one."""


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ADD_STACKED.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not _sums_a_stack(editor, node):
            continue
        if (count := editor.type(node.inputs[0]).shape[_AXIS]) > _MOST:
            journal.declined(node.name, f"{count} tensors of a stack are more than {_MOST}")
            continue
        _add_up(editor, journal, node)
    return journal.result(editor.finish())


def _sums_a_stack(editor: GraphEditor, node: Node) -> bool:
    if not isinstance(node.op, Reduce) or node.epilogue or (node.op.mode, node.op.axes) != ("sum", (_AXIS,)):
        return False
    type_ = editor.type(node.inputs[0])
    floats = type_.dtype in PRECISIONS.values()
    return floats and type_.rank == 5 and type_.shape[_AXIS] > 1 and not node.op.keepdims


def _add_up(editor: GraphEditor, journal: Journal, node: Node) -> None:
    (value,) = node.inputs
    count = editor.type(value).shape[_AXIS]
    chain = Chain(editor, f"{node.name}.parts")
    parts = [_part(editor, chain, value, index) for index in range(count)]
    if (lost := next((index for index, part in enumerate(parts) if part is None), None)) is not None:
        journal.declined(node.name, f"part {lost} of '{value}' is no tensor that lies apart from the others")
        return
    total, *others = (part for part in parts if part is not None)
    for index, other in enumerate(others):
        last = index == len(others) - 1
        total = chain.add(Binary("add"), [total, other], node.outputs[0] if last else None)
    *front, end = chain.nodes
    editor.replace(node, *front, replace(end, name=node.name, covers=node.covers))
    removed = editor.prune([value])
    covers = joined(*(each.covers for each in removed), node.covers)
    made = editor.producer(node.outputs[0])
    assert made is not None
    editor.replace(made, replace(made, covers=covers))
    journal.did(node.name, "added up", f"{count} tensors of a stack, one by one")


def _part(editor: GraphEditor, chain: Chain, value: str, index: int) -> str | None:
    """Tensor `index` of the stack `value`, the only one of a stack of one; None where it is none of known tensors."""
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
        return None
    match node.op:
        case Concat(axis) if axis == _AXIS and all(editor.type(name).shape[_AXIS] == 1 for name in node.inputs):
            return _image(editor, node.inputs[index], shape)
        case Reshape():
            return _channels(editor, chain, node, type_, index)
        case Binary("mul" | "add") if all(editor.type(name).rank == type_.rank for name in node.inputs):
            if editor.not_private(value) is not None:
                return None
            parts = [_part(editor, chain, name, index) for name in node.inputs]
            return None if None in parts else chain.add(node.op, [part for part in parts if part is not None])
    return None


def _image(editor: GraphEditor, value: str, shape: tuple[int, ...]) -> str | None:
    """What a reshape makes a stack of one of."""
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Reshape):
        return None
    return node.inputs[0] if editor.type(node.inputs[0]).shape == shape else None


def _channels(editor: GraphEditor, chain: Chain, cut: Node, type_: TensorType, index: int) -> str | None:
    """A run of the channels that a reshape makes a stack of."""
    shape = editor.type(cut.inputs[0]).shape
    each = type_.shape[_AXIS + 1]
    if shape != (type_.shape[0], type_.shape[_AXIS] * each, *type_.shape[_AXIS + 2 :]):
        return None
    if shape[1] == each:
        return cut.inputs[0]
    begin = (0, index * each, *(0,) * (len(shape) - 2))
    return chain.add(Slice(begin, (shape[0], each, *shape[2:]), (1,) * len(shape)), [cut.inputs[0]])


ADD_STACKED = Pass("add-stacked", _run)
