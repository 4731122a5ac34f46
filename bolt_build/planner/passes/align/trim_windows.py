"""Leaves out taps of a convolution's window that read nothing but padding.

A window of three rows that lie 36 apart reaches over an image of 32 rows on either side: its middle tap alone reads
any of them. So do eight of nine taps over an image of one pixel. The others multiply zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

SUFFIX = ".taps"
"""Behind the name of a weight with fewer taps."""


@dataclass(frozen=True)
class _Taps:
    """Of one axis: taps from `first` to `last` may read the image; pads in front of and behind a window of these."""

    first: int
    last: int
    before: int
    behind: int


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(TRIM_WINDOWS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv):
            continue
        image, made = (editor.type(name).shape[2:] for name in (node.inputs[0], node.outputs[0]))
        kernel = editor.type(node.inputs[1]).shape[2:]
        axes = [_taps(node.op, axis, taps, image[axis], made[axis]) for axis, taps in enumerate(kernel)]
        left = tuple(each.last - each.first + 1 for each in axes)
        if left == kernel:
            continue
        window = "x".join(map(str, kernel))
        if not editor.is_constant(node.inputs[1]):
            journal.declined(node.name, f"taps of its {window} window read padding alone, but its weights are computed")
            continue
        _trim(editor, node, node.op, axes)
        journal.did(node.name, f"trimmed its {window} window to {'x'.join(map(str, left))}", "other taps read padding")
    return journal.result(editor.finish())


def _taps(op: Conv, axis: int, taps: int, extent: int, made: int) -> _Taps:
    """Those that read the image for any of the `made` results; all where what is left would begin, or end, inside."""
    step, apart, before, behind = (each[axis] for each in (op.strides, op.dilations, op.pads_begin, op.pads_end))
    firsts = (tap * apart - before for tap in range(taps))
    reads = [
        tap for tap, first in enumerate(firsts)
        if len(range(first, min(extent, first + made * step), step)) > len(range(first, 0, step))
    ]  # fmt: skip
    first, last = (reads[0], reads[-1]) if reads else (0, taps - 1)
    found = _Taps(first, last, before - first * apart, behind - (taps - 1 - last) * apart)
    return found if min(found.before, found.behind) >= 0 else _Taps(0, taps - 1, before, behind)


def _trim(editor: GraphEditor, node: Node, op: Conv, axes: list[_Taps]) -> None:
    name = node.inputs[1]
    array = editor.constant(name)
    assert array is not None
    window = tuple(slice(each.first, each.last + 1) for each in axes)
    part = np.ascontiguousarray(array[(slice(None), slice(None), *window)])
    weight = editor.new_constant(f"{name.removesuffix(SUFFIX)}{SUFFIX}", part, editor.type(name).dtype)
    smaller = replace(
        op, pads_begin=tuple(each.before for each in axes), pads_end=tuple(each.behind for each in axes)
    )  # fmt: skip
    editor.replace(node, replace(node, op=smaller, inputs=(node.inputs[0], weight, *node.inputs[2:])))


TRIM_WINDOWS = Pass("trim-windows", _run)
