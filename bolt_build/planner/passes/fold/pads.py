"""Folds a Pad with zeros into the convolution or pooling behind it.

The maximum pads with minus infinity. Of a window that has an element of the image, and no negative one, that is as good
as zeros.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Pad
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined

_Windowed = TypeVar("_Windowed", bound=Conv | Pool)
_CEIL = "with ceil_mode windows may start in the pad, but not in padding"


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_PADS.name)
    for old in editor.nodes():
        pad = editor.node(old.name)
        if pad is None or not isinstance(pad.op, Pad) or pad.epilogue:
            continue
        for reader in editor.readers(pad.outputs[0]):
            if not isinstance(reader.op, Conv | Pool) or reader.inputs[0] != pad.outputs[0]:
                continue
            obstacle = _obstacle(editor, pad, pad.op, reader)
            if obstacle is not None:
                journal.declined(pad.name, f"{obstacle}: '{reader.name}'")
                continue
            _fold(editor, pad, pad.op, reader)
            journal.did(pad.name, "folded", f"into the padding of '{reader.name}'")
        editor.prune(pad.outputs)
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, pad: Pad, reader: Node) -> str | None:
    """Why the pad cannot be the reader's own padding."""
    if pad.mode != "constant" or pad.value != 0:
        return "the pad is not with zeros"
    if any(pad.begin[:2]) or any(pad.end[:2]):
        return "the pad reaches beyond the spatial axes"
    if any(extent < 0 for extent in (*pad.begin, *pad.end)):
        return "the pad crops"
    if reader.inputs.count(node.outputs[0]) > 1:
        return "the padded tensor is also the weight"
    if not isinstance(reader.op, Pool):
        return None
    if (
        obstacle := _of_maxima(editor, node, reader.op) if reader.op.mode == "max" else _of_means(reader.op)
    ) is not None:
        return obstacle
    folded = _padded(reader.op, pad)
    widths = zip(folded.pads_begin, folded.pads_end, folded.kernel, strict=True)
    if any(begin >= kernel or end >= kernel for begin, end, kernel in widths):
        return "the pad is as wide as the window"
    if folded.infer([editor.type(node.inputs[0])]) != (editor.type(reader.outputs[0]),):
        return _CEIL
    return None


def _of_means(op: Pool) -> str | None:
    """Why zeros count for means otherwise than padding does."""
    own = any(op.pads_begin) or any(op.pads_end)
    if own and not op.count_include_pad:
        return "average pooling would count these zeros and not its own padding"
    return _CEIL if op.ceil_mode else None


def _of_maxima(editor: GraphEditor, node: Node, op: Pool) -> str | None:
    """Why zeros count for maxima, which minus infinity does not."""
    source = editor.producer(node.inputs[0])
    if source is None or not isinstance(source.op, Activation) or source.epilogue or not _has_no_negative(source.op):
        return "max pooling pads with minus infinity, not with zeros, of which none is negative"
    return "dilated windows may have no element of the image" if set(op.dilations) != {1} else None


def _has_no_negative(op: Activation) -> bool:
    return op.function in ("relu", "sigmoid") or (op.function == "clip" and op.alpha >= 0)


def _padded(op: _Windowed, pad: Pad) -> _Windowed:
    """The operator with the pad as its own."""
    begin = tuple(a + b for a, b in zip(op.pads_begin, pad.begin[2:], strict=True))
    end = tuple(a + b for a, b in zip(op.pads_end, pad.end[2:], strict=True))
    return replace(op, pads_begin=begin, pads_end=end)


def _fold(editor: GraphEditor, node: Node, pad: Pad, reader: Node) -> None:
    assert isinstance(reader.op, Conv | Pool)
    op = _padded(reader.op, pad)
    if isinstance(op, Pool) and op.mode == "average":
        op = replace(op, count_include_pad=True)
    inputs = (node.inputs[0], *reader.inputs[1:])
    editor.replace(reader, replace(reader, op=op, inputs=inputs, covers=joined(node.covers, reader.covers)))


FOLD_PADS = Pass("fold-pads", _run)
