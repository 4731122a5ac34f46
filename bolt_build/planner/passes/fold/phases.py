"""Computes a convolution of an image's phases, every second pixel of every second row, as one of the image itself.

YOLOv5 and YOLOX begin so (Focus), and SPD-Conv replaces strides by it: four slices are concatenated, and a window of
three by three goes over them. That is a window of six by six over the image, with a stride of two, whose taps are in
another order: as many products, and nothing is moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Phases:
    """The image, the step along each of its axes, and where the slices begin, in the order of their channels."""

    image: str
    steps: tuple[int, ...]
    begins: tuple[tuple[int, ...], ...]
    slices: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(JOIN_PHASES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv):
            continue
        concat = editor.producer(node.inputs[0])
        if concat is None or concat.op != Concat(1) or concat.epilogue:
            continue
        found = _phases(editor, concat)
        if found is None:
            continue
        if (obstacle := _obstacle(editor, node, node.op)) is not None:
            journal.declined(node.name, f"stays behind the phases of '{found.image}': {obstacle}")
            continue
        _join(editor, node, node.op, concat, found)
        journal.did(node.name, "reads", f"'{found.image}' itself, not its {len(found.begins)} phases")
    return journal.result(editor.finish())


def _phases(editor: GraphEditor, concat: Node) -> _Phases | None:
    """The phases of one image that are concatenated, each of whole channels; None where another tensor is."""
    slices = [editor.producer(name) for name in concat.inputs]
    found = [each for each in slices if each is not None and isinstance(each.op, Slice) and not each.epilogue]
    if len(found) != len(slices) or len({each.inputs[0] for each in found}) != 1:
        return None
    image = found[0].inputs[0]
    shape, begins, all_steps = editor.type(image).shape, list[tuple[int, ...]](), set[tuple[int, ...]]()
    for each in found:
        assert isinstance(each.op, Slice)
        begin, count, steps = each.op.begin, each.op.count, each.op.step
        whole = all(step > 0 and n * step == extent for n, step, extent in zip(count, steps, shape, strict=True))
        inside = all(0 <= at < step for at, step in zip(begin, steps, strict=True))
        if not whole or not inside or steps[:2] != (1, 1):
            return None
        begins.append(begin[2:])
        all_steps.add(steps[2:])
    own = all_steps.pop()
    return None if all_steps or set(own) == {1} else _Phases(image, own, tuple(begins), tuple(found))


def _obstacle(editor: GraphEditor, node: Node, op: Conv) -> str | None:
    """Why a convolution does not read the image itself; None where it may."""
    if (reason := weight_obstacle(editor, node) or editor.not_private(node.inputs[0])) is not None:
        return reason
    return "the convolution is grouped or dilated" if op.groups != 1 or set(op.dilations) != {1} else None


def _join(editor: GraphEditor, node: Node, op: Conv, concat: Node, found: _Phases) -> None:
    weight, type_ = editor.constant(node.inputs[1]), editor.type(node.inputs[1])
    assert weight is not None
    channels = editor.type(found.image).shape[1]
    kernel = tuple(extent * step for extent, step in zip(type_.shape[2:], found.steps, strict=True))
    whole = np.zeros((type_.shape[0], channels, *kernel), weight.dtype)
    for at, begin in enumerate(found.begins):
        taps = tuple(slice(first, None, step) for first, step in zip(begin, found.steps, strict=True))
        whole[(slice(None), slice(None), *taps)] += weight[:, at * channels : (at + 1) * channels]
    name = editor.new_constant(f"{node.inputs[1]}.phases", whole, type_.dtype)

    def wider(entries: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(entry * step for entry, step in zip(entries, found.steps, strict=True))

    made = replace(op, strides=wider(op.strides), pads_begin=wider(op.pads_begin), pads_end=wider(op.pads_end))
    covers = joined(*(each.covers for each in found.slices), concat.covers, node.covers)
    read = node.inputs[0]
    editor.replace(node, replace(node, op=made, inputs=(found.image, name, *node.inputs[2:]), covers=covers))
    editor.prune([read])


JOIN_PHASES = Pass("join-phases", _run, pays_on=on_tensor_cores)
