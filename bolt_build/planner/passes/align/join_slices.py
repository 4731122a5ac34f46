"""Concatenates a tensor whole where a slice of it was concatenated, so that neither is copied.

Kernels read slices of channels where they lie, and store what is concatenated where that lies. A slice cannot do both:
its memory is another tensor's. So where a concatenation has the first channels of a tensor beside other parts, that
tensor is put behind those parts as a whole, and what was concatenated is a slice of it all; where it has the last
channels, the parts are put behind the tensor. Convolutions that read it have weights in the order that comes out.

For example a cross-stage block splits a tensor t in halves a and b, computes c from b, and concatenates a and c: c and
t lie side by side, and the first two thirds of them, c and a, are what is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.align.pad_channels import WHOLE
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Found:
    """Part number `part` of a concatenation, channels from `begin` on of `source`."""

    part: int
    slice: Node
    source: str
    begin: int


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(JOIN_SLICES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Concat) or node.op.axis != 1 or node.epilogue:
            continue
        slices = [found for part in range(len(node.inputs)) if (found := _slice(editor, node, part)) is not None]
        if not slices:
            continue
        largest = max(slices, key=lambda found: editor.type(node.inputs[found.part]).shape[1])
        if (obstacle := _obstacle(editor, node, largest)) is not None:
            journal.declined(node.name, f"has channels of '{largest.source}', but {obstacle}")
            continue
        _join(editor, node, largest)
        journal.did(node.name, "joined", f"with all of '{largest.source}', of which it had {largest.slice.name!r}")
    return journal.result(editor.finish())


def _slice(editor: GraphEditor, node: Node, part: int) -> _Found | None:
    """The part, where it is the first or the last channels of another tensor."""
    made = editor.producer(node.inputs[part])
    if made is None or not isinstance(made.op, Slice) or made.epilogue:
        return None
    (source,), op = made.inputs, made.op
    shape = editor.type(source).shape
    whole = all(count == extent for axis, (count, extent) in enumerate(zip(op.count, shape, strict=True)) if axis != 1)
    at_an_end = op.begin[1] == 0 or op.begin[1] + op.count[1] == shape[1]
    if len(shape) < 3 or not whole or set(op.step) != {1} or not at_an_end:
        return None
    return _Found(part, made, source, op.begin[1])


def _obstacle(editor: GraphEditor, node: Node, found: _Found) -> str | None:
    """Why the concatenation stays as it is, None where it copies nothing with all of the tensor."""
    (output,) = node.outputs
    if editor.is_output(output):
        return "is a graph output"
    for reader in editor.readers(output):
        takes = isinstance(reader.op, Conv) and reader.op.groups == 1 and editor.is_constant(reader.inputs[1])
        if not takes or reader.inputs.count(output) != 1 or reader.inputs[0] != output:
            return f"is read by '{reader.name}', {reader.op.kind}"
    others = [name for part, name in enumerate(node.inputs) if part != found.part]
    if len({found.source, *others}) <= len(others):
        return "has one tensor twice"
    channels = [editor.type(name).shape[1] for name in (found.source, *node.inputs)]
    if any(count % WHOLE for count in (*channels, found.begin)):
        return f"not all of its parts begin at multiples of {WHOLE} channels"
    for name in (found.source, *others):
        made = editor.producer(name)
        if made is None or not isinstance(made.op, Conv) or editor.is_output(name):
            return f"'{name}' is stored where others want it"
        if (unable := _unable(editor, name, node)) is not None:
            return f"'{name}' is read by '{unable.name}', {unable.op.kind}"
    return None


def _unable(editor: GraphEditor, name: str, but: Node) -> Node | None:
    """A reader of the tensor, or of a slice of it, that may not read it where it lies."""
    for reader in editor.readers(name):
        if reader.name == but.name or isinstance(reader.op, Conv | Pool | Activation | Binary):
            continue
        if not isinstance(reader.op, Slice):
            return reader
        if (further := _unable(editor, reader.outputs[0], but)) is not None:
            return further
    return None


def _join(editor: GraphEditor, node: Node, found: _Found) -> None:
    (output,), taken = node.outputs, node.inputs[found.part]
    type = editor.type(output)
    behind = found.begin == 0
    others = [name for part, name in enumerate(node.inputs) if part != found.part]
    parts = [*others, found.source] if behind else [found.source, *others]
    total = sum(editor.type(name).shape[1] for name in parts)
    shape = (type.shape[0], total, *type.shape[2:])
    whole = editor.new_value(f"{output}.whole", replace(type, shape=shape))
    kept = [*others, taken] if behind else [taken, *others]
    same = kept == list(node.inputs)
    ordered = output if same else editor.new_value(f"{output}.ordered", type)
    rank = len(shape)
    begin = (0, 0 if behind else found.begin, *(0,) * (rank - 2))
    op = Slice(begin, type.shape, (1,) * rank)
    made = Node(editor.free_node_name(f"{node.name}.whole"), node.op, tuple(parts), (whole,), covers=node.covers)
    read = Node(node.name, op, (whole,), (ordered,), covers=joined(node.covers, found.slice.covers))
    readers = editor.readers(output)
    editor.replace(node, made, read)
    if not same:
        order = _order(editor, node, kept)
        for reader in readers:
            _reorder(editor, reader, ordered, order)
    editor.prune((taken,))


def _order(editor: GraphEditor, node: Node, kept: list[str]) -> list[int]:
    """The concatenation's channels in the order in which its parts lie now."""
    begins, at = dict[str, int](), 0
    for name in node.inputs:
        begins[name] = at
        at += editor.type(name).shape[1]
    return [begins[name] + channel for name in kept for channel in range(editor.type(name).shape[1])]


def _reorder(editor: GraphEditor, reader: Node, ordered: str, order: list[int]) -> None:
    weights = reader.inputs[1]
    array = editor.constant(weights)
    assert array is not None
    moved = editor.new_constant(f"{weights}.joined", np.ascontiguousarray(array[:, order]), editor.type(weights).dtype)
    inputs = (ordered, moved, *reader.inputs[2:])
    editor.replace(reader, replace(reader, inputs=inputs))


JOIN_SLICES = Pass("join-slices", _run, pays_on=on_tensor_cores)
