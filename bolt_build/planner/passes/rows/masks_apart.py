"""Leaves attention two constant masks whose sum would be far larger: a bias of heads, and masks of an image's windows.

For example 64 windows of 144 positions have 64 masks, 4 heads 4 biases, and both together 256. Sums of up to a million
elements are one constant. Larger ones are no weights, so a step would add them up in every run, and attention would
read them as numbers that are computed. Kernels load both instead, and none where the mask of a window is zeros.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention, images_of
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target

_GROWTH = 2
"""Sums of no more than so many times as many elements as both are one constant."""
_LEAST_SCALE = 2**-8
"""Of scores whose constant masks kernels keep in half precision."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MASKS_APART.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Attention) or op.relative or len(op.masks(node.inputs)) != 1:
            continue
        (mask,) = op.masks(node.inputs)
        total = editor.producer(mask)
        if total is None or total.op != Binary("add") or not all(_is_constant(editor, name) for name in total.inputs):
            continue
        elements = [prod(editor.type(name).shape) for name in total.inputs]
        if prod(editor.type(mask).shape) <= _GROWTH * sum(elements):
            continue
        both = _of_heads_and_images(editor, node, op, total)
        if isinstance(both, str):
            journal.declined(node.name, both)
            continue
        made = replace(node, inputs=(*node.inputs[: op.sources], *both, *op.sinks(node.inputs)))
        editor.replace(node, made)
        removed = editor.prune((mask,))
        editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
        whole = prod(editor.type(mask).shape)
        words = f"{elements[0]} and {elements[1]} elements in the place of their sum's {whole}"
        journal.did(node.name, "kept masks apart", words)
    return journal.result(editor.finish())


def _is_constant(editor: GraphEditor, name: str) -> bool:
    """Whether the value is a constant, or one in another shape, which will be one."""
    node = editor.producer(name)
    reshaped = node is not None and isinstance(node.op, Reshape) and editor.is_constant(node.inputs[0])
    return reshaped or editor.is_constant(name)


def _of_heads_and_images(editor: GraphEditor, node: Node, op: Attention, total: Node) -> tuple[str, str] | str:
    """The mask that images share and that of images, or why kernels do not add them."""
    shape = op.extents([editor.type(name) for name in node.inputs])
    images = {name: images_of(editor.type(name).shape, shape.batch) for name in total.inputs}
    shared, of_images = sorted(total.inputs, key=lambda name: images[name])
    if total.epilogue or images[shared] > 1:
        return f"both masks of '{total.name}' are other ones for images"
    if any(editor.type(name).shape[-2:] != (shape.queries, shape.keys) for name in (shared, of_images)):
        return f"a mask of '{total.name}' has no rows of its own for queries"
    if op.sunk or op.scale < _LEAST_SCALE or any(map(editor.is_constant, node.inputs[: op.sources])):
        return "its constant masks are not put in the order of scores"
    return shared, of_images


def _has_kernels(target: Target, precision: str) -> bool:
    return target.gpu is not None and target.gpu.instruction(precision) is not None


MASKS_APART = Pass("masks-apart", _run, pays_on=_has_kernels)
