"""Computes images with their channels second that a model has with channels last between its convolutions.

TensorFlow, Keras and Flax have channels last, and ONNX's convolutions have them second. So exporters put a transpose in
front of each convolution and one behind it, and what they could not move out of the way lies between: normalisations,
activations, gates, sums, padding. These say the same of axes in another order, and then most transposes are gone. How
an image lies in memory is another question, which `resolve` answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Cast, Concat, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.quantised.integer_product import IntegerConv
from bolt_build.graph.ops.quantised.quantize import Dequantize, FakeQuantize, Quantize
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.rows.turned_axes import connected, give
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.wording import many

_LEAST_RANK = 4
_BROADCAST = Binary | Where | Quantize | Dequantize | FakeQuantize
"""What broadcasts constants to images."""


@dataclass(frozen=True)
class _Region:
    """Nodes between transposes, in order, and how many transposes fewer there are where their axes are turned; None
    where no convolution is beside them."""

    nodes: tuple[Node, ...]
    saved: int | None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(TURN_IMAGES.name)
    for region in _regions(editor):
        if region.saved is None:
            continue
        first = region.nodes[0].name
        if region.saved > 0:
            _turn(editor, region)
            reason = f"channels are second, as convolutions have them: {many(region.saved, 'transpose')} fewer"
            journal.did(first, f"turned with {many(len(region.nodes) - 1, 'other')}", reason)
        else:
            more = f"{many(-region.saved, 'transpose')} more" if region.saved else "as many transposes"
            journal.declined(first, f"with channels second there would be {more}")
    return journal.result(editor.finish())


def _regions(editor: GraphEditor) -> Iterable[_Region]:
    """Nodes that can be turned, those that share an image together, where a convolution is beside them."""
    able = {node.name: node for node in editor.nodes() if _turned_op(editor, node) is not None}
    for nodes in connected(able, lambda node: _beside(editor, node)):
        yield _Region(nodes, _saved(editor, nodes))


def _beside(editor: GraphEditor, node: Node) -> Iterable[Node]:
    """Nodes that give images to this one, take its own, or read what one transpose brought for both."""
    for name in node.inputs:
        producer = editor.producer(name)
        if producer is not None:
            yield producer
            if _is_forth(editor, producer):
                yield from editor.readers(name)
    if _is_image(editor, node.outputs[0]):
        yield from editor.readers(node.outputs[0])


def _is_image(editor: GraphEditor, value: str) -> bool:
    return editor.type(value).rank >= _LEAST_RANK


def _saved(editor: GraphEditor, nodes: Sequence[Node]) -> int | None:
    """How many transposes fewer there are where `nodes` are turned; None where no convolution is beside them."""
    inside = {node.name for node in nodes}
    saved, convolved = 0, False
    for value in _given(editor, nodes):
        move = editor.producer(value)
        if move is not None and _is_forth(editor, move):
            convolved = convolved or _convolves(editor.producer(move.inputs[0]))
            gone = not editor.is_output(value) and all(each.name in inside for each in editor.readers(value))
            saved += gone and not _is_thin(editor, value)
        else:
            saved -= not _is_thin(editor, value)
    for node in nodes:
        (value,) = node.outputs
        if not _is_image(editor, value):
            continue
        others = [each for each in editor.readers(value) if each.name not in inside]
        backs = [each for each in others if _is_back(editor, each)]
        convolved = convolved or any(_convolves(each) for back in backs for each in editor.readers(back.outputs[0]))
        if not _is_thin(editor, value):
            saved += len(backs) - (len(others) > len(backs) or editor.is_output(value))
    return saved if convolved else None


def _given(editor: GraphEditor, nodes: Sequence[Node]) -> list[str]:
    """The images that nodes take from elsewhere, each once."""
    made = {node.outputs[0] for node in nodes}
    names = dict.fromkeys(name for node in nodes for name in node.inputs)
    return [name for name in names if name not in made and not editor.is_constant(name)]


def _convolves(node: Node | None) -> bool:
    return node is not None and isinstance(node.op, Conv | IntegerConv | Pool)


def _is_thin(editor: GraphEditor, value: str) -> bool:
    """Whether turning the image moves nothing: it has one channel, or one pixel."""
    _, *pixels, channels = editor.type(value).shape
    return channels == 1 or all(extent == 1 for extent in pixels)


def _forth(rank: int) -> tuple[int, ...]:
    """Channels, which are second, come last."""
    return (0, *range(2, rank), 1)


def _back(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _is_forth(editor: GraphEditor, node: Node) -> bool:
    """Whether a node brings channels from the second place to the last."""
    return _moves(editor, node, _forth(editor.type(node.outputs[0]).rank))


def _is_back(editor: GraphEditor, node: Node) -> bool:
    return _moves(editor, node, _back(editor.type(node.outputs[0]).rank))


def _moves(editor: GraphEditor, node: Node, perm: tuple[int, ...]) -> bool:
    """Whether a node orders axes so: a transpose, or a reshape where that moves only extents of 1."""
    given, made = editor.type(node.inputs[0]).shape if node.inputs else (), editor.type(node.outputs[0]).shape
    if len(given) < _LEAST_RANK or len(made) != len(given) or node.epilogue:
        return False
    if isinstance(node.op, Transpose):
        return node.op.perm == perm
    moved = [axis for axis in perm if given[axis] != 1]
    return isinstance(node.op, Reshape) and moved == sorted(moved) and made == _ordered(given, perm)


def _turned_op(editor: GraphEditor, node: Node) -> Op | None:
    """The node's operator on axes in the other order; None where it has none, or is none of those that stand between
    convolutions."""
    if node.epilogue or len(node.outputs) != 1 or not node.inputs:
        return None
    rank, op = editor.type(node.outputs[0]).rank, node.op
    if isinstance(op, Reduce):
        rank = editor.type(node.inputs[0]).rank
    if rank < _LEAST_RANK:
        return None
    for name in node.inputs:
        given = editor.type(name).rank
        if given != rank and not (isinstance(op, _BROADCAST) and editor.is_constant(name) and given < rank):
            return None
    if all(map(editor.is_constant, node.inputs)):
        return None
    back = _back(rank)
    match op:
        case Activation() | Cast() | Binary() | Where() | Quantize() | Dequantize() | FakeQuantize():
            return op
        case Reduce(_, axes) if 0 not in axes and rank - 1 not in axes:  # over pixels
            kept = op.keepdims or len(axes) == rank - 2
            return replace(op, axes=tuple(axis + 1 for axis in axes)) if kept else None
        case Concat(axis):
            return replace(op, axis=back.index(axis))
        case Pad(begin, end):
            return replace(op, begin=_ordered(begin, back), end=_ordered(end, back))
        case Slice(begin, count, step):
            return Slice(_ordered(begin, back), _ordered(count, back), _ordered(step, back))
    return None


def _ordered(numbers: Sequence[int], perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(numbers[axis] for axis in perm)


def _turn(editor: GraphEditor, region: _Region) -> None:
    inside = {node.name for node in region.nodes}
    turned: dict[str, str] = {}
    """By image: the value that has its elements with channels second."""
    given = _given(editor, region.nodes)
    for old in region.nodes:
        node = editor.node(old.name)
        assert node is not None
        op = _turned_op(editor, node)
        assert op is not None
        before, inputs = list[Node](), []
        rank = max(editor.type(name).rank for name in node.inputs)
        least = rank if isinstance(op, Concat) else 0
        for name in node.inputs:
            if name not in turned or editor.type(turned[name]).rank < least:
                turned[name] = _second(editor, name, rank, before, least)
            inputs.append(turned[name])
        (output,) = node.outputs
        if not _is_image(editor, output):
            editor.replace(node, *before, replace(node, op=op, inputs=tuple(inputs)))
            continue
        others = [each for each in editor.readers(output) if each.name not in inside]
        backs = [each for each in others if _is_back(editor, each)]
        made = replace(node, op=op, inputs=tuple(inputs))
        turned[output] = give(editor, made, before, others, backs, lambda *names: [_last(editor, *names)])
    editor.prune(given)


def _last(editor: GraphEditor, node: Node, value: str, output: str) -> Node:
    """A transpose that makes `output`, channels last, of what the node gives now."""
    name = editor.free_node_name(f"{node.name}.turn")
    return Node(name, Transpose(_forth(editor.type(value).rank)), (value,), (output,))


def _second(editor: GraphEditor, name: str, rank: int, before: list[Node], least: int) -> str:
    """What has the elements of an input with channels second; a transpose that makes it is added to `before`. A
    constant keeps `least` axes, others in front of the first that is not 1 are dropped."""
    array, type_ = editor.constant(name), editor.type(name)
    if array is not None:
        if array.size == 1:
            return name
        wide = array.reshape((1,) * (rank - array.ndim) + array.shape).transpose(_back(rank))
        kept = min(rank - least, next(axis for axis, extent in enumerate(wide.shape) if extent != 1))
        return editor.new_constant(f"{name}.turned", np.ascontiguousarray(wide.reshape(wide.shape[kept:])), type_.dtype)
    move = editor.producer(name)
    if move is not None and _is_forth(editor, move):
        return move.inputs[0]
    op = Transpose(_back(rank))
    (made,) = op.infer([type_])
    value = editor.new_value(f"{name}.turned", made)
    before.append(Node(editor.free_node_name(f"{name}.turn"), op, (name,), (value,)))
    return value


TURN_IMAGES = Pass("turn-images", _run)
