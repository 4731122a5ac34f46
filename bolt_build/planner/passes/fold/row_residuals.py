"""Adds to the image of a convolution what is added to its rows: so it can be part of the convolution.

Vision transformers with convolutions make rows of pixels behind them, and add the rows that the image was made of:
XCiT, DaViT and Conformer do so. Channels last, rows are pixels, and none of these moves moves an element.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import View, whole


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ADD_TO_IMAGES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Binary) or node.op.function != "add" or node.epilogue:
            continue
        for rows, other in (node.inputs, node.inputs[::-1]):
            conv = _convolution(editor, rows, node)
            if conv is None or editor.is_constant(other) or editor.type(other) != editor.type(rows):
                continue
            if _is_of_a_product(editor, other):
                journal.declined(node.name, f"the product in front of it takes the rows of '{conv.name}'")
                continue
            _add(editor, node, conv.outputs[0], other)
            editor.prune([rows])
            journal.did(node.name, "added to the image", f"that '{conv.name}' makes, whose kernel can do it")
            break
    return journal.result(editor.finish())


def _convolution(editor: GraphEditor, rows: str, reader: Node) -> Node | None:
    """The convolution whose pixels are the rows in their order, if moves alone lie between, and nothing else reads what
    lies between."""
    if editor.type(rows) != editor.type(reader.outputs[0]):
        return None
    moves, value = list[Node](), rows
    while (node := editor.producer(value)) is not None and editor.not_private(value) is None and not node.epilogue:
        if isinstance(node.op, Conv):
            return node if moves and _are_pixels(editor, node.outputs[0], moves) else None
        if not isinstance(node.op, Reshape | Transpose):
            return None
        moves.insert(0, node)
        value = node.inputs[0]
    return None


def _are_pixels(editor: GraphEditor, image: str, moves: list[Node]) -> bool:
    """Whether `moves` bring channels from the second place to the last and leave everything else in its order."""
    view: View | None = whole(editor, image)
    for move in moves:
        view = None if view is None else view.moved(move.op, editor.type(move.outputs[0]).shape)
    if view is None or not view.axes:
        return False
    rank = editor.type(image).rank
    last = whole(editor, image).moved(Transpose(_last(rank)), ())
    assert last is not None
    return [digit for axis in view.axes for digit in axis] == [digit for axis in last.axes for digit in axis]


def _last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _is_of_a_product(editor: GraphEditor, value: str) -> bool:
    """Whether a product alone makes it, for this sum, which its own epilogue can take."""
    producer = editor.producer(value)
    return producer is not None and isinstance(producer.op, MatMul | Conv) and editor.not_private(value) is None


def _add(editor: GraphEditor, node: Node, image: str, other: str) -> None:
    """The sum in front of the moves, and moves like them behind it."""
    type_ = editor.type(image)
    order = _last(type_.rank)
    pixels = tuple(type_.shape[axis] for axis in order)
    back = (0, type_.rank - 1, *range(1, type_.rank - 1))
    cut = editor.new_value(f"{other}.pixels", replace(type_, shape=pixels))
    turned = editor.new_value(f"{other}.image", type_)
    total = editor.new_value(f"{node.outputs[0]}.image", type_)
    moved = editor.new_value(f"{node.outputs[0]}.pixels", replace(type_, shape=pixels))
    names = (editor.free_node_name(f"{node.name}.{word}") for word in ("pixels", "image", "rows", "sum"))
    first, second, third, fourth = names
    editor.replace(
        node,
        Node(first, Reshape(pixels), (other,), (cut,)),
        Node(second, Transpose(back), (cut,), (turned,)),
        Node(fourth, node.op, (image, turned), (total,), covers=node.covers),
        Node(third, Transpose(order), (total,), (moved,)),
        Node(node.name, Reshape(editor.type(node.outputs[0]).shape), (moved,), node.outputs),
    )


ADD_TO_IMAGES = Pass("add-to-images", _run, pays_on=on_tensor_cores)
