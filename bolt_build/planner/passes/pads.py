"""Folds a Pad with zeros into the convolution or average pooling behind it."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.shape import Pad
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_PADS.name)
    for old in editor.nodes():
        pad = editor.node(old.name)
        if pad is None or not isinstance(pad.op, Pad) or pad.epilogue:
            continue
        for reader in editor.readers(pad.outputs[0]):
            if not isinstance(reader.op, Conv | Pool) or reader.inputs[0] != pad.outputs[0]:
                continue
            obstacle = _obstacle(pad.op, reader, pad.outputs[0])
            if obstacle is not None:
                journal.declined(pad.name, f"{obstacle}: '{reader.name}'")
                continue
            _fold(editor, pad, pad.op, reader)
            journal.did(pad.name, "folded", f"into the padding of '{reader.name}'")
        editor.prune(pad.outputs)
    return journal.result(editor.finish())


def _obstacle(pad: Pad, reader: Node, padded: str) -> str | None:
    """Why the pad cannot be the reader's own padding."""
    if pad.mode != "constant" or pad.value != 0:
        return "the pad is not with zeros"
    if any(pad.begin[:2]) or any(pad.end[:2]):
        return "the pad reaches beyond the spatial axes"
    if any(extent < 0 for extent in (*pad.begin, *pad.end)):
        return "the pad crops"
    if reader.inputs.count(padded) > 1:
        return "the padded tensor is also the weight"
    if not isinstance(reader.op, Pool):
        return None
    if reader.op.mode == "max":
        return "max pooling pads with minus infinity, not with zeros"
    own = any(reader.op.pads_begin) or any(reader.op.pads_end)
    if own and not reader.op.count_include_pad:
        return "average pooling would count these zeros and not its own padding"
    if reader.op.ceil_mode:
        return "with ceil_mode windows may start in the pad, but not in padding"
    widths = zip(pad.begin[2:], pad.end[2:], reader.op.kernel, strict=True)
    if any(begin >= kernel or end >= kernel for begin, end, kernel in widths):
        return "the pad is as wide as the window"
    return None


def _fold(editor: GraphEditor, node: Node, pad: Pad, reader: Node) -> None:
    op = reader.op
    assert isinstance(op, Conv | Pool)
    begin = tuple(a + b for a, b in zip(op.pads_begin, pad.begin[2:], strict=True))
    end = tuple(a + b for a, b in zip(op.pads_end, pad.end[2:], strict=True))
    op = replace(op, pads_begin=begin, pads_end=end)
    if isinstance(op, Pool):
        op = replace(op, count_include_pad=True)
    inputs = (node.inputs[0], *reader.inputs[1:])
    editor.replace(reader, replace(reader, op=op, inputs=inputs, covers=joined(node.covers, reader.covers)))


FOLD_PADS = Pass("fold-pads", _run)
