"""Computes convolutions of more than 2 GiB in parts of the batch.

Kernels for products reach so far with offsets of 32 bits. A part of a batch is a run of memory: nothing is copied,
neither on the way in nor where the parts' results lie one behind the other.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

_MOST = (1 << 30) - 1
"""Elements of half precision in less than 2 GiB."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SPLIT_BATCHES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or node.op.groups > 1:
            continue
        x, y = editor.type(node.inputs[0]), editor.type(node.outputs[0])
        positions = prod(y.shape[2:])
        image = max(prod(x.shape[1:]), positions * x.shape[1], positions * y.shape[1])
        if image * x.shape[0] <= _MOST:
            continue
        if editor.is_constant(node.inputs[0]):
            journal.declined(node.name, "its images are constant")
            continue
        if any(_is_of_images(editor, node, stage.operand) for stage in node.epilogue):
            journal.declined(node.name, "a constant of its epilogue has an element for each image")
            continue
        if image > _MOST:
            journal.declined(node.name, f"one image alone has {image} elements, kernels reach {_MOST}")
            continue
        parts = _parts(x.shape[0], _MOST // image)
        _split(editor, node, parts)
        journal.did(node.name, "split", f"into {len(parts)} parts of the batch, of less than 2 GiB each")
    return journal.result(editor.finish())


def _is_of_images(editor: GraphEditor, node: Node, operand: int | None) -> bool:
    """Whether a stage joins a constant with elements for each image of the batch."""
    if operand is None or not editor.is_constant(node.inputs[operand]):
        return False
    shape, output = editor.type(node.inputs[operand]).shape, editor.type(node.outputs[0]).shape
    return len(shape) == len(output) and shape[0] == output[0] > 1


def _parts(images: int, most: int) -> list[int]:
    """As few parts as possible, about equal."""
    count = -(-images // most)
    each, more = divmod(images, count)
    return [each + (part < more) for part in range(count)]


def _split(editor: GraphEditor, node: Node, parts: list[int]) -> None:
    output = editor.type(node.outputs[0])
    filters = range(1, len(node.op_inputs))  # where they are computed, there may be as many as there are images
    made, results, begin = list[Node](), list[str](), 0
    for number, images in enumerate(parts):
        cut = dict[str, str]()  # what the convolution reads twice, as a residual of its own input, is cut once

        def part(
            name: str, begin: int = begin, images: int = images, number: int = number, cut: dict[str, str] = cut
        ) -> str:
            if name in cut:
                return cut[name]
            type_ = editor.type(name)
            if editor.is_constant(name) or type_.rank != output.rank or type_.shape[0] != output.shape[0]:
                return name
            shape = (images, *type_.shape[1:])
            value = editor.new_value(f"{name}.part{number}", replace(type_, shape=shape))
            op = Slice((begin, *(0,) * (type_.rank - 1)), shape, (1,) * type_.rank)
            made.append(Node(editor.free_node_name(f"{node.name}.{name}.part{number}"), op, (name,), (value,)))
            cut[name] = value
            return value

        inputs = tuple(name if index in filters else part(name) for index, name in enumerate(node.inputs))
        shape = (images, *output.shape[1:])
        result = editor.new_value(f"{node.outputs[0]}.part{number}", replace(output, shape=shape))
        name = editor.free_node_name(f"{node.name}.part{number}")
        made.append(replace(node, name=name, inputs=inputs, outputs=(result,)))
        results.append(result)
        begin += images
    editor.replace(node, *made, Node(node.name, Concat(0), tuple(results), node.outputs))


SPLIT_BATCHES = Pass("split-batches", _run, pays_on=on_tensor_cores)
