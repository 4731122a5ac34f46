"""Moves what is cut out of an image's channels, and what becomes an image, once: channels are last on the image's side.

A model cuts channels into heads, and moves elements in front of pixels: a convolution's result is brought into planes
for that, and moved then. From channels last it is one move, or none. For example the attention of EfficientViT and
EfficientFormer, whose queries, keys and values are convolutions, and the convolutions of CoaT in attention.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import View, made_of, whole

_LAST, _SECOND = Transpose((0, 2, 3, 1)), Transpose((0, 3, 1, 2))
"""Which bring channels behind pixels, and back."""
_FAR = 6
"""Nodes that are asked whether an image is one, one behind the other."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_IMAGES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and _is_move(editor, node):
            _from_image(editor, journal, node)
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is not None and _is_move(editor, node):
            _to_image(editor, journal, node)
    return journal.result(editor.finish())


def _is_move(editor: GraphEditor, node: Node) -> bool:
    return isinstance(node.op, Reshape | Transpose) and not node.epilogue and editor.type(node.outputs[0]).elements > 0


def _moves_to(editor: GraphEditor, end: Node) -> list[Node]:
    """The moves in front of `end`, each read by the next alone, and `end` itself."""
    nodes = [end]
    while (before := editor.producer(nodes[0].inputs[0])) is not None and _is_move(editor, before):
        if editor.not_private(nodes[0].inputs[0]) is not None:
            break
        nodes.insert(0, before)
    return nodes


def _from_image(editor: GraphEditor, journal: Journal, end: Node) -> None:
    """Rewrites the moves from an image to what the transpose `end` leaves."""
    if not isinstance(end.op, Transpose):
        return
    nodes = _moves_to(editor, end)
    (source,) = nodes[0].inputs
    if not isinstance(nodes[0].op, Reshape) or not _is_image(editor, source, _FAR):
        return
    view = _behind(editor, source, nodes)
    if view is None:
        return
    # Axis 1 of the image is the last of what is read, and the others are one further in front.
    place = {0: 0, 1: 3, 2: 1, 3: 2}
    axes = tuple(tuple(replace(digit, axis=place.get(digit.axis, digit.axis)) for digit in axis) for axis in view.axes)
    sizes = tuple(editor.type(source).shape[axis] for axis in _LAST.perm)
    begin = tuple(view.begin[axis] for axis in _LAST.perm)
    ops = made_of(sizes, View(source, begin, axes), axes)
    _rewrite(editor, journal, nodes, None if ops is None else (_LAST, *ops), "read with channels last")


def _to_image(editor: GraphEditor, journal: Journal, end: Node) -> None:
    """Rewrites the moves that end in an image, the last of which joins its channels."""
    (value,) = end.outputs
    shape = editor.type(value).shape
    if not isinstance(end.op, Reshape) or len(shape) != 4 or not _is_read_as_image(editor, value, _FAR):
        return
    nodes = _moves_to(editor, end)
    (source,) = nodes[0].inputs
    view = _behind(editor, source, nodes)
    if view is None or not any(isinstance(node.op, Transpose) for node in nodes):
        return
    ops = made_of(editor.type(source).shape, view, [view.axes[axis] for axis in _LAST.perm])
    _rewrite(editor, journal, nodes, None if ops is None else (*ops, _SECOND), "stored with channels last")


def _behind(editor: GraphEditor, source: str, nodes: list[Node]) -> View | None:
    view: View | None = whole(editor, source)
    for node in nodes:
        view = None if view is None else view.moved(node.op, editor.type(node.outputs[0]).shape)
    return view


def _rewrite(editor: GraphEditor, journal: Journal, nodes: list[Node], ops: tuple[Op, ...] | None, how: str) -> None:
    """`ops` in the place of the nodes, where they move no more often; the move of the image itself is none."""
    end = nodes[-1]
    if ops is None or sum(isinstance(op, Transpose) for op in ops) > 2 or tuple(node.op for node in nodes) == ops:
        return
    chain = Chain(editor, f"{end.name}.image")
    chain.moved(nodes[0].inputs[0], ops, end.outputs[0])
    covers = joined(*(node.covers for node in nodes))
    for node in nodes[:-1]:
        editor.remove(node)
    *front, last = chain.nodes
    editor.replace(end, *front, replace(last, name=end.name, covers=covers))
    journal.did(end.name, "moved once", how)


def _is_image(editor: GraphEditor, value: str, far: int) -> bool:
    """Whether kernels of tensor cores leave the value with channels last: a convolution, or what keeps its layout."""
    node = editor.producer(value)
    if node is None or far == 0 or editor.type(value).rank != 4:
        return False
    if isinstance(node.op, Conv):
        return True
    if isinstance(node.op, Concat | Slice | Activation | Binary | Pool):
        return any(_is_image(editor, name, far - 1) for name in node.op_inputs)
    return node.op == _SECOND


def _is_read_as_image(editor: GraphEditor, value: str, far: int) -> bool:
    """Whether convolutions read the value, or what keeps its layout, and nothing else does."""
    readers = editor.readers(value)
    if not readers or far == 0 or editor.is_output(value):
        return False
    for node in readers:
        if isinstance(node.op, Conv) and node.inputs[0] == value:
            continue
        if not isinstance(node.op, Slice | Concat | Activation | Pool):
            return False
        if not _is_read_as_image(editor, node.outputs[0], far - 1):
            return False
    return True


MOVE_IMAGES = Pass("move-images", _run, pays_on=on_tensor_cores)
